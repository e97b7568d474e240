//! The one redactor that every outgoing *free text* passes: log lines, `last_error`, a report's `detail` and `log_tail`,
//! `last-apply.log`. Typed fields (names, states, numbers) are never built from secret data and do not pass it, or a
//! secret `postgres` would rewrite half a report.
//!
//! It takes every secret of the tick with its name and gives texts in which each value, and the usual encodings of it,
//! is replaced by `[redacted:NAME]`. Text is redacted first and cut afterwards, never the other way round.

use crate::secret::Secret;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use std::fmt::Write;
use std::sync::{Arc, PoisonError, RwLock};
use zeroize::Zeroizing;

/// Values shorter than this (bytes) are replaced as whole words only.
const WHOLE_WORD_BELOW_BYTES: usize = 8;
/// Values shorter than this (bytes) are not replaced at all: the text would become unreadable.
const IGNORED_BELOW_BYTES: usize = 4;
/// Base64 forms are searched from this length (bytes) on; shorter ones match by accident.
const BASE64_FROM_BYTES: usize = 12;

/// What Go's JSON escapes beyond the rule.
const GO_JSON_ESCAPES: [char; 5] = ['&', '<', '>', '\u{2028}', '\u{2029}'];
/// What Go leaves as it is in the user and the password of a URL.
const GO_USERINFO_KEEPS: &str = "&$+,;=";
/// What JavaScript's `encodeURIComponent` leaves as it is.
const JAVASCRIPT_KEEPS: &str = "!*'()";

struct Needle {
    text: Zeroizing<String>,
    name: Arc<str>,
    whole_word: bool,
}

/// A shared handle: clones know the same secrets.
#[derive(Clone, Default)]
pub struct Redactor {
    needles: Arc<RwLock<Vec<Needle>>>,
}

/// What became of a value that was handed to [`Redactor::learn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cover {
    /// It is replaced wherever it stands.
    Full,
    /// It is too short to be replaced: whoever handed it over warns, by name.
    TooShort,
}

impl Redactor {
    /// A redactor that knows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Remembers `secret` under `name`, with its encodings and, for a multi-line value, its longer lines.
    pub fn learn(&self, name: &str, secret: &Secret) -> Cover {
        let value = secret.expose();
        if value.len() < IGNORED_BELOW_BYTES {
            return if value.is_empty() {
                Cover::Full
            } else {
                Cover::TooShort
            };
        }
        let mut texts = Vec::new();
        forms_of(value, &mut texts);
        for line in value
            .lines()
            .map(str::trim)
            .filter(|line| line.chars().count() >= WHOLE_WORD_BELOW_BYTES)
        {
            if line.len() != value.len() {
                forms_of(line, &mut texts);
            }
        }
        let name: Arc<str> = name.into();
        let mut needles = self.needles.write().unwrap_or_else(PoisonError::into_inner);
        for text in texts {
            if !needles.iter().any(|known| *known.text == *text) {
                let whole_word = text.len() < WHOLE_WORD_BELOW_BYTES;
                needles.push(Needle {
                    text,
                    name: Arc::clone(&name),
                    whole_word,
                });
            }
        }
        needles.sort_by_key(|needle| std::cmp::Reverse(needle.text.len()));
        Cover::Full
    }

    /// `text` without any of the known secrets.
    pub fn clean(&self, text: &str) -> String {
        let needles = self.needles.read().unwrap_or_else(PoisonError::into_inner);
        let mut hits: Vec<(usize, usize, &str)> = Vec::new();
        for needle in needles.iter() {
            for (start, found) in text.match_indices(needle.text.as_str()) {
                let end = start + found.len();
                if !needle.whole_word || is_whole_word(text, start, end) {
                    hits.push((start, end, &needle.name));
                }
            }
        }
        hits.sort_by_key(|&(start, end, _)| (start, std::cmp::Reverse(end)));
        let mut cleaned = String::with_capacity(text.len());
        let mut copied = 0;
        let mut hits = hits.into_iter().peekable();
        while let Some((start, mut end, name)) = hits.next() {
            // Overlapping finds become one, so that no rest of either shows.
            while let Some((_, next_end, _)) = hits.next_if(|next| next.0 < end) {
                end = end.max(next_end);
            }
            cleaned.push_str(text.get(copied..start).unwrap_or_default());
            // Writing to a String cannot fail.
            let _ = write!(cleaned, "[redacted:{name}]");
            copied = end;
        }
        cleaned.push_str(text.get(copied..).unwrap_or_default());
        cleaned
    }
}

