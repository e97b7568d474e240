//! The proof that the installed Compose reads every value of a rendered `.env` back exactly: a synthetic compose document
//! that asks for each value twice, and the comparison of what Compose printed with what was meant. Both are pure; who
//! runs Compose in between does it like this, with the document on standard input and an environment that holds nothing
//! that the template defines (it would go before `.env`):
//!
//! ```text
//! docker compose -p PROJECT --project-directory DIR -f - --env-file DIR/.env config --format json
//! ```
//!
//! DIR is the release's own staging directory (0700), where `.env` (0600) stands already. The document names `.env`
//! relative to it: no path of ours needs escaping. Standard input is the document's, and a plugin of docker inherits no
//! other descriptor, so the file has to be a file. No daemon is asked, no image is looked for, nothing is written.
//! Findings name keys, never values.

use crate::code::Code;
use crate::deploy::env_file::Rendered;
use crate::error::Finding;
use crate::ordered::map_of;
use serde::{Deserialize, Deserializer};
use serde_json::json;
use std::collections::BTreeMap;
use zeroize::Zeroizing;

/// The service that takes the whole file into its environment.
const FROM_FILE: &str = "file";
/// The service that asks for each key by `${KEY}`, as `E_0`, `E_1`, …
const INTERPOLATED: &str = "interpolated";

/// The compose document (JSON, which is YAML) for standard input. It holds names only.
pub fn document(rendered: &Rendered) -> Vec<u8> {
    let interpolated =
        map_of(questions(rendered).map(|(question, key)| (question, format!("${{{key}}}"))));
    let document = json!({
        "services": {
            FROM_FILE: {"image": "proof", "env_file": [".env"]},
            INTERPOLATED: {"image": "proof", "environment": interpolated},
        }
    });
    document.to_string().into_bytes()
}

/// Compares what Compose printed with what was meant: an `ENV_ROUNDTRIP` finding that names every key that did not come
/// back, or that says that the answer cannot be read.
pub fn check(rendered: &Rendered, stdout: &[u8]) -> Vec<Finding> {
    let Ok(answer) = serde_json::from_slice::<Answer>(stdout) else {
        return vec![Finding::new(
            Code::EnvRoundtrip,
            "what Compose printed for the rendered .env cannot be read",
        )];
    };
    let mut damaged = Vec::new();
    let mut note = |place: &str, key: &str, intended: &str, got: Option<&Printed>| {
        if !got.is_some_and(|got| got.means(intended)) {
            damaged.push(format!("{key} ({place})"));
        }
    };
    let asked = map_of(questions(rendered).map(|(question, key)| (key, question)));
    for (key, value) in rendered.values() {
        let key = key.as_str();
        let intended = value.expose();
        note("env_file", key, intended, answer.get(FROM_FILE, key));
        if let Some(question) = asked.get(key) {
            let got = answer.get(INTERPOLATED, question);
            note("interpolation", key, intended, got);
        }
    }
    if damaged.is_empty() {
        return Vec::new();
    }
    let detail = format!("Compose does not read back exactly: {}", damaged.join(", "));
    vec![Finding::new(Code::EnvRoundtrip, detail)]
}

/// The question for each key that `${…}` can name.
fn questions(rendered: &Rendered) -> impl Iterator<Item = (String, &str)> {
    rendered
        .values()
        .keys()
        .filter(|key| key.var_name().is_some())
        .enumerate()
        .map(|(n, key)| (format!("E_{n}"), key.as_str()))
}

#[derive(Deserialize)]
struct Answer {
    services: BTreeMap<String, Service>,
}

#[derive(Deserialize)]
struct Service {
    environment: Option<BTreeMap<String, Option<Printed>>>,
}

impl Answer {
    fn get(&self, service: &str, name: &str) -> Option<&Printed> {
        let environment = self.services.get(service)?.environment.as_ref()?;
        environment.get(name)?.as_ref()
    }
}

/// A value as Compose prints it: every `$` doubled.
struct Printed(Zeroizing<String>);

impl Printed {
    /// Whether it is `intended`, once each `$$` is one `$` again.
    fn means(&self, intended: &str) -> bool {
        let mut printed = self.0.bytes().peekable();
        let undone = std::iter::from_fn(|| {
            let byte = printed.next()?;
            if byte == b'$' {
                printed.next_if_eq(&b'$');
            }
            Some(byte)
        });
        undone.eq(intended.bytes())
    }
}

impl<'de> Deserialize<'de> for Printed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(Zeroizing::new(text)))
    }
}

#[cfg(test)]
mod tests;
