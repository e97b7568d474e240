//! The tree → what is written: for each key of the table its typed value and its place, or nothing. Here an unknown
//! key, a wrong type and a number out of range are refused; what a text must look like is for `check` to say.

use super::fault::Faults;
use super::keys::{Fallback, Key, Kind, LEVELS};
use super::yaml::scalar::{Scalar, clip};
use super::yaml::{Entry, Value as Tree};
use crate::names::nearest;
use std::borrow::Cow;
use std::ops::Range;

/// Keys that are known and not honoured yet: set to anything but the default they are refused, never ignored.
pub const NOT_YET: &[&str] = &["metrics_textfile"];

/// The longest text that a key takes (bytes).
const MAX_TEXT: usize = 1024;

const NO_SDK: &str =
    "this build has no embedded mesh SDK: run ziti-edge-tunnel and use `system`, or `proxy`";
const NO_APPROLE: &str = "AppRole was removed: the agent logs in with a deploy grant";

/// A typed value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// Nothing, or `null`.
    Unset,
    /// Refused; the fault is noted.
    Broken,
    /// Text.
    Text(Cow<'a, str>),
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(u64),
    /// A number.
    Number(f64),
}

/// A value with its place.
#[derive(Debug)]
pub struct Written<'a> {
    /// The value.
    pub value: Value<'a>,
    /// Where its key stands.
    pub key_at: Range<usize>,
    /// Where it stands.
    pub at: usize,
}

/// The configuration as written.
#[derive(Debug)]
pub struct Raw<'a> {
    cells: [Option<Written<'a>>; Key::COUNT],
}

impl<'a> Raw<'a> {
    /// Reads the tree; what is refused goes to `faults`.
    pub fn read(entries: Vec<Entry<'a>>, faults: &mut Faults<'a>, not_yet: &[&str]) -> Self {
        let mut raw = Self {
            cells: [const { None }; Key::COUNT],
        };
        for entry in entries {
            if Key::is_section(&entry.key) {
                raw.read_section(entry, faults, not_yet);
            } else {
                raw.read_entry("", entry, faults, not_yet);
            }
        }
        raw
    }

    /// What is written for a key, if anything is.
    pub fn get(&self, key: Key) -> Option<&Written<'a>> {
        self.cells.get(key as usize).and_then(Option::as_ref)
    }

    fn read_section(&mut self, section: Entry<'a>, faults: &mut Faults<'a>, not_yet: &[&str]) {
        match section.value {
            Tree::Map(entries) => {
                for entry in entries {
                    if section.key == "bao" && entry.key == "approle" {
                        // What stands there may be a secret: nothing of it is shown.
                        faults.forget_within(&(entry.key_at.start..entry.until));
                        faults.at_name(&entry.key_at, NO_APPROLE.to_owned());
                    } else {
                        self.read_entry(&section.key, entry, faults, not_yet);
                    }
                }
            }
            Tree::Scalar(scalar) if is_null(&scalar) => {}
            Tree::Scalar(_) | Tree::List(_) => faults.at(
                section.value_at,
                format!(
                    "`{0}` takes keys of its own: write them below `{0}:`, indented",
                    section.key
                ),
            ),
            Tree::Broken => {}
        }
    }

    fn read_entry(
        &mut self,
        section: &str,
        entry: Entry<'a>,
        faults: &mut Faults<'a>,
        not_yet: &[&str],
    ) {
        let Some(key) = Key::find(section, &entry.key) else {
            faults.at_name(&entry.key_at, unknown(section, &entry.key));
            return;
        };
        let value = match entry.value {
            Tree::Scalar(scalar) => typed(key, scalar).and_then(|value| {
                if not_yet.contains(&key.name()) && !is_default(key, &value) {
                    return Err(not_supported(key));
                }
                Ok(value)
            }),
            Tree::Map(_) => Err(format!(
                "`{0}` takes one value, not keys of its own: write `{1}: …` on one line",
                key.name(),
                key.short_name()
            )),
            Tree::List(_) => Err(format!(
                "`{0}` takes one value, not a list: write `{1}: …` on one line",
                key.name(),
                key.short_name()
            )),
            Tree::Broken => Ok(Value::Broken),
        };
        let value = value.unwrap_or_else(|message| {
            faults.at(entry.value_at, message);
            Value::Broken
        });
        // A key that stands twice was refused already; the last one is as good as the first.
        if let Some(cell) = self.cells.get_mut(key as usize) {
            *cell = Some(Written {
                value,
                key_at: entry.key_at,
                at: entry.value_at,
            });
        }
    }
}

