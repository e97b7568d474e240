//! From the bytes of `.env.template` to its lines, the way Compose's dotenv parser reads them (measured, docs/ENV.md):
//! where a key ends, how a value is quoted, which escapes count, where a comment starts. Where Compose would drop or
//! misread something without a word, this refuses it. Gives all findings at once, by line and key, never a value.

use super::key::Key;
use super::quote::{quoted, unescape};
use super::reference::{self, Dialect, Part};
use super::{Assignment, Line};
use crate::code::Code;
use crate::error::Finding;

/// A larger template is refused: its lines would take many times its size in memory.
const MAX_BYTES: usize = 1024 * 1024;
/// Reading stops after so many findings.
const MAX_FINDINGS: usize = 50;
/// A bare key is shown in a finding only up to this length: a longer one is rather a piece of an unquoted value.
const MAX_SHOWN_KEY: usize = 40;

/// The lines of a template, or everything that is wrong with it.
pub(super) fn lines(bytes: &[u8]) -> Result<Vec<Line>, Vec<Finding>> {
    if bytes.len() > MAX_BYTES {
        let what = ".env.template is larger than 1 MiB";
        return Err(vec![Finding::new(Code::BundleInvalid, what)]);
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
        Err(error) => {
            let head = bytes.get(..error.valid_up_to()).unwrap_or_default();
            return Err(vec![invalid(line_after(head), "bytes that are not UTF-8")]);
        }
    };
    if let Some((head, _)) = text.split_once('\0') {
        return Err(vec![invalid(line_after(head.as_bytes()), "a NUL byte")]);
    }
    let mut reader = Reader {
        rest: text,
        line: 1,
        lines: Vec::new(),
        findings: Vec::new(),
    };
    while !reader.rest.is_empty() && reader.findings.len() < MAX_FINDINGS {
        reader.statement();
    }
    if reader.findings.is_empty() {
        Ok(reader.lines)
    } else {
        Err(reader.findings)
    }
}

fn line_after(head: &[u8]) -> usize {
    head.iter().filter(|byte| **byte == b'\n').count() + 1
}

fn finding(code: Code, line: usize, what: &str) -> Finding {
    Finding::new(code, format!(".env.template, line {line}: {what}"))
}

fn invalid(line: usize, what: &str) -> Finding {
    finding(Code::BundleInvalid, line, what)
}

struct Reader<'t> {
    rest: &'t str,
    line: usize,
    lines: Vec<Line>,
    findings: Vec<Finding>,
}

impl<'t> Reader<'t> {
    /// Takes everything up to the next line end.
    fn take_line(&mut self) -> &'t str {
        let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
        self.rest = rest;
        self.line += 1;
        line
    }

    /// Takes one statement: a blank line, a comment, or an assignment, whose quoted value may span lines.
    fn statement(&mut self) {
        let number = self.line;
        let whole = self.rest;
        let text = self.take_line();
        let start = text.trim_start();
        if start.is_empty() {
            self.lines.push(Line::Blank);
        } else if start.starts_with('#') {
            self.lines.push(Line::Comment(text.trim_end().to_owned()));
        } else if let Some((key, value_at)) = self.key(text, start, number) {
            // From here on the value may reach over the line end: go back to where it begins.
            self.rest = whole.get(value_at..).unwrap_or_default();
            self.line = number;
            self.assignment(key, number);
        }
    }

    /// The key of a line, and where in `text` its value starts (after the separator).
    fn key(&mut self, text: &str, start: &str, number: usize) -> Option<(Key, usize)> {
        let start = match start.strip_prefix("export") {
            Some(rest) if rest.starts_with([' ', '\t', '\r', '\u{c}']) => {
                rest.trim_start_matches(is_blank)
            }
            _ => start,
        };
        let separator = start.find(['=', ':']);
        let name = start
            .get(..separator.unwrap_or(start.len()))
            .unwrap_or_default()
            .trim_end();
        match (Key::new(name), separator) {
            (Some(key), Some(at)) => Some((key, text.len() - start.len() + at + 1)),
            (Some(key), None) => {
                let what = if name.len() <= MAX_SHOWN_KEY {
                    format!(
                        "{key} has no value: write {key}=… (a bare key is never taken from the agent's environment)"
                    )
                } else {
                    "neither KEY=VALUE nor a comment (a value of several lines needs quotes)"
                        .to_owned()
                };
                self.findings
                    .push(finding(Code::EnvIncomplete, number, &what));
                None
            }
            (None, _) => {
                let what = "a key that Compose's parser does not take: a key is made of letters, digits and _ . - [ ]";
                self.findings.push(finding(Code::EnvReserved, number, what));
                None
            }
        }
    }

    /// Takes the value and the comment behind it; `rest` stands behind the separator.
    fn assignment(&mut self, key: Key, number: usize) {
        let value_start = self.rest.trim_start_matches(is_blank);
        let (parts, comment) = match value_start.chars().next() {
            Some(quote @ ('\'' | '"')) => {
                let Some((content, after)) = quoted(value_start, quote) else {
                    let what = format!("{key}: the quote that opens its value is never closed");
                    self.findings.push(invalid(number, &what));
                    self.rest = "";
                    return;
                };
                let taken = self.rest.len() - after.len();
                self.line += self
                    .rest
                    .get(..taken)
                    .map_or(0, |taken| taken.matches('\n').count());
                self.rest = after;
                let tail = self.take_line().trim_end();
                if !tail.is_empty() && !tail.trim_start().starts_with('#') {
                    let what = format!(
                        "{key}: text behind the closing quote, which Compose would drop or take for another key"
                    );
                    self.findings.push(invalid(number, &what));
                }
                let parts = if quote == '"' {
                    reference::parse(&unescape(&content), Dialect::Template)
                } else {
                    reference::parse(&content, Dialect::SingleQuoted)
                };
                (parts, tail)
            }
            _ => {
                let (value, comment) = split_comment(self.take_line());
                (reference::parse(value, Dialect::Template), comment)
            }
        };
        match parts {
            Ok(value) => self.push(key, value, comment, number),
            Err(broken) => self
                .findings
                .push(invalid(number, &format!("{key}: {broken}"))),
        }
    }

    fn push(&mut self, key: Key, value: Vec<Part>, comment: &str, line: usize) {
        self.lines.push(Line::Assignment(Assignment {
            key,
            value,
            comment: comment.to_owned(),
            line,
        }));
    }
}

/// What Compose skips around keys and before values; a line end is none of it.
fn is_blank(c: char) -> bool {
    matches!(
        c,
        '\t' | '\u{b}' | '\u{c}' | '\r' | ' ' | '\u{85}' | '\u{a0}'
    )
}

/// A plain value and the comment behind it. A comment starts with space and `#`; when nothing stands before it the value
/// is empty (Compose alone would take such a comment for the value).
fn split_comment(line: &str) -> (&str, &str) {
    let value = line.trim_start_matches(is_blank);
    let (blanks, _) = line.split_at(line.len() - value.len());
    if value.starts_with('#') && blanks.ends_with(' ') {
        return ("", line.trim_end());
    }
    match value.find(" #") {
        Some(at) => {
            let (value, comment) = value.split_at(at);
            (value.trim_end(), comment.trim_end())
        }
        None => (value.trim_end(), ""),
    }
}

#[cfg(test)]
mod tests;
