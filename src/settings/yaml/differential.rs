//! Every document that the subset accepts means the same to a full YAML 1.2 parser with the core schema: same shape,
//! same keys in the same order, same types, same texts. And no text makes the parser panic or accept what the full one
//! refuses.

use super::*;
use proptest::prelude::*;
use saphyr::{LoadableYamlNode, Scalar as Full, ScalarStyle, Yaml};

/// Our tree as the full parser would give it.
fn as_full<'t>(value: &Value<'t>) -> Yaml<'t> {
    match value {
        Value::Scalar(scalar) => Yaml::Value(as_full_scalar(scalar)),
        Value::List(items) => Yaml::Sequence(
            items
                .iter()
                .map(|item| Yaml::Value(as_full_scalar(item)))
                .collect(),
        ),
        Value::Map(entries) => map_as_full(entries),
        Value::Broken => panic!("a broken value in an accepted document"),
    }
}

fn map_as_full<'t>(entries: &[Entry<'t>]) -> Yaml<'t> {
    let pairs = entries.iter().map(|entry| {
        (
            Yaml::Value(Full::String(entry.key.clone())),
            as_full(&entry.value),
        )
    });
    Yaml::Mapping(pairs.collect())
}

fn as_full_scalar<'t>(scalar: &Scalar<'t>) -> Full<'t> {
    let style = if scalar.is_quoted {
        ScalarStyle::DoubleQuoted
    } else {
        ScalarStyle::Plain
    };
    Full::parse_from_cow_and_metadata(scalar.text.clone(), style, None).unwrap()
}

fn has_text_keys(entry: &Entry<'_>) -> bool {
    let is_text =
        matches!(Full::parse_from_cow(entry.key.clone()), Full::String(_)) && !entry.key.is_empty();
    is_text
        && match &entry.value {
            Value::Map(entries) => entries.iter().all(has_text_keys),
            _ => true,
        }
}

/// Whether the subset accepts the text; if so, both parsers must agree on it.
fn accepts(text: &str) -> bool {
    let mut faults = Faults::new(text);
    let entries = parse(text, &mut faults);
    if !faults.is_empty() {
        return false;
    }
    if !entries.iter().all(has_text_keys) {
        // The full parser gives such a key as a number or null; ours are names.
        return true;
    }
    let mut documents = match Yaml::load_from_str(text) {
        Ok(documents) => documents,
        Err(e) => panic!("accepted and no YAML: {text:?}: {e}"),
    };
    assert!(documents.len() <= 1, "several documents: {text:?}");
    let full = documents.pop().unwrap_or(Yaml::Value(Full::Null));
    if entries.is_empty() {
        assert_eq!(full, Yaml::Value(Full::Null), "{text:?}");
    } else {
        assert_eq!(map_as_full(&entries), full, "{text:?}");
    }
    true
}

/// Pieces that a line may be made of: what YAML gives a meaning to, next to harmless text.
fn piece() -> impl Strategy<Value = String> {
    let fixed = prop::sample::select(vec![
        "key",
        "b",
        "word",
        "12",
        "010",
        "true",
        "no",
        "~",
        "null",
        "1.5",
        ".5",
        ":",
        ": ",
        " : ",
        ":x",
        " ",
        "  ",
        "\t",
        "#",
        " #",
        " # c",
        "#c",
        "-",
        "- ",
        "--",
        "---",
        "...",
        "?",
        "? ",
        "'",
        "''",
        "\"",
        "\\",
        "\\n",
        "\\x41",
        "\\u00e9",
        "\\\\",
        "\\\"",
        "'it''s'",
        "\"a b\"",
        "'# x'",
        "\"x: y\"",
        "{",
        "}",
        "[",
        "]",
        ",",
        "&a",
        "*a",
        "!",
        "|",
        ">",
        "%",
        "@",
        "`",
        "<<",
        "=",
        "é",
        "日本",
        "\u{a0}",
        "\u{85}",
        "\u{2028}",
        "\u{feff}",
        "\u{1f600}",
        "\r",
        "https://host:8200",
        "a#b",
        "a:b",
        "/var/lib",
        "$",
        "(",
        ";",
        "+1",
        "-5",
        "0x10",
        "1e3",
        ".inf",
        "-.5",
    ]);
    fixed.prop_map(str::to_owned)
}

/// A line that is often good, often nearly so.
fn line() -> impl Strategy<Value = String> {
    let indent = prop::sample::select(vec!["", "", "", "  ", "  ", "    ", " ", "   ", "\t"]);
    let key = prop_oneof![
        8 => "[a-e]{1,2}".prop_map(|key| key + ":"),
        2 => prop::collection::vec(piece(), 1..3).prop_map(|pieces| pieces.concat() + ":"),
        1 => Just("'k y':".to_owned()),
        1 => Just("a :".to_owned()),
        1 => Just("-".to_owned()),
        1 => Just("- ".to_owned()),
        1 => Just(String::new()),
    ];
    let value = prop::collection::vec(piece(), 0..3).prop_map(|pieces| pieces.concat());
    let end = prop::sample::select(vec![
        "\n", "\n", "\n", "\r\n", " \n", " # c\n", "\n\n", "\n# c\n",
    ]);
    (indent, key, prop::bool::weighted(0.8), value, end).prop_map(
        |(indent, key, space, value, end)| {
            let space = if space && !value.is_empty() { " " } else { "" };
            format!("{indent}{key}{space}{value}{end}")
        },
    )
}

