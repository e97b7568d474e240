//! What is shipped beside the code says what the code does: the example configuration and `docs/CONFIG.md`.

use super::super::keys::{Fallback, Key, Kind, LEVELS};
use super::super::{Faults, raw, yaml};
use super::{SMALLEST, effective, good};
use std::fmt::Write as _;

const EXAMPLE: &str = include_str!("../../../packaging/config.example.yaml");
const DOCS: &str = include_str!("../../../docs/CONFIG.md");

#[test]
fn the_shipped_example_carries_every_key_and_equals_the_defaults() {
    let example = good(EXAMPLE);
    assert_eq!(effective(&example), effective(&good(SMALLEST)));
    assert_eq!(example.warnings, [""; 0]);
    let mut faults = Faults::new(EXAMPLE);
    let entries = yaml::parse(EXAMPLE, &mut faults);
    let raw = raw::Raw::read(entries, &mut faults, &[]);
    for key in Key::ALL {
        let written = raw
            .get(*key)
            .unwrap_or_else(|| panic!("{} is missing", key.name()));
        let is_open = !matches!(key.spec().fallback, Fallback::Fixed(_) | Fallback::Required);
        assert_eq!(
            written.value == raw::Value::Unset,
            is_open,
            "{}",
            key.name()
        );
    }
}

/// The table of `docs/CONFIG.md` as the code knows it.
fn table() -> String {
    let mut table =
        "| key | type | default | range | meaning |\n|---|---|---|---|---|\n".to_owned();
    for key in Key::ALL {
        let spec = key.spec();
        let words = |words: &[&str]| {
            words
                .iter()
                .map(|w| format!("`{w}`"))
                .collect::<Vec<_>>()
                .join(" or ")
        };
        let (kind, range) = match spec.kind {
            Kind::Text(word) => (word.to_owned(), String::new()),
            Kind::Path => ("path".to_owned(), String::new()),
            Kind::Bool => ("boolean".to_owned(), String::new()),
            Kind::Int { min, max } => ("integer".to_owned(), format!("{min} to {max}")),
            Kind::Number { min, max } => ("number".to_owned(), format!("{min:?} to {max:?}")),
            Kind::OneOf(list) => (words(list), String::new()),
            Kind::Level => (words(LEVELS), String::new()),
        };
        let default = match spec.fallback {
            Fallback::Required => "required".to_owned(),
            Fallback::Unset => "unset".to_owned(),
            Fallback::Fixed(text) => format!("`{text}`"),
            Fallback::Derived(words) => words.to_owned(),
        };
        let _ = writeln!(
            table,
            "| `{}` | {kind} | {default} | {range} | {} |",
            key.name(),
            spec.meaning
        );
    }
    table
}

#[test]
fn the_table_in_the_docs_is_the_table_in_the_code() {
    let table = table();
    assert!(
        DOCS.contains(&table),
        "docs/CONFIG.md must hold exactly this table:\n{table}"
    );
}

/// A fenced `yaml` block is refused when the text before it ends in "Refused:", and accepted otherwise.
#[test]
fn the_examples_in_the_docs_do_what_the_docs_say() {
    let mut checked = 0;
    for part in DOCS.split("```yaml\n").skip(1).zip(DOCS.split("```yaml\n")) {
        let (after, before) = part;
        let text = after.split("```").next().unwrap();
        let mut faults = Faults::new(text);
        yaml::parse(text, &mut faults);
        let is_refusal = before.trim_end().ends_with("Refused:");
        assert_eq!(!faults.is_empty(), is_refusal, "{text}");
        checked += 1;
    }
    assert!(checked >= 2, "{checked}");
}
