//! `docker compose`: config, pull, up, down, version.

use crate::engine::{Container, Engine, now};
use crate::record::digest;
use crate::script::nothing;
use crate::{Call, Failure, Outcome, dotenv, interpolate, option, progress};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const WITH_VALUE: [&str; 6] = [
    "-p",
    "--project-directory",
    "-f",
    "--env-file",
    "--ansi",
    "--progress",
];

/// The global options and the verb with its own.
pub fn split<'a>(args: &'a [&'a str]) -> (&'a [&'a str], &'a [&'a str]) {
    let mut at = 0;
    while args.get(at).is_some_and(|arg| arg.starts_with('-')) {
        let takes_value = args.get(at).is_some_and(|arg| WITH_VALUE.contains(arg));
        at += if takes_value { 2 } else { 1 };
    }
    args.split_at(at.min(args.len()))
}

/// Answers a compose call.
pub fn answer(call: &Call<'_>) -> Outcome {
    let (globals, verb) = split(call.args.get(1..).unwrap_or_default());
    let (name, args) = verb
        .split_first()
        .map_or(("", verb), |(name, args)| (*name, args));
    let project = Project { call, globals };
    match name {
        "version" => Ok("2.40.3\n".into()),
        "config" => project.config(args),
        "pull" => project.pull(),
        "up" => project.up(args),
        "down" => project.down(args),
        other => Err(Failure::new(
            125,
            format!("docker-stand-in: compose has no command {other:?}"),
        )),
    }
}

struct Project<'a> {
    call: &'a Call<'a>,
    globals: &'a [&'a str],
}

