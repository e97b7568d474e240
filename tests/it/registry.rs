//! The pull credential: each form of it, written as docker's own before the pull; one that cannot be used is named without
//! its value and leaves the last good one in place.

use crate::support::scene::{ENV, Scene, bundle};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// A bundle whose manifest asks for a pull credential, too.
fn with_credential(n: u64, entry: &Value) -> control_plane::Bundle {
    let mut credential = json!({"path": "see/registry", "use": "registry-auth"});
    credential
        .as_object_mut()
        .unwrap()
        .extend(entry.as_object().unwrap().clone());
    bundle(n)
        .manifest(&json!({"entries": [{"var": "DB", "path": "see/db"}, credential]}))
        .build()
}

fn put(scene: &Scene, data: Value) {
    scene
        .plane
        .put_secret(&format!("{ENV}/see/registry"), data)
        .unwrap();
}

fn auths(scene: &Scene) -> Value {
    let bytes = fs::read(scene.state_file("docker/config.json")).unwrap();
    let config: Value = serde_json::from_slice(&bytes).unwrap();
    config["auths"].clone()
}

fn pair(text: &str) -> Value {
    use base64::Engine as _;
    json!({"auth": base64::engine::general_purpose::STANDARD.encode(text)})
}

#[test]
fn every_form_of_a_credential_reaches_docker() {
    let rows = [
        (
            json!({"value": "robot$pull:p4ss-of-robot"}),
            json!({}),
            "harbor.example",
            "robot$pull:p4ss-of-robot",
        ),
        (
            json!({"value": "robot:p4:ss\n"}),
            json!({}),
            "harbor.example",
            "robot:p4:ss",
        ),
        (
            json!({"value": "{\"username\": \"u\", \"password\": \"p4ss-w0rd\"}"}),
            json!({}),
            "harbor.example",
            "u:p4ss-w0rd",
        ),
        (
            json!({"value": "{\"registry\": \"other.example\", \"username\": \"u\", \"password\": \"p4ss\"}"}),
            json!({}),
            "other.example",
            "u:p4ss",
        ),
        (
            json!({"value": {"registry": null, "username": "u", "password": "p4ss-object"}}),
            json!({}),
            "harbor.example",
            "u:p4ss-object",
        ),
        (
            json!({"username": "u", "password": "whole-object"}),
            json!({}),
            "harbor.example",
            "u:whole-object",
        ),
        (
            json!({"a": "x", "b": "robot:by-its-key"}),
            json!({"key": "b"}),
            "harbor.example",
            "robot:by-its-key",
        ),
    ];
    let mut scene = Scene::new();
    scene.agent.set("registry_host", "harbor.example");
    for (n, (data, entry, registry, wanted)) in rows.into_iter().enumerate() {
        put(&scene, data.clone());
        scene
            .docker
            .script("login", &format!("{registry}={wanted}\n"));
        scene.want(&with_credential(n as u64 + 1, &entry));
        let ran = scene.agent.tick();
        ran.exits(0)
            .says("(+ registry credential)")
            .says("registry credential written")
            .says(registry)
            .says("applied");
        let password = wanted.split_once(':').unwrap().1;
        ran.is_silent_on(password);
        assert_eq!(auths(&scene), json!({registry: pair(wanted)}), "{data}");
        let env = fs::read_to_string(scene.agent.live(".env")).unwrap();
        assert!(!env.contains(password), "it is no variable");
        assert_eq!(scene.last_report()["secrets"], json!(["DB"]));
    }
    let config = scene.state_file("docker/config.json");
    assert_eq!(
        fs::metadata(&config).unwrap().permissions().mode() & 0o7777,
        0o600
    );
    assert_eq!(
        fs::metadata(scene.state_file("docker"))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777,
        0o700
    );
}

