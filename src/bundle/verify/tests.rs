//! Every refusal of a bundle's members and documents, by code and text.

use super::super::testing::{Tar, minimal};
use super::*;

fn check(tar: Tar) -> Result<VerifiedBundle, Vec<String>> {
    let body = tar.end();
    let sha = Sha256::of(&body);
    verify(body, &sha, &EnvId::new("env-qa-02").unwrap())
        .map_err(|findings| findings.iter().map(ToString::to_string).collect())
}

fn refusal(tar: Tar) -> Vec<String> {
    check(tar).unwrap_err()
}

/// The required members, with one of them replaced, or left out where it is empty.
fn with(name: &str, data: &'static str) -> Tar {
    let mut members = minimal();
    members.retain(|(member, _)| *member != name);
    let tar = Tar::new().members(members);
    if data.is_empty() {
        tar
    } else {
        tar.file(name, data.as_bytes())
    }
}

#[test]
fn a_good_bundle_gives_everything_that_the_apply_needs() {
    let bundle = check(
        with(
            "meta.json",
            "\u{feff}{\"env_id\": \"env-qa-02\", \"generation\": 3, \"pull\": \"maybe\"}",
        )
        .file("conf/a", b"x"),
    )
    .unwrap();
    assert_eq!(bundle.compose_file().as_str(), "docker-compose.yml");
    assert!(bundle.template().defines("A"));
    assert_eq!(bundle.bytes("conf/a"), Some(&b"x"[..]));
    assert_eq!(bundle.meta().generation, Some(3));
    assert_eq!(bundle.age().generation, Some(3));
    assert_eq!(bundle.inodes(), 6);
    assert_eq!(bundle.members().count(), 5);
    assert_eq!(bundle.warnings().len(), 1);
    assert!(bundle.manifest().entries.is_empty());
}

#[test]
fn other_bytes_are_told_alone() {
    let desired = Sha256::of(b"wanted");
    let findings = verify(b"\x1f\x8b".to_vec(), &desired, &EnvId::new("e").unwrap()).unwrap_err();
    assert_eq!(findings.len(), 1);
    assert_eq!(
        findings[0].to_string(),
        format!(
            "BUNDLE_SHA_MISMATCH: the 2 bytes received have the sha256 {}, and {desired} was asked for",
            Sha256::of(b"\x1f\x8b")
        )
    );
}

#[test]
fn missing_members_are_told_together() {
    assert_eq!(
        refusal(Tar::new().file("a", b"")),
        [
            "BUNDLE_INVALID: the compose file is missing: one of docker-compose.yml, compose.yaml, compose.yml, docker-compose.yaml",
            "BUNDLE_INVALID: .env.template is missing",
            "BUNDLE_INVALID: secrets.manifest.json is missing",
            "BUNDLE_INVALID: meta.json is missing",
        ]
    );
    // In a directory of its own it is not the member.
    assert_eq!(
        refusal(with("meta.json", "").file("x/meta.json", b"{}")),
        ["BUNDLE_INVALID: meta.json is missing"]
    );
    assert_eq!(
        refusal(with("meta.json", "").entry(b'5', "meta.json/", 0o755, b"")),
        ["BUNDLE_INVALID: meta.json is a directory"]
    );
    assert_eq!(
        refusal(with("meta.json", "").entry(b'2', "./meta.json", 0o755, b"")),
        ["BUNDLE_UNSAFE: \"./meta.json\" is a symbolic link"]
    );
    assert_eq!(
        refusal(with("docker-compose.yml", "").entry(b'2', "compose.yml", 0o755, b"")),
        ["BUNDLE_UNSAFE: \"compose.yml\" is a symbolic link"]
    );
}

#[test]
fn a_compose_file_may_have_four_names_and_be_there_once() {
    for name in COMPOSE_FILES {
        let bundle = check(with("docker-compose.yml", "").file(name, b"services: {}")).unwrap();
        assert_eq!(bundle.compose_file().as_str(), name);
    }
    assert_eq!(
        refusal(with("", "").file("compose.yml", b"")),
        ["BUNDLE_INVALID: there is more than one compose file: docker-compose.yml, compose.yml"]
    );
}

