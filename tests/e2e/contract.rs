//! The agent's whole life against a tenancy that a service team could have written (`tests/contract/tenancy.py`: FastAPI,
//! pydantic, Python's tarfile, PyJWT) and a real OpenBao that takes that tenancy's keys. Docker is the stand-in: what is
//! held here is the protocol, and every body that the agent sends is judged by pydantic models that know the fields of
//! the specification and no other.

mod service;

use crate::support::scene::compose;
use crate::support::skip;
use serde_json::{Value, json};
use service::{Environment, Manner, Service};
use std::fs;
use std::sync::Arc;

/// A secret that no other text looks like.
const DB: &str = "contract-dbValue$with #nasty\"parts\\";

/// An environment of the strict service; `None` when a part is missing, which has been counted then.
#[track_caller]
fn strict(env_id: &str) -> Option<Environment> {
    let service = skip::require("contract", Service::share_strict())?;
    Some(Environment::new(service, env_id))
}

/// A bundle with one secret; `made` is how the service packs it.
fn bundle(generation: u64, made: &str, more: &Value) -> Value {
    json!({
        "generation": generation,
        "made": made,
        "files": {
            "docker-compose.yml": compose(more).to_string(),
            ".env.template": "# every ${VAR} below is filled in\nAPP_MODE=demo\nDB=${DB}\n",
            "conf/app.yml": format!("generation: {generation}\n"),
        },
        "secrets": [{"var": "DB", "path": "see/db"}],
    })
}

