//! What a person orders: pause, resume, restore, and what a tick does when it is told to adopt or to prune.

use crate::support::scene::{Scene, bundle, compose};
use control_plane::{Action, Bundle, Peer};
use monky_deployd::names::Sha256;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SHORT: usize = 12;

/// A box that ran the first bundle and runs the second.
fn twice_applied() -> (Scene, Bundle, Bundle) {
    let scene = Scene::new();
    let first = scene.apply_ok();
    let second = bundle(2).build();
    scene.want(&second);
    scene.agent.tick().exits(0).says("applied");
    scene.forget();
    (scene, first, second)
}

fn pause(scene: &Scene) {
    scene
        .agent
        .run(&["pause", "--reason", "a fair"])
        .exits(0)
        .says("paused until `monky-deployd resume`");
}

fn last_checkin(scene: &Scene) -> Value {
    scene.plane.checkins().pop().unwrap()
}

fn releases(scene: &Scene) -> PathBuf {
    scene.agent.deploy_dir().join("releases")
}

fn has_values(scene: &Scene, bundle: &Bundle) -> bool {
    let release = format!("{}-1", bundle.sha());
    releases(scene).join(release).join(".env").exists()
}

// Pause and resume.

#[test]
fn a_paused_box_checks_in_and_applies_nothing_until_it_is_resumed() {
    let scene = Scene::applied();
    pause(&scene);
    let second = bundle(2).build();
    scene.want(&second);
    scene.forget();
    for _ in 0..3 {
        scene.due_tick().exits(0).says("paused");
    }
    // A pause is a person's word; force does not undo it.
    scene.agent.tick().exits(0).says("paused");
    assert_eq!(scene.requests(), ["checkin"; 4]);
    assert_eq!(scene.docker.count("compose up"), 0);
    let told = last_checkin(&scene)["paused"].clone();
    assert_eq!(
        (&told["reason"], &told["until"]),
        (&json!("a fair"), &Value::Null)
    );
    assert!(told["since"].is_string());
    let state = scene.agent.state();
    assert_eq!(state["last"]["result"], "applied");
    assert!(state["failing_since"].is_null());

    scene.agent.run(&["resume"]).exits(0).says("resumed");
    scene.due_tick().exits(0).says("applied");
    assert_eq!(scene.applied_sha().as_deref(), Some(second.sha()));
    assert_eq!(
        scene.plane.checkins().last().unwrap()["paused"],
        Value::Null
    );
    scene
        .agent
        .run(&["resume"])
        .exits(0)
        .says("nothing was paused");
}

#[test]
fn a_paused_box_takes_nothing_down() {
    let scene = Scene::applied();
    pause(&scene);
    scene.plane.down(true);
    scene.forget();
    scene
        .agent
        .run(&["tick", "--purge-volumes"])
        .exits(0)
        .says("paused");
    assert_eq!(scene.docker.count("compose down"), 0);
    assert!(scene.agent.current().is_some());
    scene.agent.run(&["resume"]).exits(0);
    scene.due_tick().exits(0).says("everything is down");
}

#[test]
fn a_paused_box_brings_nothing_back_and_a_held_bundle_is_no_failure_on_it() {
    let scene = Scene::applied();
    let first = bundle(1).build();
    scene.docker.fail("up", 1, "no room");
    scene.want(&bundle(2).build());
    scene.agent.tick().exits(1).says("UP_FAILED");
    pause(&scene);
    scene.docker.unscript("fail-up");
    scene.forget();
    scene
        .due_tick()
        .exits(0)
        .says("paused")
        .is_silent_on("PUT_OFF");
    scene.want(&first);
    scene.due_tick().exits(0).says("paused");
    assert_eq!(scene.docker.count("compose up"), 0);
    scene.agent.run(&["resume"]).exits(0);
    scene
        .due_tick()
        .exits(0)
        .says("bringing an earlier release back");
}

#[test]
fn a_pause_may_end_by_itself() {
    let scene = Scene::applied();
    let ran = scene
        .agent
        .run(&["pause", "--for", "2h", "--reason", "a fair"]);
    ran.exits(0).says("paused for 2 h, until ");
    let until = scene.agent.state()["paused"]["until"]
        .as_str()
        .unwrap()
        .to_owned();
    ran.says(&until);
    scene.want(&bundle(2).build());
    scene.due_tick().exits(0).says("paused");
    assert_eq!(last_checkin(&scene)["paused"]["until"], until);
    scene.edit_state(|state| state["paused"]["until"] = "2020-01-01T00:00:00Z".into());
    scene.due_tick().exits(0).says("applied");
    assert_eq!(last_checkin(&scene)["paused"], Value::Null);
}

