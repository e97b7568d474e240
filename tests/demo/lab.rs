//! The demo's box: a directory with a configuration and a bootstrap grant, the embedded control plane beside it, and the
//! agent run in it as the timer would run it. Everything goes away with the value.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use control_plane::{ControlPlane, Logged, Options};

use crate::engine::{Container, Engine};
use crate::sample::{ENV_ID, Form, IMAGE};
use crate::show;
use crate::signals::Signals;

/// Everything that the story needs.
pub struct Lab {
    /// Tenancy and OpenBao.
    pub plane: ControlPlane,
    /// Docker.
    pub engine: Engine,
    /// The compose project; no other demo has the same.
    pub project: String,
    dir: PathBuf,
    agent: PathBuf,
    signals: Signals,
}

/// What a tick came to.
pub struct Ticked {
    /// The exit code.
    pub exit: i32,
    /// What the agent said.
    pub lines: Vec<String>,
    /// What the control plane received.
    pub requests: Vec<Logged>,
    /// How many docker commands the agent ran.
    pub docker_commands: usize,
    /// How long it took.
    pub took: Duration,
}

impl Lab {
    /// Starts the control plane and lays out the box.
    pub fn open(
        agent: &Path,
        app: &Path,
        engine: Engine,
        signals: &Signals,
    ) -> Result<Self, String> {
        let (dir, name) = make_directory()?;
        let plane = match ControlPlane::start(Options::new(ENV_ID)) {
            Ok(plane) => plane,
            Err(error) => {
                let _ = fs::remove_dir_all(&dir);
                return Err(format!("the control plane does not start: {error}"));
            }
        };
        // Every tick is due, so that nobody has to wait for a minute to pass.
        plane
            .tenancy()
            .set(|settings| settings.checkin_interval_s = 0);
        let mut engine = engine;
        engine.config = dir.join("state/docker");
        let lab = Self {
            plane,
            engine,
            project: format!("monky-{name}"),
            dir,
            agent: agent.to_owned(),
            signals: signals.clone(),
        };
        lab.engine.make_image(app)?;
        lab.lay_out().map_err(|e| format!("the box: {e}"))?;
        Ok(lab)
    }

    /// How compose files have to be written here.
    pub fn form(&self) -> Form {
        if self.engine.is_real() {
            Form::Yaml
        } else {
            Form::Json
        }
    }

    /// The configuration.
    pub fn config(&self) -> String {
        let dir = self.dir.display();
        format!(
            "\
env_id: {ENV_ID}
site: demo
tenancy:
  base_url: {tenancy}
bao:
  addr: {bao}
  ca_file: {dir}/ca.pem
bootstrap_file: {dir}/bootstrap.jwt
state_dir: {dir}/state
compose_project: {project}
docker_bin: {dir}/docker    # counts its calls, then runs docker
disk_headroom_bytes: 0
stable_for_s: 1
interval_s: 10
log_target: stderr
",
            tenancy = self.plane.tenancy_url(),
            bao = self.plane.bao_url(),
            project = self.project,
        )
    }

    fn lay_out(&self) -> std::io::Result<()> {
        fs::write(self.dir.join("ca.pem"), self.plane.ca_pem())?;
        self.write("bootstrap.jwt", 0o600, &self.plane.grant())?;
        self.write("config.yaml", 0o640, &self.config())?;
        let counter = format!(
            "#!/bin/sh\necho \"$*\" >>'{}'\nexec '{}' \"$@\"\n",
            self.dir.join("docker-commands").display(),
            self.engine.program.display()
        )
        // The real one is found in PATH.
        .replace("exec 'docker'", "exec docker");
        self.write("docker", 0o755, &counter)?;
        if self.engine.is_real() {
            return Ok(());
        }
        // What the stand-in is to take for granted: the image is there, and the job ends well.
        let script = self.dir.join("docker-stand-in/script");
        fs::create_dir_all(&script)?;
        fs::write(script.join("images"), format!("{IMAGE}\n"))?;
        fs::write(script.join("exit"), "migrate=0\n")
    }

    fn write(&self, name: &str, mode: u32, text: &str) -> std::io::Result<()> {
        let mut file = fs::File::options()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(self.dir.join(name))?;
        file.write_all(text.as_bytes())
    }

