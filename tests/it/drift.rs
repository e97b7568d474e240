//! What runs is no longer what was applied: it is told, and repaired where that is configured, without a lease, without
//! secrets and without running jobs again; and it has nothing to do with how the last apply went.

use crate::support::scene::{Scene, bundle, compose};
use crate::support::stand_in::Call;
use monky_deployd::host::clock::Timestamp;
use serde_json::{Value, json};

/// A box that runs its first bundle and looks at docker in every tick.
fn watching(on_drift: &str) -> Scene {
    let mut scene = Scene::new();
    scene
        .agent
        .set("on_drift", on_drift)
        .set("facts_interval_s", "0");
    scene.apply_ok();
    scene.forget();
    scene
}

fn last_drift_told(scene: &Scene) -> Value {
    scene.plane.checkins().pop().unwrap()["drift"].clone()
}

fn ups(scene: &Scene) -> Vec<Call> {
    let calls = scene.docker.calls();
    calls
        .into_iter()
        .filter(|call| call.verb() == "compose up")
        .collect()
}

/// Lets the pause between two repairs end.
fn let_the_pause_pass(scene: &Scene) {
    scene.edit_state(|state| state["drift"]["next_try_at"] = state["drift"]["since"].clone());
}

fn pause_s(scene: &Scene) -> i64 {
    let drift = scene.agent.state()["drift"].clone();
    let at = |name: &str| Timestamp::parse(drift[name].as_str().unwrap()).unwrap();
    at("next_try_at").since_s(at("since"))
}

#[test]
fn drift_is_told_and_what_a_person_stopped_stays_stopped() {
    let scene = watching("report");
    let last = scene.agent.state()["last"].clone();
    scene.docker.script("exit", "api=137\n");
    let ran = scene.due_tick();
    ran.exits(0)
        .says("what runs is not what was applied: api exited");
    assert_eq!(
        last_drift_told(&scene),
        json!([{"service": "api", "why": "exited"}])
    );
    for _ in 0..5 {
        scene
            .due_tick()
            .exits(0)
            .says("converged")
            .is_silent_on("what runs is not what was applied");
    }
    assert!(ups(&scene).is_empty());
    let state = scene.agent.state();
    assert_eq!(state["last"], last, "it is not what happened last");
    assert!(state["failure"].is_null() && state["failing_since"].is_null());
    assert_eq!(state["drift"]["tries"], 0);
    assert_eq!(scene.plane.reports().len(), 1, "nor is it reported");

    scene.docker.unscript("exit");
    scene
        .due_tick()
        .exits(0)
        .says("everything runs again as it was applied");
    assert_eq!(last_drift_told(&scene), Value::Null);
    assert!(scene.agent.state()["drift"].is_null());
}

#[test]
fn every_way_of_not_running_has_its_word() {
    let scene = watching("report");
    let rows = [
        ("exit", "api=0\n", "exited"),
        ("crash-loop", "api\n", "restarting"),
        ("health", "api=unhealthy\n", "unhealthy"),
    ];
    for (script, text, word) in rows {
        scene.docker.script(script, text);
        scene.due_tick().exits(0).says(&format!("api {word}"));
        assert_eq!(last_drift_told(&scene)[0]["why"], word);
        scene.docker.unscript(script);
    }
    scene.docker.script("health", "api=starting\n");
    scene.due_tick().exits(0);
    assert_eq!(last_drift_told(&scene), Value::Null, "it is on its way");
    scene.docker.remove("api");
    scene.due_tick().exits(0).says("api missing");
}

#[test]
fn between_two_looks_docker_is_not_asked() {
    let scene = Scene::applied();
    scene.due_tick().exits(0);
    scene.forget();
    scene.docker.remove("api");
    scene.due_tick().exits(0);
    assert!(scene.docker.calls().is_empty());
    assert_eq!(last_drift_told(&scene), Value::Null);
    scene.edit_state(|state| state["facts"]["at"] = "2020-01-01T00:00:00Z".into());
    scene.due_tick().exits(0).says("api missing");
    assert_eq!(
        scene.docker.verbs(),
        ["info", "compose version", "ps", "inspect"]
    );
}

