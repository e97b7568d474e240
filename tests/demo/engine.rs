//! Docker, as the demo itself talks to it: the engine that answers, or else the recorded stand-in of the tests. Makes the
//! sample image (one static file, nothing is pulled) and removes all that carries the demo's project label.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use control_plane::Bundle;

use crate::sample::IMAGE;

const PROJECT_LABEL: &str = "com.docker.compose.project";
const NO_CONFIG: &str = "/nonexistent/docker-config";
const FIELDS: &str = concat!(
    r#"[{{json (index .Config.Labels "com.docker.compose.service")}},{{json .Id}},{{json .Name}},"#,
    r#"{{json .Config.Image}},{{json .State.Status}}]"#
);

/// What answers to `docker`.
pub struct Engine {
    /// The program that the agent is told to use, behind a counter.
    pub program: PathBuf,
    /// Which engine, or why there is none.
    pub kind: Kind,
    /// `DOCKER_CONFIG` of the demo's own calls: never a person's; the stand-in finds its records by it.
    pub config: PathBuf,
}

/// Real or not.
pub enum Kind {
    /// An engine of this version.
    Real(String),
    /// None, and why.
    StandIn(String),
}

/// A container of the demo's project, running or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its compose service.
    pub service: String,
    /// Its id: another one means that it was made anew.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its image.
    pub image: String,
    /// `running`, `exited`, …
    pub state: String,
}

impl Engine {
    /// The engine that answers, with Compose as the agent will find it; else the stand-in.
    pub fn choose(stand_in: &Path) -> Result<Self, String> {
        let found = match std::env::var("MONKY_DEPLOYD_NO_DOCKER") {
            Ok(value) if !value.is_empty() => Err(std::env::var("MONKY_DEPLOYD_NO_DOCKER_REASON")
                .unwrap_or_else(|_| "MONKY_DEPLOYD_NO_DOCKER is set".to_owned())),
            _ => probe(),
        };
        match found {
            Ok(version) => Ok(Self {
                program: "docker".into(),
                kind: Kind::Real(version),
                config: NO_CONFIG.into(),
            }),
            Err(why) if stand_in.is_file() => Ok(Self {
                program: stand_in.to_owned(),
                kind: Kind::StandIn(why),
                config: NO_CONFIG.into(),
            }),
            Err(why) => Err(format!(
                "{why}; and the stand-in {} is not built: MONKY_DEPLOYD_NO_DOCKER=1 tests/demo/run builds it",
                stand_in.display()
            )),
        }
    }

    /// Whether containers are real.
    pub fn is_real(&self) -> bool {
        matches!(self.kind, Kind::Real(_))
    }

    /// Makes the sample image out of one static program.
    pub fn make_image(&self, app: &Path) -> Result<(), String> {
        if !self.is_real() {
            return Ok(());
        }
        let program = fs::read(app).map_err(|e| format!("{}: {e}", app.display()))?;
        // A bundle is a tar, and so is an image.
        let tar = Bundle::builder().executable("app", program).build();
        let mut child = self
            .command(&["import", "-", IMAGE])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|e| format!("docker import: {e}"))?;
        // An early end of docker shows in its status.
        let _ = child
            .stdin
            .take()
            .map(|mut stdin| stdin.write_all(tar.bytes()));
        match child.wait() {
            Ok(status) if status.success() => Ok(()),
            ended => Err(format!("docker import: {ended:?}")),
        }
    }

    /// Runs `docker ARGS…`; its standard output.
    pub fn run(&self, args: &[&str]) -> Result<String, String> {
        let output = self
            .command(args)
            .output()
            .map_err(|e| format!("docker {}: {e}", args.join(" ")))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let words = String::from_utf8_lossy(&output.stderr);
        Err(format!("docker {}: {}", args.join(" "), words.trim()))
    }

    /// The project's containers, in the order of their services.
    pub fn containers(&self, project: &str) -> Result<Vec<Container>, String> {
        let ids = self.labelled(
            project,
            &["ps", "--all", "--no-trunc", "--format", "{{.ID}}"],
        )?;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let inspect = ["inspect", "--type", "container", "--format", FIELDS];
        let shown = self.run(&[&inspect, &ids[..]].concat())?;
        let mut containers = Vec::new();
        for line in shown.lines() {
            let (service, id, name, image, state): (_, _, String, _, _) =
                serde_json::from_str(line).map_err(|e| format!("docker inspect: {line}: {e}"))?;
            let name = name.trim_start_matches('/').to_owned();
            containers.push(Container {
                service,
                id,
                name,
                image,
                state,
            });
        }
        containers.sort_by(|a, b| a.service.cmp(&b.service));
        Ok(containers)
    }

    /// The project's volumes.
    pub fn volumes(&self, project: &str) -> Result<Vec<String>, String> {
        self.labelled(project, &["volume", "ls", "--quiet"])
    }

    /// Removes the project and the image, as far as they are there. Best effort: it also runs after a failure.
    pub fn clean_up(&self, project: &str) {
        if !self.is_real() {
            return;
        }
        for (list, remove) in [
            (
                &["ps", "--all", "--quiet"][..],
                &["rm", "--force", "--volumes"][..],
            ),
            (&["network", "ls", "--quiet"], &["network", "rm"]),
            (&["volume", "ls", "--quiet"], &["volume", "rm", "--force"]),
        ] {
            let found = self.labelled(project, list).unwrap_or_default();
            if !found.is_empty() {
                let ids: Vec<&str> = found.iter().map(String::as_str).collect();
                let _ = self.run(&[remove, &ids].concat());
            }
        }
        let _ = self.run(&["image", "rm", IMAGE]);
    }

    fn labelled(&self, project: &str, list: &[&str]) -> Result<Vec<String>, String> {
        let filter = format!("label={PROJECT_LABEL}={project}");
        let listed = self.run(&[list, &["--filter", &filter]].concat())?;
        Ok(listed.lines().map(str::to_owned).collect())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .env("DOCKER_CONFIG", &self.config)
            .env_remove("DOCKER_CONTEXT")
            .stdin(Stdio::null());
        command
    }
}

/// The engine's version, when it answers and has Compose in a place where the agent looks.
fn probe() -> Result<String, String> {
    let engine = Engine {
        program: "docker".into(),
        kind: Kind::Real(String::new()),
        config: NO_CONFIG.into(),
    };
    let version = engine
        .run(&["version", "--format", "{{.Server.Version}}"])
        .map_err(|why| format!("no docker engine answers ({why})"))?;
    let compose = engine
        .run(&["compose", "version", "--short"])
        .map_err(|why| format!("docker has no compose plugin ({why})"))?;
    Ok(format!(
        "{} with Compose {}",
        version.trim(),
        compose.trim()
    ))
}
