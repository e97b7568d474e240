//! `.env.template`, read once and for all: its lines in order, each value as parts (text and references), with quotes,
//! escapes and comments already understood. Answers what the template defines, what it refers to, what of that nothing
//! provides, and which values are known without any secret. Refuses what is not a template; resolves no secret and
//! renders nothing (that is `deploy::env_file`). docs/ENV.md tells the rules to those who write templates.

pub mod key;
mod parse;
mod quote;
pub mod reference;

pub use key::Key;

use crate::error::Finding;
use crate::names::VarName;
use crate::ordered::map_of;
use reference::{Form, Part, Reference};
use std::collections::{BTreeMap, BTreeSet};

/// One line of the template, or several when a quoted value spans them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Nothing but blanks.
    Blank,
    /// A comment, as written.
    Comment(String),
    /// A key and its value.
    Assignment(Assignment),
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The key.
    pub key: Key,
    /// What the author means, unquoted and unescaped.
    pub value: Vec<Part>,
    /// The comment behind the value, from the blanks before its `#` on; or empty.
    pub comment: String,
    /// The line where it begins, from 1.
    pub line: usize,
}

/// A reference, seen from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needed<'t> {
    /// The variable.
    pub name: &'t VarName,
    /// Whether something has to provide it.
    pub required: bool,
}

/// A template that holds together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    lines: Vec<Line>,
}

/// What is known of a variable before the secrets are.
#[derive(Clone, Copy)]
enum Known<'a> {
    Unset,
    Value(&'a str),
    Secret,
}

/// What the template comes to before the secrets are known.
struct Survey<'t> {
    unresolved: Vec<VarName>,
    /// The last value of each key; `None` when it depends on a secret or on something missing.
    values: BTreeMap<&'t str, Option<String>>,
}

impl Template {
    /// Reads a template. On error all findings: `BUNDLE_INVALID`, `ENV_INCOMPLETE` for a bare key, `ENV_RESERVED` for a
    /// key that Compose does not take.
    pub fn parse(bytes: &[u8]) -> Result<Self, Vec<Finding>> {
        Ok(Self {
            lines: parse::lines(bytes)?,
        })
    }

    /// The lines in order.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The assignments in order, duplicates included.
    pub fn assignments(&self) -> impl Iterator<Item = &Assignment> {
        self.lines.iter().filter_map(|line| match line {
            Line::Assignment(assignment) => Some(assignment),
            Line::Blank | Line::Comment(_) => None,
        })
    }

    /// The keys in the order of their first definition, each once.
    pub fn keys(&self) -> Vec<&Key> {
        let mut seen = BTreeSet::new();
        self.assignments()
            .map(|assignment| &assignment.key)
            .filter(|key| seen.insert(*key))
            .collect()
    }

    /// Whether the template defines the key.
    pub fn defines(&self, name: &str) -> bool {
        self.assignments()
            .any(|assignment| assignment.key.as_str() == name)
    }

    /// Every reference in order, nested ones after the one that holds them.
    pub fn references(&self) -> Vec<Needed<'_>> {
        self.assignments()
            .flat_map(|assignment| reference::references(&assignment.value))
            .map(|reference| Needed {
                name: &reference.name,
                required: reference.form.is_required(),
            })
            .collect()
    }

    /// What a person should know though the template is good: keys that are defined twice.
    pub fn warnings(&self) -> Vec<String> {
        let mut lines: BTreeMap<&Key, Vec<String>> = BTreeMap::new();
        for assignment in self.assignments() {
            let numbers = lines.entry(&assignment.key).or_default();
            numbers.push(assignment.line.to_string());
        }
        lines
            .into_iter()
            .filter(|(_, numbers)| numbers.len() > 1)
            .map(|(key, numbers)| {
                format!(
                    ".env.template defines {key} on lines {}: the last one wins",
                    numbers.join(", ")
                )
            })
            .collect()
    }

    /// The variables that are needed and that neither `provided` (the manifest) nor a key above provides, each once, in
    /// order. A reference in a default counts only where the default may be used.
    pub fn unresolved(&self, provided: &dyn Fn(&str) -> bool) -> Vec<VarName> {
        self.survey(provided).unresolved
    }

    /// Every key with its final value; `None` where that depends on what the manifest provides, or is missing.
    pub fn values(&self, provided: &dyn Fn(&str) -> bool) -> BTreeMap<String, Option<String>> {
        let values = self.survey(provided).values.into_iter();
        map_of(values.map(|(key, value)| (key.to_owned(), value)))
    }

    fn survey(&self, provided: &dyn Fn(&str) -> bool) -> Survey<'_> {
        let mut values: BTreeMap<&str, Option<String>> = BTreeMap::new();
        let mut unresolved = Vec::new();
        let mut seen = BTreeSet::new();
        for assignment in self.assignments() {
            // As in Compose, what comes from outside goes before a key of the same name above.
            let look = |name: &str| match values.get(name) {
                _ if provided(name) => Known::Secret,
                None => Known::Unset,
                Some(None) => Known::Secret,
                Some(Some(value)) => Known::Value(value),
            };
            let mut sight = Sight::default();
            sight.walk(&assignment.value, &look);
            let value = if sight.secret || !sight.missing.is_empty() {
                None
            } else {
                let lookup = |name: &str| match look(name) {
                    Known::Value(value) => Some(value),
                    Known::Unset | Known::Secret => None,
                };
                reference::evaluate(&assignment.value, &lookup)
                    .ok()
                    .map(|value| value.to_string())
            };
            for name in sight.missing {
                if seen.insert(name.clone()) {
                    unresolved.push(name);
                }
            }
            values.insert(assignment.key.as_str(), value);
        }
        Survey { unresolved, values }
    }
}

/// The variables that `parts` need and that `values` does not provide; a value of `None` is one that is not known yet. A
/// reference in a default counts only where the default may be used.
pub fn missing_in(parts: &[Part], values: &BTreeMap<String, Option<String>>) -> Vec<VarName> {
    let look = |name: &str| match values.get(name) {
        None => Known::Unset,
        Some(None) => Known::Secret,
        Some(Some(value)) => Known::Value(value),
    };
    let mut sight = Sight::default();
    sight.walk(parts, &look);
    sight.missing
}

/// What a value needs, as far as it can be told before the secrets are known.
#[derive(Default)]
struct Sight {
    missing: Vec<VarName>,
    secret: bool,
}

impl Sight {
    fn walk<'a>(&mut self, parts: &[Part], look: &dyn Fn(&str) -> Known<'a>) {
        for part in parts {
            if let Part::Reference(reference) = part {
                let known = look(reference.name.as_str());
                self.secret |= matches!(known, Known::Secret);
                if self.goes_on(reference, known) {
                    self.walk(&reference.operand, look);
                }
            }
        }
    }

    /// Notes what is missing; says whether the operand will, or for an alternative may, be used. The default behind a
    /// secret is not looked into: a secret is there, and if it is empty after all, rendering says so.
    fn goes_on(&mut self, reference: &Reference, known: Known<'_>) -> bool {
        let empty = matches!(known, Known::Value(""));
        let unset = matches!(known, Known::Unset);
        match reference.form {
            Form::Plain | Form::RequireSet | Form::RequireNonEmpty => {
                if unset || (empty && reference.form == Form::RequireNonEmpty) {
                    self.missing.push(reference.name.clone());
                }
                false
            }
            Form::DefaultIfEmpty => unset || empty,
            Form::DefaultIfUnset => unset,
            Form::AlternativeIfNonEmpty => !unset && !empty,
            Form::AlternativeIfSet => !unset,
        }
    }
}

#[cfg(test)]
mod tests;
