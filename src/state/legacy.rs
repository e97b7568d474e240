//! The state of 0.1.x (the Python agent), imported by name. What it has no name for stays unknown: the next checkin
//! brings it.

use crate::host::clock::Timestamp;
use crate::names::{EnvId, Sha256};
use crate::outcome::ResultWord;
use crate::state::{Applied, Last, State, TokenRecord, TokenSource};
use serde_json::Value;

/// The state that a 0.1.x document means; `None` when it has none of the known names.
pub fn import(document: &Value, env_id: &EnvId) -> Option<State> {
    let known = ["applied_sha", "last_result", "last_error", "token"];
    if !known.iter().any(|name| document.get(name).is_some()) {
        return None;
    }
    let text = |name: &str| {
        document
            .get(name)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
    };
    let mut state = State::new(env_id);
    state.applied = text("applied_sha")
        .and_then(|sha| Sha256::new(&sha.to_ascii_lowercase()).ok())
        .map(|sha| Applied {
            sha,
            release: None,
            at: Timestamp::now(),
            generation: None,
            rendered_at: None,
            secrets: Vec::new(),
            duration_s: 0,
            running: Vec::new(),
        });
    state.last = text("last_result")
        .and_then(|result| match result {
            "applied" | "ok" | "none" => Some(ResultWord::Applied),
            "failed" | "error" => Some(ResultWord::Failed),
            "down" => Some(ResultWord::Down),
            _ => None,
        })
        .map(|result| Last {
            result,
            code: None,
            detail: text("last_error").map(str::to_owned),
            at: Timestamp::now(),
        });
    state.token = document
        .pointer("/token/source")
        .and_then(Value::as_str)
        .map(|source| TokenRecord {
            source: if source == "lease" {
                TokenSource::Lease
            } else {
                TokenSource::Bootstrap
            },
            grant_sha256: None,
            known_at: None,
            token_sha256: None,
            // Unknown, and so looked up before it is relied upon.
            expires_at: None,
            creation_ttl_s: 0,
            renewable: true,
            swap_deferred: false,
        });
    Some(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_0_1_are_carried_over() {
        let sha = Sha256::of(b"x");
        let text = format!(
            r#"{{"applied_sha":"{sha}","last_result":"failed","last_error":"boom","token":{{"source":"lease"}}}}"#
        );
        let state = import(
            &serde_json::from_str(&text).unwrap(),
            &EnvId::new("env-a").unwrap(),
        )
        .unwrap();
        assert_eq!(state.applied_sha(), Some(&sha));
        assert_eq!(state.last.unwrap().detail.as_deref(), Some("boom"));
        assert_eq!(state.token.unwrap().source, TokenSource::Lease);
    }

    #[test]
    fn an_unknown_document_is_not_guessed_at() {
        assert_eq!(
            import(&serde_json::json!({"a": 1}), &EnvId::new("env-a").unwrap()),
            None
        );
    }
}