/// `value` and the encodings in which programs print it.
fn forms_of(value: &str, forms: &mut Vec<Zeroizing<String>>) {
    let mut push = |text: String| {
        let text = Zeroizing::new(text);
        if text.len() >= IGNORED_BELOW_BYTES && !forms.contains(&text) {
            forms.push(text);
        }
    };
    push(value.to_owned());
    if value.trim() != value {
        push(value.trim().to_owned());
    }
    if value.len() < WHOLE_WORD_BELOW_BYTES {
        return;
    }
    let json = Zeroizing::new(serde_json::to_string(value).unwrap_or_default());
    let json = json
        .get(1..json.len().saturating_sub(1))
        .unwrap_or_default();
    push(json.to_owned());
    push(json_escape(json, |c| GO_JSON_ESCAPES.contains(&c)));
    // What writes ASCII only, as Python does.
    push(json_escape(json, |c| !matches!(c, ' '..='~')));
    // Inside a shell's single quotes.
    push(value.replace('\'', "'\\''"));
    push(
        value
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('$', "\\$")
            .replace('\n', "\\n")
            .replace('\r', "\\r"),
    );
    // Compose doubles dollars wherever it prints a model.
    push(value.replace('$', "$$"));
    for (hex, space, kept) in [
        (HexCase::Upper, "%20", ""),
        (HexCase::Upper, "+", ""),
        (HexCase::Lower, "%20", ""),
        (HexCase::Upper, "%20", GO_USERINFO_KEEPS),
        (HexCase::Upper, "%20", JAVASCRIPT_KEEPS),
    ] {
        push(url_encode(value, hex, space, kept));
    }
    if value.len() >= BASE64_FROM_BYTES {
        for shift in 0..3 {
            push(base64_core(value.as_bytes(), shift, &STANDARD_NO_PAD));
            push(base64_core(value.as_bytes(), shift, &URL_SAFE_NO_PAD));
        }
    }
}

#[derive(Clone, Copy)]
enum HexCase {
    Upper,
    Lower,
}