impl Project<'_> {
    fn name(&self) -> &str {
        option(self.globals, "-p").unwrap_or("default")
    }

    fn directory(&self) -> PathBuf {
        option(self.globals, "--project-directory").map_or_else(PathBuf::new, PathBuf::from)
    }

    /// The files of every `-f`, the later laid over the earlier.
    fn document(&self) -> Result<Value, Failure> {
        let mut document = Value::Null;
        for pair in self
            .globals
            .windows(2)
            .filter(|pair| pair.first() == Some(&"-f"))
        {
            let path = pair.get(1).copied().unwrap_or_default();
            let bytes = match path {
                "-" => self.call.stdin.to_vec(),
                path => std::fs::read(path)
                    .map_err(|e| Failure::new(14, format!("open {path}: {e}")))?,
            };
            let part = serde_json::from_slice(&bytes).map_err(|e| {
                Failure::new(
                    15,
                    format!("yaml: {path}: {e} (docker-stand-in reads compose files in JSON only)"),
                )
            })?;
            lay_over(&mut document, part);
        }
        validate(&document)?;
        Ok(document)
    }

    fn variables(&self) -> Result<BTreeMap<String, String>, Failure> {
        option(self.globals, "--env-file")
            .map_or(Ok(BTreeMap::new()), |path| read_env(Path::new(path)))
    }

    fn config(&self, args: &[&str]) -> Outcome {
        let document = self.document()?;
        if args.contains(&"--variables") {
            return Ok(format!("{}\n", interpolate::references(&document)));
        }
        if args.contains(&"--no-interpolate") {
            return Ok(format!("{}\n", self.normalised(document)));
        }
        let mut filled = interpolate::fill_in(&document, &self.variables()?)?;
        if args.contains(&"--quiet") {
            return Ok(String::new());
        }
        for service in services_mut(&mut filled) {
            let environment = self.environment(service)?;
            // Compose doubles every dollar of a model that it prints.
            let printed: Map<String, Value> = environment
                .into_iter()
                .map(|(name, value)| (name, value.replace('$', "$$").into()))
                .collect();
            service.insert("environment".into(), printed.into());
            service.remove("env_file");
        }
        Ok(format!("{}\n", self.normalised(filled)))
    }

    /// The short forms written out, as far as the agent looks at them.
    fn normalised(&self, mut document: Value) -> Value {
        if let Some(fields) = document.as_object_mut() {
            fields.insert("name".into(), self.name().into());
        }
        for service in services_mut(&mut document) {
            for volume in service
                .get_mut("volumes")
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                let Some((source, target)) = volume.as_str().and_then(|text| text.split_once(':'))
                else {
                    continue;
                };
                let target = target.split(':').next().unwrap_or(target);
                let kind = if source.starts_with(['.', '/', '~']) {
                    "bind"
                } else {
                    "volume"
                };
                *volume = json!({"type": kind, "source": source, "target": target});
            }
            if let Some(names) = service.get("depends_on").and_then(Value::as_array).cloned() {
                let written: Map<String, Value> = names
                    .iter()
                    .filter_map(Value::as_str)
                    .map(|name| {
                        (
                            name.to_owned(),
                            json!({"condition": "service_started", "required": true}),
                        )
                    })
                    .collect();
                service.insert("depends_on".into(), written.into());
            }
        }
        document
    }

    /// A service's variables: its files, then its own.
    fn environment(
        &self,
        service: &Map<String, Value>,
    ) -> Result<BTreeMap<String, String>, Failure> {
        let mut environment = BTreeMap::new();
        let files = match service.get("env_file") {
            Some(Value::Array(files)) => files.clone(),
            Some(file) => vec![file.clone()],
            None => Vec::new(),
        };
        for file in files.iter().filter_map(Value::as_str) {
            environment.extend(read_env(&self.directory().join(file))?);
        }
        if let Some(own) = service.get("environment").and_then(Value::as_object) {
            environment.extend(own.iter().map(|(name, value)| {
                (
                    name.clone(),
                    value
                        .as_str()
                        .map_or_else(|| value.to_string(), str::to_owned),
                )
            }));
        }
        Ok(environment)
    }

    fn pull(&self) -> Outcome {
        self.call.script.refuse_engine()?;
        let filled = interpolate::fill_in(&self.document()?, &self.variables()?)?;
        let mut engine = Engine::load(self.call.home);
        for (name, service) in services(&filled) {
            let Some(image) = service.get("image").and_then(Value::as_str) else {
                continue;
            };
            progress(&format!(" {name} Pulling "));
            self.log_in(image).inspect_err(|_| {
                progress(&format!(" {name} Error "));
            })?;
            engine.images.insert(image.to_owned());
            progress(&format!(" {name} Pulled "));
        }
        engine.save(self.call.home);
        nothing()
    }

    /// What a registry with basic auth says to somebody whose DOCKER_CONFIG has not got the right pair.
    fn log_in(&self, image: &str) -> Result<(), Failure> {
        let registry = image.split('/').next().unwrap_or_default();
        let Some(pair) = self.call.script.about("login", registry) else {
            return Ok(());
        };
        let path =
            std::env::var_os("DOCKER_CONFIG").map(|dir| PathBuf::from(dir).join("config.json"));
        let config: Value = path
            .and_then(|path| std::fs::read(path).ok())
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        let given = config
            .get("auths")
            .and_then(|auths| auths.get(registry)?.get("auth")?.as_str());
        let repository = image
            .split_once('/')
            .map_or(image, |(_, rest)| rest)
            .replace(':', "/manifests/");
        let refused = |words: &str| {
            let url = format!("https://{registry}/v2/{repository}");
            Err(Failure::new(
                18,
                format!("Error response from daemon: Head {url:?}: {words}"),
            ))
        };
        match given {
            None => refused("no basic auth credentials"),
            Some(given) if decode_base64(given) != pair.as_bytes() => {
                refused("unauthorized: authentication required")
            }
            Some(_) => Ok(()),
        }
    }

    fn up(&self, args: &[&str]) -> Outcome {
        self.call.script.refuse_engine()?;
        let variables = self.variables()?;
        let filled = self.normalised(interpolate::fill_in(&self.document()?, &variables)?);
        let wanted: Vec<&str> = args
            .iter()
            .copied()
            .filter(|arg| !arg.starts_with('-') && *arg != "never")
            .collect();
        let mut engine = Engine::load(self.call.home);
        for (name, service) in services(&filled) {
            if !wanted.is_empty() && !wanted.contains(&name.as_str()) {
                continue;
            }
            let image = service
                .get("image")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let is_there = engine.images.contains(image) || self.call.script.has("images", image);
            if args.contains(&"never") && !is_there {
                return Err(Failure::new(
                    1,
                    format!("Error response from daemon: No such image: {image}"),
                ));
            }
            for volume in service
                .get("volumes")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                if volume.get("type").and_then(Value::as_str) == Some("volume") {
                    let source = volume
                        .get("source")
                        .and_then(Value::as_str)
                        .unwrap_or_default();
                    engine.volumes.insert(format!("{}_{source}", self.name()));
                }
            }
            let environment = self.environment(service.as_object().unwrap_or(&Map::new()))?;
            let config_hash = digest(json!([service, environment]).to_string().as_bytes());
            self.start(
                &mut engine,
                name,
                service,
                &config_hash,
                args.contains(&"--no-recreate"),
            );
        }
        if args.contains(&"--remove-orphans") {
            let known: Vec<&String> = services(&filled).map(|(name, _)| name).collect();
            engine.containers.retain(|container| {
                let stays = container.project != self.name() || known.contains(&&container.service);
                if !stays {
                    progress(&format!(" Container {}  Removed", container.name));
                }
                stays
            });
        }
        engine.save(self.call.home);
        nothing()
    }

    /// Keeps a container whose configuration is the same, starts an ended one again, makes a new one otherwise.
    fn start(
        &self,
        engine: &mut Engine,
        service: &str,
        model: &Value,
        config_hash: &str,
        keep: bool,
    ) {
        let name = format!("{}-{service}-1", self.name());
        let text = |field: &str| {
            model
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let known = engine
            .containers
            .iter_mut()
            .find(|container| container.project == self.name() && container.service == service);
        if let Some(container) = known {
            if keep || container.config_hash == config_hash {
                if self.call.script.about("exit", service).is_some()
                    || container.ends_at_once().is_some()
                {
                    container.started_at = now();
                    progress(&format!(" Container {name}  Started"));
                } else {
                    progress(&format!(" Container {name}  Running"));
                }
                return;
            }
            progress(&format!(" Container {name}  Recreated"));
        } else {
            progress(&format!(" Container {name}  Created"));
        }
        engine.containers.retain(|container| container.name != name);
        engine.containers.push(Container {
            id: digest(format!("{name} {config_hash} {}", now()).as_bytes()),
            name: name.clone(),
            project: self.name().to_owned(),
            service: service.to_owned(),
            image: text("image"),
            working_dir: self.directory().to_string_lossy().into_owned(),
            policy: match text("restart").as_str() {
                "" => "no".into(),
                policy => policy.split(':').next().unwrap_or(policy).to_owned(),
            },
            config_hash: config_hash.to_owned(),
            started_at: now(),
            has_healthcheck: model.get("healthcheck").is_some(),
            command: model.get("command").cloned().unwrap_or_default(),
            labels: model.get("labels").cloned().unwrap_or_else(|| json!({})),
        });
        progress(&format!(" Container {name}  Started"));
    }

    fn down(&self, args: &[&str]) -> Outcome {
        self.call.script.refuse_engine()?;
        let mut engine = Engine::load(self.call.home);
        engine.containers.retain(|container| {
            let stays = container.project != self.name();
            if !stays {
                progress(&format!(" Container {}  Removed", container.name));
            }
            stays
        });
        if args.contains(&"--volumes") {
            let prefix = format!("{}_", self.name());
            engine.volumes.retain(|volume| !volume.starts_with(&prefix));
        }
        engine.save(self.call.home);
        nothing()
    }
}

