//! The one maker of a [`VerifiedBundle`]: bytes whose digest is the one that tenancy asked for, whose members are
//! harmless and complete, and whose documents could be read. The digest comes first: of bytes that are not the wanted
//! ones nothing else is worth telling. After it everything that is wrong is told together. No disk, no network.

use super::archive::{self, Archive, Limits, Presence, Scan};
use super::findings::{Findings, show};
use super::manifest::{MANIFEST, Manifest};
use super::meta::{META, Meta};
use super::rollback::Age;
use super::template::Template;
use crate::code::Code;
use crate::error::Finding;
use crate::names::{BundlePath, EnvId, Sha256};
use serde_json::Value;
use std::collections::BTreeMap;

/// The member's name.
pub const TEMPLATE: &str = ".env.template";
/// The names that the compose file may have; a bundle has exactly one of them.
pub const COMPOSE_FILES: [&str; 4] = [
    "docker-compose.yml",
    "compose.yaml",
    "compose.yml",
    "docker-compose.yaml",
];

/// A bundle that is what tenancy asked for, whole and harmless.
#[derive(Debug)]
pub struct VerifiedBundle {
    sha: Sha256,
    archive: Archive,
    compose_file: BundlePath,
    template: Template,
    manifest: Manifest,
    meta: Meta,
    foreign: Option<Finding>,
    warnings: Vec<String>,
}

impl VerifiedBundle {
    /// Its digest, which is its name.
    pub fn sha(&self) -> &Sha256 {
        &self.sha
    }

    /// Why it is not for this environment, if it is not: told with everything else that speaks against it.
    pub fn foreign(&self) -> Option<&Finding> {
        self.foreign.as_ref()
    }

    /// Which member is the compose file.
    pub fn compose_file(&self) -> &BundlePath {
        &self.compose_file
    }

    /// The template of `.env`.
    pub fn template(&self) -> &Template {
        &self.template
    }

    /// The secrets that it needs.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// What its `meta.json` says.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// What is odd and no reason to refuse.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The members in the order of their paths: path, content, whether executable.
    pub fn members(&self) -> impl Iterator<Item = (&BundlePath, &[u8], bool)> {
        self.archive
            .members()
            .map(|(path, member)| (path, self.archive.bytes(member), member.is_executable()))
    }

    /// What the member of that name holds.
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.archive
            .get(name)
            .map(|member| self.archive.bytes(member))
    }

    /// All directories inside it, parents first.
    pub fn directories(&self) -> impl Iterator<Item = &BundlePath> {
        self.archive.directories()
    }

    /// How many files and directories it makes on disk.
    pub fn inodes(&self) -> u64 {
        self.archive.inodes()
    }

    /// What it is compared by with another bundle.
    pub fn age(&self) -> Age {
        Age {
            sha: self.sha.clone(),
            generation: self.meta.generation,
            rendered_at: self.meta.rendered_at.clone(),
        }
    }
}

/// Verifies the body of a bundle that tenancy named `desired`, for the environment `env`.
pub fn verify(
    body: Vec<u8>,
    desired: &Sha256,
    env: &EnvId,
) -> Result<VerifiedBundle, Vec<Finding>> {
    let sha = Sha256::of(&body);
    if sha != *desired {
        let detail = format!(
            "the {} bytes received have the sha256 {sha}, and {desired} was asked for",
            body.len()
        );
        return Err(vec![Finding::new(Code::BundleShaMismatch, detail)]);
    }
    let mut scan = archive::scan(&body, Limits::default());
    if !scan.complete {
        return Err(scan.findings.into_vec());
    }
    let mut findings = std::mem::take(&mut scan.findings);
    let mut warnings = Vec::new();
    let mut check = Check {
        body: &body,
        scan: &scan,
        findings: &mut findings,
    };
    let compose_file = check.compose_file();
    let template = check.template();
    let manifest = check.document(MANIFEST);
    let meta = check.document(META);
    let manifest = manifest
        .map(|doc| Manifest::read(&doc, &mut findings, &mut warnings))
        .unwrap_or_default();
    let meta = meta
        .map(|doc| Meta::read(&doc, &mut findings, &mut warnings))
        .unwrap_or_default();
    let mut check = Check {
        body: &body,
        scan: &scan,
        findings: &mut findings,
    };
    if let Some(template) = &template {
        warnings.extend(template.warnings());
    }
    check.files(&meta);
    let foreign = foreign(&meta, env);
    match (compose_file, template) {
        (Some(compose_file), Some(template)) if findings.is_empty() => Ok(VerifiedBundle {
            sha,
            archive: scan.into_archive(body),
            compose_file,
            template,
            manifest,
            meta,
            foreign,
            warnings,
        }),
        _ => {
            findings.extend(foreign);
            Err(findings.into_vec())
        }
    }
}

