//! The token: bootstrapped, reused, renewed, swapped, refused, and never sent again once it was. The grant it came from is
//! spent when it is of no use any more.

use crate::support::scene::{ENV, Scene};
use control_plane::{Action, GrantSpec, Peer};
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;

const CHECKIN: &str = "/v1/agent/checkin";

/// A scene whose box has logged in with its bootstrap grant and is told that nothing is to change.
fn bootstrapped() -> Scene {
    let scene = Scene::new();
    scene
        .agent
        .tick()
        .exits(0)
        .says("logged in with the bootstrap grant")
        .says("converged");
    assert_eq!(scene.agent.state()["token"]["source"], "bootstrap");
    scene.forget();
    scene
}

/// The requests that a token was sent with, to either peer.
fn sent_with(scene: &Scene, token: &str) -> usize {
    let carries = |logged: &&control_plane::Logged| {
        logged.request.bearer() == Some(token)
            || logged.request.header("x-vault-token") == Some(token)
    };
    scene.log().requests().iter().filter(carries).count()
}

#[test]
fn a_token_is_used_again_and_looked_up_by_nobody() {
    let scene = bootstrapped();
    let token = scene.token().unwrap();
    scene.agent.tick().exits(0);
    scene.agent.tick().exits(0);
    assert_eq!(scene.requests(), ["checkin", "checkin"]);
    assert_eq!(sent_with(&scene, &token), 2);
    let mode = fs::metadata(scene.state_file("token"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o600);
    let state = fs::read_to_string(scene.state_file("state.json")).unwrap();
    assert!(!state.contains(&token), "state.json holds no token");
}

#[test]
fn a_lost_token_is_bootstrapped_again_with_a_good_grant() {
    let scene = bootstrapped();
    scene.lose_token();
    scene
        .agent
        .tick()
        .exits(0)
        .says("logged in with the bootstrap grant");
    assert_eq!(scene.requests(), ["login", "checkin"]);
}

#[test]
fn a_token_that_has_expired_by_the_clock_is_replaced_without_asking() {
    let scene = bootstrapped();
    scene.token_ends_in(-5);
    scene
        .agent
        .tick()
        .exits(0)
        .says("the token has expired")
        .says("logged in with the bootstrap grant");
    assert_eq!(scene.requests(), ["login", "checkin"]);
}

#[test]
fn a_token_that_runs_out_is_renewed() {
    let scene = bootstrapped();
    let token = scene.token();
    scene.token_ends_in(6 * 3_600 - 60);
    scene.agent.tick().exits(0).says("token renewed");
    assert_eq!(scene.requests(), ["renew-self", "checkin"]);
    assert_eq!(scene.token(), token);
    scene.agent.tick().exits(0).is_silent_on("renewed");
}

#[test]
fn a_token_with_enough_time_left_is_left_alone() {
    let scene = bootstrapped();
    scene.token_ends_in(6 * 3_600 + 60);
    scene.agent.tick().exits(0);
    assert_eq!(scene.requests(), ["checkin"]);
}

#[test]
fn a_renewal_that_no_longer_helps_ends_in_a_lease() {
    let scene = bootstrapped();
    let old = scene.token().unwrap();
    scene.bao().set(|settings| settings.token_max_ttl_s = 600);
    scene.token_ends_in(3_600);
    scene
        .agent
        .tick()
        .exits(0)
        .says("token renewed")
        .says("lease granted");
    assert_eq!(
        scene.requests(),
        ["renew-self", "lease", "login", "revoke-self", "checkin"]
    );
    assert_eq!(scene.plane.tenancy().lease_reasons(), ["renew"]);
    assert_ne!(scene.token().unwrap(), old);
    assert_eq!(scene.agent.state()["token"]["source"], "lease");
}

#[test]
fn a_token_that_cannot_be_renewed_is_swapped_without_trying() {
    let scene = Scene::new();
    scene.bao().set(|settings| settings.renewable = false);
    scene.agent.tick().exits(0);
    scene.forget();
    scene.token_ends_in(3_600);
    scene.agent.tick().exits(0).says("lease granted");
    assert_eq!(
        scene.requests(),
        ["lease", "login", "revoke-self", "checkin"]
    );
    assert_eq!(scene.plane.tenancy().lease_reasons(), ["renew"]);
}

#[test]
fn a_renewal_that_openbao_refuses_ends_in_a_lease() {
    let scene = bootstrapped();
    scene.token_ends_in(3_600);
    scene.fault(
        Peer::Bao,
        "/v1/auth/token/renew-self",
        Action::json(400, &json!({"errors": ["lease is not renewable"]})),
    );
    scene
        .agent
        .tick()
        .exits(0)
        .says("the token cannot be renewed: lease is not renewable")
        .says("lease granted");
}

#[test]
fn a_dead_token_is_not_leased_with_and_the_checkin_decides() {
    let scene = bootstrapped();
    scene.token_ends_in(3_600);
    scene.bao().revoke_all();
    scene
        .agent
        .tick()
        .exits(1)
        .says("the checkin decides")
        .says("re-run the install kit");
    assert_eq!(scene.requests(), ["renew-self", "checkin"]);
}

#[test]
fn openbao_out_of_reach_does_not_matter_while_the_token_lives() {
    let scene = bootstrapped();
    scene.token_ends_in(3_600);
    scene.plane.refuse_connections(Peer::Bao);
    scene
        .agent
        .tick()
        .exits(0)
        .says("could not be prolonged, going on with it")
        .says("converged");
}

#[test]
fn a_hand_made_token_is_looked_up_once() {
    let scene = bootstrapped();
    let other = scene.bao().mint_token(ENV, "jti-by-hand", 86_400, true);
    fs::write(scene.state_file("token"), format!("{}\n", other.id)).unwrap();
    scene.agent.tick().exits(0);
    scene.agent.tick().exits(0);
    assert_eq!(scene.requests(), ["lookup-self", "checkin", "checkin"]);
    assert_eq!(
        sent_with(&scene, &other.id),
        3,
        "a trailing newline is no part of a token"
    );
}

#[test]
fn a_root_token_never_expires() {
    let scene = bootstrapped();
    fs::write(scene.state_file("token"), scene.bao().root_token()).unwrap();
    // Tenancy does not know it; what the agent makes of its ttl of 0 shows all the same.
    let ran = scene.agent.tick();
    ran.exits(0)
        .is_silent_on("the token has expired")
        .says("AGENT_UNAUTHENTICATED");
    assert_eq!(scene.to_bao("/v1/auth/token/lookup-self"), 1);
    assert_eq!(
        scene.to_bao("/v1/auth/token/renew-self") + scene.to_tenancy("/v1/agent/lease"),
        0
    );
}

#[test]
fn a_refused_token_is_set_aside_and_its_grant_is_spent() {
    let scene = bootstrapped();
    let token = scene.token().unwrap();
    scene.bao().revoke_all();
    let ran = scene.agent.tick();
    ran.exits(1)
        .says("AGENT_UNAUTHENTICATED")
        .says("token is unknown, expired or revoked")
        .says("re-run the install kit")
        .says("is spent");
    assert_eq!(scene.token(), None);
    let refused = scene.state_file("token.refused");
    assert_eq!(fs::read_to_string(&refused).unwrap(), token);
    assert_eq!(
        fs::metadata(&refused).unwrap().permissions().mode() & 0o7777,
        0o600
    );

    // From now on nobody is asked.
    scene.forget();
    scene.agent.tick().exits(1).says("re-run the install kit");
    scene.make_due();
    scene
        .agent
        .timer_tick()
        .exits(1)
        .says("re-run the install kit");
    assert_eq!(
        scene.requests(),
        Vec::<String>::new(),
        "a spent grant is never used again"
    );

    // A fresh kit is seen at once, whatever the pacing says.
    scene.agent.stage_grant(&scene.plane.grant());
    scene
        .agent
        .timer_tick()
        .exits(0)
        .says("logged in with the bootstrap grant");
    assert!(!refused.exists(), "it is deleted once a new one works");
    assert_eq!(sent_with(&scene, &token), 0, "it is never sent again");
}

#[test]
fn a_fresh_grant_mends_a_refused_token_in_the_same_tick() {
    for path in [CHECKIN, "/v1/agent/bundle/", "/v1/agent/report"] {
        let scene = bootstrapped();
        let old = scene.token().unwrap();
        let jti = scene.bao().live_tokens()[0].grant_jti().to_owned();
        scene.agent.stage_grant(&scene.plane.grant());
        if path == CHECKIN {
            scene.plane.tenancy().supersede(&jti);
        } else {
            scene.plane.apply(&crate::support::scene::bundle(1).build());
            let body = json!({"detail": {"code": "AGENT_UNAUTHENTICATED", "message": "grant was superseded"}});
            scene.plane.fault(
                control_plane::Rule::on(Peer::Tenancy, Action::json(401, &body))
                    .path(path)
                    .once(),
            );
        }
        let ran = scene.agent.tick();
        ran.exits(0)
            .says("tenancy refuses the token")
            .says("logged in with the bootstrap grant");
        assert_eq!(scene.to_tenancy(path), 2, "{path} is repeated once");
        assert!(!scene.state_file("token.refused").exists());
        let after = scene
            .log()
            .requests()
            .iter()
            .rev()
            .take_while(|logged| !logged.request.path().ends_with("/login"))
            .filter(|logged| logged.request.bearer() == Some(old.as_str()))
            .count();
        assert_eq!(after, 0, "{path}: the refused token is never sent again");
    }
}

#[test]
fn a_second_refusal_in_a_tick_is_final() {
    let scene = bootstrapped();
    scene.agent.stage_grant(&scene.plane.grant());
    scene
        .plane
        .tenancy()
        .set(|settings| settings.retired = true);
    scene.agent.tick().exits(1).says("AGENT_UNAUTHENTICATED");
    assert_eq!(scene.requests(), ["checkin", "login", "checkin"]);
}

#[test]
fn another_401_or_403_keeps_the_token() {
    for (status, body, words) in [
        (
            401,
            json!({"detail": "gateway says no"}),
            "answered 401 to POST /v1/agent/checkin: gateway says no",
        ),
        (
            403,
            json!({"code": "WAF", "message": "blocked"}),
            "answered 403 to POST /v1/agent/checkin with WAF: blocked",
        ),
        (
            418,
            json!({"error": "teapot"}),
            "answered 418 to POST /v1/agent/checkin: teapot",
        ),
    ] {
        let scene = bootstrapped();
        let token = scene.token();
        scene.fault(Peer::Tenancy, CHECKIN, Action::json(status, &body));
        scene.agent.tick().exits(1).says(words);
        assert_eq!(scene.token(), token);
        scene.plane.faults().clear();
        scene.agent.tick().exits(0);
    }
}

#[test]
fn a_grant_that_openbao_refuses_for_good_is_spent() {
    let rows: [(&str, GrantSpec, &str); 4] = [
        (
            "expired",
            GrantSpec::new(ENV).expires_in(-300),
            "token is expired",
        ),
        (
            "of another kind",
            GrantSpec::new(ENV).claim("kind", "user"),
            "claim",
        ),
        (
            "for another audience",
            GrantSpec::new(ENV).claim("aud", "somebody"),
            "audience",
        ),
        (
            "not yet valid",
            GrantSpec::new(ENV).claim("nbf", 4_000_000_000_u64),
            "not yet valid",
        ),
    ];
    for (what, spec, words) in rows {
        let scene = Scene::new();
        scene.agent.stage_grant(&scene.plane.grants().sign(&spec));
        scene
            .agent
            .tick()
            .exits(1)
            .says("answered 400")
            .says(words)
            .says("re-run the install kit");
        scene.forget();
        scene
            .agent
            .tick()
            .exits(1)
            .says("is spent")
            .says("re-run the install kit");
        assert!(scene.requests().is_empty(), "{what}");
        scene.agent.stage_grant(&scene.plane.grant());
        scene.agent.timer_tick().exits(0);
    }
}

#[test]
fn a_wrong_role_or_mount_is_not_the_grants_fault() {
    let mut scene = Scene::new();
    scene.agent.set("bao.role", "no-such-role");
    scene
        .agent
        .tick()
        .exits(1)
        .says("OpenBao has no role no-such-role at auth mount jwt-tenancy")
        .says("bao.role");
    scene
        .agent
        .unset("bao.role")
        .set("bao.auth_mount", "no-such-mount");
    scene
        .agent
        .tick()
        .exits(1)
        .says("answered 403")
        .says("check that OpenBao has the auth mount no-such-mount");
    scene.agent.unset("bao.auth_mount");
    scene
        .agent
        .timer_tick()
        .exits(0)
        .says("logged in with the bootstrap grant");
}

#[test]
fn no_grant_says_what_to_do_and_asks_nobody() {
    let scene = Scene::new();
    let path = scene.agent.path("bootstrap.jwt");
    fs::write(&path, "\n").unwrap();
    scene
        .agent
        .tick()
        .exits(1)
        .says("bootstrap.jwt holds no grant")
        .says("re-run the install kit");
    fs::remove_file(&path).unwrap();
    scene
        .agent
        .tick()
        .exits(1)
        .says("bootstrap.jwt is missing")
        .says("re-run the install kit");
    assert!(scene.requests().is_empty());
}
