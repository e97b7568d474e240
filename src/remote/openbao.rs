//! The used part of OpenBao's API: login, the token's own three calls, and reading KV v2. Takes tokens and paths, gives
//! typed answers; tells a missing mount, path, version and key, a deleted and a destroyed version, a forbidden path and
//! a passing trouble apart.

use crate::error::{Error, Refusal, Result};
use crate::host::interrupt::Interrupt;
use crate::json::Fields;
use crate::names::{Peer, SecretPath};
use crate::remote::http::{Answer, Call, Endpoint, Http, JSON_CAP_BYTES};
use crate::remote::resolve::Route;
use crate::remote::{tenancy, words};
use crate::secret::Secret;
use crate::settings::{Scheme, Settings};
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;
use ureq::http::Method;

const TOKEN_HEADER: &str = "x-vault-token";

/// What a login gave.
#[derive(Clone, Debug)]
pub struct Login {
    /// The token.
    pub token: Secret,
    /// How long it lives, in seconds; `None` means for ever.
    pub ttl_s: Option<u64>,
    /// Whether `renew-self` can prolong it.
    pub renewable: bool,
    /// The environment that the grant was for.
    pub env_id: Option<String>,
}

/// What OpenBao says of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenInfo {
    /// Seconds left; `None` means for ever.
    pub ttl_s: Option<u64>,
    /// Seconds that it was made with.
    pub creation_ttl_s: u64,
    /// Whether `renew-self` can prolong it.
    pub renewable: bool,
}

/// One read secret, or why it could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The secret's data.
    Data {
        /// `data.data` as it came.
        data: Value,
        /// The version that was read.
        version: Option<u64>,
    },
    /// The path, or that version of it, was never written.
    Missing,
    /// That version is deleted; it can be undeleted.
    Deleted {
        /// Since when, in OpenBao's words.
        at: String,
    },
    /// That version is gone for good.
    Destroyed,
    /// There is no KV store at that mount.
    NoMount(String),
    /// The policy does not allow it, or the token is dead.
    Forbidden,
}

/// Why a key of a secret gives no value; never shows one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyProblem {
    /// No such key.
    Missing {
        /// The key that was asked for.
        key: String,
        /// The keys that are there.
        present: Vec<String>,
    },
    /// It is an object, a list or null.
    NotScalar(String),
}

impl fmt::Display for KeyProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { key, present } if present.is_empty() => {
                write!(f, "it has no key {key}; it is empty")
            }
            Self::Missing { key, present } => {
                write!(f, "it has no key {key}, only {}", present.join(", "))
            }
            Self::NotScalar(key) => write!(f, "its key {key} is neither text, number nor boolean"),
        }
    }
}

/// The connection to OpenBao.
pub struct OpenBao {
    http: Http,
}

impl OpenBao {
    /// Prepares the connection; dials nothing yet.
    ///
    /// # Errors
    /// [`Error::CaFile`] when `bao.ca_file` cannot be used.
    pub fn new(settings: &Settings, interrupt: &Interrupt) -> Result<Self> {
        let bao = &settings.bao;
        let endpoint = Endpoint {
            peer: Peer::OpenBao,
            https: bao.scheme == Scheme::Https,
            route: Route {
                transport: settings.transport,
                host: bao.host.clone(),
                port: bao.port,
                forwarder: bao.proxy_addr.to_string(),
            },
            timeout: Duration::from_secs(bao.timeout_s),
            ca_file: bao.ca_file.clone(),
            dial_remedy: tenancy::dial_remedy(
                settings,
                &bao.service,
                "#openbao-client",
                &format!("bao.addr says {}", bao.port),
            ),
        };
        Ok(Self {
            http: Http::new(endpoint, interrupt)?,
        })
    }

    /// Whether `addr` is the OpenBao that the configuration names.
    pub fn is_at(&self, addr: &str) -> bool {
        addr.trim_end_matches('/')
            .split_once("://")
            .is_some_and(|(scheme, authority)| self.http.is_origin(scheme, authority))
    }

