//! What is wrong with a configuration, collected while it is read: each fault with its place in the text, turned into
//! [`Problem`]s with line, column and excerpt once, at the end. A fault whose line may hold a secret shows only what
//! stands before it.

use super::yaml::scalar::clip_to;
use crate::error::Problem;
use std::ops::Range;

/// More faults than this are not collected: the rest is likely to be the same one again.
const MAX_FAULTS: usize = 20;
/// A longer line is cut in the excerpt (characters).
const MAX_EXCERPT: usize = 160;

/// One fault.
#[derive(Debug)]
struct Fault {
    /// Its place; none when it belongs to the whole.
    at: Option<usize>,
    /// Where the excerpt must stop, for a line that may hold a secret behind it.
    show_until: Option<usize>,
    message: String,
}

/// The faults of one text.
#[derive(Debug)]
pub struct Faults<'a> {
    text: &'a str,
    list: Vec<Fault>,
}

impl<'a> Faults<'a> {
    /// None so far.
    pub fn new(text: &'a str) -> Self {
        Self {
            text,
            list: Vec::new(),
        }
    }

    /// A fault at a place; the excerpt shows the whole line.
    pub fn at(&mut self, at: usize, message: String) {
        self.push(Some(at), None, message);
    }

    /// A fault at a place whose line may hold a secret: the excerpt stops with the range.
    pub fn at_name(&mut self, range: &Range<usize>, message: String) {
        self.push(Some(range.start), Some(range.end), message);
    }

    /// A fault that belongs to no place.
    pub fn anywhere(&mut self, message: String) {
        self.push(None, None, message);
    }

    fn push(&mut self, at: Option<usize>, show_until: Option<usize>, message: String) {
        if !self.is_full() {
            self.list.push(Fault {
                at,
                show_until,
                message,
            });
        }
    }

    /// Forgets the faults within a range, because one that says more takes their place.
    pub fn forget_within(&mut self, range: &Range<usize>) {
        self.list
            .retain(|fault| fault.at.is_none_or(|at| !range.contains(&at)));
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether enough were collected.
    pub fn is_full(&self) -> bool {
        self.list.len() >= MAX_FAULTS
    }

    /// The line of a place, from 1.
    pub fn line_of(&self, at: usize) -> usize {
        let before = self.text.get(..at).unwrap_or(self.text);
        before.bytes().filter(|byte| *byte == b'\n').count() + 1
    }

    /// The faults in the order of the text, those without a place last.
    pub fn into_problems(mut self) -> Vec<Problem> {
        let full = self.is_full();
        let mut list = std::mem::take(&mut self.list);
        list.sort_by_key(|fault| fault.at.unwrap_or(usize::MAX));
        let mut problems: Vec<Problem> = list
            .into_iter()
            .map(|fault| self.to_problem(fault))
            .collect();
        if full {
            problems.push(Problem {
                line: 0,
                column: 0,
                excerpt: String::new(),
                message: format!("{MAX_FAULTS} problems are shown; there may be more"),
            });
        }
        problems
    }

    fn to_problem(&self, fault: Fault) -> Problem {
        let Some(at) = fault.at else {
            return Problem {
                line: 0,
                column: 0,
                excerpt: String::new(),
                message: fault.message,
            };
        };
        let before = self.text.get(..at).unwrap_or(self.text);
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before.get(start..).unwrap_or_default().chars().count() + 1;
        let line = self.text.get(start..).unwrap_or_default();
        let line = line.split(['\n', '\r']).next().unwrap_or_default();
        let shown = fault
            .show_until
            .and_then(|end| line.get(..end.saturating_sub(start)))
            .unwrap_or(line);
        Problem {
            line: self.line_of(at),
            column,
            excerpt: excerpt(shown, column),
            message: fault.message,
        }
    }
}

/// The bytes as text without a byte order mark, if they are not too many and UTF-8.
pub fn to_text(bytes: &[u8], max: usize) -> Result<&str, Vec<Problem>> {
    let bytes_read = bytes.get(..max).unwrap_or(bytes);
    let (good, message) = match std::str::from_utf8(bytes) {
        _ if bytes.len() > max => {
            let message = format!("the file is longer than {max} bytes: shorten it");
            (bytes_read, message)
        }
        Ok(text) => return Ok(text.strip_prefix('\u{feff}').unwrap_or(text)),
        Err(e) => {
            let at = e.valid_up_to();
            let byte = bytes.get(at).copied().unwrap_or_default();
            let message = format!("the byte 0x{byte:02X} is no UTF-8: save the file as UTF-8");
            (bytes.get(..at).unwrap_or_default(), message)
        }
    };
    let text = String::from_utf8_lossy(good);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let mut faults = Faults::new(text);
    faults.at(text.len(), message);
    Err(faults.into_problems())
}

/// The line as it may be printed: no control characters, and cut when long; nothing when the cut would hide the place.
fn excerpt(line: &str, column: usize) -> String {
    if column > MAX_EXCERPT {
        return String::new();
    }
    let printable: String = clip_to(line, MAX_EXCERPT).into_owned();
    printable
        .trim_end()
        .chars()
        .map(|c| match c {
            '\t' => ' ',
            c if c.is_control() => '\u{fffd}',
            c => c,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str, at: usize) -> Vec<Problem> {
        let mut faults = Faults::new(text);
        faults.at(at, "wrong".to_owned());
        faults.into_problems()
    }

    #[test]
    fn a_place_becomes_line_column_and_excerpt() {
        let found = problems("a: 1\r\nbä: 2\r\n", 10);
        assert_eq!((found[0].line, found[0].column), (2, 4));
        assert_eq!(found[0].excerpt, "bä: 2");
        let end = problems("a: 1\n", 5);
        assert_eq!((end[0].line, end[0].column), (2, 1));
    }

    #[test]
    fn the_excerpt_holds_no_control_character_and_has_an_end() {
        assert_eq!(problems("a\t\u{1b}[2J", 1)[0].excerpt, "a \u{fffd}[2J");
        let long = "x".repeat(5000);
        assert!(problems(&long, 3)[0].excerpt.chars().count() <= MAX_EXCERPT + 1);
        assert_eq!(problems(&long, 3000)[0].excerpt, "");
    }

    #[test]
    fn a_named_fault_hides_what_stands_behind_the_name() {
        let mut faults = Faults::new("a: 1\npassword: hunter2\n");
        faults.at_name(&(5..14), "unknown".to_owned());
        assert_eq!(faults.into_problems()[0].excerpt, "password:");
    }

    #[test]
    fn faults_come_in_the_order_of_the_text_and_not_without_end() {
        let mut faults = Faults::new("abc");
        faults.anywhere("whole".to_owned());
        faults.at(2, "second".to_owned());
        faults.at(0, "first".to_owned());
        faults.at(1, "gone".to_owned());
        faults.forget_within(&(1..2));
        let messages: Vec<_> = faults
            .into_problems()
            .into_iter()
            .map(|p| p.message)
            .collect();
        assert_eq!(messages, ["first", "second", "whole"]);

        let mut faults = Faults::new("abc");
        for _ in 0..100 {
            faults.at(0, "again".to_owned());
        }
        let found = faults.into_problems();
        assert_eq!(found.len(), MAX_FAULTS + 1);
        assert_eq!(
            found[MAX_FAULTS].message,
            "20 problems are shown; there may be more"
        );
    }
}
