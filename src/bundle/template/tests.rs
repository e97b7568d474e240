//! Which variables a template needs, defines and gives.

use super::*;

fn template(text: &str) -> Template {
    Template::parse(text.as_bytes()).unwrap()
}

/// The manifest provides `S` and `T`.
fn provided(name: &str) -> bool {
    matches!(name, "S" | "T")
}

#[test]
fn a_variable_is_provided_by_the_manifest_or_by_a_key_above() {
    for (text, unresolved) in [
        ("A=${S}", ""),
        ("A=${X}", "X"),
        ("A=1\nB=${A}", ""),
        ("B=${A}\nA=1", "A"),
        ("A=${A}", "A"),
        ("S=${S}\nB=${S}", ""),
        ("A='${X}'\nB=\"${Y}\"\nC=${X}", "X, Y"),
        ("# ${X}\nA=1 # ${Y}\nB=$Z", ""),
        ("A.b=1\nC=${A}", "A"),
        ("A=${X}\nB=${A}", "X"),
    ] {
        let names = template(text).unresolved(&provided);
        let names: Vec<_> = names.iter().map(VarName::as_str).collect();
        assert_eq!(names.join(", "), unresolved, "{text}");
    }
}

#[test]
fn with_a_default_or_plus_a_variable_is_not_required() {
    for (text, unresolved) in [
        ("A=${X:-d}${X-d}${X:+a}${X+a}", ""),
        ("A=${X:?m}${Y?m}", "X, Y"),
        ("A=${X:-${Y}}", "Y"),
        ("A=${X:-${Y:-d}}", ""),
        // The default of a secret is not used, so what it refers to is not needed; an alternative is.
        ("A=${S:-${Y}}${S-${Y}}", ""),
        ("A=${S:+${Y}}", "Y"),
        ("A=${X:+${Y}}", ""),
        // What the template itself sets is known.
        ("E=\nA=${E:-${Y}}", "Y"),
        ("E=\nA=${E-${Y}}", ""),
        ("E=\nA=${E:+${Y}}${E:?m}", "E"),
        ("E=1\nA=${E:-${Y}}${E:?m}", ""),
        ("E=1\nA=${E+${Y}}", "Y"),
        ("E=${S}\nA=${E:-${Y}}", ""),
    ] {
        let names = template(text).unresolved(&provided);
        let names: Vec<_> = names.iter().map(VarName::as_str).collect();
        assert_eq!(names.join(", "), unresolved, "{text}");
    }
}

#[test]
fn values_without_secrets_are_known() {
    let text = "TAG=1.2\nIMAGE=\"app:${TAG}\"\nPW=${S}\nURL=x${PW}\nD=${NO:-d}\nM=${MISSING}\nTAG=2\nP=${S+set}\nT=t\nU=${T}";
    let values = template(text).values(&provided);
    let shown: Vec<_> = values
        .iter()
        .map(|(key, value)| format!("{key}={}", value.as_deref().unwrap_or("?")))
        .collect();
    assert_eq!(
        shown,
        [
            "D=d",
            "IMAGE=app:1.2",
            "M=?",
            "P=?",
            "PW=?",
            "T=t",
            "TAG=2",
            "U=?",
            "URL=?"
        ]
    );
}

#[test]
fn references_say_whether_they_are_required() {
    let template = template("A=${X:-${Y}}\nB='${Z?}' # ${N}");
    let listed: Vec<_> = template
        .references()
        .into_iter()
        .map(|needed| (needed.name.as_str(), needed.required))
        .collect();
    assert_eq!(listed, [("X", false), ("Y", true), ("Z", true)]);
}

#[test]
fn a_key_defined_twice_is_a_warning() {
    let template = template("A=1\nB=2\nA=3\nA=4");
    assert_eq!(
        template.warnings(),
        [".env.template defines A on lines 1, 3, 4: the last one wins"]
    );
    let keys: Vec<_> = template.keys().into_iter().map(Key::as_str).collect();
    assert_eq!(keys, ["A", "B"]);
    assert!(template.defines("B") && !template.defines("C"));
}

/// The example of docs/ENV.md means what the page says.
#[test]
fn the_documented_example_holds() {
    let page = include_str!("../../../docs/ENV.md");
    let example = page
        .split("```")
        .nth(1)
        .and_then(|block| block.strip_prefix("sh\n"))
        .unwrap();
    let template = template(example);
    let values = template.values(&|name| name == "DB_PASSWORD");
    let shown: Vec<_> = values
        .iter()
        .map(|(key, value)| format!("{key}={}", value.as_deref().unwrap_or("?")))
        .collect();
    assert_eq!(
        shown,
        [
            "DOUBLE=line 1\nline 2",
            "LINES=-----BEGIN KEY-----\nseveral lines in quotes are one value\n-----END KEY-----",
            "PLAIN=value",
            "PREFIXED=value",
            "SECRET=?",
            "SINGLE=text as it is, # and blanks included",
            "SPACED=value",
            "URL=?",
            "YAMLISH=value",
        ]
    );
    assert!(
        template
            .unresolved(&|name| name == "DB_PASSWORD")
            .is_empty()
    );
}
