//! Every refusal of the verdict, by code and text.

use super::super::manifest::{Entry, Purpose};
use super::super::meta::ImagesPolicy;
use super::*;
use crate::names::{EnvId, VarName};
use serde_json::json;

/// A case in which nothing is wrong, to be spoiled in one place.
struct World {
    meta: Meta,
    manifest: Manifest,
    template: &'static str,
    references: Vec<(String, bool)>,
    model: Value,
    compose_error: Option<&'static str>,
    rooms: Vec<Room>,
    applied: Option<Age>,
    history: Vec<Sha256>,
}

fn world() -> World {
    let room = |place: &str| Room {
        place: place.to_owned(),
        free_bytes: 10 << 30,
        free_inodes: Some(1_004),
    };
    World {
        meta: Meta::default(),
        manifest: Manifest::default(),
        template: "A=1\n",
        references: vec![("A".to_owned(), true), ("OPTIONAL".to_owned(), false)],
        model: json!({"services": {"api": {"image": "nginx:1"}}}),
        compose_error: None,
        rooms: vec![room("the docker data root"), room("deploy_dir")],
        applied: None,
        history: Vec::new(),
    }
}

impl World {
    fn judge(&self) -> Judgement {
        let (fence, _) = Fence::new(&EnvId::new("env-qa-02").unwrap(), "monky", None);
        judge(&Case {
            sha: &Sha256::of(b"bundle"),
            meta: &self.meta,
            manifest: &self.manifest,
            inodes: 4,
            fence: &fence,
            template: &Template::parse(self.template.as_bytes()).unwrap(),
            compose: match self.compose_error {
                Some(words) => Err(words),
                None => Ok(ComposeFacts {
                    references: &self.references,
                    model: &self.model,
                }),
            },
            rooms: &self.rooms,
            disk_factor: 1.5,
            disk_headroom_bytes: 2 << 30,
            binary_version: "0.2.0",
            applied: self.applied.as_ref(),
            history: &self.history,
        })
    }

    fn findings(&self) -> Vec<String> {
        self.judge()
            .findings
            .iter()
            .map(ToString::to_string)
            .collect()
    }
}

fn entry(var: &str, path: &str) -> Entry {
    Entry {
        purpose: Purpose::Env(VarName::new(var).unwrap()),
        path: path.to_owned(),
        version: None,
        key: None,
    }
}

#[test]
fn a_good_bundle_is_not_refused() {
    let mut world = world();
    world.manifest.entries.push(entry("DB", "see/db"));
    let judgement = world.judge();
    assert!(judgement.findings.is_empty() && judgement.warnings.is_empty());
    assert_eq!(judgement.secrets.len(), 1);
}

#[test]
fn unresolved_variables_of_template_and_compose_file_are_one_list() {
    let mut world = world();
    world.template = "A=1\nX=${Z}\nY=${B:?}\nNEEDS_SECRET=${S}\n";
    world.manifest.entries.push(entry("S", "see/s"));
    world
        .references
        .extend([("C".to_owned(), true), ("B".to_owned(), true)]);
    world.references.push(("NEEDS_SECRET".to_owned(), true));
    assert_eq!(world.findings(), ["ENV_INCOMPLETE: unresolved: B, C, Z"]);
}

#[test]
fn an_empty_default_is_a_default_though_compose_does_not_list_it() {
    let mut world = world();
    world.references = ["D", "E", "F", "G"]
        .map(|name| (name.to_owned(), true))
        .to_vec();
    world.model = json!({"services": {"api": {
        "image": "x:${D:-}", "environment": {"E": "${E-}"}, "command": ["${F:-}", "$F", "${D-1}", "$$G"],
    }}});
    assert_eq!(world.findings(), ["ENV_INCOMPLETE: unresolved: F, G"]);
}