    /// `POST /v1/auth/{mount}/login` with a deploy grant.
    ///
    /// # Errors
    /// [`Error::LoginRefused`] with OpenBao's reason and a remedy for 400 and 403; temporary errors for the rest.
    pub fn login(&self, mount: &str, role: &str, grant: &Secret) -> Result<Login> {
        let path = format!("/v1/auth/{mount}/login");
        let body =
            zeroize::Zeroizing::new(json!({"role": role, "jwt": grant.expose()}).to_string());
        let call = Call {
            method: Method::POST,
            path: &path,
            auth: None,
            body: Some(body.as_bytes()),
            cap_bytes: JSON_CAP_BYTES,
        };
        let answer = self.http.send(&call)?;
        match answer.status {
            200..=299 => self.read_login(&call, &answer),
            400..=404 => Err(Error::LoginRefused(
                self.login_refusal(&call, &answer, mount, role),
            )),
            _ => Err(self.http.refused(&call, &answer)),
        }
    }

    fn login_refusal(&self, call: &Call<'_>, answer: &Answer, mount: &str, role: &str) -> Refusal {
        let refusal = self.http.refusal(call, answer);
        let words = refusal.words.to_ascii_lowercase();
        let skew = self.http.skew_s().filter(|skew_s| skew_s.abs() >= 60);
        let remedy = match skew {
            Some(skew_s)
                if words.contains("expired")
                    || words.contains("not valid yet")
                    || words.contains("before") =>
            {
                format!(
                    "this box's clock is {} s {} OpenBao's: set it",
                    skew_s.abs(),
                    if skew_s > 0 { "ahead of" } else { "behind" }
                )
            }
            _ if words.contains("expired") => {
                "the grant is too old: re-run the install kit with a fresh one".into()
            }
            _ if words.contains("role") && words.contains("not be found") => {
                format!(
                    "OpenBao has no role {role} at auth mount {mount}: check bao.role and bao.auth_mount"
                )
            }
            // OpenBao does not say that a mount is missing to somebody who is not logged in.
            _ if matches!(answer.status, 403 | 404) => {
                format!(
                    "check that OpenBao has the auth mount {mount} (bao.auth_mount), and that the grant is for this OpenBao"
                )
            }
            _ => "re-run the install kit with a fresh grant".into(),
        };
        Refusal {
            remedy: Some(remedy),
            ..refusal
        }
    }

    fn read_login(&self, call: &Call<'_>, answer: &Answer) -> Result<Login> {
        let value = self.json(call, answer)?;
        let read = || {
            let auth = Fields::of(&value)?.object("auth")?;
            let metadata = auth.object("metadata")?;
            Ok(Login {
                token: Secret::new(auth.required_text("client_token")?.to_owned()),
                ttl_s: auth.seconds("lease_duration")?,
                renewable: auth.boolean("renewable")?.unwrap_or(false),
                env_id: metadata.text("env_id")?.map(str::to_owned),
            })
        };
        read().map_err(|e: crate::json::JsonError| self.malformed(call, &e.to_string()))
    }

    /// `GET /v1/auth/token/lookup-self`; `None` when OpenBao says that the token is dead.
    ///
    /// # Errors
    /// Temporary errors, and other refusals.
    pub fn lookup_self(&self, token: &Secret) -> Result<Option<TokenInfo>> {
        let call = token_call(Method::GET, "/v1/auth/token/lookup-self", token);
        let answer = self.http.send(&call)?;
        match answer.status {
            200..=299 => {
                let value = self.json(&call, &answer)?;
                let read = || {
                    let data = Fields::of(&value)?.object("data")?;
                    let ttl_s = data.whole("ttl")?;
                    // A root token has ttl 0 and no expiry: it never expires.
                    let forever = ttl_s.unwrap_or(0) == 0 && data.text("expire_time")?.is_none();
                    Ok(TokenInfo {
                        ttl_s: if forever { None } else { ttl_s },
                        creation_ttl_s: data.whole("creation_ttl")?.unwrap_or(0),
                        renewable: data.boolean("renewable")?.unwrap_or(false),
                    })
                };
                read()
                    .map(Some)
                    .map_err(|e: crate::json::JsonError| self.malformed(&call, &e.to_string()))
            }
            403 => Ok(None),
            _ => Err(self.http.refused(&call, &answer)),
        }
    }