fn read_env(path: &Path) -> Result<BTreeMap<String, String>, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| Failure::new(14, format!("env file {} not found: {e}", path.display())))?;
    dotenv::parse(&text)
        .map_err(|words| Failure::new(1, format!("failed to read {}: {words}", path.display())))
}

fn services(document: &Value) -> impl Iterator<Item = (&String, &Value)> {
    document
        .get("services")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
}

fn services_mut(document: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    let services = document.get_mut("services").and_then(Value::as_object_mut);
    services
        .into_iter()
        .flat_map(|services| services.values_mut())
        .filter_map(Value::as_object_mut)
}

fn lay_over(target: &mut Value, source: Value) {
    match (target, source) {
        (Value::Object(target), Value::Object(source)) => {
            for (name, value) in source {
                lay_over(target.entry(name).or_insert(Value::Null), value);
            }
        }
        (target, source) => *target = source,
    }
}

/// The two faults that tests make: an unknown top-level name, and a service without image and build.
fn validate(document: &Value) -> Result<(), Failure> {
    let invalid = |words: String| {
        Err(Failure::new(
            15,
            format!("validating compose file: {words}"),
        ))
    };
    let Some(fields) = document.as_object() else {
        return invalid("top-level object must be a mapping".into());
    };
    const KNOWN: [&str; 7] = [
        "name", "version", "services", "volumes", "networks", "configs", "secrets",
    ];
    let is_unknown = |name: &&String| !KNOWN.contains(&name.as_str()) && !name.starts_with("x-");
    if let Some(name) = fields.keys().find(is_unknown) {
        return invalid(format!("additional properties '{name}' not allowed"));
    }
    for (name, service) in services(document) {
        if service.get("image").is_none() && service.get("build").is_none() {
            return Err(Failure::new(
                15,
                format!(
                    "service {name:?} has neither an image nor a build context specified: invalid compose project"
                ),
            ));
        }
    }
    Ok(())
}

fn decode_base64(text: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD
        .decode(text)
        .unwrap_or_default()
}
