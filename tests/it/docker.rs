//! Docker's own trouble, each with its remedy, and what a failed pull or up says: the peer's own words, with a code.

use crate::support::scene::{Scene, bundle, compose};
use serde_json::json;
use std::fs;

#[test]
fn a_docker_that_cannot_be_used_says_which_way() {
    let rows: [(&str, i32, &[&str]); 4] = [
        (
            "daemon-down",
            75,
            &[
                "DOCKER_DOWN",
                "the docker daemon does not answer",
                "systemctl start docker",
            ],
        ),
        (
            "permission",
            1,
            &[
                "DOCKER_PERMISSION",
                "may not use docker's socket",
                "usermod -aG docker",
            ],
        ),
        (
            "no-compose",
            1,
            &[
                "DOCKER_MISSING",
                "no compose plugin in a system directory",
                "docker-compose-plugin",
            ],
        ),
        (
            "old-compose",
            1,
            &[
                "DOCKER_MISSING",
                "the installed Compose is too old",
                "or newer",
            ],
        ),
    ];
    for (trouble, exit, words) in rows {
        let scene = Scene::applied();
        let current = scene.agent.current();
        scene.docker.script(trouble, "");
        scene.want(&bundle(2).build());
        let ran = scene.agent.tick();
        ran.exits(exit);
        for words in words {
            ran.says(words);
        }
        let applied = scene.applied_sha();
        assert_eq!(
            (scene.agent.current(), applied.as_deref()),
            (current, Some(bundle(1).build().sha())),
            "{trouble}"
        );
        scene.docker.unscript(trouble);
        scene.agent.tick().exits(0).says("applied");
    }
}

#[test]
fn a_docker_that_is_not_installed_is_no_obstacle_for_the_checkin() {
    let mut scene = Scene::new();
    scene.agent.set("docker_bin", "/nowhere/docker");
    scene.agent.tick().exits(0).says("converged");
    assert_eq!(scene.plane.checkins()[0]["facts"]["docker"], json!(null));
    scene.want(&bundle(1).build());
    scene
        .agent
        .tick()
        .exits(1)
        .says("DOCKER_MISSING")
        .says("the docker program /nowhere/docker is not installed")
        .says("docker_bin");
    let plain = scene.agent.path("not-executable");
    fs::write(&plain, "x").unwrap();
    scene.agent.set("docker_bin", plain.to_str().unwrap());
    scene
        .agent
        .tick()
        .exits(1)
        .says("DOCKER_MISSING")
        .says("cannot be started");
}

#[test]
fn a_failed_pull_is_typed_and_tells_the_registrys_own_words() {
    let rows = [
        (
            "PULL_AUTH",
            "Error response from daemon: Head \"https://harbor.example/v2/monky/api/manifests/1\": no basic auth credentials",
        ),
        (
            "PULL_AUTH",
            "pull access denied for harbor.example/monky/api, repository does not exist or may require 'docker login'",
        ),
        (
            "PULL_NOT_FOUND",
            "manifest for harbor.example/monky/api:1 not found: manifest unknown: manifest unknown",
        ),
        (
            "PULL_RATE_LIMIT",
            "toomanyrequests: You have reached your pull rate limit",
        ),
        (
            "PULL_NETWORK",
            "dial tcp: lookup harbor.example on 127.0.0.53:53: no such host",
        ),
        (
            "PULL_NETWORK",
            "dial tcp 10.0.0.1:443: connect: connection refused",
        ),
        (
            "PULL_TLS",
            "tls: failed to verify certificate: x509: certificate signed by unknown authority",
        ),
        (
            "PULL_DISK",
            "failed to register layer: write /usr/lib/x: no space left on device",
        ),
        ("PULL_FAILED", "something that nobody foresaw"),
    ];
    let scene = Scene::applied();
    let (current, api) = (scene.agent.current(), scene.docker.container("api"));
    scene.want(&bundle(2).build());
    for (code, words) in rows {
        scene.docker.fail(
            "pull",
            18,
            &format!(" api Pulling \n\n api Error \n{words}"),
        );
        let ran = scene.agent.tick();
        ran.exits(1).says(code).says(words).says(&format!(
            "docker_config={}",
            scene.state_file("docker").display()
        ));
        let report = scene.last_report();
        assert_eq!(report["code"], code, "{words}");
        assert_eq!(
            report["detail"],
            json!(format!(
                "{code}: compose pull: api Pulling | api Error | {words}"
            ))
        );
        assert_eq!(scene.agent.state()["last"]["detail"], report["detail"]);
        assert!(
            report["log_tail"].as_str().unwrap().contains(words),
            "{report}"
        );
        assert_eq!(
            (scene.agent.current(), scene.docker.container("api")),
            (current.clone(), api.clone()),
            "the old release runs on"
        );
    }
    scene.docker.fail("pull", 18, "");
    scene
        .agent
        .tick()
        .exits(1)
        .says("compose pull: exit status 18");
    scene
        .docker
        .fail("pull", 18, &format!("begin {} the end", "x".repeat(2_000)));
    scene.agent.tick().exits(1);
    let detail = scene.last_report()["detail"].as_str().unwrap().to_owned();
    assert!(
        detail.starts_with("PULL_FAILED: compose pull: xxx")
            && detail.ends_with("the end")
            && detail.chars().count() <= 900,
        "{detail}"
    );
}

