//! All refusals of a verified bundle, in one pure function: nothing is read, asked or measured here. Takes the bundle's
//! documents and plain facts that others obtained (Compose's view of the file, the template's keys, free space, what is
//! applied), gives every finding together, the warnings, and what the apply needs next: the secrets to read and the
//! images that can only be judged with them. Details hold names, never values.

use super::fence::{Fence, SecretRef};
use super::findings::{Findings, show};
use super::images::{Known, image_of, judge_images, services};
use super::manifest::Manifest;
use super::meta::Meta;
use super::rollback::{self, Age};
use super::template::reference::{Dialect, parse, references};
use super::template::{Key, Template, missing_in};
use super::version::Version;
use crate::code::Code;
use crate::error::Finding;
use crate::names::{Sha256, VarName};
use crate::ordered::set_of;
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Inodes that must stay free beside those of the members.
const SPARE_INODES: u64 = 1_000;

/// What the real Compose says about the file.
#[derive(Clone, Copy, Debug)]
pub struct ComposeFacts<'a> {
    /// The variables that the file refers to (`config --variables`), and whether each has no default.
    pub references: &'a [(String, bool)],
    /// The model (`config --no-interpolate --no-env-resolution --format json`).
    pub model: &'a Value,
}

/// The room at one place on disk.
#[derive(Clone, Debug)]
pub struct Room {
    /// The place, in words or as a path.
    pub place: String,
    /// Free bytes.
    pub free_bytes: u64,
    /// Free inodes; `None` where the file system does not count them.
    pub free_inodes: Option<u64>,
}

/// Everything that a bundle is judged by.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// The bundle's name.
    pub sha: &'a Sha256,
    /// Its `meta.json`.
    pub meta: &'a Meta,
    /// Its manifest.
    pub manifest: &'a Manifest,
    /// How many files and directories it makes on disk.
    pub inodes: u64,
    /// The fence around the environment's secrets.
    pub fence: &'a Fence,
    /// Its template.
    pub template: &'a Template,
    /// Compose's view of the file, or its own words why it refuses it, redacted.
    pub compose: Result<ComposeFacts<'a>, &'a str>,
    /// The room at the docker data root and at `deploy_dir`.
    pub rooms: &'a [Room],
    /// `disk_factor`.
    pub disk_factor: f64,
    /// `disk_headroom_bytes`.
    pub disk_headroom_bytes: u64,
    /// This binary's version.
    pub binary_version: &'a str,
    /// What is applied.
    pub applied: Option<&'a Age>,
    /// What was applied before.
    pub history: &'a [Sha256],
}

/// The verdict.
#[derive(Debug, Default)]
pub struct Judgement {
    /// Why the bundle is refused; empty when it is not.
    pub findings: Vec<Finding>,
    /// What is odd and no reason to refuse.
    pub warnings: Vec<String>,
    /// The secrets to read, those inside the fence.
    pub secrets: Vec<SecretRef>,
    /// Services whose image is to be judged again once the secrets are known.
    pub deferred_images: Vec<String>,
}

/// Judges a bundle by everything at once.
pub fn judge(case: &Case<'_>) -> Judgement {
    let mut findings = Findings::default();
    let mut judgement = Judgement::default();
    findings.extend(incomplete(case));
    findings.extend(reserved(case.template));
    let (secrets, outside) = case.fence.resolve_all(case.manifest);
    judgement.secrets = secrets;
    findings.extend(outside);
    findings.extend(provider(case.meta, case.manifest));
    findings.extend(rollback(case, &mut judgement.warnings));
    findings.extend(too_old(case));
    findings.extend(disk_short(case));
    match case.compose {
        Err(words) => findings.push(Finding::new(Code::ComposeInvalid, words)),
        Ok(compose) => {
            findings.extend(built(compose.model));
            let values = known_values(case);
            let known = |name: &str| match values.get(name) {
                Some(Some(value)) => Known::Value(value),
                Some(None) => Known::Secret,
                None => Known::Unset,
            };
            let images = judge_images(compose.model, case.meta.images_policy, &known);
            findings.extend(images.findings);
            judgement.deferred_images = images.deferred;
        }
    }
    judgement.findings = findings.into_vec();
    judgement
}

/// Whether the template may not define this key: docker or Compose would take it as an instruction to itself.
pub fn is_reserved(key: &str) -> bool {
    Key::new(key).is_some_and(|key| key.is_reserved())
}

fn reserved(template: &Template) -> Option<Finding> {
    let keys: Vec<&str> = template
        .keys()
        .into_iter()
        .filter(|key| key.is_reserved())
        .map(Key::as_str)
        .collect();
    (!keys.is_empty()).then(|| {
        let detail = format!("the template defines {}", keys.join(", "));
        Finding::new(Code::EnvReserved, detail)
    })
}

fn provided_by(manifest: &Manifest) -> BTreeSet<&str> {
    set_of(manifest.variables().map(VarName::as_str))
}

fn incomplete(case: &Case<'_>) -> Option<Finding> {
    let provided = provided_by(case.manifest);
    let unresolved = case.template.unresolved(&|name| provided.contains(name));
    let mut names = set_of(unresolved.into_iter().map(String::from));
    if let Ok(compose) = case.compose {
        names.extend(unprovided(compose, &known_values(case)));
    }
    (!names.is_empty()).then(|| {
        let names: Vec<String> = names.into_iter().collect();
        let detail = format!("unresolved: {}", names.join(", "));
        Finding::new(Code::EnvIncomplete, detail)
    })
}

