//! A test's side of the docker stand-in (`docker_stand_in/`): where the program is, what it should do in this box, and
//! what it was asked.

use super::agent::AgentBox;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

/// Longer than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The stand-in of one box.
pub struct StandIn {
    dir: PathBuf,
}

/// One call that the stand-in got.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its process.
    pub pid: i32,
    /// Its arguments.
    pub argv: Vec<String>,
    /// Its whole record.
    pub record: Value,
    /// Its exit code, when it ended by itself.
    pub ended: Option<i64>,
}

impl Call {
    /// `compose pull`, `ps`.
    pub fn verb(&self) -> String {
        let words: Vec<&str> = self.argv.iter().map(String::as_str).collect();
        let Some((&"compose", rest)) = words.split_first() else {
            return words.first().copied().unwrap_or_default().to_owned();
        };
        let known = ["version", "config", "pull", "up", "down"];
        let verb = rest.iter().find(|word| known.contains(word));
        format!("compose {}", verb.copied().unwrap_or_default())
    }

    /// The value behind an option.
    pub fn option(&self, name: &str) -> Option<&str> {
        let at = self.argv.iter().position(|arg| arg == name)?;
        self.argv.get(at + 1).map(String::as_str)
    }
}

impl StandIn {
    /// The stand-in as `docker_bin` of this box.
    pub fn of(agent: &mut AgentBox) -> Self {
        let dir = agent.path("docker-stand-in");
        fs::create_dir_all(dir.join("script")).unwrap();
        agent.set("docker_bin", program().to_str().unwrap());
        Self { dir }
    }

    /// A path in its directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Wants a behaviour; `script.rs` of the stand-in lists them.
    pub fn script(&self, name: &str, text: &str) -> &Self {
        fs::write(self.dir.join("script").join(name), text).unwrap();
        self
    }

    /// Wants a verb to fail with this exit code and these words.
    pub fn fail(&self, verb: &str, code: u8, words: &str) -> &Self {
        self.script(&format!("fail-{verb}"), &format!("{code}\n{words}"))
    }

    /// No longer wants a behaviour.
    pub fn unscript(&self, name: &str) -> &Self {
        fs::remove_file(self.dir.join("script").join(name)).unwrap();
        self
    }

    /// Every call so far.
    pub fn calls(&self) -> Vec<Call> {
        let text = fs::read_to_string(self.dir.join("calls.jsonl")).unwrap_or_default();
        // A line that is just being written has no end yet.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut calls: Vec<Call> = Vec::new();
        for line in whole.lines() {
            let record: Value = serde_json::from_str(line).unwrap();
            let pid = i32::try_from(record["pid"].as_i64().unwrap()).unwrap();
            if let Some(code) = record["ended"].as_i64() {
                let call = calls.iter_mut().rev().find(|call| call.pid == pid).unwrap();
                call.ended = Some(code);
                continue;
            }
            let argv = serde_json::from_value(record["argv"].clone()).unwrap();
            calls.push(Call {
                pid,
                argv,
                record,
                ended: None,
            });
        }
        calls
    }

    /// The calls so far, each as `compose pull` or `ps`.
    pub fn verbs(&self) -> Vec<String> {
        self.calls().iter().map(Call::verb).collect()
    }

    /// How often a verb was called.
    pub fn count(&self, verb: &str) -> usize {
        self.verbs().iter().filter(|known| *known == verb).count()
    }

    /// The last call of a verb.
    #[track_caller]
    pub fn last(&self, verb: &str) -> Call {
        let calls = self.calls();
        let found = calls.into_iter().rev().find(|call| call.verb() == verb);
        found.unwrap_or_else(|| panic!("docker was not called for {verb}: {:?}", self.verbs()))
    }

    /// Forgets the calls so far.
    pub fn forget(&self) {
        let _ = fs::remove_file(self.dir.join("calls.jsonl"));
    }

    /// Waits until a verb was called.
    #[track_caller]
    pub fn wait_for(&self, verb: &str) -> Call {
        wait_until(verb, || {
            self.calls().into_iter().find(|call| call.verb() == verb)
        })
    }

    /// The engine's records.
    pub fn engine(&self) -> Value {
        let bytes = fs::read(self.dir.join("engine.json")).unwrap_or_else(|_| b"{}".to_vec());
        serde_json::from_slice(&bytes).unwrap()
    }

    /// Changes the engine's records, as a person with docker would.
    pub fn edit_engine(&self, change: impl FnOnce(&mut Value)) {
        let mut engine = self.engine();
        change(&mut engine);
        fs::write(self.dir.join("engine.json"), engine.to_string()).unwrap();
    }

    /// Removes a service's container, as `docker rm --force` would.
    pub fn remove(&self, service: &str) {
        self.edit_engine(|engine| {
            let containers = engine["containers"].as_array_mut().unwrap();
            containers.retain(|container| container["service"] != service);
        });
    }

    /// The names of the images that the engine has.
    pub fn images(&self) -> Vec<String> {
        serde_json::from_value(self.engine()["images"].clone()).unwrap_or_default()
    }

    /// The id of a service's container.
    pub fn container(&self, service: &str) -> Option<String> {
        let engine = self.engine();
        let containers = engine["containers"].as_array()?;
        let found = containers
            .iter()
            .find(|container| container["service"] == service)?;
        found["id"].as_str().map(str::to_owned)
    }
}

/// Looks every few milliseconds until `look` finds something.
#[track_caller]
pub fn wait_until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            Instant::now() < until,
            "{what} did not come within {PATIENCE:?}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The program, an example target of this package. `cargo test` builds it with everything else; a run of one test target
/// alone does not, so a missing or older one is built here.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let profile = test.parent().and_then(Path::parent).unwrap();
        let program = profile.join("examples/docker-stand-in");
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/docker_stand_in");
        if modified(&program) < newest(&sources) {
            build(profile);
        }
        assert!(
            program.exists(),
            "cargo build --example docker-stand-in left no {}",
            program.display()
        );
        program
    })
}

fn build(profile: &Path) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let name = profile.file_name().unwrap().to_str().unwrap();
    let status = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args([
            "build",
            "--quiet",
            "--locked",
            "--offline",
            "--example",
            "docker-stand-in",
            "--profile",
        ])
        .arg(if name == "debug" { "dev" } else { name })
        .arg("--target-dir")
        .arg(profile.parent().unwrap())
        .status()
        .unwrap();
    assert!(status.success(), "the docker stand-in cannot be built");
}

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path)
        .and_then(|meta| meta.modified())
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

fn newest(directory: &Path) -> SystemTime {
    let entries = fs::read_dir(directory).unwrap();
    entries
        .map(|entry| modified(&entry.unwrap().path()))
        .max()
        .unwrap()
}
