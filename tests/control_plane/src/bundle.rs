//! Owns bundles as tenancy renders them: members in order → a deterministic ustar archive and its sha256.
//!
//! Takes any name and kind, hostile ones too (the header is written by hand, so nothing is normalised or refused); never reads a file.

use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use crate::grants::hex;

const BLOCK: usize = 512;

/// A finished bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    sha: String,
    bytes: Vec<u8>,
}

impl Bundle {
    /// Starts an empty bundle.
    pub fn builder() -> BundleBuilder {
        BundleBuilder::default()
    }

    /// A complete small bundle: one service `app` of `image`, no secrets.
    pub fn sample(env_id: &str, image: &str) -> BundleBuilder {
        let compose = format!("services:\n  app:\n    image: {image}\n    env_file: .env\n");
        Self::builder()
            .compose(&compose)
            .template("APP_MODE=demo\n")
            .manifest(&json!({"version": 1, "entries": []}))
            .meta(
                &json!({"env_id": env_id, "generation": 1, "rendered_at": "2026-09-08T14:00:00Z"}),
            )
    }

    /// Any bytes under their own sha256: an archive made elsewhere, or no archive at all.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self {
            sha: hex(digest(&SHA256, &bytes).as_ref()),
            bytes,
        }
    }

    /// The sha256 of the bytes, lower-case hex.
    pub fn sha(&self) -> &str {
        &self.sha
    }

    /// The tar.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// What a member is.
#[derive(Clone, Debug)]
pub enum Member {
    /// A regular file.
    File(Vec<u8>),
    /// A directory.
    Directory,
    /// A symbolic link to that target.
    Symlink(String),
    /// A hard link to that member.
    HardLink(String),
    /// Any other type flag, e.g. `b'3'` (character device), `b'6'` (fifo), `b'x'` (PAX header), with its data.
    Other(u8, Vec<u8>),
}

#[derive(Clone, Debug)]
struct Entry {
    name: Vec<u8>,
    mode: u32,
    member: Member,
    claimed_size: Option<u64>,
}

/// Collects members in order. A member added twice by `file` (or its named forms) replaces the earlier one; `entry` always appends.
#[derive(Clone, Debug, Default)]
pub struct BundleBuilder {
    entries: Vec<Entry>,
}

impl BundleBuilder {
    /// Adds or replaces a regular file, mode 0644.
    #[must_use]
    pub fn file(self, name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.executable_or_not(name, 0o644, bytes.into())
    }

    /// Adds or replaces a regular file, mode 0755.
    #[must_use]
    pub fn executable(self, name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.executable_or_not(name, 0o755, bytes.into())
    }

    /// `docker-compose.yml`.
    #[must_use]
    pub fn compose(self, yaml: &str) -> Self {
        self.file("docker-compose.yml", yaml)
    }

    /// `.env.template`.
    #[must_use]
    pub fn template(self, dotenv: &str) -> Self {
        self.file(".env.template", dotenv)
    }

    /// `secrets.manifest.json`.
    #[must_use]
    pub fn manifest(self, json: &Value) -> Self {
        self.file("secrets.manifest.json", json.to_string())
    }

    /// `meta.json`.
    #[must_use]
    pub fn meta(self, json: &Value) -> Self {
        self.file("meta.json", json.to_string())
    }

    /// Appends an entry of the manifest that is there, or begins one.
    #[must_use]
    pub fn secret(self, var: &str, path: &str) -> Self {
        let entry = json!({"var": var, "path": path});
        let mut manifest = self.json_of(
            "secrets.manifest.json",
            json!({"version": 1, "entries": []}),
        );
        if let Some(entries) = manifest.get_mut("entries").and_then(Value::as_array_mut) {
            entries.push(entry);
        }
        self.manifest(&manifest)
    }

    /// Lays fields over the meta that is there, or begins one.
    #[must_use]
    pub fn meta_with(self, fields: &Value) -> Self {
        let mut meta = self.json_of("meta.json", json!({}));
        if let (Some(target), Some(source)) = (meta.as_object_mut(), fields.as_object()) {
            target.extend(source.clone());
        }
        self.meta(&meta)
    }

