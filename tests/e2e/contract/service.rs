//! `tests/contract/tenancy.py` as a test uses it: the process with an OpenBao of its own that takes tenancy's keys from
//! `agent-jwks.json`, environments in it, and boxes for them. What a test wants of the service is said in JSON.

use crate::support::agent::AgentBox;
use crate::support::real_bao::{AUTH_MOUNT, RealBao};
use crate::support::real_process::{BoundChild, cache_dir};
use crate::support::stand_in::{StandIn, wait_until};
use control_plane::Grants;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// How the service is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Knows every field of a request and no other; says every null.
    Strict,
    /// Does not mind unknown fields; leaves out what is null, and streams its bundles.
    Sparse,
    /// An older one, which knows the fields of the minimal bodies and no other.
    Narrow,
}

impl Manner {
    fn options(self) -> [&'static str; 6] {
        let (requests, extra, answers) = match self {
            Self::Strict => ("full", "forbid", "nulls"),
            Self::Sparse => ("full", "ignore", "sparse"),
            Self::Narrow => ("narrow", "forbid", "nulls"),
        };
        [
            "--requests",
            requests,
            "--extra",
            extra,
            "--answers",
            answers,
        ]
    }
}

/// A running service and its OpenBao; both end on drop.
pub struct Service {
    pub bao: RealBao,
    pub manner: Manner,
    url: String,
    http: ureq::Agent,
    dir: tempfile::TempDir,
    _process: BoundChild,
}

impl Service {
    /// The strict one that other tests are using at this moment, or a new one.
    pub fn share_strict() -> Result<Arc<Self>, String> {
        static SHARED: Mutex<Weak<Service>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(service) = shared.upgrade() {
            return Ok(service);
        }
        let service = Self::start(Manner::Strict)?;
        *shared = Arc::downgrade(&service);
        Ok(service)
    }

    /// One that is written in this manner. `Err` says which part is not here.
    pub fn start(manner: Manner) -> Result<Arc<Self>, String> {
        let python = python()?;
        // Its set-up wants a key before the service, which has the real ones, can start.
        let placeholder = Grants::new().unwrap();
        let bao = RealBao::start(&placeholder.public_key_pem())?;
        let dir = tempfile::tempdir().unwrap();
        let log = fs::File::create(dir.path().join("log")).unwrap();
        let port_file = dir.path().join("port");
        let mut command = BoundChild::command(python);
        command
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contract/tenancy.py"))
            .args(["--bao", &bao.url()])
            .arg("--bao-ca")
            .arg(bao.ca_file())
            .arg("--port-file")
            .arg(&port_file)
            .args(manner.options())
            .env_clear()
            .env("BAO_TOKEN", look_up_token(&bao))
            // The checkout stays as it is.
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdout(log.try_clone().unwrap())
            .stderr(Stdio::from(log));
        let mut process = BoundChild::spawn(command);
        let port = wait_until("the service's port", || {
            let said = || fs::read_to_string(dir.path().join("log")).unwrap_or_default();
            if let Some(status) = process.ended() {
                panic!("the service ended ({status}):\n{}", said());
            }
            fs::read_to_string(&port_file).ok()
        });
        let url = format!("http://127.0.0.1:{port}");
        let jwks = format!("{url}/.well-known/agent-jwks.json");
        bao.write(
            &format!("auth/{AUTH_MOUNT}/config"),
            &json!({"jwks_url": jwks, "jwt_supported_algs": ["ES256"]}),
        );
        let http = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .build()
            .new_agent();
        Ok(Arc::new(Self {
            bao,
            manner,
            url,
            http,
            dir,
            _process: process,
        }))
    }

    /// Asks the tests' side of the service.
    #[track_caller]
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("{}/_test/{path}", self.url))
            .header("content-type", "application/json")
            .body(body.to_string())
            .unwrap();
        let mut answer = self.http.run(request).unwrap();
        let text = answer.body_mut().read_to_string().unwrap();
        assert!(
            answer.status().is_success(),
            "{method} {path}: {text}\n{}",
            self.log()
        );
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    /// What it printed so far: nothing, unless something in it went wrong.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

