//! A tick that is killed or told to stop in the middle of docker's work: nothing of it goes on running, the old release
//! stays whole, and the next tick finishes what was begun.

use crate::gate::Gate;
use crate::lab::{Lab, until};
use crate::support::real_docker::IMAGE;
use crate::support::real_registry::{PASSWORD, Pushed, RealRegistry, USER};
use crate::support::skip;
use control_plane::BundleBuilder;
use serde_json::json;
use std::time::Duration;

/// How long a tick may take to stop when it is told to, with some time for a busy machine.
const STOP_LIMIT: Duration = Duration::from_secs(12);

fn web(image: &str, environment: &str) -> String {
    format!(
        "services:\n  web:\n    image: {image}\n    restart: unless-stopped\n    environment: {environment}\n"
    )
}

/// A registry behind a door, an image in it, and a bundle that pulls it from there.
struct BehindTheDoor {
    gate: Gate,
    _registry: RealRegistry,
    bundle: BundleBuilder,
    image: String,
}

fn behind_the_door(lab: &Lab, registry: RealRegistry) -> BehindTheDoor {
    let image = format!("monky-deployd-test/{}:1", lab.project());
    lab.docker.make_image(&image, &lab.project());
    let Pushed { reference, .. } = registry.push(lab.docker, &image, "monky/web:1");
    lab.docker.run(&["rmi", &image]);
    let gate = Gate::in_front_of(&registry.host());
    let image = reference.replace(&registry.host(), &gate.host());
    lab.put_secret(
        "registry",
        &json!({"registry": gate.host(), "username": USER, "password": PASSWORD}),
    );
    let manifest = json!({"entries": [{"path": "see/registry", "use": "registry-auth"}]});
    let bundle = lab
        .bundle(2, &web(&image, "{}"))
        .meta_with(&json!({"pull": "always"}))
        .manifest(&manifest);
    BehindTheDoor {
        gate,
        _registry: registry,
        bundle,
        image,
    }
}

/// The image of a pull is this test's own.
fn forget(lab: &Lab, image: &str) {
    lab.docker.cleanup(&lab.project());
    lab.docker.run(&["rmi", image]);
}

#[test]
fn a_tick_killed_in_the_pull_is_finished_by_the_next_one() {
    let Some(lab) = Lab::open("env-kill-pull") else {
        return;
    };
    let Some(registry) = skip::require("registry", RealRegistry::start()) else {
        return;
    };
    let first = lab.applies(&lab.bundle(1, &web(IMAGE, "{}")));
    let old = lab.service("web").id;
    let door = behind_the_door(&lab, registry);
    let second = lab.want(&door.bundle);

    let tick = lab.start(&["tick", "--force"]);
    door.gate.wait_for_a_knock();
    tick.kill();
    assert_eq!(lab.service("web").id, old);
    assert_eq!(lab.agent.current(), Some(format!("{}-1", first.sha())));

    let left = lab.processes();
    assert!(left.iter().any(|line| line.contains("pull")), "{left:?}");
    door.gate.open();
    lab.agent
        .tick()
        .exits(0)
        .says("ending process group")
        .says("at compose pull");
    assert_eq!(lab.applied().as_deref(), Some(second.sha()));
    assert_eq!(lab.service("web").image, door.image);
    assert_eq!(lab.processes(), [""; 0]);
    assert_eq!(lab.plane.tenancy().leases_granted(), 1);
    forget(&lab, &door.image);
}

#[test]
fn a_tick_told_to_stop_in_the_pull_stops_and_the_next_one_goes_on() {
    let Some(lab) = Lab::open("env-term-pull") else {
        return;
    };
    let Some(registry) = skip::require("registry", RealRegistry::start()) else {
        return;
    };
    let first = lab.applies(&lab.bundle(1, &web(IMAGE, "{}")));
    let door = behind_the_door(&lab, registry);
    let second = lab.want(&door.bundle);
    let told = lab.reports().len();

    let tick = lab.start(&["tick", "--force"]);
    door.gate.wait_for_a_knock();
    stops(&lab, tick.terminate(), "compose pull");
    assert_eq!(lab.agent.current(), Some(format!("{}-1", first.sha())));
    assert_eq!(lab.applied().as_deref(), Some(first.sha()));
    assert_eq!(lab.reports().len(), told, "a stop is no failure to report");
    assert_eq!(lab.agent.state()["failure"], json!(null));

    door.gate.open();
    lab.agent.tick().exits(0);
    assert_eq!(lab.applied().as_deref(), Some(second.sha()));
    forget(&lab, &door.image);
}

/// Compose waits in `up` for a dependency that becomes healthy when the test says so.
fn slow_start() -> String {
    format!(
        r#"
services:
  base:
    image: {IMAGE}
    restart: unless-stopped
    healthcheck: {{test: ["CMD", "test", "-e", "/tmp/ready"], interval: 200ms, retries: 1000}}
  web:
    image: {IMAGE}
    restart: unless-stopped
    depends_on: {{base: {{condition: service_healthy}}}}
"#
    )
}

fn wait_for_base(lab: &Lab) -> String {
    until(|| {
        let all = lab.docker.ps(&lab.project());
        let base = all.into_iter().find(|container| {
            container.service == "base"
                && container.state == "running"
                && !container.name.contains('_')
        })?;
        Some(base.id)
    })
}