#[test]
fn a_repair_starts_what_drifted_and_nothing_else() {
    let scene = watching("repair");
    let engine = scene.docker.engine();
    let job = &engine["containers"][1];
    assert_eq!(job["service"], "migrate");
    scene.docker.remove("api");
    scene
        .due_tick()
        .exits(0)
        .says("started again what had drifted");

    assert_eq!(
        scene.requests(),
        ["checkin"],
        "no lease, no secret, no report"
    );
    let calls = ups(&scene);
    assert_eq!(calls.len(), 1);
    let live = scene.agent.live("");
    let live = live.to_str().unwrap().trim_end_matches('/');
    let argv: Vec<&str> = calls[0].argv.iter().map(String::as_str).collect();
    assert_eq!(
        argv,
        [
            "compose",
            "-p",
            "monky-env-qa-02",
            "--project-directory",
            live,
            "-f",
            &format!("{live}/docker-compose.yml"),
            "--env-file",
            &format!("{live}/.env"),
            "--ansi",
            "never",
            "--progress",
            "plain",
            "up",
            "-d",
            "--no-deps",
            "--no-recreate",
            "--no-build",
            "--pull",
            "never",
            "api"
        ]
    );
    assert_eq!(scene.docker.count("compose pull"), 0);
    let engine = scene.docker.engine();
    let containers = engine["containers"].as_array().unwrap();
    assert!(containers.contains(job), "the job was not run again");
    assert!(scene.docker.container("api").is_some());
    // The next tick sees that it helped.
    scene
        .due_tick()
        .exits(0)
        .says("everything runs again as it was applied");
    assert_eq!(ups(&scene).len(), 1);
    assert!(scene.agent.state()["drift"].is_null());
}

#[test]
fn a_repair_in_vain_backs_off_and_is_given_up_until_the_picture_changes() {
    let scene = watching("repair");
    let last = scene.agent.state()["last"].clone();
    scene.docker.script("exit", "api=137\n");
    let mut pauses = Vec::new();
    for n in 1..=5 {
        scene
            .due_tick()
            .exits(0)
            .says("started again what had drifted");
        assert_eq!(scene.agent.state()["drift"]["tries"], n);
        pauses.push(pause_s(&scene));
        scene.due_tick().exits(0);
        assert_eq!(ups(&scene).len(), n, "not before the pause is over");
        let_the_pause_pass(&scene);
    }
    // Ticks take their time; each pause is counted from its own tick.
    let expected = [10, 20, 40, 80, 160];
    assert!(
        pauses
            .iter()
            .zip(expected)
            .all(|(seen, pause)| (pause..pause + 10).contains(seen)),
        "{pauses:?}"
    );
    for _ in 0..5 {
        scene.due_tick().exits(0);
    }
    assert_eq!(ups(&scene).len(), 5, "given up");
    assert_eq!(last_drift_told(&scene)[0]["service"], "api", "still told");

    // Another picture, another five tries.
    scene.docker.script("crash-loop", "api\n");
    scene
        .due_tick()
        .exits(0)
        .says("what runs is not what was applied: api restarting")
        .says("started again what had drifted");
    assert_eq!(ups(&scene).len(), 6);
    let state = scene.agent.state();
    assert_eq!(state["drift"]["tries"], 1);
    assert_eq!(state["last"], last);
    assert!(state["failure"].is_null() && state["held"].is_null());
}

