//! Where the stand-in lives and what it writes down: every call as it begins and as it ends, one JSON object a line. A
//! line is one `write` to a file opened for appending, so calls that overlap do not mix.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The stand-in's directory.
pub struct Home {
    dir: PathBuf,
}

impl Home {
    /// Beside the state directory, which holds the agent's `DOCKER_CONFIG`.
    pub fn find() -> Option<Self> {
        let config = PathBuf::from(std::env::var_os("DOCKER_CONFIG")?);
        let dir = config.parent()?.parent()?.join("docker-stand-in");
        // The first write says it when this failed.
        let _ = std::fs::create_dir_all(&dir);
        Some(Self { dir })
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Notes that a call begins.
    pub fn record_start(&self, argv: &[String], stdin: &[u8]) {
        let env: BTreeMap<String, String> = std::env::vars_os()
            .map(|(name, value)| {
                (
                    name.to_string_lossy().into_owned(),
                    value.to_string_lossy().into_owned(),
                )
            })
            .collect();
        let cwd = std::env::current_dir().unwrap_or_default();
        let digest = (!stdin.is_empty()).then(|| digest(stdin));
        self.append(&json!({
            "pid": std::process::id(),
            "argv": argv,
            "env": env,
            "cwd": cwd.to_string_lossy(),
            "stdin": digest,
            "descriptors": open_descriptors(),
        }));
    }

    /// Notes that this call ends.
    pub fn record_end(&self, code: u8) {
        self.append(&json!({"pid": std::process::id(), "ended": code}));
    }

    fn append(&self, line: &Value) {
        let opened = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path("calls.jsonl"));
        if let Ok(mut file) = opened {
            // A record that cannot be written is missed by the test that looks for it.
            let _ = file.write_all(format!("{line}\n").as_bytes());
        }
    }
}

/// What this process inherited beside the three standard streams.
fn open_descriptors() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    let mut open: Vec<String> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let number: u32 = path.file_name()?.to_str()?.parse().ok()?;
            let target = std::fs::read_link(&path).ok()?;
            let is_own = target == Path::new(&format!("/proc/{}/fd", std::process::id()));
            (number > 2 && !is_own).then(|| target.to_string_lossy().into_owned())
        })
        .collect();
    open.sort();
    open
}

/// A sha256 in hex.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
