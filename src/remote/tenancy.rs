//! Tenancy's agent entrypoint: checkin, bundle, lease, report. Takes a bearer and typed bodies, gives typed answers.
//! Decides nothing: what a refused bearer means is the tick's business.

use crate::error::{Error, Refusal, Result};
use crate::host::interrupt::Interrupt;
use crate::json::{Fields, JsonError};
use crate::names::{EnvId, Peer, Sha256, TransportKind};
use crate::remote::http::{Answer, Call, Endpoint, Http, JSON_CAP_BYTES};
use crate::remote::resolve::Route;
use crate::secret::Secret;
use crate::settings::{Scheme, Settings};
use serde_json::{Value, json};
use std::time::Duration;
use ureq::http::Method;

/// The most that a bundle may have, in bytes.
pub const BUNDLE_CAP_BYTES: u64 = 4 * 1024 * 1024;
/// The most that a report's `log_tail` may have, in bytes.
const LOG_TAIL_CAP_BYTES: usize = 64 * 1024;

/// What tenancy wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing is to change.
    None,
    /// This bundle is to run.
    Apply(Sha256),
    /// Nothing is to run.
    Down {
        /// Whether the volumes may go too.
        purge_volumes: bool,
    },
    /// A word that we do not know.
    Unknown(String),
}

/// Where tenancy says the secrets are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vault {
    /// OpenBao's address.
    pub addr: Option<String>,
    /// The KV mount.
    pub mount: Option<String>,
    /// The part of the mount that this environment may read.
    pub prefix: Option<String>,
    /// The auth mount for logins.
    pub auth_mount: Option<String>,
    /// The role for logins.
    pub auth_role: Option<String>,
}

/// The answer to a checkin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkin {
    /// What is to be done.
    pub action: Action,
    /// The environment that tenancy thinks we are.
    pub env_id: Option<String>,
    /// Where the bundle is, as tenancy wrote it.
    pub bundle_url: Option<String>,
    /// When to check in again, in seconds; `None` means at every tick.
    pub interval_s: Option<u64>,
    /// Where the secrets are.
    pub vault: Vault,
}

/// A bundle as it came.
#[derive(Debug)]
pub struct FetchedBundle {
    /// The tar.
    pub body: Vec<u8>,
    /// What the header says its sha256 is.
    pub header_sha: Option<String>,
}

/// A deploy grant from tenancy.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The grant.
    pub grant: Secret,
    /// How long it may be used, in seconds.
    pub ttl_s: u64,
    /// The auth mount for its login.
    pub mount: Option<String>,
    /// The role for its login.
    pub role: Option<String>,
    /// OpenBao's address for its login.
    pub addr: Option<String>,
}

/// Why a lease is wanted; tenancy only logs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseReason {
    /// For an apply.
    Apply,
    /// The token runs out.
    Renew,
}

/// The connection to tenancy.
pub struct Tenancy {
    http: Http,
    env_id: EnvId,
}

impl Tenancy {
    /// Prepares the connection; dials nothing yet.
    ///
    /// # Errors
    /// None that a well-formed configuration can give: tenancy has no CA file of its own.
    pub fn new(settings: &Settings, interrupt: &Interrupt) -> Result<Self> {
        let tenancy = &settings.tenancy;
        let port_hint = if tenancy.port == 443 {
            "dial the intercept port of the mesh service".to_owned()
        } else {
            format!(
                "the intercept port is 443, the configuration says {} (8081 is the pod's own port and no intercept)",
                tenancy.port
            )
        };
        let endpoint = Endpoint {
            peer: Peer::Tenancy,
            https: tenancy.scheme == Scheme::Https,
            route: Route {
                transport: settings.transport,
                host: tenancy.host.clone(),
                port: tenancy.port,
                forwarder: tenancy.proxy_addr.to_string(),
            },
            timeout: Duration::from_secs(tenancy.timeout_s),
            ca_file: None,
            dial_remedy: dial_remedy(
                settings,
                &tenancy.service,
                "#monky-deploy-agent",
                &port_hint,
            ),
        };
        Ok(Self {
            http: Http::new(endpoint, interrupt)?,
            env_id: settings.env_id.clone(),
        })
    }

