//! The verbs of docker: each builds an argv, runs it, and hands the output to a parser. The environment of every call is
//! made here and holds no more than docker needs, so that neither a person's settings nor the caller's variables win
//! over `.env`; no secret is ever an argument.

use crate::code::Code;
use crate::deploy::compose_output::{self, Container};
use crate::deploy::trouble;
use crate::error::{Error, Result};
use crate::host::paths::state_dir;
use crate::host::process::{Finished, Runner, Task};
use crate::names::ProjectName;
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How much of a command's output is kept, in bytes a stream.
const OUTPUT_CAP_BYTES: usize = 1024 * 1024;
/// How much of a model or a read-back is kept, in bytes; it must come back whole.
const DOCUMENT_CAP_BYTES: usize = 64 * 1024 * 1024;
/// How long a look at containers may take.
const LOOK_LIMIT: Duration = Duration::from_secs(60);

/// What every docker call needs to know.
#[derive(Clone)]
pub struct Docker<'a> {
    /// The docker program.
    pub program: String,
    /// The compose project.
    pub project: ProjectName,
    /// The agent's state directory: HOME and the parent of DOCKER_CONFIG.
    pub state_dir: PathBuf,
    /// How long one command may take.
    pub limit: Duration,
    /// How long a pull may take.
    pub pull_limit: Duration,
    /// Who runs it.
    pub runner: Runner<'a>,
}

/// A directory that Compose works on.
#[derive(Clone, Debug)]
pub struct ProjectFiles {
    /// The project directory.
    pub directory: PathBuf,
    /// The compose file, relative to it.
    pub compose_file: String,
    /// A further compose file that the agent made.
    pub overlay: Option<PathBuf>,
    /// The rendered variables.
    pub env_file: Option<PathBuf>,
}

/// What becomes of the volumes in a `down`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Volumes {
    /// They stay.
    Keep,
    /// They are deleted.
    Purge,
}

/// What docker says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The engine's version.
    pub docker: String,
    /// Compose's version.
    pub compose: String,
    /// Where docker keeps images and volumes.
    pub data_root: Option<PathBuf>,
}

