//! What a reference stands for in each of its forms, in the template and in the compose file.

use super::*;
use proptest::prelude::*;

/// `X` is `xv`, `N` is `nv`, `EM` is empty; the rest is unset.
fn lookup(name: &str) -> Option<&'static str> {
    match name {
        "X" => Some("xv"),
        "N" => Some("nv"),
        "EM" => Some(""),
        _ => None,
    }
}

fn value(text: &str, dialect: Dialect) -> Result<String, String> {
    let parts = parse(text, dialect).map_err(|broken| broken.to_string())?;
    match evaluate(&parts, &|name| lookup(name)) {
        Ok(value) => Ok(value.to_string()),
        Err(unmet) => Err(unmet
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ")),
    }
}

/// Every row was read by Compose itself (5.6.1).
#[test]
fn the_braced_forms_mean_what_they_mean_to_compose() {
    for (text, expected) in [
        ("${X}", "xv"),
        ("a${X}b${N}c", "axvbnvc"),
        ("${X:-d}|${EM:-d}|${Z:-d}", "xv|d|d"),
        ("${X-d}|${EM-d}|${Z-d}", "xv||d"),
        ("${X:+a}|${EM:+a}|${Z:+a}", "a||"),
        ("${X+a}|${EM+a}|${Z+a}", "a|a|"),
        ("${X:?m}|${X?m}|${EM?}", "xv|xv|"),
        ("${Z:-}|${Z-}|${Z:+}", "||"),
        ("${Z:- d }", " d "),
        ("${Z:-${Y:-${X}}}", "xv"),
        ("${Z-${X:-d}}${Z+x}", "xv"),
        (
            "${Z:-a-b}|${Z:-a?b}|${Z-a:-b}|${Z:--}|${Z--d}",
            "a-b|a?b|a:-b|-|-d",
        ),
        ("${X+:-a}|${X:++}|${Z:-+a}|${X?-}", ":-a|+|+a|xv"),
        ("${Z:-{a}}|${X:-{a}}", "{a}|xv}"),
        ("${Z:-$${Y}}", "${Y}"),
        ("${Z:-a$$b}|${Z:-$$}|${Z:-$}", "a$b|$|$"),
        ("a}${X}}", "a}xv}"),
        ("$${X}|$$${X}|$$$${X}", "${X}|$xv|$${X}"),
        ("${X:-${B:?unused}}${Z:+${B:?unused}}", "xv"),
        ("${Z:-ä ' \" #}", "ä ' \" #"),
        ("$1 $ $% $", "$1 $ $% $"),
    ] {
        for dialect in [
            Dialect::Template,
            Dialect::SingleQuoted,
            Dialect::ComposeFile,
        ] {
            let got = value(text, dialect);
            assert_eq!(got.as_deref(), Ok(expected), "{text} in {dialect:?}");
        }
    }
}

#[test]
fn a_name_without_braces_is_a_reference_in_the_compose_file_only() {
    for (text, template, compose) in [
        ("$X", "$X", "xv"),
        ("a$X.b", "a$X.b", "axv.b"),
        ("$$X", "$X", "$X"),
        ("$$$X", "$$X", "$xv"),
        ("${Z:-$X}", "$X", "xv"),
        ("$2y$10$", "$2y$10$", "$2y$10$"),
    ] {
        assert_eq!(
            value(text, Dialect::Template).as_deref(),
            Ok(template),
            "{text}"
        );
        assert_eq!(
            value(text, Dialect::SingleQuoted).as_deref(),
            Ok(template),
            "{text}"
        );
        assert_eq!(
            value(text, Dialect::ComposeFile).as_deref(),
            Ok(compose),
            "{text}"
        );
    }
}

#[test]
fn what_is_no_reference_is_an_error_or_in_single_quotes_text() {
    for (text, why) in [
        ("${X", "never closed"),
        ("${X:-${Z}", "never closed"),
        ("${", "never closed"),
        ("${}", "not followed by the name"),
        ("${1V}", "not followed by the name"),
        ("${ X}", "not followed by the name"),
        ("${ä}", "not followed by the name"),
        ("${X }", "followed by something else"),
        ("${X.y}", "followed by something else"),
        ("${X:}", "followed by something else"),
        ("${X:=d}", "followed by something else"),
        ("${X!}", "followed by something else"),
        ("${Z:-${}}", "not followed by the name"),
    ] {
        for dialect in [Dialect::Template, Dialect::ComposeFile] {
            let broken = parse(text, dialect).unwrap_err();
            assert!(broken.why.contains(why), "{text}: {broken}");
        }
    }
    for (text, expected) in [
        ("${X", "${X"),
        ("${}", "${}"),
        ("${1V}", "${1V}"),
        ("${X:-${N}", "${X:-nv"),
        ("${ ${X}}", "${ xv}"),
    ] {
        let got = value(text, Dialect::SingleQuoted);
        assert_eq!(got.as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn what_is_missing_is_told_by_name_and_all_at_once() {
    for (text, expected) in [
        ("${A}${B?m}${C:?m}", "A, B, C"),
        ("${EM:?m}", "EM (empty)"),
        ("${A:-${B}}", "B"),
        ("${X:+${B}}", "B"),
        ("${EM:-${B:-${C}}}", "C"),
        ("${A:?set ${X}}", "A"),
    ] {
        assert_eq!(
            value(text, Dialect::Template),
            Err(expected.into()),
            "{text}"
        );
    }
}

#[test]
fn references_are_listed_with_the_nested_ones() {
    let parts = parse("${A:-x${B}}$C${D:?${E+f}}", Dialect::Template).unwrap();
    let listed: Vec<_> = references(&parts)
        .into_iter()
        .map(|reference| (reference.name.as_str(), reference.form.is_required()))
        .collect();
    assert_eq!(
        listed,
        [("A", false), ("B", true), ("D", true), ("E", false)]
    );
}

#[test]
fn nesting_has_an_end() {
    let nested = |depth: usize| format!("{}{}", "${Z:-".repeat(depth), "}".repeat(depth));
    assert!(parse(&nested(MAX_DEPTH), Dialect::Template).is_ok());
    let broken = parse(&nested(MAX_DEPTH + 1), Dialect::Template).unwrap_err();
    assert!(broken.why.contains("too deep"));
}

/// A hostile template of megabytes is read in one go: each brace is matched once.
#[test]
fn many_open_braces_cost_no_more_than_their_number() {
    let text = "${X:-".repeat(400_000);
    assert!(parse(&text, Dialect::Template).is_err());
    assert_eq!(
        value(&text, Dialect::SingleQuoted).map(|v| v.len()),
        Ok(text.len())
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(text in "\\PC*", bits in "[${}:?+\\-A-C]*") {
        for text in [text, bits] {
            for dialect in [Dialect::Template, Dialect::SingleQuoted, Dialect::ComposeFile] {
                if let Ok(parts) = parse(&text, dialect) {
                    let _ = evaluate(&parts, &|name| lookup(name));
                }
            }
            prop_assert!(parse(&text, Dialect::SingleQuoted).is_ok());
        }
    }

    #[test]
    fn doubled_dollars_make_any_text_literal(text in "[${}A-Z:\\-?+ ]*") {
        let escaped = text.replace('$', "$$");
        prop_assert_eq!(value(&escaped, Dialect::ComposeFile), Ok(text));
    }
}