#[test]
fn a_pause_needs_a_reason_and_a_span_that_is_one() {
    let scene = Scene::applied();
    for args in [
        &["pause"][..],
        &["pause", "--reason", "  "],
        &["pause", "--for", "2h"],
        &["pause", "--for", "soon", "--reason", "x"],
        &["pause", "--for", "-1h", "--reason", "x"],
    ] {
        scene.agent.run(args).exits(64);
    }
    assert!(scene.agent.state()["paused"].is_null());
}

#[test]
fn a_new_pause_takes_the_place_of_the_old_one_and_a_new_box_may_be_paused() {
    let scene = Scene::new();
    pause(&scene);
    scene
        .agent
        .run(&["pause", "--for", "90s", "--reason", "another"])
        .exits(0)
        .says("paused for ");
    scene.want(&bundle(1).build());
    scene.agent.tick().exits(0).says("paused");
    assert_eq!(last_checkin(&scene)["paused"]["reason"], "another");
    assert_eq!(scene.applied_sha(), None);
}

#[test]
fn pause_and_resume_wait_for_the_tick_that_runs_and_restore_does_not() {
    let (scene, ..) = twice_applied();
    let fault = scene.fault(Peer::Tenancy, "/v1/agent/checkin", Action::Hang);
    let tick = scene.start_tick(&["tick", "--force"]);
    assert!(scene.log().wait_for(
        Peer::Tenancy,
        "/v1/agent/checkin",
        1,
        Duration::from_secs(30)
    ));
    scene
        .agent
        .run(&["restore"])
        .exits(75)
        .says(&format!("{}", tick.pid()))
        .says("checkin");
    let order = scene.start_tick(&["pause", "--reason", "wait for it"]);
    crate::support::stand_in::wait_until("the order to wait", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", order.pid())).ok()?;
        stat.contains(") S ").then_some(())
    });
    tick.signal(rustix::process::Signal::TERM);
    tick.end().exits(75);
    scene.plane.faults().remove(fault);
    order.end().exits(0).says("paused until");
    assert_eq!(scene.agent.state()["paused"]["reason"], "wait for it");
}

// Restore by hand.

#[test]
fn a_restore_by_hand_asks_nobody_holds_the_present_one_and_is_told_later() {
    let (scene, first, second) = twice_applied();
    scene.plane.refuse_connections(Peer::Tenancy);
    scene.plane.refuse_connections(Peer::Bao);
    let ran = scene.agent.run(&["restore"]);
    assert_eq!(
        ran.stdout(),
        format!(
            "{} is up again; {} is held\n",
            &first.sha()[..SHORT],
            &second.sha()[..SHORT]
        )
    );
    assert!(scene.requests().is_empty());
    assert_eq!(
        scene.docker.verbs(),
        ["ps", "inspect", "compose up", "ps", "inspect"]
    );
    assert_eq!(scene.agent.current(), Some(format!("{}-1", first.sha())));
    let state = scene.agent.state();
    assert_eq!(state["applied"]["sha"], first.sha());
    assert_eq!(state["previous"]["sha"], second.sha());
    assert_eq!(state["held"]["sha"], second.sha());
    assert_eq!(
        state["held"]["why"],
        format!("{} was restored by hand", &first.sha()[..SHORT])
    );
    assert_eq!(state["history"], json!([]));

    scene.plane.accept_connections(Peer::Tenancy).unwrap();
    scene.plane.accept_connections(Peer::Bao).unwrap();
    // A report waits: the next tick is due.
    scene.agent.timer_tick().exits(1).says("is held since");
    let report = scene.last_report();
    assert_eq!(
        (
            &report["result"],
            &report["sha"],
            &report["restored"],
            &report["detail"]
        ),
        (
            &json!("applied"),
            &json!(first.sha()),
            &json!(first.sha()),
            &json!("restored by hand")
        )
    );
    assert_eq!(report["secrets"], json!(["DB"]));
    let reports = scene.plane.reports().len();
    scene.docker.forget();
    for _ in 0..5 {
        scene.due_tick().exits(1).says("is held since");
    }
    assert_eq!(scene.docker.count("compose up"), 0);
    assert_eq!(scene.plane.reports().len(), reports);
    assert_eq!(last_checkin(&scene)["held"]["sha"], second.sha());
    assert_eq!(last_checkin(&scene)["applied_sha"], first.sha());
}

