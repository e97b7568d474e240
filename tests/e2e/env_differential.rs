//! The rendered `.env` and the template's grammar against the real Compose, which needs no daemon for `config`: what we
//! mean must be what Compose reads, byte for byte. Many keys share one call, so 10,000 lines cost a few dozen calls. Every
//! run has a new seed, which is printed; `MONKY_DEPLOYD_SEED` repeats one.

mod compose;
mod lines;

use crate::support::nasty::{Random, nasty_values, random_values, seed};
use crate::support::skip;
use compose::{Compose, undoubled};
use monky_deployd::bundle::template::Template;
use monky_deployd::deploy::env_file::render;
use monky_deployd::deploy::proof;
use monky_deployd::names::VarName;
use monky_deployd::secret::Secret;
use serde_json::Value;
use std::collections::BTreeMap;

/// How many template lines share one call.
const BATCH: usize = 500;

fn secrets<'a>(pairs: impl IntoIterator<Item = (String, &'a str)>) -> BTreeMap<VarName, Secret> {
    pairs
        .into_iter()
        .map(|(name, value)| (VarName::new(&name).unwrap(), Secret::new(value.to_owned())))
        .collect()
}

/// Renders one key for each value and lets Compose read them; compares without the help of `proof::check` as well.
fn comes_back(compose: &Compose, values: &[String]) {
    let forms = [
        "K#=${S#}",
        "K#='${S#}'",
        "K#=\"${S#}\" # c",
        "export K# = ${S#:-unused}",
        "K#: \"${NO:-${S#}}\"",
    ];
    let template: String = (0..values.len())
        .map(|n| {
            // An empty secret would bring out the default.
            let form = if values[n].is_empty() {
                "K#=${S#}"
            } else {
                forms[n % forms.len()]
            };
            form.replace('#', &n.to_string())
                .replace(&format!(" {n} c"), " # c")
                + "\n"
        })
        .collect();
    let template = Template::parse(template.as_bytes()).unwrap();
    let secrets = secrets(
        values
            .iter()
            .enumerate()
            .map(|(n, value)| (format!("S{n}"), value.as_str())),
    );
    let rendered = render(&template, &secrets).unwrap();
    let output = compose.prove(&rendered);
    assert_eq!(proof::check(&rendered, &output.stdout), []);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let file = &answer["services"]["file"]["environment"];
    let mut interpolated: Vec<String> = answer["services"]["interpolated"]["environment"]
        .as_object()
        .unwrap()
        .values()
        .map(undoubled)
        .collect();
    for (n, value) in values.iter().enumerate() {
        assert_eq!(
            &undoubled(&file[format!("K{n}")]),
            value,
            "K{n} by env_file"
        );
    }
    let mut expected = values.to_vec();
    interpolated.sort();
    expected.sort();
    assert_eq!(interpolated, expected, "by interpolation");
}

#[test]
fn nasty_secrets_come_back_from_compose_byte_for_byte() {
    let Some(compose) = skip::require("compose", Compose::get()) else {
        return;
    };
    let values = nasty_values();
    assert!(values.len() >= 200, "{}", values.len());
    comes_back(&compose, &values);
    println!("{} nasty values", values.len());
}

#[test]
fn random_secrets_come_back_from_compose_byte_for_byte() {
    let Some(compose) = skip::require("compose", Compose::get()) else {
        return;
    };
    for seed in [1, seed()] {
        println!("seed {seed}");
        comes_back(&compose, &random_values(seed, 1000));
    }
}

#[test]
fn a_template_line_means_to_us_what_it_means_to_compose() {
    let Some(compose) = skip::require("compose", Compose::get()) else {
        return;
    };
    for (seed, total) in [(1, 2_000), (seed(), 10_000)] {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        for _ in 0..total / BATCH {
            agrees(&compose, &lines::template(&mut random, BATCH));
        }
    }
}

