//! A box with real parts around it: the agent's own directory, tenancy in this process, one OpenBao that all running tests
//! share (each has an environment of its own there, and the policy keeps them apart), and the docker engine. What a test
//! makes in docker goes away with its lab, also when the test fails.

use crate::support::agent::{AgentBox, Ran};
use crate::support::real_bao::RealBao;
use crate::support::real_docker::{Container, IMAGE, ProjectGuard, RealDocker};
use crate::support::skip;
use control_plane::{Bundle, BundleBuilder, ControlPlane, Grants, Options};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// How long anything that must happen may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// An OpenBao that knows the key of a signer.
pub struct Estate {
    pub bao: RealBao,
    pub grants: Arc<Grants>,
}

impl Estate {
    /// The one that other tests are using at this moment, or a new one; it ends with the last test that uses it.
    pub fn share() -> Result<Arc<Self>, String> {
        static SHARED: Mutex<Weak<Estate>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(estate) = shared.upgrade() {
            return Ok(estate);
        }
        let estate = Arc::new(Self::start()?);
        *shared = Arc::downgrade(&estate);
        Ok(estate)
    }

    /// One for a single test, which may seal it or change its role.
    pub fn start() -> Result<Self, String> {
        Self::knowing(Arc::new(Grants::new().unwrap()))
    }

    /// One that knows this signer.
    pub fn knowing(grants: Arc<Grants>) -> Result<Self, String> {
        let bao = RealBao::start(&grants.public_key_pem())?;
        Ok(Self { bao, grants })
    }
}

/// The box, its peers and its engine. The guard stands first: containers go before the directories that they mount.
pub struct Lab {
    _guard: ProjectGuard,
    pub docker: RealDocker,
    pub agent: AgentBox,
    pub plane: ControlPlane,
    pub estate: Arc<Estate>,
    env_id: String,
}

impl Lab {
    /// A lab for an environment that no other test uses; `None` when a part is missing, which has been counted then.
    #[track_caller]
    pub fn open(env_id: &str) -> Option<Self> {
        let docker = skip::require("docker", RealDocker::get())?;
        let estate = skip::require("openbao", Estate::share())?;
        Some(Self::with(env_id, docker, estate))
    }

    /// A lab with an OpenBao of its own.
    #[track_caller]
    pub fn with_own_estate(env_id: &str) -> Option<Self> {
        let docker = skip::require("docker", RealDocker::get())?;
        let estate = skip::require("openbao", Estate::start())?;
        Some(Self::with(env_id, docker, Arc::new(estate)))
    }

    fn with(env_id: &str, docker: RealDocker, estate: Arc<Estate>) -> Self {
        let bao = &estate.bao;
        let plane = ControlPlane::start_with_real_bao(
            Options::new(env_id),
            &bao.url(),
            bao.root_token(),
            &bao.ca_pem(),
            Arc::clone(&estate.grants),
        )
        .unwrap();
        // Every tick of the timer is due.
        plane
            .tenancy()
            .set(|settings| settings.checkin_interval_s = 0);
        docker.image();
        let agent = AgentBox::connected(
            env_id,
            &plane.tenancy_url(),
            &bao.url(),
            &bao.ca_pem(),
            &plane.grant(),
        );
        Self {
            _guard: docker.guard(&format!("monky-{env_id}")),
            docker,
            agent,
            plane,
            estate,
            env_id: env_id.to_owned(),
        }
    }

    /// The compose project.
    pub fn project(&self) -> String {
        format!("monky-{}", self.env_id)
    }

    /// A bundle with this compose file whose images are on the engine already; no variables, no secrets.
    pub fn bundle(&self, generation: u64, compose: &str) -> BundleBuilder {
        Bundle::sample(&self.env_id, IMAGE)
            .compose(compose)
            .meta_with(&json!({"generation": generation, "pull": "never"}))
    }

    /// Makes tenancy want what is built here.
    pub fn want(&self, bundle: &BundleBuilder) -> Bundle {
        let bundle = bundle.build();
        self.plane.apply(&bundle);
        bundle
    }

    /// Applies a bundle that must succeed.
    #[track_caller]
    pub fn applies(&self, bundle: &BundleBuilder) -> Bundle {
        let bundle = self.want(bundle);
        self.agent.tick().exits(0);
        assert_eq!(self.applied(), Some(bundle.sha().to_owned()));
        bundle
    }

    /// Writes a new version of a secret of this environment, say `db`.
    pub fn put_secret(&self, name: &str, data: &Value) -> u64 {
        self.estate
            .bao
            .put_secret(&format!("{}/see/{name}", self.env_id), data)
    }

    /// The applied sha.
    pub fn applied(&self) -> Option<String> {
        Some(self.agent.state()["applied"]["sha"].as_str()?.to_owned())
    }

    /// The container of a service.
    #[track_caller]
    pub fn service(&self, service: &str) -> Container {
        self.docker.service(&self.project(), service)
    }

