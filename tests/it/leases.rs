//! Leases are few: one is stored before it is used, used before another is asked for, and a token that came from one is used
//! again as long as OpenBao confirms it.

use crate::support::scene::{Scene, bundle};
use control_plane::{Action, Mode, Peer, Rule};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

/// A scene whose box has a bootstrap token and is told to apply its first bundle.
fn wanting() -> Scene {
    let scene = Scene::new();
    scene.agent.tick().exits(0);
    scene.want(&bundle(1).build());
    scene.forget();
    scene
}

fn leases(scene: &Scene) -> usize {
    scene.plane.tenancy().leases_granted()
}

fn stored_lease(scene: &Scene) -> Option<Value> {
    let bytes = fs::read(scene.state_file("lease.json")).ok()?;
    serde_json::from_slice(&bytes).unwrap()
}

#[test]
fn ten_failing_applies_in_a_row_use_one_lease() {
    let scene = wanting();
    scene.docker.fail("up", 1, "port is already allocated");
    for _ in 0..10 {
        scene.agent.tick().exits(1).says("UP_FAILED");
    }
    assert_eq!(leases(&scene), 1);
    assert_eq!(scene.to_bao("/v1/auth/jwt-tenancy/login"), 1);
    scene.docker.unscript("fail-up");
    scene.agent.tick().exits(0).says("applied");
    assert_eq!(leases(&scene), 1);
}

#[test]
fn a_rate_limited_lease_goes_on_with_a_token_that_works() {
    let scene = wanting();
    scene
        .plane
        .tenancy()
        .set(|settings| settings.lease_budget = 0);
    scene
        .agent
        .tick()
        .exits(0)
        .says("no lease for now")
        .says("LEASE_RATE_LIMITED")
        .says("applied");
    let token = scene.agent.state()["token"].clone();
    assert_eq!(
        (&token["source"], &token["swap_deferred"]),
        (&json!("bootstrap"), &json!(true))
    );
    assert_eq!(
        scene.to_bao("/v1/auth/token/lookup-self"),
        1,
        "only OpenBao can say that it works"
    );

    scene
        .plane
        .tenancy()
        .set(|settings| settings.lease_budget = 5);
    scene.want_again();
    scene.agent.tick().exits(0).says("lease granted");
    let token = scene.agent.state()["token"].clone();
    assert_eq!(
        (&token["source"], &token["swap_deferred"]),
        (&json!("lease"), &json!(false))
    );
}

#[test]
fn a_rate_limited_lease_without_a_token_that_works_is_temporary() {
    let scene = wanting();
    scene
        .plane
        .tenancy()
        .set(|settings| settings.lease_budget = 0);
    scene.fault(
        Peer::Bao,
        "/v1/auth/token/lookup-self",
        Action::json(403, &json!({"errors": ["bad token"]})),
    );
    scene
        .agent
        .tick()
        .exits(75)
        .says("answered 429 to POST /v1/agent/lease with LEASE_RATE_LIMITED")
        .says("retry after");
    assert!(
        scene.plane.reports().is_empty(),
        "what passes by itself is not reported"
    );
    scene.forget();
    scene.agent.timer_tick().exits(0).says("not_due");
}

#[test]
fn a_lease_that_could_not_be_used_is_kept_and_used_first() {
    let scene = wanting();
    let sealed = scene.fault(
        Peer::Bao,
        "/v1/auth/jwt-tenancy/login",
        Action::json(503, &json!({"errors": ["Vault is sealed"]})),
    );
    scene
        .agent
        .tick()
        .exits(0)
        .says("lease granted")
        .says("no lease for now")
        .says("Vault is sealed")
        .says("applied");
    assert_eq!(leases(&scene), 1);
    let stored = scene.state_file("lease.json");
    assert_eq!(
        fs::metadata(&stored).unwrap().permissions().mode() & 0o7777,
        0o600
    );
    assert!(scene.plane.faults().remove(sealed));

    scene.want_again();
    scene
        .agent
        .tick()
        .exits(0)
        .is_silent_on("lease granted")
        .says("applied");
    assert_eq!(leases(&scene), 1);
    assert!(!stored.exists(), "a used lease is gone");
    assert_eq!(scene.agent.state()["token"]["source"], "lease");
}

