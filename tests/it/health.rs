//! What counts as healthy: a service that runs, a job that ended well; and what does not.

use crate::support::scene::{DB_VALUE, Scene, bundle, compose};
use serde_json::json;

#[test]
fn a_job_may_end_with_0_and_with_nothing_else() {
    let scene = Scene::applied();
    let current = scene.agent.current();
    assert_eq!(scene.docker.engine()["containers"][1]["service"], "migrate");
    scene
        .docker
        .script("exit", "migrate=3\n")
        .script("logs-migrate", "no such table\n");
    scene.want(&bundle(2).build());
    scene
        .agent
        .tick()
        .exits(1)
        .says("UNHEALTHY")
        .says("migrate exited with 3");
    let report = scene.last_report();
    assert!(
        report["detail"]
            .as_str()
            .unwrap()
            .starts_with("UNHEALTHY: not healthy after"),
        "{report}"
    );
    assert!(
        report["log_tail"]
            .as_str()
            .unwrap()
            .starts_with("== monky-env-qa-02-migrate-1 (exited, exit code 3)\nno such table\n"),
        "{report}"
    );
    let shown = &report["containers"][1];
    assert_eq!(
        (&shown["service"], &shown["state"], &shown["exit_code"]),
        (&json!("migrate"), &json!("exited"), &json!(3))
    );
    assert_ne!(scene.agent.current(), current);
    assert_eq!(
        scene.applied_sha().as_deref(),
        Some(bundle(1).build().sha())
    );
}

#[test]
fn a_service_may_not_end_a_crash_loop_is_no_success_and_trouble_is_seen_at_once() {
    let rows = [
        (
            "exit",
            "api=0\n",
            "api exited with 0, though it should keep running",
        ),
        ("exit", "api=137\n", "api exited with 137"),
        (
            "crash-loop",
            "api\n",
            "api restarts again and again (4 times, last exit code 1)",
        ),
    ];
    for (script, text, words) in rows {
        let mut scene = Scene::new();
        // Certain trouble ends the wait long before its limit.
        scene.agent.set("healthy_timeout_s", "300");
        scene.docker.script(script, text);
        scene.want(&bundle(1).build());
        scene
            .agent
            .tick()
            .exits(1)
            .says("not healthy after 0 s: ")
            .says(words);
        assert_eq!(scene.applied_sha(), None);
    }
}

#[test]
fn an_unhealthy_service_fails_at_the_limit_with_its_last_lines_redacted() {
    for (health, words) in [
        ("unhealthy", "api is unhealthy"),
        ("starting", "api its health check has not passed yet"),
    ] {
        let mut scene = Scene::new();
        scene.agent.set("healthy_timeout_s", "1");
        let lines: String = (0..500)
            .map(|n| format!("line {n} with {DB_VALUE}\n"))
            .collect();
        scene
            .docker
            .script("health", &format!("api={health}\n"))
            .script("logs-api", &lines);
        scene.want(&bundle(1).build());
        scene.agent.tick().exits(1).says("UNHEALTHY").says(words);
        let tail = scene.last_report()["log_tail"].as_str().unwrap().to_owned();
        assert!(
            tail.starts_with(
                "== monky-env-qa-02-api-1 (running, exit code 0)\nline 300 with [redacted:DB]\n"
            ),
            "{}",
            &tail[..200]
        );
        assert!(
            tail.contains("line 499 with [redacted:DB]")
                && !tail.contains("line 299")
                && !tail.contains("s3cr3t"),
            "{tail}"
        );
    }
}

#[test]
fn a_service_that_becomes_healthy_in_time_is_applied() {
    let scene = Scene::new();
    scene.docker.script("health", "api=starting\n");
    scene.want(&bundle(1).build());
    let tick = scene.start_tick(&["tick"]);
    crate::support::stand_in::wait_until("two looks", || {
        (scene.docker.count("inspect") >= 2).then_some(())
    });
    scene.docker.unscript("health");
    tick.end().exits(0).says("applied");
}

#[test]
fn a_service_behind_a_profile_is_not_waited_for() {
    let scene = Scene::new();
    let mut document = compose(&json!({}));
    document["services"]["off"] =
        json!({"image": "harbor.example/monky/off:1", "restart": "always", "scale": 0});
    scene.want(&bundle(1).compose(&document.to_string()).build());
    scene.agent.tick().exits(0).says("applied");
}
