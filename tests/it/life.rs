//! The life of a box: bootstrap, apply, converged, not due, a new bundle, a changed secret, a wrong digest.

use crate::support::scene::{Scene, bundle, compose};
use control_plane::{Bundle, Peer, Want};
use serde_json::json;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What tells whether a file was written: its inode and its times.
fn identity(path: &Path) -> (u64, i64, i64) {
    let meta = fs::metadata(path).unwrap();
    (meta.ino(), meta.mtime(), meta.mtime_nsec())
}

#[test]
fn a_first_apply_goes_from_the_grant_to_healthy_containers() {
    let scene = Scene::new();
    let bundle = scene.apply_ok();
    assert_eq!(
        scene.requests(),
        [
            "login",
            "checkin",
            "bundle",
            "lease",
            "login",
            "revoke-self",
            "read",
            "report"
        ]
    );
    let verbs = scene.docker.verbs();
    let expected = [
        "info",
        "compose version",
        "compose config",
        "compose config",
        "compose config",
        "compose config",
        "compose pull",
        "ps",
        "compose up",
        "ps",
        "inspect",
    ];
    assert_eq!(verbs, expected);

    let report = scene.last_report();
    assert_eq!(
        (&report["result"], &report["sha"]),
        (&json!("applied"), &json!(bundle.sha()))
    );
    assert_eq!(report["secrets"], json!(["DB"]));
    let shown: Vec<_> = report["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (c["service"].clone(), c["state"].clone()))
        .collect();
    assert_eq!(
        shown,
        [
            (json!("api"), json!("running")),
            (json!("migrate"), json!("exited"))
        ]
    );

    let env = fs::read_to_string(scene.agent.live(".env")).unwrap();
    assert!(
        env.contains("APP_MODE=demo\n")
            && env.contains("DB=\"s3cr3t-dbValue\\$with #nasty\\\"parts\\\\\"\n"),
        "{env}"
    );
    let release = scene.agent.current().unwrap();
    assert_eq!(release, format!("{}-1", bundle.sha()));
    for (path, mode) in [
        (scene.agent.live(".env"), 0o600),
        (
            scene
                .agent
                .deploy_dir()
                .join("releases")
                .join(release)
                .join(".env"),
            0o600,
        ),
        (scene.agent.live("docker-compose.yml"), 0o644),
        (scene.agent.live(""), 0o700),
        (scene.state_file("token"), 0o600),
        (scene.state_file("state.json"), 0o600),
    ] {
        assert_eq!(
            fs::metadata(&path).unwrap().mode() & 0o7777,
            mode,
            "{}",
            path.display()
        );
    }
    assert_eq!(scene.agent.state()["token"]["source"], "lease");
}

#[test]
fn every_docker_call_has_a_clean_environment_and_no_descriptor_of_ours() {
    let mut scene = Scene::new();
    scene
        .agent
        .setenv("APP_MODE", "from the caller")
        .setenv("DOCKER_CONTEXT", "elsewhere")
        .setenv("COMPOSE_FILE", "/x")
        .setenv("DOCKER_HOST", "unix:///run/other.sock");
    scene.apply_ok();
    let home = scene.agent.state_dir().display().to_string();
    for call in scene.docker.calls() {
        let env = call.record["env"].as_object().unwrap();
        let names: Vec<&str> = env.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "COMPOSE_INTERACTIVE_NO_CLI",
                "DOCKER_CONFIG",
                "DOCKER_HOST",
                "HOME",
                "PATH"
            ],
            "{:?}",
            call.argv
        );
        assert_eq!(
            (&env["HOME"], &env["DOCKER_CONFIG"]),
            (&json!(home), &json!(format!("{home}/docker")))
        );
        // Pipes may come from whoever runs the tests; files of the box and sockets can only come from the agent.
        let foreign = |target: &serde_json::Value| {
            let target = target.as_str().unwrap();
            target.starts_with(&home) || target.starts_with("socket:")
        };
        let open = call.record["descriptors"].as_array().unwrap();
        assert!(!open.iter().any(foreign), "{:?}: {open:?}", call.argv);
    }
    let up = scene.docker.last("compose up");
    let live = scene.agent.live("");
    assert_eq!(up.option("-p"), Some("monky-env-qa-02"));
    assert_eq!(
        up.option("--project-directory").map(Path::new),
        Some(live.parent().unwrap().join("live").as_path())
    );
    assert_eq!(
        up.option("--env-file").map(Path::new),
        Some(scene.agent.live(".env").as_path())
    );
    for word in ["-d", "--remove-orphans", "--no-build"] {
        assert!(up.argv.iter().any(|arg| arg == word), "{:?}", up.argv);
    }
    let pull = scene.docker.last("compose pull");
    assert!(
        pull.option("--project-directory")
            .unwrap()
            .contains("/releases/"),
        "{:?}",
        pull.argv
    );
}

