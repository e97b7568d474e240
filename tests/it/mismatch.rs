//! A box that is told that it is another environment's asks nobody again until its configuration or its grant changes.

use crate::support::scene::Scene;
use control_plane::{Action, Peer};
use serde_json::json;

/// A box that was told that it is another environment's.
fn mismatched() -> Scene {
    let scene = Scene::new();
    scene.agent.tick().exits(0);
    scene.forget();
    let body = json!({"detail": {"code": "AGENT_ENV_MISMATCH", "message": "token is pinned to environment env-other"}});
    scene.fault(Peer::Tenancy, "/v1/agent/checkin", Action::json(403, &body));
    scene
        .agent
        .tick()
        .exits(78)
        .says("tenancy says that our token is not for env-qa-02")
        .says("pinned to environment env-other")
        .says("re-run the install kit");
    scene.forget();
    scene
}

#[test]
fn a_mismatch_is_remembered_without_network() {
    let scene = mismatched();
    for _ in 0..2 {
        scene.make_due();
        scene
            .agent
            .timer_tick()
            .exits(78)
            .says("remembered, nothing was asked")
            .says("tick --force");
    }
    assert!(scene.requests().is_empty() && scene.docker.verbs().is_empty());
    assert!(
        scene.token().is_some(),
        "the token may still be right for another configuration"
    );
}

#[test]
fn a_mismatch_is_left_by_force_by_another_configuration_and_by_another_grant() {
    let scene = mismatched();
    scene.agent.tick().exits(78).says("tenancy says");
    assert_eq!(scene.requests(), ["checkin"]);

    let mut scene = mismatched();
    scene.plane.faults().clear();
    scene.agent.set("site", "elsewhere");
    scene.agent.timer_tick().exits(0);
    assert_eq!(scene.requests(), ["checkin"]);

    let scene = mismatched();
    scene.plane.faults().clear();
    scene.agent.stage_grant(&scene.plane.grant());
    scene.agent.timer_tick().exits(0);
}

#[test]
fn a_grant_of_another_environment_is_a_mismatch() {
    let scene = Scene::new();
    scene
        .agent
        .stage_grant(&scene.plane.grants().deploy_grant("env-other"));
    scene
        .agent
        .tick()
        .exits(78)
        .says("the deploy grant is for env-other, the configuration says env-qa-02")
        .says("re-run the install kit");
    assert_eq!(scene.token(), None, "such a token is not kept");
    scene.forget();
    scene.agent.timer_tick().exits(78).says("remembered");
    assert!(scene.requests().is_empty());
    scene.agent.stage_grant(&scene.plane.grant());
    scene.agent.timer_tick().exits(0);
}

#[test]
fn a_checkin_for_another_environment_is_a_mismatch() {
    let scene = Scene::new();
    scene.agent.tick().exits(0);
    scene.forget();
    scene.plane.tenancy().set(|settings| {
        drop(
            settings
                .checkin_extra
                .insert("env_id".into(), "env-other".into()),
        )
    });
    scene
        .agent
        .tick()
        .exits(78)
        .says("tenancy answers for env-other, the configuration says env-qa-02");
    scene.forget();
    scene.agent.timer_tick().exits(78).says("remembered");
    assert!(scene.requests().is_empty());
}
