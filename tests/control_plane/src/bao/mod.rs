//! Owns the fake of OpenBao: the used part of its API, with the statuses, shapes and words of the real 2.7.2.
//!
//! Takes HTTP requests and, from tests, settings and secrets at any time. The order of judgement is the real one: sealed,
//! then the token, then the policy, then the route. Numbers in secrets are kept as given; the real server passes them
//! through a 64-bit float.

mod kv;
mod login;
mod tokens;
mod words;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ring::rand::SystemRandom;
use serde_json::{Value, json};

use crate::grants::Grants;
use crate::http::{Handler, Request, Response};
use crate::sync::lock;
use kv::Kv;
pub use tokens::Token;
use words::{cleaned, envelope, errors, object_of, random_hex, refuse_by_mode, uuid};

/// Whether the server serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Serves.
    #[default]
    Active,
    /// 503 `Vault is sealed` for everything.
    Sealed,
    /// 503 for everything; 501 from `sys/health`.
    NotInitialised,
    /// 307 to that base URL, as a standby that knows its leader.
    Standby(String),
    /// 500, as a standby that knows none.
    LostLeader,
}

/// What tests may set at any time.
#[derive(Clone, Debug)]
pub struct BaoSettings {
    /// Serves, sealed, standby.
    pub mode: Mode,
    /// Name of the jwt mount.
    pub auth_mount: String,
    /// Name of its one role.
    pub role: String,
    /// Name of the KV v2 mount.
    pub kv_mount: String,
    /// The role's bound audience.
    pub audience: String,
    /// The role's bound claim `kind`.
    pub kind: String,
    /// TTL of new tokens.
    pub token_ttl_s: u64,
    /// Age beyond which no renewal goes.
    pub token_max_ttl_s: u64,
    /// Whether new tokens are renewable.
    pub renewable: bool,
    /// Whether the policy allows `revoke-self` (that of the estate does not).
    pub may_revoke_self: bool,
    /// Path prefixes below the KV mount that the policy does not cover although they are the environment's own.
    pub denied: Vec<String>,
}

impl Default for BaoSettings {
    fn default() -> Self {
        Self {
            mode: Mode::Active,
            auth_mount: "jwt-tenancy".to_owned(),
            role: "see-env".to_owned(),
            kv_mount: "monky".to_owned(),
            audience: "openbao-see-env".to_owned(),
            kind: "deploy-grant".to_owned(),
            token_ttl_s: 24 * 3600,
            token_max_ttl_s: 30 * 24 * 3600,
            renewable: true,
            may_revoke_self: false,
            denied: Vec::new(),
        }
    }
}

struct Inner {
    settings: BaoSettings,
    tokens: BTreeMap<String, Token>,
    entities: BTreeMap<String, String>,
    kv: Kv,
}

/// The fake. All methods may be called while it serves.
pub struct FakeBao {
    grants: Arc<Grants>,
    root_token: String,
    random: SystemRandom,
    inner: Mutex<Inner>,
}

impl FakeBao {
    /// A fake that trusts `grants`.
    pub fn new(grants: Arc<Grants>, settings: BaoSettings) -> Self {
        let random = SystemRandom::new();
        let root_token = format!("s.root{}", random_hex(&random, 10));
        let inner = Inner {
            settings,
            tokens: BTreeMap::new(),
            entities: BTreeMap::new(),
            kv: Kv::default(),
        };
        Self {
            grants,
            root_token,
            random,
            inner: Mutex::new(inner),
        }
    }

    /// May do everything; tenancy looks tokens up with it.
    pub fn root_token(&self) -> &str {
        &self.root_token
    }

    /// A copy of the settings in force.
    pub fn settings(&self) -> BaoSettings {
        lock(&self.inner).settings.clone()
    }

    /// Changes settings.
    pub fn set(&self, change: impl FnOnce(&mut BaoSettings)) {
        change(&mut lock(&self.inner).settings);
    }

    /// Seals or serves.
    pub fn set_mode(&self, mode: Mode) {
        self.set(|settings| settings.mode = mode);
    }

    /// Writes a new version of a secret; `path` is without mount and `data/`. Gives the version's number.
    pub fn put_secret(&self, path: &str, data: Value) -> u64 {
        lock(&self.inner).kv.put(path, data)
    }

    /// Soft-deletes a version; false when there is none.
    pub fn delete_version(&self, path: &str, version: u64) -> bool {
        lock(&self.inner).kv.delete(path, version)
    }

    /// Destroys a version; false when there is none.
    pub fn destroy_version(&self, path: &str, version: u64) -> bool {
        lock(&self.inner).kv.destroy(path, version)
    }

    /// Removes a secret with all its versions.
    pub fn remove_secret(&self, path: &str) {
        lock(&self.inner).kv.remove(path);
    }

    /// Tokens that are neither expired nor revoked.
    pub fn live_tokens(&self) -> Vec<Token> {
        let inner = lock(&self.inner);
        inner
            .tokens
            .values()
            .filter(|token| token.is_live())
            .cloned()
            .collect()
    }