#[test]
fn a_converged_tick_is_one_request_and_nothing_else() {
    let mut scene = Scene::new();
    scene.agent.set("log_level", "INFO");
    scene
        .plane
        .tenancy()
        .set(|settings| settings.checkin_interval_s = 0);
    scene.apply_ok();
    // Docker is looked at once more after an apply.
    scene.agent.timer_tick().exits(0);
    scene.forget();
    let state = identity(&scene.state_file("state.json"));
    let heartbeat = identity(&scene.state_file("heartbeat"));
    let said = scene.agent.timer_tick().stderr(0);
    assert_eq!(said, "", "a converged tick is silent");
    assert_eq!(scene.requests(), ["checkin"]);
    assert_eq!(
        (
            scene.log().connections(Peer::Tenancy),
            scene.log().connections(Peer::Bao)
        ),
        (1, 0)
    );
    assert_eq!(scene.docker.verbs(), Vec::<String>::new());
    assert_eq!(
        identity(&scene.state_file("state.json")),
        state,
        "state.json is written only when it changes"
    );
    assert_ne!(
        identity(&scene.state_file("heartbeat")).0,
        heartbeat.0,
        "the heartbeat is renamed"
    );
    let checkin = scene.plane.checkins().pop().unwrap();
    assert_eq!(
        checkin["agent"],
        json!({"version": env!("CARGO_PKG_VERSION"), "transport": "system"})
    );
    assert_eq!(
        (
            &checkin["site"],
            &checkin["last_result"],
            &checkin["last_error"]
        ),
        (&json!("lab"), &json!("applied"), &json!(null))
    );
    assert_eq!(
        (&checkin["facts"]["docker"], &checkin["facts"]["compose"]),
        (&json!("28.2.2"), &json!("2.40.3"))
    );
}

#[test]
fn a_tick_that_is_not_due_asks_nobody() {
    let mut scene = Scene::applied();
    scene.forget();
    scene.agent.timer_tick().exits(0).says("not_due");
    assert!(scene.requests().is_empty() && scene.docker.verbs().is_empty());
    // A changed configuration and a changed grant are looked at without delay.
    scene.agent.set("site", "elsewhere");
    scene.agent.timer_tick().exits(0).says("converged");
    scene.agent.stage_grant(&scene.plane.grant());
    scene.agent.timer_tick().exits(0).says("converged");
    scene.agent.timer_tick().exits(0).says("not_due");
}

#[test]
fn a_new_bundle_replaces_the_old_one_and_keeps_the_unchanged_service() {
    let scene = Scene::applied();
    let old = scene.agent.current().unwrap();
    let api = scene.docker.container("api");
    fs::create_dir(scene.agent.live("data")).unwrap();
    fs::write(scene.agent.live("data/kept"), "by the service").unwrap();
    let more = json!({"web": {"image": "harbor.example/monky/web:1", "restart": "always"}});
    let second = bundle(2)
        .compose(&compose(&more).to_string())
        .file("conf/app.yml", "a: 1\n")
        .build();
    scene.want(&second);
    scene.agent.tick().exits(0).says("applied");
    assert_eq!(
        scene.agent.current().unwrap(),
        format!("{}-1", second.sha())
    );
    assert_eq!(
        scene.docker.container("api"),
        api,
        "an unchanged service is not recreated"
    );
    assert!(scene.docker.container("web").is_some());
    assert_eq!(
        fs::read_to_string(scene.agent.live("conf/app.yml")).unwrap(),
        "a: 1\n"
    );
    assert_eq!(scene.agent.state()["previous"]["release"], json!(old));

    let third = bundle(3).build();
    scene.want(&third);
    scene.agent.tick().exits(0).says("applied");
    assert_eq!(scene.docker.container("web"), None, "an orphan goes");
    assert!(
        !scene.agent.live("conf").exists(),
        "a file that the bundle no longer has goes"
    );
    assert_eq!(
        fs::read_to_string(scene.agent.live("data/kept")).unwrap(),
        "by the service"
    );
    let kept = scene
        .agent
        .deploy_dir()
        .join("releases")
        .join(old)
        .join(".env");
    assert!(
        !kept.exists(),
        "only the applied release and the one before keep their values"
    );
}

