//! The agent entrypoint, called without a socket.

use super::*;
use crate::bao::BaoSettings;
use crate::bao::FakeBao;

struct World {
    tenancy: Tenancy,
    bao: Arc<FakeBao>,
    token: String,
}

fn world() -> World {
    let grants = Arc::new(Grants::new().unwrap());
    let bao = Arc::new(FakeBao::new(Arc::clone(&grants), BaoSettings::default()));
    let token = bao.mint_token("env-qa-02", "j1", 3600, true).id;
    let settings = TenancySettings::new("env-qa-02");
    World {
        tenancy: Tenancy::new(grants, Bearer::Fake(Arc::clone(&bao)), settings),
        bao,
        token,
    }
}

impl World {
    fn send(&self, method: &str, target: &str, body: &str) -> Response {
        let headers = vec![
            ("Authorization".to_owned(), format!("Bearer {}", self.token)),
            ("Content-Type".to_owned(), "application/json".to_owned()),
        ];
        let request = Request {
            method: method.into(),
            target: target.into(),
            headers,
            body: body.into(),
        };
        self.tenancy.handle(&request)
    }

    fn post(&self, verb: &str, body: &Value) -> Response {
        self.send("POST", &format!("/v1/agent/{verb}"), &body.to_string())
    }

    fn code(&self, verb: &str, body: &Value) -> (u16, String) {
        let answer = self.post(verb, body);
        let code = answer.body_json()["detail"]["code"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        (answer.status, code)
    }
}

fn us() -> Value {
    json!({"env_id": "env-qa-02"})
}

#[test]
fn a_wanted_bundle_is_offered_until_it_is_applied() {
    let world = world();
    let bundle = Bundle::sample("env-qa-02", "demo:1").build();
    assert_eq!(world.post("checkin", &us()).body_json()["action"], "none");
    world.tenancy.apply(&bundle);
    let answer = world.post("checkin", &us()).body_json();
    assert_eq!(
        (&answer["action"], &answer["desired_sha"]),
        (&json!("apply"), &json!(bundle.sha()))
    );
    let fetched = world.send("GET", answer["bundle_url"].as_str().unwrap(), "");
    assert_eq!(fetched.body, bundle.bytes());
    assert_eq!(fetched.header("x-bundle-sha256"), Some(bundle.sha()));
    let applied = json!({"env_id": "env-qa-02", "applied_sha": bundle.sha()});
    assert_eq!(
        world.post("checkin", &applied).body_json()["action"],
        "none"
    );
    assert_eq!(world.tenancy.checkins().len(), 3);
    world.tenancy.remove_bundle(bundle.sha());
    assert_eq!(
        world
            .send("GET", answer["bundle_url"].as_str().unwrap(), "")
            .status,
        404
    );
}

#[test]
fn bearers_are_pinned_and_can_be_superseded() {
    let world = world();
    assert_eq!(
        world.code("checkin", &json!({"env_id": "env-qa-03"})),
        (403, "AGENT_ENV_MISMATCH".into())
    );
    assert_eq!(
        world
            .send("GET", "/v1/agent/bundle/env-qa-03/aa", "")
            .status,
        403
    );
    world.tenancy.supersede("j1");
    assert_eq!(
        world.code("checkin", &us()),
        (401, "AGENT_UNAUTHENTICATED".into())
    );
    let again = World {
        token: world.bao.mint_token("env-qa-02", "j2", 3600, true).id,
        ..world
    };
    assert_eq!(again.post("checkin", &us()).status, 200);
    again.bao.revoke_all();
    assert_eq!(
        again.code("checkin", &us()),
        (401, "AGENT_UNAUTHENTICATED".into())
    );
    let elsewhere = World {
        token: again.bao.mint_token("env-qa-03", "j3", 3600, true).id,
        ..again
    };
    assert_eq!(
        elsewhere.code("checkin", &us()),
        (403, "AGENT_ENV_MISMATCH".into())
    );
}

#[test]
fn the_sixth_lease_of_an_hour_is_refused_with_a_wait() {
    let world = world();
    for _ in 0..5 {
        let lease = world
            .post("lease", &json!({"env_id": "env-qa-02", "reason": "apply"}))
            .body_json();
        assert!(
            world
                .tenancy
                .grants
                .verify(lease["login_jwt"].as_str().unwrap())
                .is_ok()
        );
        assert_eq!(lease["ttl_s"], 3600);
    }
    let refused = world.post("lease", &us());
    assert_eq!(
        (refused.status, &refused.body_json()["detail"]["code"]),
        (429, &json!("LEASE_RATE_LIMITED"))
    );
    assert!(
        refused
            .header("retry-after")
            .unwrap()
            .parse::<u64>()
            .unwrap()
            >= 3590
    );
    world.tenancy.age_leases(Duration::from_secs(3600));
    assert_eq!(
        world
            .post("lease", &json!({"env_id": "env-qa-02", "reason": "renew"}))
            .status,
        200
    );
    assert_eq!(
        world.tenancy.lease_reasons().last().map(String::as_str),
        Some("renew")
    );
    assert_eq!(world.tenancy.leases_granted(), 6);
}

#[test]
fn bodies_are_judged_as_fastapi_does() {
    let world = world();
    let first = |answer: Response| {
        answer.body_json()["detail"][0]["type"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(
        first(world.send("POST", "/v1/agent/checkin", "{bad")),
        "json_invalid"
    );
    assert_eq!(first(world.post("checkin", &json!({}))), "missing");
    assert_eq!(
        first(world.post("lease", &json!({"env_id": "env-qa-02", "reason": "fun"}))),
        "literal_error"
    );
    world
        .tenancy
        .set(|settings| settings.reject_fields = vec!["facts".to_owned()]);
    let full = json!({"env_id": "env-qa-02", "facts": {"hostname": "h"}});
    assert_eq!(first(world.post("checkin", &full)), "extra_forbidden");
    assert_eq!(world.post("checkin", &us()).status, 200);
    assert_eq!(world.send("GET", "/v1/agent/checkin", "").status, 405);
    assert_eq!(
        world.send("GET", "/nowhere", "").body_json(),
        json!({"detail": "Not Found"})
    );
}

#[test]
fn answers_can_be_bent() {
    let world = world();
    world.tenancy.set(|settings| {
        settings
            .checkin_extra
            .insert("action".to_owned(), json!("dance"));
        settings.checkin_without.push("env_id".to_owned());
        settings.lease_without.push("login_jwt".to_owned());
        settings
            .lease_extra
            .insert("role_id".to_owned(), json!("r"));
    });
    let answer = world.post("checkin", &us()).body_json();
    assert_eq!(
        (&answer["action"], answer.get("env_id")),
        (&json!("dance"), None)
    );
    let lease = world.post("lease", &us()).body_json();
    assert_eq!(
        (lease.get("login_jwt"), &lease["role_id"]),
        (None, &json!("r"))
    );
}

#[test]
fn reports_are_kept_as_sent() {
    let world = world();
    let report =
        json!({"env_id": "env-qa-02", "result": "failed", "detail": "X: y", "duration_s": 1.5});
    assert_eq!(world.post("report", &report).status, 200);
    assert_eq!(world.tenancy.reports(), [report]);
}
