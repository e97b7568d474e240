//! How often a failing bundle is tried, and what makes it be tried at once.

use crate::support::scene::{Scene, bundle};
use control_plane::{Action, Peer};
use monky_deployd::host::clock::Timestamp;
use serde_json::json;

/// A box on which the second bundle has just failed.
fn failing(code: u8, words: &str) -> Scene {
    let scene = Scene::applied();
    scene.docker.fail("pull", code, words);
    scene.want(&bundle(2).build());
    scene.agent.tick().exits(1).says("PULL_");
    scene.make_due();
    scene.forget();
    scene
}

/// The seconds between the last failure and the next try.
fn pause_s(scene: &Scene) -> i64 {
    let failure = scene.agent.state()["failure"].clone();
    let at = |name: &str| Timestamp::parse(failure[name].as_str().unwrap()).unwrap();
    at("next_try_at").since_s(at("failed_at"))
}

/// Lets the back-off end.
fn let_the_pause_pass(scene: &Scene) {
    scene.edit_state(|state| {
        state["failure"]["next_try_at"] = state["failure"]["failed_at"].clone()
    });
    scene.make_due();
}

#[test]
fn a_failing_bundle_waits_and_says_until_when() {
    let scene = failing(1, "manifest unknown");
    let until = scene.agent.state()["failure"]["next_try_at"]
        .as_str()
        .unwrap()
        .to_owned();
    scene
        .agent
        .timer_tick()
        .exits(1)
        .says(&format!("failed with PULL_NOT_FOUND, next try at {until}"))
        .says("PUT_OFF");
    assert_eq!(
        scene.requests(),
        ["checkin"],
        "check-ins go on, nothing is fetched"
    );
    assert!(
        scene
            .plane
            .reports()
            .iter()
            .filter(|report| report["result"] == "failed")
            .count()
            == 1,
        "a wait is not reported"
    );
    assert_eq!(
        scene.agent.state()["last"]["code"],
        "PULL_NOT_FOUND",
        "nor is it what happened last"
    );
}

#[test]
fn the_pause_doubles_and_its_cap_depends_on_the_cause() {
    for (words, pauses) in [
        ("manifest unknown", [10, 20, 40, 80, 160, 320]),
        ("no basic auth credentials", [10, 20, 40, 80, 160, 300]),
    ] {
        let scene = failing(1, words);
        let mut seen = vec![pause_s(&scene)];
        for _ in 1..pauses.len() {
            let_the_pause_pass(&scene);
            scene.agent.timer_tick().exits(1).says("PULL_");
            seen.push(pause_s(&scene));
        }
        assert_eq!(seen, pauses, "{words}");
    }
}

#[test]
fn a_new_bundle_a_force_and_a_changed_configuration_are_tried_at_once() {
    let scene = failing(1, "manifest unknown");
    scene.docker.unscript("fail-pull");
    scene.want(&bundle(3).build());
    scene.agent.timer_tick().exits(0).says("applied");

    let scene = failing(1, "manifest unknown");
    scene.docker.unscript("fail-pull");
    scene.agent.tick().exits(0).says("applied");

    let mut scene = failing(1, "manifest unknown");
    scene.docker.unscript("fail-pull");
    scene.agent.set("site", "elsewhere");
    scene.agent.timer_tick().exits(0).says("applied");

    let scene = failing(1, "manifest unknown");
    scene.docker.unscript("fail-pull");
    scene.agent.stage_grant(&scene.plane.grant());
    scene.agent.timer_tick().exits(0).says("applied");
}

#[test]
fn what_passes_by_itself_does_not_count() {
    let scene = Scene::applied();
    scene.want(&bundle(2).build());
    scene.fault(
        Peer::Bao,
        "/v1/monky/",
        Action::json(503, &json!({"errors": ["Vault is sealed"]})),
    );
    scene.agent.tick().exits(75).says("Vault is sealed");
    assert!(scene.agent.state()["failure"].is_null());
    scene.plane.faults().clear();
    scene.forget();
    // The next checkin is due after our own interval, not after tenancy's.
    scene.agent.timer_tick().exits(0).says("not_due");
    scene.make_due();
    scene.agent.timer_tick().exits(0).says("applied");
}

#[test]
fn a_clock_that_was_set_back_does_not_put_a_bundle_off_for_ever() {
    let scene = failing(1, "manifest unknown");
    scene.docker.unscript("fail-pull");
    scene.edit_state(|state| {
        state["failure"]["failed_at"] = "2099-01-01T00:00:00Z".into();
        state["failure"]["next_try_at"] = "2099-01-01T00:30:00Z".into();
    });
    scene.agent.timer_tick().exits(0).says("applied");
}
