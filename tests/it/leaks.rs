//! A whole life with known secrets, at the most talkative level; then they are searched for in everything that was
//! written, logged, sent, and in argv and environment of the agent and of every child.

use crate::support::scene::{DB_VALUE, ENV, Scene, bundle, files_below};
use base64::Engine as _;
use control_plane::{Action, Peer};
use rustix::process::Signal;
use serde_json::json;
use std::fs;
use std::path::Path;

/// A secret, and the files that may hold it.
struct Known {
    name: &'static str,
    value: String,
    may_be_in: fn(&Path) -> bool,
}

fn ends(path: &Path, names: &[&str]) -> bool {
    names
        .iter()
        .any(|name| path.to_str().unwrap().ends_with(name))
}

/// What the test itself makes the stand-in say.
fn is_script(path: &Path) -> bool {
    path.to_str().unwrap().contains("/docker-stand-in/script/")
}

/// The forms in which a secret might be found.
fn forms(value: &str) -> Vec<Vec<u8>> {
    let base64 = base64::engine::general_purpose::STANDARD_NO_PAD.encode(value);
    // A few characters at the end depend on what follows.
    let base64 = base64[..base64.len().saturating_sub(2)].to_owned();
    let json = serde_json::to_string(value).unwrap();
    let url: String = value
        .bytes()
        .map(|b| {
            if b.is_ascii_alphanumeric() || b"-_.~".contains(&b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect();
    [
        value.to_owned(),
        base64,
        json.trim_matches('"').to_owned(),
        url,
    ]
    .map(String::into_bytes)
    .into()
}

fn holds(haystack: &[u8], value: &str) -> bool {
    forms(value).iter().any(|needle| {
        haystack
            .windows(needle.len())
            .any(|window| window == needle.as_slice())
    })
}

#[test]
fn secrets_are_only_where_they_must_be() {
    const PASSWORD: &str = "registry-p4ssw0rd-xyz";
    const LINE: &str = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC";
    let pem = format!("-----BEGIN KEY-----\n{LINE}\n-----END KEY-----\n");
    let mut scene = Scene::new();
    scene
        .agent
        .set("log_level", "TRACE")
        .set("healthy_timeout_s", "1");
    scene
        .plane
        .put_secret(
            &format!("{ENV}/see/registry"),
            json!({"value": format!("robot:{PASSWORD}")}),
        )
        .unwrap();
    scene
        .plane
        .put_secret(&format!("{ENV}/see/pem"), json!({"value": pem}))
        .unwrap();
    let make = |n: u64| {
        let manifest = json!({"entries": [
            {"var": "DB", "path": "see/db"}, {"var": "PEM", "path": "see/pem"},
            {"path": "see/registry", "use": "registry-auth"},
        ]});
        bundle(n)
            .manifest(&manifest)
            .template("APP_MODE=demo\nDB=${DB}\nPEM=\"${PEM}\"\n")
            .build()
    };
    let grant = fs::read_to_string(scene.agent.path("bootstrap.jwt"))
        .unwrap()
        .trim()
        .to_owned();
    let mut tokens: Vec<String> = Vec::new();
    let mut said: Vec<String> = Vec::new();
    let mut run = |scene: &Scene, exit: i32| {
        let ran = scene.agent.tick();
        ran.exits(exit);
        said.push(ran.story());
        tokens.extend(scene.token());
    };

    // The life: a good apply, and every way in which output with secrets in it might get out.
    run(&scene, 0);
    scene.want(&make(1));
    run(&scene, 0);
    let echo = format!(
        "log: {DB_VALUE} {} {PASSWORD} {LINE} {}",
        json!(DB_VALUE),
        base64::engine::general_purpose::STANDARD.encode(format!("robot:{PASSWORD}"))
    );
    scene.docker.fail("pull", 1, &echo);
    scene.want(&make(2));
    run(&scene, 1);
    scene.docker.unscript("fail-pull");
    scene.docker.fail("up", 1, &echo);
    run(&scene, 1);
    scene.docker.unscript("fail-up");
    scene
        .docker
        .script("logs-api", &format!("{echo}\n"))
        .script("health", "api=unhealthy\n");
    run(&scene, 1);
    scene.docker.unscript("health");
    // Peers that echo what they were sent.
    let token = scene.token().unwrap();
    scene
        .plane
        .tenancy()
        .set(|settings| settings.force_apply = true);
    let echoing = scene.fault(
        Peer::Bao,
        "/v1/monky/",
        Action::json(
            500,
            &json!({"errors": [format!("no such thing for token {token}")]}),
        ),
    );
    run(&scene, 75);
    assert!(scene.plane.faults().remove(echoing));
    let echoing = scene.fault(
        Peer::Tenancy,
        "/v1/agent/checkin",
        Action::text(400, &format!("bad header Bearer {token}")),
    );
    run(&scene, 1);
    assert!(scene.plane.faults().remove(echoing));
    // A lease that is granted and not used.
    scene.edit_state(|state| state["token"]["source"] = "bootstrap".into());
    let sealed = scene.fault(
        Peer::Bao,
        "/v1/auth/jwt-tenancy/login",
        Action::json(503, &json!({"errors": ["Vault is sealed"]})),
    );
    run(&scene, 0);
    assert!(scene.plane.faults().remove(sealed));
    let lease: serde_json::Value =
        serde_json::from_slice(&fs::read(scene.state_file("lease.json")).unwrap()).unwrap();
    let lease_grant = lease["login_jwt"].as_str().unwrap().to_owned();

    // A running tick and its child.
    scene.docker.script("hang-pull", "");
    scene.docker.forget();
    let tick = scene.start_tick(&["tick", "--force"]);
    let child = scene.docker.wait_for("compose pull").pid;
    for pid in [tick.pid(), child] {
        for file in ["cmdline", "environ"] {
            said.push(
                String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/{file}")).unwrap())
                    .into_owned(),
            );
        }
    }
    tick.signal(Signal::TERM);
    said.push(tick.end().story());
    scene.docker.unscript("hang-pull");
    tokens.extend(scene.token());

    let env_files: fn(&Path) -> bool = |path| ends(path, &["/.env"]) || is_script(path);
    let mut known = vec![
        Known {
            name: "DB",
            value: DB_VALUE.into(),
            may_be_in: env_files,
        },
        Known {
            name: "PEM",
            value: LINE.into(),
            may_be_in: env_files,
        },
        Known {
            name: "password",
            value: PASSWORD.into(),
            may_be_in: |path| ends(path, &["/docker/config.json"]) || is_script(path),
        },
        Known {
            name: "grant",
            value: grant,
            may_be_in: |path| ends(path, &["/bootstrap.jwt"]),
        },
        Known {
            name: "lease",
            value: lease_grant,
            may_be_in: |path| ends(path, &["/lease.json"]),
        },
    ];
    tokens.sort();
    tokens.dedup();
    assert!(tokens.len() >= 2);
    known.extend(tokens.into_iter().map(|value| Known {
        name: "token",
        value,
        may_be_in: |path| ends(path, &["/token", "/token.refused"]),
    }));

    let files = files_below(&scene.agent.path(""));
    for secret in &known {
        for (path, bytes) in &files {
            let is_found = holds(bytes, &secret.value);
            assert!(
                !is_found || (secret.may_be_in)(path),
                "{} is in {}",
                secret.name,
                path.display()
            );
        }
        for text in &said {
            assert!(
                !holds(text.as_bytes(), &secret.value),
                "{} was said\n{text}",
                secret.name
            );
        }
        for logged in scene.log().requests() {
            let request = &logged.request;
            let what = format!(
                "{} was sent to {:?} {}",
                secret.name, logged.peer, request.target
            );
            assert!(!holds(request.target.as_bytes(), &secret.value), "{what}");
            let is_login = logged.peer == Peer::Bao && request.path().ends_with("/login");
            let is_grant = matches!(secret.name, "grant" | "lease");
            assert!(
                !holds(&request.body, &secret.value) || (is_login && is_grant),
                "{what}"
            );
            for (name, value) in &request.headers {
                let carries = match logged.peer {
                    Peer::Tenancy => name.eq_ignore_ascii_case("authorization"),
                    Peer::Bao => name.eq_ignore_ascii_case("x-vault-token"),
                };
                assert!(
                    !holds(value.as_bytes(), &secret.value) || (carries && secret.name == "token"),
                    "{what}"
                );
            }
        }
    }
    // The search finds what is there.
    assert!(
        files
            .iter()
            .any(|(path, bytes)| ends(path, &["live/.env"]) && holds(bytes, LINE))
    );
    assert!(
        files
            .iter()
            .any(|(path, bytes)| ends(path, &["docker/config.json"])
                && holds(bytes, &format!("robot:{PASSWORD}")))
    );
    let reports = scene
        .plane
        .reports()
        .iter()
        .map(ToString::to_string)
        .collect::<String>();
    for mark in ["[redacted:DB]", "[redacted:PEM]", "[redacted:REGISTRY"] {
        assert!(reports.contains(mark), "{mark}");
    }
}
