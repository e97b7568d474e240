//! A peer's own words, from the body of an error answer: half of every message. Knows the shapes of tenancy (`code`,
//! `error.code`, `detail.code`, a bare code as `detail` or `error`, FastAPI's 422) and of OpenBao (`errors`).

use serde_json::Value;

/// How much of a body that is not JSON is shown, in characters.
const RAW_CHARACTERS: usize = 300;

/// What a body says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// The peer's stable code.
    pub code: Option<String>,
    /// Its words, on one line.
    pub text: String,
}

/// Reads the body of an answer whose status is not a success.
pub fn read(body: &[u8]) -> Words {
    let Ok(value) = serde_json::from_slice::<Value>(body) else {
        let raw = String::from_utf8_lossy(body);
        let line = raw.split_whitespace().collect::<Vec<_>>().join(" ");
        return Words {
            code: None,
            text: line.chars().take(RAW_CHARACTERS).collect(),
        };
    };
    let inner = ["detail", "error"]
        .into_iter()
        .filter_map(|name| value.get(name));
    let code = std::iter::once(&value)
        .chain(inner.clone())
        .find_map(|place| place.get("code").and_then(Value::as_str))
        .or_else(|| {
            inner
                .clone()
                .filter_map(Value::as_str)
                .find(|text| is_code(text))
        })
        .map(str::to_owned);
    let text = ["detail", "error", "message", "errors"]
        .into_iter()
        .filter_map(|name| value.get(name))
        .map(sentence)
        .find(|text| !text.is_empty() && Some(text) != code.as_ref())
        .unwrap_or_default();
    Words { code, text }
}

fn is_code(text: &str) -> bool {
    text.len() >= 3
        && text
            .bytes()
            .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}

fn sentence(value: &Value) -> String {
    match value {
        Value::String(text) => text.split_whitespace().collect::<Vec<_>>().join(" "),
        Value::Array(items) => items
            .iter()
            .map(sentence)
            .filter(|text| !text.is_empty())
            .collect::<Vec<_>>()
            .join("; "),
        Value::Object(fields) => {
            let message = ["message", "msg", "detail", "error"]
                .into_iter()
                .filter_map(|name| fields.get(name))
                .map(sentence)
                .find(|text| !text.is_empty());
            // FastAPI names the field by its way: ["body", "facts", "docker"].
            let place = fields.get("loc").and_then(Value::as_array).map(|way| {
                way.iter()
                    .map(|step| {
                        step.as_str()
                            .map_or_else(|| step.to_string(), str::to_owned)
                    })
                    .collect::<Vec<_>>()
                    .join(".")
            });
            match (place, message) {
                (Some(place), Some(message)) => format!("{place}: {message}"),
                (_, message) => message.unwrap_or_default(),
            }
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_gives_code_and_words() {
        let rows = [
            (r#"{"code":"A_B","message":"m"}"#, Some("A_B"), "m"),
            (
                r#"{"error":{"code":"A_B","message":"m"}}"#,
                Some("A_B"),
                "m",
            ),
            (
                r#"{"detail":{"code":"A_B","message":"m"}}"#,
                Some("A_B"),
                "m",
            ),
            (
                r#"{"detail":{"code":"A_B","message":null,"error":"m"}}"#,
                Some("A_B"),
                "m",
            ),
            (r#"{"detail":"A_B"}"#, Some("A_B"), ""),
            (r#"{"error":"A_B","message":"m"}"#, Some("A_B"), "m"),
            (r#"{"detail":"Not Found"}"#, None, "Not Found"),
            (
                r#"{"detail":[{"type":"missing","loc":["body","facts",0],"msg":"Field required","input":null}]}"#,
                None,
                "body.facts.0: Field required",
            ),
            (
                r#"{"errors":["1 error occurred:\n\t* permission denied\n\n"]}"#,
                None,
                "1 error occurred: * permission denied",
            ),
            (r#"{"errors":[]}"#, None, ""),
            (
                "<html>\n bad  gateway</html>",
                None,
                "<html> bad gateway</html>",
            ),
            ("", None, ""),
        ];
        for (body, code, text) in rows {
            let words = read(body.as_bytes());
            assert_eq!(
                (words.code.as_deref(), words.text.as_str()),
                (code, text),
                "{body}"
            );
        }
    }
}