#[test]
fn a_held_bundle_comes_back_by_force_and_is_no_rollback() {
    // Also where bundles have neither a generation nor a date.
    for meta in [
        json!({"generation": 2}),
        json!({"generation": null, "rendered_at": null}),
    ] {
        let scene = Scene::applied();
        let first = bundle(1).build();
        let second = bundle(2).meta_with(&meta).build();
        scene.want(&second);
        scene.agent.tick().exits(0);
        scene.agent.run(&["restore"]).exits(0);
        scene.agent.tick().exits(0).says("applied");
        assert_eq!(scene.applied_sha().as_deref(), Some(second.sha()));
        let state = scene.agent.state();
        assert!(state["held"].is_null());
        assert_eq!(state["history"], json!([first.sha()]));
        assert_eq!(state["previous"]["sha"], first.sha());
        // And back again.
        scene.agent.run(&["restore"]).exits(0);
        assert_eq!(scene.applied_sha().as_deref(), Some(first.sha()));
    }
}

#[test]
fn another_bundle_ends_a_hold_that_a_person_made() {
    let (scene, first, _) = twice_applied();
    scene.agent.run(&["restore"]).exits(0);
    let third = bundle(3).build();
    scene.want(&third);
    scene.due_tick().exits(0).says("applied");
    let state = scene.agent.state();
    assert_eq!(state["applied"]["sha"], third.sha());
    assert_eq!(state["previous"]["sha"], first.sha());
    assert!(state["held"].is_null());
}

#[test]
fn a_configuration_that_was_changed_before_the_restore_does_not_end_its_hold() {
    let (mut scene, first, _) = twice_applied();
    scene.agent.set("site", "elsewhere");
    scene.agent.stage_grant(&scene.plane.grant());
    scene.agent.run(&["restore"]).exits(0);
    scene.due_tick().exits(1).says("is held since");
    assert_eq!(scene.applied_sha().as_deref(), Some(first.sha()));
    scene.agent.set("site", "nowhere");
    scene.due_tick().exits(0).says("applied");
}

#[test]
fn a_release_may_be_named_by_the_first_digits_of_its_sha() {
    let (scene, first, second) = twice_applied();
    for digits in [
        &first.sha()[..6],
        &first.sha()[..20].to_uppercase(),
        first.sha(),
    ] {
        scene.agent.run(&["restore", digits]).exits(0);
        assert_eq!(scene.applied_sha().as_deref(), Some(first.sha()));
        scene.agent.run(&["restore", second.sha()]).exits(0);
        assert_eq!(scene.applied_sha().as_deref(), Some(second.sha()));
    }
}

#[test]
fn a_name_of_no_release_or_of_two_is_refused_with_what_there_is() {
    let (scene, first, second) = twice_applied();
    let shorts = [first.sha(), second.sha()].map(|sha| sha[..SHORT].to_owned());
    let before = scene.agent.state();
    for args in [
        &["restore", "0123456789"][..],
        &["restore", &first.sha()[..5]],
        &["restore", ""],
    ] {
        let ran = scene.agent.run(args);
        ran.exits(64);
        for short in &shorts {
            ran.says(short);
        }
    }
    scene
        .agent
        .run(&["restore", "0123456789"])
        .exits(64)
        .says("no kept release begins with 0123456789; kept are ");

    // A second release whose sha begins alike.
    let mut twin = first.sha().to_owned();
    twin.replace_range(20.., &Sha256::of(b"twin").as_str()[20..]);
    let (from, to) = (format!("{}-1", first.sha()), format!("{twin}-1"));
    fs::create_dir(releases(&scene).join(&to)).unwrap();
    for name in [format!("{from}/.env"), format!("{from}.json")] {
        let copy = name.replace(&from, &to);
        fs::copy(releases(&scene).join(name), releases(&scene).join(copy)).unwrap();
    }
    scene
        .agent
        .run(&["restore", &first.sha()[..10]])
        .exits(64)
        .says("names no single release");
    assert_eq!(scene.docker.count("compose up"), 0);
    assert_eq!(scene.agent.state(), before);
    scene.agent.run(&["restore", first.sha()]).exits(0);
}

