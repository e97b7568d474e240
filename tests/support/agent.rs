//! A box of its own for each test: a directory with a configuration, a bootstrap grant, state and deploy directories, and
//! the agent run in it as a person or the timer would. What a run printed can only be read after its exit code was
//! asserted; a failing assertion shows argv, both streams and the tree.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// The agent that the tests drive: the shipped binary where `make test` names it, else the one that cargo just built.
pub fn agent_binary() -> PathBuf {
    std::env::var_os("MONKY_DEPLOYD_BIN")
        .filter(|path| !path.is_empty())
        .map_or_else(
            || PathBuf::from(env!("CARGO_BIN_EXE_monky-deployd")),
            PathBuf::from,
        )
}

/// A box.
pub struct AgentBox {
    dir: TempDir,
    keys: BTreeMap<String, String>,
    env: BTreeMap<String, String>,
}

impl AgentBox {
    /// A box for `env_id` that talks to nobody yet. Waits are as short as they can be.
    pub fn new(env_id: &str) -> Self {
        Self::new_below(&std::env::temp_dir(), env_id)
    }

    /// A box below a directory of the test's choice.
    pub fn new_below(parent: &Path, env_id: &str) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("monky-box-")
            .tempdir_in(parent)
            .unwrap();
        let mut new = Self {
            dir,
            keys: BTreeMap::new(),
            env: BTreeMap::new(),
        };
        let state = new.state_dir().display().to_string();
        let bootstrap = new.path("bootstrap.jwt").display().to_string();
        for (key, value) in [
            ("env_id", env_id),
            ("site", "lab"),
            ("state_dir", &state),
            ("bootstrap_file", &bootstrap),
            ("interval_s", "10"),
            ("stable_for_s", "0"),
            ("disk_headroom_bytes", "0"),
            ("log_target", "stderr"),
            ("log_level", "DEBUG"),
        ] {
            new.keys.insert(key.into(), value.into());
        }
        new.write_config();
        new
    }

    /// A box that talks to these peers, with a CA file and a bootstrap grant.
    pub fn connected(
        env_id: &str,
        tenancy_url: &str,
        bao_url: &str,
        ca_pem: &str,
        grant: &str,
    ) -> Self {
        let mut new = Self::new(env_id);
        new.connect(tenancy_url, bao_url, ca_pem, grant);
        new
    }

    /// Makes the box talk to these peers, with a CA file and a bootstrap grant.
    pub fn connect(&mut self, tenancy_url: &str, bao_url: &str, ca_pem: &str, grant: &str) {
        let ca = self.path("ca.pem");
        fs::write(&ca, ca_pem).unwrap();
        self.set("tenancy.base_url", tenancy_url)
            .set("bao.addr", bao_url)
            .set("bao.ca_file", ca.to_str().unwrap());
        self.stage_grant(grant);
    }

    /// Sets a key of the configuration (`tenancy.timeout_s`).
    pub fn set(&mut self, key: &str, value: &str) -> &mut Self {
        self.keys.insert(key.into(), value.into());
        self.write_config();
        self
    }

    /// Takes a key out of the configuration.
    pub fn unset(&mut self, key: &str) -> &mut Self {
        self.keys.remove(key);
        self.write_config();
        self
    }

    /// Sets a variable of the agent's own environment.
    pub fn setenv(&mut self, name: &str, value: &str) -> &mut Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Stages a bootstrap grant, as the installer does.
    pub fn stage_grant(&self, grant: &str) {
        let path = self.path("bootstrap.jwt");
        fs::write(&path, format!("{grant}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn write_config(&self) {
        let mut text = String::new();
        for (key, value) in self.keys.iter().filter(|(key, _)| !key.contains('.')) {
            writeln!(text, "{key}: {value}").unwrap();
        }
        for group in ["tenancy", "bao"] {
            let prefix = format!("{group}.");
            let inner: Vec<_> = self
                .keys
                .iter()
                .filter_map(|(key, value)| Some((key.strip_prefix(&prefix)?, value)))
                .collect();
            if !inner.is_empty() {
                writeln!(text, "{group}:").unwrap();
            }
            for (key, value) in inner {
                writeln!(text, "  {key}: {value}").unwrap();
            }
        }
        let path = self.config_file();
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o640)).unwrap();
    }

    /// A path inside the box.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.dir.path().join(relative)
    }

    /// The configuration.
    pub fn config_file(&self) -> PathBuf {
        self.path("config.yaml")
    }

    /// The state directory.
    pub fn state_dir(&self) -> PathBuf {
        self.path("state")
    }

    /// The deploy directory.
    pub fn deploy_dir(&self) -> PathBuf {
        self.keys.get("deploy_dir").map_or_else(
            || self.state_dir().join(&self.keys["env_id"]),
            PathBuf::from,
        )
    }

    /// A path in `live/`.
    pub fn live(&self, relative: &str) -> PathBuf {
        self.deploy_dir().join("live").join(relative)
    }

    /// `state.json`, parsed.
    pub fn state(&self) -> serde_json::Value {
        serde_json::from_slice(&fs::read(self.state_dir().join("state.json")).unwrap()).unwrap()
    }

    /// The release that `current` points to, or nothing.
    pub fn current(&self) -> Option<String> {
        let target = fs::read_link(self.deploy_dir().join("current")).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// The agent with these arguments, ready to start.
    pub fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Command::new(agent_binary());
        command.arg("--config").arg(self.config_file()).args(args);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs(&self.env);
        for name in ["DOCKER_HOST", "RUST_BACKTRACE"] {
            if let (Some(value), false) = (std::env::var_os(name), self.env.contains_key(name)) {
                command.env(name, value);
            }
        }
        command.stdin(Stdio::null());
        command
    }

    /// Runs the agent to its end.
    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Ran {
        let output = self.command(args).output().unwrap();
        Ran::new(
            args.iter()
                .map(|arg| arg.as_ref().to_string_lossy().into_owned())
                .collect(),
            output,
            self.tree(),
        )
    }

    /// Runs a tick that ignores the pacing.
    pub fn tick(&self) -> Ran {
        self.run(&["tick", "--force"])
    }

    /// Runs a tick as the timer does.
    pub fn timer_tick(&self) -> Ran {
        self.run(&["tick"])
    }

    /// Every path of the box with its mode, for failing assertions.
    pub fn tree(&self) -> String {
        let mut text = String::new();
        list(self.dir.path(), self.dir.path(), &mut text);
        text
    }
}

