//! Every way in which a bundle is refused, through the whole agent: the code, the exact words that a person sees, one
//! report, and a box on which nothing has changed. `docs/TROUBLESHOOTING.md` names these tests beside their words.

mod archive;
mod case;
mod variables;

use crate::support::scene::{Scene, bundle, compose};
use case::{Case, Seen, second, template};
use control_plane::BundleBuilder;
use serde_json::{Value, json};
use std::fs;

/// A second bundle with these services beside its own.
fn services(more: &Value) -> BundleBuilder {
    second().compose(&compose(more).to_string())
}

fn image(name: &str) -> Value {
    json!({"web": {"image": name, "restart": "always"}})
}

#[test]
fn paths_outside_the_fence() {
    let path = |path: &str| second().secret("OUT", path);
    let registry = json!({"entries": [
        {"var": "DB", "path": "see/db"},
        {"path": "env-prod-01/see/registry", "use": "registry-auth"},
        {"var": "OUT", "path": "env-prod-01/see/db"},
    ]});
    Case::new().refuses(
        "MANIFEST_PATH",
        &[
            (path("env-prod-01/see/db"), &["the path \"env-prod-01/see/db\" of OUT is outside env-qa-02/see/"]),
            (path("env-qa-02/other/db"), &["the path \"env-qa-02/other/db\" of OUT is outside env-qa-02/see/"]),
            (path("monky/data/env-prod-01/see/db"), &["the path \"monky/data/env-prod-01/see/db\" of OUT is outside env-qa-02/see/"]),
            (path("db"), &["the path \"db\" of OUT is outside env-qa-02/see/"]),
            (path("/see/db"), &["the path \"/see/db\" of OUT is absolute"]),
            (path("see/../../x"), &["the path \"see/../../x\" of OUT has a .. component"]),
            (path("see/%2e%2e/x"), &["the path \"see/%2e%2e/x\" of OUT has a %"]),
            (path("see//db"), &["the path \"see//db\" of OUT has a //"]),
            (path("see/d\tb"), &["the path \"see/d\\tb\" of OUT has control characters"]),
            (
                second().manifest(&registry),
                &["the path \"env-prod-01/see/registry\" of the registry credential is outside env-qa-02/see/", "the path \"env-prod-01/see/db\" of OUT is outside env-qa-02/see/"],
            ),
        ],
    );
}

#[test]
fn another_store_of_secrets() {
    let provider = |word: &str| second().meta_with(&json!({"secrets_provider": word}));
    let case = Case::new();
    case.refuses(
        "SECRETS_PROVIDER",
        &[
            (
                provider("aws"),
                &["meta.secrets_provider is \"aws\"; this agent reads from openbao only"],
            ),
            (
                provider("none"),
                &["meta.secrets_provider is none, and the manifest has 1 entries"],
            ),
        ],
    );
    case.takes(&provider("openbao"));
}

#[test]
fn a_step_back() {
    let case = Case::new();
    let code = "ROLLBACK_REFUSED";
    let meta = |extra: Value| {
        let mut meta = json!({"env_id": "env-qa-02"});
        let fields = meta.as_object_mut().unwrap();
        fields.extend(extra.as_object().unwrap().clone());
        bundle(1).meta(&meta)
    };
    let rendered = |at: &str| meta(json!({"rendered_at": at}));
    let fifth = bundle(5);
    case.takes(&fifth);
    let than = |bundle: &BundleBuilder| bundle.build().sha()[..12].to_owned();
    let older = format!(
        "generation 4 is older than 5 of the applied {}; meta.agent.allow_rollback is not true",
        than(&fifth)
    );
    let earlier = format!(
        "it was rendered 300 s before the applied {}; meta.agent.allow_rollback is not true",
        than(&fifth)
    );
    case.refuses(
        code,
        &[
            (bundle(4), &[&older]),
            (rendered("2026-09-08T13:55:00"), &[&earlier]),
        ],
    );
    // Less than five minutes is the clocks of two renderers.
    case.takes(&rendered("2026-09-08T13:55:01Z"));
    let (one, two) = (meta(json!({"n": 1})), meta(json!({"n": 2})));
    case.takes(&one);
    case.takes(&two);
    case.refuses(code, &[(one.clone(), &["this bundle was applied before and replaced since; meta.agent.allow_rollback is not true"])]);
    case.takes(&one.meta_with(&json!({"agent": {"allow_rollback": true}})));
    case.takes(&bundle(4));
    case.takes(&bundle(3).meta_with(&json!({"agent": {"allow_rollback": true}})));
}