    /// `POST /v1/auth/token/renew-self`: the seconds that are left then; `None` when the token is dead.
    ///
    /// # Errors
    /// Temporary errors, and other refusals.
    pub fn renew_self(&self, token: &Secret) -> Result<Option<u64>> {
        let call = Call {
            body: Some(b"{}"),
            ..token_call(Method::POST, "/v1/auth/token/renew-self", token)
        };
        let answer = self.http.send(&call)?;
        match answer.status {
            200..=299 => {
                let value = self.json(&call, &answer)?;
                let read = || Fields::of(&value)?.object("auth")?.whole("lease_duration");
                read()
                    .map(|left| Some(left.unwrap_or(0)))
                    .map_err(|e| self.malformed(&call, &e.to_string()))
            }
            403 => Ok(None),
            _ => Err(self.http.refused(&call, &answer)),
        }
    }

    /// `POST /v1/auth/token/revoke-self`, best effort: the policy may forbid it.
    ///
    /// # Errors
    /// Whatever kept it from happening, for a debug line.
    pub fn revoke_self(&self, token: &Secret) -> Result<()> {
        let call = Call {
            body: Some(b"{}"),
            ..token_call(Method::POST, "/v1/auth/token/revoke-self", token)
        };
        let answer = self.http.send(&call)?;
        if answer.is_success() {
            Ok(())
        } else {
            Err(self.http.refused(&call, &answer))
        }
    }

    /// `GET /v1/{mount}/data/{path}`, one version of it when `version` is given.
    ///
    /// # Errors
    /// Temporary errors, and refusals that are no [`Reading`].
    pub fn read(
        &self,
        token: &Secret,
        mount: &str,
        path: &SecretPath,
        version: Option<u64>,
    ) -> Result<Reading> {
        let query = version.map_or_else(String::new, |n| format!("?version={n}"));
        let path = format!(
            "/v1/{}/data/{}{query}",
            mount.trim_matches('/'),
            percent_encode(path.as_str())
        );
        let call = token_call(Method::GET, &path, token);
        let answer = self.http.send(&call)?;
        match answer.status {
            200..=299 => {
                let value = self.json(&call, &answer)?;
                let data = value
                    .pointer("/data/data")
                    .filter(|data| data.is_object())
                    .cloned();
                let version = value
                    .pointer("/data/metadata/version")
                    .and_then(Value::as_u64);
                let data =
                    data.ok_or_else(|| self.malformed(&call, "data.data must be an object"))?;
                Ok(Reading::Data { data, version })
            }
            404 => Ok(read_absence(&answer.body)),
            403 => Ok(Reading::Forbidden),
            _ => Err(self.http.refused(&call, &answer)),
        }
    }

    fn json(&self, call: &Call<'_>, answer: &Answer) -> Result<Value> {
        serde_json::from_slice(&answer.body)
            .map_err(|e| self.malformed(call, &format!("it is not JSON: {e}")))
    }

    fn malformed(&self, call: &Call<'_>, why: &str) -> Error {
        self.http
            .malformed(&format!("{} {}", call.method, call.path), why)
    }
}

fn token_call<'a>(method: Method, path: &'a str, token: &'a Secret) -> Call<'a> {
    Call {
        method,
        path,
        auth: Some((TOKEN_HEADER, token.expose())),
        body: None,
        cap_bytes: JSON_CAP_BYTES,
    }
}

