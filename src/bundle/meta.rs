//! `meta.json`, as far as the agent uses it. Read leniently: fields that are not used are not looked at, null is absent,
//! a word that a newer control plane may know is a warning; a used field of the wrong type is a finding, and all of
//! them are told. Nothing here judges; the values are for [`super::refuse`] and for the apply.

use super::findings::Findings;
use super::version::Version;
use crate::code::Code;
use crate::error::Finding;
use crate::json::{Fields, JsonError};
use crate::names::{BundlePath, Sha256};
use serde_json::Value;

/// The member's name.
pub const META: &str = "meta.json";

/// When images are pulled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pull {
    /// On every apply.
    #[default]
    Always,
    /// Where the image is not there.
    Missing,
    /// Not at all.
    Never,
}

/// How exactly images must be named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImagesPolicy {
    /// Any way.
    #[default]
    Any,
    /// With a tag other than `latest`, or a digest.
    Tag,
    /// With a digest.
    Digest,
}

/// A member that `meta.files` promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promised {
    /// The name, normalised like a member's.
    pub path: BundlePath,
    /// The digest of its content.
    pub sha256: Option<Sha256>,
}

/// The used fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The environment that the bundle was rendered for, as written.
    pub env_id: Option<String>,
    /// The number of the desired state.
    pub generation: Option<u64>,
    /// When the bundle was rendered, as written.
    pub rendered_at: Option<String>,
    /// When images are pulled.
    pub pull: Pull,
    /// How exactly images must be named.
    pub images_policy: ImagesPolicy,
    /// The secret store that the bundle was made for, as written.
    pub secrets_provider: Option<String>,
    /// Whether the bundle may be older than the applied one.
    pub allow_rollback: bool,
    /// The bytes that the bundle's images and data need.
    pub disk_need_bytes: Option<u64>,
    /// The oldest agent that may apply it.
    pub min_version: Option<Version>,
    /// Members that must be there.
    pub files: Vec<Promised>,
}

impl Meta {
    /// Reads the document; what is wrong and what is odd goes to the two lists.
    pub(super) fn read(doc: &Value, findings: &mut Findings, warnings: &mut Vec<String>) -> Self {
        let mut reader = Reader { findings, warnings };
        let Some(fields) = reader.keep(Fields::of(doc)) else {
            return Self::default();
        };
        let agent = reader.object(&fields, "agent");
        let disk = reader.object(&fields, "disk");
        let needs = [
            agent
                .as_ref()
                .and_then(|f| reader.whole(f, "disk_need_bytes")),
            disk.as_ref().and_then(|f| reader.whole(f, "need_bytes")),
            reader.whole(&fields, "disk_need_bytes"),
        ];
        Self {
            env_id: reader.text(&fields, "env_id"),
            generation: reader.generation(&fields),
            rendered_at: reader.text(&fields, "rendered_at"),
            pull: reader.pull(&fields),
            images_policy: reader.images_policy(&fields),
            secrets_provider: reader.text(&fields, "secrets_provider"),
            allow_rollback: agent
                .as_ref()
                .and_then(|f| reader.keep(f.boolean("allow_rollback"))?)
                .unwrap_or(false),
            disk_need_bytes: needs.into_iter().flatten().next(),
            min_version: agent.as_ref().and_then(|f| reader.min_version(f)),
            files: reader.files(&fields),
        }
    }
}

/// Turns the errors of single fields into findings, so that the reading goes on.
struct Reader<'a> {
    findings: &'a mut Findings,
    warnings: &'a mut Vec<String>,
}