    /// Runs one tick, showing what it says as it says it.
    pub fn tick(&self, options: &[&str]) -> Result<Ticked, String> {
        if self.signals.arrived() {
            return Err("stopped".into());
        }
        let calls = self.dir.join("docker-commands");
        let _ = fs::remove_file(&calls);
        self.plane.log().clear();
        show::command(
            &["monky-deployd tick"]
                .iter()
                .chain(options)
                .copied()
                .collect::<Vec<_>>()
                .join(" "),
        );
        let started = Instant::now();
        let (exit, lines) = self.run(&[&["tick"], options].concat())?;
        let took = started.elapsed();
        let docker_commands = fs::read_to_string(&calls)
            .unwrap_or_default()
            .lines()
            .count();
        let requests = self.plane.log().requests();
        show::line(&format!(
            "    exit code {exit} after {:.1} s, {}, {}",
            took.as_secs_f32(),
            count(requests.len(), "request"),
            count(docker_commands, "docker command"),
        ));
        Ok(Ticked {
            exit,
            lines,
            requests,
            docker_commands,
            took,
        })
    }

    fn run(&self, args: &[&str]) -> Result<(i32, Vec<String>), String> {
        let failed = |e: std::io::Error| format!("{}: {e}", self.agent.display());
        let (reader, writer) = std::io::pipe().map_err(failed)?;
        let mut command = Command::new(&self.agent);
        command
            .arg("--config")
            .arg(self.dir.join("config.yaml"))
            .args(args)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(writer.try_clone().map_err(failed)?)
            .stderr(writer);
        for name in [
            "PATH",
            "DOCKER_HOST",
            "DOCKER_TLS_VERIFY",
            "DOCKER_CERT_PATH",
        ] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        let mut child = command.spawn().map_err(failed)?;
        // The command holds the writing end, and the reader waits for the last one to be closed.
        drop(command);
        self.signals.pass_to(Some(&child));
        let mut lines = Vec::new();
        for line in BufReader::new(reader).lines() {
            let Ok(line) = line else { break };
            let without_tick = line
                .rsplit_once(" tick=")
                .map_or(line.as_str(), |(line, _)| line);
            show::said_wrapped(without_tick);
            lines.push(line);
        }
        let ended = child.wait();
        self.signals.pass_to(None);
        let status = ended.map_err(failed)?;
        match status.code() {
            _ if self.signals.arrived() => Err("stopped".into()),
            Some(code) => Ok((code, lines)),
            None => Err(format!("the agent ended by {status}")),
        }
    }

    /// The project's containers.
    pub fn containers(&self) -> Result<Vec<Container>, String> {
        self.engine.containers(&self.project)
    }

    /// The id of one service's container.
    pub fn container(&self, service: &str) -> Result<String, String> {
        let all = self.containers()?;
        let found = all.iter().find(|container| container.service == service);
        found
            .map(|container| container.id.clone())
            .ok_or_else(|| format!("there is no container of {service} among {all:?}"))
    }

    /// The files of the box that hold one of these texts, relative to its directory, with their modes.
    pub fn files_with(&self, texts: &[&str]) -> Result<Vec<(String, u32)>, String> {
        let mut found = Vec::new();
        let mut pending = vec![self.dir.clone()];
        while let Some(directory) = pending.pop() {
            let entries =
                fs::read_dir(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
            for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
                if path.is_symlink() || path.ends_with("docker-stand-in") {
                    continue;
                } else if path.is_dir() {
                    pending.push(path);
                    continue;
                }
                let bytes = fs::read(&path).unwrap_or_default();
                let holds = |text: &&str| {
                    bytes
                        .windows(text.len())
                        .any(|window| window == text.as_bytes())
                };
                if texts.iter().any(holds) {
                    let short = path.strip_prefix(&self.dir).unwrap_or(&path);
                    let mode = fs::metadata(&path).map_or(0, |meta| meta.mode() & 0o7777);
                    found.push((short.display().to_string(), mode));
                }
            }
        }
        found.sort();
        Ok(found)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.engine.clean_up(&self.project);
        // Below the volume's mount point files may be root's; what cannot be removed is named.
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            show::problem(&format!(
                "{} could not be removed: {error}",
                self.dir.display()
            ));
        }
    }
}

/// `1 request`, `2 requests`.
pub fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// A directory of our own below the temporary one, and its name.
fn make_directory() -> Result<(PathBuf, String), String> {
    let base = std::env::temp_dir();
    for n in 0..100 {
        let name = format!("demo-{:x}{n:02}", std::process::id());
        let dir = base.join(format!("monky-deployd-{name}"));
        match fs::DirBuilder::new().mode(0o700).create(&dir) {
            Ok(()) => return Ok((dir, name)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(format!("{}: {error}", dir.display())),
        }
    }
    Err(format!(
        "no free name for a directory in {}",
        base.display()
    ))
}
