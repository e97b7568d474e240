//! Owns tenancy's agent entrypoint: check-in, bundle, lease, report; it behaves like the FastAPI service that it stands for.
//!
//! Takes the desired state from tests at any time, decides as the real one does (applied = desired → `none`), and keeps
//! every check-in and report. Learns who asks from OpenBao, fake or real; never sees a secret.

mod bearer;
mod bodies;
mod state;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value, json};

pub use bearer::{Bearer, Lookup, RealBao};
use state::Inner;
pub use state::{TenancySettings, Want};

use crate::bundle::Bundle;
use crate::grants::Grants;
use crate::http::{Handler, Request, Response};
use crate::sync::lock;

/// The service. All methods may be called while it serves.
pub struct Tenancy {
    grants: Arc<Grants>,
    bearer: Bearer,
    inner: Mutex<Inner>,
}

impl Tenancy {
    pub(crate) fn new(grants: Arc<Grants>, bearer: Bearer, settings: TenancySettings) -> Self {
        Self {
            grants,
            bearer,
            inner: Mutex::new(Inner::new(settings)),
        }
    }

    /// A copy of the settings in force.
    pub fn settings(&self) -> TenancySettings {
        lock(&self.inner).settings.clone()
    }

    /// Changes settings.
    pub fn set(&self, change: impl FnOnce(&mut TenancySettings)) {
        change(&mut lock(&self.inner).settings);
    }

    /// Serves a bundle under its sha without wanting it.
    pub fn add_bundle(&self, bundle: &Bundle) {
        lock(&self.inner)
            .bundles
            .insert(bundle.sha().to_owned(), bundle.bytes().to_vec());
    }

    /// Serves bytes under a sha that need not be theirs.
    pub fn add_bundle_as(&self, sha: &str, bytes: &[u8]) {
        lock(&self.inner)
            .bundles
            .insert(sha.to_owned(), bytes.to_vec());
    }

    /// No longer serves a bundle: 404.
    pub fn remove_bundle(&self, sha: &str) {
        lock(&self.inner).bundles.remove(sha);
    }

    /// Serves a bundle and wants it.
    pub fn apply(&self, bundle: &Bundle) {
        self.add_bundle(bundle);
        self.set(|settings| settings.want = Want::Apply(bundle.sha().to_owned()));
    }

    /// Bodies of accepted reports in order, repeated ones too.
    pub fn reports(&self) -> Vec<Value> {
        lock(&self.inner).reports.clone()
    }

    /// Bodies of accepted check-ins in order.
    pub fn checkins(&self) -> Vec<Value> {
        lock(&self.inner).checkins.clone()
    }

    /// Leases granted since the start.
    pub fn leases_granted(&self) -> usize {
        lock(&self.inner).leases.reasons.len()
    }

    /// The `reason` of each lease granted, in order.
    pub fn lease_reasons(&self) -> Vec<String> {
        lock(&self.inner).leases.reasons.clone()
    }

    /// Makes the budget's record older, as if time had passed.
    pub fn age_leases(&self, by: Duration) {
        lock(&self.inner).leases.age(by);
    }

    /// Refuses tokens of that grant from now on, as a kit re-reveal does.
    pub fn supersede(&self, grant_jti: &str) {
        lock(&self.inner)
            .settings
            .superseded
            .insert(grant_jti.to_owned());
    }

    fn respond(&self, request: &Request) -> Response {
        let path = request.path();
        if let Some(rest) = path.strip_prefix("/v1/agent/bundle/") {
            return only("GET", request, || self.bundle(request, rest));
        }
        match path {
            "/v1/agent/checkin" => only("POST", request, || {
                self.posted(request, bodies::CHECKIN, Self::checkin)
            }),
            "/v1/agent/lease" => only("POST", request, || {
                self.posted(request, bodies::LEASE, Self::lease)
            }),
            "/v1/agent/report" => only("POST", request, || {
                self.posted(request, bodies::REPORT, Self::report)
            }),
            "/.well-known/agent-jwks.json" => {
                only("GET", request, || Response::json(200, &self.grants.jwks()))
            }
            "/healthz" => only("GET", request, || {
                Response::json(200, &json!({"status": "ok"}))
            }),
            _ => Response::json(404, &json!({"detail": "Not Found"})),
        }
    }

