//! Every way in which a secret cannot be read, on a real OpenBao: each is told by name, all of them together, and nothing
//! that runs is touched. And the kinds of value that can.

use crate::lab::{Lab, until};
use crate::support::real_docker::IMAGE;
use control_plane::BundleBuilder;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;

const COMPOSE: &str =
    "services:\n  web:\n    image: IMAGE\n    restart: unless-stopped\n    env_file: .env\n";

/// A bundle that wants these entries, each as a variable of its own.
fn bundle(lab: &Lab, generation: u64, entries: &[Value]) -> BundleBuilder {
    let template: String = entries
        .iter()
        .filter_map(|entry| entry["var"].as_str())
        .map(|var| format!("{var}=${{{var}}}\n"))
        .collect();
    lab.bundle(generation, &COMPOSE.replace("IMAGE", IMAGE))
        .template(&template)
        .manifest(&json!({"entries": entries}))
}

/// The agent's present token, as an operator would find it.
fn token(lab: &Lab) -> String {
    let file = lab.agent.state_dir().join("token");
    fs::read_to_string(file).unwrap().trim().to_owned()
}

#[test]
fn everything_that_cannot_be_read_is_named_at_once() {
    let Some(lab) = Lab::open("env-unreadable") else {
        return;
    };
    lab.put_secret("good", &json!({"value": "g00d"}));
    let first = lab.applies(&bundle(
        &lab,
        1,
        &[json!({"var": "GOOD", "path": "see/good"})],
    ));
    let web = lab.service("web").id;

    for name in ["deleted", "destroyed", "keys", "object"] {
        lab.put_secret(name, &json!({"user": "u", "list": [1]}));
    }
    let path = |name: &str| format!("env-unreadable/see/{name}");
    lab.estate.bao.delete_version(&path("deleted"), 1);
    lab.estate.bao.destroy_version(&path("destroyed"), 1);
    lab.want(&bundle(
        &lab,
        2,
        &[
            json!({"var": "GOOD", "path": "see/good"}),
            json!({"var": "NO_PATH", "path": "see/nowhere"}),
            json!({"var": "NO_VERSION", "path": "see/good", "version": 7}),
            json!({"var": "NO_KEY", "path": "see/keys", "key": "password"}),
            json!({"var": "NO_DEFAULT", "path": "see/keys"}),
            json!({"var": "NO_TEXT", "path": "see/object", "key": "list"}),
            json!({"var": "DELETED", "path": "see/deleted"}),
            json!({"var": "DESTROYED", "path": "see/destroyed", "version": 1}),
            json!({"use": "registry-auth", "path": "see/no-registry"}),
        ],
    ));
    lab.agent.tick().exits(1).says("SECRETS_UNREADABLE");
    let report = lab.last_report_is("SECRETS_UNREADABLE");
    let detail = report["detail"].as_str().unwrap();
    for words in [
        "NO_PATH: there is no secret",
        "see/nowhere",
        "NO_VERSION: ",
        "has no version 7",
        "NO_KEY: ",
        "it has no key password, only list, user",
        "NO_DEFAULT: ",
        "it has no key value, only list, user",
        "NO_TEXT: ",
        "its key list is neither text, number nor boolean",
        "DELETED: ",
        "was deleted at 2",
        "DESTROYED: ",
        "was destroyed",
        "the registry credential: there is no secret",
        "see/no-registry",
    ] {
        assert!(detail.contains(words), "«{words}» is not in: {detail}");
    }
    assert!(
        !detail.contains("GOOD:") && !detail.contains("g00d"),
        "{detail}"
    );
    // Nothing was touched, and the token that came from the lease is still good.
    assert_eq!(lab.applied().as_deref(), Some(first.sha()));
    assert_eq!(lab.agent.current(), Some(format!("{}-1", first.sha())));
    assert_eq!(lab.service("web").id, web);
    assert_eq!(lab.plane.tenancy().leases_granted(), 1);

    // Mended, it applies.
    lab.want(&bundle(
        &lab,
        3,
        &[json!({"var": "NO_PATH", "path": "see/nowhere"})],
    ));
    lab.put_secret("nowhere", &json!({"value": "here now"}));
    lab.agent.tick().exits(0);
    assert_eq!(lab.environ("web")["NO_PATH"], "here now");
}

#[test]
fn a_policy_that_forbids_is_told_from_a_token_that_is_dead() {
    let Some(lab) = Lab::with_own_estate("env-forbidden") else {
        return;
    };
    lab.put_secret("db", &json!({"value": "x"}));
    let wanted = [json!({"var": "DB", "path": "see/db"})];
    let first = lab.applies(&bundle(&lab, 1, &wanted));

    // The policy takes the environment's folder away: everything is forbidden, and the token lives.
    let bao = &lab.estate.bao;
    let policy = bao.read("sys/policies/acl/see-env")["data"]["policy"].clone();
    let narrow = r#"path "auth/token/lookup-self" { capabilities = ["read"] }"#;
    bao.write("sys/policies/acl/see-env", &json!({"policy": narrow}));
    lab.want(&bundle(&lab, 2, &wanted));
    lab.agent.tick().exits(1);
    let report = lab.last_report_is("SECRETS_UNREADABLE");
    let detail = report["detail"].as_str().unwrap();
    for words in ["policy", "DB", "the mount monky"] {
        assert!(detail.contains(words), "{detail}");
    }

    // One of two is forbidden: it is named, the other is not.
    let one = r#"
path "monky/data/env-forbidden/see/db" { capabilities = ["read"] }
path "auth/token/lookup-self" { capabilities = ["read"] }"#;
    bao.write("sys/policies/acl/see-env", &json!({"policy": one}));
    lab.put_secret("other", &json!({"value": "y"}));
    let other = json!({"var": "OTHER", "path": "see/other"});
    lab.want(&bundle(&lab, 3, &[wanted[0].clone(), other]));
    lab.agent.tick().exits(1);
    let report = lab.last_report_is("SECRETS_UNREADABLE");
    let detail = report["detail"].as_str().unwrap();
    assert!(
        detail.contains("OTHER: OpenBao's policy does not let us read"),
        "{detail}"
    );
    assert!(!detail.contains("DB:"), "{detail}");
    bao.write("sys/policies/acl/see-env", &json!({"policy": policy}));

    // A mount that is not there is forbidden, too, as long as one is not root; the words say both.
    lab.plane
        .tenancy()
        .set(|settings| settings.vault["mount"] = json!("no-such-mount"));
    lab.want(&bundle(&lab, 4, &wanted));
    lab.agent.tick().exits(1);
    let report = lab.last_report_is("SECRETS_UNREADABLE");
    let detail = report["detail"].as_str().unwrap();
    assert!(
        detail.contains("there is a KV store at that mount") && detail.contains("no-such-mount"),
        "{detail}"
    );
    assert_eq!(lab.applied().as_deref(), Some(first.sha()));
}

