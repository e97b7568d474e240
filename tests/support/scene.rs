//! A whole scene in one line: an embedded control plane, a box that is connected to it, and the docker stand-in.
//!
//! ```ignore
//! let scene = Scene::new();
//! let bundle = scene.apply_ok();
//! scene.agent.timer_tick().exits(0);
//! ```

use super::agent::{AgentBox, Ran};
use super::stand_in::StandIn;
use control_plane::{
    Action, Bundle, BundleBuilder, ControlPlane, FakeBao, FaultId, Log, Options, Peer, Rule,
};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// The environment of every scene.
pub const ENV: &str = "env-qa-02";
/// The value of the secret `see/db`; nothing else in a scene looks like it.
pub const DB_VALUE: &str = "s3cr3t-dbValue$with #nasty\"parts\\";

/// Everything that a tick meets.
pub struct Scene {
    /// Tenancy and OpenBao.
    pub plane: ControlPlane,
    /// The box.
    pub agent: AgentBox,
    /// Its docker.
    pub docker: StandIn,
}

impl Scene {
    /// Everything well, and nothing wanted yet.
    pub fn new() -> Self {
        Self::with(Options::new(ENV))
    }

    /// With another control plane.
    pub fn with(options: Options) -> Self {
        let plane = ControlPlane::start(options).unwrap();
        let mut agent = AgentBox::new_below(&quick_directory(), ENV);
        agent.connect(
            &plane.tenancy_url(),
            &plane.bao_url(),
            &plane.ca_pem(),
            &plane.grant(),
        );
        let docker = StandIn::of(&mut agent);
        plane
            .put_secret("env-qa-02/see/db", json!({"value": DB_VALUE}))
            .unwrap();
        Self {
            plane,
            agent,
            docker,
        }
    }

    /// A scene whose box runs its first bundle, `bundle(1)`.
    pub fn applied() -> Self {
        let scene = Self::new();
        scene.apply_ok();
        scene
    }

    /// Wants the first bundle, and sees it applied.
    pub fn apply_ok(&self) -> Bundle {
        let bundle = bundle(1).build();
        self.want(&bundle);
        self.agent.tick().exits(0).says("applied");
        assert_eq!(self.applied_sha().as_deref(), Some(bundle.sha()));
        bundle
    }

    /// Wants a bundle.
    pub fn want(&self, bundle: &Bundle) {
        self.plane.apply(bundle);
    }

    /// Wants the first bundle applied again at every checkin, and lets leases be plenty.
    pub fn want_again(&self) {
        self.plane.tenancy().set(|settings| {
            settings.force_apply = true;
            settings.lease_budget = 1_000;
        });
    }

    /// The sha that `state.json` says is applied.
    pub fn applied_sha(&self) -> Option<String> {
        self.agent.state()["applied"]["sha"]
            .as_str()
            .map(str::to_owned)
    }

    /// The OpenBao of the scene.
    pub fn bao(&self) -> &FakeBao {
        self.plane.fake_bao().unwrap()
    }

    /// What the peers received.
    pub fn log(&self) -> &Log {
        self.plane.log()
    }

    /// How many requests came to a path of tenancy.
    pub fn to_tenancy(&self, path: &str) -> usize {
        self.log().count(Peer::Tenancy, path)
    }

    /// How many requests came to a path of OpenBao.
    pub fn to_bao(&self, path: &str) -> usize {
        self.log().count(Peer::Bao, path)
    }

    /// Forgets every request and every docker call so far.
    pub fn forget(&self) {
        self.log().clear();
        self.docker.forget();
    }

    /// The last report that tenancy took.
    #[track_caller]
    pub fn last_report(&self) -> Value {
        self.plane.reports().pop().expect("a report")
    }

    /// The agent's token.
    pub fn token(&self) -> Option<String> {
        fs::read_to_string(self.agent.state_dir().join("token")).ok()
    }

    /// Takes the token away, so that the next tick logs in; its grant is as good as before.
    pub fn lose_token(&self) {
        let _ = fs::remove_file(self.agent.state_dir().join("token"));
    }

    /// Changes `state.json`, as time or an older tick would have.
    pub fn edit_state(&self, change: impl FnOnce(&mut Value)) {
        let mut state = self.agent.state();
        change(&mut state);
        fs::write(
            self.agent.state_dir().join("state.json"),
            serde_json::to_vec_pretty(&state).unwrap(),
        )
        .unwrap();
    }

    /// Makes the agent believe that its token ends in so many seconds.
    pub fn token_ends_in(&self, seconds: i64) {
        let ends = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_secs()
            .cast_signed()
            + seconds;
        let at = monky_deployd::host::clock::Timestamp::from_unix(ends).to_string();
        self.edit_state(|state| state["token"]["expires_at"] = at.into());
    }

    /// A file below the state directory.
    pub fn state_file(&self, name: &str) -> PathBuf {
        self.agent.state_dir().join(name)
    }