#[test]
fn a_reference_counts_where_compose_would_follow_it() {
    let rows: [(&str, &[&str], &str); 8] = [
        // One reference with a default does not help another without.
        ("${D:-x} $D", &[], "D"),
        ("${A:-${D}} ${A-$D} ${A:?}", &["D"], ""),
        ("${D:+${E}}", &["E"], ""),
        ("${A:+${E}}", &["E"], "E"),
        ("${D:-${E}}", &["E"], "E"),
        ("${EMPTY:-${E}} ${EMPTY}", &["E"], "E"),
        ("${EMPTY:?say}", &[], "EMPTY"),
        // Of what the model does not show only the list knows: the path of an `include`, for one.
        ("", &["IN_INCLUDE"], "IN_INCLUDE"),
    ];
    for (text, listed, missing) in rows {
        let mut world = world();
        world.template = "A=1\nEMPTY=\n";
        world.references = listed
            .iter()
            .map(|name| ((*name).to_owned(), true))
            .collect();
        for name in ["A", "D", "EMPTY"] {
            world.references.push((name.to_owned(), false));
        }
        world.model = json!({"services": {"api": {"image": "x", "command": text}}});
        let expected: Vec<String> = [missing]
            .into_iter()
            .filter(|names| !names.is_empty())
            .map(|names| format!("ENV_INCOMPLETE: unresolved: {names}"))
            .collect();
        assert_eq!(world.findings(), expected, "{text}");
    }
}

#[test]
fn reserved_keys_are_told_together() {
    let mut world = world();
    world.template = "A=1\nDOCKER_TLS_VERIFY=\nCOMPOSE_FILE=x\nCOMPOSE_PROFILES=a\nCOMPOSE_PROJECT_NAME=p\nCOMPOSE_FILE=y\n";
    assert_eq!(
        world.findings(),
        ["ENV_RESERVED: the template defines DOCKER_TLS_VERIFY, COMPOSE_FILE"]
    );
    let reserved = [
        "COMPOSE_FILE",
        "COMPOSE_ENV_FILES",
        "COMPOSE_DISABLE_ENV_FILE",
        "COMPOSE_PATH_SEPARATOR",
        "COMPOSE_REMOVE_ORPHANS",
        "COMPOSE_IGNORE_ORPHANS",
        "COMPOSE_CONVERT_WINDOWS_PATHS",
        "DOCKER_HOST",
        "DOCKER_CONTEXT",
        "DOCKER_CONFIG",
        "DOCKER_TLS",
        "DOCKER_TLS_VERIFY",
        "DOCKER_CERT_PATH",
    ];
    for key in reserved {
        assert!(is_reserved(key), "{key}");
    }
    for key in [
        "COMPOSE_FILES",
        "DOCKER",
        "DOCKER_HOSTS",
        "docker_host",
        "COMPOSE_API",
        "",
    ] {
        assert!(!is_reserved(key), "{key}");
    }
}

#[test]
fn what_compose_refuses_is_told_in_its_own_words() {
    let mut world = world();
    world.compose_error = Some("yaml: line 3: did not find expected key");
    assert_eq!(
        world.findings(),
        ["COMPOSE_INVALID: yaml: line 3: did not find expected key"]
    );
}

#[test]
fn manifest_paths_outside_the_fence_are_refused_and_not_read() {
    let mut world = world();
    world.manifest.entries = vec![
        entry("A", "see/a"),
        entry("B", "env-prod-01/see/b"),
        entry("C", "/c"),
    ];
    assert_eq!(
        world.findings(),
        [
            "MANIFEST_PATH: the path \"env-prod-01/see/b\" of B is outside env-qa-02/",
            "MANIFEST_PATH: the path \"/c\" of C is absolute",
        ]
    );
    assert_eq!(world.judge().secrets.len(), 1);
}

#[test]
fn another_secret_store_is_refused() {
    for (provider, entries, finding) in [
        (None, 1, None),
        (Some("openbao"), 1, None),
        (Some("none"), 0, None),
        (
            Some("none"),
            1,
            Some("SECRETS_PROVIDER: meta.secrets_provider is none, and the manifest has 1 entries"),
        ),
        (
            Some("aws"),
            0,
            Some(
                "SECRETS_PROVIDER: meta.secrets_provider is \"aws\"; this agent reads from openbao only",
            ),
        ),
        (
            Some("OpenBao"),
            0,
            Some(
                "SECRETS_PROVIDER: meta.secrets_provider is \"OpenBao\"; this agent reads from openbao only",
            ),
        ),
    ] {
        let mut world = world();
        world.meta.secrets_provider = provider.map(str::to_owned);
        world.manifest.entries = vec![entry("A", "see/a"); entries];
        assert_eq!(
            world.findings().first().map(String::as_str),
            finding,
            "{provider:?}"
        );
    }
}