#[test]
fn a_repair_that_fails_is_noted_with_the_drift_and_fails_no_tick() {
    let scene = watching("repair");
    let last = scene.agent.state()["last"].clone();
    scene.docker.remove("api");
    scene.docker.fail(
        "up",
        1,
        "Bind for 0.0.0.0:80 failed: port is already allocated",
    );
    scene
        .due_tick()
        .exits(0)
        .says("the drift could not be repaired")
        .says("port is already allocated");
    let state = scene.agent.state();
    let error = state["drift"]["last_error"].as_str().unwrap();
    assert!(
        error.starts_with("UP_FAILED: ") && error.contains("port is already allocated"),
        "{error}"
    );
    assert_eq!(state["last"], last);
    assert!(state["failing_since"].is_null() && state["failure"].is_null());
    assert_eq!(
        scene.plane.checkins().pop().unwrap()["last_result"],
        "applied"
    );
    assert_eq!(scene.plane.reports().len(), 1);
    scene.docker.unscript("fail-up");
    let_the_pause_pass(&scene);
    scene.due_tick().exits(0).says("started again");
    scene.due_tick().exits(0).says("everything runs again");
}

#[test]
fn a_job_never_drifts() {
    let mut scene = Scene::new();
    scene
        .agent
        .set("on_drift", "repair")
        .set("facts_interval_s", "0");
    // A long job: it still runs when everything counts as healthy.
    let more = json!({"reindex": {"image": "harbor.example/monky/api:1"}});
    scene.want(&bundle(1).compose(&compose(&more).to_string()).build());
    scene.agent.tick().exits(0).says("applied");
    assert_eq!(
        scene.agent.state()["applied"]["running"],
        json!(["api", "reindex"])
    );
    scene.forget();
    scene.docker.script("exit", "reindex=0\n");
    scene.docker.remove("migrate");
    for _ in 0..3 {
        scene.due_tick().exits(0).is_silent_on("what runs is not");
    }
    assert!(ups(&scene).is_empty());
    assert_eq!(last_drift_told(&scene), Value::Null);
}

#[test]
fn a_paused_box_tells_of_drift_and_repairs_nothing() {
    let scene = watching("repair");
    scene
        .agent
        .run(&["pause", "--reason", "somebody debugs api"])
        .exits(0);
    scene.docker.script("exit", "api=137\n");
    for _ in 0..3 {
        scene.due_tick().exits(0);
    }
    assert!(ups(&scene).is_empty());
    assert_eq!(last_drift_told(&scene)[0]["service"], "api");
    assert_eq!(scene.agent.state()["drift"]["tries"], 0);
    scene.agent.run(&["resume"]).exits(0);
    scene.due_tick().exits(0).says("started again");
    assert_eq!(ups(&scene).len(), 1);
}

#[test]
fn drift_of_several_services_is_repaired_in_one_call_and_a_new_apply_forgets_it() {
    let mut scene = Scene::new();
    scene
        .agent
        .set("on_drift", "repair")
        .set("facts_interval_s", "0");
    let more = json!({"worker": {"image": "harbor.example/monky/api:1", "restart": "always"}});
    scene.want(&bundle(1).compose(&compose(&more).to_string()).build());
    scene.agent.tick().exits(0);
    scene.forget();
    scene.docker.script("exit", "api=1\nworker=1\n");
    scene.due_tick().exits(0);
    let argv = ups(&scene).pop().unwrap().argv;
    assert_eq!(argv[argv.len() - 2..], ["api", "worker"]);
    scene.docker.unscript("exit");
    scene.want(&bundle(2).build());
    scene.agent.tick().exits(0).says("applied");
    assert!(scene.agent.state()["drift"].is_null());
    scene.due_tick().exits(0).says("converged");
    assert_eq!(last_drift_told(&scene), Value::Null);
}

#[test]
fn without_docker_the_last_picture_stays_and_the_checkin_goes_on() {
    let scene = watching("repair");
    scene.docker.script("exit", "api=137\n");
    scene.due_tick().exits(0);
    let_the_pause_pass(&scene);
    scene.docker.script("daemon-down", "");
    scene.due_tick().exits(0);
    assert_eq!(last_drift_told(&scene)[0]["service"], "api");
    let error = scene.agent.state()["drift"]["last_error"].clone();
    assert!(
        error.as_str().unwrap().starts_with("DOCKER_DOWN: "),
        "{error}"
    );
}