/// The default of a key, as if it were written.
pub fn default_value(key: Key) -> Value<'static> {
    let Fallback::Fixed(text) = key.spec().fallback else {
        return Value::Unset;
    };
    let scalar = Scalar {
        text: Cow::Borrowed(text),
        is_quoted: false,
    };
    // A test reads every default, so none is broken.
    typed(key, scalar).unwrap_or(Value::Broken)
}

fn is_default(key: Key, value: &Value<'_>) -> bool {
    *value == Value::Unset || *value == default_value(key)
}

fn not_supported(key: Key) -> String {
    let default = match key.spec().fallback {
        Fallback::Fixed(text) => format!(" (the default is `{text}`)"),
        _ => String::new(),
    };
    format!(
        "`{}` is not supported by this version yet: remove the line{default}",
        key.name()
    )
}

/// What to say of a key that is not in the table.
fn unknown(section: &str, name: &str) -> String {
    let shown = clip(name);
    let within = if section.is_empty() {
        String::new()
    } else {
        format!(" in `{section}`")
    };
    let full = Key::ALL.iter().find(|key| key.name() == name);
    let elsewhere: Vec<&str> = Key::ALL
        .iter()
        .filter(|key| key.short_name() == name)
        .map(|key| key.name())
        .collect();
    if let Some(key) = full.filter(|key| !key.section().is_empty()) {
        return format!(
            "unknown key `{shown}`{within}: write `{}:` below `{}:`, indented",
            key.short_name(),
            key.section()
        );
    }
    if !elsewhere.is_empty() {
        return format!(
            "unknown key `{shown}`{within}: the key is `{}`",
            elsewhere.join("` or `")
        );
    }
    let siblings = Key::ALL
        .iter()
        .filter(|key| key.section() == section)
        .map(|key| key.short_name());
    let sections = Key::ALL
        .iter()
        .map(|key| key.section())
        .filter(|name| section.is_empty() && !name.is_empty());
    // A name of any length would cost its square.
    match nearest(&shown, siblings.chain(sections)) {
        Some(known) => format!("unknown key `{shown}`{within}: did you mean `{known}`?"),
        None => format!("unknown key `{shown}`{within}: remove it"),
    }
}

/// Whether YAML 1.2 reads the value as null.
pub fn is_null(scalar: &Scalar<'_>) -> bool {
    !scalar.is_quoted && matches!(&*scalar.text, "" | "~" | "null" | "Null" | "NULL")
}

/// The value as the key's type; an error says what to write instead.
fn typed<'a>(key: Key, scalar: Scalar<'a>) -> Result<Value<'a>, String> {
    if is_null(&scalar) {
        return Ok(Value::Unset);
    }
    let name = key.name();
    match key.spec().kind {
        Kind::Text(_) | Kind::Path => text(name, scalar),
        Kind::Bool => boolean(name, &scalar),
        Kind::Int { min, max } => integer(name, &scalar, min, max),
        Kind::Number { min, max } => number(name, &scalar, min, max),
        Kind::OneOf(_) if key == Key::Transport && scalar.text == "sdk" => Err(NO_SDK.to_owned()),
        Kind::OneOf(words) => match words.iter().find(|word| **word == scalar.text) {
            Some(word) => Ok(Value::Text(Cow::Borrowed(word))),
            None => Err(not_one_of(name, &scalar, words)),
        },
        Kind::Level => match LEVELS
            .iter()
            .find(|level| level.eq_ignore_ascii_case(&scalar.text))
        {
            Some(level) => Ok(Value::Text(Cow::Borrowed(level))),
            None => Err(not_one_of(name, &scalar, LEVELS)),
        },
    }
}