#[test]
fn a_kept_lease_mends_a_token_that_was_lost() {
    let scene = wanting();
    let sealed = scene.fault(
        Peer::Bao,
        "/v1/auth/jwt-tenancy/login",
        Action::json(503, &json!({"errors": ["Vault is sealed"]})),
    );
    scene.agent.tick().exits(0);
    assert!(scene.plane.faults().remove(sealed));
    scene.lose_token();
    fs::remove_file(scene.agent.path("bootstrap.jwt")).unwrap();
    scene.agent.tick().exits(0).is_silent_on("bootstrap grant");
    assert_eq!(scene.agent.state()["token"]["source"], "lease");
}

#[test]
fn a_kept_lease_that_has_expired_or_is_refused_gives_way_to_a_new_one() {
    for change in [
        ("expires_at", json!("2020-01-01T00:00:00Z")),
        ("login_jwt", json!("not.a.grant")),
    ] {
        let scene = wanting();
        let sealed = scene.fault(
            Peer::Bao,
            "/v1/auth/jwt-tenancy/login",
            Action::json(503, &json!({"errors": ["Vault is sealed"]})),
        );
        scene.agent.tick().exits(0);
        assert!(scene.plane.faults().remove(sealed));
        let mut lease = stored_lease(&scene).unwrap();
        lease[change.0] = change.1.clone();
        fs::write(scene.state_file("lease.json"), lease.to_string()).unwrap();
        scene.want_again();
        scene
            .agent
            .tick()
            .exits(0)
            .says("lease granted")
            .says("applied");
        assert_eq!(leases(&scene), 2, "{change:?}");
        assert_eq!(stored_lease(&scene), None);
    }
}

#[test]
fn being_killed_between_lease_and_login_costs_one_lease() {
    let scene = wanting();
    let slow = scene.fault(Peer::Bao, "/v1/auth/jwt-tenancy/login", Action::Hang);
    for n in 1..=20 {
        let tick = scene.start_tick(&["tick", "--force"]);
        assert!(scene.log().wait_for(
            Peer::Bao,
            "/v1/auth/jwt-tenancy/login",
            n,
            Duration::from_secs(30)
        ));
        tick.signal(Signal::KILL);
        assert_eq!(tick.end().code(), None);
        assert_eq!(leases(&scene), 1);
    }
    assert!(scene.plane.faults().remove(slow));
    scene.agent.tick().exits(0).says("applied");
    assert_eq!(leases(&scene), 1);
}

#[test]
fn a_leased_token_that_openbao_does_not_know_is_swapped() {
    let scene = Scene::applied();
    scene.want_again();
    scene.fault(
        Peer::Bao,
        "/v1/auth/token/lookup-self",
        Action::json(403, &json!({"errors": ["bad token"]})),
    );
    scene
        .agent
        .tick()
        .exits(0)
        .says("OpenBao does not know the token any more")
        .says("lease granted");
    assert_eq!(leases(&scene), 2);
}

#[test]
fn a_leased_token_with_too_little_time_is_swapped() {
    let scene = Scene::applied();
    scene.want_again();
    scene.bao().age_tokens(Duration::from_secs(20 * 3_600));
    scene
        .agent
        .tick()
        .exits(0)
        .says("too little time left for an apply")
        .says("lease granted");
}

#[test]
fn a_lookup_in_trouble_is_no_reason_to_lease() {
    let scene = Scene::applied();
    scene.want_again();
    scene.bao().set_mode(Mode::Sealed);
    scene.agent.tick().exits(75).says("Vault is sealed");
    assert_eq!(leases(&scene), 1);
}

#[test]
fn the_new_token_is_on_the_disk_before_the_old_one_is_revoked() {
    let scene = wanting();
    let old = scene.token();
    scene.bao().set(|settings| settings.may_revoke_self = true);
    let hang = scene.fault(Peer::Bao, "/v1/auth/token/revoke-self", Action::Hang);
    let tick = scene.start_tick(&["tick", "--force"]);
    assert!(scene.log().wait_for(
        Peer::Bao,
        "/v1/auth/token/revoke-self",
        1,
        Duration::from_secs(30)
    ));
    let on_disk = scene.token();
    assert!(on_disk.is_some() && on_disk != old);
    tick.signal(Signal::KILL);
    tick.end();
    assert!(scene.plane.faults().remove(hang));
    scene.agent.tick().exits(0).says("applied");
    assert_eq!(leases(&scene), 1);
}

