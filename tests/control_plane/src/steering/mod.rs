//! Owns `/_control/…` on tenancy's port: the knobs of the library as HTTP calls, for a shell with curl.
//!
//! Loopback and development only, without authentication; its calls are neither logged nor spoilt. Everything else is tenancy's.

mod rules;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::bao::{FakeBao, Mode};
use crate::bundle::Bundle;
use crate::faults::FaultId;
use crate::grants::{GrantSpec, Grants};
use crate::http::{Handler, Request, Response, Shared};
use crate::tenancy::{Tenancy, Want};

/// Tenancy with a steering wheel.
pub(crate) struct Steering {
    pub env_id: String,
    pub tenancy: Arc<Tenancy>,
    pub bao: Option<Arc<FakeBao>>,
    pub grants: Arc<Grants>,
    pub shared: Shared,
}

/// What a call came to: a JSON answer, or the words of a 400.
type Outcome = Result<Response, String>;

impl Handler for Steering {
    fn handle(&self, request: &Request) -> Response {
        self.tenancy.handle(request)
    }

    fn steer(&self, request: &Request) -> Option<Response> {
        let route = request.path().strip_prefix("/_control/")?;
        let outcome = self.call(request, route);
        Some(outcome.unwrap_or_else(|words| Response::json(400, &json!({"error": words}))))
    }
}

impl Steering {
    fn call(&self, request: &Request, route: &str) -> Outcome {
        let (head, rest) = route.split_once('/').unwrap_or((route, ""));
        match (request.method.as_str(), head) {
            ("PUT", "bundle") => {
                let bundle = Bundle::raw(request.body.clone());
                self.tenancy.add_bundle(&bundle);
                ok(&json!({"sha": bundle.sha()}))
            }
            ("PUT", "apply") => {
                let bundle = Bundle::raw(request.body.clone());
                self.tenancy.apply(&bundle);
                ok(&json!({"sha": bundle.sha()}))
            }
            ("POST", "desired") => self.desired(&body(request)?),
            ("PUT", "secret") => {
                ok(&json!({"version": self.bao()?.put_secret(rest, body(request)?)}))
            }
            ("DELETE", "secret") => self.drop_secret(request, rest),
            ("POST", "bao") => self.bao_state(&body(request)?),
            ("POST", "revoke-all") => {
                self.bao()?.revoke_all();
                ok(&json!({}))
            }
            ("POST", "age") => self.age(&body(request)?),
            ("POST", "grant") => self.grant(&body(request)?),
            ("POST", "fault") => {
                let FaultId(id) = self.shared.faults.add(rules::parse(&body(request)?)?);
                ok(&json!({"id": id}))
            }
            ("DELETE", "fault") => self.drop_faults(rest),
            ("GET", "fault") => ok(&json!({"hits": self.shared.faults.hits(fault_id(rest)?)})),
            ("GET", "reports") => ok(&self.tenancy.reports().into()),
            ("GET", "checkins") => ok(&self.tenancy.checkins().into()),
            ("GET", "requests") => {
                let all: Vec<Value> = self
                    .shared
                    .log
                    .requests()
                    .iter()
                    .map(|entry| entry.to_json())
                    .collect();
                ok(&all.into())
            }
            ("DELETE", "requests") => {
                self.shared.log.clear();
                ok(&json!({}))
            }
            _ => Ok(Response::json(404, &json!({"error": "no such control"}))),
        }
    }

    /// `{"action": "none|apply|down", "sha", "purge_volumes", "force_apply", "checkin_interval_s", "retired", "explicit_nulls"}`,
    /// each optional.
    fn desired(&self, body: &Value) -> Outcome {
        let want = match body.get("action").and_then(Value::as_str) {
            None => None,
            Some("none") => Some(Want::Nothing),
            Some("down") => Some(Want::Down {
                purge_volumes: flag(body, "purge_volumes").unwrap_or(false),
            }),
            Some("apply") => Some(Want::Apply(text(body, "sha")?.to_owned())),
            Some(other) => return Err(format!("unknown action {other}")),
        };
        self.tenancy.set(|settings| {
            settings.want = want.unwrap_or_else(|| settings.want.clone());
            settings.force_apply = flag(body, "force_apply").unwrap_or(settings.force_apply);
            settings.retired = flag(body, "retired").unwrap_or(settings.retired);
            settings.explicit_nulls =
                flag(body, "explicit_nulls").unwrap_or(settings.explicit_nulls);
            let interval = body.get("checkin_interval_s").and_then(Value::as_u64);
            settings.checkin_interval_s = interval.unwrap_or(settings.checkin_interval_s);
        });
        ok(&json!({"want": format!("{:?}", self.tenancy.settings().want)}))
    }