#[test]
fn where_nothing_is_kept_nothing_is_restored() {
    let scene = Scene::new();
    scene
        .agent
        .run(&["restore"])
        .exits(64)
        .says("there is no applied release before the present one; none is kept");
    let first = scene.apply_ok();
    scene
        .agent
        .run(&["restore"])
        .exits(64)
        .says("there is no applied release before the present one; kept are ");
    scene.plane.down(false);
    scene.due_tick().exits(0);
    scene
        .agent
        .run(&["restore", first.sha()])
        .exits(64)
        .says("ask tenancy for an apply");
}

#[test]
fn an_older_release_has_no_values_left_and_cannot_come_back() {
    let (scene, first, second) = twice_applied();
    let third = bundle(3).build();
    scene.want(&third);
    scene.agent.tick().exits(0);
    assert!(releases(&scene).join(format!("{}-1", first.sha())).exists());
    assert!(!has_values(&scene, &first));
    scene
        .agent
        .run(&["restore", first.sha()])
        .exits(64)
        .says("no kept release begins with");
    scene.agent.run(&["restore"]).exits(0);
    assert_eq!(scene.applied_sha().as_deref(), Some(second.sha()));
}

#[test]
fn a_restore_leaves_values_with_the_applied_and_the_one_before_only() {
    let (scene, first, second) = twice_applied();
    // A third is up, and was never healthy.
    scene.docker.fail("up", 1, "no room");
    let third = bundle(3).build();
    scene.want(&third);
    scene.agent.tick().exits(1);
    scene.docker.unscript("fail-up");
    assert!([&first, &second, &third].map(|b| has_values(&scene, b)) == [true; 3]);
    scene
        .agent
        .run(&["restore"])
        .exits(0)
        .says(&format!("{} is held", &third.sha()[..SHORT]));
    assert!(has_values(&scene, &first) && has_values(&scene, &second));
    assert!(!has_values(&scene, &third));
    scene.due_tick().exits(1).says("is held since");
    // The one that was up goes on being wanted, and comes when a person lets it.
    scene.agent.tick().exits(0).says("applied");
    assert_eq!(scene.applied_sha().as_deref(), Some(third.sha()));
}

#[test]
fn another_rendering_of_the_applied_bundle_leaves_the_one_before_alone() {
    let (scene, first, second) = twice_applied();
    scene.agent.run(&["restore", second.sha()]).exits(0);
    let state = scene.agent.state();
    assert_eq!(state["applied"]["sha"], second.sha());
    assert_eq!(state["previous"]["sha"], first.sha());
    assert!(state["held"].is_null());
    assert!(has_values(&scene, &first));
}

#[test]
fn a_restore_that_fails_changes_nothing_that_is_remembered() {
    let (scene, _, second) = twice_applied();
    scene.docker.fail("up", 1, "no room");
    scene.agent.run(&["restore"]).exits(1).says("no room");
    let state = scene.agent.state();
    assert_eq!(state["applied"]["sha"], second.sha());
    assert!(state["held"].is_null());
    scene.docker.unscript("fail-up");
    // What is applied comes back by itself.
    scene
        .due_tick()
        .exits(0)
        .says("bringing an earlier release back");
    assert_eq!(scene.agent.current(), Some(format!("{}-1", second.sha())));
}

// Adopt.

/// Containers that somebody made by hand under our project's name, from `directory`.
fn by_hand(scene: &Scene, services: &[&str], directory: &Path) {
    scene.docker.edit_engine(|engine| {
        for field in ["containers", "volumes", "images"] {
            if engine[field].is_null() {
                engine[field] = json!([]);
            }
        }
        for service in services {
            engine["containers"].as_array_mut().unwrap().push(json!({
                "id": Sha256::of(service.as_bytes()).as_str(),
                "name": format!("monky-env-qa-02-{service}-1"),
                "project": "monky-env-qa-02",
                "service": service,
                "image": "harbor.example/monky/api:0",
                "working_dir": directory,
                "policy": "always",
                "config_hash": "by hand",
                "started_at": "2026-01-01T00:00:00Z",
                "has_healthcheck": false,
                "command": null,
                "labels": {},
            }));
        }
        engine["volumes"]
            .as_array_mut()
            .unwrap()
            .push("monky-env-qa-02_data".into());
    });
}