/// What a 404 means: OpenBao answers a deleted version with a body that tells, a missing one with empty `errors`.
fn read_absence(body: &[u8]) -> Reading {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    if let Some(metadata) = value.pointer("/data/metadata") {
        if metadata.get("destroyed").and_then(Value::as_bool) == Some(true) {
            return Reading::Destroyed;
        }
        if let Some(at) = metadata
            .get("deletion_time")
            .and_then(Value::as_str)
            .filter(|at| !at.is_empty())
        {
            return Reading::Deleted { at: at.to_owned() };
        }
    }
    match words::read(body).text {
        text if text.is_empty() => Reading::Missing,
        text => Reading::NoMount(text),
    }
}

/// The bytes that a path may not carry as they are.
fn percent_encode(path: &str) -> String {
    use std::fmt::Write;
    let mut encoded = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_' | b'.' | b'~') {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// The value of `key` in a secret's data: the key that was asked for, else `value`, else the only key there is. A text
/// as it is, a number with its digits kept, a boolean as its JSON text.
///
/// # Errors
/// Says what is there instead, by name.
pub fn value_of(data: &Value, key: Option<&str>) -> std::result::Result<Secret, KeyProblem> {
    let empty = serde_json::Map::new();
    let fields = data.as_object().unwrap_or(&empty);
    let only = || {
        fields
            .keys()
            .next()
            .filter(|_| fields.len() == 1)
            .map(String::as_str)
    };
    let wanted = match key {
        Some(key) => key,
        None if fields.contains_key("value") => "value",
        None => only().unwrap_or("value"),
    };
    match fields.get(wanted) {
        None => Err(KeyProblem::Missing {
            key: wanted.to_owned(),
            present: fields.keys().cloned().collect(),
        }),
        Some(Value::String(text)) => Ok(Secret::new(text.clone())),
        Some(scalar @ (Value::Number(_) | Value::Bool(_))) => Ok(Secret::new(scalar.to_string())),
        Some(_) => Err(KeyProblem::NotScalar(wanted.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ways_a_secret_can_be_absent_are_told_apart() {
        let rows = [
            (r#"{"errors":[]}"#, Reading::Missing),
            (
                r#"{"data":{"data":null,"metadata":{"deletion_time":"2026-09-01T00:00:00Z","destroyed":false}}}"#,
                Reading::Deleted {
                    at: "2026-09-01T00:00:00Z".into(),
                },
            ),
            (
                r#"{"data":{"data":null,"metadata":{"deletion_time":"","destroyed":true}}}"#,
                Reading::Destroyed,
            ),
            (
                r#"{"errors":["no handler for route \"x/data/y\""]}"#,
                Reading::NoMount("no handler for route \"x/data/y\"".into()),
            ),
        ];
        for (body, reading) in rows {
            assert_eq!(read_absence(body.as_bytes()), reading, "{body}");
        }
    }

    #[test]
    fn a_value_keeps_its_digits() {
        let data: Value = serde_json::from_str(
            r#"{"n": 1.10, "big": 123456789012345678901234567890, "b": true, "o": {}}"#,
        )
        .unwrap();
        let text = |key| value_of(&data, Some(key)).unwrap().expose().to_owned();
        assert_eq!(
            (text("n"), text("big"), text("b")),
            (
                "1.10".into(),
                "123456789012345678901234567890".into(),
                "true".into()
            )
        );
        assert_eq!(
            value_of(&data, Some("o")),
            Err(KeyProblem::NotScalar("o".into()))
        );
    }

    #[test]
    fn the_key_is_the_named_one_or_value_or_the_only_one() {
        let one = json!({"password": "p"});
        let two = json!({"password": "p", "value": "v"});
        assert_eq!(value_of(&one, None).unwrap().expose(), "p");
        assert_eq!(value_of(&two, None).unwrap().expose(), "v");
        let problem = value_of(&json!({"a": 1, "b": 2}), None)
            .unwrap_err()
            .to_string();
        assert_eq!(problem, "it has no key value, only a, b");
    }
}
