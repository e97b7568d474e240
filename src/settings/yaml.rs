//! The text of the configuration → a tree with positions: a small parser for the block subset of YAML 1.2 that
//! `docs/CONFIG.md` describes. It knows nothing of keys and types.
//!
//! Every document that it accepts means the same to a full YAML 1.2 parser (a test holds it against one); what it does
//! not accept is refused with the place and what to write instead. After a refusal it goes on with the next line that
//! stands where the refused one stood, so one run shows several faults. It borrows from the text wherever it can, never
//! panics, and its recursion is bounded by [`MAX_DEPTH`].

pub mod scalar;

use super::fault::Faults;
use scalar::Scalar;
use std::borrow::Cow;
use std::ops::Range;

/// How deep maps may stand in maps.
pub const MAX_DEPTH: usize = 16;
/// How many keys may stand in one map; it bounds the search for duplicates.
const MAX_KEYS: usize = 500;

/// A value of the tree.
#[derive(Debug, PartialEq)]
pub enum Value<'a> {
    /// A single value; `null` too, which only a typed reader can tell from text.
    Scalar(Scalar<'a>),
    /// Keys and values.
    Map(Vec<Entry<'a>>),
    /// `- ` items.
    List(Vec<Scalar<'a>>),
    /// Something that was refused; the fault is noted.
    Broken,
}

/// One `key: value` of a map.
#[derive(Debug, PartialEq)]
pub struct Entry<'a> {
    /// The key's text.
    pub key: Cow<'a, str>,
    /// Where the key stands in the text, its colon included.
    pub key_at: Range<usize>,
    /// The value.
    pub value: Value<'a>,
    /// Where the value begins.
    pub value_at: usize,
    /// Where the next thing that is not part of this entry begins.
    pub until: usize,
}

/// A line that carries something: neither blank nor only a comment.
#[derive(Clone, Copy)]
struct Line<'a> {
    /// Where its text begins.
    at: usize,
    /// How many spaces stand before its text.
    indent: usize,
    /// From the first character that is no space to the end of the line.
    text: &'a str,
}

impl Line<'_> {
    fn is_item(&self) -> bool {
        self.text == "-" || self.text.starts_with("- ") || self.text.starts_with("-\t")
    }
}

/// Reads the whole text, without a byte order mark; what is refused goes to `faults`.
pub fn parse<'a>(text: &'a str, faults: &mut Faults<'a>) -> Vec<Entry<'a>> {
    let mut parser = Parser {
        rest: text,
        at: 0,
        ahead: None,
        begun: Begun::No,
        faults,
    };
    let Some(first) = parser.peek() else {
        return Vec::new();
    };
    let mut entries = parser.map(first.indent, 1);
    while let Some(line) = parser.peek() {
        parser.faults.at(
            line.at,
            format!(
                "this line is indented less than the first key: write it with {} before it",
                spaces(first.indent)
            ),
        );
        parser.advance();
        entries.append(&mut parser.map(first.indent, 1));
    }
    entries
}

/// What of a document was seen.
#[derive(Clone, Copy, PartialEq)]
enum Begun {
    No,
    Marked,
    Content,
}

struct Parser<'f, 'a> {
    rest: &'a str,
    at: usize,
    ahead: Option<Line<'a>>,
    begun: Begun,
    faults: &'f mut Faults<'a>,
}