/// The fields of an object.
fn names(object: &Value) -> Vec<&str> {
    object
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

#[test]
fn a_whole_life_with_explicit_nulls_and_strict_models() {
    let Some(env) = strict("env-strict") else {
        return;
    };
    live(&env);
    for request in env.received() {
        assert_eq!(
            request["content-type"].is_null(),
            request["call"] == "bundle"
        );
        let agent = concat!("monky-deployd/", env!("CARGO_PKG_VERSION"));
        assert_eq!(request["user-agent"], agent);
        assert!(request["status"].as_u64().unwrap() < 300, "{request}");
    }
}

#[test]
fn a_whole_life_with_sparse_answers_and_streamed_bundles() {
    let started = Service::start(Manner::Sparse);
    let Some(service) = skip::require("contract", started) else {
        return;
    };
    live(&Environment::new(service, "env-sparse"));
}

#[test]
fn a_whole_life_on_the_minimal_bodies() {
    let started = Service::start(Manner::Narrow);
    let Some(service) = skip::require("contract", started) else {
        return;
    };
    let env = Environment::new(service, "env-narrow");
    live(&env);
    // Every body is offered whole, refused, and taken at once in its minimal form.
    let mut posts = env.received();
    posts.retain(|request| request["call"] != "bundle");
    for pair in posts.chunks(2) {
        let [whole, minimal] = pair else {
            panic!("{pair:?}")
        };
        assert_eq!(whole["call"], minimal["call"]);
        assert_eq!(whole["status"], 422, "{whole}");
        assert!(minimal["status"].as_u64().unwrap() < 300, "{minimal}");
    }
    let checkins = env.accepted("checkin");
    assert!(
        checkins
            .iter()
            .all(|body| names(body) == ["applied_sha", "env_id"])
    );
    assert_eq!(env.accepted("lease"), [json!({"env_id": "env-narrow"})]);
    // What the whole report says in `detail` stands at the head of the tail.
    for (body, code) in env.accepted("report").iter().skip(3).zip(CODES) {
        let tail = body["log_tail"].as_str().unwrap();
        assert!(tail.starts_with(&format!("{code}: ")), "{tail}");
    }
}

/// The codes of the failures in [`live`], in their order.
const CODES: [&str; 3] = ["ENV_INCOMPLETE", "PULL_AUTH", "UNHEALTHY"];

/// Bootstrap, apply, converged, a new bundle, the same again, three that fail, a good one, down, down again, and back.
fn live(env: &Environment) {
    let is_narrow = env.service.manner == Manner::Narrow;
    let agent = &env.agent;
    env.put_secret("see/db", DB);

    agent.tick().exits(0).says("converged");
    assert_eq!(env.accepted("checkin")[0]["applied_sha"], Value::Null);

    let first = env.add_bundle(&bundle(1, "memory", &json!({})));
    env.want(&first);
    agent.tick().exits(0).says("applied");
    assert_eq!(agent.current(), Some(format!("{first}-1")));
    let rendered = fs::read_to_string(agent.live(".env")).unwrap();
    assert!(
        rendered.contains(r##"DB="contract-dbValue\$with #nasty\"parts\\""##),
        "{rendered}"
    );
    let report = env.last_report();
    assert_eq!(
        (&report["result"], &report["sha"]),
        (&json!("applied"), &json!(first))
    );
    if !is_narrow {
        assert_eq!(report["secrets"], json!(["DB"]));
        assert_eq!(report["containers"].as_array().unwrap().len(), 2);
    }

    agent.tick().exits(0).says("converged");
    let checkin = env.accepted("checkin").pop().unwrap();
    assert_eq!(checkin["applied_sha"], json!(first));

    let second = env.add_bundle(&bundle(2, "directory", &json!({})));
    env.want(&second);
    agent.tick().exits(0).says("applied");
    assert_eq!(
        fs::read_to_string(agent.live("conf/app.yml")).unwrap(),
        "generation: 2\n"
    );
    env.set(&json!({"insist": true}));
    agent.tick().exits(0).says("applied");
    assert_eq!(agent.current(), Some(format!("{second}-1")));

    fail(env, &second);

    let last = env.add_bundle(&bundle(6, "directory", &json!({})));
    env.want(&last);
    agent.tick().exits(0).says("applied");
    assert_eq!(env.leases(), 1, "one lease serves them all");

    env.set(&json!({"action": "down", "purge_volumes": true}));
    agent.tick().exits(0).says("everything is down");
    let down = env.last_report();
    assert_eq!(down["result"], "down");
    assert_eq!(down.get("sha"), (!is_narrow).then_some(&Value::Null));
    assert!(!agent.live(".env").exists());
    let (before, docker_calls) = (env.received().len(), env.docker.calls().len());
    agent.tick().exits(0);
    let again = env.calls_since(before);
    assert!(again.iter().all(|c| c.starts_with("checkin ")), "{again:?}");
    assert_eq!(env.docker.calls().len(), docker_calls);

    env.want(&last);
    agent.tick().exits(0).says("applied");
    agent.tick().exits(0).says("converged");
    assert_eq!(
        env.service.log(),
        "",
        "the service has nothing to complain of"
    );
}

/// A bundle that is refused, one whose images cannot be pulled, one whose container ends; `applied` stays applied.
fn fail(env: &Environment, applied: &str) {
    let is_narrow = env.service.manner == Manner::Narrow;
    let mut incomplete = bundle(3, "memory", &json!({}));
    incomplete["files"][".env.template"] = json!("APP_MODE=${NOWHERE}\nDB=${DB}\n");
    let refused = env.add_bundle(&incomplete);
    let unpullable = env.add_bundle(&bundle(4, "memory", &json!({})));
    let job = json!({"image": "harbor.example/monky/ends:1", "restart": "always"});
    let unhealthy = env.add_bundle(&bundle(5, "memory", &json!({"ends": job})));
    env.docker.script("exit", "ends=3\n");
    // More than a report may carry.
    let logged = format!("no such table: {}\n", "x".repeat(400)).repeat(200);
    env.docker.script("logs-ends", &logged);

    for (sha, code) in [&refused, &unpullable, &unhealthy].into_iter().zip(CODES) {
        env.want(sha);
        if code == "PULL_AUTH" {
            let words = "Error response from daemon: unauthorized: authentication required";
            env.docker.fail("pull", 1, words);
        }
        env.agent.tick().exits(1).says(code);
        let report = env.last_report();
        assert_eq!(
            (&report["result"], &report["sha"]),
            (&json!("failed"), &json!(sha))
        );
        if !is_narrow {
            assert_eq!(report["code"], code);
            let detail = report["detail"].as_str().unwrap();
            assert!(detail.starts_with(&format!("{code}: ")), "{detail}");
        }
        if code == "UNHEALTHY" {
            let tail = report["log_tail"].as_str().unwrap();
            assert!(tail.contains("no such table"), "{tail}");
        }
        env.docker.script("fail-pull", "0\n");
        env.docker.unscript("fail-pull");
    }

    env.set(&json!({"action": "none"}));
    env.agent.tick().exits(0);
    let checkin = env.accepted("checkin").pop().unwrap();
    assert_eq!(checkin["applied_sha"], applied);
    if !is_narrow {
        assert_eq!(checkin["last_result"], "failed");
        let error = checkin["last_error"].as_str().unwrap();
        assert!(error.starts_with("UNHEALTHY: "), "{error}");
        assert!(checkin["failing_since"].is_string(), "{checkin}");
    }
}

#[test]
fn a_body_that_is_refused_in_both_forms_shows_the_field() {
    let Some(env) = strict("env-422") else { return };
    env.put_secret("see/db", DB);
    let sha = env.add_bundle(&bundle(1, "memory", &json!({})));
    env.want(&sha);
    let words = "body.region: Field required";

    env.fault("checkin", &json!({"field": "region"}));
    env.agent.tick().exits(1).says("422").says(words);
    assert_eq!(env.calls_since(0), ["checkin 422", "checkin 422"]);

    env.fault("lease", &json!({"field": "region"}));
    let start = env.received().len();
    env.agent.tick().exits(1).says("422").says(words);
    assert_eq!(
        env.calls_since(start),
        [
            "checkin 200",
            "bundle 200",
            "lease 422",
            "lease 422",
            "report 202"
        ]
    );
    assert_eq!(env.last_report()["code"], "PEER_REFUSED");
    assert!(
        env.last_report()["detail"]
            .as_str()
            .unwrap()
            .contains(words)
    );

    // A report is dropped: the apply was good.
    env.fault("report", &json!({"field": "region"}));
    let start = env.received().len();
    env.agent.tick().exits(0).says("applied").says(words);
    assert_eq!(env.calls_since(start)[3..], ["report 422", "report 422"]);
    env.no_fault();
    let start = env.received().len();
    env.agent.tick().exits(0).says("converged");
    assert_eq!(env.calls_since(start), ["checkin 200"]);
}

#[test]
fn a_superseded_kit_ends_a_box_until_the_next_kit() {
    let Some(env) = strict("env-kit") else { return };
    env.put_secret("see/db", DB);
    let sha = env.add_bundle(&bundle(1, "memory", &json!({})));
    env.want(&sha);
    env.agent.tick().exits(0).says("applied");

    let grant = env.reveal_kit();
    let start = env.received().len();
    env.agent
        .tick()
        .exits(1)
        .says("AGENT_UNAUTHENTICATED")
        .says("re-run the install kit");
    // OpenBao still takes the kit's grant, tenancy takes no token of it.
    assert_eq!(env.calls_since(start), ["checkin 401", "checkin 401"]);
    let refused = env.received().pop().unwrap()["authorization"].clone();
    assert!(!env.agent.state_dir().join("token").exists());
    assert!(env.agent.state_dir().join("token.refused").exists());

    // The old grant is spent: nobody is asked with it.
    let start = env.received().len();
    env.agent.tick().exits(1).says("re-run the install kit");
    assert_eq!(env.calls_since(start), Vec::<String>::new());

    env.agent.stage_grant(&grant);
    env.agent.tick().exits(0).says("converged");
    assert!(!env.agent.state_dir().join("token.refused").exists());

    let later = &env.received()[start..];
    assert!(
        later.iter().all(|r| r["authorization"] != refused),
        "a refused token is never sent again"
    );
}

#[test]
fn a_refused_bearer_is_replaced_and_the_call_repeated_in_the_same_tick() {
    let Some(service) = skip::require("contract", Service::share_strict()) else {
        return;
    };
    for (call, taken) in [
        ("checkin", 200),
        ("bundle", 200),
        ("lease", 200),
        ("report", 202),
    ] {
        let env = Environment::new(Arc::clone(&service), &format!("env-401-{call}"));
        env.put_secret("see/db", DB);
        env.agent.tick().exits(0).says("converged");
        let sha = env.add_bundle(&bundle(1, "memory", &json!({})));
        env.want(&sha);
        env.agent.stage_grant(&env.another_grant());
        let detail = json!({"code": "AGENT_UNAUTHENTICATED", "message": "token is unknown"});
        env.fault(call, &json!({"status": 401, "detail": detail, "times": 1}));
        let start = env.received().len();
        env.agent.tick().exits(0).says("applied");
        let calls = env.calls_since(start);
        let at = calls.iter().position(|c| *c == format!("{call} 401"));
        let next = at.and_then(|at| calls.get(at + 1));
        assert_eq!(next, Some(&format!("{call} {taken}")), "{calls:?}");
        let bearers: Vec<Value> = env.received()[start..]
            .iter()
            .map(|r| r["authorization"].clone())
            .collect();
        assert!(
            !bearers[at.unwrap() + 1..].contains(&bearers[at.unwrap()]),
            "a refused token is never sent again: {calls:?}"
        );
    }
}

#[test]
fn another_401_or_403_keeps_the_token_and_shows_the_words() {
    let Some(env) = strict("env-words") else {
        return;
    };
    env.agent.tick().exits(0).says("converged");
    let token = env.agent.state_dir().join("token");
    let before = fs::read(&token).unwrap();
    for (fault, words) in [
        (
            json!({"status": 401, "detail": "Not authenticated"}),
            "Not authenticated",
        ),
        (json!({"status": 403, "detail": "Forbidden"}), "Forbidden"),
        (
            json!({"status": 403, "detail": {"code": "AGENT_BLOCKED", "message": "ask the desk"}}),
            "ask the desk",
        ),
    ] {
        env.fault("checkin", &fault);
        let start = env.received().len();
        env.agent.tick().exits(1).says(words);
        assert_eq!(
            env.calls_since(start),
            [format!("checkin {}", fault["status"])]
        );
        assert_eq!(fs::read(&token).unwrap(), before);
    }
    let detail = json!({"code": "OPENBAO_UNAVAILABLE", "message": "try later"});
    env.fault(
        "checkin",
        &json!({"status": 503, "detail": detail, "headers": {"Retry-After": "120"}}),
    );
    env.agent.tick().exits(75).says("try later");
    env.no_fault();
    env.agent.timer_tick().exits(0).says("not_due");
    env.agent.tick().exits(0).says("converged");
}

#[test]
fn a_token_for_another_environment_is_remembered() {
    let Some(mut env) = strict("env-pinned") else {
        return;
    };
    env.agent.tick().exits(0).says("converged");
    let detail = json!({"code": "AGENT_ENV_MISMATCH", "message": "pinned to env-else"});
    env.fault("checkin", &json!({"status": 403, "detail": detail}));
    env.agent.tick().exits(78).says("pinned to env-else");
    let start = env.received().len();
    env.agent.timer_tick().exits(78).says("--force");
    assert_eq!(env.calls_since(start), Vec::<String>::new());
    env.no_fault();
    env.agent.set("site", "elsewhere");
    env.agent.timer_tick().exits(0).says("converged");

    // The kit of another box: the login's metadata tells before tenancy is asked.
    let other = strict("env-mixed-up").unwrap();
    other.agent.stage_grant(&env.another_grant());
    other.agent.tick().exits(78).says("env-pinned");
    assert_eq!(other.calls_since(0), Vec::<String>::new());
}

#[test]
fn the_sixth_lease_of_an_hour_is_put_off_and_the_apply_goes_on() {
    let Some(env) = strict("env-leases") else {
        return;
    };
    env.put_secret("see/db", DB);
    let sha = env.add_bundle(&bundle(1, "memory", &json!({})));
    env.want(&sha);
    env.set(&json!({"insist": true}));
    for granted in 1..=5 {
        env.agent.tick().exits(0).says("applied");
        assert_eq!(env.leases(), granted);
        assert_eq!(env.agent.state()["token"]["source"], "lease");
        // Its grant is good for another login, whose token is swapped once.
        fs::remove_file(env.agent.state_dir().join("token")).unwrap();
    }
    env.agent
        .tick()
        .exits(0)
        .says("LEASE_RATE_LIMITED")
        .says("applied");
    assert_eq!(env.leases(), 5);
    let token = env.agent.state()["token"].clone();
    assert_eq!(
        (&token["source"], &token["swap_deferred"]),
        (&json!("bootstrap"), &json!(true))
    );
    env.set(&json!({"lease_budget": 6}));
    env.agent.tick().exits(0).says("applied");
    let token = env.agent.state()["token"].clone();
    assert_eq!(
        (&token["source"], &token["swap_deferred"]),
        (&json!("lease"), &json!(false))
    );
}

#[test]
fn a_box_that_is_down_and_then_unknown_is_retired() {
    let Some(env) = strict("env-retired") else {
        return;
    };
    env.put_secret("see/db", DB);
    let sha = env.add_bundle(&bundle(1, "memory", &json!({})));
    env.want(&sha);
    env.agent.tick().exits(0).says("applied");
    env.set(&json!({"action": "down"}));
    env.agent.tick().exits(0).says("everything is down");
    let grant = env.reveal_kit();
    env.agent.tick().exits(0).says("retired");
    env.agent.stage_grant(&grant);
    env.want(&sha);
    env.agent.tick().exits(0).says("applied");
}

#[test]
fn what_a_paused_box_says_fits_the_model() {
    let Some(env) = strict("env-paused") else {
        return;
    };
    env.agent.tick().exits(0).says("converged");
    env.agent
        .run(&["pause", "--for", "2h", "--reason", "a \"fair\""])
        .exits(0);
    env.agent.tick().exits(0);
    let paused = env.accepted("checkin").pop().unwrap()["paused"].clone();
    assert_eq!(paused["reason"], "a \"fair\"");
    assert!(
        paused["since"].is_string() && paused["until"].is_string(),
        "{paused}"
    );
}

#[test]
fn what_a_box_says_of_a_restore_a_held_bundle_and_drift_fits_the_models() {
    let Some(mut env) = strict("env-held") else {
        return;
    };
    env.agent
        .set("on_unhealthy", "restore")
        .set("facts_interval_s", "0");
    env.put_secret("see/db", DB);
    let good = env.add_bundle(&bundle(1, "memory", &json!({})));
    env.want(&good);
    env.agent.tick().exits(0).says("applied");

    let job = json!({"image": "harbor.example/monky/ends:1", "restart": "always"});
    let bad = env.add_bundle(&bundle(2, "memory", &json!({"ends": job})));
    env.docker.script("exit", "ends=3\n");
    env.want(&bad);
    env.agent.tick().exits(1).says("UNHEALTHY");
    let report = env.last_report();
    assert_eq!(
        (&report["sha"], &report["restored"]),
        (&json!(bad), &json!(good))
    );

    env.docker.script("health", "api=unhealthy\n");
    // Due at once: `--force` would lift the hold.
    fs::remove_file(env.agent.state_dir().join("heartbeat")).unwrap();
    env.agent.timer_tick().exits(1).says("PUT_OFF");
    let checkin = env.accepted("checkin").pop().unwrap();
    assert_eq!(checkin["held"]["sha"], json!(bad), "{checkin}");
    assert_eq!(checkin["applied_sha"], json!(good));
    let drift = json!([{"service": "api", "why": "unhealthy"}]);
    assert_eq!(checkin["drift"], drift, "{checkin}");
    for request in env.received() {
        assert_ne!(request["status"], 422, "{request}");
    }
}