#[test]
fn one_that_cannot_be_used_is_named_and_the_last_good_one_stays() {
    let mut scene = Scene::new();
    scene.agent.set("registry_host", "harbor.example");
    put(&scene, json!({"value": "robot:good-password"}));
    scene.want(&with_credential(1, &json!({})));
    scene.agent.tick().exits(0);
    let good = auths(&scene);
    let rows = [
        ("", "it is empty"),
        (" \n", "it holds nothing but blanks"),
        ("no-colon-here", "there is no colon"),
        ("{\"username\": \"u-name\"}", "its JSON has no password"),
        ("{not json", "it begins with { and is not JSON"),
    ];
    for (n, (value, words)) in rows.into_iter().enumerate() {
        put(&scene, json!({"value": value}));
        scene.want(&with_credential(n as u64 + 2, &json!({})));
        let ran = scene.agent.tick();
        ran.exits(0)
            .says("the registry credential env-qa-02/see/registry cannot be used")
            .says(words)
            .says("the last good one stays")
            .says("applied");
        if value.len() > 4 {
            ran.is_silent_on(value);
        }
        assert_eq!(auths(&scene), good);
    }
}

#[test]
fn two_registries_share_a_file_and_one_that_is_gone_disappears() {
    let scene = Scene::new();
    for name in ["one", "two"] {
        let value = format!(
            "{{\"registry\": \"{name}.example\", \"username\": \"u\", \"password\": \"password-{name}\"}}"
        );
        scene
            .plane
            .put_secret(&format!("{ENV}/see/{name}"), json!({"value": value}))
            .unwrap();
    }
    let manifest = |names: &[&str]| {
        let mut entries = vec![json!({"var": "DB", "path": "see/db"})];
        entries.extend(
            names
                .iter()
                .map(|name| json!({"path": format!("see/{name}"), "use": "registry-auth"})),
        );
        json!({"entries": entries})
    };
    scene.want(&bundle(1).manifest(&manifest(&["one", "two"])).build());
    scene.agent.tick().exits(0);
    assert_eq!(
        auths(&scene),
        json!({"one.example": pair("u:password-one"), "two.example": pair("u:password-two")})
    );
    scene.want(&bundle(2).manifest(&manifest(&["two"])).build());
    scene.agent.tick().exits(0);
    assert_eq!(
        auths(&scene),
        json!({"two.example": pair("u:password-two")})
    );
    let inode = |scene: &Scene| {
        std::os::unix::fs::MetadataExt::ino(
            &fs::metadata(scene.state_file("docker/config.json")).unwrap(),
        )
    };
    let before = inode(&scene);
    scene.want(&bundle(3).manifest(&manifest(&["two"])).build());
    scene
        .agent
        .tick()
        .exits(0)
        .is_silent_on("registry credential written");
    assert_eq!(inode(&scene), before, "it is written only when it changes");
    scene.plane.down(false);
    scene.agent.tick().exits(0);
    assert_eq!(auths(&scene), json!(null));
}

#[test]
fn a_bare_credential_without_a_registry_host_is_an_error_of_its_own() {
    let mut scene = Scene::new();
    scene.agent.set("registry_host", "\"\"");
    put(&scene, json!({"value": "robot:password"}));
    scene.want(&with_credential(1, &json!({})));
    scene
        .agent
        .tick()
        .exits(0)
        .says("it names no registry, and registry_host is empty");
}

#[test]
fn a_missing_or_wrong_credential_fails_the_pull_with_its_type() {
    let scene = Scene::new();
    scene.docker.script("login", "harbor.example=robot:right\n");
    scene.want(&bundle(1).build());
    scene
        .agent
        .tick()
        .exits(1)
        .says("PULL_AUTH")
        .says("no basic auth credentials")
        .says("https://harbor.example/v2/monky/api/manifests/1");
    put(
        &scene,
        json!({"value": "{\"registry\": \"harbor.example\", \"username\": \"robot\", \"password\": \"wrong-one\"}"}),
    );
    scene.want(&with_credential(2, &json!({})));
    scene
        .agent
        .tick()
        .exits(1)
        .says("PULL_AUTH")
        .says("unauthorized: authentication required");
}