#[test]
fn a_flood_of_output_neither_blocks_nor_fills_the_report() {
    let scene = Scene::new();
    scene.docker.script("flood-pull", "2");
    scene.docker.fail("pull", 1, "the last word");
    scene.want(&bundle(1).build());
    scene.agent.tick().exits(1).says("PULL_FAILED");
    let report = scene.last_report();
    assert!(
        report["detail"]
            .as_str()
            .unwrap()
            .ends_with("the last word"),
        "{}",
        report["detail"]
    );
    assert!(report["log_tail"].as_str().unwrap().len() <= 64 * 1024);
    let log = fs::metadata(scene.state_file("last-apply.log"))
        .unwrap()
        .len();
    assert!(log <= 1024 * 1024, "{log}");
}

#[test]
fn a_failed_up_tells_docker_s_words_and_shows_the_containers() {
    let scene = Scene::applied();
    scene.docker.fail("up", 1, " Container monky-env-qa-02-api-1  Starting\nBind for 0.0.0.0:80 failed: port is already allocated");
    scene.want(&bundle(2).build());
    scene
        .agent
        .tick()
        .exits(1)
        .says("UP_FAILED")
        .says("port is already allocated");
    let report = scene.last_report();
    assert!(
        report["detail"].as_str().unwrap().starts_with(
            "UP_FAILED: compose up: Container monky-env-qa-02-api-1  Starting | Bind for"
        ),
        "{report}"
    );
    assert_eq!(report["containers"].as_array().unwrap().len(), 2);
    assert_eq!(
        scene.applied_sha().as_deref(),
        Some(bundle(1).build().sha())
    );
    assert_eq!(
        scene.agent.current().unwrap(),
        format!("{}-1", bundle(2).build().sha()),
        "current is the release last brought up"
    );
}

#[test]
fn a_compose_file_that_compose_refuses_is_refused_with_its_words() {
    let scene = Scene::new();
    let mut document = compose(&json!({}));
    document["servces"] = json!({});
    scene.want(&bundle(1).compose(&document.to_string()).build());
    scene
        .agent
        .tick()
        .exits(1)
        .says("COMPOSE_INVALID")
        .says("additional properties 'servces' not allowed");
    assert_eq!(scene.to_tenancy("/v1/agent/lease"), 0);
    assert_eq!(scene.last_report()["code"], "COMPOSE_INVALID");
}

#[test]
fn containers_of_somebody_else_under_our_name_are_left_alone() {
    let scene = Scene::applied();
    let path = scene.docker.path("engine.json");
    let mut engine = scene.docker.engine();
    engine["containers"][0]["working_dir"] = "/srv/by-hand".into();
    fs::write(&path, engine.to_string()).unwrap();
    scene.want(&bundle(2).build());
    scene.docker.forget();
    scene
        .agent
        .tick()
        .exits(1)
        .says("PROJECT_CONFLICT")
        .says("/srv/by-hand");
    assert_eq!(scene.docker.count("compose up"), 0);
    assert_eq!(scene.last_report()["code"], "PROJECT_CONFLICT");
}

#[test]
fn a_service_that_mounts_a_changed_bundle_file_is_recreated_and_no_other() {
    let scene = Scene::new();
    let more = json!({"web": {"image": "harbor.example/monky/web:1", "restart": "always", "volumes": ["./conf:/etc/web"]}});
    let make = |n: u64, text: &str| {
        bundle(n)
            .compose(&compose(&more).to_string())
            .file("conf/web.conf", text)
            .build()
    };
    scene.want(&make(1, "one\n"));
    scene.agent.tick().exits(0);
    let (web, api) = (scene.docker.container("web"), scene.docker.container("api"));
    scene.want(&make(2, "one\n"));
    scene.agent.tick().exits(0);
    assert_eq!(
        (scene.docker.container("web"), scene.docker.container("api")),
        (web.clone(), api.clone())
    );
    scene.want(&make(3, "two\n"));
    scene.agent.tick().exits(0);
    assert_ne!(scene.docker.container("web"), web);
    assert_eq!(scene.docker.container("api"), api);
    let up = scene.docker.last("compose up");
    let overlay = up.argv.iter().filter(|arg| *arg == "-f").count();
    assert_eq!(overlay, 2, "{:?}", up.argv);
}
