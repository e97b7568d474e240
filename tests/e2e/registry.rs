//! Pulls from a real registry that wants a credential: what each failure is called, that the registry's own words reach
//! log, report and checkin, and what becomes of the credential.

use crate::lab::Lab;
use crate::support::real_docker::IMAGE;
use crate::support::real_process::free_port;
use crate::support::real_registry::{PASSWORD, Pushed, RealRegistry, USER};
use crate::support::skip;
use control_plane::BundleBuilder;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

/// A lab with a registry and an image in it that is this test's own.
struct Shop {
    lab: Lab,
    registry: RealRegistry,
    pushed: Pushed,
}

impl Shop {
    #[track_caller]
    fn open(env_id: &str) -> Option<Self> {
        let lab = Lab::open(env_id)?;
        let registry = skip::require("registry", RealRegistry::start())?;
        let image = format!("monky-deployd-test/{env_id}:1");
        lab.docker.make_image(&image, env_id);
        let pushed = registry.push(lab.docker, &image, "monky/web:1");
        lab.docker.run(&["rmi", &image]);
        Some(Self {
            lab,
            registry,
            pushed,
        })
    }

    /// A bundle that pulls this image, with the credential at `see/registry` or without any.
    fn bundle(&self, generation: u64, image: &str, credential: Option<&Value>) -> BundleBuilder {
        let compose = format!("services:\n  web:\n    image: {image}\n    restart: always\n");
        let mut entries = Vec::new();
        if let Some(credential) = credential {
            self.lab.put_secret("registry", credential);
            entries.push(json!({"path": "see/registry", "use": "registry-auth"}));
        }
        self.lab
            .bundle(generation, &compose)
            .meta_with(&json!({"pull": "always"}))
            .manifest(&json!({"entries": entries}))
    }

    fn docker_config(&self) -> Value {
        let file = self.lab.agent.state_dir().join("docker/config.json");
        serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        self.lab.docker.cleanup(&self.lab.project());
        for image in [&self.pushed.reference, &self.pushed.pinned] {
            self.lab.docker.try_run(&["rmi", "-f", image]);
        }
    }
}

#[test]
fn the_credential_is_written_kept_and_taken_away() {
    let Some(mut shop) = Shop::open("env-shop") else {
        return;
    };
    let good = shop.registry.credential();
    let pushed = shop.pushed.clone();
    let bundle = shop.bundle(1, &pushed.reference, Some(&good));
    shop.lab.want(&bundle);
    let ran = shop.lab.agent.tick();
    ran.exits(0)
        .says("(+ registry credential)")
        .says(&shop.registry.host())
        .says(USER)
        .is_silent_on(PASSWORD);
    let file = shop.lab.agent.state_dir().join("docker/config.json");
    let first = fs::metadata(&file).unwrap();
    assert_eq!(first.permissions().mode() & 0o7777, 0o600);
    assert!(
        !shop
            .lab
            .environ("web")
            .values()
            .any(|v| v.contains(PASSWORD))
    );
    assert_eq!(shop.lab.service("web").image, pushed.reference);

    // The same credential is not written again; a digest is as good as a tag.
    let pinned = shop.bundle(2, &pushed.pinned, Some(&good));
    shop.lab
        .applies(&pinned.meta_with(&json!({"images_policy": "digest"})));
    assert_eq!(fs::metadata(&file).unwrap().ino(), first.ino());

    // A credential without a registry is for the one of the configuration.
    let host = shop.registry.host();
    shop.lab.agent.set("registry_host", &format!("\"{host}\""));
    let bare = json!({"value": format!("{USER}:{PASSWORD}\n")});
    shop.lab
        .applies(&shop.bundle(3, &pushed.reference, Some(&bare)));

    // One that cannot be used is a warning; the last good one stays, and the pull succeeds with it.
    for (generation, broken, words) in [
        (4, json!({"value": "no-colon-here"}), "there is no colon"),
        (5, json!({"value": "{not json"}), "is not JSON"),
        (6, json!({"value": " \n "}), "nothing but blanks"),
    ] {
        let bundle = shop.bundle(generation, &pushed.reference, Some(&broken));
        shop.lab.want(&bundle);
        let ran = shop.lab.agent.tick();
        ran.exits(0).says(words).is_silent_on("no-colon-here");
    }
    assert_eq!(fs::metadata(&file).unwrap().ino(), first.ino());

    // Gone from the manifest, gone from the file.
    let without = shop.bundle(7, IMAGE, None);
    shop.lab
        .applies(&without.meta_with(&json!({"pull": "never"})));
    assert_eq!(shop.docker_config(), json!({}));
}

#[test]
fn each_failing_pull_has_its_code_and_the_registrys_words() {
    let Some(mut shop) = Shop::open("env-pull") else {
        return;
    };
    // Nothing is due by itself after a failure.
    shop.lab.agent.set("interval_s", "600");
    let lab = &shop.lab;
    let first = lab.applies(
        &shop
            .bundle(1, IMAGE, None)
            .meta_with(&json!({"pull": "never"})),
    );
    let web = lab.service("web").id;

    let host = shop.registry.host();
    let image = shop.pushed.reference.as_str();
    let unknown = format!("{host}/monky/web:nope");
    let nobody = format!("127.0.0.1:{}/monky/web:1", free_port());
    let nowhere = "registry.invalid/monky/web:1";
    let good = shop.registry.credential();
    let wrong = json!({"registry": host, "username": USER, "password": "wr0ng-password"});
    let rows = [
        (image, None, "PULL_AUTH", "no basic auth credentials"),
        (image, Some(&wrong), "PULL_AUTH", "unauthorized"),
        (
            unknown.as_str(),
            Some(&good),
            "PULL_NOT_FOUND",
            "manifest unknown",
        ),
        (
            nobody.as_str(),
            Some(&good),
            "PULL_NETWORK",
            "connection refused",
        ),
        (nowhere, None, "PULL_NETWORK", "registry.invalid"),
    ];
    for (generation, (image, credential, code, words)) in (2..).zip(rows) {
        lab.want(&shop.bundle(generation, image, credential));
        let ran = lab.agent.tick();
        ran.exits(1)
            .says(code)
            .says(words)
            .says("exit status")
            .says(&lab.agent.state_dir().join("docker").display().to_string())
            .is_silent_on("wr0ng-password");
        let (registry, _) = image.split_once('/').unwrap();
        ran.says(registry);
        let report = lab.last_report_is(code);
        let detail = report["detail"].as_str().unwrap();
        assert!(
            detail.starts_with(&format!("{code}: compose pull: ")),
            "{detail}"
        );
        assert!(detail.contains(words) && detail.len() <= 900, "{detail}");
        assert!(!report.to_string().contains("wr0ng-password"));
        // The old release is current and runs.
        assert_eq!(lab.agent.current(), Some(format!("{}-1", first.sha())));
        assert_eq!(lab.service("web").id, web);
        // The next checkin carries the same words, and while the bundle waits for its next try nothing is pulled.
        lab.agent.run(&["tick"]).exits(0);
        assert!(lab.agent.state()["failure"]["next_try_at"].is_string());
    }
    let wanted = lab.plane.checkins().pop().unwrap();
    let last_error = wanted["last_error"].as_str().unwrap();
    assert!(last_error.contains("PULL_"), "{last_error}");
    assert_eq!(wanted["applied_sha"], first.sha());

    // With what was missing it goes through.
    lab.want(&shop.bundle(9, image, Some(&good)));
    lab.agent.tick().exits(0);
    assert_eq!(lab.service("web").image, image);
}