/// `json`, the inside of a JSON string, with the characters that `is_escaped` picks written as `\u` escapes too.
fn json_escape(json: &str, is_escaped: impl Fn(char) -> bool) -> String {
    let mut escaped = String::with_capacity(json.len() * 6);
    for c in json.chars() {
        if is_escaped(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// `value` percent-encoded, but for the characters (ASCII) in `kept`.
fn url_encode(value: &str, case: HexCase, space: &str, kept: &str) -> String {
    let mut encoded = String::with_capacity(value.len() * 3);
    for byte in value.bytes() {
        match (byte, case) {
            (b' ', _) => encoded.push_str(space),
            (b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~', _) => {
                encoded.push(char::from(byte))
            }
            _ if kept.as_bytes().contains(&byte) => encoded.push(char::from(byte)),
            // Writing to a String cannot fail.
            (_, HexCase::Upper) => drop(write!(encoded, "%{byte:02X}")),
            (_, HexCase::Lower) => drop(write!(encoded, "%{byte:02x}")),
        }
    }
    encoded
}

/// The characters that `value` is sure to give inside a longer base64 text, when it begins there `shift` bytes after a
/// three-byte boundary: the first and last characters depend on the neighbours and are left out.
fn base64_core(value: &[u8], shift: usize, engine: &impl Engine) -> String {
    let mut padded = Zeroizing::new(vec![0; shift]);
    padded.extend_from_slice(value);
    let whole = padded.len() / 3 * 3;
    let encoded = Zeroizing::new(engine.encode(padded.get(..whole).unwrap_or_default()));
    let skipped = if shift == 0 { 0 } else { 4 };
    encoded.get(skipped..).unwrap_or_default().to_owned()
}

fn is_whole_word(text: &str, start: usize, end: usize) -> bool {
    let joins = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    !joins(
        text.get(..start)
            .and_then(|before| before.chars().next_back()),
    ) && !joins(text.get(end..).and_then(|after| after.chars().next()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::STANDARD;

    fn knowing(pairs: &[(&str, &str)]) -> Redactor {
        let redactor = Redactor::new();
        for (name, value) in pairs {
            redactor.learn(name, &Secret::new((*value).to_owned()));
        }
        redactor
    }

    #[test]
    fn a_value_is_replaced_in_every_usual_encoding() {
        let value = "p&ss \"w$rd\"\\ äx\nsecond line";
        let redactor = knowing(&[("DB", value)]);
        let json = serde_json::to_string(value).unwrap();
        let shifted =
            ["", "a", "ab"].map(|before| STANDARD.encode(format!("{before}{value} tail")));
        let url = url_encode(value, HexCase::Upper, "%20", "");
        for text in [
            value,
            &json,
            &url,
            &shifted[0],
            &shifted[1],
            &shifted[2],
            "xsecond liney",
        ] {
            let clean = redactor.clean(text);
            assert!(clean.contains("[redacted:DB]"), "{text}");
            assert!(!clean.contains("second"), "{clean}");
        }
    }

    #[test]
    fn a_value_is_replaced_as_go_python_javascript_and_a_shell_print_it() {
        let value = "it's <ä&😀>,+;=$/:@?!\u{2028}\"";
        let redactor = knowing(&[("DB", value)]);
        for text in [
            r#"it's \u003cä\u0026😀\u003e,+;=$/:@?!\u2028\""#,
            r#"it's <\u00e4&\ud83d\ude00>,+;=$/:@?!\u2028\""#,
            "it%27s%20%3C%C3%A4&%F0%9F%98%80%3E,+;=$%2F%3A%40%3F%21%E2%80%A8%22",
            "it's%20%3C%C3%A4%26%F0%9F%98%80%3E%2C%2B%3B%3D%24%2F%3A%40%3F!%E2%80%A8%22",
            "it'\\''s <ä&😀>,+;=$/:@?!\u{2028}\"",
        ] {
            assert_eq!(
                redactor.clean(&format!("<{text}>")),
                "<[redacted:DB]>",
                "{text}"
            );
        }
    }

    #[test]
    fn a_plain_value_has_few_forms() {
        let mut forms = Vec::new();
        forms_of("hunter2-hunter2", &mut forms);
        // Itself, and base64 at each of the three places.
        assert_eq!(forms.len(), 4);
    }

    #[test]
    fn a_short_value_is_replaced_as_a_whole_word_and_a_tiny_one_is_reported() {
        let redactor = knowing(&[("PW", "hunter")]);
        assert_eq!(
            redactor.clean("hunter hunters hunter2 'hunter'"),
            "[redacted:PW] hunters hunter2 '[redacted:PW]'"
        );
        assert_eq!(
            redactor.learn("PIN", &Secret::new("123".into())),
            Cover::TooShort
        );
        assert_eq!(redactor.clean("123"), "123");
    }

    #[test]
    fn overlapping_values_leave_no_rest() {
        let redactor = knowing(&[
            ("A", "abcdefgh12"),
            ("B", "gh12345678"),
            ("C", "abcdefgh12-longer"),
        ]);
        assert_eq!(redactor.clean("<abcdefgh12345678>"), "<[redacted:A]>");
        assert_eq!(redactor.clean("<abcdefgh12-longer>"), "<[redacted:C]>");
    }

    #[test]
    fn a_value_that_looks_like_the_mark_is_still_replaced_once() {
        let redactor = knowing(&[("A", "redacted:B"), ("B", "otherthing")]);
        assert_eq!(
            redactor.clean("otherthing redacted:B"),
            "[redacted:B] [redacted:A]"
        );
    }
}
