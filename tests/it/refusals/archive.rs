//! What is found in the bytes of a bundle, before anything is unpacked.

use super::case::{Case, Seen, second, template};
use crate::support::scene::bundle;
use control_plane::{Bundle, Member};
use serde_json::json;

#[test]
fn other_bytes_than_were_asked_for() {
    let case = Case::new();
    let (wanted, served) = (second().build(), bundle(3).build());
    case.serves_for(wanted.sha(), served.bytes());
    let detail = format!(
        "the {} bytes received have the sha256 {}, and {} was asked for",
        served.bytes().len(),
        served.sha(),
        wanted.sha()
    );
    let code = "BUNDLE_SHA_MISMATCH";
    let told = case.refuses_what_is_wanted(Seen::BeforeSecrets, code, wanted.sha());
    told.is(code, &[&detail]);
    case.waits_and_is_not_reported_again(code, wanted.sha(), &told);
}

#[test]
fn members_that_could_harm_the_box() {
    let file = |name: &[u8]| second().entry(name, 0o644, Member::File(b"x".to_vec()));
    let link = |member| second().entry("conf", 0o777, member);
    let long = "x".repeat(256);
    let long_shown = format!("\"{}…\" has a component over 255 bytes", "x".repeat(120));
    let several = second()
        .entry("/etc/cron.d/x", 0o644, Member::File(b"x".to_vec()))
        .entry("../../x", 0o644, Member::File(b"x".to_vec()))
        .entry(".ENV", 0o644, Member::File(b"x".to_vec()));
    Case::new().refuses(
        "BUNDLE_UNSAFE",
        &[
            (
                file(b"/etc/passwd"),
                &["\"/etc/passwd\" is an absolute path"],
            ),
            (file(b"../x"), &["\"../x\" has a .. component"]),
            (file(b"a/../../x"), &["\"a/../../x\" has a .. component"]),
            (file(b"a//b"), &["\"a//b\" has an empty path component"]),
            (file(b"a/./b"), &["\"a/./b\" has a . component"]),
            (
                file(b"a\nb"),
                &["\"a\\nb\" has control characters in its name"],
            ),
            (file(b"a\xff"), &["\"a\u{fffd}\" is not UTF-8"]),
            (file(long.as_bytes()), &[&long_shown]),
            (
                link(Member::Symlink("/etc".into())),
                &["\"conf\" is a symbolic link"],
            ),
            (
                link(Member::HardLink("meta.json".into())),
                &["\"conf\" is a hard link"],
            ),
            (link(Member::Other(b'3', vec![])), &["\"conf\" is a device"]),
            (link(Member::Other(b'6', vec![])), &["\"conf\" is a fifo"]),
            (
                file(b"META.JSON"),
                &["\"META.JSON\" is there twice (upper and lower case count as the same)"],
            ),
            (
                file(b"meta.json/x"),
                &["\"meta.json\" is a file and a directory"],
            ),
            (
                file(b".env"),
                &["\".env\" claims the .env that the agent writes"],
            ),
            (
                several,
                &[
                    "\"/etc/cron.d/x\" is an absolute path",
                    "\"../../x\" has a .. component",
                    "\".ENV\" claims the .env that the agent writes",
                ],
            ),
        ],
    );
}

#[test]
fn what_is_no_whole_bundle() {
    let good = second().build();
    let missing = second()
        .without("docker-compose.yml")
        .without(".env.template")
        .without("secrets.manifest.json")
        .without("meta.json");
    let case = Case::new();
    case.refuses(
        "BUNDLE_INVALID",
        &[
            (
                second().file("compose.yaml", "services: {}"),
                &["there is more than one compose file: docker-compose.yml, compose.yaml"],
            ),
            (
                second().file("meta.json", "{\"env_id\": \n"),
                &["meta.json is not JSON: EOF while parsing a value at line 2 column 0"],
            ),
            (
                second().meta_with(&json!({"pull": 7, "agent": []})),
                &["meta.json: agent must be an object", "meta.json: pull must be a string"],
            ),
            (
                second().manifest(&json!({"entries": [{"var": "DB"}, {"var": "1A", "path": "see/a"}]})),
                &["secrets.manifest.json: entries[0].path must be a string, and it is missing", "secrets.manifest.json: entries[1].var must be a letter or _ followed by letters, digits or _"],
            ),
            (
                second().meta_with(&json!({"files": ["conf/gone.yml"]})),
                &["meta.files: \"conf/gone.yml\" is not in the bundle"],
            ),
            (
                template("A='told-to-nobody-at-all\n"),
                &[".env.template, line 4: A: the quote that opens its value is never closed"],
            ),
            (
                missing,
                &[
                    "the compose file is missing: one of docker-compose.yml, compose.yaml, compose.yml, docker-compose.yaml",
                    ".env.template is missing",
                    "secrets.manifest.json is missing",
                    "meta.json is missing",
                ],
            ),
        ],
    );
    let cut = &good.bytes()[..good.bytes().len() - 1_500];
    let packed = [b"\x1f\x8b\x08".as_slice(), &[0; 600]].concat();
    for (bytes, finding) in [
        (
            &packed[..],
            "the bundle is not a tar but looks like gzip: send the tar uncompressed",
        ),
        (
            b"<html>log in</html>",
            "the bundle is not a tar but looks like HTML or XML",
        ),
        (b"", "the bundle is empty"),
        (
            cut,
            "the bundle is truncated: \"meta.json\" claims 74 bytes, and 36 are left",
        ),
    ] {
        let made = Bundle::raw(bytes);
        case.refuses_one(Seen::BeforeSecrets, "BUNDLE_INVALID", &made)
            .is("BUNDLE_INVALID", &[finding]);
    }
}

#[test]
fn a_bundle_over_a_cap() {
    let case = Case::new();
    let large = second().file("big.bin", vec![b'x'; 4 << 20]);
    let mut many = second();
    for n in 0..2_000 {
        many = many.entry(format!("f/{n}"), 0o644, Member::File(Vec::new()));
    }
    case.refuses(
        "BUNDLE_INVALID",
        &[
            (
                many,
                &["the bundle has 2004 members, at most 2000 are taken"],
            ),
            (large, &["it is larger than 4 MiB"]),
        ],
    );
}

#[test]
fn a_bundle_of_another_environment() {
    Case::new().refuses(
        "BUNDLE_ENV_MISMATCH",
        &[(
            second().meta_with(&json!({"env_id": "env-prod-01"})),
            &["the bundle was rendered for \"env-prod-01\", and this is env-qa-02"],
        )],
    );
}

#[test]
fn a_detail_has_an_end() {
    let mut made = second();
    for n in 0..200 {
        let name = format!("../{n}-{}", "x".repeat(100));
        made = made.entry(name, 0o644, Member::File(Vec::new()));
    }
    let made = made.build();
    let case = Case::new();
    let told = case.refuses_one(Seen::BeforeSecrets, "BUNDLE_UNSAFE", &made);
    assert_eq!(told.detail.chars().count(), 900);
    assert!(told.detail.starts_with("BUNDLE_UNSAFE: \"../0-xxx"));
    assert!(told.line.ends_with("BUNDLE_UNSAFE: and 180 more"));
}