/// The Python of the environment that `tests/e2e/setup contract` makes.
fn python() -> Result<PathBuf, String> {
    let venv = cache_dir().join("contract-venv");
    let wanted = include_str!("../../contract/requirements.txt");
    match fs::read_to_string(venv.join("requirements.txt")) {
        Ok(found) if found == wanted => Ok(venv.join("bin/python")),
        Ok(_) => Err("its Python packages are of another version (run tests/e2e/setup)".into()),
        Err(_) => Err("its Python packages are not installed (run tests/e2e/setup)".into()),
    }
}

/// A token that may do what tenancy does at OpenBao, and nothing else.
fn look_up_token(bao: &RealBao) -> String {
    bao.write(
        "sys/policies/acl/tenancy",
        &json!({"policy": r#"path "auth/token/lookup" { capabilities = ["update"] }"#}),
    );
    let made = bao.write("auth/token/create", &json!({"policies": ["tenancy"]}));
    made["auth"]["client_token"].as_str().unwrap().to_owned()
}

/// One environment of a service, and its box with the docker stand-in.
pub struct Environment {
    pub service: Arc<Service>,
    pub agent: AgentBox,
    pub docker: StandIn,
    env_id: String,
}

impl Environment {
    /// A fresh one, its kit installed on a box.
    pub fn new(service: Arc<Service>, env_id: &str) -> Self {
        let grant = grant(&service, env_id, "true");
        let bao = &service.bao;
        let mut agent =
            AgentBox::connected(env_id, &service.url, &bao.url(), &bao.ca_pem(), &grant);
        let docker = StandIn::of(&mut agent);
        Self {
            agent,
            docker,
            env_id: env_id.to_owned(),
            service,
        }
    }

    /// Reveals a new kit; the grants before it are superseded, and with them the tokens that they gave.
    pub fn reveal_kit(&self) -> String {
        grant(&self.service, &self.env_id, "true")
    }

    /// A bootstrap grant beside the others.
    pub fn another_grant(&self) -> String {
        grant(&self.service, &self.env_id, "false")
    }

    /// Writes a secret below the environment's own part of the KV mount.
    pub fn put_secret(&self, path: &str, value: &str) {
        let path = format!("{}/{path}", self.env_id);
        self.service.bao.put_secret(&path, &json!({"value": value}));
    }

    /// Has the service render a bundle, and gives its sha256.
    #[track_caller]
    pub fn add_bundle(&self, spec: &Value) -> String {
        let path = format!("{}/bundle", self.env_id);
        let made = self.service.ask("POST", &path, spec);
        made["sha"].as_str().unwrap().to_owned()
    }

    /// Wants a bundle.
    #[track_caller]
    pub fn want(&self, sha: &str) {
        self.set(&json!({"action": "apply", "sha": sha, "insist": false}));
    }

    /// Changes switches of the service (`Switches` in the program).
    #[track_caller]
    pub fn set(&self, switches: &Value) {
        self.service.ask("PATCH", &self.env_id, switches);
    }

    /// Spoils one kind of call (`Fault` in the program), and no other.
    #[track_caller]
    pub fn fault(&self, call: &str, fault: &Value) {
        self.set(&json!({"faults": {call: fault}}));
    }

    /// Spoils nothing any more.
    #[track_caller]
    pub fn no_fault(&self) {
        self.set(&json!({"faults": {}}));
    }

    /// How many leases were granted.
    pub fn leases(&self) -> u64 {
        self.show()["leases"].as_u64().unwrap()
    }

    /// The bodies of this kind that the service's models took, as the models hold them.
    pub fn accepted(&self, call: &str) -> Vec<Value> {
        self.show()[call].as_array().unwrap().clone()
    }

    /// The last report that the service took.
    #[track_caller]
    pub fn last_report(&self) -> Value {
        self.accepted("report").pop().expect("a report")
    }

    /// Every request of the agent so far.
    pub fn received(&self) -> Vec<Value> {
        self.show()["received"].as_array().unwrap().clone()
    }

    /// The requests from the `start`-th on, as `checkin 200`.
    pub fn calls_since(&self, start: usize) -> Vec<String> {
        self.received()[start..]
            .iter()
            .map(|r| format!("{} {}", r["call"].as_str().unwrap(), r["status"]))
            .collect()
    }

    fn show(&self) -> Value {
        self.service.ask("GET", &self.env_id, &Value::Null)
    }
}

fn grant(service: &Service, env_id: &str, supersede: &str) -> String {
    let path = format!("{env_id}/kit?supersede={supersede}");
    let kit = service.ask("POST", &path, &Value::Null);
    kit["grant"].as_str().unwrap().to_owned()
}
