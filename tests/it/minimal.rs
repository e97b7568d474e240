//! A tenancy that does not take the whole body gets the minimal one, once.

use crate::support::scene::{ENV, Scene};
use serde_json::{Value, json};

/// The bodies that came to a path.
fn bodies(scene: &Scene, path: &str) -> Vec<Value> {
    scene
        .log()
        .requests()
        .iter()
        .filter(|logged| logged.request.path() == path)
        .map(|logged| logged.request.json().unwrap())
        .collect()
}

#[test]
fn a_checkin_that_is_not_understood_is_repeated_with_the_minimal_body() {
    let scene = Scene::applied();
    scene.forget();
    scene
        .plane
        .tenancy()
        .set(|settings| settings.reject_fields = vec!["facts".into(), "agent".into()]);
    scene
        .agent
        .tick()
        .exits(0)
        .says("does not take the whole body")
        .says("body.facts");
    let sent = bodies(&scene, "/v1/agent/checkin");
    assert_eq!(sent.len(), 2);
    assert_eq!(
        sent[1],
        json!({"env_id": ENV, "applied_sha": scene.applied_sha()})
    );

    scene
        .plane
        .tenancy()
        .set(|settings| settings.reject_fields = vec!["applied_sha".into()]);
    scene
        .agent
        .tick()
        .exits(1)
        .says("answered 422 to POST /v1/agent/checkin")
        .says("body.applied_sha");
    assert_eq!(
        bodies(&scene, "/v1/agent/checkin").len(),
        4,
        "one retry, no more"
    );
}

#[test]
fn a_lease_that_is_not_understood_is_repeated_with_the_minimal_body() {
    let scene = Scene::new();
    scene
        .plane
        .tenancy()
        .set(|settings| settings.reject_fields = vec!["reason".into()]);
    scene.apply_ok();
    assert_eq!(
        bodies(&scene, "/v1/agent/lease"),
        [
            json!({"env_id": ENV, "reason": "apply"}),
            json!({"env_id": ENV})
        ]
    );
}

#[test]
fn a_report_that_is_not_understood_is_repeated_with_the_details_in_the_log_tail() {
    let scene = Scene::new();
    scene.docker.fail("pull", 1, "manifest unknown");
    scene
        .plane
        .tenancy()
        .set(|settings| settings.reject_fields = vec!["detail".into(), "containers".into()]);
    scene.plane.apply(&crate::support::scene::bundle(1).build());
    scene.agent.tick().exits(1);
    let report = scene.last_report();
    let mut names: Vec<&str> = report
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["env_id", "log_tail", "result", "sha", "tick_id"]);
    assert!(
        report["log_tail"]
            .as_str()
            .unwrap()
            .starts_with("PULL_NOT_FOUND: compose pull: "),
        "{report}"
    );

    scene
        .plane
        .tenancy()
        .set(|settings| settings.reject_fields = vec!["log_tail".into()]);
    scene
        .agent
        .tick()
        .exits(1)
        .says("tenancy refuses a report, it is dropped")
        .says("body.log_tail");
    assert_eq!(scene.agent.state()["reports"], json!([]));
}
