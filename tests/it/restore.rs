//! After a failed apply: the applied release comes back as it was rendered, or the failed one stays up; either way it is
//! held in the end, and nothing is deployed again and again.

use crate::support::scene::{DB_VALUE, Scene, bundle, compose};
use control_plane::{Bundle, Peer};
use monky_deployd::host::clock::Timestamp;
use serde_json::{Value, json};
use std::fs;

/// The `n`-th bundle with a further service that `sick_worker` can make fail.
fn with_worker(n: u64) -> Bundle {
    let more = json!({"worker": {"image": "harbor.example/monky/api:1", "restart": "always", "env_file": ".env"}});
    bundle(n).compose(&compose(&more).to_string()).build()
}

/// The `n`-th bundle, whose image is nowhere: its `up` fails, and only its own.
fn with_lost_image(n: u64) -> Bundle {
    let more = json!({"worker": {"image": "harbor.example/monky/lost:1", "restart": "always"}});
    bundle(n)
        .compose(&compose(&more).to_string())
        .meta_with(&json!({"pull": "never"}))
        .build()
}

fn sick_worker(scene: &Scene) {
    scene
        .docker
        .script("exit", "worker=9\n")
        .script("logs-worker", "no such queue\n");
}

/// A box that restores, runs its first bundle, and wants a second one that fails.
fn about_to_fail() -> (Scene, Bundle, Bundle) {
    let mut scene = Scene::new();
    scene.agent.set("on_unhealthy", "restore");
    let first = scene.apply_ok();
    let second = with_worker(2);
    sick_worker(&scene);
    scene.want(&second);
    scene.forget();
    (scene, first, second)
}

/// A box on which the second bundle has failed and the first one is up again.
fn restored() -> (Scene, Bundle, Bundle) {
    let (scene, first, second) = about_to_fail();
    scene.agent.tick().exits(1).says("is up again");
    scene.forget();
    (scene, first, second)
}

/// Lets the back-off end.
fn let_the_pause_pass(scene: &Scene) {
    scene.edit_state(|state| {
        state["failure"]["next_try_at"] = state["failure"]["failed_at"].clone();
    });
}