    /// Leaves a member out.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.entries.retain(|entry| entry.name != name.as_bytes());
        self
    }

    /// Appends a member of any kind, name and mode; names may be duplicates and need not be UTF-8.
    #[must_use]
    pub fn entry(mut self, name: impl Into<Vec<u8>>, mode: u32, member: Member) -> Self {
        self.entries.push(Entry {
            name: name.into(),
            mode,
            member,
            claimed_size: None,
        });
        self
    }

    /// Appends a file whose header claims another size than it has.
    #[must_use]
    pub fn lying_file(mut self, name: &str, bytes: &[u8], claimed_size: u64) -> Self {
        let member = Member::File(bytes.to_vec());
        self.entries.push(Entry {
            name: name.into(),
            mode: 0o644,
            member,
            claimed_size: Some(claimed_size),
        });
        self
    }

    /// Writes the archive.
    pub fn build(&self) -> Bundle {
        let mut tar = Vec::new();
        for entry in &self.entries {
            entry.write(&mut tar);
        }
        tar.resize(tar.len() + 2 * BLOCK, 0);
        Bundle::raw(tar)
    }

    fn executable_or_not(mut self, name: &str, mode: u32, bytes: Vec<u8>) -> Self {
        let member = Member::File(bytes);
        match self
            .entries
            .iter_mut()
            .find(|entry| entry.name == name.as_bytes())
        {
            Some(entry) => (entry.mode, entry.member) = (mode, member),
            None => self.entries.push(Entry {
                name: name.into(),
                mode,
                member,
                claimed_size: None,
            }),
        }
        self
    }

    fn json_of(&self, name: &str, default: Value) -> Value {
        self.entries
            .iter()
            .find(|entry| entry.name == name.as_bytes())
            .and_then(|entry| match &entry.member {
                Member::File(bytes) => serde_json::from_slice(bytes).ok(),
                _ => None,
            })
            .unwrap_or(default)
    }
}

impl Entry {
    fn write(&self, tar: &mut Vec<u8>) {
        let (flag, link, data): (u8, &str, &[u8]) = match &self.member {
            Member::File(bytes) => (b'0', "", bytes),
            Member::Directory => (b'5', "", &[]),
            Member::Symlink(target) => (b'2', target, &[]),
            Member::HardLink(target) => (b'1', target, &[]),
            Member::Other(flag, data) => (*flag, "", data),
        };
        // Names of more than 100 bytes go by GNU's long-name member: ustar's prefix field needs a slash at the right place.
        if self.name.len() > 100 {
            let mut long = self.name.clone();
            long.push(0);
            write_member(
                tar,
                b"././@LongLink",
                0o644,
                b'L',
                "",
                long.len() as u64,
                &long,
            );
        }
        let size = self.claimed_size.unwrap_or(data.len() as u64);
        write_member(tar, &self.name, self.mode, flag, link, size, data);
    }
}

fn write_member(
    tar: &mut Vec<u8>,
    name: &[u8],
    mode: u32,
    flag: u8,
    link: &str,
    size: u64,
    data: &[u8],
) {
    let mut header = Vec::with_capacity(BLOCK);
    let field = |header: &mut Vec<u8>, bytes: &[u8], width: usize| {
        let end = header.len() + width;
        header.extend(bytes.iter().take(width));
        header.resize(end, 0);
    };
    field(&mut header, name, 100);
    field(&mut header, format!("{mode:07o}").as_bytes(), 8);
    field(&mut header, b"0000000", 8);
    field(&mut header, b"0000000", 8);
    field(&mut header, format!("{size:011o}").as_bytes(), 12);
    field(&mut header, b"00000000000", 12);
    // The checksum is computed over a header whose own field is blank.
    let checksum_at = header.len();
    field(&mut header, b"        ", 8);
    field(&mut header, &[flag], 1);
    field(&mut header, link.as_bytes(), 100);
    field(&mut header, b"ustar\x0000", 8);
    header.resize(BLOCK, 0);
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    let checksum = format!("{sum:06o}\0 ");
    if let Some(slot) = header.get_mut(checksum_at..checksum_at + 8) {
        slot.copy_from_slice(checksum.as_bytes());
    }
    tar.extend(header);
    tar.extend(data);
    tar.resize(tar.len().next_multiple_of(BLOCK), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_members_give_equal_bundles() {
        let bundle = || Bundle::sample("env-qa-02", "demo:1").secret("DB", "see/db");
        assert_eq!(bundle().build(), bundle().build());
        let changed = bundle().meta_with(&json!({"generation": 2}));
        assert_ne!(bundle().build().sha(), changed.build().sha());
    }

    #[test]
    fn the_archive_is_one_that_tar_reads() {
        let long = "d/".repeat(60) + "deep";
        let bundle = Bundle::sample("e", "demo:1")
            .executable("bin/run", "#!/bin/sh\n")
            .file(&long, "x")
            .build();
        let mut child = std::process::Command::new("tar")
            .args(["-tvf", "-"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), bundle.bytes()).unwrap();
        let out = child.wait_with_output().unwrap();
        let listing = String::from_utf8(out.stdout).unwrap();
        assert!(out.status.success(), "{listing}");
        assert!(
            listing.contains("-rwxr-xr-x")
                && listing.contains("bin/run")
                && listing.contains(&long),
            "{listing}"
        );
    }
}
