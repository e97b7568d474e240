//! Holds the fake against a real OpenBao: the same calls to both must give the same statuses, the same words and JSON of the
//! same shape. Needs the `bao` binary in `BAO_BIN`; run with `cargo test -p control-plane -- --ignored`.

// clippy.toml's exceptions for tests reach test functions only, not their helpers in an integration test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use control_plane::{ControlPlane, GrantSpec, Grants, Options, RealBao, Response};
use serde_json::{Value, json};

const ENV: &str = "env-qa-02";
const LOGIN: &str = "auth/jwt-tenancy/login";

/// A dev server on a free port, ended with the test.
struct Server {
    child: Child,
    dir: PathBuf,
    addr: String,
}

impl Server {
    fn start() -> Self {
        let binary = std::env::var_os("BAO_BIN").expect("BAO_BIN names the bao binary");
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let dir = std::env::temp_dir().join(format!("control-plane-bao-{port}"));
        std::fs::create_dir_all(&dir).unwrap();
        let child = Command::new(binary)
            .args(["server", "-dev", "-dev-tls", "-dev-root-token-id=root"])
            .arg(format!("-dev-listen-address=127.0.0.1:{port}"))
            .arg(format!("-dev-tls-cert-dir={}", dir.display()))
            .env("HOME", &dir)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            child,
            dir,
            addr: format!("https://127.0.0.1:{port}"),
        }
    }

    /// Waits until it answers.
    fn ready(&self) -> (RealBao, String) {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(ca) = read(&self.dir.join("vault-ca.pem")) {
                let bao = RealBao::new(&self.addr, "root", &ca);
                let answers = |bao: &RealBao| {
                    bao.call("GET", "sys/auth", &Value::Null)
                        .is_ok_and(|r| r.status == 200)
                };
                if let Some(bao) = bao.ok().filter(answers) {
                    return (bao, ca);
                }
            }
            assert!(Instant::now() < until, "OpenBao did not start");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    std::fs::File::open(path)
        .ok()?
        .read_to_string(&mut text)
        .ok()?;
    text.contains("-----END").then_some(text)
}

/// Leaves keys, types and words; takes away what differs from call to call.
fn shape(value: &Value, key: &str) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), shape(value, key)))
            .collect(),
        Value::Array(items) => items.iter().map(|item| shape(item, key)).collect(),
        Value::String(text) if key.ends_with("_time") && text.is_empty() => json!("empty"),
        Value::String(_)
            if key.ends_with("_time") || key.ends_with("_id") || key == "last_renewal" =>
        {
            json!("varies")
        }
        Value::String(_) if ["client_token", "accessor", "id"].contains(&key) => json!("varies"),
        Value::Number(_) if key.ends_with("_time") || key == "ttl" => json!(0),
        other => other.clone(),
    }
}

fn outcome(response: &Response) -> (u16, Value) {
    (response.status, shape(&response.body_json(), ""))
}

/// One server with an agent's token.
struct Side {
    bao: RealBao,
    token: String,
}

impl Side {
    fn new(bao: RealBao, jwt: &str) -> Self {
        let login = json!({"role": "see-env", "jwt": jwt});
        let answer = bao.call_as("", "POST", LOGIN, &login).unwrap().body_json();
        let token = answer["auth"]["client_token"]
            .as_str()
            .expect("a token")
            .to_owned();
        Self { bao, token }
    }

    fn ask(&self, who: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let token = if who == "agent" { &self.token } else { who };
        let answer = match who {
            "root" => self.bao.call(method, path, body),
            _ => self.bao.call_as(token, method, path, body),
        };
        outcome(&answer.unwrap())
    }
}