    /// The environment of a service's first process, as the kernel has it.
    #[track_caller]
    pub fn environ(&self, service: &str) -> BTreeMap<String, String> {
        let id = self.service(service).id;
        let output = self
            .docker
            .try_run(&["exec", &id, "cat", "/proc/1/environ"]);
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.split_terminator('\0')
            .map(|line| line.split_once('=').unwrap())
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    /// The reports that tenancy has.
    pub fn reports(&self) -> Vec<Value> {
        self.plane.reports()
    }

    /// The last report, which must tell of a failure with this code, in its words and in the state's alike.
    #[track_caller]
    pub fn last_report_is(&self, code: &str) -> Value {
        let report = self.reports().pop().expect("a report");
        assert_eq!(report["result"], "failed", "{report:#}");
        assert_eq!(report["code"], code, "{report:#}");
        let detail = report["detail"].as_str().unwrap();
        assert!(detail.starts_with(&format!("{code}: ")), "{detail}");
        assert_eq!(self.agent.state()["last"]["detail"], report["detail"]);
        report
    }

    /// The agent started, with both streams kept in a file of the box.
    pub fn start(&self, args: &[&str]) -> Started {
        let log = self.agent.path("started.log");
        let file = fs::File::create(&log).unwrap();
        let child = self
            .agent
            .command(args)
            .stdout(file.try_clone().unwrap())
            .stderr(Stdio::from(file))
            .spawn()
            .unwrap();
        Started { child, log }
    }

    /// The command lines of the box's processes: all that carry its state directory in their environment or arguments.
    pub fn processes(&self) -> Vec<String> {
        self.find_processes()
            .into_iter()
            .map(|(_, line)| line)
            .collect()
    }

    /// Ends what a killed tick left running, as a reboot would.
    pub fn end_processes(&self) {
        for (pid, _) in self.find_processes() {
            // It may have ended by itself in the meantime.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        until(|| self.processes().is_empty().then_some(()));
    }

    fn find_processes(&self) -> Vec<(rustix::process::Pid, String)> {
        let state_dir = self.agent.state_dir().display().to_string();
        let is_ours = |bytes: &[u8]| {
            bytes
                .windows(state_dir.len())
                .any(|window| window == state_dir.as_bytes())
        };
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
            let pid = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) else {
                continue;
            };
            let read = |name| fs::read(entry.path().join(name)).unwrap_or_default();
            let (cmdline, environ) = (read("cmdline"), read("environ"));
            if is_ours(&cmdline) || is_ours(&environ) {
                let line = String::from_utf8_lossy(&cmdline).replace('\0', " ");
                found.push((pid, line));
            }
        }
        found
    }

    /// Every file of the box that is called `.env`.
    pub fn rendered_files(&self) -> Vec<String> {
        let tree = self.agent.tree();
        let is_rendered = |line: &&str| line.ends_with("/.env");
        tree.lines()
            .filter(is_rendered)
            .map(str::to_owned)
            .collect()
    }
}

/// A running agent.
pub struct Started {
    child: Child,
    log: std::path::PathBuf,
}

impl Started {
    /// What it said so far.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until it said so.
    #[track_caller]
    pub fn wait_until_it_says(&mut self, words: &str) {
        let said = until(|| {
            let ended = self.child.try_wait().unwrap().is_some();
            (ended || self.said().contains(words)).then(|| self.said())
        });
        assert!(said.contains(words), "it never said «{words}»:\n{said}");
    }

    /// Waits for its end by itself, which must have this exit code.
    #[track_caller]
    pub fn ends(mut self, code: i32) -> String {
        let status = until(|| self.child.try_wait().unwrap());
        assert_eq!(status.code(), Some(code), "{}", self.said());
        self.said()
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM: the exit code, what was said, and how long it took.
    pub fn terminate(mut self) -> (Option<i32>, String, Duration) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let since = Instant::now();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let status = self.child.wait().unwrap();
        (status.code(), self.said(), since.elapsed())
    }
}

/// Asks again and again until there is an answer.
#[track_caller]
pub fn until<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(
            Instant::now() < deadline,
            "nothing happened within {PATIENCE:?}"
        );
        thread::sleep(Duration::from_millis(25));
    }
}

/// The body of `GET /` at a port of loopback, as soon as somebody answers there.
#[track_caller]
pub fn page_at(port: u16) -> String {
    until(|| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        head.contains(" 200 ").then(|| body.to_owned())
    })
}

/// Runs the agent under strace; the run, and the traced calls, one a line.
pub fn traced(agent: &AgentBox, calls: &str, args: &[&str]) -> (Ran, Vec<String>) {
    let log = agent.path("trace");
    let inner = agent.command(args);
    let mut command = Command::new("strace");
    command
        .args(["-f", "-qq", "-s", "300", "-e"])
        .arg(format!("trace={calls}"))
        .arg("-o")
        .arg(&log)
        .arg(inner.get_program())
        .args(inner.get_args())
        .env_clear()
        .envs(
            inner
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .stdin(Stdio::null());
    let argv = args.iter().map(|arg| (*arg).to_owned()).collect();
    let ran = Ran::new(argv, command.output().unwrap(), agent.tree());
    let trace = fs::read_to_string(&log).unwrap();
    // Signals and exits are told in lines of their own, which begin with --- and +++ after the process.
    let is_call =
        |line: &&str| !line.contains(" --- ") && !line.contains(" +++ ") && !line.is_empty();
    (
        ran,
        trace.lines().filter(is_call).map(str::to_owned).collect(),
    )
}