    /// How far our clock is ahead of tenancy's, in seconds.
    pub fn skew_s(&self) -> Option<i64> {
        self.http.skew_s()
    }

    /// `POST /v1/agent/checkin`. A 422 gets one retry with the body that every tenancy must take.
    ///
    /// # Errors
    /// Connection errors, [`Error::Answer`] for any status but 2xx, [`Error::Malformed`].
    pub fn checkin(&self, bearer: &Secret, body: &Value) -> Result<Checkin> {
        let minimal = json!({"env_id": self.env_id, "applied_sha": body.get("applied_sha")});
        let answer = self.post(bearer, "/v1/agent/checkin", body, Some(&minimal))?;
        self.parse("POST /v1/agent/checkin", &answer, read_checkin)
    }

    /// Fetches the bundle `sha` from `url`, a path on tenancy or an absolute URL with tenancy's own origin.
    ///
    /// # Errors
    /// [`Error::BundleGone`] when the desired state moved on (404, 409, 410); [`Error::Refused`] when the body is over
    /// the cap; else as [`Tenancy::checkin`].
    pub fn bundle(
        &self,
        bearer: &Secret,
        sha: &Sha256,
        url: Option<&str>,
    ) -> Result<FetchedBundle> {
        let own = format!("/v1/agent/bundle/{}/{sha}", self.env_id);
        let path = match url {
            None => own,
            Some(url) => self.path_of(url)?,
        };
        let call = Call {
            method: Method::GET,
            path: &path,
            auth: Some(("authorization", &bearer_header(bearer))),
            body: None,
            cap_bytes: BUNDLE_CAP_BYTES,
        };
        let answer = match self.http.send(&call) {
            Err(Error::Malformed { why, .. }) if why.contains("longer than") => {
                let finding = crate::error::Finding::new(
                    crate::code::Code::BundleInvalid,
                    format!("it is larger than {} MiB", BUNDLE_CAP_BYTES / 1024 / 1024),
                );
                return Err(Error::Refused {
                    findings: vec![finding],
                });
            }
            sent => sent?,
        };
        match answer.status {
            200..=299 => {
                let header_sha = answer
                    .header("x-bundle-sha256")
                    .or_else(|| answer.header("x-bundle-sha"))
                    .map(str::to_owned);
                Ok(FetchedBundle {
                    body: answer.body,
                    header_sha,
                })
            }
            404 | 409 | 410 => Err(Error::BundleGone(Refusal {
                remedy: Some("the desired state moved on; the next tick asks again".into()),
                ..self.http.refusal(&call, &answer)
            })),
            _ => Err(self.http.refused(&call, &answer)),
        }
    }

    /// `POST /v1/agent/lease`.
    ///
    /// # Errors
    /// [`Error::LeaseShape`] when the answer has no grant; else as [`Tenancy::checkin`].
    pub fn lease(&self, bearer: &Secret, reason: LeaseReason) -> Result<Lease> {
        let reason = match reason {
            LeaseReason::Apply => "apply",
            LeaseReason::Renew => "renew",
        };
        let body = json!({"env_id": self.env_id, "reason": reason});
        let minimal = json!({"env_id": self.env_id});
        let answer = self.post(bearer, "/v1/agent/lease", &body, Some(&minimal))?;
        match self.parse("POST /v1/agent/lease", &answer, read_lease)? {
            Ok(lease) => Ok(lease),
            Err(why) => Err(Error::LeaseShape { why }),
        }
    }