#[test]
fn too_little_room() {
    let mut case = Case::new();
    fs::create_dir_all(case.scene.docker.path("data-root")).unwrap();
    let need = 1_u64 << 50;
    let rows = [
        json!({"disk_need_bytes": need}),
        json!({"disk": {"need_bytes": need}}),
        json!({"agent": {"disk_need_bytes": need}, "disk_need_bytes": 1}),
    ];
    let code = "DISK_SHORT";
    let sum = "the bundle needs 1572864 GiB (need 1048576 GiB × disk_factor 1.5 + disk_headroom_bytes 0 bytes)";
    for row in rows {
        let made = second().meta_with(&row).build();
        let told = case.refuses_one(Seen::BeforeSecrets, code, &made);
        let findings: Vec<&str> = told.line.split("; ").collect();
        let places = [
            case.scene.agent.deploy_dir(),
            case.scene.docker.path("data-root"),
        ];
        assert_eq!(findings.len(), 2, "{}", told.line);
        for (finding, place) in findings.iter().zip(places) {
            let head = format!("{code}: {} has ", place.display());
            assert!(
                finding.starts_with(&head) && finding.contains(" GiB free, "),
                "{finding}"
            );
            assert!(finding.ends_with(sum), "{finding}");
        }
    }
    case.scene
        .agent
        .set("disk_headroom_bytes", &need.to_string());
    let made = second().build();
    let told = case.refuses_one(Seen::BeforeSecrets, code, &made);
    let sum = "the bundle needs 1048576 GiB (need 0 bytes × disk_factor 1.5 + disk_headroom_bytes 1048576 GiB)";
    assert!(told.line.ends_with(sum), "{}", told.line);
}

#[test]
fn images_that_are_not_pinned() {
    let policy =
        |word: &str, name: &str| services(&image(name)).meta_with(&json!({"images_policy": word}));
    let with = |lines: &str, name: &str| {
        template(lines)
            .compose(&compose(&image(name)).to_string())
            .meta_with(&json!({"images_policy": "tag"}))
    };
    let case = Case::new();
    case.refuses(
        "IMAGE_NOT_PINNED",
        &[
            (policy("tag", "a/web"), &["the image \"a/web\" of service \"web\" has no tag, which images_policy tag asks for"]),
            (policy("tag", "host:5000/web"), &["the image \"host:5000/web\" of service \"web\" has no tag, which images_policy tag asks for"]),
            (policy("tag", "a/web:latest"), &["the image \"a/web:latest\" of service \"web\" has the tag latest, which images_policy tag forbids"]),
            (policy("tag", "a/web:${TAG:-latest}"), &["the image \"a/web:${TAG:-latest}\" of service \"web\" has the tag latest, which images_policy tag forbids"]),
            (with("TAG=latest\n", "a/web:${TAG}"), &["the image \"a/web:${TAG}\" of service \"web\" has the tag latest, which images_policy tag forbids"]),
            (with("TAG=\n", "a/web:$TAG"), &["the image \"a/web:$TAG\" of service \"web\" has no tag, which images_policy tag asks for"]),
            (
                policy("digest", "a/web:1"),
                &["the image \"harbor.example/monky/api:1\" of service \"api\" has no @sha256: digest, which images_policy digest asks for", "the image \"harbor.example/monky/api:1\" of service \"migrate\" has no @sha256: digest, which images_policy digest asks for", "the image \"a/web:1\" of service \"web\" has no @sha256: digest, which images_policy digest asks for"],
            ),
        ],
    );
    case.takes(&with("TAG=7\n", "a/web:${TAG}"));
}

#[test]
fn an_image_whose_name_needs_a_secret_is_judged_with_it() {
    let case = Case::new();
    let put = |tag: &str| {
        let secret = json!({"value": tag});
        case.scene
            .plane
            .put_secret("env-qa-02/see/db", secret)
            .unwrap();
    };
    let secret_tag = template("TAG=${DB}\n")
        .compose(&compose(&image("a/web:${TAG}")).to_string())
        .meta_with(&json!({"images_policy": "tag"}));
    put("latest");
    let built = secret_tag.build();
    case.refuses_one(Seen::WithSecrets, "IMAGE_NOT_PINNED", &built)
        .is("IMAGE_NOT_PINNED", &["the image \"a/web:${TAG}\" of service \"web\" has the tag [redacted:DB], which images_policy tag forbids"]);
    put("7.1");
    case.scene.agent.tick().exits(0).says("applied");
    assert_eq!(case.scene.applied_sha().as_deref(), Some(built.sha()));
}