/// Every key of the template with its value; `None` where that needs a secret.
fn known_values(case: &Case<'_>) -> BTreeMap<String, Option<String>> {
    let provided = provided_by(case.manifest);
    case.template.values(&|name| provided.contains(name))
}

/// The variables of the compose file that it needs and the template does not provide. Compose's list has one line for
/// all references to a variable, and tells neither `${V}` from `${V:-}` nor whether a nested one is ever used; the
/// strings of its model do. What is in none of them goes by the list.
fn unprovided(compose: ComposeFacts<'_>, values: &BTreeMap<String, Option<String>>) -> Vec<String> {
    let mut told = Told::default();
    told.note(compose.model, values);
    let is_missing = |name: &str, required: bool| match told.seen.contains(name) {
        true => told.missing.contains(name),
        false => required && !values.contains_key(name),
    };
    compose
        .references
        .iter()
        .filter(|(name, required)| is_missing(name, *required))
        .map(|(name, _)| name.clone())
        .collect()
}

/// What the strings of the model tell of its variables.
#[derive(Default)]
struct Told {
    seen: BTreeSet<String>,
    missing: BTreeSet<String>,
}

impl Told {
    fn note(&mut self, value: &Value, values: &BTreeMap<String, Option<String>>) {
        match value {
            Value::String(text) if text.contains('$') => {
                let parts = parse(text, Dialect::ComposeFile).unwrap_or_default();
                let names = references(&parts)
                    .into_iter()
                    .map(|reference| reference.name.to_string());
                self.seen.extend(names);
                let missing = missing_in(&parts, values);
                self.missing
                    .extend(missing.into_iter().map(|name| name.to_string()));
            }
            Value::Array(items) => items.iter().for_each(|item| self.note(item, values)),
            Value::Object(map) => map.values().for_each(|item| self.note(item, values)),
            _ => {}
        }
    }
}

fn provider(meta: &Meta, manifest: &Manifest) -> Option<Finding> {
    let detail = match meta.secrets_provider.as_deref() {
        None | Some("openbao") => return None,
        Some("none") if manifest.entries.is_empty() => return None,
        Some("none") => format!(
            "meta.secrets_provider is none, and the manifest has {} entries",
            manifest.entries.len()
        ),
        Some(other) => format!(
            "meta.secrets_provider is {}; this agent reads from openbao only",
            show(other.as_bytes())
        ),
    };
    Some(Finding::new(Code::SecretsProvider, detail))
}

fn rollback(case: &Case<'_>, warnings: &mut Vec<String>) -> Option<Finding> {
    let bundle = Age {
        sha: case.sha.clone(),
        generation: case.meta.generation,
        rendered_at: case.meta.rendered_at.clone(),
    };
    let (finding, warning) = rollback::judge(&bundle, case.applied, case.history);
    warnings.extend(warning);
    finding.filter(|_| !case.meta.allow_rollback)
}

fn too_old(case: &Case<'_>) -> Option<Finding> {
    let needed = case.meta.min_version.as_ref()?;
    let ours = Version::parse(case.binary_version)?;
    (ours.precedence(needed) == Ordering::Less).then(|| {
        Finding::new(
            Code::AgentTooOld,
            format!(
                "the bundle needs monky-deployd {} or newer, this is {}",
                needed.as_str(),
                ours.as_str()
            ),
        )
    })
}

fn disk_short(case: &Case<'_>) -> Vec<Finding> {
    let inodes = case.inodes.saturating_add(SPARE_INODES);
    let need = case.meta.disk_need_bytes.unwrap_or(0);
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a factor of at most 10 on bytes; a float rounds by less than a page and the cast saturates"
    )]
    let bytes =
        ((need as f64 * case.disk_factor).ceil() as u64).saturating_add(case.disk_headroom_bytes);
    let mut findings = Vec::new();
    for room in case.rooms {
        let place = &room.place;
        if room.free_bytes < bytes {
            findings.push(Finding::new(
                Code::DiskShort,
                format!(
                    "{place} has {} free, the bundle needs {} (need {} × disk_factor {} + disk_headroom_bytes {})",
                    size(room.free_bytes),
                    size(bytes),
                    size(need),
                    case.disk_factor,
                    size(case.disk_headroom_bytes),
                ),
            ));
        }
        if let Some(free) = room.free_inodes.filter(|free| *free < inodes) {
            findings.push(Finding::new(
                Code::DiskShort,
                format!("{place} has {free} free inodes, the bundle needs {inodes}"),
            ));
        }
    }
    findings
}

/// Bytes for people.
fn size(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("GiB", 30), ("MiB", 20), ("KiB", 10), ("bytes", 0)];
    let (unit, shift) = UNITS
        .into_iter()
        .find(|(_, shift)| bytes >> shift > 0)
        .unwrap_or(("bytes", 0));
    let whole = bytes >> shift;
    let tenth = ((bytes - (whole << shift)) * 10) >> shift;
    if tenth == 0 {
        format!("{whole} {unit}")
    } else {
        format!("{whole}.{tenth} {unit}")
    }
}

fn built(model: &Value) -> Option<Finding> {
    let names: Vec<String> = services(model)
        .filter(|(_, service)| service.get("build").is_some_and(|build| !build.is_null()))
        .filter(|(_, service)| image_of(service).is_none())
        .map(|(name, _)| show(name.as_bytes()))
        .collect();
    (!names.is_empty()).then(|| {
        Finding::new(
            Code::BuildUnsupported,
            format!(
                "nothing is built on the box: give service {} an image:",
                names.join(", ")
            ),
        )
    })
}

#[cfg(test)]
mod tests;