impl Docker<'_> {
    /// The agent's DOCKER_CONFIG.
    pub fn config_dir(&self) -> PathBuf {
        self.state_dir.join(state_dir::DOCKER)
    }

    /// The versions of engine and Compose, and docker's data root.
    ///
    /// # Errors
    /// [`Error::Docker`] when one of them is missing, down or forbidden.
    pub fn versions(&self) -> Result<Versions> {
        let info = self.docker(
            "docker info",
            &["info", "--format", "{{.ServerVersion}} {{.DockerRootDir}}"],
        )?;
        let info = String::from_utf8_lossy(&info.stdout).trim().to_owned();
        let (docker, data_root) = info.split_once(' ').unwrap_or((&info, ""));
        let compose = self.docker("compose version", &["compose", "version", "--short"])?;
        Ok(Versions {
            docker: docker.to_owned(),
            compose: String::from_utf8_lossy(&compose.stdout)
                .trim()
                .trim_start_matches('v')
                .to_owned(),
            data_root: Some(PathBuf::from(data_root)).filter(|path| path.is_absolute()),
        })
    }

    /// The variables that a compose file refers to, as Compose lists them.
    ///
    /// # Errors
    /// `COMPOSE_INVALID` with Compose's own words.
    pub fn references(&self, files: &ProjectFiles) -> Result<Value> {
        self.document(files, &["config", "--variables", "--format", "json"])
    }

    /// The model of a compose file, before any variable is filled in.
    ///
    /// # Errors
    /// `COMPOSE_INVALID` with Compose's own words.
    pub fn model(&self, files: &ProjectFiles) -> Result<Value> {
        let args = [
            "config",
            "--no-interpolate",
            "--no-env-resolution",
            "--no-path-resolution",
            "--format",
            "json",
        ];
        self.document(files, &args)
    }

    /// Has Compose check the whole file with its variables filled in: only then does it look at the types of their values
    /// and at what services, networks and volumes say of each other.
    ///
    /// # Errors
    /// `COMPOSE_INVALID` with Compose's own words.
    pub fn validate(&self, files: &ProjectFiles) -> Result<()> {
        let task = self.task(
            "compose config",
            self.compose_args(files, &["config", "--quiet"]),
        );
        self.checked(&task, Code::ComposeInvalid, &mut |_| {})
            .map(drop)
    }

    fn document(&self, files: &ProjectFiles, verb: &[&str]) -> Result<Value> {
        let mut task = self.task("compose config", self.compose_args(files, verb));
        task.cap_bytes = DOCUMENT_CAP_BYTES;
        let finished = self.checked(&task, Code::ComposeInvalid, &mut |_| {})?;
        serde_json::from_slice(&finished.stdout).map_err(|e| Error::Docker {
            code: Code::DockerMissing,
            why: format!("this Compose does not print its model as JSON ({e})"),
            remedy: format!("install Compose {} or newer", trouble::MINIMUM_COMPOSE),
        })
    }

    /// What Compose makes of the rendered variables: `document` on its standard input is a compose file that asks for
    /// every one of them; gives what Compose prints.
    ///
    /// # Errors
    /// `ENV_ROUNDTRIP` when Compose refuses the file.
    pub fn read_back(
        &self,
        env_file: &Path,
        document: Vec<u8>,
    ) -> Result<zeroize::Zeroizing<Vec<u8>>> {
        let directory = env_file.parent().unwrap_or(Path::new("/"));
        let files = ProjectFiles {
            directory: directory.to_owned(),
            compose_file: "-".into(),
            overlay: None,
            env_file: Some(env_file.to_owned()),
        };
        let mut task = self.task(
            "compose config",
            self.compose_args(&files, &["config", "--format", "json"]),
        );
        task.input = Some(document.into());
        task.cap_bytes = DOCUMENT_CAP_BYTES;
        let finished = self.checked(&task, Code::EnvRoundtrip, &mut |_| {})?;
        Ok(finished.stdout.into())
    }

    /// `compose pull`; `on_line` sees the progress.
    ///
    /// # Errors
    /// A `PULL_*` code with the registry's own words.
    pub fn pull(
        &self,
        files: &ProjectFiles,
        policy: &str,
        on_line: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let mut task = self.task(
            "compose pull",
            self.compose_args(files, &["pull", "--policy", policy]),
        );
        task.limit = self.pull_limit;
        let finished = self.run(&task, on_line)?;
        if finished.succeeded() {
            return Ok(());
        }
        if let Some(error) = trouble::diagnose(&finished.stderr) {
            return Err(error);
        }
        let error = Error::Compose {
            code: trouble::pull_code(&trouble::words(&finished)),
            doing: "compose pull",
            words: trouble::words(&finished),
        };
        // The words name image and registry; these two they do not.
        log::error!(ended = finished.how(), docker_config:% = self.config_dir().display(); "the pull failed: {error}");
        Err(error)
    }

    /// `compose up -d --remove-orphans --no-build`; `on_line` sees the progress. Gives what was said on standard error.
    ///
    /// # Errors
    /// `UP_FAILED` with Compose's own words.
    pub fn up(&self, files: &ProjectFiles, on_line: &mut dyn FnMut(&str)) -> Result<String> {
        // What is missing was pulled before; `up` itself must never reach for a registry.
        let verb = [
            "up",
            "-d",
            "--remove-orphans",
            "--no-build",
            "--pull",
            "never",
        ];
        let task = self.task("compose up", self.compose_args(files, &verb));
        let finished = self.checked(&task, Code::UpFailed, on_line)?;
        Ok(String::from_utf8_lossy(&finished.stderr).into_owned())
    }

    /// `compose up -d --no-deps --no-recreate` for a few services of what is up: jobs are not run again.
    ///
    /// # Errors
    /// `UP_FAILED` with Compose's own words.
    pub fn up_again(&self, files: &ProjectFiles, services: &[&str]) -> Result<()> {
        let mut verb = vec![
            "up",
            "-d",
            "--no-deps",
            "--no-recreate",
            "--no-build",
            "--pull",
            "never",
        ];
        verb.extend(services);
        let task = self.task("compose up", self.compose_args(files, &verb));
        self.checked(&task, Code::UpFailed, &mut |_| {}).map(drop)
    }

    /// The ids of all images of this box.
    ///
    /// # Errors
    /// [`Error::Docker`], or the command's own words.
    pub fn image_ids(&self) -> Result<Vec<String>> {
        let listed = self.docker("docker image ls", &["image", "ls", "--quiet", "--no-trunc"])?;
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        Ok(text
            .lines()
            .map(str::trim)
            .filter(|id| !id.is_empty())
            .map(str::to_owned)
            .collect())
    }

    /// Deletes an image, never by force: docker itself refuses one that any container uses, or that has several names.
    ///
    /// # Errors
    /// [`Error::Docker`], or docker's refusal.
    pub fn remove_image(&self, id: &str) -> Result<()> {
        self.docker("docker image rm", &["image", "rm", id])
            .map(drop)
    }

    /// `compose down --remove-orphans`, which works by the project's name alone, without a file.
    ///
    /// # Errors
    /// `DOWN_FAILED` with Compose's own words.
    pub fn down(&self, volumes: Volumes, on_line: &mut dyn FnMut(&str)) -> Result<()> {
        let mut args: Vec<OsString> = [
            "compose",
            "-p",
            self.project.as_str(),
            "--ansi",
            "never",
            "--progress",
            "plain",
            "down",
            "--remove-orphans",
        ]
        .map(Into::into)
        .into();
        if volumes == Volumes::Purge {
            args.push("--volumes".into());
        }
        self.checked(&self.task("compose down", args), Code::DownFailed, on_line)
            .map(drop)
    }

    /// Every container that carries our project's label, one-off `run` containers left out.
    ///
    /// # Errors
    /// [`Error::Docker`], or an output that cannot be read.
    pub fn containers(&self) -> Result<Vec<Container>> {
        let filter = format!("label=com.docker.compose.project={}", self.project);
        let listed = self.docker(
            "docker ps",
            &[
                "ps",
                "--all",
                "--no-trunc",
                "--filter",
                &filter,
                "--format",
                "{{json .}}",
            ],
        )?;
        let ids = compose_output::read_ids(&listed.stdout).map_err(unreadable("docker ps"))?;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut args: Vec<OsString> = [
            "inspect",
            "--type",
            "container",
            "--format",
            compose_output::INSPECT_FORMAT,
        ]
        .map(Into::into)
        .into();
        args.extend(ids.into_iter().map(Into::into));
        let mut task = self.task("docker inspect", args);
        task.limit = task.limit.min(LOOK_LIMIT);
        task.cap_bytes = DOCUMENT_CAP_BYTES;
        let finished = self.run(&task, &mut |_| {})?;
        // A container that vanished between the two calls makes inspect fail; the others were still printed.
        let has_vanished = |line: &str| line.to_ascii_lowercase().contains("no such");
        let stderr = String::from_utf8_lossy(&finished.stderr);
        if !finished.succeeded()
            && !stderr
                .lines()
                .filter(|line| !line.trim().is_empty())
                .all(has_vanished)
        {
            return Err(failure(&task, Code::DockerFailed, &finished));
        }
        compose_output::read_containers(&finished.stdout).map_err(unreadable("docker inspect"))
    }

    /// The last `lines` lines that a container logged.
    ///
    /// # Errors
    /// [`Error::Docker`], or the command's own words.
    pub fn logs(&self, id: &str, lines: u32) -> Result<String> {
        let task = self.task(
            "docker logs",
            ["logs", "--tail", &lines.to_string(), id]
                .map(Into::into)
                .into(),
        );
        let finished = self.run(&task, &mut |_| {})?;
        let mut text = String::from_utf8_lossy(&finished.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&finished.stderr));
        Ok(text)
    }

    /// Removes a container by force: only ever a leftover that Compose itself renamed out of the way.
    ///
    /// # Errors
    /// [`Error::Docker`], or the command's own words.
    pub fn remove_container(&self, id: &str) -> Result<()> {
        self.docker("docker rm", &["rm", "--force", id]).map(drop)
    }

    /// Gives a container the name that Compose meant for it.
    ///
    /// # Errors
    /// [`Error::Docker`], or the command's own words.
    pub fn rename_container(&self, id: &str, name: &str) -> Result<()> {
        self.docker("docker rename", &["rename", id, name])
            .map(drop)
    }

    fn compose_args(&self, files: &ProjectFiles, verb: &[&str]) -> Vec<OsString> {
        let mut args: Vec<OsString> =
            vec!["compose".into(), "-p".into(), self.project.as_str().into()];
        args.extend([
            "--project-directory".into(),
            files.directory.clone().into_os_string(),
        ]);
        let file = match files.compose_file.as_str() {
            "-" => OsString::from("-"),
            name => files.directory.join(name).into_os_string(),
        };
        args.extend(["-f".into(), file]);
        if let Some(overlay) = &files.overlay {
            args.extend(["-f".into(), overlay.clone().into_os_string()]);
        }
        if let Some(env_file) = &files.env_file {
            args.extend(["--env-file".into(), env_file.clone().into_os_string()]);
        }
        args.extend(["--ansi", "never", "--progress", "plain"].map(Into::into));
        args.extend(verb.iter().map(Into::into));
        args
    }

    fn task(&self, name: &'static str, args: Vec<OsString>) -> Task {
        let mut env: Vec<(String, OsString)> = vec![
            (
                "PATH".into(),
                std::env::var_os("PATH").unwrap_or_else(|| {
                    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into()
                }),
            ),
            ("HOME".into(), self.state_dir.clone().into_os_string()),
            ("DOCKER_CONFIG".into(), self.config_dir().into_os_string()),
            ("COMPOSE_INTERACTIVE_NO_CLI".into(), "1".into()),
        ];
        for name in ["DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"] {
            env.extend(
                std::env::var_os(name)
                    .filter(|value| !value.is_empty())
                    .map(|value| (name.to_owned(), value)),
            );
        }
        Task {
            program: self.program.clone(),
            args,
            env,
            directory: None,
            input: None,
            limit: self.limit,
            cap_bytes: OUTPUT_CAP_BYTES,
            name,
        }
    }

    fn docker(&self, name: &'static str, args: &[&str]) -> Result<Finished> {
        let mut task = self.task(name, args.iter().map(OsStr::new).map(Into::into).collect());
        task.limit = task.limit.min(LOOK_LIMIT);
        self.checked(&task, Code::DockerFailed, &mut |_| {})
    }

    fn run(&self, task: &Task, on_line: &mut dyn FnMut(&str)) -> Result<Finished> {
        self.runner.run(task, on_line).map_err(|error| match error {
            Error::Spawn { program, source } => trouble::not_started(&program, &source),
            other => other,
        })
    }

    fn checked(&self, task: &Task, code: Code, on_line: &mut dyn FnMut(&str)) -> Result<Finished> {
        let finished = self.run(task, on_line)?;
        if finished.succeeded() {
            return Ok(finished);
        }
        Err(
            trouble::diagnose(&finished.stderr).unwrap_or_else(|| Error::Compose {
                code,
                doing: task.name,
                words: trouble::words(&finished),
            }),
        )
    }
}

/// What a command that failed means: docker's own trouble, or a failure with its words.
fn failure(task: &Task, code: Code, finished: &Finished) -> Error {
    trouble::diagnose(&finished.stderr).unwrap_or_else(|| Error::Compose {
        code,
        doing: task.name,
        words: trouble::words(finished),
    })
}

fn unreadable(command: &'static str) -> impl Fn(serde_json::Error) -> Error {
    move |error| Error::Compose {
        code: Code::DockerFailed,
        doing: command,
        words: format!("its output cannot be read: {error}"),
    }
}