    /// FastAPI's order: the body must be JSON, then the bearer, then the body's shape, then what the handler says.
    fn posted(
        &self,
        request: &Request,
        shape: &[bodies::Field],
        act: fn(&Self, &Map<String, Value>) -> Response,
    ) -> Response {
        let body = match bodies::read(request) {
            Ok(body) => body,
            Err(refusal) => return refusal,
        };
        let env_id = match self.authenticate(request) {
            Ok(env_id) => env_id,
            Err(refusal) => return refusal,
        };
        let reject = self.settings().reject_fields;
        let body = match bodies::check(&body, shape, &reject) {
            Ok(body) => body,
            Err(refusal) => return refusal,
        };
        match body.get("env_id") {
            Some(Value::String(asked)) if *asked == env_id => act(self, body),
            _ => mismatch(&env_id),
        }
    }

    /// The environment that the bearer is for.
    fn authenticate(&self, request: &Request) -> Result<String, Response> {
        let refuse = |words: &str| Err(coded(401, "AGENT_UNAUTHENTICATED", words));
        let Some(token) = request.bearer().filter(|token| !token.is_empty()) else {
            return refuse("missing bearer token");
        };
        let meta = match self.bearer.lookup(token) {
            Lookup::Known(meta) => meta,
            Lookup::Unknown => return refuse("token is unknown, expired or revoked"),
            Lookup::Unavailable(words) => return Err(coded(503, "OPENBAO_UNAVAILABLE", &words)),
        };
        let settings = self.settings();
        if settings.retired {
            return refuse("environment is retired");
        }
        if meta
            .get("grant_jti")
            .is_some_and(|jti| settings.superseded.contains(jti))
        {
            return refuse("grant was superseded");
        }
        match meta.get("env_id") {
            Some(env_id) if *env_id == settings.env_id => Ok(env_id.clone()),
            Some(env_id) => Err(mismatch(env_id)),
            None => refuse("token carries no env_id"),
        }
    }

    fn checkin(&self, body: &Map<String, Value>) -> Response {
        let mut inner = lock(&self.inner);
        inner.checkins.push(Value::Object(body.clone()));
        let applied = body.get("applied_sha").and_then(Value::as_str);
        Response::json(200, &inner.settings.checkin_answer(applied))
    }

    fn lease(&self, body: &Map<String, Value>) -> Response {
        let mut inner = lock(&self.inner);
        let Inner {
            settings, leases, ..
        } = &mut *inner;
        if let Some(wait_s) = leases.take(settings.lease_budget, settings.lease_window) {
            return coded(
                429,
                "LEASE_RATE_LIMITED",
                "lease budget of this environment is used up",
            )
            .with_header("Retry-After", wait_s.to_string());
        }
        let spec = settings
            .lease_grant
            .clone()
            .unwrap_or_else(|| crate::GrantSpec::new(&settings.env_id));
        let reason = body
            .get("reason")
            .and_then(Value::as_str)
            .unwrap_or("apply")
            .to_owned();
        leases.reasons.push(reason);
        Response::json(200, &settings.lease_answer(&self.grants.sign(&spec)))
    }

    fn report(&self, body: &Map<String, Value>) -> Response {
        lock(&self.inner).reports.push(Value::Object(body.clone()));
        Response::json(200, &json!({"status": "ok"}))
    }

    fn bundle(&self, request: &Request, rest: &str) -> Response {
        let env_id = match self.authenticate(request) {
            Ok(env_id) => env_id,
            Err(refusal) => return refusal,
        };
        let (asked, sha) = rest.split_once('/').unwrap_or((rest, ""));
        if asked != env_id {
            return mismatch(&env_id);
        }
        let inner = lock(&self.inner);
        let Some(bytes) = inner.bundles.get(sha) else {
            return coded(
                404,
                "BUNDLE_NOT_FOUND",
                "no such bundle; the desired state moved on",
            );
        };
        let header = inner
            .settings
            .bundle_header
            .clone()
            .unwrap_or_else(|| sha.to_owned());
        Response::bytes(200, "application/x-tar", bytes.clone())
            .with_header("X-Bundle-Sha256", header)
    }
}

impl Handler for Tenancy {
    fn handle(&self, request: &Request) -> Response {
        self.respond(request).with_header("Server", "uvicorn")
    }
}

fn only(method: &str, request: &Request, act: impl FnOnce() -> Response) -> Response {
    match request.method == method {
        true => act(),
        false => Response::json(405, &json!({"detail": "Method Not Allowed"}))
            .with_header("Allow", method),
    }
}

/// An error as tenancy's HTTPException spells it.
fn coded(status: u16, code: &str, message: &str) -> Response {
    Response::json(
        status,
        &json!({"detail": {"code": code, "message": message}}),
    )
}

fn mismatch(env_id: &str) -> Response {
    coded(
        403,
        "AGENT_ENV_MISMATCH",
        &format!("token is pinned to environment {env_id}"),
    )
}

#[cfg(test)]
mod tests;
