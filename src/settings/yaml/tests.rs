//! What the subset accepts and what it means.

use super::*;
use crate::settings::fault::Faults;

/// The tree in one line: keys and plain values as they are, quoted values in `'`.
pub fn outline(entries: &[Entry<'_>]) -> String {
    let scalar = |s: &Scalar<'_>| match s.is_quoted {
        true => format!("'{}'", s.text),
        false => s.text.to_string(),
    };
    let parts: Vec<String> = entries
        .iter()
        .map(|entry| {
            let value = match &entry.value {
                Value::Scalar(s) => scalar(s),
                Value::Map(entries) => outline(entries),
                Value::List(items) => {
                    let items: Vec<String> = items.iter().map(scalar).collect();
                    format!("[{}]", items.join(", "))
                }
                Value::Broken => "?".to_owned(),
            };
            format!("{}={value}", entry.key)
        })
        .collect();
    format!("{{{}}}", parts.join(" "))
}

fn accepted(text: &str) -> String {
    let mut faults = Faults::new(text);
    let entries = parse(text, &mut faults);
    let problems = faults.into_problems();
    assert!(problems.is_empty(), "{text:?}: {problems:#?}");
    outline(&entries)
}

pub fn refused(text: &str) -> Vec<(usize, usize, String)> {
    let mut faults = Faults::new(text);
    parse(text, &mut faults);
    faults
        .into_problems()
        .into_iter()
        .map(|p| (p.line, p.column, p.message))
        .collect()
}

#[test]
fn these_documents_mean_this() {
    for (text, meaning) in [
        ("", "{}"),
        ("# only a comment", "{}"),
        ("---\n", "{}"),
        ("--- # comment\na: b\n", "{a=b}"),
        ("\n# comment\n---\na: b", "{a=b}"),
        ("a: b\n", "{a=b}"),
        ("a: b", "{a=b}"),
        ("a: b\r\nc: d\r\n", "{a=b c=d}"),
        ("  a: b\n  c: d\n", "{a=b c=d}"),
        ("a : b\n", "{a=b}"),
        ("a:\n", "{a=}"),
        ("a: # nothing\nb: ~\n", "{a= b=~}"),
        ("a: b   # comment\n", "{a=b}"),
        ("a: b#c\n", "{a=b#c}"),
        ("a: b # c # d\n", "{a=b}"),
        ("a: https://host:8200\n", "{a=https://host:8200}"),
        ("a: x, y {z} [w]\n", "{a=x, y {z} [w]}"),
        ("a: -5\nb: -x\n", "{a=-5 b=-x}"),
        ("a: it's \"so\"\n", "{a=it's \"so\"}"),
        ("a: 'it''s # no: comment'\n", "{a='it's # no: comment'}"),
        ("a: ''\nb: \"\"\n", "{a='' b=''}"),
        ("a: \"x\" # comment\n", "{a='x'}"),
        (
            "a: \"q\\\"b\\\\n\\x41u\\u00e9t\\tx\"\n",
            "{a='q\"b\\nAuét\tx'}",
        ),
        ("\"a b\": 1\n'c': 2\n", "{a b=1 c=2}"),
        ("\"a\" : 1\n", "{a=1}"),
        (
            "a:\n  b: c\n  d:\n    e: f\ng: h\n",
            "{a={b=c d={e=f}} g=h}",
        ),
        ("a:\n\n  # between\n\n  b: c\n", "{a={b=c}}"),
        ("a:\n  - x\n  - 'y'\n  -\nb: c\n", "{a=[x, 'y', ] b=c}"),
        ("a:\n- x # comment\n- y\nb: c\n", "{a=[x, y] b=c}"),
        ("a:\n  b:\n  - x\n  c: d\n", "{a={b=[x] c=d}}"),
        ("ключ: значение\n", "{ключ=значение}"),
        ("# tab\tin a comment\na: b\n", "{a=b}"),
        ("a: '\t'\n", "{a='\t'}"),
    ] {
        assert_eq!(accepted(text), meaning, "{text:?}");
    }
}

#[test]
fn one_run_shows_every_fault() {
    let text = "a: [1,\n  2\n]\nb: *x\nc:\n\td: 1\ne: 'f\ng: h\n";
    let places: Vec<_> = refused(text)
        .into_iter()
        .map(|(line, column, _)| (line, column))
        .collect();
    assert_eq!(places, [(1, 4), (4, 4), (6, 1), (7, 4)]);
}

#[test]
fn the_depth_is_bounded() {
    let nested = |depth: usize| -> String {
        (0..depth)
            .map(|level| format!("{}k:\n", " ".repeat(level)))
            .collect()
    };
    assert!(refused(&nested(MAX_DEPTH)).is_empty());
    assert_eq!(
        refused(&nested(MAX_DEPTH + 1)),
        [(
            17,
            17,
            "more than 16 maps within each other: write it flatter".to_owned()
        )]
    );
    assert_eq!(refused(&nested(300)).len(), 1);
}

#[test]
fn a_key_is_not_too_long_and_a_map_not_too_large() {
    let long = format!("{}: 1\n", "k".repeat(257));
    assert_eq!(
        refused(&long),
        [(
            1,
            1,
            "a key longer than 256 bytes: no key is that long".to_owned()
        )]
    );
    let many: String = (0..501).map(|n| format!("k{n}: 1\n")).collect();
    assert_eq!(
        refused(&many),
        [(
            501,
            1,
            "more than 500 keys in one map: remove some".to_owned()
        )]
    );
}

#[test]
fn an_entry_knows_where_it_ends() {
    let text = "a:\n  b: 1\n\n# c\nd: 2\n";
    let mut faults = Faults::new(text);
    let entries = parse(text, &mut faults);
    assert_eq!(text.get(entries[0].until..), Some("d: 2\n"));
    assert_eq!(entries[1].until, text.len());
    assert_eq!(text.get(entries[1].key_at.clone()), Some("d:"));
    assert_eq!(text.get(entries[1].value_at..), Some("2\n"));
}
