//! What an attempt to break the agent found: each of these once went wrong.

use crate::support::scene::{DB_VALUE, Scene, bundle, files_below};
use serde_json::json;

/// A scene whose second bundle failed in `up`, with tenancy back at the first.
fn went_back_after_a_failure() -> Scene {
    let scene = Scene::applied();
    scene.want(&bundle(2).build());
    scene.docker.script("health", "api=unhealthy\n");
    scene.docker.fail("up", 1, "port is already allocated");
    scene.agent.tick().exits(1).says("UP_FAILED");
    scene.docker.unscript("health");
    scene.plane.set_none();
    scene
}

#[test]
fn a_bring_back_that_failed_is_tried_until_the_applied_release_is_up() {
    let scene = went_back_after_a_failure();
    scene.agent.tick().exits(1).says("UP_FAILED");
    assert!(!scene.agent.state()["unsettled"].is_null());
    scene.docker.unscript("fail-up");
    scene.docker.forget();
    scene.agent.tick().exits(0).says("healthy");
    assert_eq!(scene.docker.count("compose up"), 1);
    assert!(scene.agent.state()["unsettled"].is_null());
    scene.docker.forget();
    scene.agent.tick().exits(0);
    assert_eq!(scene.docker.count("compose up"), 0);
}

#[test]
fn a_tick_that_reads_no_secret_still_shows_none() {
    let scene = Scene::applied();
    scene.forget();
    scene
        .docker
        .fail("down", 1, &format!("volume is in use: {DB_VALUE}"));
    scene.plane.down(false);
    scene
        .agent
        .tick()
        .exits(1)
        .says("[redacted:DB]")
        .is_silent_on(DB_VALUE);
    assert!(!scene.last_report().to_string().contains(DB_VALUE));
    for (path, bytes) in files_below(&scene.agent.state_dir()) {
        let holds = bytes
            .windows(DB_VALUE.len())
            .any(|window| window == DB_VALUE.as_bytes());
        assert!(!holds, "{}", path.display());
    }
}

#[test]
fn a_record_that_the_clock_contradicts_is_looked_up_and_corrected() {
    let scene = Scene::applied();
    scene.token_ends_in(400 * 86_400);
    scene.forget();
    scene.agent.tick().exits(0).says("the clock was set");
    assert!(
        scene.requests().contains(&"lookup-self".to_owned()),
        "{:?}",
        scene.requests()
    );
    scene.forget();
    scene
        .agent
        .tick()
        .exits(0)
        .is_silent_on("the clock was set");
}

#[test]
fn a_token_that_lives_by_openbaos_clock_survives_ours() {
    let scene = Scene::applied();
    std::fs::remove_file(scene.agent.path("bootstrap.jwt")).unwrap();
    scene.token_ends_in(-60);
    scene
        .agent
        .tick()
        .exits(0)
        .says("is this box's clock ahead?");
    assert!(scene.token().is_some());
    scene.agent.tick().exits(0).is_silent_on("clock");
}

#[test]
fn an_endless_interval_is_capped_at_a_day() {
    let scene = Scene::applied();
    scene.plane.tenancy().set(|tenancy| {
        let endless = json!(31_536_000);
        tenancy
            .checkin_extra
            .insert("checkin_interval_s".into(), endless);
    });
    scene.agent.tick().exits(0);
    let pulse = std::fs::read(scene.state_file("heartbeat")).unwrap();
    let pulse: serde_json::Value = serde_json::from_slice(&pulse).unwrap();
    assert_eq!(pulse["interval_s"], 86_400);
}

#[test]
fn a_lease_that_has_done_its_work_is_forgotten() {
    let scene = Scene::applied();
    let grant = scene.agent.state()["token"]["grant_sha256"].clone();
    assert!(grant.is_string());
    // As after a kill between the login and the forgetting.
    let leased = scene.plane.grants().deploy_grant("env-qa-02");
    let stored = json!({"login_jwt": leased, "ttl_s": 3600, "expires_at": "2999-01-01T00:00:00Z"});
    let file = scene.state_file("lease.json");
    std::fs::write(&file, stored.to_string()).unwrap();
    let digest = monky_deployd::names::Sha256::of(leased.as_bytes());
    scene.edit_state(|state| state["token"]["grant_sha256"] = json!(digest));
    scene.lose_token();
    scene
        .agent
        .tick()
        .exits(0)
        .says("logged in with the bootstrap grant");
    assert!(!file.exists());
}

#[test]
fn a_restore_after_a_failed_apply_brings_the_last_good_release_and_a_second_one_keeps_the_hold() {
    let scene = Scene::applied();
    let good = bundle(2).build();
    scene.want(&good);
    scene.agent.tick().exits(0);
    let broken = bundle(3).build();
    scene.want(&broken);
    scene.docker.fail("up", 1, "port is already allocated");
    scene.agent.tick().exits(1);
    scene.docker.unscript("fail-up");
    let is_held = || {
        let held = scene.agent.state()["held"]["sha"].clone();
        assert_eq!(held, broken.sha(), "what tenancy wants stays held");
    };
    scene
        .agent
        .run(&["restore"])
        .exits(0)
        .says(&good.sha()[..12]);
    assert_eq!(scene.applied_sha().as_deref(), Some(good.sha()));
    is_held();
    scene.agent.run(&["restore"]).exits(0);
    is_held();
    scene.due_tick().exits(1).says("is held");
}

#[test]
fn a_bundle_of_another_environment_is_told_with_everything_else() {
    let scene = Scene::applied();
    let meta =
        json!({"env_id": "env-prod-01", "generation": 9, "agent": {"min_version": "99.0.0"}});
    let other = bundle(2).meta(&meta).build();
    scene.want(&other);
    let ran = scene.agent.tick();
    ran.exits(1)
        .says("BUNDLE_ENV_MISMATCH")
        .says("AGENT_TOO_OLD");
    assert_eq!(scene.last_report()["code"], "BUNDLE_ENV_MISMATCH");
    assert_eq!(
        scene.to_tenancy("/v1/agent/lease"),
        1,
        "the lease of the first apply"
    );
}
