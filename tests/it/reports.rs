//! Reports arrive at least once, oldest first, byte for byte the same; an undelivered one changes no exit code, and one that
//! tenancy refuses for good never blocks the others.

use crate::support::scene::{Scene, bundle};
use control_plane::{Action, Peer, Rule, Want};
use serde_json::json;

const REPORT: &str = "/v1/agent/report";

/// The bodies that came to the report's path, as sent.
fn sent(scene: &Scene) -> Vec<Vec<u8>> {
    let all = scene.log().requests();
    all.into_iter()
        .filter(|logged| logged.request.path() == REPORT)
        .map(|logged| logged.request.body)
        .collect()
}

fn spool(scene: &Scene) -> usize {
    scene.agent.state()["reports"].as_array().unwrap().len()
}

#[test]
fn an_undelivered_report_is_kept_and_sent_byte_identical_by_a_later_tick() {
    let scene = Scene::new();
    let down = scene.fault(
        Peer::Tenancy,
        REPORT,
        Action::json(503, &json!({"detail": "later"})),
    );
    scene.want(&bundle(1).build());
    scene
        .agent
        .tick()
        .exits(0)
        .says("a report is kept for a later tick")
        .says("applied");
    assert_eq!(spool(&scene), 1);
    assert!(scene.plane.faults().remove(down));
    // A pending report makes the next tick due.
    scene.agent.timer_tick().exits(0).says("report delivered");
    let sent = sent(&scene);
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0], sent[1]);
    assert_eq!((spool(&scene), scene.plane.reports().len()), (0, 1));
    assert!(scene.last_report()["tick_id"].is_string());
}

#[test]
fn several_reports_go_oldest_first() {
    let scene = Scene::new();
    let down = scene.fault(Peer::Tenancy, REPORT, Action::Close);
    let shas: Vec<String> = (1..=3)
        .map(|n| {
            let bundle = bundle(n).build();
            scene.want(&bundle);
            scene.agent.tick().exits(0).says("a report is kept");
            bundle.sha().to_owned()
        })
        .collect();
    assert_eq!(spool(&scene), 3);
    assert!(scene.plane.faults().remove(down));
    scene.forget();
    scene.agent.tick().exits(0);
    let told: Vec<String> = scene
        .plane
        .reports()
        .iter()
        .map(|report| report["sha"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(told, shas);
    assert_eq!(
        scene.requests(),
        ["report", "report", "report", "checkin"],
        "before the checkin"
    );
}

#[test]
fn a_report_whose_answer_was_lost_is_sent_again() {
    let scene = Scene::new();
    scene.plane.fault(
        Rule::on(Peer::Tenancy, Action::Reset)
            .path(REPORT)
            .after_effect()
            .once(),
    );
    scene.want(&bundle(1).build());
    scene.agent.tick().exits(0).says("a report is kept");
    scene.agent.tick().exits(0);
    let reports = scene.plane.reports();
    assert_eq!(reports.len(), 2, "at least once");
    assert_eq!(reports[0], reports[1], "and recognisable by its tick_id");
}

#[test]
fn a_report_that_tenancy_refuses_is_dropped_and_blocks_nothing() {
    let scene = Scene::applied();
    scene.want_again();
    for status in [400, 404, 409, 413, 422] {
        scene.fault(
            Peer::Tenancy,
            REPORT,
            Action::json(status, &json!({"detail": "no thanks"})),
        );
        scene
            .agent
            .tick()
            .exits(0)
            .says("tenancy refuses a report, it is dropped")
            .says("no thanks");
        assert_eq!(spool(&scene), 0, "{status}");
        scene.plane.faults().clear();
    }
    scene.agent.tick().exits(0).says("report delivered");
}

#[test]
fn a_failing_report_does_not_change_the_exit_code_of_a_failing_apply() {
    let scene = Scene::new();
    scene.fault(Peer::Tenancy, REPORT, Action::json(500, &json!({})));
    scene.docker.fail("pull", 1, "manifest unknown");
    scene.want(&bundle(1).build());
    scene
        .agent
        .tick()
        .exits(1)
        .says("PULL_NOT_FOUND")
        .says("a report is kept");
    assert_eq!(spool(&scene), 1);
}

#[test]
fn a_long_outage_keeps_the_newest_sixteen() {
    let scene = Scene::new();
    scene.agent.tick().exits(0);
    scene.fault(Peer::Tenancy, REPORT, Action::json(500, &json!({})));
    let shas: Vec<String> = (0..18).map(|n| format!("{n:064x}")).collect();
    for sha in &shas {
        scene.plane.tenancy().add_bundle_as(sha, b"no tar");
        scene
            .plane
            .tenancy()
            .set(|settings| settings.want = Want::Apply(sha.clone()));
        scene.agent.tick().exits(1).says("BUNDLE_SHA_MISMATCH");
    }
    let state = scene.agent.state();
    let kept: Vec<&str> = state["reports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|report| report["sha"].as_str().unwrap())
        .collect();
    assert_eq!(kept, shas[2..]);
}

#[test]
fn a_failing_box_says_since_when() {
    let scene = Scene::applied();
    scene.docker.fail("pull", 1, "manifest unknown");
    scene.want(&bundle(2).build());
    scene.agent.tick().exits(1).says("PULL_NOT_FOUND");
    scene.agent.tick().exits(1).says("PULL_NOT_FOUND");
    let checkin = scene.plane.checkins().pop().unwrap();
    assert!(checkin["failing_since"].is_string(), "{checkin}");
    assert_eq!(checkin["last_result"], "failed");
    assert!(
        checkin["last_error"]
            .as_str()
            .unwrap()
            .starts_with("PULL_NOT_FOUND: compose pull: "),
        "{checkin}"
    );
    scene.docker.unscript("fail-pull");
    scene.agent.tick().exits(0).says("applied");
    scene.agent.tick().exits(0);
    let checkin = scene.plane.checkins().pop().unwrap();
    assert_eq!(
        (checkin.get("failing_since"), &checkin["last_error"]),
        (None, &json!(null))
    );
}

#[test]
fn what_the_apply_printed_stays_for_a_look() {
    let scene = Scene::applied();
    let log = std::fs::read_to_string(scene.state_file("last-apply.log")).unwrap();
    assert!(
        log.contains("api Pulled") && log.contains("Container monky-env-qa-02-api-1  Started"),
        "{log}"
    );
}