fn release_dirs(scene: &Scene) -> Vec<String> {
    let entries = fs::read_dir(scene.agent.deploy_dir().join("releases")).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn has_values(scene: &Scene, release: &str) -> bool {
    let releases = scene.agent.deploy_dir().join("releases");
    releases.join(release).join(".env").exists()
}

#[test]
fn the_applied_release_comes_back_with_its_own_secrets_and_without_openbao() {
    let (scene, first, second) = about_to_fail();
    let old_env = fs::read(scene.agent.live(".env")).unwrap();
    let old_api = scene.docker.container("api").unwrap();
    scene
        .plane
        .put_secret(
            "env-qa-02/see/db",
            json!({"value": "a-newer-value-of-the-secret"}),
        )
        .unwrap();

    let ran = scene.agent.tick();
    ran.exits(1)
        .says("UNHEALTHY")
        .says("worker exited with 9")
        .says("bringing an earlier release back")
        .says("the applied release is up again")
        .is_silent_on(DB_VALUE)
        .is_silent_on("a-newer-value");

    // The failed apply read the newer secret; the restore asked nobody.
    assert_eq!(
        scene.requests(),
        ["checkin", "bundle", "lookup-self", "read", "report"]
    );
    let ups: Vec<usize> = scene
        .docker
        .verbs()
        .iter()
        .enumerate()
        .filter(|(_, verb)| *verb == "compose up")
        .map(|(at, _)| at)
        .collect();
    assert_eq!(ups.len(), 2);
    assert_eq!(scene.docker.count("compose pull"), 1);
    assert_eq!(fs::read(scene.agent.live(".env")).unwrap(), old_env);
    assert_eq!(scene.agent.current(), Some(format!("{}-1", first.sha())));
    assert_eq!(scene.applied_sha().as_deref(), Some(first.sha()));
    assert_eq!(
        scene.docker.container("worker"),
        None,
        "the failed one's is gone"
    );
    assert_ne!(
        scene.docker.container("api"),
        Some(old_api),
        "it had the newer value for a while"
    );
    let state = scene.agent.state();
    assert_eq!(state["applied"]["secrets"][0]["version"], 1);

    let report = scene.last_report();
    assert_eq!(
        (
            &report["sha"],
            &report["result"],
            &report["code"],
            &report["restored"]
        ),
        (
            &json!(second.sha()),
            &json!("failed"),
            &json!("UNHEALTHY"),
            &json!(first.sha())
        )
    );
    let detail = report["detail"].as_str().unwrap();
    assert!(
        detail.starts_with("UNHEALTHY: not healthy after"),
        "{detail}"
    );
    assert!(
        detail.ends_with(&format!("; {} is up again", &first.sha()[..12])),
        "{detail}"
    );
    assert_eq!(state["last"]["detail"], detail);
    // The evidence is the failed release's, though it is gone by now.
    let tail = report["log_tail"].as_str().unwrap();
    assert!(tail.contains("no such queue"), "{tail}");
    let told: Vec<&Value> = report["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|container| &container["service"])
        .collect();
    assert!(told.contains(&&json!("worker")), "{told:?}");

    assert_eq!(state["held"]["sha"], second.sha());
    assert_eq!(
        state["held"]["why"],
        format!(
            "it failed with UNHEALTHY, and {} was brought back",
            &first.sha()[..12]
        )
    );
}

#[test]
fn a_failed_up_is_restored_too() {
    let (scene, first, _) = about_to_fail();
    let second = with_lost_image(2);
    scene.want(&second);
    scene
        .agent
        .tick()
        .exits(1)
        .says("No such image")
        .says("UP_FAILED");
    let report = scene.last_report();
    assert_eq!(
        (&report["code"], &report["restored"]),
        (&json!("UP_FAILED"), &json!(first.sha()))
    );
    assert_eq!(scene.agent.state()["held"]["sha"], second.sha());
    assert_eq!(scene.agent.current(), Some(format!("{}-1", first.sha())));
}

#[test]
fn what_fails_before_up_leaves_the_old_release_running_and_holds_nothing() {
    let (scene, first, _) = about_to_fail();
    scene.docker.fail("pull", 1, "manifest unknown");
    let api = scene.docker.container("api");
    scene.agent.tick().exits(1).says("PULL_NOT_FOUND");
    assert_eq!(scene.docker.count("compose up"), 0);
    assert_eq!(scene.docker.container("api"), api);
    assert_eq!(scene.agent.current(), Some(format!("{}-1", first.sha())));
    assert!(scene.agent.state()["held"].is_null());
    assert_eq!(scene.last_report()["restored"], Value::Null);
}

#[test]
fn a_held_bundle_is_not_deployed_again_however_many_ticks_there_are() {
    let (scene, first, second) = restored();
    let reports = scene.plane.reports().len();
    for _ in 0..12 {
        scene
            .due_tick()
            .exits(1)
            .says(&format!("{} is held since ", &second.sha()[..12]))
            .says("it failed with UNHEALTHY")
            .says("`monky-deployd tick --force` lifts the hold");
    }
    assert_eq!(scene.docker.count("compose up"), 0);
    assert_eq!(scene.docker.count("compose pull"), 0);
    assert_eq!(scene.requests(), ["checkin"; 12]);
    assert_eq!(scene.plane.reports().len(), reports, "a hold is told once");
    let checkin = scene.plane.checkins().pop().unwrap();
    assert_eq!(checkin["held"]["sha"], second.sha());
    assert!(checkin["held"]["since"].is_string() && checkin["failing_since"].is_string());
    assert_eq!(checkin["applied_sha"], first.sha());
    assert_eq!(checkin["last_result"], "failed");
    // Between the check-ins of its own interval the timer's ticks ask nobody.
    scene.forget();
    scene.agent.timer_tick().exits(0).says("not_due");
    assert!(scene.requests().is_empty());
}

#[test]
fn another_bundle_a_force_a_changed_configuration_and_a_new_grant_lift_a_hold() {
    let well = |scene: &Scene| {
        scene.docker.unscript("exit");
    };
    let (scene, ..) = restored();
    scene.want(&bundle(3).build());
    scene.due_tick().exits(0).says("applied");
    assert!(scene.agent.state()["held"].is_null());

    let (scene, _, second) = restored();
    well(&scene);
    scene.agent.tick().exits(0).says("applied");
    assert_eq!(scene.applied_sha().as_deref(), Some(second.sha()));
    assert!(scene.agent.state()["held"].is_null());

    let (mut scene, ..) = restored();
    well(&scene);
    scene.agent.set("site", "elsewhere");
    scene.agent.timer_tick().exits(0).says("applied");

    let (scene, ..) = restored();
    well(&scene);
    scene.agent.stage_grant(&scene.plane.grant());
    scene.agent.timer_tick().exits(0).says("applied");

    // Forced and still sick, it is restored and held anew.
    let (scene, first, second) = restored();
    scene.agent.tick().exits(1).says("is up again");
    assert_eq!(scene.agent.state()["held"]["sha"], second.sha());
    assert_eq!(scene.applied_sha().as_deref(), Some(first.sha()));
}

#[test]
fn tenancy_going_back_to_the_applied_bundle_ends_the_hold_and_changes_nothing() {
    let (scene, first, second) = restored();
    let api = scene.docker.container("api");
    scene.want(&first);
    scene.due_tick().exits(0).says("converged");
    let state = scene.agent.state();
    assert!(state["held"].is_null() && state["failing_since"].is_null());
    assert_eq!(scene.docker.count("compose up"), 0);
    assert_eq!(scene.docker.container("api"), api);
    // Wanted once more, it is tried once more: it was another bundle in between.
    scene.want(&second);
    scene.agent.tick().exits(1).says("is up again");
    assert_eq!(scene.agent.state()["held"]["sha"], second.sha());
}

#[test]
fn a_word_that_we_do_not_know_does_not_end_a_hold() {
    let (scene, _, second) = restored();
    scene.plane.tenancy().set(|settings| {
        settings
            .checkin_extra
            .insert("action".into(), "dance".into());
    });
    scene.due_tick().exits(1).says("dance");
    assert_eq!(scene.agent.state()["held"]["sha"], second.sha());
}

#[test]
fn a_restore_that_fails_too_is_told_with_the_failure_and_holds() {
    let (scene, first, second) = about_to_fail();
    // Both releases are sick.
    scene.docker.script("exit", "api=7\n");
    let ran = scene.agent.tick();
    ran.exits(1)
        .says("the applied release did not come back: not healthy after");
    let report = scene.last_report();
    let detail = report["detail"].as_str().unwrap();
    assert!(
        detail.starts_with("UNHEALTHY: not healthy after")
            && detail.contains(&format!(
                "; and {} did not come back: UNHEALTHY: not healthy after",
                &first.sha()[..12]
            )),
        "{detail}"
    );
    assert_eq!(report["restored"], Value::Null);
    assert_eq!(report["sha"], second.sha());
    let state = scene.agent.state();
    assert_eq!(state["held"]["sha"], second.sha());
    assert_eq!(scene.applied_sha().as_deref(), Some(first.sha()));
    scene.forget();
    for _ in 0..5 {
        scene.due_tick().exits(1).says("is held since");
    }
    assert_eq!(scene.docker.count("compose up"), 0);
}

#[test]
fn a_rotated_secret_that_makes_the_applied_bundle_fail_is_undone() {
    let mut scene = Scene::new();
    scene.agent.set("on_unhealthy", "restore");
    let first = scene.apply_ok();
    let old_env = fs::read(scene.agent.live(".env")).unwrap();
    scene
        .plane
        .put_secret("env-qa-02/see/db", json!({"value": "a-wrong-password"}))
        .unwrap();
    scene.want_again();
    // The container that has the new value fails; the old one's state cannot be told apart in the stand-in, so the failure
    // is one of `up` itself, once.
    scene
        .docker
        .script("fail-up-once", "1\nno route to the database\n");
    scene
        .agent
        .tick()
        .exits(1)
        .says("UP_FAILED")
        .says("is up again");
    assert_eq!(scene.agent.current(), Some(format!("{}-1", first.sha())));
    assert_eq!(fs::read(scene.agent.live(".env")).unwrap(), old_env);
    let report = scene.last_report();
    assert_eq!(
        (&report["sha"], &report["restored"]),
        (&json!(first.sha()), &json!(first.sha()))
    );
    assert_eq!(scene.agent.state()["held"]["sha"], first.sha());
    scene.due_tick().exits(1).says("is held since");
    assert!(!has_values(&scene, &format!("{}-2", first.sha())));
}

#[test]
fn a_kept_failure_is_tried_five_times_and_then_held() {
    let scene = Scene::applied();
    let second = with_worker(2);
    sick_worker(&scene);
    scene.want(&second);
    scene.forget();
    for n in 1..=5 {
        assert!(scene.agent.state()["held"].is_null(), "before try {n}");
        scene
            .due_tick()
            .exits(1)
            .says("worker exited with 9")
            .is_silent_on("bringing an earlier release back");
        assert_eq!(scene.agent.state()["failure"]["tries"], n);
        assert_eq!(scene.agent.current(), Some(format!("{}-1", second.sha())));
        if n < 5 {
            scene
                .due_tick()
                .exits(1)
                .says("failed with UNHEALTHY, next try at");
            let_the_pause_pass(&scene);
        }
    }
    assert_eq!(scene.docker.count("compose up"), 5);
    let held = scene.agent.state()["held"].clone();
    assert_eq!(
        (&held["sha"], &held["why"]),
        (
            &json!(second.sha()),
            &json!("it failed with UNHEALTHY 5 times")
        )
    );
    let_the_pause_pass(&scene);
    for _ in 0..5 {
        scene.due_tick().exits(1).says("is held since");
    }
    assert_eq!(scene.docker.count("compose up"), 5);
    assert_eq!(
        scene.docker.container("worker").map(|id| id.len()),
        Some(64),
        "it stays up"
    );
    assert_eq!(scene.plane.tenancy().leases_granted(), 1);
}

#[test]
fn a_kept_failure_is_brought_back_when_tenancy_goes_back() {
    let scene = Scene::applied();
    let first = bundle(1).build();
    sick_worker(&scene);
    scene.want(&with_worker(2));
    scene.agent.tick().exits(1);
    // The next look at docker sees what the failed release made of it.
    scene.docker.script("exit", "worker=9\napi=1\n");
    scene.due_tick().exits(1);
    assert!(!scene.agent.state()["drift"].is_null());
    scene.docker.unscript("exit");
    scene.want(&first);
    scene
        .due_tick()
        .exits(0)
        .says("bringing an earlier release back");
    let state = scene.agent.state();
    assert!(
        state["drift"].is_null() && state["failing_since"].is_null(),
        "{state:#}"
    );
    assert_eq!(scene.agent.current(), Some(format!("{}-1", first.sha())));
    let failed = format!("{}-1", with_worker(2).sha());
    assert!(!has_values(&scene, &failed), "the failed one's values go");
    scene.docker.forget();
    scene.due_tick().exits(0).says("converged");
    assert_eq!(scene.docker.count("compose up"), 0);
}

#[test]
fn a_first_apply_that_fails_has_nothing_to_restore_and_is_held_after_five_tries() {
    let mut scene = Scene::new();
    scene.agent.set("on_unhealthy", "restore");
    sick_worker(&scene);
    let only = with_worker(1);
    scene.want(&only);
    for _ in 1..=5 {
        scene
            .due_tick()
            .exits(1)
            .says("UNHEALTHY")
            .says("there is no earlier release to bring back");
        let_the_pause_pass(&scene);
    }
    assert_eq!(scene.docker.count("compose up"), 5);
    let report = scene.last_report();
    assert_eq!(report["restored"], Value::Null);
    assert!(!report["detail"].as_str().unwrap().contains("is up again"));
    scene
        .due_tick()
        .exits(1)
        .says("it failed with UNHEALTHY 5 times");
    assert_eq!(scene.docker.count("compose up"), 5);
    assert_eq!(scene.applied_sha(), None);
    scene.docker.unscript("exit");
    scene.agent.tick().exits(0).says("applied");
}

#[test]
fn a_signal_during_a_restore_ends_it_and_the_next_tick_goes_on() {
    let (scene, first, second) = about_to_fail();
    // The failed `up` is over at once, the restoring one hangs.
    scene.docker.script("fail-up-once", "1\nno room\n");
    scene.docker.script("hang-up", "");
    let tick = scene.start_tick(&["tick", "--force"]);
    crate::support::stand_in::wait_until("the second up", || {
        (scene.docker.count("compose up") == 2).then_some(())
    });
    tick.signal(rustix::process::Signal::TERM);
    tick.end()
        .exits(75)
        .says("stopped by a signal during compose up");
    assert_eq!(scene.applied_sha().as_deref(), Some(first.sha()));
    scene.docker.unscript("hang-up").unscript("exit");
    scene.agent.tick().exits(0).says("applied");
    assert_eq!(scene.applied_sha().as_deref(), Some(second.sha()));
}

#[test]
fn the_applied_the_current_and_the_one_before_are_kept_and_only_they_keep_their_values() {
    let mut scene = Scene::new();
    scene.agent.set("keep_releases", "1");
    let release = |bundle: &Bundle| format!("{}-1", bundle.sha());
    let mut applied = Vec::new();
    for n in 1..=3 {
        let bundle = bundle(n).build();
        scene.want(&bundle);
        scene.agent.tick().exits(0);
        applied.push(bundle);
    }
    let mut expected = vec![release(&applied[1]), release(&applied[2])];
    expected.sort();
    assert_eq!(release_dirs(&scene), expected);

    // A failed one that is up stays too, and another failure takes its place.
    sick_worker(&scene);
    for n in [4, 5] {
        let failing = with_worker(n);
        scene.want(&failing);
        scene.agent.tick().exits(1);
        let mut expected = vec![
            release(&applied[1]),
            release(&applied[2]),
            release(&failing),
        ];
        expected.sort();
        assert_eq!(release_dirs(&scene), expected);
        assert!(expected.iter().all(|name| has_values(&scene, name)));
    }

    // With room for more, older ones stay without their values.
    scene.agent.set("keep_releases", "5");
    scene.docker.unscript("exit");
    for n in 6..=9 {
        scene.want(&bundle(n).build());
        scene.agent.tick().exits(0);
    }
    let names = release_dirs(&scene);
    assert_eq!(names.len(), 5);
    let mut with_values: Vec<String> = names
        .into_iter()
        .filter(|name| has_values(&scene, name))
        .collect();
    with_values.sort();
    let mut expected = vec![release(&bundle(8).build()), release(&bundle(9).build())];
    expected.sort();
    assert_eq!(with_values, expected);
    let history = scene.agent.state()["history"].clone();
    let expected: Vec<String> = [1, 2, 3, 6, 7, 8]
        .iter()
        .map(|n| bundle(*n).build().sha().to_owned())
        .collect();
    assert_eq!(history, json!(expected));
}

#[test]
fn a_hold_says_since_when() {
    let (scene, ..) = restored();
    let since = scene.agent.state()["held"]["since"]
        .as_str()
        .unwrap()
        .to_owned();
    let minute = Timestamp::parse(&since).unwrap().to_minute();
    scene
        .due_tick()
        .exits(1)
        .says(&format!("is held since {minute}"));
    assert_eq!(scene.log().count(Peer::Bao, "/v1/auth"), 0);
}
