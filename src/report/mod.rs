//! Reports to tenancy: what was done, in typed fields, and free text that has passed the redactor. A report is stored in
//! the state before it is sent and cleared after, so it arrives at least once, byte for byte the same when repeated.

use crate::code::Code;
use crate::deploy::compose_output::Container;
use crate::deploy::trouble;
use crate::error::Error;
use crate::outcome::ResultWord;
use crate::redact::Redactor;
use crate::remote::tenancy::cut_log_tail;
use crate::state::State;
use serde_json::{Value, json};

/// The most that `detail` may have, in characters.
const DETAIL_CHARACTERS: usize = 900;
/// The spool's limits.
const SPOOL_REPORTS: usize = 16;
const SPOOL_BYTES: usize = 1024 * 1024;

/// What a report is made of.
#[derive(Debug)]
pub struct Report<'a> {
    /// Our environment.
    pub env_id: &'a str,
    /// The tick that it tells of.
    pub tick_id: &'a str,
    /// The bundle that it tells of.
    pub sha: Option<&'a str>,
    /// How it ended.
    pub result: ResultWord,
    /// The code of a failure.
    pub code: Option<Code>,
    /// What a person reads, redacted.
    pub detail: Option<String>,
    /// The most telling output, redacted.
    pub log_tail: Option<String>,
    /// What docker shows.
    pub containers: &'a [Container],
    /// How long it took, in seconds.
    pub duration_s: u64,
    /// The names of the secrets.
    pub secrets: Vec<String>,
    /// The sha that was brought back, if one was.
    pub restored: Option<&'a str>,
}

impl Report<'_> {
    /// The body to send.
    pub fn to_json(&self) -> Value {
        let containers: Vec<Value> = self
            .containers
            .iter()
            .map(|c| {
                json!({
                    "service": c.service, "name": c.name, "image": c.image, "state": c.state, "health": c.health,
                    "exit_code": c.exit_code,
                })
            })
            .collect();
        let mut body = json!({
            "env_id": self.env_id,
            "tick_id": self.tick_id,
            "sha": self.sha,
            "result": self.result,
            "containers": containers,
            "duration_s": self.duration_s,
            "secrets": self.secrets,
            "agent_version": env!("CARGO_PKG_VERSION"),
        });
        let optional = [
            ("code", self.code.map(|code| json!(code.as_str()))),
            ("detail", self.detail.as_ref().map(|detail| json!(detail))),
            (
                "log_tail",
                self.log_tail.as_ref().map(|tail| json!(cut_log_tail(tail))),
            ),
            ("restored", self.restored.map(|sha| json!(sha))),
        ];
        if let Some(fields) = body.as_object_mut() {
            fields.extend(
                optional
                    .into_iter()
                    .filter_map(|(name, value)| Some((name.to_owned(), value?))),
            );
        }
        body
    }
}

/// What a failure's `detail` and `last_error` say: the code first, then the words, redacted first and cut afterwards.
pub fn detail(error: &Error, redactor: &Redactor) -> String {
    let code = error.code();
    let words = match error {
        // A finding's own code stands in front of each.
        Error::Refused { findings } => {
            let texts: Vec<String> = findings
                .iter()
                .map(|finding| {
                    if finding.code == code {
                        finding.detail.clone()
                    } else {
                        finding.to_string()
                    }
                })
                .collect();
            redactor.clean(&texts.join("; "))
        }
        // Compose puts the cause last.
        Error::Compose { doing, words, .. } => {
            format!("{doing}: {}", trouble::tail(&redactor.clean(words)))
        }
        other => redactor.clean(&other.to_string()),
    };
    let words = crate::host::log::one_line(&words);
    cut_detail(&format!("{code}: {words}"))
}

/// As much of an already redacted detail as a report carries.
pub fn cut_detail(detail: &str) -> String {
    detail.chars().take(DETAIL_CHARACTERS).collect()
}

/// Adds a report to the spool; the oldest go when it is over its limits.
pub fn spool(state: &mut State, report: Value) {
    state.reports.push(report);
    let size = |reports: &[Value]| {
        reports
            .iter()
            .map(|report| report.to_string().len())
            .sum::<usize>()
    };
    while state.reports.len() > SPOOL_REPORTS
        || (state.reports.len() > 1 && size(&state.reports) > SPOOL_BYTES)
    {
        log::warn!("the spool is full, the oldest undelivered report is dropped");
        state.reports.remove(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Finding;
    use crate::names::EnvId;
    use crate::secret::Secret;

    #[test]
    fn a_detail_begins_with_its_code_and_shows_no_secret() {
        let redactor = Redactor::new();
        redactor.learn("PW", &Secret::new("hunter2-hunter2".into()));
        let error = Error::Compose {
            code: Code::PullAuth,
            doing: "compose pull",
            words: format!("{} denied hunter2-hunter2", "x".repeat(900)),
        };
        let text = detail(&error, &redactor);
        assert!(
            text.starts_with("PULL_AUTH: compose pull: xxx")
                && text.ends_with("denied [redacted:PW]"),
            "{text}"
        );
        assert!(text.chars().count() <= 900);
        let refused = Error::Refused {
            findings: vec![
                Finding::new(Code::EnvIncomplete, "unresolved: A"),
                Finding::new(Code::DiskShort, "x"),
            ],
        };
        assert_eq!(
            detail(&refused, &redactor),
            "ENV_INCOMPLETE: unresolved: A; DISK_SHORT: x"
        );
    }

    #[test]
    fn the_spool_keeps_the_newest() {
        let mut state = State::new(&EnvId::new("env-a").unwrap());
        for n in 0..40 {
            spool(&mut state, json!({"n": n, "log_tail": "x".repeat(100)}));
        }
        assert_eq!(state.reports.len(), 16);
        assert_eq!(state.reports[15]["n"], 39);
        for n in 0..20 {
            spool(&mut state, json!({"n": n, "log_tail": "x".repeat(100_000)}));
        }
        assert!(
            state
                .reports
                .iter()
                .map(|r| r.to_string().len())
                .sum::<usize>()
                <= 1024 * 1024
        );
    }
}