#[test]
fn a_changed_secret_is_a_new_rendering_of_the_same_bundle() {
    let scene = Scene::new();
    let sha = scene.apply_ok().sha().to_owned();
    let (api, first) = (
        scene.docker.container("api"),
        fs::read(scene.agent.live(".env")).unwrap(),
    );
    scene
        .plane
        .put_secret("env-qa-02/see/db", json!({"value": "another-value"}))
        .unwrap();
    scene.want_again();
    scene.agent.tick().exits(0).says("applied");
    assert_eq!(scene.agent.current().unwrap(), format!("{sha}-2"));
    assert!(
        fs::read_to_string(scene.agent.live(".env"))
            .unwrap()
            .contains("DB=another-value\n")
    );
    let before = scene
        .agent
        .deploy_dir()
        .join(format!("releases/{sha}-1/.env"));
    assert!(
        !before.exists() || fs::read(before).unwrap() == first,
        "a rendering never changes"
    );
    assert_ne!(scene.docker.container("api"), api);
    assert_eq!(
        scene.agent.state()["applied"]["secrets"],
        json!([{"var": "DB", "path": "env-qa-02/see/db", "version": 2}])
    );

    let api = scene.docker.container("api");
    scene.agent.tick().exits(0).says("applied");
    assert_eq!(
        scene.agent.current().unwrap(),
        format!("{sha}-2"),
        "the same values give the same release"
    );
    assert_eq!(scene.docker.container("api"), api);
}

#[test]
fn a_wrong_digest_is_refused_and_reported_once_and_the_old_release_runs_on() {
    let scene = Scene::applied();
    let (current, api) = (scene.agent.current(), scene.docker.container("api"));
    let leases = scene.plane.tenancy().leases_granted();
    let wanted = bundle(2).build();
    scene
        .plane
        .tenancy()
        .add_bundle_as(wanted.sha(), bundle(3).build().bytes());
    scene
        .plane
        .tenancy()
        .set(|settings| settings.want = Want::Apply(wanted.sha().to_owned()));
    for _ in 0..3 {
        scene
            .agent
            .tick()
            .exits(1)
            .says("BUNDLE_SHA_MISMATCH")
            .says(&wanted.sha()[..12]);
    }
    let failed: Vec<_> = scene
        .plane
        .reports()
        .into_iter()
        .filter(|report| report["result"] == "failed")
        .collect();
    assert_eq!(failed.len(), 1, "one report a sha and code");
    assert_eq!(
        (&failed[0]["code"], &failed[0]["sha"]),
        (&json!("BUNDLE_SHA_MISMATCH"), &json!(wanted.sha()))
    );
    assert!(
        failed[0]["detail"]
            .as_str()
            .unwrap()
            .starts_with("BUNDLE_SHA_MISMATCH: "),
        "{failed:?}"
    );
    assert_eq!(
        (scene.agent.current(), scene.docker.container("api")),
        (current, api)
    );
    assert_eq!(
        scene.plane.tenancy().leases_granted(),
        leases,
        "nothing is leased for a refused bundle"
    );
    scene.make_due();
    scene
        .agent
        .timer_tick()
        .exits(1)
        .says("next try at")
        .says("BUNDLE_SHA_MISMATCH");
}

#[test]
fn every_refusal_is_told_at_once_and_before_any_lease() {
    let scene = Scene::new();
    let refused = bundle(1)
        .template("APP_MODE=demo\nA=${NOWHERE}\nDOCKER_HOST=tcp://x\nDB=${DB}\n")
        .meta_with(&json!({"agent": {"min_version": "99.0.0"}, "images_policy": "digest"}))
        .secret("OUT", "../../elsewhere")
        .build();
    scene.want(&refused);
    let ran = scene.agent.tick();
    ran.exits(1);
    for words in [
        "ENV_INCOMPLETE: unresolved: NOWHERE",
        "ENV_RESERVED",
        "DOCKER_HOST",
        "AGENT_TOO_OLD",
        "MANIFEST_PATH",
        "IMAGE_NOT_PINNED",
    ] {
        ran.says(words);
    }
    assert_eq!(
        (
            scene.to_tenancy("/v1/agent/lease"),
            scene.to_bao("/v1/monky")
        ),
        (0, 0)
    );
    assert!(
        scene.last_report()["detail"]
            .as_str()
            .unwrap()
            .contains("NOWHERE")
    );
    assert_eq!(scene.agent.current(), None);
    assert!(!scene.agent.deploy_dir().join(".incoming").exists());
}

