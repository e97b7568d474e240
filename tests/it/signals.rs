//! SIGTERM ends a tick within ten seconds, with its children, and leaves the state written; after SIGKILL the next tick
//! ends what was left running, and converges.

use crate::support::scene::{Scene, bundle};
use crate::support::stand_in::{Call, wait_until};
use control_plane::{Action, Peer};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};

/// The live processes of a process group, by pid; an ended one that nobody has waited for is none.
fn group(leader: i32) -> Vec<i32> {
    let stat_of = |pid: i32| {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<String> = text
            .rsplit_once(')')?
            .1
            .split_ascii_whitespace()
            .map(str::to_owned)
            .collect();
        Some((fields.first()?.clone(), fields.get(2)?.parse::<i32>().ok()?))
    };
    let entries = fs::read_dir("/proc").unwrap();
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| stat_of(*pid).is_some_and(|(state, group)| group == leader && state != "Z"))
        .collect()
}

/// Waits until the call hangs with the child that it has started, and the agent has noted it.
fn wait_for_group(scene: &Scene, call: &Call) {
    wait_until("the call and its own child", || {
        (group(call.pid).len() >= 2).then_some(())
    });
    wait_until("the note of the child", || {
        let record = fs::read_to_string(scene.state_file("lock")).ok()?;
        // What a longer record before left stands behind the first line.
        let holder: Value = serde_json::from_str(record.lines().next()?).ok()?;
        (holder["child"]["group"] == call.pid).then_some(())
    });
}

/// Waits until nothing of the group is left; a killed process is there for a moment more.
fn wait_for_end(leader: i32) {
    wait_until("the end of the group", || {
        group(leader).is_empty().then_some(())
    });
}

/// A box with a first release, and a second bundle that is wanted.
fn wanting_second() -> Scene {
    let scene = Scene::applied();
    scene.want(&bundle(2).build());
    scene.docker.forget();
    scene
}

#[test]
fn a_signal_during_a_request_ends_the_tick_at_once() {
    let requests = [
        (Peer::Tenancy, "/v1/agent/checkin", "checkin"),
        (Peer::Tenancy, "/v1/agent/bundle/", "fetching the bundle"),
        (Peer::Bao, "/v1/monky/data/", "reading secrets"),
    ];
    for signal in [Signal::TERM, Signal::INT] {
        for (peer, path, stage) in requests {
            let scene = wanting_second();
            let before = scene.agent.current();
            scene.log().clear();
            scene.fault(peer, path, Action::Hang);
            let tick = scene.start_tick(&["tick", "--force"]);
            assert!(scene.log().wait_for(peer, path, 1, Duration::from_secs(30)));
            let started = Instant::now();
            tick.signal(signal);
            tick.end()
                .exits(75)
                .says(&format!(
                    "stopped by a signal during {stage}; the next tick goes on"
                ))
                .says("INTERRUPTED");
            assert!(started.elapsed() < Duration::from_secs(10));
            assert_eq!(scene.agent.current(), before);
            assert!(
                scene
                    .plane
                    .reports()
                    .iter()
                    .all(|report| report["result"] == "applied"),
                "it is not reported"
            );
            scene.plane.faults().clear();
            scene.agent.tick().exits(0).says("applied");
        }
    }
}

#[test]
fn a_signal_during_a_docker_command_ends_its_whole_group() {
    for (verb, stage) in [
        ("pull", "compose pull"),
        ("up", "compose up"),
        ("config", "judging the bundle"),
    ] {
        let scene = wanting_second();
        let applied = scene.applied_sha();
        scene.docker.script(&format!("hang-{verb}"), "");
        let tick = scene.start_tick(&["tick", "--force"]);
        let call = scene.docker.wait_for(&format!("compose {verb}"));
        wait_for_group(&scene, &call);
        let started = Instant::now();
        tick.signal(Signal::TERM);
        tick.end()
            .exits(75)
            .says(&format!("stopped by a signal during {stage}"));
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "{verb}: {:?}",
            started.elapsed()
        );
        wait_for_end(call.pid);
        assert_eq!(scene.applied_sha(), applied);
        assert!(
            scene.agent.state()["failure"].is_null(),
            "a signal counts against no bundle"
        );
        scene.docker.unscript(&format!("hang-{verb}"));
        scene.agent.tick().exits(0).says("applied");
    }
}