#[test]
fn an_agent_that_is_too_old() {
    let version = |text: &str| second().meta_with(&json!({"agent": {"min_version": text}}));
    let case = Case::new();
    let ours = env!("CARGO_PKG_VERSION");
    let detail = format!("the bundle needs monky-deployd 99.0.0-rc.1 or newer, this is {ours}");
    case.refuses("AGENT_TOO_OLD", &[(version("99.0.0-rc.1"), &[&detail])]);
    case.takes(&version(&format!("{ours}-rc.1")));
}

#[test]
fn a_service_that_would_be_built_here() {
    let case = Case::new();
    case.refuses(
        "BUILD_UNSUPPORTED",
        &[(
            services(&json!({"b": {"build": "./b"}, "a": {"build": {"context": "."}}})),
            &["nothing is built on the box: give service \"a\", \"b\" an image:"],
        )],
    );
    case.takes(&services(&json!({"a": {"build": ".", "image": "a:1"}})));
}

#[test]
fn a_file_that_compose_refuses() {
    let mut unknown = compose(&json!({}));
    unknown["servces"] = json!({});
    Case::new().refuses(
        "COMPOSE_INVALID",
        &[(
            second().compose(&unknown.to_string()),
            &["validating compose file: additional properties 'servces' not allowed"],
        )],
    );
}

#[test]
fn faults_of_several_kinds_are_told_together() {
    let made = template("DOCKER_HOST=x\nX=${A}\n")
        .compose(&compose(&image("a/web")).to_string())
        .secret("OUT", "../x")
        .meta_with(&json!({
            "generation": 0,
            "secrets_provider": "aws",
            "images_policy": "tag",
            "agent": {"min_version": "99.0.0"},
        }));
    let first = bundle(1).build();
    let older = format!(
        "ROLLBACK_REFUSED: generation 0 is older than 1 of the applied {}; meta.agent.allow_rollback is not true",
        &first.sha()[..12]
    );
    let old = format!(
        "AGENT_TOO_OLD: the bundle needs monky-deployd 99.0.0 or newer, this is {}",
        env!("CARGO_PKG_VERSION")
    );
    Case::new().refuses(
        "ENV_INCOMPLETE",
        &[(
            made,
            &[
                "unresolved: A",
                "ENV_RESERVED: the template defines DOCKER_HOST",
                "MANIFEST_PATH: the path \"../x\" of OUT has a .. component",
                "SECRETS_PROVIDER: meta.secrets_provider is \"aws\"; this agent reads from openbao only",
                &older,
                &old,
                "IMAGE_NOT_PINNED: the image \"a/web\" of service \"web\" has no tag, which images_policy tag asks for",
            ],
        )],
    );
}

#[test]
fn containers_of_somebody_else_under_our_name() {
    let scene = Scene::applied();
    let mut engine = scene.docker.engine();
    engine["containers"][0]["working_dir"] = "/srv/by-hand".into();
    fs::write(scene.docker.path("engine.json"), engine.to_string()).unwrap();
    let current = scene.agent.current();
    let made = second().build();
    scene.want(&made);
    scene.forget();
    scene.make_due();
    let ran = scene.agent.timer_tick();
    let name = engine["containers"][0]["name"].as_str().unwrap();
    let live = scene.agent.live("").canonicalize().unwrap();
    let words = format!(
        "the compose project monky-env-qa-02 is somebody else's: container {name} was made from /srv/by-hand, not from {}; `monky-deployd tick --adopt` takes that deployment over with its volumes; or stop it, or choose another compose_project",
        live.display()
    );
    ran.exits(1)
        .says(&format!("error: {words} code=PROJECT_CONFLICT"));
    let report = scene.last_report();
    assert_eq!(
        (&report["result"], &report["code"], &report["detail"]),
        (
            &json!("failed"),
            &json!("PROJECT_CONFLICT"),
            &json!(format!("PROJECT_CONFLICT: {words}"))
        )
    );
    assert_eq!(
        (scene.docker.engine(), scene.agent.current()),
        (engine, current)
    );
    assert_eq!(scene.docker.count("compose up"), 0);
    scene.make_due();
    scene
        .agent
        .timer_tick()
        .exits(1)
        .says("failed with PROJECT_CONFLICT, next try at");
    scene
        .agent
        .run(&["tick", "--force", "--adopt"])
        .exits(0)
        .says("applied");
}