impl Reader<'_> {
    fn wrong(&mut self, why: impl std::fmt::Display) {
        let finding = Finding::new(Code::BundleInvalid, format!("{META}: {why}"));
        self.findings.push(finding);
    }

    fn keep<T>(&mut self, read: Result<T, JsonError>) -> Option<T> {
        read.map_err(|error| self.wrong(error)).ok()
    }

    fn object<'v>(&mut self, fields: &Fields<'v>, name: &str) -> Option<Fields<'v>> {
        self.keep(fields.object(name))
    }

    fn text(&mut self, fields: &Fields<'_>, name: &str) -> Option<String> {
        self.keep(fields.text(name))?.map(str::to_owned)
    }

    fn whole(&mut self, fields: &Fields<'_>, name: &str) -> Option<u64> {
        self.keep(fields.whole(name))?
    }

    /// A generation that cannot be read is no evidence of anything, and so no reason to refuse.
    fn generation(&mut self, fields: &Fields<'_>) -> Option<u64> {
        match (fields.whole("generation"), fields.value("generation")) {
            (Ok(generation), _) => generation,
            (Err(_), Some(Value::String(_) | Value::Number(_))) => {
                self.warnings.push(format!(
                    "{META}: generation is not a whole number and says nothing about a rollback"
                ));
                None
            }
            (Err(error), _) => {
                self.wrong(error);
                None
            }
        }
    }

    fn pull(&mut self, fields: &Fields<'_>) -> Pull {
        match self.keep(fields.text("pull")).flatten() {
            None | Some("always") => Pull::Always,
            Some("missing") => Pull::Missing,
            Some("never") => Pull::Never,
            Some(other) => {
                self.unknown("pull", other, "always");
                Pull::Always
            }
        }
    }

    fn images_policy(&mut self, fields: &Fields<'_>) -> ImagesPolicy {
        match self.keep(fields.text("images_policy")).flatten() {
            None | Some("any") => ImagesPolicy::Any,
            Some("tag") => ImagesPolicy::Tag,
            Some("digest") => ImagesPolicy::Digest,
            Some(other) => {
                self.unknown("images_policy", other, "any");
                ImagesPolicy::Any
            }
        }
    }

    fn unknown(&mut self, field: &str, word: &str, taken: &str) {
        self.warnings.push(format!(
            "{META}: {field} is {}, which this agent does not know; {taken} is taken",
            super::findings::show(word.as_bytes())
        ));
    }

    /// A minimum that cannot be read must not count as met.
    fn min_version(&mut self, agent: &Fields<'_>) -> Option<Version> {
        let text = self.keep(agent.text("min_version")).flatten()?;
        let version = Version::parse(text);
        if version.is_none() {
            self.wrong(agent.wrong("min_version", "a version like 0.2.0"));
        }
        version
    }

    fn files(&mut self, fields: &Fields<'_>) -> Vec<Promised> {
        let Some(list) = self.keep(fields.list("files")) else {
            return Vec::new();
        };
        let mut files = Vec::new();
        for (n, item) in list.iter().enumerate() {
            match promised(item, n) {
                Ok(file) => files.push(file),
                Err(error) => self.wrong(error),
            }
        }
        files
    }
}