fn not_one_of(name: &str, scalar: &Scalar<'_>, words: &[&str]) -> String {
    let list = match words.split_last() {
        Some((last, [])) => format!("`{last}`"),
        Some((last, others)) => format!("`{}` or `{last}`", others.join("`, `")),
        None => String::new(),
    };
    let text = clip(&scalar.text);
    let remedy = nearest(&text.to_lowercase(), words.iter().copied())
        .map(|word| format!(": did you mean `{word}`?"))
        .unwrap_or_default();
    format!("`{name}` must be {list}, not `{text}`{remedy}")
}

fn text<'a>(name: &str, scalar: Scalar<'a>) -> Result<Value<'a>, String> {
    if let Some(c) = scalar.text.chars().find(|c| c.is_control()) {
        return Err(format!(
            "`{name}` holds the control character U+{:04X}: write it without",
            u32::from(c)
        ));
    }
    if scalar.text.starts_with(char::is_whitespace) || scalar.text.ends_with(char::is_whitespace) {
        return Err(format!(
            "`{name}` begins or ends with a blank: write it without"
        ));
    }
    if scalar.text.len() > MAX_TEXT {
        return Err(format!("`{name}` is longer than {MAX_TEXT} bytes"));
    }
    Ok(Value::Text(scalar.text))
}

fn boolean(name: &str, scalar: &Scalar<'_>) -> Result<Value<'static>, String> {
    let remedy = match &*scalar.text.to_ascii_lowercase() {
        "true" | "yes" | "on" | "y" => "write `true`",
        "false" | "no" | "off" | "n" => "write `false`",
        _ => "write one of the two",
    };
    match &*scalar.text {
        "true" | "True" | "TRUE" if !scalar.is_quoted => Ok(Value::Bool(true)),
        "false" | "False" | "FALSE" if !scalar.is_quoted => Ok(Value::Bool(false)),
        _ => Err(format!(
            "`{name}` must be `true` or `false`, not {}: {remedy}",
            shown(scalar)
        )),
    }
}

fn integer(name: &str, scalar: &Scalar<'_>, min: u64, max: u64) -> Result<Value<'static>, String> {
    let wrong = |remedy: &str| {
        format!(
            "`{name}` must be a whole number from {min} to {max}, not {}{remedy}",
            shown(scalar)
        )
    };
    let text = &*scalar.text;
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong(": write digits only"));
    }
    if scalar.is_quoted {
        return Err(wrong(": write it without quotes"));
    }
    if digits.len() > 1 && digits.starts_with('0') {
        return Err(wrong(": write it without the leading zero"));
    }
    let value = digits.parse().unwrap_or(u64::MAX);
    let is_negative = text.starts_with('-') && value != 0;
    if is_negative || value < min || value > max {
        return Err(wrong(""));
    }
    Ok(Value::Int(value))
}

fn number(name: &str, scalar: &Scalar<'_>, min: f64, max: f64) -> Result<Value<'static>, String> {
    let wrong = |remedy: &str| {
        format!(
            "`{name}` must be a number from {min:?} to {max:?}, not {}{remedy}",
            shown(scalar)
        )
    };
    if scalar.is_quoted {
        return Err(wrong(": write it without quotes"));
    }
    let text = &*scalar.text;
    let whole = text.strip_prefix(['-', '+']).unwrap_or(text);
    if whole.len() > 1 && whole.starts_with('0') && !whole.starts_with("0.") {
        return Err(wrong(": write it in decimal and without a leading zero"));
    }
    // Rust's parser takes "inf" and "nan" too.
    let looks_right = whole.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+' | b'e' | b'E'));
    match text.parse::<f64>() {
        Ok(value) if looks_right && (min..=max).contains(&value) => Ok(Value::Number(value)),
        Ok(_) if looks_right => Err(wrong("")),
        _ => Err(wrong(": write digits and a point, for example `1.5`")),
    }
}

/// The value as it stood, for a message.
fn shown(scalar: &Scalar<'_>) -> String {
    if scalar.is_quoted {
        format!("the text \"{}\"", clip(&scalar.text))
    } else {
        format!("`{}`", clip(&scalar.text))
    }
}

#[cfg(test)]
mod tests;