    /// Revokes one token.
    pub fn revoke(&self, token: &str) -> bool {
        lock(&self.inner).tokens.remove(token).is_some()
    }

    /// Revokes all tokens.
    pub fn revoke_all(&self) {
        lock(&self.inner).tokens.clear();
    }

    /// Makes all tokens older, as if time had passed for them alone.
    pub fn age_tokens(&self, by: Duration) {
        for token in lock(&self.inner).tokens.values_mut() {
            token.age(by);
        }
    }

    /// Makes a token without a login, as an operator would with the root token.
    pub fn mint_token(&self, env_id: &str, grant_jti: &str, ttl_s: u64, renewable: bool) -> Token {
        let meta = [
            ("env_id", env_id),
            ("grant_jti", grant_jti),
            ("role", "see-env"),
        ];
        let meta = meta
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        self.add_token(
            &mut lock(&self.inner),
            meta,
            ttl_s,
            renewable,
            &format!("agent:{env_id}"),
        )
    }

    /// What tenancy learns about a bearer: its metadata, or None when it is unknown, expired or revoked.
    pub fn token_meta(&self, token: &str) -> Option<BTreeMap<String, String>> {
        let inner = lock(&self.inner);
        inner
            .tokens
            .get(token)
            .filter(|token| token.is_live())
            .map(|token| token.meta.clone())
    }

    fn respond(&self, request: &Request) -> Response {
        let path = request.path().to_owned();
        let mut inner = lock(&self.inner);
        if let Some(refusal) = refuse_by_mode(&inner.settings.mode, request) {
            return refusal;
        }
        if let Some(clean) = cleaned(&path) {
            return Response::bytes(
                307,
                "text/html; charset=utf-8",
                format!("<a href=\"{clean}\">Temporary Redirect</a>.\n\n"),
            )
            .with_header("Location", clean);
        }
        let Some(route) = path.strip_prefix("/v1/") else {
            return errors(404, &[]);
        };
        if route == "sys/health" {
            return Response::json(
                200,
                &json!({"initialized": true, "sealed": false, "standby": false, "version": "2.7.2"}),
            );
        }
        let login = format!("auth/{}/login", inner.settings.auth_mount);
        if route == login {
            return self.login(&mut inner, request);
        }
        let caller = match self.caller(&inner, request) {
            Some(caller) => caller,
            None => return errors(403, &["permission denied"]),
        };
        if !caller.allows(&inner.settings, request, route) {
            return errors(403, &["1 error occurred:\n\t* permission denied\n\n"]);
        }
        if let Some(verb) = route.strip_prefix("auth/token/") {
            return self.token_call(&mut inner, request, verb, &caller);
        }
        let mount = format!("{}/", inner.settings.kv_mount);
        match route.strip_prefix(&mount) {
            Some(rest) => inner.kv.call(request, rest),
            None => errors(
                404,
                &[&format!(
                    "no handler for route \"{route}\". route entry not found."
                )],
            ),
        }
    }

    fn caller(&self, inner: &Inner, request: &Request) -> Option<Caller> {
        let token = request
            .header("x-vault-token")
            .or_else(|| request.bearer())?;
        if token == self.root_token {
            return Some(Caller::Root);
        }
        inner
            .tokens
            .get(token)
            .filter(|t| t.is_live())
            .map(|t| Caller::Agent(t.id.clone(), t.env_id().to_owned()))
    }

    fn random_hex(&self, bytes: usize) -> String {
        random_hex(&self.random, bytes)
    }
}

impl Handler for FakeBao {
    fn handle(&self, request: &Request) -> Response {
        self.respond(request)
            .with_header("Cache-Control", "no-store")
            .with_header(
                "Strict-Transport-Security",
                "max-age=31536000; includeSubDomains",
            )
    }
}

/// Who asks.
enum Caller {
    Root,
    Agent(String, String),
}

impl Caller {
    /// The policy `see-env` of the estate.
    fn allows(&self, settings: &BaoSettings, request: &Request, route: &str) -> bool {
        let Self::Agent(_, env_id) = self else {
            return true;
        };
        let writes = matches!(request.method.as_str(), "POST" | "PUT");
        let lists = request.method == "LIST" || request.query("list").is_some_and(|v| v == "true");
        match route {
            "auth/token/lookup-self" => return request.method == "GET",
            "auth/token/renew-self" => return writes,
            "auth/token/revoke-self" => return writes && settings.may_revoke_self,
            _ => {}
        }
        let route = crate::http::percent_decode(route);
        let Some(rest) = route.strip_prefix(&format!("{}/", settings.kv_mount)) else {
            return false;
        };
        if let Some(path) = rest.strip_prefix("data/") {
            let own = path.starts_with(&format!("{env_id}/see/"));
            return own
                && request.method == "GET"
                && !settings.denied.iter().any(|p| path.starts_with(p));
        }
        let listed = format!("{}/", rest.trim_end_matches('/'));
        lists && listed.starts_with(&format!("metadata/{env_id}/see/"))
    }
}

#[cfg(test)]
mod tests;
