//! Compose's reading of `.env`, as far as the agent writes such files: comments, blank lines, `KEY=plain` and
//! `KEY="…"` with `\\ \" \$ \n \r \t`. A double-quoted value may span lines. Anything else is an error.

use std::collections::BTreeMap;

/// The variables, or Compose's complaint.
pub fn parse(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut variables = BTreeMap::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            rest = after;
            continue;
        }
        let (key, value) = rest
            .split_once('=')
            .ok_or_else(|| format!("unexpected line {line:?} in the env file"))?;
        let key = key.trim();
        if key.is_empty() || key.contains(['\n', '"', '\'', ' ', '$']) {
            return Err(format!("unexpected character in variable name {key:?}"));
        }
        let (value, after) = match value.strip_prefix('"') {
            Some(quoted) => {
                unquote(quoted).ok_or_else(|| format!("unterminated quoted value of {key}"))?
            }
            None => {
                let (plain, after) = value.split_once('\n').unwrap_or((value, ""));
                let plain = plain.split(" #").next().unwrap_or_default().trim();
                if plain.contains(['$', '\'', '"', '\\']) {
                    return Err(format!("docker-stand-in: {key} should be quoted"));
                }
                (plain.to_owned(), after)
            }
        };
        variables.insert(key.to_owned(), value);
        rest = after;
    }
    Ok(variables)
}

/// The value up to the closing quote, and what follows its line.
fn unquote(quoted: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => {
                let after = quoted.get(at + 1..)?;
                return Some((value, after.split_once('\n').map_or("", |(_, next)| next)));
            }
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                'r' => value.push('\r'),
                't' => value.push('\t'),
                escaped @ ('\\' | '"' | '$') => value.push(escaped),
                other => value.extend(['\\', other]),
            },
            c => value.push(c),
        }
    }
    None
}