#[test]
fn a_lease_without_a_grant_says_what_is_wrong() {
    for (extra, words) in [
        (None, "it has no login_jwt"),
        (
            Some("wrapping_token"),
            "it is an AppRole lease; those were retired on 2026-09-05",
        ),
        (
            Some("role_id"),
            "it is an AppRole lease; those were retired on 2026-09-05",
        ),
    ] {
        let scene = wanting();
        scene.plane.tenancy().set(|settings| {
            settings.lease_without = vec!["login_jwt".into()];
            if let Some(name) = extra {
                settings.lease_extra.insert(name.into(), "x".into());
            }
        });
        scene
            .agent
            .tick()
            .exits(1)
            .says("tenancy's lease cannot be used")
            .says(words);
        let report = scene.last_report();
        assert_eq!(
            (&report["result"], &report["code"]),
            (&json!("failed"), &json!("LEASE_SHAPE"))
        );
        assert!(
            report["detail"]
                .as_str()
                .unwrap()
                .starts_with("LEASE_SHAPE: "),
            "{report}"
        );
    }
}

#[test]
fn a_lease_of_another_environment_is_a_mismatch() {
    let scene = wanting();
    scene
        .plane
        .tenancy()
        .set(|settings| settings.lease_grant = Some(control_plane::GrantSpec::new("env-other")));
    scene
        .agent
        .tick()
        .exits(78)
        .says("the deploy grant is for env-other");
    assert_eq!(scene.agent.current(), None);
}

#[test]
fn a_lease_that_openbao_refuses_is_forgotten_and_reported() {
    let scene = wanting();
    scene.plane.tenancy().set(|settings| {
        settings.lease_grant = Some(control_plane::GrantSpec::new("env-qa-02").expires_in(-300))
    });
    scene
        .agent
        .tick()
        .exits(1)
        .says("LOGIN_REFUSED")
        .says("token is expired");
    assert_eq!(stored_lease(&scene), None);
    assert_eq!(scene.last_report()["code"], "LOGIN_REFUSED");
}

#[test]
fn the_lease_says_where_to_log_in_and_never_at_another_host() {
    let scene = wanting();
    scene
        .bao()
        .set(|settings| settings.auth_mount = "other-mount".into());
    scene.plane.tenancy().set(|settings| {
        settings
            .lease_extra
            .insert("mount".into(), "other-mount".into());
        settings
            .lease_extra
            .insert("addr".into(), "https://elsewhere.example:8200".into());
    });
    scene
        .agent
        .tick()
        .exits(0)
        .says("the lease names another OpenBao than the configuration; the configuration's stays")
        .says("applied");
    assert_eq!(scene.to_bao("/v1/auth/other-mount/login"), 1);
}

#[test]
fn a_lease_is_refused_once_by_its_bearer_and_then_repeated() {
    let scene = wanting();
    scene.agent.stage_grant(&scene.plane.grant());
    let body =
        json!({"detail": {"code": "AGENT_UNAUTHENTICATED", "message": "grant was superseded"}});
    scene.plane.fault(
        Rule::on(Peer::Tenancy, Action::json(401, &body))
            .path("/v1/agent/lease")
            .once(),
    );
    scene
        .agent
        .tick()
        .exits(0)
        .says("tenancy refuses the token")
        .says("logged in with the bootstrap grant")
        .says("applied");
}

#[test]
fn a_refused_token_is_not_used_again_when_the_new_login_has_to_wait() {
    let scene = wanting();
    let old = scene.token().unwrap();
    scene.agent.stage_grant(&scene.plane.grant());
    let body =
        json!({"detail": {"code": "AGENT_UNAUTHENTICATED", "message": "grant was superseded"}});
    scene.plane.fault(
        Rule::on(Peer::Tenancy, Action::json(401, &body))
            .path("/v1/agent/lease")
            .once(),
    );
    scene.fault(
        Peer::Bao,
        "/v1/auth/jwt-tenancy/login",
        Action::json(503, &json!({"errors": ["Vault is sealed"]})),
    );
    scene
        .agent
        .tick()
        .exits(75)
        .says("tenancy refuses the token")
        .says("Vault is sealed");
    let to_bao = scene
        .log()
        .requests()
        .into_iter()
        .filter(|logged| logged.peer == Peer::Bao);
    assert!(
        to_bao.clone().count() == 1
            && to_bao
                .clone()
                .all(|logged| logged.request.header("x-vault-token").is_none())
    );
    scene.plane.faults().clear();
    scene.forget();
    scene.agent.tick().exits(0).says("applied");
    assert!(
        scene
            .log()
            .requests()
            .iter()
            .all(|logged| logged.request.bearer() != Some(old.as_str()))
    );
}
