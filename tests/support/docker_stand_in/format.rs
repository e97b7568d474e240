//! Docker's `--format`: the small part of Go templates that the agent uses: text, `{{.A.B}}`, `{{json .}}`,
//! `{{json .A.B}}`, `{{json (index .A.B "key")}}`. Anything else is refused, so that a new format is not answered wrongly.

use crate::{Failure, Outcome};
use serde_json::Value;

/// `template` filled in from `data`, and a line end.
pub fn format(template: &str, data: &Value) -> Outcome {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        text.push_str(before);
        let (action, after) = after.split_once("}}").ok_or_else(|| unknown(template))?;
        text.push_str(&evaluate(action.trim(), data).ok_or_else(|| unknown(action))?);
        rest = after;
    }
    text.push_str(rest);
    text.push('\n');
    Ok(text)
}

fn evaluate(action: &str, data: &Value) -> Option<String> {
    let Some(operand) = action.strip_prefix("json ") else {
        return Some(match walk(action, data)? {
            Value::String(text) => text,
            other => other.to_string(),
        });
    };
    let inner = operand
        .trim()
        .strip_prefix("(index ")
        .and_then(|inner| inner.strip_suffix(')'));
    let value = match inner {
        None => walk(operand.trim(), data)?,
        Some(inner) => {
            let (path, key) = inner.trim().split_once(' ')?;
            let key = key.trim().strip_prefix('"')?.strip_suffix('"')?;
            // A missing key of a map of strings is an empty string in Go.
            walk(path, data)?
                .get(key)
                .cloned()
                .unwrap_or_else(|| "".into())
        }
    };
    Some(value.to_string())
}

/// `.A.B`; a field that is not there is an error in Go too.
fn walk(path: &str, data: &Value) -> Option<Value> {
    let mut value = data;
    for name in path.strip_prefix('.')?.split('.').filter(|n| !n.is_empty()) {
        value = value.get(name)?;
    }
    Some(value.clone())
}

fn unknown(action: &str) -> Failure {
    Failure::new(
        64,
        format!("template parsing error: docker-stand-in does not know {action:?}"),
    )
}
