//! What a test makes the stand-in do: one file a behaviour in `script/`.
//!
//! | file | content | effect |
//! |---|---|---|
//! | `daemon-down`, `permission` | | every call that needs the engine fails with docker's words |
//! | `no-compose`, `old-compose` | | the plugin is missing, or does not know `config --variables` |
//! | `fail-VERB` | exit code, newline, text | the verb fails with that text on standard error |
//! | `fail-VERB-once` | the same | the next such call alone |
//! | `hang-VERB` | empty, or `stubborn` | the verb never ends (`stubborn`: not on SIGTERM either), nor does its own child |
//! | `flood-VERB` | number of MiB | the verb prints that much on both streams first |
//! | `login` | lines `registry=user:password` | a pull from that registry needs this in `DOCKER_CONFIG` |
//! | `images` | lines `image` | images that are there without a pull |
//! | `exit` | lines `service=code` | its container has exited |
//! | `crash-loop` | lines `service` | its container restarts again and again |
//! | `health` | lines `service=healthy\|unhealthy\|starting` | its health check says so |
//! | `logs-SERVICE` | text | what its container logged |

use crate::record::Home;
use crate::{Failure, Outcome, progress};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The hidden argument that makes this program its own long-lived child, as Compose is docker's.
pub const SLEEPER: &str = "docker-stand-in-sleeps";

/// The behaviours that are wanted.
pub struct Script {
    dir: PathBuf,
}

impl Script {
    /// Those of `home`.
    pub fn of(home: &Home) -> Self {
        Self {
            dir: home.path("script"),
        }
    }

    fn text(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.dir.join(name)).ok()
    }

    /// What stands for `service` in the `service=value` lines of `name`.
    pub fn about(&self, name: &str, service: &str) -> Option<String> {
        self.pairs(name)
            .into_iter()
            .find(|(key, _)| key == service)
            .map(|(_, value)| value)
    }

    /// The lines of `name`, split at the first `=`.
    fn pairs(&self, name: &str) -> Vec<(String, String)> {
        self.text(name)
            .unwrap_or_default()
            .lines()
            .map(|line| {
                let (key, value) = line.split_once('=').unwrap_or((line, ""));
                (key.trim().to_owned(), value.trim().to_owned())
            })
            .collect()
    }

    /// Whether `name` has such a line.
    pub fn has(&self, name: &str, line: &str) -> bool {
        self.text(name)
            .is_some_and(|text| text.lines().any(|known| known.trim() == line))
    }

    /// What the container of `service` logged.
    pub fn logs(&self, service: &str) -> String {
        self.text(&format!("logs-{service}"))
            .unwrap_or_else(|| format!("{service}: nothing runs here, this is docker's stand-in\n"))
    }

    /// Floods, hangs or fails as wanted for `verb`.
    pub fn interfere(&self, verb: &str) -> Result<(), Failure> {
        if let Some(text) = self.text(&format!("flood-{verb}")) {
            flood(text.trim().parse().unwrap_or(1));
        }
        let once = format!("fail-{verb}-once");
        if let Some(text) = self.text(&once) {
            // Were it still there, the next call would fail too, and a test with it.
            let _ = std::fs::remove_file(self.dir.join(once));
            return Err(scripted(&text));
        }
        if let Some(how) = self.text(&format!("hang-{verb}")) {
            hang(how.trim() == "stubborn");
        }
        match self.text(&format!("fail-{verb}")) {
            None => Ok(()),
            Some(text) => Err(scripted(&text)),
        }
    }

    /// Fails as a docker without a usable compose plugin does.
    pub fn refuse_compose(&self, args: &[&str]) -> Result<(), Failure> {
        if self.text("no-compose").is_some() {
            let words = if args.get(1) == Some(&"version") {
                "docker: 'compose' is not a docker command.\nSee 'docker --help'"
            } else {
                "unknown shorthand flag: 'p' in -p\nSee 'docker --help'."
            };
            return Err(Failure::new(125, words));
        }
        if self.text("old-compose").is_some() && args.contains(&"--variables") {
            return Err(Failure::new(16, "unknown flag: --variables"));
        }
        Ok(())
    }

    /// Fails as a docker whose engine cannot be reached does.
    pub fn refuse_engine(&self) -> Result<(), Failure> {
        if self.text("daemon-down").is_some() {
            return Err(Failure::new(
                1,
                "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
            ));
        }
        if self.text("permission").is_some() {
            return Err(Failure::new(
                1,
                "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: dial unix /var/run/docker.sock: connect: permission denied",
            ));
        }
        Ok(())
    }
}

/// Exit code, newline, words.
fn scripted(text: &str) -> Failure {
    let (code, words) = text.split_once('\n').unwrap_or((text, ""));
    Failure::new(code.trim().parse().unwrap_or(1), words.trim_end())
}

fn flood(mebibytes: usize) {
    let line = format!("{}\n", "flood ".repeat(170));
    for _ in 0..mebibytes * 1024 {
        progress(line.trim_end());
        let _ = io::stdout().write_all(line.as_bytes());
    }
}

/// Never ends. The child of its own is in the same process group, as the compose plugin is.
fn hang(stubborn: bool) {
    let program = std::env::current_exe().unwrap_or_default();
    let mut child = Command::new(program);
    child
        .arg(SLEEPER)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // Without the child a test that looks for it fails.
    let _ = child.spawn();
    if stubborn {
        let (_receiver, sender) = match std::os::unix::net::UnixStream::pair() {
            Ok(pair) => pair,
            Err(_) => return,
        };
        // A handler that only writes a byte somewhere: SIGTERM ends nothing any more.
        let _ = signal_hook::low_level::pipe::register(signal_hook::consts::SIGTERM, sender);
        sleep_for_ever();
    }
    sleep_for_ever();
}

/// Sleeps until a signal ends it; ten minutes bound what a test that was killed leaves behind.
pub fn sleep_for_ever() -> ! {
    std::thread::sleep(Duration::from_secs(600));
    std::process::exit(3)
}

/// A call that gives no output.
pub fn nothing() -> Outcome {
    Ok(String::new())
}
