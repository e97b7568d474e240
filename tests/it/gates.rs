//! The gates before the way: the lock, files that others could change, a state that cannot be read. What fails here asks
//! nobody and changes nothing.

use crate::support::scene::{ENV, Scene, bundle};
use crate::support::stand_in::wait_until;
use control_plane::{Action, Peer};
use rustix::process::Signal;
use serde_json::json;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::time::Duration;

#[test]
fn a_held_lock_names_its_holder_and_stage() {
    let scene = Scene::new();
    scene.docker.script("hang-pull", "");
    scene.want(&bundle(1).build());
    let first = scene.start_tick(&["tick"]);
    scene.docker.wait_for("compose pull");
    let requests = scene.requests().len();
    let second = scene.agent.tick();
    second
        .exits(75)
        .says("another tick holds")
        .says(&format!("pid {}", first.pid()))
        .says("at compose pull");
    assert_eq!(scene.requests().len(), requests);
    first.signal(Signal::TERM);
    first.end().exits(75);
    scene.docker.unscript("hang-pull");
    scene.agent.tick().exits(0).says("applied");
}

#[test]
fn a_tick_can_wait_for_the_lock() {
    let scene = Scene::new();
    let hang = scene.fault(Peer::Tenancy, "/v1/agent/checkin", Action::Hang);
    let first = scene.start_tick(&["tick"]);
    assert!(scene.log().wait_for(
        Peer::Tenancy,
        "/v1/agent/checkin",
        1,
        Duration::from_secs(30)
    ));
    assert!(scene.plane.faults().remove(hang));
    let second = scene.start_tick(&["tick", "--force", "--wait"]);
    // It waits: it has opened the lock and has not gone on.
    let lock = scene.state_file("lock").canonicalize().unwrap();
    wait_until("the second tick at the lock", || {
        let open = fs::read_dir(format!("/proc/{}/fd", second.pid())).ok()?;
        open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
            .find(|path| *path == lock)
    });
    first.signal(Signal::TERM);
    first
        .end()
        .exits(75)
        .says("stopped by a signal during checkin");
    second.end().exits(0).says("converged");
}

#[test]
fn waiting_for_the_lock_ends_with_a_signal() {
    let scene = Scene::new();
    scene.fault(Peer::Tenancy, "/v1/agent/checkin", Action::Hang);
    let first = scene.start_tick(&["tick"]);
    assert!(scene.log().wait_for(
        Peer::Tenancy,
        "/v1/agent/checkin",
        1,
        Duration::from_secs(30)
    ));
    let second = scene.start_tick(&["tick", "--wait"]);
    let lock = scene.state_file("lock").canonicalize().unwrap();
    wait_until("the second tick at the lock", || {
        let open = fs::read_dir(format!("/proc/{}/fd", second.pid())).ok()?;
        open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
            .find(|path| *path == lock)
    });
    second.signal(Signal::TERM);
    second.end().exits(75).says("waiting for the lock");
    first.signal(Signal::TERM);
    first.end().exits(75).says("stopped by a signal");
}

#[test]
fn files_that_others_could_change_are_not_used() {
    let scene = Scene::applied();
    let bootstrap = scene.agent.path("bootstrap.jwt");
    for (path, is_asked) in [
        (scene.state_file("state.json"), false),
        (bootstrap, false),
        (scene.state_file("token"), false),
    ] {
        let name = path.file_name().unwrap().to_str().unwrap();
        scene.forget();
        for mode in [0o620, 0o602, 0o666] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            scene
                .agent
                .tick()
                .exits(78)
                .says(name)
                .says("is not safe to use");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(
            scene.requests().is_empty(),
            !is_asked,
            "{name}: {:?}",
            scene.requests()
        );
    }
    scene.agent.tick().exits(0);
}

#[test]
fn files_of_somebody_else_are_not_used() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let scene = Scene::applied();
    for path in [
        scene.state_file("state.json"),
        scene.agent.path("bootstrap.jwt"),
        scene.state_file("token"),
    ] {
        chown(&path, Some(65_534), None).unwrap();
        scene
            .agent
            .tick()
            .exits(78)
            .says("belongs to user 65534")
            .says("chown it");
        chown(&path, Some(0), None).unwrap();
    }
    let token = scene.state_file("token");
    fs::rename(&token, scene.agent.path("elsewhere")).unwrap();
    symlink(scene.agent.path("elsewhere"), &token).unwrap();
    scene.agent.tick().exits(78).says("it is a symbolic link");
}

