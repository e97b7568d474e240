//! The grammar of `${…}` references, with Compose's meaning, for `.env.template` and for strings of the compose file:
//! `${V}`, `${V:-d}`, `${V-d}`, `${V:?m}`, `${V?m}`, `${V:+a}`, `${V+a}`, nested ones included, and `$$` for one `$`.
//! Takes a text and gives its parts; evaluates parts against a lookup, lazily like Compose (a default that is not used
//! is not looked into). It knows neither quotes nor comments, and never shows a value: what fails is told by name.

use crate::names::VarName;
use std::fmt;
use zeroize::Zeroizing;

/// References nest at most this deep.
const MAX_DEPTH: usize = 32;

/// A piece of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Literal text, `$$` already undone.
    Text(String),
    /// A reference to another variable.
    Reference(Reference),
}

/// One `${…}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The variable.
    pub name: VarName,
    /// Which of the seven forms.
    pub form: Form,
    /// What follows the operator: the default, the message or the alternative.
    pub operand: Vec<Part>,
}

/// The form of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `${V}`, or `$V` where that counts.
    Plain,
    /// `${V:-d}`
    DefaultIfEmpty,
    /// `${V-d}`
    DefaultIfUnset,
    /// `${V:?m}`
    RequireNonEmpty,
    /// `${V?m}`
    RequireSet,
    /// `${V:+a}`
    AlternativeIfNonEmpty,
    /// `${V+a}`
    AlternativeIfSet,
}

impl Form {
    const OPERATORS: [(&'static str, Self); 6] = [
        (":-", Self::DefaultIfEmpty),
        ("-", Self::DefaultIfUnset),
        (":?", Self::RequireNonEmpty),
        ("?", Self::RequireSet),
        (":+", Self::AlternativeIfNonEmpty),
        ("+", Self::AlternativeIfSet),
    ];

    /// Whether something has to provide the variable: with a default, or `+`, it is not required.
    pub fn is_required(self) -> bool {
        matches!(self, Self::Plain | Self::RequireNonEmpty | Self::RequireSet)
    }
}

/// Where a text stands; it decides what besides the well-formed `${…}` and `$$` means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// A plain or double-quoted value of the template: `$NAME` is text, a `${` that is no reference is an error.
    Template,
    /// A single-quoted value of the template, which Compose would take literally: as above, but a `${` that is no
    /// reference is text.
    SingleQuoted,
    /// A string of the compose file: `$NAME` is a reference too.
    ComposeFile,
}

/// A `${` that is no reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// What is wrong with it; no word of it comes from the text.
    pub why: &'static str,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.why)
    }
}

impl std::error::Error for Broken {}

/// A variable that a value needs and does not get.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unmet {
    /// Nothing provides it.
    Unset(VarName),
    /// It is empty, and `:?` forbids that.
    Empty(VarName),
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unset(name) => write!(f, "{name}"),
            Self::Empty(name) => write!(f, "{name} (empty)"),
        }
    }
}

/// Splits a text into literal text and references.
pub fn parse(text: &str, dialect: Dialect) -> Result<Vec<Part>, Broken> {
    Grammar {
        text,
        dialect,
        braces: matching_braces(text),
    }
    .parts(0, text.len(), 0)
}

/// Every reference in the parts, those in operands included, outer before inner.
pub fn references(parts: &[Part]) -> Vec<&Reference> {
    let mut found = Vec::new();
    for part in parts {
        if let Part::Reference(reference) = part {
            found.push(reference);
            found.extend(references(&reference.operand));
        }
    }
    found
}

/// The text that the parts stand for, or every variable that is missing. Allocated once, so no copy of a value is left
/// behind.
pub fn evaluate<'a>(
    parts: &'a [Part],
    lookup: &dyn Fn(&str) -> Option<&'a str>,
) -> Result<Zeroizing<String>, Vec<Unmet>> {
    let mut pieces = Vec::new();
    let mut unmet = Vec::new();
    collect(parts, lookup, &mut pieces, &mut unmet);
    if unmet.is_empty() {
        Ok(Zeroizing::new(pieces.concat()))
    } else {
        Err(unmet)
    }
}

fn collect<'a>(
    parts: &'a [Part],
    lookup: &dyn Fn(&str) -> Option<&'a str>,
    pieces: &mut Vec<&'a str>,
    unmet: &mut Vec<Unmet>,
) {
    for part in parts {
        let reference = match part {
            Part::Text(text) => {
                pieces.push(text);
                continue;
            }
            Part::Reference(reference) => reference,
        };
        let value = lookup(reference.name.as_str());
        let filled = value.filter(|value| !value.is_empty());
        let operand = match reference.form {
            Form::Plain | Form::RequireSet | Form::RequireNonEmpty => {
                let name = || reference.name.clone();
                match (value, filled) {
                    (None, _) => unmet.push(Unmet::Unset(name())),
                    (_, None) if reference.form == Form::RequireNonEmpty => {
                        unmet.push(Unmet::Empty(name()));
                    }
                    (Some(value), _) => pieces.push(value),
                }
                false
            }
            Form::DefaultIfEmpty => {
                pieces.extend(filled);
                filled.is_none()
            }
            Form::DefaultIfUnset => {
                pieces.extend(value);
                value.is_none()
            }
            Form::AlternativeIfNonEmpty => filled.is_some(),
            Form::AlternativeIfSet => value.is_some(),
        };
        if operand {
            collect(&reference.operand, lookup, pieces, unmet);
        }
    }
}

