//! The foreground loop: it ticks at once and again and again, survives ticks that fail, is quiet about a laptop that is
//! offline, and ends cleanly on Ctrl-C or SIGTERM, whether it waits or works.

use crate::support::scene::{RunningTick, Scene, bundle};
use crate::support::stand_in::wait_until;
use control_plane::Peer;
use rustix::process::Signal;
use serde_json::json;
use std::time::{Duration, Instant};

const CHECKIN: &str = "/v1/agent/checkin";
/// What the spec allows for finishing or aborting the step in hand.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// A scene whose tenancy wants to hear of the box every second.
fn eager() -> Scene {
    let scene = Scene::new();
    scene
        .plane
        .tenancy()
        .set(|settings| settings.checkin_interval_s = 1);
    scene
}

fn wait_for_checkins(scene: &Scene, n: usize) {
    let patience = Duration::from_secs(60);
    assert!(scene.log().wait_for(Peer::Tenancy, CHECKIN, n, patience));
}

/// Waits until the loop waits for the next tick.
fn wait_for_rest(scene: &Scene) {
    wait_until("a tick's end", || {
        // Between two ticks nobody holds the lock, and its record is empty.
        let record = std::fs::read_to_string(scene.state_file("lock")).ok()?;
        record.trim().is_empty().then_some(())
    });
}

#[track_caller]
fn stop(run: RunningTick<'_>, signal: Signal) -> crate::support::agent::Ran {
    let started = Instant::now();
    run.signal(signal);
    let ran = run.end();
    assert!(started.elapsed() < STOP_WITHIN, "{:?}", started.elapsed());
    ran
}

#[test]
fn it_ticks_at_once_again_and_again_and_stops_while_it_waits() {
    for signal in [Signal::TERM, Signal::INT] {
        let scene = eager();
        let first = bundle(1).build();
        scene.want(&first);
        let run = scene.start_tick(&["run"]);
        wait_for_checkins(&scene, 3);
        // What is wanted meanwhile comes with one of the next ticks.
        let second = bundle(2).build();
        scene.want(&second);
        wait_until("the second bundle", || {
            (scene.applied_sha().as_deref() == Some(second.sha())).then_some(())
        });
        wait_for_rest(&scene);
        stop(run, signal)
            .exits(0)
            .says("running in the foreground, Ctrl-C ends it")
            .says("stopped");
        let results: Vec<_> = scene
            .plane
            .reports()
            .iter()
            .map(|report| report["result"].clone())
            .collect();
        assert_eq!(results, [json!("applied"), json!("applied")]);
    }
}

#[test]
fn a_long_wait_ends_with_the_signal_and_not_with_the_interval() {
    let scene = Scene::new();
    scene
        .plane
        .tenancy()
        .set(|settings| settings.checkin_interval_s = 86_400);
    let run = scene.start_tick(&["run"]);
    wait_for_checkins(&scene, 1);
    wait_for_rest(&scene);
    stop(run, Signal::TERM).exits(0).says("stopped");
    assert_eq!(scene.to_tenancy(CHECKIN), 1);
}

#[test]
fn a_signal_in_the_middle_of_an_apply_aborts_its_step_and_leaves_the_state_written() {
    for verb in ["pull", "up"] {
        let scene = eager();
        let first = scene.apply_ok();
        scene.docker.forget();
        scene.want(&bundle(2).build());
        scene.docker.script(&format!("hang-{verb}"), "");
        let run = scene.start_tick(&["run"]);
        let call = scene.docker.wait_for(&format!("compose {verb}"));
        stop(run, Signal::TERM)
            .exits(0)
            .says(&format!("stopped by a signal during compose {verb}"))
            .says("stopped");
        wait_until("the end of docker", || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", call.pid));
            stat.map_or(true, |stat| stat.contains(") Z "))
                .then_some(())
        });
        let state = scene.agent.state();
        assert_eq!(state["applied"]["sha"], first.sha());
        assert!(state["failure"].is_null() && state["held"].is_null());
        scene.docker.unscript(&format!("hang-{verb}"));
        scene.agent.tick().exits(0).says("applied");
    }
}

#[test]
fn a_tick_that_fails_does_not_end_the_loop() {
    let scene = eager();
    scene.apply_ok();
    scene
        .docker
        .script("fail-pull-once", "1\nmanifest unknown\n");
    scene.want(&bundle(2).build());
    scene.log().clear();
    let run = scene.start_tick(&["run"]);
    wait_until("the failure", || {
        scene
            .plane
            .reports()
            .iter()
            .any(|report| report["code"] == "PULL_NOT_FOUND")
            .then_some(())
    });
    // Another bundle is no less welcome after it.
    scene.want(&bundle(3).build());
    wait_until("the third bundle", || {
        (scene.applied_sha().as_deref() == Some(bundle(3).build().sha())).then_some(())
    });
    stop(run, Signal::TERM).exits(0).says("PULL_NOT_FOUND");
}

#[test]
fn a_laptop_that_is_offline_is_quiet_and_goes_on_when_it_is_back() {
    let mut scene = eager();
    scene
        .agent
        .set("laptop_mode", "true")
        .set("log_level", "INFO");
    scene.apply_ok();
    scene.plane.refuse_connections(Peer::Tenancy);
    scene.plane.refuse_connections(Peer::Bao);
    scene.log().clear();
    let run = scene.start_tick(&["run"]);
    // Its first tick has been and found nobody.
    wait_until("a tick without tenancy", || {
        let pulse = std::fs::read_to_string(scene.state_file("heartbeat")).ok()?;
        let pulse: serde_json::Value = serde_json::from_str(&pulse).ok()?;
        let started = pulse["started_at"].as_str()?.to_owned();
        (*started > *pulse["checkin_at"].as_str()?).then_some(())
    });
    // The tick that finds it again is the last one for a long while.
    let set = |interval_s| {
        let tenancy = scene.plane.tenancy();
        tenancy.set(|settings| settings.checkin_interval_s = interval_s);
    };
    set(86_400);
    scene.plane.accept_connections(Peer::Tenancy).unwrap();
    scene.plane.accept_connections(Peer::Bao).unwrap();
    wait_for_checkins(&scene, 1);
    wait_for_rest(&scene);
    let ran = stop(run, Signal::INT);
    let said = ran.stderr(0);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(
        lines[0].contains("running in the foreground") && lines[1].contains("stopped"),
        "{said}"
    );
}

#[test]
fn a_docker_that_does_not_listen_is_killed_in_time() {
    let scene = eager();
    scene.apply_ok();
    scene.docker.forget();
    scene.want(&bundle(2).build());
    scene.docker.script("hang-pull", "stubborn");
    let run = scene.start_tick(&["run"]);
    let call = scene.docker.wait_for("compose pull");
    // Its own child is there once it no longer listens.
    wait_until("the child of docker", || {
        let path = format!("/proc/{0}/task/{0}/children", call.pid);
        let children = std::fs::read_to_string(path).ok()?;
        (!children.trim().is_empty()).then_some(())
    });
    stop(run, Signal::TERM)
        .exits(0)
        .says("stopped by a signal during compose pull");
}
