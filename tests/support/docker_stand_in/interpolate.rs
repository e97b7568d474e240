//! Compose's `${VAR}` in the strings of a compose file: the references that it makes, and the strings filled in.

use crate::Failure;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// One reference, taken apart: `${NAME:-rest}` has the sign `:-`.
struct Reference<'t> {
    name: &'t str,
    sign: &'t str,
    rest: &'t str,
}

/// What `config --variables --format json` prints.
pub fn references(document: &Value) -> Value {
    let mut found = Map::new();
    each_string(document, &mut |text| {
        collect(text, &mut found);
    });
    Value::Object(found)
}

/// `document` with every string filled in.
pub fn fill_in(document: &Value, variables: &BTreeMap<String, String>) -> Result<Value, Failure> {
    Ok(match document {
        Value::String(text) => Value::String(fill(text, variables)?),
        Value::Array(items) => items
            .iter()
            .map(|item| fill_in(item, variables))
            .collect::<Result<_, _>>()?,
        Value::Object(fields) => {
            let mut filled = Map::new();
            for (name, value) in fields {
                filled.insert(name.clone(), fill_in(value, variables)?);
            }
            Value::Object(filled)
        }
        other => other.clone(),
    })
}

fn each_string(document: &Value, see: &mut dyn FnMut(&str)) {
    match document {
        Value::String(text) => see(text),
        Value::Array(items) => items.iter().for_each(|item| each_string(item, see)),
        Value::Object(fields) => fields.values().for_each(|value| each_string(value, see)),
        _ => {}
    }
}

fn collect(text: &str, found: &mut Map<String, Value>) {
    let mut rest = text;
    while let Some((_, reference, after)) = next(rest) {
        rest = after;
        let Some(reference) = reference else { continue };
        let part = |signs: [&str; 2]| signs.contains(&reference.sign).then_some(reference.rest);
        found.insert(
            reference.name.to_owned(),
            json!({
                "Name": reference.name,
                "DefaultValue": part([":-", "-"]).unwrap_or_default(),
                "PresenceValue": part([":+", "+"]).unwrap_or_default(),
                "Required": part([":?", "?"]).is_some(),
            }),
        );
        collect(reference.rest, found);
    }
}

fn fill(text: &str, variables: &BTreeMap<String, String>) -> Result<String, Failure> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, reference, after)) = next(rest) {
        filled.push_str(before);
        rest = after;
        let Some(Reference {
            name,
            sign,
            rest: alternative,
        }) = reference
        else {
            filled.push('$');
            continue;
        };
        // The process's own environment goes before the file, as in Compose.
        let value = std::env::var(name)
            .ok()
            .or_else(|| variables.get(name).cloned());
        let present = value
            .clone()
            .filter(|value| !sign.starts_with(':') || !value.is_empty());
        match (sign.trim_start_matches(':'), present) {
            ("+", Some(_)) => filled.push_str(&fill(alternative, variables)?),
            ("-", None) => filled.push_str(&fill(alternative, variables)?),
            ("?", None) => {
                return Err(Failure::new(
                    1,
                    format!(
                        "error while interpolating: required variable {name} is missing a value: {alternative}"
                    ),
                ));
            }
            ("+", None) => {}
            (_, present) => filled.push_str(&present.or(value).unwrap_or_default()),
        }
    }
    filled.push_str(rest);
    Ok(filled)
}

/// The text before the next `$`, the reference there (`None` for `$$` and a lone `$`), and the text behind it.
fn next(text: &str) -> Option<(&str, Option<Reference<'_>>, &str)> {
    let (before, after) = text.split_once('$')?;
    if let Some(after) = after.strip_prefix('$') {
        return Some((before, None, after));
    }
    let braced = after.strip_prefix('{');
    let body = braced.unwrap_or(after);
    let len = body
        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .unwrap_or(body.len());
    let (name, tail) = body.split_at(len);
    if name.is_empty() {
        return Some((before, None, after));
    }
    if braced.is_none() {
        let reference = Reference {
            name,
            sign: "",
            rest: "",
        };
        return Some((before, Some(reference), tail));
    }
    let mut depth = 1;
    let close = tail.char_indices().find_map(|(at, c)| {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    })?;
    let inner = tail.get(..close)?;
    let sign_len = inner.len() - inner.trim_start_matches([':', '-', '+', '?']).len();
    let (sign, rest) = inner.split_at(sign_len.min(2).min(1 + usize::from(inner.starts_with(':'))));
    let reference = Reference { name, sign, rest };
    Some((before, Some(reference), tail.get(close + 1..)?))
}