/// A document of the subset, as text and as its tree.
fn good_document() -> impl Strategy<Value = (String, Yaml<'static>)> {
    let text = prop_oneof![
        "[ -~éß日\u{1f600}]{0,12}",
        "[a-z0-9:/.#'\" -]{0,12}",
        Just("null".to_owned())
    ];
    let leaf = (text, 0..3u8, 0..4usize).prop_map(|(text, style, blanks)| {
        let written = match style {
            0 => format!("'{}'", text.replace('\'', "''")),
            1 => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
            _ => format!("\"{}\"", text.chars().map(escaped).collect::<String>()),
        };
        (
            format!(" {}{written}\n", " ".repeat(blanks)),
            Yaml::Value(Full::String(text.into())),
        )
    });
    let tree = leaf.prop_recursive(3, 24, 4, |inner| {
        let list = prop::collection::vec("[a-z/]{1,8}", 1..4).prop_map(|items| {
            let lines: String = items.iter().map(|item| format!("- {item}\n")).collect();
            let full = items
                .into_iter()
                .map(|item| Yaml::Value(Full::String(item.into())))
                .collect();
            (format!("\n{lines}"), Yaml::Sequence(full))
        });
        prop_oneof![1 => list, 3 => map_of(inner)]
    });
    map_of(tree).prop_map(|(text, full)| (text.trim_start_matches('\n').to_owned(), full))
}

fn escaped(c: char) -> String {
    match u32::from(c) {
        code @ 0..=0xff => format!("\\x{code:02x}"),
        code @ 0x100..=0xffff => format!("\\u{code:04X}"),
        _ => c.to_string(),
    }
}

fn map_of(
    inner: impl Strategy<Value = (String, Yaml<'static>)>,
) -> impl Strategy<Value = (String, Yaml<'static>)> {
    let entries = prop::collection::btree_map("[a-z][a-z_]{0,6}", inner, 1..4);
    (entries, 1..5usize).prop_map(|(entries, width)| {
        let indent = " ".repeat(width);
        let mut text = "\n".to_owned();
        let mut pairs = Vec::new();
        for (key, (below, full)) in entries {
            let (first, rest) = below.split_once('\n').unwrap();
            text.push_str(&format!("{key}z:{first}\n"));
            for line in rest.lines() {
                text.push_str(&format!("{indent}{line}\n"));
            }
            pairs.push((Yaml::Value(Full::String((key + "z").into())), full));
        }
        (text, Yaml::Mapping(pairs.into_iter().collect()))
    })
}

/// So many cases, or more when `PROPTEST_CASES` asks for more.
fn cases(cases: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: default.cases.max(cases),
        failure_persistence: None,
        ..default
    }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn a_document_of_the_subset_is_accepted_and_means_the_same((text, tree) in good_document()) {
        let mut faults = Faults::new(&text);
        let entries = parse(&text, &mut faults);
        prop_assert!(faults.is_empty(), "{text}: {:?}", faults.into_problems());
        prop_assert_eq!(map_as_full(&entries), tree);
        prop_assert!(accepts(&text));
    }
}

proptest! {
    #![proptest_config(cases(2500))]

    #[test]
    fn what_is_accepted_among_lines_of_any_kind_means_the_same(lines in prop::collection::vec(line(), 1..5)) {
        accepts(&lines.concat());
    }
}

proptest! {
    #![proptest_config(cases(700))]

    #[test]
    fn a_damaged_document_is_refused_or_means_the_same(
        (text, _) in good_document(),
        at in any::<prop::sample::Index>(),
        cut in 0..4usize,
        patch in piece(),
    ) {
        let chars: Vec<char> = text.chars().collect();
        let at = at.index(chars.len());
        let before: String = chars.iter().take(at).collect();
        let after: String = chars.iter().skip(at + cut).collect();
        accepts(&format!("{before}{patch}{after}"));
    }

    #[test]
    fn text_of_any_kind_is_refused_or_means_the_same(text in any::<String>()) {
        accepts(&text);
    }
}

/// The generator above is of use only if the subset accepts a fair part of what it makes.
#[test]
fn a_fair_part_of_the_lines_is_accepted() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let lines = prop::collection::vec(line(), 1..4);
    let accepted = (0..500)
        .filter(|_| accepts(&lines.new_tree(&mut runner).unwrap().current().concat()))
        .count();
    assert!(accepted > 50, "{accepted} of 500");
}