#[test]
fn a_tick_killed_in_up_is_finished_by_the_next_one() {
    let Some(lab) = Lab::open("env-kill-up") else {
        return;
    };
    let first = lab.applies(&lab.bundle(1, &web(IMAGE, "{}")));
    let second = lab.want(&lab.bundle(2, &slow_start()));
    let tick = lab.start(&["tick", "--force"]);
    let base = wait_for_base(&lab);
    tick.kill();
    // Promoted already: `current` is the new release, the applied one is still the old.
    assert_eq!(lab.agent.current(), Some(format!("{}-1", second.sha())));
    assert_eq!(lab.applied().as_deref(), Some(first.sha()));
    let left = lab.processes();
    assert!(left.iter().any(|line| line.contains(" up ")), "{left:?}");

    let mut tick = lab.start(&["tick", "--force"]);
    tick.wait_until_it_says("ending process group");
    tick.wait_until_it_says("compose up");
    lab.docker.exec(&base, &["touch", "/tmp/ready"]);
    tick.ends(0);
    assert_eq!(lab.applied().as_deref(), Some(second.sha()));
    assert_eq!(lab.service("web").state, "running");
    assert_eq!(lab.service("base").id, base);
    assert_eq!(lab.processes(), [""; 0]);
}

#[test]
fn a_tick_told_to_stop_in_up_stops_and_the_next_one_goes_on() {
    let Some(lab) = Lab::open("env-term-up") else {
        return;
    };
    let bundle = lab.want(&lab.bundle(1, &slow_start()));
    let tick = lab.start(&["tick", "--force"]);
    let base = wait_for_base(&lab);
    stops(&lab, tick.terminate(), "compose up");
    assert_eq!(lab.applied(), None);

    lab.docker.exec(&base, &["touch", "/tmp/ready"]);
    lab.agent.tick().exits(0);
    assert_eq!(lab.applied().as_deref(), Some(bundle.sha()));
}

#[test]
fn a_tick_told_to_stop_in_the_health_wait_stops_and_the_next_one_goes_on() {
    let Some(lab) = Lab::open("env-term-health") else {
        return;
    };
    let compose = format!(
        "services:\n  base:\n    image: {IMAGE}\n    restart: unless-stopped\n    healthcheck: {{test: [\"CMD\", \"test\", \"-e\", \"/tmp/ready\"], interval: 200ms, retries: 1000}}\n"
    );
    let bundle = lab.want(&lab.bundle(1, &compose));
    let mut tick = lab.start(&["tick", "--force"]);
    tick.wait_until_it_says("waiting for health");
    stops(&lab, tick.terminate(), "waiting for health");
    assert_eq!(lab.agent.current(), Some(format!("{}-1", bundle.sha())));

    lab.docker
        .exec(&lab.service("base").id, &["touch", "/tmp/ready"]);
    lab.agent.tick().exits(0);
    assert_eq!(lab.applied().as_deref(), Some(bundle.sha()));
}

#[track_caller]
fn stops(lab: &Lab, (code, said, took): (Option<i32>, String, Duration), stage: &str) {
    assert_eq!(code, Some(75), "{said}");
    assert!(
        said.contains("INTERRUPTED") && said.contains(stage),
        "{said}"
    );
    assert!(took < STOP_LIMIT, "{took:?}\n{said}");
    assert_eq!(lab.processes(), [""; 0]);
}

/// A service that takes long to stop, so that Compose is found between making the new container and removing the old.
fn stubborn(mode: &str) -> String {
    format!(
        "services:\n  web:\n    image: {IMAGE}\n    restart: unless-stopped\n    command: [\"httpd\", \"-f\", \"-p\", \"8080\", \"-h\", \"/www\"]\n    stop_grace_period: 5s\n    environment: {{MODE: {mode}}}\n"
    )
}

/// Kills the tick that replaces the container of `web` while both containers are there; the old one's id.
fn kill_while_replacing(lab: &Lab) -> String {
    lab.applies(&lab.bundle(1, &stubborn("old")));
    let old = lab.service("web").id;
    lab.want(&lab.bundle(2, &stubborn("new")));
    let tick = lab.start(&["tick", "--force"]);
    until(|| (lab.docker.ps(&lab.project()).len() == 2).then_some(()));
    tick.kill();
    old
}

#[track_caller]
fn is_replaced(lab: &Lab) {
    lab.agent.tick().exits(0);
    let all = lab.docker.ps(&lab.project());
    let names: Vec<&str> = all
        .iter()
        .map(|container| container.name.as_str())
        .collect();
    assert_eq!(names, [format!("{}-web-1", lab.project())]);
    assert_eq!(lab.environ("web")["MODE"], "new");
}

#[test]
fn a_replacement_cut_short_before_the_old_container_is_gone_is_healed() {
    let Some(lab) = Lab::open("env-kill-both") else {
        return;
    };
    kill_while_replacing(&lab);
    is_replaced(&lab);
}

#[test]
fn a_replacement_cut_short_after_the_old_container_is_gone_is_healed() {
    let Some(lab) = Lab::open("env-kill-new") else {
        return;
    };
    let old = kill_while_replacing(&lab);
    // What Compose would have done next; the new container keeps its makeshift name.
    let left = lab.processes();
    for line in &left {
        assert!(line.contains(" up "), "{left:?}");
    }
    lab.end_processes();
    lab.docker.run(&["rm", "-f", &old]);
    let names: Vec<String> = lab
        .docker
        .ps(&lab.project())
        .into_iter()
        .map(|c| c.name)
        .collect();
    assert_eq!(names, [format!("{}_{}-web-1", &old[..12], lab.project())]);
    is_replaced(&lab);
}
