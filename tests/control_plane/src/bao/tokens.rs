//! Owns tokens and the calls about them: lookup, lookup-self, renew-self, revoke, revoke-self.
//!
//! Policy was judged before; a dead token never gets here. Ages tokens by moving their dates, so that no test sleeps.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Caller, FakeBao, Inner, envelope, errors, object_of};
use crate::clock;
use crate::http::{Request, Response};

/// One token.
#[derive(Clone, Debug)]
pub struct Token {
    /// The token itself, `s.…`.
    pub id: String,
    /// Its accessor.
    pub accessor: String,
    /// The environment's entity.
    pub entity_id: String,
    /// `jwt-tenancy-agent:<env_id>`.
    pub display_name: String,
    /// The call that made it.
    pub path: String,
    /// `env_id`, `grant_jti`, `role`.
    pub meta: BTreeMap<String, String>,
    /// When it was made, since the Unix epoch.
    pub issued: Duration,
    /// When it ends.
    pub expires: Duration,
    /// The TTL it was made with.
    pub creation_ttl_s: u64,
    /// Whether it can be renewed at all.
    pub renewable: bool,
    /// When it was last renewed.
    pub renewed: Option<Duration>,
}

impl Token {
    /// The environment it is for.
    pub fn env_id(&self) -> &str {
        self.meta.get("env_id").map_or("", String::as_str)
    }

    /// The grant it came from.
    pub fn grant_jti(&self) -> &str {
        self.meta.get("grant_jti").map_or("", String::as_str)
    }

    pub(super) fn is_live(&self) -> bool {
        clock::now() < self.expires
    }

    pub(super) fn age(&mut self, by: Duration) {
        self.issued = self.issued.saturating_sub(by);
        self.expires = self.expires.saturating_sub(by);
        self.renewed = self.renewed.map(|at| at.saturating_sub(by));
    }

    /// The real one subtracts a now that is rounded to the second.
    fn ttl_s(&self) -> u64 {
        let now = clock::now();
        let rounded = Duration::from_secs((now + Duration::from_millis(500)).as_secs());
        self.expires.saturating_sub(rounded).as_secs()
    }

    fn lookup(&self) -> Value {
        let mut data = json!({
            "accessor": self.accessor,
            "creation_time": self.issued.as_secs(),
            "creation_ttl": self.creation_ttl_s,
            "display_name": self.display_name,
            "entity_id": self.entity_id,
            "expire_time": clock::rfc3339(self.expires),
            "explicit_max_ttl": 0,
            "id": self.id,
            "issue_time": clock::rfc3339(self.issued),
            "meta": self.meta,
            "num_uses": 0,
            "orphan": true,
            "path": self.path,
            "policies": ["see-env"],
            "renewable": self.renewable,
            "ttl": self.ttl_s(),
            "type": "service",
        });
        if let (Some(at), Some(fields)) = (self.renewed, data.as_object_mut()) {
            fields.insert("last_renewal".to_owned(), clock::rfc3339(at).into());
            fields.insert("last_renewal_time".to_owned(), at.as_secs().into());
        }
        data
    }
}

/// The `auth` object of a login or renewal.
pub(super) fn auth_of(token: &Token, lease_duration: u64) -> Value {
    json!({
        "client_token": token.id,
        "accessor": token.accessor,
        "policies": ["see-env"],
        "token_policies": ["see-env"],
        "metadata": token.meta,
        "lease_duration": lease_duration,
        "renewable": token.renewable,
        "entity_id": token.entity_id,
        "token_type": "service",
        "orphan": true,
        "mfa_requirement": null,
        "num_uses": 0,
    })
}

impl FakeBao {
    pub(super) fn token_call(
        &self,
        inner: &mut Inner,
        request: &Request,
        verb: &str,
        caller: &Caller,
    ) -> Response {
        let body = match object_of(request) {
            Ok(body) => body,
            Err(refusal) => return refusal,
        };
        let named = body.get("token").and_then(Value::as_str);
        let own = match caller {
            Caller::Root => self.root_token().to_owned(),
            Caller::Agent(id, _) => id.clone(),
        };
        match verb {
            "lookup-self" => self.lookup(inner, &own),
            "lookup" => self.lookup(inner, named.unwrap_or(&own)),
            "renew-self" => renew(inner, &own, body.get("increment")),
            "revoke-self" | "revoke" => {
                inner.tokens.remove(if verb == "revoke" {
                    named.unwrap_or_default()
                } else {
                    &own
                });
                Response::empty(204)
            }
            other => errors(
                404,
                &[&format!(
                    "no handler for route \"auth/token/{other}\". route entry not found."
                )],
            ),
        }
    }

    fn lookup(&self, inner: &Inner, id: &str) -> Response {
        if id == self.root_token() {
            return envelope(
                200,
                &json!({"data": {
                    "accessor": "root-accessor", "creation_time": 0, "creation_ttl": 0, "display_name": "token",
                    "entity_id": "", "expire_time": null, "explicit_max_ttl": 0, "id": id, "meta": null, "num_uses": 0,
                    "orphan": true, "path": "auth/token/create", "policies": ["root"], "renewable": false, "ttl": 0,
                    "type": "service",
                }}),
            );
        }
        match inner.tokens.get(id).filter(|token| token.is_live()) {
            Some(token) => envelope(200, &json!({"data": token.lookup()})),
            None => errors(403, &["bad token"]),
        }
    }
}

fn renew(inner: &mut Inner, id: &str, increment: Option<&Value>) -> Response {
    let (ttl, max) = (inner.settings.token_ttl_s, inner.settings.token_max_ttl_s);
    let Some(token) = inner.tokens.get_mut(id).filter(|token| token.renewable) else {
        return errors(400, &["lease is not renewable"]);
    };
    let wanted = increment
        .and_then(seconds)
        .filter(|s| *s > 0)
        .unwrap_or(ttl);
    let now = clock::now();
    let left = (token.issued + Duration::from_secs(max)).saturating_sub(now);
    let left = (left + Duration::from_millis(500)).as_secs();
    let granted = wanted.min(left);
    token.expires = now + Duration::from_secs(granted);
    token.renewed = Some(now);
    let warnings = (wanted > left).then(|| {
        let (wanted, left) = (clock::go_duration(wanted), clock::go_duration(left));
        json!([format!("TTL of \"{wanted}\" exceeded the effective max_ttl of \"{left}\"; TTL value is capped accordingly")])
    });
    envelope(
        200,
        &json!({"auth": auth_of(token, granted), "warnings": warnings}),
    )
}

/// `3600`, `"3600"`, `"3600s"`, `"60m"`, `"1h"`.
fn seconds(value: &Value) -> Option<u64> {
    let text = match value {
        Value::Number(number) => return number.as_u64(),
        Value::String(text) => text.trim(),
        _ => return None,
    };
    let (digits, unit) = text.split_at(
        text.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len()),
    );
    let factor = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return None,
    };
    Some(digits.parse::<u64>().ok()? * factor)
}