    /// The file that the timer's pacing reads: without it the next tick is due, as after a pause.
    pub fn make_due(&self) {
        let _ = fs::remove_file(self.state_file("heartbeat"));
    }

    /// Lets the interval pass: the next tick of the timer is due, and knows what the last one did.
    pub fn let_the_interval_pass(&self) {
        let path = self.state_file("heartbeat");
        let Ok(bytes) = fs::read(&path) else { return };
        let mut pulse: Value = serde_json::from_slice(&bytes).unwrap();
        for field in ["started_at", "checkin_at"] {
            if pulse[field].is_string() {
                pulse[field] = "2020-01-01T00:00:00Z".into();
            }
        }
        pulse["not_before"] = Value::Null;
        fs::write(path, pulse.to_string()).unwrap();
    }

    /// A tick of the timer after the interval.
    pub fn due_tick(&self) -> Ran {
        self.let_the_interval_pass();
        self.agent.timer_tick()
    }

    /// Puts a fault on the requests to a path of a peer.
    pub fn fault(&self, peer: Peer, path: &str, action: Action) -> FaultId {
        self.plane.fault(Rule::on(peer, action).path(path))
    }

    /// Every request that arrived, as `checkin`, `lease`, `login`, `read` and so on.
    pub fn requests(&self) -> Vec<String> {
        let short = |path: &str| match path {
            _ if path.starts_with("/v1/agent/bundle/") => "bundle".to_owned(),
            _ if path.starts_with("/v1/monky/data/") => "read".to_owned(),
            _ => path.rsplit('/').next().unwrap_or_default().to_owned(),
        };
        self.log()
            .requests()
            .iter()
            .map(|logged| short(logged.request.path()))
            .collect()
    }

    /// Starts a tick that the test goes on beside.
    pub fn start_tick(&self, args: &[&str]) -> RunningTick<'_> {
        let mut command = self.agent.command(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let argv = args.iter().map(|arg| (*arg).to_owned()).collect();
        RunningTick {
            scene: self,
            argv,
            child: Some(command.spawn().unwrap()),
        }
    }
}

/// Where syncing costs nothing, if there is such a place: an apply syncs a dozen times.
fn quick_directory() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let is_writable = tempfile::tempdir_in(&memory).is_ok();
    if is_writable {
        memory
    } else {
        std::env::temp_dir()
    }
}

/// A tick that runs beside the test; killed when the test ends before it.
pub struct RunningTick<'a> {
    scene: &'a Scene,
    argv: Vec<String>,
    child: Option<Child>,
}

impl RunningTick<'_> {
    /// Its process.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.as_ref().unwrap().id()).unwrap()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_raw(self.pid()).unwrap(), signal)
            .unwrap();
    }

    /// Waits for its end.
    pub fn end(mut self) -> Ran {
        let output = self.child.take().unwrap().wait_with_output().unwrap();
        Ran::new(
            std::mem::take(&mut self.argv),
            output,
            self.scene.agent.tree(),
        )
    }
}

impl Drop for RunningTick<'_> {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The `n`-th bundle of a scene: a service with a secret and a health check, and a job that ends well.
pub fn bundle(n: u64) -> BundleBuilder {
    Bundle::sample(ENV, "unused")
        .compose(&compose(&json!({})).to_string())
        .template("# every ${VAR} below is filled in\nAPP_MODE=demo\nDB=${DB}\nURL=\"postgres://app:${DB}@db/app\"\n")
        .secret("DB", "see/db")
        .meta_with(&json!({"generation": n}))
}

/// The compose file of a scene's bundle, with these services beside its own.
pub fn compose(more: &Value) -> Value {
    let mut document = json!({"services": {
        "api": {
            "image": "harbor.example/monky/api:1",
            "restart": "unless-stopped",
            "env_file": ".env",
            "healthcheck": {"test": ["CMD", "true"]},
            "volumes": ["data:/data"],
            "environment": {"MODE": "${APP_MODE}", "EXTRA": "${EXTRA:-none}"},
            "depends_on": {"migrate": {"condition": "service_completed_successfully"}},
        },
        "migrate": {"image": "harbor.example/monky/api:1", "command": ["true"], "env_file": ".env"},
    }, "volumes": {"data": {}}});
    let services = document["services"].as_object_mut().unwrap();
    services.extend(more.as_object().unwrap().clone());
    document
}

/// Does every row on a thread of its own: for rows that mostly wait.
pub fn beside_each_other<R: Sync>(rows: &[R], test: impl Fn(&R) + Sync) {
    std::thread::scope(|scope| {
        for row in rows {
            scope.spawn(|| test(row));
        }
    });
}

/// Every file below `directory` with its content.
pub fn files_below(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(next) = pending.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            if meta.is_dir() {
                pending.push(path);
            } else if meta.is_file() {
                let bytes = fs::read(&path).unwrap();
                found.push((path, bytes));
            }
        }
    }
    found.sort();
    found
}
