//! The engine's side: containers, volumes and images as records in `engine.json`, and the docker verbs that show them. A
//! container's state follows from its command (`["true"]` and `["false"]` end at once) and from the script.

use crate::format::format;
use crate::record::Home;
use crate::script::{Script, nothing};
use crate::{Call, Failure, Outcome, option};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Everything that the engine has.
#[derive(Default, Serialize, Deserialize)]
pub struct Engine {
    /// Containers in the order of their making.
    pub containers: Vec<Container>,
    /// Named volumes.
    pub volumes: BTreeSet<String>,
    /// Images by name.
    pub images: BTreeSet<String>,
}

/// A container.
#[derive(Serialize, Deserialize)]
pub struct Container {
    pub id: String,
    pub name: String,
    pub project: String,
    pub service: String,
    pub image: String,
    pub working_dir: String,
    pub policy: String,
    pub config_hash: String,
    pub started_at: String,
    pub has_healthcheck: bool,
    pub command: Value,
    pub labels: Value,
}

impl Engine {
    /// As it was left.
    pub fn load(home: &Home) -> Self {
        std::fs::read(home.path("engine.json"))
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default()
    }

    /// Leaves it so; whole or not at all, since a call may be killed.
    pub fn save(&self, home: &Home) {
        let new = home.path("engine.json.new");
        let written = serde_json::to_vec_pretty(self)
            .map_err(std::io::Error::other)
            .and_then(|bytes| std::fs::write(&new, bytes))
            .and_then(|()| std::fs::rename(&new, home.path("engine.json")));
        // The next call shows that nothing changed.
        drop(written);
    }
}

impl Container {
    /// The exit code of a command that ends at once.
    pub fn ends_at_once(&self) -> Option<i64> {
        match self.command.get(0).and_then(Value::as_str)? {
            "true" => Some(0),
            "false" => Some(1),
            _ => None,
        }
    }

    /// As `docker inspect` shows it.
    fn inspected(&self, script: &Script) -> Value {
        let exited = script
            .about("exit", &self.service)
            .and_then(|code| code.parse().ok())
            .or_else(|| self.ends_at_once());
        let loops = script.about("crash-loop", &self.service).is_some();
        let (status, exit_code, restarts) = match exited {
            _ if loops => ("restarting", 1, 4),
            Some(code) => ("exited", code, 0),
            None => ("running", 0, 0),
        };
        let mut state = json!({
            "Status": status,
            "Running": status != "exited",
            "Restarting": loops,
            "ExitCode": exit_code,
            "Error": "",
            "StartedAt": self.started_at,
        });
        let health = script
            .about("health", &self.service)
            .or_else(|| self.has_healthcheck.then(|| "healthy".into()));
        if let (Some(health), Some(state)) = (health, state.as_object_mut()) {
            state.insert(
                "Health".into(),
                json!({"Status": health, "FailingStreak": 0}),
            );
        }
        let mut labels = json!({
            "com.docker.compose.project": self.project,
            "com.docker.compose.service": self.service,
            "com.docker.compose.oneoff": "False",
            "com.docker.compose.config-hash": self.config_hash,
            "com.docker.compose.project.working_dir": self.working_dir,
        });
        if let (Some(all), Some(own)) = (labels.as_object_mut(), self.labels.as_object()) {
            all.extend(own.clone());
        }
        json!({
            "Id": self.id,
            "Name": format!("/{}", self.name),
            "Image": image_id(&self.image),
            "RestartCount": restarts,
            "State": state,
            "Config": {"Image": self.image, "Labels": labels},
            "HostConfig": {"RestartPolicy": {"Name": self.policy}},
        })
    }
}

/// `docker info --format F`.
pub fn info(call: &Call<'_>) -> Outcome {
    let root = call.home.path("data-root");
    let data = json!({"ServerVersion": "28.2.2", "DockerRootDir": root.to_string_lossy()});
    format(option(call.args, "--format").unwrap_or("{{json .}}"), &data)
}