#[test]
fn a_deployment_by_hand_is_refused_and_taken_over_when_a_person_says_so() {
    let scene = Scene::new();
    let directory = scene.agent.path("by-hand");
    fs::create_dir(&directory).unwrap();
    by_hand(&scene, &["api", "extra"], &directory);
    let first = bundle(1).build();
    scene.want(&first);
    scene
        .agent
        .timer_tick()
        .exits(1)
        .says("PROJECT_CONFLICT")
        .says(&format!("was made from {}", directory.display()))
        .says("`monky-deployd tick --adopt` takes that deployment over with its volumes");
    assert_eq!(scene.docker.count("compose up"), 0);
    assert_eq!(scene.last_report()["code"], "PROJECT_CONFLICT");
    assert!(scene.agent.current().is_none());

    // At once, though the bundle is in back-off and nothing is due.
    scene
        .agent
        .run(&["tick", "--adopt"])
        .exits(0)
        .says("taking over a deployment that was made by hand; its volumes stay")
        .says("applied");
    assert_eq!(scene.applied_sha().as_deref(), Some(first.sha()));
    assert_eq!(scene.docker.container("extra"), None);
    let engine = scene.docker.engine();
    assert_eq!(engine["volumes"], json!(["monky-env-qa-02_data"]));
    assert!(
        scene
            .docker
            .calls()
            .iter()
            .all(|call| !call.argv.contains(&"--volumes".into()))
    );

    scene.want(&bundle(2).build());
    scene
        .due_tick()
        .exits(0)
        .says("applied")
        .is_silent_on("taking over");
}

#[test]
fn an_adopted_container_that_compose_leaves_as_it_is_is_ours_from_then_on() {
    let scene = Scene::applied();
    let directory = scene.agent.path("by-hand");
    fs::create_dir(&directory).unwrap();
    // The very same service, made from elsewhere.
    scene.docker.edit_engine(|engine| {
        engine["containers"][0]["working_dir"] = directory.to_str().unwrap().into();
    });
    let api = scene.docker.container("api");
    scene.want(&bundle(2).build());
    scene.due_tick().exits(1).says("PROJECT_CONFLICT");
    scene
        .agent
        .run(&["tick", "--adopt"])
        .exits(0)
        .says("applied");
    assert_eq!(scene.docker.container("api"), api, "it is not made anew");
    scene.want(&bundle(3).build());
    scene.due_tick().exits(0).says("applied");
}

#[test]
fn adopt_where_there_is_nothing_to_adopt_is_a_tick_like_any_other() {
    let scene = Scene::applied();
    let before = scene.agent.state()["project_dirs"].clone();
    scene
        .agent
        .run(&["tick", "--adopt"])
        .exits(0)
        .says("converged")
        .is_silent_on("taking over");
    assert_eq!(scene.agent.state()["project_dirs"], before);
    assert_eq!(before.as_array().unwrap().len(), 1);
}

// Prune.

fn image(n: u64) -> String {
    format!("harbor.example/monky/api:{n}")
}

fn image_id(n: u64) -> String {
    format!("sha256:{}", Sha256::of(image(n).as_bytes()).as_str())
}

/// The `n`-th bundle, which has an image of its own.
fn with_image(n: u64) -> Bundle {
    let document = compose(&json!({})).to_string();
    bundle(n)
        .compose(&document.replace(&image(1), &image(n)))
        .build()
}

/// A box that keeps as little as it can and has applied as many bundles.
fn with_images(last: u64) -> Scene {
    let mut scene = Scene::new();
    scene.agent.set("keep_releases", "1");
    for n in 1..=last {
        scene.want(&with_image(n));
        scene.agent.tick().exits(0).says("applied");
    }
    scene
}

/// What was asked about images, and that nothing was forced.
fn image_calls(scene: &Scene) -> Vec<Vec<String>> {
    let calls: Vec<Vec<String>> = scene
        .docker
        .calls()
        .into_iter()
        .map(|call| call.argv)
        .filter(|argv| argv[0] == "image" || argv[0] == "rmi")
        .collect();
    let is_forced = |arg: &String| arg == "--force" || arg == "-f";
    assert!(!calls.iter().flatten().any(is_forced), "{calls:?}");
    calls
}

#[test]
fn the_image_of_a_deleted_release_goes_and_that_of_a_kept_one_stays() {
    let scene = with_images(2);
    assert!(image_calls(&scene).is_empty(), "both are kept");
    scene.want(&with_image(3));
    scene.agent.tick().exits(0).says("old image deleted");
    assert_eq!(image_calls(&scene), [["image", "rm", &image_id(1)]]);
    assert_eq!(scene.docker.images(), [image(2), image(3)]);
    // So that the one before can come back.
    scene.agent.run(&["restore"]).exits(0);
}