#[test]
fn a_rollback_is_refused_unless_the_bundle_allows_it() {
    let mut world = world();
    world.meta.generation = Some(4);
    world.applied = Some(Age {
        sha: Sha256::of(b"applied"),
        generation: Some(5),
        rendered_at: None,
    });
    let findings = world.findings();
    assert!(
        findings[0].starts_with("ROLLBACK_REFUSED: generation 4 is older than 5"),
        "{findings:?}"
    );
    world.meta.allow_rollback = true;
    assert!(world.findings().is_empty());
    world.meta = Meta {
        rendered_at: Some("soon".to_owned()),
        ..Meta::default()
    };
    world.applied = Some(Age {
        sha: Sha256::of(b"applied"),
        generation: None,
        rendered_at: Some("2026-01-01".to_owned()),
    });
    assert_eq!(world.judge().warnings.len(), 1);
    world.history = vec![Sha256::of(b"bundle")];
    assert_eq!(
        world.findings(),
        [
            "ROLLBACK_REFUSED: this bundle was applied before and replaced since; meta.agent.allow_rollback is not true"
        ]
    );
}

#[test]
fn an_agent_that_is_too_old_says_both_versions() {
    let mut world = world();
    for (needed, refused) in [
        ("0.1.9", false),
        ("0.2.0", false),
        ("0.2.0-rc.1", false),
        ("0.2.1-rc.1", true),
        ("1.0.0", true),
    ] {
        world.meta.min_version = Version::parse(needed);
        let finding = format!(
            "AGENT_TOO_OLD: the bundle needs monky-deployd {needed} or newer, this is 0.2.0"
        );
        assert_eq!(
            world.findings().first() == Some(&finding),
            refused,
            "{needed}"
        );
    }
}

#[test]
fn short_disks_are_told_with_the_sum_that_was_made() {
    let mut world = world();
    world.meta.disk_need_bytes = Some(4 << 30);
    world.rooms[0].free_bytes = (8 << 30) - 1;
    world.rooms[1].free_bytes = 8 << 30;
    world.rooms[1].free_inodes = Some(1_003);
    assert_eq!(
        world.findings(),
        [
            "DISK_SHORT: the docker data root has 7.9 GiB free, the bundle needs 8 GiB (need 4 GiB × disk_factor 1.5 + disk_headroom_bytes 2 GiB)",
            "DISK_SHORT: deploy_dir has 1003 free inodes, the bundle needs 1004",
        ]
    );
    world.meta.disk_need_bytes = Some(u64::MAX);
    world.rooms[1].free_inodes = None;
    assert_eq!(world.findings().len(), 2);
}

#[test]
fn images_are_judged_by_the_bundles_own_policy() {
    let mut world = world();
    world.meta.images_policy = ImagesPolicy::Tag;
    world.template = "A=1\nS=v${SECRET}\n";
    world.manifest.entries.push(entry("SECRET", "see/s"));
    world.model = json!({"services": {"a": {"image": "x"}, "b": {"image": "x:$A"}, "c": {"image": "x:$S"}, "d": {"provider": {}}}});
    world.references = Vec::new();
    let judgement = world.judge();
    assert_eq!(judgement.deferred_images, ["c"]);
    assert_eq!(
        world.findings(),
        [
            "IMAGE_NOT_PINNED: the image \"x\" of service \"a\" has no tag, which images_policy tag asks for"
        ]
    );
}

#[test]
fn nothing_is_built_on_the_box() {
    let mut world = world();
    world.model = json!({"services": {
        "a": {"build": {"context": "."}}, "b": {"build": {"context": "."}, "image": "x"}, "c": {"build": null, "image": "x"},
        "d": {"build": ".", "image": null},
    }});
    assert_eq!(
        world.findings(),
        ["BUILD_UNSUPPORTED: nothing is built on the box: give service \"a\", \"d\" an image:"]
    );
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let mut world = world();
    world.meta.secrets_provider = Some("aws".to_owned());
    world.meta.min_version = Version::parse("9");
    world.template = "A=1\nDOCKER_HOST=${X}\n";
    world.manifest.entries.push(entry("B", "b"));
    world.history.push(Sha256::of(b"bundle"));
    world.rooms[0].free_bytes = 0;
    world.model = json!({"services": {"a": {"build": "."}}});
    let codes: Vec<Code> = world.judge().findings.iter().map(|f| f.code).collect();
    assert_eq!(
        codes,
        [
            Code::EnvIncomplete,
            Code::EnvReserved,
            Code::ManifestPath,
            Code::SecretsProvider,
            Code::RollbackRefused,
            Code::AgentTooOld,
            Code::DiskShort,
            Code::BuildUnsupported,
        ]
    );
}