#[test]
#[ignore = "needs a real OpenBao: BAO_BIN"]
fn the_fake_answers_as_the_real_one() {
    let server = Server::start();
    let (real, ca) = server.ready();
    let fake_plane = ControlPlane::start(Options::new(ENV)).unwrap();
    let grants = Arc::clone(fake_plane.grants());
    real.provision(&grants).unwrap();
    let fake = fake_plane.fake_bao().unwrap();
    let fake_client = RealBao::new(
        &fake_plane.bao_url(),
        fake.root_token(),
        &fake_plane.ca_pem(),
    )
    .unwrap();
    let plane = ControlPlane::start_with_real_bao(
        Options::new(ENV),
        &server.addr,
        "root",
        &ca,
        Arc::clone(&grants),
    );
    let plane = plane.unwrap();
    for plane in [&fake_plane, &plane] {
        for value in ["v1", "v2", "v3"] {
            plane
                .put_secret(
                    "env-qa-02/see/a",
                    json!({"value": value, "odd": "<&\u{2028}é", "n": 7, "b": true}),
                )
                .unwrap();
        }
    }
    let jwt = grants.sign(&GrantSpec::new(ENV).claim("jti", "j1"));
    let sides = [Side::new(real, &jwt), Side::new(fake_client, &jwt)];
    let mut differing = Vec::new();
    for (who, method, path, body) in calls(&grants) {
        let [real, fake] = [&sides[0], &sides[1]].map(|side| side.ask(who, method, path, &body));
        if real != fake {
            differing.push(format!(
                "{who} {method} {path}\n  real {} {}\n  fake {} {}",
                real.0, real.1, fake.0, fake.1
            ));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

fn calls(grants: &Grants) -> Vec<(&'static str, &'static str, &'static str, Value)> {
    let spec = || GrantSpec::new(ENV);
    let login = |spec: GrantSpec| json!({"role": "see-env", "jwt": grants.sign(&spec)});
    let stranger = Grants::new().unwrap().deploy_grant(ENV);
    let none = Value::Null;
    let mut calls: Vec<(&str, &str, &str, Value)> = [
        login(spec().claim("jti", "j2")),
        login(spec().without("exp")),
        login(spec().expires_in(-30)),
        login(spec().expires_in(-90)),
        login(spec().claim("aud", "x")),
        login(spec().without("aud")),
        login(spec().claim("aud", json!(["x", "openbao-see-env"]))),
        login(spec().claim("kind", "x")),
        login(spec().without("kind")),
        login(spec().without("sub")),
        login(
            spec()
                .claim("nbf", 4_000_000_000_u64)
                .claim("exp", 4_000_003_600_u64),
        ),
        json!({"role": "see-env", "jwt": stranger}),
        json!({"role": "nope", "jwt": "x"}),
        json!({"role": "", "jwt": "x"}),
        json!({"role": "see-env", "jwt": ""}),
        json!({"role": "see-env", "jwt": "garbage"}),
    ]
    .map(|body| ("", "POST", LOGIN, body))
    .into();
    calls.push((
        "",
        "POST",
        "auth/nope/login",
        json!({"role": "see-env", "jwt": "x"}),
    ));
    calls.push(("", "GET", LOGIN, none.clone()));
    let own = "monky/data/env-qa-02/see/a";
    for (who, method, path) in [
        ("agent", "GET", "auth/token/lookup-self"),
        ("agent", "POST", "auth/token/lookup-self"),
        ("agent", "POST", "auth/token/renew-self"),
        ("agent", "GET", "auth/token/lookup-self"),
        ("agent", "POST", "auth/token/revoke-self"),
        ("agent", "POST", "auth/token/lookup"),
        ("root", "POST", "auth/token/renew-self"),
        ("s.unknown", "GET", "auth/token/lookup-self"),
        ("", "GET", own),
        ("s.unknown", "GET", own),
        ("agent", "GET", own),
        ("agent", "GET", "monky/data/env-qa-02/see/a?version=2"),
        ("agent", "GET", "monky/data/env-qa-02/see/a?version=0"),
        ("agent", "GET", "monky/data/env-qa-02/see/a?version=9"),
        ("agent", "GET", "monky/data/env-qa-02/see/a?version=x"),
        ("agent", "GET", "monky/data/env-qa-02/see/%61"),
        ("agent", "GET", "monky/data/env-qa-02/see//a"),
        ("agent", "GET", "monky/data/env-qa-02/see/missing"),
        ("agent", "GET", "monky/data/env-qa-02/other"),
        ("agent", "GET", "monky/data/env-qa-03/see/a"),
        ("agent", "GET", "nomount/data/env-qa-02/see/a"),
        ("root", "GET", "nomount/data/env-qa-02/see/a"),
        ("agent", "DELETE", own),
        ("agent", "GET", "monky/metadata/env-qa-02/see?list=true"),
        ("agent", "LIST", "monky/metadata/env-qa-02/see/"),
        ("agent", "GET", "monky/metadata/env-qa-02/see/a"),
    ] {
        calls.push((who, method, path, none.clone()));
    }
    calls.push((
        "root",
        "POST",
        "auth/token/lookup",
        json!({"token": "s.unknown"}),
    ));
    calls.push((
        "root",
        "POST",
        "monky/delete/env-qa-02/see/a",
        json!({"versions": [1]}),
    ));
    calls.push((
        "root",
        "PUT",
        "monky/destroy/env-qa-02/see/a",
        json!({"versions": [2]}),
    ));
    calls.push(("root", "DELETE", own, none.clone()));
    for path in [
        "monky/data/env-qa-02/see/a?version=1",
        "monky/data/env-qa-02/see/a?version=2",
        own,
    ] {
        calls.push(("agent", "GET", path, none.clone()));
    }
    calls
}

#[test]
#[ignore = "needs a real OpenBao: BAO_BIN"]
fn tenancy_pins_bearers_of_a_real_server() {
    let server = Server::start();
    let (real, ca) = server.ready();
    let grants = Arc::new(Grants::new().unwrap());
    real.provision(&grants).unwrap();
    let plane =
        ControlPlane::start_with_real_bao(Options::new(ENV), &server.addr, "root", &ca, grants)
            .unwrap();
    let side = Side::new(real.clone(), &plane.grant());
    let client = control_plane::Client::new(&plane.tenancy_url(), "").unwrap();
    let checkin = || {
        let headers = [
            ("Authorization".to_owned(), format!("Bearer {}", side.token)),
            ("Content-Type".to_owned(), "application/json".to_owned()),
        ];
        let body = json!({"env_id": ENV}).to_string();
        client
            .send("POST", "/v1/agent/checkin", &headers, body.as_bytes())
            .unwrap()
            .status
    };
    assert_eq!(checkin(), 200);
    real.revoke(&side.token).unwrap();
    assert_eq!(checkin(), 401);
    drop(server);
    assert_eq!(checkin(), 503);
}