/// Asks for members and tells what is wrong with them.
struct Check<'a> {
    body: &'a [u8],
    scan: &'a Scan,
    findings: &'a mut Findings,
}

impl<'a> Check<'a> {
    fn invalid(&mut self, detail: impl Into<String>) {
        let finding = Finding::new(Code::BundleInvalid, detail);
        self.findings.push(finding);
    }

    /// The one compose file.
    fn compose_file(&mut self) -> Option<BundlePath> {
        let is_there =
            |name: &&str| matches!(self.scan.presence(self.body, name), Presence::File(_));
        let is_refused = |name: &&str| self.scan.presence(self.body, name) == Presence::Refused;
        let found: Vec<&str> = COMPOSE_FILES.into_iter().filter(is_there).collect();
        match found.as_slice() {
            [one] => return BundlePath::new(one).ok(),
            [] if COMPOSE_FILES.iter().any(is_refused) => {}
            [] => self.invalid(format!(
                "the compose file is missing: one of {}",
                COMPOSE_FILES.join(", ")
            )),
            several => self.invalid(format!(
                "there is more than one compose file: {}",
                several.join(", ")
            )),
        }
        None
    }

    /// A required member.
    fn member(&mut self, name: &str) -> Option<&'a [u8]> {
        match self.scan.presence(self.body, name) {
            Presence::File(bytes) => return Some(bytes),
            Presence::Directory => self.invalid(format!("{name} is a directory")),
            Presence::Refused => {}
            Presence::Missing => self.invalid(format!("{name} is missing")),
        }
        None
    }

    fn template(&mut self) -> Option<Template> {
        let bytes = self.member(TEMPLATE)?;
        Template::parse(bytes)
            .map_err(|findings| self.findings.extend(findings))
            .ok()
    }

    /// A required JSON document.
    fn document(&mut self, name: &str) -> Option<Value> {
        let bytes = self.member(name)?;
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        match serde_json::from_slice(bytes) {
            Ok(doc) => Some(doc),
            Err(error) => {
                self.invalid(format!("{name} is not JSON: {error}"));
                None
            }
        }
    }

    /// What `meta.files` promises. Each member is hashed once, however often it is named.
    fn files(&mut self, meta: &Meta) {
        let mut digests: BTreeMap<&str, Sha256> = BTreeMap::new();
        for file in &meta.files {
            let name = file.path.as_str();
            let told = show(name.as_bytes());
            match (self.scan.presence(self.body, name), &file.sha256) {
                (Presence::File(bytes), Some(sha)) => {
                    let found = digests.entry(name).or_insert_with(|| Sha256::of(bytes));
                    if found != sha {
                        let (found, sha) = (found.short(), sha.short());
                        let detail = format!(
                            "meta.files: {told} has the sha256 {found}…, and {sha}… was promised"
                        );
                        self.invalid(detail);
                    }
                }
                (Presence::File(_), None)
                | (Presence::Directory, None)
                | (Presence::Refused, _) => {}
                (Presence::Directory, Some(_)) => {
                    self.invalid(format!("meta.files: {told} is a directory"));
                }
                (Presence::Missing, _) => {
                    self.invalid(format!("meta.files: {told} is not in the bundle"));
                }
            }
        }
    }
}

/// A bundle that names another environment than ours.
fn foreign(meta: &Meta, env: &EnvId) -> Option<Finding> {
    let other = meta.env_id.as_deref().filter(|id| *id != env.as_str())?;
    let other = show(other.as_bytes());
    let detail = format!("the bundle was rendered for {other}, and this is {env}");
    Some(Finding::new(Code::BundleEnvMismatch, detail))
}

#[cfg(test)]
mod tests;