fn list(root: &Path, directory: &Path, text: &mut String) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.sort();
    for path in paths {
        let Ok(meta) = fs::symlink_metadata(&path) else {
            continue;
        };
        let name = path.strip_prefix(root).unwrap_or(&path).display();
        writeln!(text, "  {:04o} {name}", meta.permissions().mode() & 0o7777).unwrap();
        if meta.is_dir() {
            list(root, &path, text);
        }
    }
}

/// What a run came to.
pub struct Ran {
    argv: Vec<String>,
    output: Output,
    tree: String,
}

impl Ran {
    /// A finished run.
    pub fn new(argv: Vec<String>, output: Output, tree: String) -> Self {
        Self { argv, output, tree }
    }

    /// Asserts the exit code, and that nothing panicked on the way.
    #[track_caller]
    pub fn exits(&self, code: i32) -> &Self {
        assert_eq!(self.output.status.code(), Some(code), "{}", self.story());
        assert!(
            code == 70 || !self.stderr_text().contains("panic"),
            "{}",
            self.story()
        );
        self
    }

    /// Asserts that it said so, on either stream.
    #[track_caller]
    pub fn says(&self, words: &str) -> &Self {
        assert!(
            self.stderr_text().contains(words) || self.stdout_text().contains(words),
            "«{words}» was not said\n{}",
            self.story()
        );
        self
    }

    /// Asserts that it did not say so.
    #[track_caller]
    pub fn is_silent_on(&self, words: &str) -> &Self {
        assert!(
            !self.stderr_text().contains(words) && !self.stdout_text().contains(words),
            "«{words}» was said\n{}",
            self.story()
        );
        self
    }

    /// Standard output of a run that ended with 0.
    #[track_caller]
    pub fn stdout(&self) -> String {
        self.exits(0);
        self.stdout_text()
    }

    /// Standard error, after the exit code was asserted.
    #[track_caller]
    pub fn stderr(&self, code: i32) -> String {
        self.exits(code);
        self.stderr_text()
    }

    /// The exit code; `None` after a signal.
    pub fn code(&self) -> Option<i32> {
        self.output.status.code()
    }

    /// Everything, for a message.
    pub fn story(&self) -> String {
        format!(
            "argv: {:?}\nstatus: {:?}\n--- stdout\n{}--- stderr\n{}--- box\n{}",
            self.argv,
            self.output.status,
            self.stdout_text(),
            self.stderr_text(),
            self.tree
        )
    }

    fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }
}