    /// Without `version` the whole secret goes; with it that version is soft-deleted, or destroyed with `destroy=true`.
    fn drop_secret(&self, request: &Request, path: &str) -> Outcome {
        let bao = self.bao()?;
        let Some(version) = request.query("version") else {
            bao.remove_secret(path);
            return ok(&json!({}));
        };
        let version = version
            .parse()
            .map_err(|_| format!("not a version: {version}"))?;
        let found = match request.query("destroy").as_deref() {
            Some("true") => bao.destroy_version(path, version),
            _ => bao.delete_version(path, version),
        };
        match found {
            true => ok(&json!({})),
            false => Err(format!("no version {version} of {path}")),
        }
    }

    /// `{"mode": "active|sealed|not-initialised|lost-leader|standby", "leader", "token_ttl_s", "token_max_ttl_s", "renewable"}`,
    /// each optional.
    fn bao_state(&self, body: &Value) -> Outcome {
        let mode = match body.get("mode").and_then(Value::as_str) {
            None => None,
            Some("active") => Some(Mode::Active),
            Some("sealed") => Some(Mode::Sealed),
            Some("not-initialised") => Some(Mode::NotInitialised),
            Some("lost-leader") => Some(Mode::LostLeader),
            Some("standby") => Some(Mode::Standby(text(body, "leader")?.to_owned())),
            Some(other) => return Err(format!("unknown mode {other}")),
        };
        self.bao()?.set(|settings| {
            let number = |name: &str| body.get(name).and_then(Value::as_u64);
            settings.mode = mode.unwrap_or_else(|| settings.mode.clone());
            settings.token_ttl_s = number("token_ttl_s").unwrap_or(settings.token_ttl_s);
            settings.token_max_ttl_s =
                number("token_max_ttl_s").unwrap_or(settings.token_max_ttl_s);
            settings.renewable = flag(body, "renewable").unwrap_or(settings.renewable);
        });
        ok(&json!({}))
    }

    /// `{"tokens_s", "leases_s"}`: how much older each becomes.
    fn age(&self, body: &Value) -> Outcome {
        let seconds = |name: &str| {
            body.get(name)
                .and_then(Value::as_u64)
                .map(Duration::from_secs)
        };
        if let Some(by) = seconds("tokens_s") {
            self.bao()?.age_tokens(by);
        }
        if let Some(by) = seconds("leases_s") {
            self.tenancy.age_leases(by);
        }
        ok(&json!({}))
    }

    /// `{"env_id", "expires_in_s"}`, both optional; the answer is the JWT as text.
    fn grant(&self, body: &Value) -> Outcome {
        let env_id = body
            .get("env_id")
            .and_then(Value::as_str)
            .unwrap_or(&self.env_id);
        let mut spec = GrantSpec::new(env_id);
        if let Some(seconds) = body.get("expires_in_s").and_then(Value::as_i64) {
            spec = spec.expires_in(seconds);
        }
        Ok(Response::bytes(
            200,
            "application/jwt",
            self.grants.sign(&spec),
        ))
    }

    fn drop_faults(&self, rest: &str) -> Outcome {
        match rest {
            "" => self.shared.faults.clear(),
            id if self.shared.faults.remove(fault_id(id)?) => {}
            id => return Err(format!("no fault {id}")),
        }
        ok(&json!({}))
    }

    fn bao(&self) -> Result<&FakeBao, String> {
        self.bao
            .as_deref()
            .ok_or_else(|| "OpenBao is a real one here".to_owned())
    }
}

fn fault_id(text: &str) -> Result<FaultId, String> {
    text.parse()
        .map(FaultId)
        .map_err(|_| format!("not a fault's number: {text}"))
}

fn ok(body: &Value) -> Outcome {
    Ok(Response::json(200, body))
}

/// The body as JSON; none at all is an empty object.
fn body(request: &Request) -> Result<Value, String> {
    match request.body.is_empty() {
        true => Ok(json!({})),
        false => request.json().map_err(|error| format!("body: {error}")),
    }
}

fn text<'a>(body: &'a Value, name: &str) -> Result<&'a str, String> {
    body.get(name)
        .and_then(Value::as_str)
        .ok_or_else(|| format!("{name} is missing"))
}

fn flag(body: &Value, name: &str) -> Option<bool> {
    body.get(name).and_then(Value::as_bool)
}
