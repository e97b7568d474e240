//! Secrets that cannot be read are listed together, by name and with the way in which they are missing; and the fence.

use crate::support::scene::{ENV, Scene, bundle};
use control_plane::{Action, Peer};
use serde_json::{Value, json};

/// A manifest entry.
fn entry(var: &str, path: &str, more: &Value) -> Value {
    let mut entry = json!({"var": var, "path": path});
    entry
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    entry
}

#[test]
fn everything_unreadable_is_listed_at_once() {
    let scene = Scene::new();
    let see = |name: &str| format!("{ENV}/see/{name}");
    let put = |name: &str, data: Value| scene.plane.put_secret(&see(name), data).unwrap();
    put("versions", json!({"value": "one"}));
    put("versions", json!({"value": "two"}));
    put("versions", json!({"value": "three"}));
    assert!(
        scene.bao().delete_version(&see("versions"), 1)
            && scene.bao().destroy_version(&see("versions"), 2)
    );
    put("two-keys", json!({"a": "1", "b": "2"}));
    put("object", json!({"value": {"deep": 1}}));
    put("denied", json!({"value": "x"}));
    scene
        .bao()
        .set(|settings| settings.denied = vec![see("denied")]);
    let none = json!({});
    let manifest = json!({"entries": [
        entry("DB", "see/db", &none),
        entry("MISSING", "see/nowhere", &none),
        entry("DELETED", "see/versions", &json!({"version": 1})),
        entry("DESTROYED", "see/versions", &json!({"version": 2})),
        entry("GOOD", "see/versions", &json!({"version": 3})),
        entry("NO_VERSION", "see/versions", &json!({"version": 9})),
        entry("NO_KEY", "see/two-keys", &none),
        entry("OTHER_KEY", "see/two-keys", &json!({"key": "c"})),
        entry("OBJECT", "see/object", &none),
        entry("DENIED", "see/denied", &none),
    ]});
    let template = "DB=${DB}\nMISSING=${MISSING}\nDELETED=${DELETED}\nDESTROYED=${DESTROYED}\nGOOD=${GOOD}\nNO_VERSION=${NO_VERSION}\n\
        NO_KEY=${NO_KEY}\nOTHER_KEY=${OTHER_KEY}\nOBJECT=${OBJECT}\nDENIED=${DENIED}\nAPP_MODE=x\n";
    scene.want(&bundle(1).template(template).manifest(&manifest).build());
    let ran = scene.agent.tick();
    ran.exits(1).says("error: secrets cannot be read: ");
    for words in [
        "MISSING: there is no secret env-qa-02/see/nowhere",
        "DELETED: env-qa-02/see/versions was deleted at ",
        "it can be undeleted",
        "DESTROYED: that version of env-qa-02/see/versions was destroyed",
        "NO_VERSION: env-qa-02/see/versions has no version 9",
        "NO_KEY: env-qa-02/see/two-keys: it has no key value, only a, b",
        "OTHER_KEY: env-qa-02/see/two-keys: it has no key c, only a, b",
        "OBJECT: env-qa-02/see/object: its key value is neither text, number nor boolean",
        "DENIED: OpenBao's policy does not let us read env-qa-02/see/denied",
    ] {
        ran.says(words);
    }
    ran.is_silent_on("GOOD:").is_silent_on("; DB:");
    assert_eq!(scene.agent.current(), None, "nothing is staged");
    assert_eq!(scene.last_report()["code"], "SECRETS_UNREADABLE");
    assert_eq!(scene.docker.count("compose pull"), 0);
}

#[test]
fn every_path_forbidden_is_a_dead_token_or_a_policy() {
    let scene = Scene::applied();
    scene.want_again();
    scene
        .bao()
        .set(|settings| settings.denied = vec![format!("{ENV}/see/")]);
    scene
        .agent
        .tick()
        .exits(1)
        .says("OpenBao's policy lets us read none of them at the mount monky: DB")
        .says("check the role's policy");

    // The first look-up confirms the token, then it dies.
    scene.plane.fault(
        control_plane::Rule::on(
            Peer::Bao,
            Action::json(403, &json!({"errors": ["bad token"]})),
        )
        .path("/v1/auth/token/lookup-self")
        .skip(1),
    );
    scene
        .agent
        .tick()
        .exits(1)
        .says("OpenBao has revoked the token: the next try gets a new one");
    scene.plane.faults().clear();
}

#[test]
fn another_mount_that_tenancy_names_is_adopted_with_a_word() {
    let scene = Scene::new();
    scene
        .bao()
        .set(|settings| settings.kv_mount = "elsewhere".into());
    scene
        .plane
        .tenancy()
        .set(|settings| settings.vault["mount"] = "elsewhere".into());
    scene.want(&bundle(1).build());
    scene
        .agent
        .tick()
        .exits(0)
        .says("using the KV mount that tenancy names")
        .says("applied");
    assert_eq!(scene.to_bao("/v1/elsewhere/data/env-qa-02/see/db"), 1);
}

#[test]
fn another_openbao_that_tenancy_names_is_not_followed() {
    let scene = Scene::new();
    scene
        .plane
        .tenancy()
        .set(|settings| settings.vault["addr"] = "https://elsewhere.example:8200".into());
    scene.want(&bundle(1).build());
    scene
        .agent
        .tick()
        .exits(0)
        .says("tenancy names another OpenBao than the configuration; the configuration's stays")
        .says("applied");
}

#[test]
fn the_fence_can_be_narrowed_and_not_moved() {
    let scene = Scene::new();
    scene
        .plane
        .tenancy()
        .set(|settings| settings.vault["prefix"] = "env-qa-02/see/app".into());
    scene.want(&bundle(1).build());
    scene.agent.tick().exits(1).says("MANIFEST_PATH").says("DB");
    scene
        .plane
        .tenancy()
        .set(|settings| settings.vault["prefix"] = "env-other".into());
    scene
        .agent
        .tick()
        .exits(0)
        .says("env-other")
        .says("applied");
}

#[test]
fn many_secrets_are_read_over_a_few_connections() {
    let scene = Scene::new();
    let names: Vec<String> = (0..40).map(|n| format!("S{n}")).collect();
    let mut made = bundle(1);
    let mut template = String::from("APP_MODE=x\nDB=${DB}\n");
    for name in &names {
        scene
            .plane
            .put_secret(
                &format!("{ENV}/see/{name}"),
                json!({"value": format!("value-of-{name}")}),
            )
            .unwrap();
        made = made.secret(name, &format!("see/{name}"));
        template.push_str(&format!("{name}=${{{name}}}\n"));
    }
    scene.want(&made.template(&template).build());
    scene.agent.tick().exits(0).says("applied");
    let env = std::fs::read_to_string(scene.agent.live(".env")).unwrap();
    for name in &names {
        assert!(env.contains(&format!("{name}=value-of-{name}\n")), "{env}");
    }
    let reads: Vec<_> = scene
        .log()
        .requests()
        .into_iter()
        .filter(|logged| logged.request.path().starts_with("/v1/monky/"))
        .collect();
    let mut connections: Vec<u64> = reads.iter().map(|logged| logged.connection).collect();
    connections.sort_unstable();
    connections.dedup();
    assert_eq!(reads.len(), 41);
    assert!((2..=8).contains(&connections.len()), "{connections:?}");
}