    /// `POST /v1/agent/report`. On a 422 the details go into the log tail, which every tenancy takes.
    ///
    /// # Errors
    /// As [`Tenancy::checkin`].
    pub fn report(&self, bearer: &Secret, body: &Value) -> Result<()> {
        let mut minimal = serde_json::Map::new();
        for name in ["env_id", "tick_id", "sha", "result"] {
            if let Some(value) = body.get(name).filter(|value| !value.is_null()) {
                minimal.insert(name.into(), value.clone());
            }
        }
        let part = |name: &str| {
            body.get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let tail = format!("{}\n{}", part("detail"), part("log_tail"));
        minimal.insert("log_tail".into(), cut_log_tail(&tail).into());
        self.post(bearer, "/v1/agent/report", body, Some(&minimal.into()))
            .map(drop)
    }

    fn post(
        &self,
        bearer: &Secret,
        path: &str,
        body: &Value,
        minimal: Option<&Value>,
    ) -> Result<Answer> {
        let header = bearer_header(bearer);
        let bytes = body.to_string();
        let mut call = Call {
            method: Method::POST,
            path,
            auth: Some(("authorization", &header)),
            body: Some(bytes.as_bytes()),
            cap_bytes: JSON_CAP_BYTES,
        };
        let mut answer = self.http.send(&call)?;
        let minimal = minimal.map(Value::to_string);
        if let (422, Some(minimal)) = (answer.status, &minimal) {
            log::warn!(path = path, words = self.http.refusal(&call, &answer).words; "tenancy does not take the whole body, trying the minimal one");
            call.body = Some(minimal.as_bytes());
            answer = self.http.send(&call)?;
        }
        if answer.is_success() {
            Ok(answer)
        } else {
            Err(self.http.refused(&call, &answer))
        }
    }

    fn parse<T>(
        &self,
        request: &str,
        answer: &Answer,
        read: impl Fn(&Fields<'_>) -> Result<T, JsonError>,
    ) -> Result<T> {
        let malformed = |why: &str| self.http.malformed(request, why);
        let value: Value = serde_json::from_slice(&answer.body)
            .map_err(|e| malformed(&format!("it is not JSON: {e}")))?;
        Fields::of(&value)
            .and_then(|fields| read(&fields))
            .map_err(|e| malformed(&e.to_string()))
    }

    /// The path of a bundle URL; the bearer never goes to another origin.
    fn path_of(&self, url: &str) -> Result<String> {
        let refused = |why: &str| {
            Err(self.http.malformed(
                "POST /v1/agent/checkin",
                &format!("bundle_url {url:?} {why}"),
            ))
        };
        let path = match url.split_once("://") {
            None => url,
            Some((scheme, rest)) => {
                let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
                if !self.http.is_origin(scheme, authority) {
                    return refused("is on another host than tenancy");
                }
                path
            }
        };
        if !path.starts_with('/') || path.starts_with("//") {
            return refused("is not a path on tenancy");
        }
        if path.bytes().any(|b| !b.is_ascii_graphic()) {
            return refused("holds characters that no URL has");
        }
        Ok(path.to_owned())
    }
}

/// What to check when a dial fails: the parts of the mesh that have to let us through.
pub(super) fn dial_remedy(
    settings: &Settings,
    service: &str,
    attribute: &str,
    port_hint: &str,
) -> String {
    let tunneler = match settings.transport {
        TransportKind::System => "that ziti-edge-tunnel runs",
        TransportKind::Proxy => "that the forwarder (monky-deployd-proxy.service) runs",
    };
    let identity = match &settings.identity {
        Some(path) if !path.exists() => {
            format!("; the identity file {} is not there", path.display())
        }
        _ => String::new(),
    };
    format!(
        "check {tunneler}, that the host identity has the attribute {attribute} and a dial policy for the service {service}, \
         and the port: {port_hint}{identity}"
    )
}

/// As much of the beginning of a log as a report carries.
pub fn cut_log_tail(text: &str) -> &str {
    cut(text, LOG_TAIL_CAP_BYTES)
}

/// The beginning of `text`, at most `cap` bytes, at a character's end.
fn cut(text: &str, cap: usize) -> &str {
    let end = (0..=cap.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

fn bearer_header(bearer: &Secret) -> zeroize::Zeroizing<String> {
    format!("Bearer {}", bearer.expose()).into()
}

fn read_checkin(fields: &Fields<'_>) -> Result<Checkin, JsonError> {
    let action = match fields.required_text("action")? {
        "none" => Action::None,
        "apply" => {
            let sha = fields.required_text("desired_sha")?.to_ascii_lowercase();
            Action::Apply(
                Sha256::new(&sha)
                    .map_err(|_| fields.wrong("desired_sha", "64 hexadecimal digits"))?,
            )
        }
        "down" => Action::Down {
            purge_volumes: fields.boolean("purge_volumes")?.unwrap_or(false),
        },
        other => Action::Unknown(other.to_owned()),
    };
    let vault = fields.object("vault")?;
    let owned = |text: Option<&str>| text.map(str::to_owned);
    Ok(Checkin {
        action,
        env_id: owned(fields.text("env_id")?),
        bundle_url: owned(fields.text("bundle_url")?),
        interval_s: fields.seconds("checkin_interval_s")?,
        vault: Vault {
            addr: owned(vault.text("addr")?),
            mount: owned(vault.text("mount")?),
            prefix: owned(vault.text("prefix")?),
            auth_mount: owned(vault.text("auth_mount")?),
            auth_role: owned(vault.text("auth_role")?),
        },
    })
}

/// A lease, or why its answer is none.
fn read_lease(fields: &Fields<'_>) -> Result<std::result::Result<Lease, String>, JsonError> {
    let Some(grant) = fields.text("login_jwt")? else {
        let retired = ["wrapping_token", "role_id"]
            .into_iter()
            .any(|name| fields.value(name).is_some());
        return Ok(Err(if retired {
            "it is an AppRole lease; those were retired on 2026-09-05, so tenancy must be upgraded"
                .into()
        } else {
            "it has no login_jwt".into()
        }));
    };
    let vault = fields.object("vault")?;
    let owned = |text: Option<&str>| text.map(str::to_owned);
    Ok(Ok(Lease {
        grant: Secret::new(grant.trim().to_owned()),
        ttl_s: fields.seconds("ttl_s")?.unwrap_or(3_600),
        mount: owned(fields.text("mount")?),
        role: owned(fields.text("role")?),
        addr: owned(fields.text("addr")?.or(vault.text("addr")?)),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkin(text: &str) -> Result<Checkin, JsonError> {
        let value: Value = serde_json::from_str(text).unwrap();
        read_checkin(&Fields::of(&value).unwrap())
    }

    #[test]
    fn a_checkin_with_explicit_nulls_is_one_without_those_fields() {
        let sparse = checkin(r#"{"action":"none"}"#).unwrap();
        let nulls = r#"{"env_id":null,"desired_sha":null,"action":"none","purge_volumes":null,"bundle_url":null,
            "checkin_interval_s":null,"vault":{"addr":null,"mount":"","prefix":null,"auth_mount":null,"auth_role":null}}"#;
        assert_eq!(checkin(nulls).unwrap(), sparse);
        assert_eq!(sparse.interval_s, None);
    }

    #[test]
    fn what_a_checkin_must_have_is_named() {
        assert!(checkin("{}").unwrap_err().to_string().contains("action"));
        assert!(
            checkin(r#"{"action":"apply"}"#)
                .unwrap_err()
                .to_string()
                .contains("desired_sha")
        );
        assert!(
            checkin(r#"{"action":"apply","desired_sha":"xyz"}"#)
                .unwrap_err()
                .to_string()
                .contains("64 hexadecimal")
        );
        assert_eq!(
            checkin(r#"{"action":"dance"}"#).unwrap().action,
            Action::Unknown("dance".into())
        );
    }

    #[test]
    fn a_lease_without_a_grant_says_why() {
        let lease = |text: &str| {
            let value: Value = serde_json::from_str(text).unwrap();
            read_lease(&Fields::of(&value).unwrap()).unwrap()
        };
        assert!(lease("{}").unwrap_err().contains("login_jwt"));
        assert!(
            lease(r#"{"wrapping_token":"x"}"#)
                .unwrap_err()
                .contains("2026-09-05")
        );
        let good =
            lease(r#"{"login_jwt":"a.b.c\n","ttl_s":0,"vault":{"addr":"https://b:1"}}"#).unwrap();
        assert_eq!(
            (good.grant.expose(), good.ttl_s, good.addr.as_deref()),
            ("a.b.c", 3_600, Some("https://b:1"))
        );
    }

    #[test]
    fn a_cut_keeps_whole_characters() {
        assert_eq!(cut("aä", 2), "a");
        assert_eq!(cut("aä", 3), "aä");
    }
}