#[test]
fn documents_that_do_not_parse_are_told_by_name_and_place() {
    for (name, data, text) in [
        (
            "meta.json",
            "{",
            "meta.json is not JSON: EOF while parsing an object at line 1 column 1",
        ),
        (
            "meta.json",
            "[]",
            "meta.json: the document must be a JSON object",
        ),
        (
            "meta.json",
            "{\"agent\": 3}",
            "meta.json: agent must be an object",
        ),
        (
            "secrets.manifest.json",
            "{} x",
            "secrets.manifest.json is not JSON: trailing characters at line 1 column 4",
        ),
        (
            "secrets.manifest.json",
            "{\"entries\": 3}",
            "secrets.manifest.json: entries must be a list",
        ),
    ] {
        assert_eq!(
            refusal(with(name, data)),
            [format!("BUNDLE_INVALID: {text}")]
        );
    }
    let deep: String = "[".repeat(100_000);
    let tar = with("meta.json", "").file("meta.json", deep.as_bytes());
    assert!(refusal(tar)[0].contains("meta.json is not JSON: recursion limit exceeded"));
}

#[test]
fn a_template_is_read_with_the_rest() {
    let findings = refusal(with(".env.template", "A=1\nB\nC D=2\n").file("compose.yml", b""));
    assert_eq!(findings.len(), 3, "{findings:?}");
    assert!(findings[1].starts_with("ENV_INCOMPLETE: .env.template, line 2: "));
    assert!(findings[2].starts_with("ENV_RESERVED: .env.template, line 3: "));
    let bundle = check(with(".env.template", "A=1\nA=2\n")).unwrap();
    assert_eq!(bundle.warnings().len(), 1);
}

#[test]
fn promised_files_must_be_there_with_their_digest() {
    let sha = Sha256::of(b"x");
    let meta = format!(
        "{{\"files\": [\"./conf/a\", \"conf\", {{\"name\": \"conf/a\", \"sha\": \"sha256:{sha}\"}}, {{\"path\": \"meta.json\"}}]}}"
    );
    let tar = |meta: &str| {
        with("meta.json", "")
            .file("meta.json", meta.as_bytes())
            .file("conf/a", b"x")
    };
    assert!(check(tar(&meta)).is_ok());
    let wrong = Sha256::of(b"y");
    let meta = format!(
        "{{\"files\": [\"gone\", {{\"path\": \"conf\", \"sha256\": \"{sha}\"}}, {{\"path\": \"conf/a\", \"sha256\": \"{wrong}\"}}]}}"
    );
    assert_eq!(
        refusal(tar(&meta)),
        [
            "BUNDLE_INVALID: meta.files: \"gone\" is not in the bundle".to_owned(),
            "BUNDLE_INVALID: meta.files: \"conf\" is a directory".to_owned(),
            format!(
                "BUNDLE_INVALID: meta.files: \"conf/a\" has the sha256 {}…, and {}… was promised",
                sha.short(),
                wrong.short()
            ),
        ]
    );
}

#[test]
fn a_bundle_of_another_environment_is_refused() {
    // Told by whoever judges the bundle, with everything else.
    let bundle = check(with("meta.json", "{\"env_id\": \"env-prod-01\"}")).unwrap();
    assert_eq!(
        bundle.foreign().unwrap().to_string(),
        "BUNDLE_ENV_MISMATCH: the bundle was rendered for \"env-prod-01\", and this is env-qa-02"
    );
    for same in [
        "{\"env_id\": null}",
        "{\"env_id\": \"\"}",
        "{\"env_id\": \"env-qa-02\"}",
    ] {
        assert!(
            check(with("meta.json", same)).unwrap().foreign().is_none(),
            "{same}"
        );
    }
}

#[test]
fn faults_of_every_kind_are_told_in_one_answer() {
    let findings = refusal(
        with("secrets.manifest.json", "{\"entries\": [{\"var\": \"A\"}]}")
            .entry(b'6', "pipe", 0o644, b"")
            .file("compose.yaml", b""),
    );
    assert_eq!(
        findings,
        [
            "BUNDLE_UNSAFE: \"pipe\" is a fifo",
            "BUNDLE_INVALID: there is more than one compose file: docker-compose.yml, compose.yaml",
            "BUNDLE_INVALID: secrets.manifest.json: entries[0].path must be a string, and it is missing",
        ]
    );
    // Of a tar that could not be read to its end nobody knows what is missing.
    let mut body = Tar::new().file("a", b"1").0;
    body.extend_from_slice(&[1; 512]);
    let findings = verify(body.clone(), &Sha256::of(&body), &EnvId::new("e").unwrap()).unwrap_err();
    assert_eq!(findings.len(), 1);
}