fn promised(item: &Value, n: usize) -> Result<Promised, JsonError> {
    let way = format!("files[{n}]");
    let wrong = |field: &str, expected| JsonError {
        field: format!("{way}{field}"),
        expected,
    };
    let (name, sha) = match item {
        Value::String(name) => (Some(name.as_str()), None),
        Value::Object(_) => {
            let fields = Fields::of(item)?.named(&way);
            let name = fields.text("path")?.or(fields.text("name")?);
            (name, fields.text("sha256")?.or(fields.text("sha")?))
        }
        _ => return Err(wrong("", "a string or an object")),
    };
    let name = name.ok_or_else(|| wrong(".path", "a string, and it is missing"))?;
    let name = name.strip_prefix("./").unwrap_or(name);
    let name = name.strip_suffix('/').unwrap_or(name);
    let path = BundlePath::new(name).map_err(|error| wrong(".path", error.expected))?;
    let sha256 = sha
        .map(|sha| Sha256::new(&sha.trim_start_matches("sha256:").to_ascii_lowercase()))
        .transpose()
        .map_err(|error| wrong(".sha256", error.expected))?;
    Ok(Promised { path, sha256 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(doc: &Value) -> (Meta, Vec<String>, Vec<String>) {
        let (mut findings, mut warnings) = (Findings::default(), Vec::new());
        let meta = Meta::read(doc, &mut findings, &mut warnings);
        let findings = findings
            .into_vec()
            .iter()
            .map(ToString::to_string)
            .collect();
        (meta, findings, warnings)
    }

    #[test]
    fn explicit_nulls_are_absent_and_unused_fields_may_be_anything() {
        let (meta, findings, warnings) = read(&json!({
            "env_id": null, "generation": null, "rendered_at": "", "pull": null, "images_policy": null,
            "secrets_provider": null, "agent": null, "disk": null, "disk_need_bytes": null, "files": null,
            "address": 5, "renderer": [], "sha": {"a": 1}, "whatever": true,
        }));
        assert_eq!(meta, Meta::default());
        assert!(findings.is_empty() && warnings.is_empty());
    }

    #[test]
    fn every_used_field_is_read() {
        let sha = Sha256::of(b"x");
        let (meta, findings, warnings) = read(&json!({
            "env_id": "env-qa-02", "generation": "7", "rendered_at": "2026-09-08T14:02:00Z", "pull": "missing",
            "images_policy": "digest", "secrets_provider": "openbao",
            "agent": {"allow_rollback": true, "min_version": "0.2.0"},
            "disk": {"need_bytes": 5.0}, "disk_need_bytes": 9,
            "files": ["./a", {"path": "b/", "sha256": sha.as_str().to_uppercase()}, {"name": "c", "sha": null}],
        }));
        assert!(findings.is_empty() && warnings.is_empty(), "{findings:?}");
        assert_eq!(meta.generation, Some(7));
        assert_eq!(
            (meta.pull, meta.images_policy),
            (Pull::Missing, ImagesPolicy::Digest)
        );
        assert!(meta.allow_rollback);
        assert_eq!(meta.disk_need_bytes, Some(5));
        assert_eq!(meta.min_version, Version::parse("0.2.0"));
        let names: Vec<&str> = meta.files.iter().map(|f| f.path.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(meta.files[1].sha256, Some(sha));
    }

    #[test]
    fn unknown_words_are_warnings_with_the_default_taken() {
        let (meta, findings, warnings) =
            read(&json!({"pull": "sometimes", "images_policy": "signed", "generation": "seven"}));
        assert_eq!(meta, Meta::default());
        assert!(findings.is_empty());
        assert_eq!(
            warnings,
            [
                "meta.json: generation is not a whole number and says nothing about a rollback",
                "meta.json: pull is \"sometimes\", which this agent does not know; always is taken",
                "meta.json: images_policy is \"signed\", which this agent does not know; any is taken",
            ]
        );
    }

    #[test]
    fn every_wrong_type_is_told() {
        let (_, findings, _) = read(&json!({
            "env_id": 1, "generation": [1], "rendered_at": 5, "pull": 1, "images_policy": {}, "secrets_provider": [],
            "agent": {"allow_rollback": "yes", "disk_need_bytes": "lots", "min_version": "latest"},
            "disk": 7, "disk_need_bytes": -1, "files": [5, {}, "../x", {"path": "a", "sha256": "beef"}],
        }));
        let mut findings = findings;
        findings.sort();
        assert_eq!(
            findings,
            [
                "BUNDLE_INVALID: meta.json: agent.allow_rollback must be true or false",
                "BUNDLE_INVALID: meta.json: agent.disk_need_bytes must be a whole number",
                "BUNDLE_INVALID: meta.json: agent.min_version must be a version like 0.2.0",
                "BUNDLE_INVALID: meta.json: disk must be an object",
                "BUNDLE_INVALID: meta.json: disk_need_bytes must be a whole number",
                "BUNDLE_INVALID: meta.json: env_id must be a string",
                "BUNDLE_INVALID: meta.json: files[0] must be a string or an object",
                "BUNDLE_INVALID: meta.json: files[1].path must be a string, and it is missing",
                "BUNDLE_INVALID: meta.json: files[2].path must be a plain relative path without . or .. components and control characters",
                "BUNDLE_INVALID: meta.json: files[3].sha256 must be 64 lower-case hexadecimal digits",
                "BUNDLE_INVALID: meta.json: generation must be a whole number",
                "BUNDLE_INVALID: meta.json: images_policy must be a string",
                "BUNDLE_INVALID: meta.json: pull must be a string",
                "BUNDLE_INVALID: meta.json: rendered_at must be a string",
                "BUNDLE_INVALID: meta.json: secrets_provider must be a string",
            ]
        );
        let (_, findings, _) = read(&json!([]));
        assert_eq!(
            findings,
            ["BUNDLE_INVALID: meta.json: the document must be a JSON object"]
        );
    }
}