/// Each `${` with the `}` that closes it, in the order of the `${`. Compose counts a `${` also where `$$` escapes its
/// dollar, and no other brace.
fn matching_braces(text: &str) -> Vec<(usize, usize)> {
    let mut open = Vec::new();
    let mut pairs = Vec::new();
    let mut previous = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' if previous == b'$' => open.push(at - 1),
            b'}' => pairs.extend(open.pop().map(|start| (start, at))),
            _ => {}
        }
        previous = byte;
    }
    pairs.sort_unstable();
    pairs
}

struct Grammar<'t> {
    text: &'t str,
    dialect: Dialect,
    braces: Vec<(usize, usize)>,
}

impl Grammar<'_> {
    fn slice(&self, start: usize, end: usize) -> &str {
        self.text.get(start..end).unwrap_or_default()
    }

    /// The parts of `text[start..end]`.
    fn parts(&self, start: usize, end: usize, depth: usize) -> Result<Vec<Part>, Broken> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut at = start;
        while let Some(offset) = self.slice(at, end).find('$') {
            let dollar = at + offset;
            literal.push_str(self.slice(at, dollar));
            let rest = self.slice(dollar + 1, end);
            let (reference, next) = if rest.starts_with('$') {
                (None, dollar + 2)
            } else if rest.starts_with('{') {
                match self.braced(dollar, end, depth) {
                    Ok((reference, next)) => (Some(reference), next),
                    // Compose reads nothing in single quotes, so what is no reference there can only be text.
                    Err(_) if self.dialect == Dialect::SingleQuoted => (None, dollar + 1),
                    Err(broken) => return Err(broken),
                }
            } else {
                self.bare(dollar)
            };
            match reference {
                None => literal.push('$'),
                Some(reference) => {
                    if !literal.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut literal)));
                    }
                    parts.push(Part::Reference(reference));
                }
            }
            at = next;
        }
        literal.push_str(self.slice(at, end));
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        Ok(parts)
    }

    /// `$NAME`: a reference in the compose file only.
    fn bare(&self, dollar: usize) -> (Option<Reference>, usize) {
        let rest = self.slice(dollar + 1, self.text.len());
        let name = name_prefix(rest);
        match VarName::new(name) {
            Ok(name) if self.dialect == Dialect::ComposeFile => {
                let next = dollar + 1 + name.as_str().len();
                let reference = Reference {
                    name,
                    form: Form::Plain,
                    operand: Vec::new(),
                };
                (Some(reference), next)
            }
            _ => (None, dollar + 1),
        }
    }

    /// The reference whose `$` is at `dollar`, and where the text goes on.
    fn braced(
        &self,
        dollar: usize,
        end: usize,
        depth: usize,
    ) -> Result<(Reference, usize), Broken> {
        if depth == MAX_DEPTH {
            return Err(Broken {
                why: "references are nested too deep",
            });
        }
        let close = self
            .braces
            .binary_search_by_key(&dollar, |(open, _)| *open)
            .ok()
            .and_then(|found| self.braces.get(found))
            .map(|(_, close)| *close)
            .filter(|close| *close < end)
            .ok_or(Broken {
                why: "a ${ is never closed by }",
            })?;
        let body = self.slice(dollar + 2, close);
        let name = VarName::new(name_prefix(body)).map_err(|_| Broken {
            why: "a ${ is not followed by the name of a variable (a letter or _, then letters, digits or _)",
        })?;
        let after_name = body.get(name.as_str().len()..).unwrap_or_default();
        let (form, operand) = if after_name.is_empty() {
            (Form::Plain, Vec::new())
        } else {
            let (operator, form) = Form::OPERATORS
                .into_iter()
                .find(|(operator, _)| after_name.starts_with(operator))
                .ok_or(Broken {
                    why: "the name in a ${…} is followed by something else than } :- - :? ? :+ +",
                })?;
            let operand = dollar + 2 + name.as_str().len() + operator.len();
            (form, self.parts(operand, close, depth + 1)?)
        };
        let reference = Reference {
            name,
            form,
            operand,
        };
        Ok((reference, close + 1))
    }
}

/// The longest prefix that could be a name.
fn name_prefix(text: &str) -> &str {
    let end = text
        .find(|c: char| c != '_' && !c.is_ascii_alphanumeric())
        .unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests;
