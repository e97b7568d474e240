//! Rules of a tick that need no file of their own: a retired box, a root shell, a header that lies.

use crate::support::agent::{Ran, agent_binary};
use crate::support::scene::{Scene, bundle};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

/// The user and the group whom nothing belongs to.
const NOBODY: u32 = 65_534;

#[test]
fn a_box_that_is_down_and_then_refused_is_retired_until_a_fresh_grant_comes() {
    let scene = Scene::applied();
    scene.plane.down(false);
    scene.agent.tick().exits(0).says("everything is down");
    scene
        .plane
        .tenancy()
        .set(|settings| settings.retired = true);
    let words = "this box was taken down and retired; a fresh bootstrap grant brings it back";
    scene.agent.tick().exits(0).says(words);
    scene.forget();
    scene.agent.tick().exits(0).is_silent_on(words);
    assert!(scene.requests().is_empty(), "a spent grant asks nobody");

    scene
        .plane
        .tenancy()
        .set(|settings| settings.retired = false);
    scene.agent.stage_grant(&scene.plane.grant());
    scene.apply_ok();
}

#[test]
fn a_root_shell_hands_the_command_over_to_the_agents_own_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let mut scene = Scene::new();
    scene.agent.set("docker_bin", "/nonexistent/docker");
    // The user must be able to start the program, wherever the tests were built.
    let program = scene.agent.path("monky-deployd");
    fs::copy(agent_binary(), &program).unwrap();
    fs::create_dir(scene.agent.state_dir()).unwrap();
    fs::set_permissions(scene.agent.state_dir(), fs::Permissions::from_mode(0o700)).unwrap();
    give_to_nobody(&scene.agent.path(""));
    // As the installer leaves it: root's, and readable for the agent.
    chown(scene.agent.config_file(), Some(0), Some(NOBODY)).unwrap();
    let as_root = scene.agent.command(&["tick"]);
    let mut command = std::process::Command::new(&program);
    command.args(as_root.get_args()).env_clear().envs(
        as_root
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let ran = Ran::new(
        vec!["tick".into()],
        command.output().unwrap(),
        scene.agent.tree(),
    );
    ran.exits(0).says("converged");
    for name in ["state.json", "token", "heartbeat", "lock"] {
        let meta = fs::metadata(scene.state_file(name)).unwrap();
        assert_eq!(meta.uid(), NOBODY, "{name}");
    }
}

fn give_to_nobody(path: &Path) {
    chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give_to_nobody(&entry.unwrap().path());
        }
    }
}

#[test]
fn a_header_that_names_another_bundle_is_a_warning() {
    let scene = Scene::new();
    scene
        .plane
        .tenancy()
        .set(|settings| settings.bundle_header = Some("0".repeat(64)));
    scene.want(&bundle(1).build());
    scene
        .agent
        .tick()
        .exits(0)
        .says("X-Bundle-Sha header names another bundle; only the content counts")
        .says("applied");
}