#[test]
fn a_signal_while_waiting_for_health_ends_the_tick() {
    let scene = wanting_second();
    scene.docker.script("health", "api=starting\n");
    let tick = scene.start_tick(&["tick", "--force"]);
    scene.docker.wait_for("compose up");
    wait_until("a look at the containers after up", || {
        let verbs = scene.docker.verbs();
        let up = verbs.iter().position(|verb| verb == "compose up")?;
        verbs[up..]
            .iter()
            .any(|verb| verb == "inspect")
            .then_some(())
    });
    let started = Instant::now();
    tick.signal(Signal::TERM);
    tick.end()
        .exits(75)
        .says("stopped by a signal during waiting for health");
    assert!(started.elapsed() < Duration::from_secs(10));
    scene.docker.unscript("health");
    scene.agent.tick().exits(0).says("applied");
}

#[test]
fn what_a_killed_tick_left_running_is_ended_by_the_next_one() {
    for verb in ["pull", "up"] {
        let scene = wanting_second();
        scene.docker.script(&format!("hang-{verb}"), "");
        let tick = scene.start_tick(&["tick", "--force"]);
        let call = scene.docker.wait_for(&format!("compose {verb}"));
        wait_for_group(&scene, &call);
        tick.signal(Signal::KILL);
        assert_eq!(tick.end().code(), None);
        assert!(
            !group(call.pid).is_empty(),
            "{verb}: docker goes on without the agent"
        );
        scene.docker.unscript(&format!("hang-{verb}"));
        let next = scene.agent.tick();
        next.exits(0)
            .says(&format!(
                "ending process group {} that an interrupted tick left running at compose {verb}",
                call.pid
            ))
            .says("applied");
        wait_for_end(call.pid);
        assert_eq!(
            scene.applied_sha().as_deref(),
            Some(bundle(2).build().sha())
        );
    }
}

#[test]
fn a_tick_that_was_killed_anywhere_converges_later() {
    // Before and after each docker call of an apply: the tick is killed while that call hangs.
    let scene = Scene::applied();
    let verbs = ["info", "config", "pull", "ps", "up", "inspect"];
    for (n, verb) in verbs.iter().enumerate() {
        scene.want(&bundle(n as u64 + 2).build());
        scene.docker.forget();
        scene.docker.script(&format!("hang-{verb}"), "");
        let tick = scene.start_tick(&["tick", "--force"]);
        let call = wait_until(verb, || {
            let calls = scene.docker.calls();
            calls
                .into_iter()
                .find(|call| call.argv.iter().any(|arg| arg == verb))
        });
        wait_for_group(&scene, &call);
        tick.signal(Signal::KILL);
        tick.end();
        scene.docker.unscript(&format!("hang-{verb}"));
        scene.agent.tick().exits(0).says("applied");
        assert_eq!(
            scene.applied_sha().as_deref(),
            Some(bundle(n as u64 + 2).build().sha()),
            "{verb}"
        );
        assert!(
            !scene.agent.deploy_dir().join("releases/.staging").exists(),
            "{verb}"
        );
        assert!(
            !scene.agent.deploy_dir().join(".incoming").exists(),
            "{verb}"
        );
    }
    assert!(scene.plane.tenancy().leases_granted() <= 5);
}

#[test]
fn a_docker_command_past_its_deadline_is_ended() {
    let mut scene = wanting_second();
    scene.agent.set("pull_timeout_s", "1");
    scene.docker.script("hang-pull", "");
    scene
        .agent
        .tick()
        .exits(1)
        .says("compose pull did not end within 1 s and was stopped")
        .says("DEADLINE");
    let call = scene.docker.last("compose pull");
    wait_for_end(call.pid);
    assert_eq!(scene.last_report()["code"], "DEADLINE");
    scene.docker.unscript("hang-pull");
    scene.agent.tick().exits(0).says("applied");
}