impl<'a> Parser<'_, 'a> {
    /// The next line that carries something, without taking it. Nothing more comes once enough faults are noted.
    fn peek(&mut self) -> Option<Line<'a>> {
        if self.faults.is_full() {
            return None;
        }
        if self.ahead.is_none() {
            self.ahead = self.fetch();
        }
        self.ahead
    }

    /// Takes the line that [`Self::peek`] showed.
    fn advance(&mut self) {
        self.ahead = None;
    }

    /// Leaves out the lines that are indented deeper than `indent`.
    fn skip_deeper(&mut self, indent: usize) {
        while self.peek().is_some_and(|line| line.indent > indent) {
            self.advance();
        }
    }

    fn fetch(&mut self) -> Option<Line<'a>> {
        while !self.rest.is_empty() && !self.faults.is_full() {
            let start = self.at;
            let (raw, rest) = match self.rest.split_once('\n') {
                Some((raw, rest)) => (raw.strip_suffix('\r').unwrap_or(raw), rest),
                None => (self.rest, ""),
            };
            self.at += self.rest.len() - rest.len();
            self.rest = rest;
            if let Some((offset, message)) = scalar::unwanted(raw) {
                self.faults.at(start + offset, message);
                continue;
            }
            let text = raw.trim_start_matches(' ');
            let indent = raw.len() - text.len();
            let line = Line {
                at: start + indent,
                indent,
                text,
            };
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            if text.starts_with('\t') {
                let message = "a tab in the indentation: write spaces instead".to_owned();
                self.faults.at(line.at, message);
                continue;
            }
            if indent == 0 && self.is_marker(&line) {
                continue;
            }
            self.begun = Begun::Content;
            return Some(line);
        }
        None
    }

    /// Deals with `---`, `...` and `%…` at the start of a line; tells whether it was one.
    fn is_marker(&mut self, line: &Line<'a>) -> bool {
        let message = if let Some(rest) = marker(line.text, "---") {
            if self.begun != Begun::No {
                self.rest = "";
                "a second document (`---`): keep one and remove the other".to_owned()
            } else {
                self.begun = Begun::Marked;
                if rest.is_empty() || (rest.starts_with(' ') && scalar::is_end(rest)) {
                    return true;
                }
                "text behind `---`: write it on the next line".to_owned()
            }
        } else if marker(line.text, "...").is_some() {
            self.rest = "";
            "the end mark `...` is not supported: remove it and what follows".to_owned()
        } else if line.text.starts_with('%') && self.begun == Begun::No {
            "directives (`%…`) are not supported: remove the line".to_owned()
        } else {
            return false;
        };
        self.faults.at(line.at, message);
        true
    }

    /// The keys that stand at `indent`, up to a line that is indented less.
    fn map(&mut self, indent: usize, depth: usize) -> Vec<Entry<'a>> {
        let mut entries: Vec<Entry<'a>> = Vec::new();
        while let Some(line) = self.peek() {
            if line.indent < indent {
                break;
            }
            self.advance();
            if line.indent > indent {
                self.faults.at(line.at, too_deep(indent));
                self.skip_deeper(indent);
                continue;
            }
            if line.is_item() {
                let message = "a list item where a key belongs: write `key: value`".to_owned();
                self.faults.at(line.at, message);
                self.skip_deeper(indent);
                continue;
            }
            match scalar::key(line.text) {
                Ok((key, end)) => {
                    let key_at = line.at..line.at + end;
                    if let Some(first) = entries.iter().find(|entry| entry.key == key) {
                        let message = format!(
                            "`{}` is given twice, first in line {}: keep one of the two",
                            scalar::clip(&key),
                            self.faults.line_of(first.key_at.start)
                        );
                        self.faults.at(line.at, message);
                    }
                    if entries.len() == MAX_KEYS {
                        let message = format!("more than {MAX_KEYS} keys in one map: remove some");
                        self.faults.at(line.at, message);
                        self.rest = "";
                    }
                    let behind = line.text.get(end..).unwrap_or_default();
                    let (value, value_at) = self.value(behind, key_at.end, indent, depth);
                    let until = self.peek().map_or(self.at, |next| next.at);
                    entries.push(Entry {
                        key,
                        key_at,
                        value,
                        value_at,
                        until,
                    });
                }
                Err(flaw) => {
                    self.faults.at(line.at + flaw.at, flaw.message);
                    self.skip_deeper(indent);
                }
            }
        }
        entries
    }

    /// The value of a key at `indent`: `behind` its colon, or on the lines below.
    fn value(
        &mut self,
        behind: &'a str,
        at: usize,
        indent: usize,
        depth: usize,
    ) -> (Value<'a>, usize) {
        if !scalar::is_end(behind) {
            let text = behind.trim_start_matches(' ');
            let at = at + behind.len() - text.len();
            return match scalar::value(text) {
                Ok(scalar) => (Value::Scalar(scalar), at),
                Err(flaw) => {
                    self.faults.at(at + flaw.at, flaw.message);
                    self.skip_refused(text, indent);
                    (Value::Broken, at)
                }
            };
        }
        match self.peek() {
            Some(below) if below.is_item() && below.indent >= indent => {
                (self.list(below.indent, indent), below.at)
            }
            Some(below) if below.indent > indent => {
                (self.block(below, indent, depth + 1), below.at)
            }
            _ => (Value::Scalar(Scalar::EMPTY), at),
        }
    }

    /// What stands below a key at `parent`, beginning with the line `first`, which is no list item.
    fn block(&mut self, first: Line<'a>, parent: usize, depth: usize) -> Value<'a> {
        let message = if depth > MAX_DEPTH {
            format!("more than {MAX_DEPTH} maps within each other: write it flatter")
        } else if scalar::looks_like_text(first.text) {
            format!(
                "a value on a line of its own: write `{}` behind its key's colon",
                scalar::clip(first.text)
            )
        } else {
            return Value::Map(self.map(first.indent, depth));
        };
        self.faults.at(first.at, message);
        self.skip_deeper(parent);
        Value::Broken
    }

    /// The `- ` items that stand at `indent`, for a key at `parent`.
    fn list(&mut self, indent: usize, parent: usize) -> Value<'a> {
        let mut items = Vec::new();
        while let Some(line) = self.peek() {
            if line.indent < indent || (indent == parent && !line.is_item()) {
                break;
            }
            if line.indent > indent {
                self.faults.at(line.at, too_deep(indent));
                self.advance();
                self.skip_deeper(indent);
                continue;
            }
            self.advance();
            let Some(behind) = line.text.strip_prefix('-').filter(|_| line.is_item()) else {
                let message = "this line stands among list items: begin it with `- `".to_owned();
                self.faults.at(line.at, message);
                self.skip_deeper(indent);
                continue;
            };
            if scalar::is_end(behind) {
                items.push(Scalar::EMPTY);
                continue;
            }
            let text = behind.trim_start_matches(' ');
            let at = line.at + line.text.len() - text.len();
            match scalar::value(text) {
                Ok(scalar) => items.push(scalar),
                Err(flaw) => {
                    self.faults.at(at + flaw.at, flaw.message);
                    self.skip_refused(text, indent);
                }
            }
        }
        Value::List(items)
    }

    /// Leaves out what belongs to the refused value `text`: deeper lines, and a bracket that closes flow style.
    fn skip_refused(&mut self, text: &str, indent: usize) {
        self.skip_deeper(indent);
        if text.starts_with(['{', '['])
            && self.peek().is_some_and(|line| {
                line.indent == indent && line.text.trim_end_matches([' ', ',', ']', '}']).is_empty()
            })
        {
            self.advance();
        }
    }
}

/// What stands behind `mark` when the line is that mark.
fn marker<'t>(text: &'t str, mark: &str) -> Option<&'t str> {
    text.strip_prefix(mark)
        .filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t']))
}

fn too_deep(indent: usize) -> String {
    format!(
        "this line is indented deeper than its neighbours: write it with {} before it; a value stands on one line",
        spaces(indent)
    )
}

fn spaces(count: usize) -> String {
    match count {
        0 => "no space".to_owned(),
        1 => "1 space".to_owned(),
        _ => format!("{count} spaces"),
    }
}

#[cfg(test)]
mod differential;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod tests;