#[test]
fn an_image_that_a_stranger_uses_stays() {
    let scene = with_images(2);
    scene.docker.edit_engine(|engine| {
        let mut stranger = engine["containers"][0].clone();
        stranger["project"] = "theirs".into();
        stranger["name"] = "theirs".into();
        stranger["id"] = Sha256::of(b"theirs").as_str().into();
        stranger["image"] = image(1).into();
        engine["containers"].as_array_mut().unwrap().push(stranger);
    });
    scene.want(&with_image(3));
    scene
        .agent
        .tick()
        .exits(0)
        .says("image kept")
        .is_silent_on("old image deleted");
    assert_eq!(scene.docker.images(), [image(1), image(2), image(3)]);
}

#[test]
fn images_are_left_alone_where_that_is_configured() {
    let mut scene = with_images(2);
    scene.agent.set("prune_images", "none");
    scene.want(&with_image(3));
    scene.agent.tick().exits(0);
    assert!(image_calls(&scene).is_empty());
    assert_eq!(scene.docker.images().len(), 3);
}

#[test]
fn a_tick_that_prunes_deletes_every_image_that_no_kept_release_uses() {
    let mut scene = with_images(2);
    scene.agent.set("prune_images", "none");
    scene.docker.edit_engine(|engine| {
        let images = engine["images"].as_array_mut().unwrap();
        images.extend(["ancient:1".into(), "ancient:2".into()]);
    });
    // With nothing to apply, and although nothing is due.
    scene.forget();
    scene
        .agent
        .run(&["tick", "--prune"])
        .exits(0)
        .says("old image deleted")
        .says("converged");
    assert_eq!(scene.docker.images(), [image(1), image(2)]);
    assert_eq!(
        image_calls(&scene)[0],
        ["image", "ls", "--quiet", "--no-trunc"]
    );
    // And after an apply.
    scene.want(&with_image(3));
    scene
        .agent
        .run(&["tick", "--prune"])
        .exits(0)
        .says("applied");
    assert_eq!(scene.docker.images(), [image(2), image(3)]);
    image_calls(&scene);
}

#[test]
fn a_release_that_failed_when_it_was_tried_again_still_has_its_images() {
    let scene = with_images(2);
    // The applied bundle once more, and its pull fails: its record is not made poorer by that.
    scene.want_again();
    scene
        .docker
        .script("fail-pull-once", "1\nmanifest unknown\n");
    scene.agent.tick().exits(1).says("PULL_NOT_FOUND");
    scene
        .plane
        .tenancy()
        .set(|settings| settings.force_apply = false);
    scene.want(&with_image(3));
    scene
        .agent
        .run(&["tick", "--prune"])
        .exits(0)
        .says("applied");
    assert_eq!(scene.docker.images(), [image(2), image(3)]);
}

#[test]
fn images_that_cannot_be_listed_or_deleted_fail_no_tick() {
    let scene = with_images(2);
    scene.docker.fail("image", 1, "the engine is tired");
    scene.want(&with_image(3));
    scene
        .agent
        .run(&["tick", "--prune"])
        .exits(0)
        .says("images cannot be listed, none is pruned")
        .says("applied");
    assert_eq!(scene.last_report()["result"], "applied");
}

// Down.

#[test]
fn a_down_that_fails_is_told_keeps_everything_and_is_tried_at_the_next_interval() {
    let scene = Scene::applied();
    let first = bundle(1).build();
    scene.docker.fail("down", 1, "network has active endpoints");
    scene.plane.down(false);
    scene.forget();
    for n in 1..=3 {
        scene
            .due_tick()
            .exits(1)
            .says("DOWN_FAILED")
            .says("network has active endpoints");
        assert_eq!(scene.docker.count("compose down"), n);
    }
    let report = scene.last_report();
    assert_eq!(
        (&report["result"], &report["code"]),
        (&json!("failed"), &json!("DOWN_FAILED"))
    );
    assert!(has_values(&scene, &first), "it may yet be wanted again");
    assert_eq!(scene.applied_sha().as_deref(), Some(first.sha()));
    scene.docker.unscript("fail-down");
    scene.due_tick().exits(0).says("everything is down");
    assert_eq!(scene.last_report()["result"], "down");
}