#[test]
fn a_file_that_is_merely_too_readable_is_tightened() {
    let scene = Scene::applied();
    for name in ["state.json", "token"] {
        let path = scene.state_file(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        scene.agent.tick().exits(0).says(&format!(
            "{name} was readable by others; its mode is now 0600"
        ));
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o7777,
            0o600
        );
    }
}

#[test]
fn a_torn_state_is_set_aside_and_the_box_recovers() {
    for text in ["", "{\"schema\": 1, \"env", "\0\0\0\0\0\0\0\0", "[]"] {
        let scene = Scene::applied();
        let (current, api) = (scene.agent.current(), scene.docker.container("api"));
        fs::write(scene.state_file("state.json"), text).unwrap();
        scene
            .agent
            .tick()
            .exits(0)
            .says("state.json could not be read and stands aside as state.json.corrupt-")
            .says("applied");
        let aside = fs::read_dir(scene.agent.state_dir())
            .unwrap()
            .find_map(|entry| {
                let path = entry.unwrap().path();
                path.file_name()?
                    .to_str()?
                    .starts_with("state.json.corrupt-")
                    .then_some(path)
            });
        assert_eq!(fs::read_to_string(aside.unwrap()).unwrap(), text);
        assert_eq!(
            (scene.agent.current(), scene.docker.container("api")),
            (current, api),
            "the same release, nothing recreated"
        );
        assert!(scene.applied_sha().is_some());
    }
}

#[test]
fn a_state_of_a_newer_agent_or_of_another_environment_is_refused_and_kept() {
    let scene = Scene::applied();
    for (field, value, words) in [
        (
            "schema",
            json!(99),
            "has schema 99, which is newer than this agent knows",
        ),
        (
            "env_id",
            json!("env-other"),
            "belongs to environment env-other",
        ),
    ] {
        scene.forget();
        let path = scene.state_file("state.json");
        let good = fs::read(&path).unwrap();
        scene.edit_state(|state| state[field] = value.clone());
        let foreign = fs::read(&path).unwrap();
        scene.agent.tick().exits(78).says(words);
        assert_eq!(fs::read(&path).unwrap(), foreign);
        assert!(scene.requests().is_empty());
        fs::write(&path, good).unwrap();
    }
}

#[test]
fn the_state_of_0_1_is_imported_and_its_token_is_tried_first() {
    let scene = Scene::new();
    let sha = bundle(1).build().sha().to_owned();
    let token = scene.bao().mint_token(ENV, "jti-0.1", 86_400, true);
    fs::create_dir(scene.agent.state_dir()).unwrap();
    let old = json!({"applied_sha": sha, "last_result": "applied", "last_error": null, "token": {"source": "lease"}});
    fs::write(scene.state_file("state.json"), old.to_string()).unwrap();
    fs::write(scene.state_file("token"), &token.id).unwrap();
    for name in ["state.json", "token"] {
        fs::set_permissions(scene.state_file(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    scene.want(&bundle(1).build());
    scene
        .agent
        .tick()
        .exits(0)
        .says("the state of 0.1.x was imported")
        .says("converged");
    assert_eq!(scene.requests(), ["lookup-self", "checkin"]);
    assert_eq!(scene.plane.checkins()[0]["applied_sha"], json!(sha));
    let state = scene.agent.state();
    assert_eq!(
        (&state["schema"], &state["token"]["source"]),
        (&json!(1), &json!("lease"))
    );
}

#[test]
fn a_clock_that_was_set_back_starves_nothing() {
    let scene = Scene::applied();
    let path = scene.state_file("heartbeat");
    let mut pulse: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    pulse["checkin_at"] = "2099-01-01T00:00:00Z".into();
    fs::write(&path, pulse.to_string()).unwrap();
    scene.agent.timer_tick().exits(0).says("converged");
    fs::write(&path, "\0garbage").unwrap();
    scene.agent.timer_tick().exits(0).says("converged");
}

#[test]
fn a_broken_configuration_says_every_fault_and_asks_nobody() {
    let mut scene = Scene::new();
    scene
        .agent
        .set("interval_s", "5")
        .set("transprot", "system")
        .set("bao.timeout_s", "0")
        .set("transport", "sdk");
    let ran = scene.agent.tick();
    ran.exits(78);
    for words in [
        "interval_s",
        "transprot",
        "transport",
        "timeout_s",
        "this build has no embedded mesh SDK",
        "line ",
    ] {
        ran.says(words);
    }
    assert!(scene.requests().is_empty());
    assert!(!scene.agent.state_dir().exists(), "nothing is made");
}
