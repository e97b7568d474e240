//! `secrets.manifest.json`: which variable comes from which secret. Read leniently; every wrong entry is told. An entry
//! whose `use` this agent does not know is left out with a warning and not looked at further. Paths are kept as written
//! here; [`super::fence`] turns them into paths below the KV mount.

use super::findings::{Findings, show};
use crate::code::Code;
use crate::error::Finding;
use crate::json::{Fields, JsonError};
use crate::names::VarName;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;

/// The member's name.
pub const MANIFEST: &str = "secrets.manifest.json";

/// What a secret is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It is the value of this variable.
    Env(VarName),
    /// It is the credential for pulling images.
    Registry,
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(var) => var.fmt(f),
            Self::Registry => f.write_str("the registry credential"),
        }
    }
}

/// One secret that the bundle needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is for.
    pub purpose: Purpose,
    /// Its path, as written.
    pub path: String,
    /// The version to read; the newest where none is pinned.
    pub version: Option<u64>,
    /// The key inside the secret.
    pub key: Option<String>,
}

/// The secrets that the bundle needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// In the order of the document.
    pub entries: Vec<Entry>,
}

impl Manifest {
    /// Whether an environment entry provides this variable.
    pub fn provides(&self, var: &str) -> bool {
        self.variables().any(|name| name.as_str() == var)
    }

    /// The variables of the environment entries.
    pub fn variables(&self) -> impl Iterator<Item = &VarName> {
        self.entries
            .iter()
            .filter_map(|entry| match &entry.purpose {
                Purpose::Env(var) => Some(var),
                Purpose::Registry => None,
            })
    }

    /// Reads the document; what is wrong and what is odd goes to the two lists.
    pub(super) fn read(doc: &Value, findings: &mut Findings, warnings: &mut Vec<String>) -> Self {
        let mut wrong = |why: &dyn fmt::Display| {
            findings.push(Finding::new(
                Code::BundleInvalid,
                format!("{MANIFEST}: {why}"),
            ));
        };
        let mut manifest = Self::default();
        let list = match Fields::of(doc).and_then(|fields| fields.list("entries")) {
            Ok(list) => list,
            Err(error) => {
                wrong(&error);
                return manifest;
            }
        };
        let mut seen = BTreeSet::new();
        for (n, item) in list.iter().enumerate() {
            match read_entry(item, &format!("entries[{n}]"), warnings) {
                Ok(None) => {}
                Ok(Some(entry)) => {
                    if let Purpose::Env(var) = &entry.purpose
                        && !seen.insert(var.clone())
                    {
                        wrong(&format!("{var} is there twice"));
                        continue;
                    }
                    manifest.entries.push(entry);
                }
                Err(error) => wrong(&error),
            }
        }
        manifest
    }
}

fn read_entry(
    item: &Value,
    way: &str,
    warnings: &mut Vec<String>,
) -> Result<Option<Entry>, JsonError> {
    if !item.is_object() {
        return Err(JsonError {
            field: way.to_owned(),
            expected: "an object",
        });
    }
    let fields = Fields::of(item)?.named(way);
    let purpose = match fields.text("use")? {
        None => {
            let var = fields.required_text("var")?;
            let var = VarName::new(var).map_err(|error| fields.wrong("var", error.expected))?;
            Purpose::Env(var)
        }
        Some("registry-auth") => Purpose::Registry,
        Some(other) => {
            warnings.push(format!(
                "{MANIFEST}: {way}.use is {}, which this agent does not know; the entry is left out",
                show(other.as_bytes())
            ));
            return Ok(None);
        }
    };
    Ok(Some(Entry {
        purpose,
        path: fields.required_text("path")?.to_owned(),
        // OpenBao takes version 0 for the newest.
        version: fields.whole("version")?.filter(|version| *version > 0),
        key: fields.text("key")?.map(str::to_owned),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(doc: &Value) -> (Manifest, Vec<String>, Vec<String>) {
        let (mut findings, mut warnings) = (Findings::default(), Vec::new());
        let manifest = Manifest::read(doc, &mut findings, &mut warnings);
        let findings = findings
            .into_vec()
            .iter()
            .map(ToString::to_string)
            .collect();
        (manifest, findings, warnings)
    }

    #[test]
    fn entries_are_read_with_their_nulls_and_lenient_numbers() {
        let (manifest, findings, warnings) = read(&json!({"version": {"unused": 1}, "entries": [
            {"var": "DB", "path": "see/db", "version": null, "key": null, "use": null},
            {"var": "A_1", "path": "see/a", "version": "3", "key": "k", "more": []},
            {"var": 7, "path": "see/registry", "version": 2.0, "use": "registry-auth"},
            {"path": "see/r2", "version": 0, "use": "registry-auth"},
        ]}));
        assert!(findings.is_empty() && warnings.is_empty(), "{findings:?}");
        let versions: Vec<_> = manifest.entries.iter().map(|e| e.version).collect();
        assert_eq!(versions, [None, Some(3), Some(2), None]);
        assert!(manifest.provides("DB") && !manifest.provides("db"));
        assert_eq!(manifest.variables().count(), 2);
        assert_eq!(manifest.entries[2].purpose, Purpose::Registry);
    }

    #[test]
    fn no_entries_are_none() {
        for doc in [json!({}), json!({"entries": null}), json!({"entries": []})] {
            assert_eq!(read(&doc), (Manifest::default(), vec![], vec![]));
        }
    }

    #[test]
    fn an_unknown_use_is_a_warning_and_its_entry_is_not_read() {
        let (manifest, findings, warnings) =
            read(&json!({"entries": [{"use": "tls-cert", "var": 1, "path": []}]}));
        assert!(manifest.entries.is_empty() && findings.is_empty());
        assert_eq!(
            warnings,
            [
                "secrets.manifest.json: entries[0].use is \"tls-cert\", which this agent does not know; the entry is left out"
            ]
        );
    }

    #[test]
    fn every_wrong_entry_is_told() {
        let (_, findings, _) = read(&json!({"entries": [
            {"path": "see/a"},
            {"var": "1A", "path": "see/a"},
            {"var": "A"},
            {"var": "B", "path": 5},
            {"var": "C", "path": "see/c", "version": "new"},
            {"var": "D", "path": "see/d", "key": 1},
            {"var": "E", "path": "see/e", "use": 1},
            {"var": "F", "path": "see/f"},
            {"var": "F", "path": "see/g"},
            "G",
        ]}));
        let all = [
            "entries[0].var must be a string, and it is missing",
            "entries[1].var must be a letter or _ followed by letters, digits or _",
            "entries[2].path must be a string, and it is missing",
            "entries[3].path must be a string",
            "entries[4].version must be a whole number",
            "entries[5].key must be a string",
            "entries[6].use must be a string",
            "F is there twice",
            "entries[9] must be an object",
        ]
        .map(|text| format!("BUNDLE_INVALID: secrets.manifest.json: {text}"));
        assert_eq!(findings, all);
        for (doc, text) in [
            (json!([]), "the document must be a JSON object"),
            (json!({"entries": {}}), "entries must be a list"),
        ] {
            let (_, findings, _) = read(&doc);
            assert_eq!(
                findings,
                [format!("BUNDLE_INVALID: secrets.manifest.json: {text}")]
            );
        }
    }
}