/// Compose reads the template itself and our rendering of it: three readings, one meaning.
fn agrees(compose: &Compose, text: &str) {
    let template =
        Template::parse(text.as_bytes()).unwrap_or_else(|findings| panic!("{findings:?}\n{text}"));
    assert_eq!(
        template.unresolved(&|name| lines::PROVIDED.iter().any(|(other, _)| *other == name)),
        []
    );
    let rendered = render(
        &template,
        &secrets(lines::PROVIDED.map(|(name, value)| (name.to_owned(), value))),
    )
    .unwrap_or_else(|findings| panic!("{findings:?}\n{text}"));
    let keys: Vec<String> = template
        .keys()
        .into_iter()
        .map(ToString::to_string)
        .collect();
    let read = compose
        .reads(text, &keys, &lines::PROVIDED)
        .unwrap_or_else(|words| panic!("{words}\n{text}"));
    for (key, compose) in keys.iter().zip(read) {
        let ours = rendered.values()[key.as_str()].expose();
        let lines: Vec<&str> = text
            .split('\n')
            .filter(|line| line.contains(&format!("{key}=")))
            .collect();
        assert_eq!(
            ours, compose,
            "{key} (ours, Compose's); lines like {lines:?}"
        );
    }
    let output = compose.prove(&rendered);
    assert_eq!(proof::check(&rendered, &output.stdout), []);
}

/// What is written as any careless renderer would write it: the proof names exactly the keys that came back damaged.
#[test]
fn the_proof_names_what_compose_would_not_give_back() {
    let Some(compose) = skip::require("compose", Compose::get()) else {
        return;
    };
    let rows = [
        ("GOOD", "plain", true),
        ("DOLLAR", "a$b", false),
        ("HOST", "pw$HOME", false),
        ("TWO", "a$$b", false),
        ("HASH", "a #b", false),
        ("BLANKS", " a ", false),
        ("QUOTED", "'a'", false),
        ("INNER", "it's", true),
        ("BACKSLASH", "a\\nb", true),
        ("CRYPT", "$2y$10$abc", false),
    ];
    let template: String = rows
        .iter()
        .map(|(key, _, _)| format!("{key}=${{{key}}}\n"))
        .collect();
    let template = Template::parse(template.as_bytes()).unwrap();
    let secrets = secrets(
        rows.iter()
            .map(|(key, value, _)| ((*key).to_owned(), *value)),
    );
    let rendered = render(&template, &secrets).unwrap();
    let careless: String = rows
        .iter()
        .map(|(key, value, _)| format!("{key}={value}\n"))
        .collect();
    let output = compose.config(&compose.stage(&careless), &proof::document(&rendered), &[]);
    let findings = proof::check(&rendered, &output.stdout);
    assert_eq!(findings.len(), 1);
    for (key, value, survives) in rows {
        for place in ["env_file", "interpolation"] {
            let named = findings[0].detail.contains(&format!("{key} ({place})"));
            assert_eq!(named, !survives, "{key} by {place}");
        }
        assert!(
            survives || !findings[0].detail.contains(value),
            "{value} is shown"
        );
    }
}

/// The process's own variables go before `.env` in interpolation: the proof sees it when the caller left one in.
#[test]
fn the_proof_sees_a_variable_of_the_process_that_wins_over_the_file() {
    let Some(compose) = skip::require("compose", Compose::get()) else {
        return;
    };
    let template = Template::parse(b"MODE=ours\nOTHER=1").unwrap();
    let rendered = render(&template, &BTreeMap::new()).unwrap();
    let dir = compose.stage(rendered.text().expose());
    let output = compose.config(&dir, &proof::document(&rendered), &[("MODE", "theirs")]);
    let findings = proof::check(&rendered, &output.stdout);
    assert_eq!(
        findings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["ENV_ROUNDTRIP: Compose does not read back exactly: MODE (interpolation)"]
    );
}

/// Compose refuses each of these files; so does the template's parser, before anything is rendered.
#[test]
fn what_compose_refuses_is_refused() {
    let Some(compose) = skip::require("compose", Compose::get()) else {
        return;
    };
    for line in [
        "A B=1",
        "A/B=1",
        "A$B=1",
        "'A'=1",
        "A,B=1",
        "A\u{1}=1",
        "A\u{3000}B=1",
        "export export A=1",
        "A \"x\"",
        "V=\"a",
        "V='a\\'",
        "V=\"x\\",
        "V=${X",
        "V=\"${X\"",
        "V=${}",
        "V=${1V}",
        "V=${V.x}",
        "V=${X:}",
        "V=${X:x}",
        "V=${X!x}",
        "V=${ X}",
        "V=${X }",
        "V=${X:=d}",
        "V=${X:-a #b}",
        "V=${X:-${Z",
        "V=${ä}",
        "V=\"\\0044{\"",
    ] {
        let refused = Template::parse(line.as_bytes()).is_err();
        let compose = compose.reads(&format!("{line}\n"), &["V".into()], &[]);
        assert!(
            refused && compose.is_err(),
            "{line:?}: ours {refused}, Compose's {compose:?}"
        );
    }
}
