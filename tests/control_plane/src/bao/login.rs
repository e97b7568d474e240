//! Owns `auth/<mount>/login`: from a grant to a token, in the order and with the words of the real jwt mount.
//!
//! Keeps no replay state, as the real one: a grant logs in as often as it is sent until it expires.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use super::tokens::{Token, auth_of};
use super::{FakeBao, Inner, envelope, errors, object_of, uuid};
use crate::clock;
use crate::http::{Request, Response};

/// The real mount's default for clock skew.
const SKEW_S: f64 = 60.0;
/// How long a grant without `exp` lives beyond its `nbf` or `iat`.
const GRACE_S: f64 = 150.0;

impl FakeBao {
    pub(super) fn login(&self, inner: &mut Inner, request: &Request) -> Response {
        if !matches!(request.method.as_str(), "POST" | "PUT") {
            return errors(405, &["unsupported operation"]);
        }
        let body = match object_of(request) {
            Ok(body) => body,
            Err(refusal) => return refusal,
        };
        let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
        match self.judge(inner, text("role"), text("jwt")) {
            Err(words) => errors(400, &[&words]),
            Ok(claims) => {
                let meta = mapped(&claims, &inner.settings.role);
                let subject = claims
                    .get("sub")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                let (ttl, renewable) = (inner.settings.token_ttl_s, inner.settings.renewable);
                let token = self.add_token(inner, meta, ttl, renewable, subject);
                envelope(200, &serde_json::json!({"auth": auth_of(&token, ttl)}))
            }
        }
    }

    fn judge(&self, inner: &Inner, role: &str, jwt: &str) -> Result<Map<String, Value>, String> {
        let settings = &inner.settings;
        if role.is_empty() {
            return Err("missing role".to_owned());
        }
        if role != settings.role {
            return Err(format!("role \"{role}\" could not be found"));
        }
        if jwt.is_empty() {
            return Err("missing token".to_owned());
        }
        let invalid = |words: String| format!("error validating token: {words}");
        let claims = self.grants.verify(jwt).map_err(invalid)?;
        check_dates(&claims).map_err(|words| invalid(words.to_owned()))?;
        if !has(&claims, "aud", &settings.audience) {
            return Err(invalid(
                "invalid audience (aud) claim: audience claim does not match any expected audience"
                    .to_owned(),
            ));
        }
        match claims.get("sub") {
            Some(Value::String(_)) => {}
            _ => return Err("claim \"sub\" not found in token".to_owned()),
        }
        if !claims.contains_key("kind") {
            return Err("error validating claims: claim \"kind\" is missing".to_owned());
        }
        if !has(&claims, "kind", &settings.kind) {
            return Err("error validating claims: claim \"kind\" does not match any associated bound claim values".to_owned());
        }
        Ok(claims)
    }

    /// Makes a token and remembers it.
    pub(super) fn add_token(
        &self,
        inner: &mut Inner,
        meta: BTreeMap<String, String>,
        ttl_s: u64,
        renewable: bool,
        subject: &str,
    ) -> Token {
        // One entity per subject, as the real one's alias makes it.
        let entity = inner
            .entities
            .entry(subject.to_owned())
            .or_insert_with(|| uuid(&self.random_hex(16)))
            .clone();
        let now = clock::now();
        let token = Token {
            id: format!("s.{}", self.random_hex(12)),
            accessor: self.random_hex(12),
            entity_id: entity,
            display_name: format!("{}-{subject}", inner.settings.auth_mount),
            path: format!("auth/{}/login", inner.settings.auth_mount),
            meta,
            issued: now,
            expires: now + Duration::from_secs(ttl_s),
            creation_ttl_s: ttl_s,
            renewable,
            renewed: None,
        };
        inner.tokens.insert(token.id.clone(), token.clone());
        token
    }
}

fn mapped(claims: &Map<String, Value>, role: &str) -> BTreeMap<String, String> {
    let mut meta = BTreeMap::from([("role".to_owned(), role.to_owned())]);
    for (claim, key) in [("env_id", "env_id"), ("jti", "grant_jti")] {
        if let Some(Value::String(value)) = claims.get(claim) {
            meta.insert(key.to_owned(), value.clone());
        }
    }
    meta
}

fn check_dates(claims: &Map<String, Value>) -> Result<(), &'static str> {
    let number = |name: &str| claims.get(name).and_then(Value::as_f64);
    let now = clock::now().as_secs_f64();
    let start = number("nbf").or_else(|| number("iat"));
    let end = number("exp").or_else(|| start.map(|start| start + GRACE_S));
    let Some(end) = end else {
        return Err(
            "no issued at (iat), not before (nbf), or expiration time (exp) claims in token",
        );
    };
    if now > end + SKEW_S {
        return Err("invalid expiration time (exp) claim: token is expired");
    }
    if start.is_some_and(|start| now < start - SKEW_S) {
        return Err("invalid not before (nbf) claim: token not yet valid");
    }
    Ok(())
}

/// A claim may be a string or a list of them.
fn has(claims: &Map<String, Value>, name: &str, wanted: &str) -> bool {
    match claims.get(name) {
        Some(Value::String(value)) => value == wanted,
        Some(Value::Array(values)) => values.iter().any(|value| value == wanted),
        _ => false,
    }
}
