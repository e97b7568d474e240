//! What proves a rendering, and what does not.

use super::*;
use crate::bundle::template::Template;
use crate::deploy::env_file::render;

fn rendered(template: &str) -> Rendered {
    render(
        &Template::parse(template.as_bytes()).unwrap(),
        &BTreeMap::new(),
    )
    .unwrap()
}

fn told(template: &str, answer: &str) -> String {
    let findings = check(&rendered(template), answer.as_bytes());
    let told: Vec<_> = findings.iter().map(ToString::to_string).collect();
    told.join("; ")
}

#[test]
fn the_document_asks_for_each_key_twice_where_it_can() {
    let document: serde_json::Value =
        serde_json::from_slice(&document(&rendered("B=secret\nA.b=1\nA=2\n1C=3"))).unwrap();
    assert_eq!(
        document,
        json!({"services": {
            "file": {"image": "proof", "env_file": [".env"]},
            "interpolated": {"image": "proof", "environment": {"E_0": "${A}", "E_1": "${B}"}},
        }})
    );
}

#[test]
fn an_exact_answer_leaves_nothing_to_say() {
    let answer = r#"{"name": "p", "services": {
        "file": {"environment": {"A": "a$$b$$$$", "X.y": "\u00e4", "OTHER": null}, "image": "proof"},
        "interpolated": {"environment": {"E_0": "a$$b$$$$"}, "networks": {}}}}"#;
    assert_eq!(told("A='a$b$$$'\nX.y=ä", answer), "");
    let empty = r#"{"services": {"file": {"environment": null}, "interpolated": {}}}"#;
    assert_eq!(told("# nothing", empty), "");
}

#[test]
fn what_differs_is_told_by_name_and_place() {
    for (file, interpolated, expected) in [
        (r#""hunter2""#, r#""hunter2""#, ""),
        (r#""hunter""#, r#""hunter2""#, "A (env_file)"),
        (r#""hunter2""#, r#""hunter2 ""#, "A (interpolation)"),
        ("null", r#""""#, "A (env_file), A (interpolation)"),
    ] {
        let answer = format!(
            r#"{{"services": {{"file": {{"environment": {{"A": {file}}}}}, "interpolated": {{"environment": {{"E_0": {interpolated}}}}}}}}}"#
        );
        let expected = match expected {
            "" => String::new(),
            names => format!("ENV_ROUNDTRIP: Compose does not read back exactly: {names}"),
        };
        assert_eq!(told("A=hunter2", &answer), expected);
    }
}

#[test]
fn an_answer_that_lacks_a_key_or_cannot_be_read_proves_nothing() {
    let missing =
        "ENV_ROUNDTRIP: Compose does not read back exactly: A (env_file), A (interpolation)";
    assert_eq!(told("A=1", r#"{"services": {}}"#), missing);
    assert_eq!(
        told("A=1", r#"{"services": {"file": {"environment": {}}}}"#),
        missing
    );
    for unreadable in [
        "",
        "hello",
        "{}",
        r#"{"services": {"file": {"environment": {"A": 1}}}}"#,
        "{\"services\": {}",
    ] {
        assert_eq!(
            told("A=1", unreadable),
            "ENV_ROUNDTRIP: what Compose printed for the rendered .env cannot be read",
            "{unreadable}"
        );
    }
}