#[test]
fn a_token_that_dies_under_way_is_replaced_once() {
    let Some(lab) = Lab::open("env-dead-token") else {
        return;
    };
    lab.put_secret("db", &json!({"value": "x"}));
    let wanted = [json!({"var": "DB", "path": "see/db"})];
    lab.applies(&bundle(&lab, 1, &wanted));
    let before = token(&lab);
    lab.estate.bao.revoke_token(&before);
    let second = lab.want(&bundle(&lab, 2, &wanted));
    // Tenancy refuses the dead token; the bootstrap grant has not been spent by it.
    lab.agent.tick().exits(0);
    assert_eq!(lab.applied().as_deref(), Some(second.sha()));
    assert_ne!(token(&lab), before);
    // A dead token without any other grant: nothing to go on with, and the way out is told.
    lab.estate.bao.revoke_token(&token(&lab));
    fs::remove_file(lab.agent.path("bootstrap.jwt")).unwrap();
    lab.agent.tick().exits(1).says("re-run the install kit");
    lab.agent.stage_grant(&lab.plane.grant());
    lab.agent.timer_tick().exits(0);
}

/// A docker that waits, at the first look at a compose file, until the test lets it go on.
const WAITING_DOCKER: &str = r#"#!/bin/sh
case "$*" in *--variables*)
    touch BOX/is-waiting
    until [ -e BOX/go-on ]; do sleep 0.05; done ;;
esac
exec docker "$@"
"#;

#[test]
fn a_token_that_dies_after_the_checkin_is_replaced_in_the_same_tick() {
    let Some(mut lab) = Lab::open("env-dies-late") else {
        return;
    };
    lab.put_secret("db", &json!({"value": "x"}));
    let wanted = [json!({"var": "DB", "path": "see/db"})];
    lab.applies(&bundle(&lab, 1, &wanted));

    let script = lab.agent.path("docker");
    let place = lab.agent.path("").display().to_string();
    let text = WAITING_DOCKER.replace("BOX", place.trim_end_matches('/'));
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    lab.agent.set("docker_bin", script.to_str().unwrap());
    let second = lab.want(&bundle(&lab, 2, &wanted));
    let tick = lab.start(&["tick", "--force"]);
    until(|| lab.agent.path("is-waiting").exists().then_some(()));
    lab.estate.bao.revoke_token(&token(&lab));
    fs::write(lab.agent.path("go-on"), "").unwrap();
    tick.ends(0);
    assert_eq!(lab.applied().as_deref(), Some(second.sha()));
}

#[test]
fn numbers_and_booleans_are_their_json_text() {
    let Some(lab) = Lab::open("env-kinds") else {
        return;
    };
    lab.put_secret(
        "kinds",
        &serde_json::from_str(
            r#"{"text": "", "whole": 9007199254740992, "exact": 1.25, "long": 123456789012345678901234567890, "yes": true, "no": false}"#,
        )
        .unwrap(),
    );
    lab.put_secret("single", &json!({"anything": "the only key"}));
    lab.put_secret(
        "value",
        &json!({"value": "by default", "other": "not this"}),
    );
    let old = lab.put_secret("versions", &json!({"value": "old"}));
    lab.put_secret("versions", &json!({"value": "new"}));
    let mut entries: Vec<Value> = ["text", "whole", "exact", "long", "yes", "no"]
        .map(|key| json!({"var": key.to_uppercase(), "path": "see/kinds", "key": key}))
        .into();
    entries.extend([
        json!({"var": "SINGLE", "path": "see/single"}),
        json!({"var": "VALUE", "path": "env-kinds/see/value"}),
        json!({"var": "LATEST", "path": "monky/data/env-kinds/see/versions"}),
        json!({"var": "PINNED", "path": "see/versions", "version": old}),
    ]);
    lab.applies(&bundle(&lab, 1, &entries));
    let environ = lab.environ("web");
    for (name, value) in [
        ("TEXT", ""),
        ("WHOLE", "9007199254740992"),
        ("EXACT", "1.25"),
        // OpenBao keeps numbers as floating point; what it answers is what arrives.
        ("LONG", "1.2345678901234568e+29"),
        ("YES", "true"),
        ("NO", "false"),
        ("SINGLE", "the only key"),
        ("VALUE", "by default"),
        ("LATEST", "new"),
        ("PINNED", "old"),
    ] {
        assert_eq!(environ[name], value, "{name}");
    }
}