#[test]
fn a_bundle_without_secrets_needs_neither_lease_nor_openbao() {
    let scene = Scene::new();
    scene.agent.tick().exits(0);
    scene.forget();
    let plain = Bundle::sample("env-qa-02", "unused")
        .compose(
            &json!({"services": {"app": {"image": "demo:1", "restart": "always"}}}).to_string(),
        )
        .build();
    scene.want(&plain);
    scene.agent.tick().exits(0).says("applied");
    assert_eq!(scene.requests(), ["checkin", "bundle", "report"]);
}

#[test]
fn a_pull_policy_is_passed_on_and_never_pulls_nothing() {
    for (policy, passed) in [
        ("missing", Some("missing")),
        ("always", Some("always")),
        ("never", None),
    ] {
        let scene = Scene::new();
        scene
            .docker
            .script("images", "harbor.example/monky/api:1\n");
        scene.want(&bundle(1).meta_with(&json!({"pull": policy})).build());
        scene.agent.tick().exits(0).says("applied");
        let pulled = scene
            .docker
            .calls()
            .into_iter()
            .find(|call| call.verb() == "compose pull");
        assert_eq!(
            pulled.as_ref().and_then(|call| call.option("--policy")),
            passed
        );
    }
}

#[test]
fn a_bundle_that_went_back_after_a_failed_up_brings_the_applied_release_back() {
    let scene = Scene::applied();
    let (first, current) = (scene.applied_sha().unwrap(), scene.agent.current());
    scene.docker.fail(
        "up",
        1,
        "Bind for 0.0.0.0:80 failed: port is already allocated",
    );
    scene.want(&bundle(2).build());
    scene
        .agent
        .tick()
        .exits(1)
        .says("compose up")
        .says("port is already allocated");
    assert_ne!(scene.agent.current(), current);
    scene.docker.unscript("fail-up");
    scene
        .plane
        .tenancy()
        .set(|settings| settings.want = Want::Apply(first.clone()));
    scene.forget();
    scene
        .agent
        .tick()
        .exits(0)
        .says("bringing an earlier release back");
    assert_eq!(
        (scene.agent.current(), scene.applied_sha()),
        (current, Some(first))
    );
    assert_eq!(
        (scene.to_tenancy("/v1/agent/lease"), scene.to_bao("/")),
        (0, 0),
        "neither lease nor secrets"
    );
    assert_eq!(scene.docker.count("compose pull"), 0);
}

#[test]
fn an_unknown_action_is_reported_and_changes_nothing() {
    let scene = Scene::applied();
    let current = scene.agent.current();
    scene.plane.tenancy().set(|settings| {
        drop(
            settings
                .checkin_extra
                .insert("action".into(), "dance".into()),
        )
    });
    scene.docker.forget();
    scene
        .agent
        .tick()
        .exits(1)
        .says("\"dance\"")
        .says("nothing was changed");
    assert_eq!(scene.last_report()["code"], "UNKNOWN_ACTION");
    assert_eq!(scene.agent.current(), current);
    assert_eq!(
        scene.docker.count("compose up") + scene.docker.count("compose down"),
        0
    );
}

#[test]
fn explicit_nulls_change_nothing() {
    let scene = Scene::new();
    scene
        .plane
        .tenancy()
        .set(|settings| settings.explicit_nulls = true);
    scene.apply_ok();
    scene.agent.tick().exits(0).says("converged");
}

#[test]
fn a_laptop_that_is_offline_is_no_failure() {
    let mut scene = Scene::applied();
    scene
        .agent
        .set("laptop_mode", "true")
        .set("log_level", "INFO");
    scene.plane.refuse_connections(Peer::Tenancy);
    assert_eq!(scene.agent.timer_tick().stderr(0), "", "offline is silent");
    scene.agent.set("log_level", "DEBUG");
    scene
        .agent
        .timer_tick()
        .exits(0)
        .says("offline: no connection to tenancy");
    scene.agent.set("laptop_mode", "false");
    scene
        .agent
        .timer_tick()
        .exits(75)
        .says("no connection to tenancy");
}
