//! The real Compose as the differential tests call it: with the environment cleared, a home of its own, files staged as
//! the agent stages them, and the very call that `deploy::proof` documents. No daemon is needed.

use monky_deployd::deploy::env_file::Rendered;
use monky_deployd::deploy::proof;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A Compose with a directory of its own to work in.
pub struct Compose {
    home: tempfile::TempDir,
}

impl Compose {
    /// The Compose of this machine, or why there is none.
    pub fn get() -> Result<Self, String> {
        let home = tempfile::tempdir().expect("a temporary directory");
        let compose = Self { home };
        match compose.command().args(["compose", "version"]).output() {
            Ok(output) if output.status.success() => Ok(compose),
            Ok(output) => Err(format!(
                "docker compose does not run ({}): run tests/e2e/setup",
                String::from_utf8_lossy(&output.stderr).trim()
            )),
            Err(error) => Err(format!(
                "docker cannot be started ({error}): run tests/e2e/setup"
            )),
        }
    }

    /// docker with an environment that holds nothing of ours, least of all a DOCKER_CONFIG.
    fn command(&self) -> Command {
        let mut command = Command::new("docker");
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home.path());
        command
    }

    /// Stages `text` as the agent does.
    pub fn stage(&self, text: &str) -> PathBuf {
        let dir = self.home.path().join("staged");
        let _ = fs::remove_dir_all(&dir);
        fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(dir.join(".env"))
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
        dir
    }

    /// The call of the proof, as `deploy::proof` gives it.
    pub fn config(&self, dir: &Path, document: &[u8], variables: &[(&str, &str)]) -> Output {
        let mut child = self
            .command()
            .envs(variables.iter().copied())
            .args(["compose", "-p", "proof", "--project-directory"])
            .arg(dir)
            .args(["-f", "-", "--env-file"])
            .arg(dir.join(".env"))
            .args(["config", "--format", "json"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(document).unwrap();
        child.wait_with_output().unwrap()
    }

    /// What Compose prints for the proof of `rendered`.
    pub fn prove(&self, rendered: &Rendered) -> Output {
        let dir = self.stage(rendered.text().expose());
        let output = self.config(&dir, &proof::document(rendered), &[]);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        output
    }

    /// What Compose itself makes of a text with these variables around it, by `${KEY}`; an error in its own words.
    pub fn reads(
        &self,
        text: &str,
        keys: &[String],
        variables: &[(&str, &str)],
    ) -> Result<Vec<String>, String> {
        let questions: BTreeMap<String, String> = keys
            .iter()
            .map(|key| (key.clone(), format!("${{{key}}}")))
            .collect();
        let document = json!({"services": {"s": {"image": "x", "environment": questions}}});
        let dir = self.stage(text);
        let output = self.config(&dir, document.to_string().as_bytes(), variables);
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        let environment = &answer["services"]["s"]["environment"];
        Ok(keys
            .iter()
            .map(|key| undoubled(&environment[key]))
            .collect())
    }
}

/// A value as Compose prints it, each `$$` undone.
pub fn undoubled(value: &Value) -> String {
    value.as_str().unwrap_or_default().replace("$$", "$")
}
