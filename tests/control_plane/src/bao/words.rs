//! Owns how OpenBao speaks: its envelope, its error body, its refusals while it does not serve, its tidy paths.
//!
//! Gives finished responses; knows no state.

use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Map, Value, json};

use super::Mode;
use crate::grants::hex;
use crate::http::{Request, Response};

/// OpenBao's error body.
pub(super) fn errors(status: u16, words: &[&str]) -> Response {
    Response::json(status, &json!({"errors": words}))
}

/// OpenBao's envelope around `data` or `auth`.
pub(super) fn envelope(status: u16, fields: &Value) -> Response {
    let mut body = Map::new();
    let id = random_hex(&SystemRandom::new(), 16);
    body.insert("request_id".to_owned(), uuid(&id).into());
    let rest = json!({"lease_id": "", "renewable": false, "lease_duration": 0, "data": null, "wrap_info": null,
        "warnings": null, "auth": null});
    body.extend(rest.as_object().cloned().unwrap_or_default());
    body.extend(fields.as_object().cloned().unwrap_or_default());
    let text = escape_as_go(&Value::Object(body).to_string());
    Response::bytes(status, "application/json", text)
}

/// Go's encoder escapes these inside strings; elsewhere in JSON they do not occur.
fn escape_as_go(json: &str) -> String {
    json.replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// The body of a call that takes a JSON object or nothing.
pub(super) fn object_of(request: &Request) -> Result<Map<String, Value>, Response> {
    if request.body.is_empty() {
        return Ok(Map::new());
    }
    match request.json() {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(errors(
            400,
            &[
                "failed to decode JSON input: json: cannot unmarshal into Go value of type map[string]interface {}",
            ],
        )),
        Err(error) => Err(errors(
            400,
            &[&format!("failed to decode JSON input: {error}")],
        )),
    }
}

pub(super) fn refuse_by_mode(mode: &Mode, request: &Request) -> Option<Response> {
    match mode {
        Mode::Active => None,
        Mode::Sealed if request.path() == "/v1/sys/health" => Some(Response::json(
            503,
            &json!({"initialized": true, "sealed": true, "standby": true, "version": "2.7.2"}),
        )),
        Mode::Sealed => Some(errors(503, &["Vault is sealed"])),
        Mode::NotInitialised if request.path() == "/v1/sys/health" => Some(Response::json(
            501,
            &json!({"initialized": false, "sealed": true, "standby": true, "version": "2.7.2"}),
        )),
        Mode::NotInitialised => Some(errors(503, &["Vault is sealed"])),
        Mode::Standby(leader) => {
            let leader = leader.trim_end_matches('/');
            Some(
                Response::empty(307).with_header("Location", format!("{leader}{}", request.target)),
            )
        }
        Mode::LostLeader => Some(errors(
            500,
            &["local node not active but active cluster node not found"],
        )),
    }
}

/// The path that Go's router redirects to; None when it is clean.
pub(super) fn cleaned(path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').skip(1) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            other => parts.push(other),
        }
    }
    let mut clean = format!("/{}", parts.join("/"));
    if path.ends_with('/') && clean != "/" {
        clean.push('/');
    }
    (clean != path).then_some(clean)
}

pub(super) fn random_hex(random: &SystemRandom, bytes: usize) -> String {
    let mut buffer = vec![0; bytes];
    let _ = random.fill(&mut buffer);
    hex(&buffer)
}

pub(super) fn uuid(hex: &str) -> String {
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    format!(
        "{}-{}-{}-{}-{}",
        part(0, 8),
        part(8, 12),
        part(12, 16),
        part(16, 20),
        part(20, 32)
    )
}
