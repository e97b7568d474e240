//! Taking everything down: once, tried again when it fails, and volumes only where both sides agree.

use crate::support::scene::{DB_VALUE, Scene, beside_each_other};
use serde_json::json;
use std::fs;

#[test]
fn down_takes_everything_down_once() {
    let scene = Scene::applied();
    let releases = scene.agent.deploy_dir().join("releases");
    scene.plane.down(false);
    scene
        .agent
        .tick()
        .exits(0)
        .says("everything is down, volumes kept");
    let down = scene.docker.last("compose down");
    assert_eq!(down.argv[1..3], ["-p", "monky-env-qa-02"]);
    assert!(
        down.argv.iter().any(|arg| arg == "--remove-orphans")
            && !down.argv.iter().any(|arg| arg == "-f"),
        "{:?}",
        down.argv
    );
    let report = scene.last_report();
    assert_eq!(
        (&report["result"], &report["detail"]),
        (&json!("down"), &json!("volumes kept"))
    );
    assert_eq!(scene.agent.current(), None);
    for entry in fs::read_dir(releases).unwrap() {
        assert!(!entry.unwrap().path().join(".env").exists());
    }
    assert!(!scene.agent.live(".env").exists());
    let state = scene.agent.state();
    assert_eq!(
        (&state["applied"], &state["history"]),
        (&json!(null), &json!([]))
    );
    assert_eq!(
        scene.docker.engine()["volumes"],
        json!(["monky-env-qa-02_data"])
    );

    scene.forget();
    scene.agent.tick().exits(0).says("down");
    scene.agent.tick().exits(0).says("down");
    assert_eq!(
        scene.docker.verbs(),
        Vec::<String>::new(),
        "a second down makes no docker call"
    );
    assert_eq!(scene.requests(), ["checkin", "checkin"], "and no report");

    scene.apply_ok();
    assert!(
        fs::read_to_string(scene.agent.live(".env"))
            .unwrap()
            .contains(&DB_VALUE[..10])
    );
}

#[test]
fn a_down_that_fails_is_tried_again() {
    let scene = Scene::applied();
    scene.plane.down(false);
    scene
        .docker
        .fail("down", 1, "network monky_default has active endpoints");
    scene
        .agent
        .tick()
        .exits(1)
        .says("compose down")
        .says("has active endpoints");
    let report = scene.last_report();
    assert_eq!(report["code"], "DOWN_FAILED");
    assert!(
        report["detail"]
            .as_str()
            .unwrap()
            .starts_with("DOWN_FAILED: compose down: network monky_default"),
        "{report}"
    );
    assert!(scene.agent.live(".env").exists());
    scene.docker.unscript("fail-down");
    scene.agent.tick().exits(0).says("everything is down");
}

#[test]
fn volumes_go_only_where_both_sides_agree() {
    struct Row {
        what: &'static str,
        asked: bool,
        keys: &'static [(&'static str, &'static str)],
        flag: bool,
        says: &'static str,
    }
    let row = |what, asked, keys, flag, says| Row {
        what,
        asked,
        keys,
        flag,
        says,
    };
    let purge = &[("volumes_on_absent", "purge")];
    let rows = [
        row("nobody asked", false, &purge[..], true, "volumes kept"),
        row(
            "the box keeps them",
            true,
            &[],
            false,
            "tenancy asked to purge them: volumes_on_absent is keep",
        ),
        row(
            "the box allows it",
            true,
            &purge[..],
            false,
            "volumes deleted",
        ),
        row(
            "a prod box never does by itself",
            true,
            &[("volumes_on_absent", "purge"), ("prod", "true")],
            false,
            "this box is prod",
        ),
        row(
            "a person allows it on a prod box",
            true,
            &[("prod", "true")],
            true,
            "volumes deleted",
        ),
        row("a person allows it", true, &[], true, "volumes deleted"),
    ];
    beside_each_other(&rows, |row| {
        let mut scene = Scene::new();
        for (key, value) in row.keys {
            scene.agent.set(key, value);
        }
        scene.plane.down(row.asked);
        let args: &[&str] = if row.flag {
            &["tick", "--purge-volumes"]
        } else {
            &["tick"]
        };
        scene.agent.run(args).exits(0).says(row.says);
        let has_flag = scene
            .docker
            .last("compose down")
            .argv
            .iter()
            .any(|arg| arg == "--volumes");
        assert_eq!(has_flag, row.says == "volumes deleted", "{}", row.what);
        let detail = scene.last_report()["detail"].clone();
        assert!(
            detail.as_str().unwrap().contains(row.says),
            "{}: {detail}",
            row.what
        );
    });
}

#[test]
fn a_purge_that_is_allowed_later_is_still_done() {
    let scene = Scene::applied();
    scene.plane.down(true);
    scene
        .agent
        .tick()
        .exits(0)
        .says("volumes kept")
        .says("tick --purge-volumes");
    scene
        .agent
        .run(&["tick", "--force", "--purge-volumes"])
        .exits(0)
        .says("volumes deleted");
    assert_eq!(scene.docker.engine()["volumes"], json!([]));
    scene.docker.forget();
    scene
        .agent
        .run(&["tick", "--force", "--purge-volumes"])
        .exits(0);
    assert_eq!(scene.docker.count("compose down"), 0);
}