/// `docker ps --all --filter label=L=V --format {{json .}}`.
pub fn ps(call: &Call<'_>) -> Outcome {
    let project = call
        .args
        .iter()
        .find_map(|arg| arg.strip_prefix("label=com.docker.compose.project="));
    let template = option(call.args, "--format").unwrap_or("{{json .}}");
    let mut text = String::new();
    for container in Engine::load(call.home).containers {
        if project.is_some_and(|project| project != container.project) {
            continue;
        }
        let shown = container.inspected(call.script);
        let state = shown.pointer("/State/Status").cloned().unwrap_or_default();
        let line = json!({"ID": container.id, "Names": container.name, "Image": container.image, "State": state});
        text.push_str(&format(template, &line)?);
    }
    Ok(text)
}

/// `docker inspect --type container --format F ID…`.
pub fn inspect(call: &Call<'_>) -> Outcome {
    let template = option(call.args, "--format").unwrap_or("{{json .}}");
    let engine = Engine::load(call.home);
    let mut text = String::new();
    for id in call.args.iter().filter(|arg| arg.len() == 64) {
        let container = find(&engine, id)?;
        text.push_str(&format(template, &container.inspected(call.script))?);
    }
    Ok(text)
}

/// `docker logs --tail N ID`.
pub fn logs(call: &Call<'_>) -> Outcome {
    let engine = Engine::load(call.home);
    let container = find(&engine, call.args.last().copied().unwrap_or_default())?;
    let all = call.script.logs(&container.service);
    let count: usize = option(call.args, "--tail")
        .and_then(|n| n.parse().ok())
        .unwrap_or(usize::MAX);
    let lines: Vec<&str> = all.lines().collect();
    let kept = lines
        .get(lines.len().saturating_sub(count)..)
        .unwrap_or_default();
    Ok(kept.iter().map(|line| format!("{line}\n")).collect())
}

/// `docker rm --force ID`.
pub fn remove(call: &Call<'_>) -> Outcome {
    let mut engine = Engine::load(call.home);
    let id = call.args.last().copied().unwrap_or_default();
    find(&engine, id)?;
    engine
        .containers
        .retain(|container| container.id != id && container.name != id);
    engine.save(call.home);
    Ok(format!("{id}\n"))
}

/// `docker image ls --quiet` and `docker image rm ID…`; without force an image that a container uses stays.
pub fn image(call: &Call<'_>) -> Outcome {
    let mut engine = Engine::load(call.home);
    if call.args.get(1) == Some(&"ls") {
        return Ok(engine
            .images
            .iter()
            .map(|name| format!("{}\n", image_id(name)))
            .collect());
    }
    let wanted = call
        .args
        .get(2..)
        .unwrap_or_default()
        .iter()
        .filter(|arg| !arg.starts_with('-'));
    for wanted in wanted {
        let known = engine.images.iter().find(|name| image_id(name) == **wanted);
        let name = known.cloned().unwrap_or_else(|| (*wanted).to_owned());
        let is_used = engine
            .containers
            .iter()
            .any(|container| container.image == name);
        if is_used || !engine.images.remove(&name) {
            let why = if is_used {
                "conflict: image is being used by a container"
            } else {
                "No such image"
            };
            return Err(Failure::new(
                1,
                format!("Error response from daemon: {why}: {wanted}"),
            ));
        }
    }
    engine.save(call.home);
    nothing()
}

fn image_id(name: &str) -> String {
    format!("sha256:{}", crate::record::digest(name.as_bytes()))
}

fn find<'a>(engine: &'a Engine, id: &str) -> Result<&'a Container, Failure> {
    engine
        .containers
        .iter()
        .find(|container| container.id == id || container.name == id)
        .ok_or_else(|| {
            Failure::new(
                1,
                format!("Error response from daemon: No such container: {id}"),
            )
        })
}

/// An instant as docker writes it, to the nanosecond.
pub fn now() -> String {
    let now = time::OffsetDateTime::now_utc();
    now.format(&time::format_description::well_known::Rfc3339)
        .unwrap_or_default()
}
