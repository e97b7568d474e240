//! Reading other people's JSON leniently, in one place (tenancy and the bundles are made by Python services): null, and
//! `""` for texts, count as absent; integers may be integral floats or decimal strings; unknown fields are ignored.
//! Gives typed fields or a [`JsonError`] that names the field and what it should have been.

use serde_json::{Map, Value};
use std::fmt;

/// A field that is missing or has the wrong type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError {
    /// The field, with the way to it: `auth.client_token`.
    pub field: String,
    /// What it must be.
    pub expected: &'static str,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = if self.field.is_empty() {
            "the document"
        } else {
            &self.field
        };
        write!(f, "{field} must be {}", self.expected)
    }
}

impl std::error::Error for JsonError {}

/// The fields of one object.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    map: Option<&'a Map<String, Value>>,
    way: String,
}

impl<'a> Fields<'a> {
    /// The fields of a document, which must be an object.
    pub fn of(value: &'a Value) -> Result<Self, JsonError> {
        match value {
            Value::Object(map) => Ok(Self {
                map: Some(map),
                way: String::new(),
            }),
            _ => Err(JsonError {
                field: String::new(),
                expected: "a JSON object",
            }),
        }
    }

    /// The same fields, named in errors as fields of `way`.
    #[must_use]
    pub fn named(mut self, way: &str) -> Self {
        self.way = format!("{way}.");
        self
    }

    /// The raw value, `None` when absent or null.
    pub fn value(&self, name: &str) -> Option<&'a Value> {
        self.map?.get(name).filter(|value| !value.is_null())
    }

    /// The error that says that `name` must be `expected`.
    pub fn wrong(&self, name: &str, expected: &'static str) -> JsonError {
        JsonError {
            field: format!("{}{name}", self.way),
            expected,
        }
    }

    /// An inner object; an absent one has no fields.
    pub fn object(&self, name: &str) -> Result<Self, JsonError> {
        let way = format!("{}{name}.", self.way);
        match self.value(name) {
            None => Ok(Self { map: None, way }),
            Some(Value::Object(map)) => Ok(Self {
                map: Some(map),
                way,
            }),
            Some(_) => Err(self.wrong(name, "an object")),
        }
    }

    /// Whether the object itself was there.
    pub fn is_present(&self) -> bool {
        self.map.is_some()
    }

    /// An inner list; an absent one is empty.
    pub fn list(&self, name: &str) -> Result<&'a [Value], JsonError> {
        match self.value(name) {
            None => Ok(&[]),
            Some(Value::Array(items)) => Ok(items),
            Some(_) => Err(self.wrong(name, "a list")),
        }
    }

    /// A text; empty counts as absent.
    pub fn text(&self, name: &str) -> Result<Option<&'a str>, JsonError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            Some(_) => Err(self.wrong(name, "a string")),
        }
    }

    /// A text that must be there.
    pub fn required_text(&self, name: &str) -> Result<&'a str, JsonError> {
        self.text(name)?
            .ok_or_else(|| self.wrong(name, "a string, and it is missing"))
    }

    /// A boolean.
    pub fn boolean(&self, name: &str) -> Result<Option<bool>, JsonError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(_) => Err(self.wrong(name, "true or false")),
        }
    }

    /// A whole number, at least 0: also as an integral float or a decimal string.
    pub fn whole(&self, name: &str) -> Result<Option<u64>, JsonError> {
        let expected = "a whole number";
        match self.value(name) {
            None => Ok(None),
            Some(Value::Number(number)) => whole_number(&number.to_string())
                .map(Some)
                .ok_or_else(|| self.wrong(name, expected)),
            Some(Value::String(text)) if text.trim().is_empty() => Ok(None),
            Some(Value::String(text)) => whole_number(text.trim())
                .map(Some)
                .ok_or_else(|| self.wrong(name, expected)),
            Some(_) => Err(self.wrong(name, expected)),
        }
    }

    /// A span in seconds; 0 counts as absent.
    pub fn seconds(&self, name: &str) -> Result<Option<u64>, JsonError> {
        Ok(self.whole(name)?.filter(|seconds| *seconds > 0))
    }
}

/// `12`, `12.0` and `1.2e1` are twelve.
fn whole_number(text: &str) -> Option<u64> {
    if let Ok(whole) = text.parse::<u64>() {
        return Some(whole);
    }
    if !text
        .bytes()
        .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'))
    {
        return None;
    }
    let float: f64 = text.parse().ok()?;
    // Beyond 2^53 a float no longer names one whole number.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked on the same line"
    )]
    (float.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&float))
        .then_some(float as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn null_and_empty_count_as_absent() {
        let value = json!({"a": null, "b": "", "c": 0, "d": " "});
        let fields = Fields::of(&value).unwrap();
        assert_eq!(fields.text("a"), Ok(None));
        assert_eq!(fields.text("b"), Ok(None));
        assert_eq!(fields.seconds("c"), Ok(None));
        assert_eq!(fields.whole("d"), Ok(None));
        assert!(!fields.object("a").unwrap().is_present());
        assert!(fields.list("a").unwrap().is_empty());
    }

    #[test]
    fn a_whole_number_comes_in_three_forms() {
        for text in ["60", "60.0", "6e1", "\"60\"", "\"60.0\"", "\" 60 \""] {
            let value: Value = serde_json::from_str(&format!("{{\"n\": {text}}}")).unwrap();
            assert_eq!(
                Fields::of(&value).unwrap().whole("n"),
                Ok(Some(60)),
                "{text}"
            );
        }
        for text in [
            "60.5", "-1", "\"x\"", "true", "[1]", "1e30", "\"inf\"", "\"nan\"",
        ] {
            let value: Value = serde_json::from_str(&format!("{{\"n\": {text}}}")).unwrap();
            assert!(Fields::of(&value).unwrap().whole("n").is_err(), "{text}");
        }
    }

    #[test]
    fn an_error_names_the_field_with_the_way_to_it() {
        let value = json!({"auth": {"client_token": 5}});
        let error = Fields::of(&value)
            .unwrap()
            .object("auth")
            .unwrap()
            .required_text("client_token")
            .unwrap_err();
        assert_eq!(error.to_string(), "auth.client_token must be a string");
    }
}
