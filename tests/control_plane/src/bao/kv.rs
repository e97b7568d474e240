//! Owns the KV v2 mount: secrets with versions, soft delete, destroy, metadata.
//!
//! Policy was judged before, so writes that get here come from the root token.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{envelope, errors, object_of};
use crate::clock;
use crate::http::{Request, Response, percent_decode};

/// One version of a secret.
#[derive(Clone, Debug)]
pub(super) struct Version {
    data: Value,
    created: String,
    deleted: String,
    destroyed: bool,
}

impl Version {
    fn metadata(&self, number: u64) -> Value {
        let mut fields = self.dates();
        fields.insert("custom_metadata".to_owned(), Value::Null);
        fields.insert("version".to_owned(), number.into());
        Value::Object(fields)
    }

    fn dates(&self) -> Map<String, Value> {
        let fields = json!({"created_time": self.created, "deletion_time": self.deleted, "destroyed": self.destroyed});
        fields.as_object().cloned().unwrap_or_default()
    }

    fn is_gone(&self) -> bool {
        self.destroyed || !self.deleted.is_empty()
    }
}

/// All secrets of the mount, by path.
#[derive(Default)]
pub(super) struct Kv {
    secrets: BTreeMap<String, Vec<Version>>,
}

impl Kv {
    pub fn put(&mut self, path: &str, data: Value) -> u64 {
        let created = clock::rfc3339(clock::now());
        let versions = self
            .secrets
            .entry(path.trim_matches('/').to_owned())
            .or_default();
        versions.push(Version {
            data,
            created,
            deleted: String::new(),
            destroyed: false,
        });
        versions.len() as u64
    }

    pub fn delete(&mut self, path: &str, version: u64) -> bool {
        let Some(version) = self.version_mut(path, version) else {
            return false;
        };
        if !version.is_gone() {
            version.deleted = clock::rfc3339(clock::now());
        }
        true
    }

    pub fn destroy(&mut self, path: &str, version: u64) -> bool {
        let Some(version) = self.version_mut(path, version) else {
            return false;
        };
        (version.destroyed, version.data) = (true, Value::Null);
        true
    }

    pub fn remove(&mut self, path: &str) {
        self.secrets.remove(path.trim_matches('/'));
    }

    /// Answers a call below the mount; `rest` is `data/…`, `metadata/…`, `delete/…`, `destroy/…`.
    pub fn call(&mut self, request: &Request, rest: &str) -> Response {
        let (verb, path) = rest.split_once('/').unwrap_or((rest, ""));
        let path = percent_decode(path);
        let path = path.trim_end_matches('/');
        let lists = request.method == "LIST" || request.query("list").is_some_and(|v| v == "true");
        match (request.method.as_str(), verb) {
            _ if lists && verb == "metadata" => self.list(path),
            ("GET", "data") => self.read(path, request.query("version")),
            ("GET", "metadata") => self.metadata(path),
            ("POST" | "PUT", "data") => self.write(path, request),
            ("POST" | "PUT", "delete") => self.each_version(path, request, Self::delete),
            ("POST" | "PUT", "destroy") => self.each_version(path, request, Self::destroy),
            ("DELETE", "data") => {
                let latest = self
                    .secrets
                    .get(path)
                    .map_or(0, |versions| versions.len() as u64);
                self.delete(path, latest);
                Response::empty(204)
            }
            ("DELETE", "metadata") => {
                self.remove(path);
                Response::empty(204)
            }
            _ => errors(404, &[]),
        }
    }

    fn read(&self, path: &str, version: Option<String>) -> Response {
        let asked = match version.as_deref().map(str::parse::<i64>) {
            None => 0,
            Some(Ok(number)) => number,
            Some(Err(_)) => {
                return errors(
                    400,
                    &[
                        "Field validation failed: error converting input for field \"version\": '' cannot parse value as 'int': strconv.ParseInt: invalid syntax",
                    ],
                );
            }
        };
        let Some(versions) = self.secrets.get(path) else {
            return errors(404, &[]);
        };
        // Zero and below mean the latest.
        let number = u64::try_from(asked)
            .ok()
            .filter(|n| *n > 0)
            .unwrap_or(versions.len() as u64);
        let Some(version) = nth(versions, number) else {
            return errors(404, &[]);
        };
        let data = if version.is_gone() {
            &Value::Null
        } else {
            &version.data
        };
        let status = if version.is_gone() { 404 } else { 200 };
        envelope(
            status,
            &json!({"data": {"data": data, "metadata": version.metadata(number)}}),
        )
    }

    fn write(&mut self, path: &str, request: &Request) -> Response {
        let body = match object_of(request) {
            Ok(body) => body,
            Err(refusal) => return refusal,
        };
        let Some(data) = body.get("data").filter(|data| data.is_object()) else {
            return errors(400, &["no data provided"]);
        };
        let number = self.put(path, data.clone());
        let written = self
            .secrets
            .get(path)
            .and_then(|versions| nth(versions, number));
        envelope(
            200,
            &json!({"data": written.map(|version| version.metadata(number))}),
        )
    }

    fn metadata(&self, path: &str) -> Response {
        let Some(versions) = self.secrets.get(path) else {
            return errors(404, &[]);
        };
        let all: Map<String, Value> = (1..)
            .zip(versions)
            .map(|(number, version): (u64, _)| (number.to_string(), version.dates().into()))
            .collect();
        envelope(
            200,
            &json!({"data": {
                "cas_required": false,
                "created_time": versions.first().map(|v| &v.created),
                "current_version": versions.len(),
                "custom_metadata": null,
                "delete_version_after": "0s",
                "max_versions": 0,
                "oldest_version": 0,
                "updated_time": versions.last().map(|v| &v.created),
                "versions": all,
            }}),
        )
    }

    fn list(&self, path: &str) -> Response {
        let prefix = format!("{path}/");
        let mut keys: Vec<String> = self
            .secrets
            .keys()
            .filter_map(|key| key.strip_prefix(&prefix))
            .map(|rest| {
                rest.split_once('/')
                    .map_or(rest.to_owned(), |(folder, _)| format!("{folder}/"))
            })
            .collect();
        keys.dedup();
        match keys.is_empty() {
            true => errors(404, &[]),
            false => envelope(200, &json!({"data": {"keys": keys}})),
        }
    }

    fn each_version(
        &mut self,
        path: &str,
        request: &Request,
        act: fn(&mut Self, &str, u64) -> bool,
    ) -> Response {
        let body = match object_of(request) {
            Ok(body) => body,
            Err(refusal) => return refusal,
        };
        let versions = body
            .get("versions")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        for number in versions.iter().filter_map(Value::as_u64) {
            act(self, path, number);
        }
        Response::empty(204)
    }

    fn version_mut(&mut self, path: &str, number: u64) -> Option<&mut Version> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.secrets.get_mut(path.trim_matches('/'))?.get_mut(index)
    }
}

fn nth(versions: &[Version], number: u64) -> Option<&Version> {
    versions.get(usize::try_from(number).ok()?.checked_sub(1)?)
}
