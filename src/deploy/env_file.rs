//! The exact text of `.env`: the template's lines in order, each value resolved and written so that Compose's dotenv
//! parser gives back exactly its bytes. Takes a template and the secrets that were read; gives the text, and what each
//! key must come to, for the proof. Every buffer that holds a secret is wiped, and none grows while it holds one (a
//! buffer that grows leaves a copy behind). It writes no file; docs/ENV.md tells the rules.

use crate::bundle::template::{Key, Line, Template, reference};
use crate::code::Code;
use crate::error::Finding;
use crate::names::VarName;
use crate::ordered::map_of;
use crate::secret::Secret;
use std::collections::BTreeMap;
use zeroize::Zeroizing;

/// A rendered `.env`.
#[derive(Clone, Debug)]
pub struct Rendered {
    text: Secret,
    values: BTreeMap<Key, Secret>,
}

impl Rendered {
    /// The text of the file.
    pub fn text(&self) -> &Secret {
        &self.text
    }

    /// What Compose must read for each key.
    pub fn values(&self) -> &BTreeMap<Key, Secret> {
        &self.values
    }
}

/// A line of the file with its secrets resolved.
enum Resolved<'t> {
    Verbatim(&'t str),
    Assignment {
        key: &'t Key,
        value: Zeroizing<String>,
        comment: &'t str,
    },
}

/// Renders the template. On error all findings: `ENV_INCOMPLETE` for what is missing, `ENV_ROUNDTRIP` for what no quoting
/// can carry.
pub fn render(
    template: &Template,
    secrets: &BTreeMap<VarName, Secret>,
) -> Result<Rendered, Vec<Finding>> {
    let secrets = map_of(
        secrets
            .iter()
            .map(|(name, secret)| (name.as_str(), secret.expose())),
    );
    let mut values: BTreeMap<Key, Secret> = BTreeMap::new();
    let mut lines = Vec::new();
    let mut unmet = Vec::new();
    let mut findings = Vec::new();
    for line in template.lines() {
        let assignment = match line {
            Line::Blank => {
                lines.push(Resolved::Verbatim(""));
                continue;
            }
            Line::Comment(comment) => {
                lines.push(Resolved::Verbatim(comment));
                continue;
            }
            Line::Assignment(assignment) => assignment,
        };
        let key = &assignment.key;
        let lookup = |name: &str| look_up(name, &secrets, &values);
        match reference::evaluate(&assignment.value, &lookup) {
            Ok(value) if value.contains('\0') => findings.push(Finding::new(
                Code::EnvRoundtrip,
                format!("{key} holds a NUL byte, which no environment can carry"),
            )),
            Ok(value) => {
                values.insert(key.clone(), Secret::new(String::from(value.as_str())));
                lines.push(Resolved::Assignment {
                    key,
                    value,
                    comment: &assignment.comment,
                });
            }
            Err(missing) => unmet.extend(missing),
        }
    }
    unmet.sort_unstable();
    unmet.dedup();
    if !unmet.is_empty() {
        let names: Vec<String> = unmet.iter().map(ToString::to_string).collect();
        let detail = format!("unresolved: {}", names.join(", "));
        findings.push(Finding::new(Code::EnvIncomplete, detail));
    }
    if !findings.is_empty() {
        return Err(findings);
    }
    let mut text = write(&lines);
    let findings = left_over(&text, template);
    if !findings.is_empty() {
        return Err(findings);
    }
    Ok(Rendered {
        text: Secret::new(std::mem::take(&mut *text)),
        values,
    })
}

/// As in Compose, what comes from outside goes before a key of the same name above.
fn look_up<'a>(
    name: &str,
    secrets: &BTreeMap<&str, &'a str>,
    values: &'a BTreeMap<Key, Secret>,
) -> Option<&'a str> {
    secrets
        .get(name)
        .copied()
        .or_else(|| values.get(name).map(Secret::expose))
}

/// The whole text, in a buffer that is large enough from the start.
fn write(lines: &[Resolved<'_>]) -> Zeroizing<String> {
    let size = lines.iter().map(Resolved::size).sum();
    let mut text = Zeroizing::new(String::with_capacity(size));
    for line in lines {
        match line {
            Resolved::Verbatim(line) => text.push_str(line),
            Resolved::Assignment {
                key,
                value,
                comment,
            } => {
                text.push_str(key.as_str());
                text.push('=');
                // Compose finds a comment behind a quoted value whatever stands before its `#`.
                if comment.is_empty() && is_plain(value) {
                    text.push_str(value);
                } else {
                    quote(value, &mut text);
                    text.push_str(comment);
                }
            }
        }
        text.push('\n');
    }
    text
}

impl Resolved<'_> {
    /// The most bytes that the line can take.
    fn size(&self) -> usize {
        match self {
            Self::Verbatim(line) => line.len() + 1,
            Self::Assignment {
                key,
                value,
                comment,
            } => {
                let escapes = value.bytes().filter(|byte| escape(*byte).is_some()).count();
                key.as_str().len() + value.len() + escapes + comment.len() + "=\"\"\n".len()
            }
        }
    }
}

/// Whether the value means itself to Compose, to a shell and to every other reader of such files.
fn is_plain(value: &str) -> bool {
    !value.is_empty()
        && value
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-./:@%+,=".contains(&byte))
}

/// What stands for a byte that may not stand for itself in double quotes.
fn escape(byte: u8) -> Option<&'static str> {
    match byte {
        b'\\' => Some("\\\\"),
        b'"' => Some("\\\""),
        b'$' => Some("\\$"),
        b'\n' => Some("\\n"),
        b'\r' => Some("\\r"),
        _ => None,
    }
}

fn quote(value: &str, text: &mut String) {
    text.push('"');
    for c in value.chars() {
        match u8::try_from(c).ok().and_then(escape) {
            Some(escaped) => text.push_str(escaped),
            None => text.push(c),
        }
    }
    text.push('"');
}

/// The keys in whose values Compose would still see a `$` of its own: a bug of ours, if there are any.
fn left_over(text: &str, template: &Template) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut lines = text.split('\n');
    // Every line of the template is one line of the text.
    for line in template.lines() {
        let written = lines.next().unwrap_or_default();
        let Line::Assignment(assignment) = line else {
            continue;
        };
        let end = written.len() - assignment.comment.len().min(written.len());
        let mut escaped = false;
        let bare = written.bytes().take(end).any(|byte| {
            let dollar = byte == b'$' && !escaped;
            escaped = byte == b'\\' && !escaped;
            dollar
        });
        if bare {
            findings.push(Finding::new(
                Code::EnvIncomplete,
                format!("a reference is left over in {}", assignment.key),
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests;
