//! Owns how tenancy learns who a bearer is: from the fake in this process, or from a real OpenBao with a root token.
//!
//! Gives the token's metadata, "unknown", or "cannot tell".

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::bao::FakeBao;
use crate::http::{Client, Response};

/// Where bearers are looked up.
pub enum Bearer {
    /// The fake of the same control plane.
    Fake(Arc<FakeBao>),
    /// A real server.
    Real(RealBao),
}

/// What a look-up found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The token's metadata.
    Known(BTreeMap<String, String>),
    /// No such token, or no longer.
    Unknown,
    /// OpenBao did not answer the question.
    Unavailable(String),
}

impl Bearer {
    pub(super) fn lookup(&self, token: &str) -> Lookup {
        match self {
            Self::Fake(bao) => bao.token_meta(token).map_or(Lookup::Unknown, Lookup::Known),
            Self::Real(bao) => bao.lookup(token),
        }
    }
}

/// A real OpenBao, reached with its root token.
#[derive(Clone)]
pub struct RealBao {
    client: Client,
    root_token: String,
}

impl RealBao {
    /// `addr` is a base URL; only the roots in `ca_pem` are trusted.
    pub fn new(addr: &str, root_token: &str, ca_pem: &str) -> io::Result<Self> {
        Ok(Self {
            client: Client::new(addr, ca_pem)?,
            root_token: root_token.to_owned(),
        })
    }

    /// Any call with the root token; `path` begins after `/v1/`.
    pub fn call(&self, method: &str, path: &str, body: &Value) -> io::Result<Response> {
        self.call_as(&self.root_token, method, path, body)
    }

    /// Any call with any token, which may be empty.
    pub fn call_as(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: &Value,
    ) -> io::Result<Response> {
        let mut headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        if !token.is_empty() {
            headers.push(("X-Vault-Token".to_owned(), token.to_owned()));
        }
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        self.client
            .send(method, &format!("/v1/{path}"), &headers, &body)
    }

    /// Writes a new version of a secret in `monky`; gives its number. A fresh mount needs a moment: a 400 that
    /// says so is tried again.
    pub fn put_secret(&self, path: &str, data: &Value) -> io::Result<u64> {
        let target = format!("monky/data/{path}");
        let mut tries = 0;
        let written = loop {
            match self.must("POST", &target, &json!({"data": data})) {
                Err(error)
                    if tries < 50 && error.to_string().contains("Upgrading from non-versioned") =>
                {
                    tries += 1;
                    std::thread::sleep(std::time::Duration::from_millis(100));
                }
                other => break other?,
            }
        };
        Ok(written
            .pointer("/data/version")
            .and_then(Value::as_u64)
            .unwrap_or_default())
    }

    /// Revokes a token.
    pub fn revoke(&self, token: &str) -> io::Result<()> {
        self.must("POST", "auth/token/revoke", &json!({"token": token}))
            .map(drop)
    }

    fn must(&self, method: &str, path: &str, body: &Value) -> io::Result<Value> {
        let response = self.call(method, path, body)?;
        match response.status {
            200 | 204 => Ok(response.body_json()),
            status => {
                let words = String::from_utf8_lossy(&response.body).into_owned();
                Err(io::Error::other(format!(
                    "OpenBao: {method} {path}: {status} {words}"
                )))
            }
        }
    }

    fn lookup(&self, token: &str) -> Lookup {
        match self.call("POST", "auth/token/lookup", &json!({"token": token})) {
            Err(error) => Lookup::Unavailable(error.to_string()),
            Ok(response) if response.status == 200 => {
                let meta = response
                    .body_json()
                    .pointer("/data/meta")
                    .and_then(Value::as_object)
                    .cloned();
                let text = |(key, value): (String, Value)| Some((key, value.as_str()?.to_owned()));
                Lookup::Known(
                    meta.unwrap_or_default()
                        .into_iter()
                        .filter_map(text)
                        .collect(),
                )
            }
            // The real words for a token that is not there are "bad token".
            Ok(response) if matches!(response.status, 400 | 403 | 404) => Lookup::Unknown,
            Ok(response) => Lookup::Unavailable(format!("OpenBao answered {}", response.status)),
        }
    }
}
