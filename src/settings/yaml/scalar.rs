//! One line's worth of YAML: a key with its colon, a plain or quoted value, a comment. Each function takes the text from
//! where the thing begins and gives it, or a [`Flaw`] with the offset and what to write instead.

use std::borrow::Cow;

/// A longer key is refused (bytes, up to its colon); YAML itself stops at 1,024.
const MAX_KEY: usize = 256;
/// Texts in messages are cut to this many characters.
const MAX_SHOWN: usize = 40;

/// A single value.
#[derive(Clone, Debug, PartialEq)]
pub struct Scalar<'a> {
    /// Its text, without quotes and escapes.
    pub text: Cow<'a, str>,
    /// Whether it stood in quotes, so that it is a string whatever its text.
    pub is_quoted: bool,
}

impl Scalar<'_> {
    /// The value that is not there.
    pub const EMPTY: Scalar<'static> = Scalar {
        text: Cow::Borrowed(""),
        is_quoted: false,
    };
}

/// What is wrong, and where, counted from where the text begins.
#[derive(Debug, PartialEq)]
pub struct Flaw {
    /// Offset in bytes.
    pub at: usize,
    /// What is wrong and what to write instead.
    pub message: String,
}

fn flaw<T>(at: usize, message: impl Into<String>) -> Result<T, Flaw> {
    Err(Flaw {
        at,
        message: message.into(),
    })
}

/// The text, cut for a message.
pub fn clip(text: &str) -> Cow<'_, str> {
    clip_to(text, MAX_SHOWN)
}

/// The text, cut to so many characters.
pub fn clip_to(text: &str, characters: usize) -> Cow<'_, str> {
    match text.char_indices().nth(characters) {
        Some((end, _)) => Cow::Owned(format!("{}…", text.get(..end).unwrap_or_default())),
        None => Cow::Borrowed(text),
    }
}

/// The text in single quotes, as a remedy.
fn quoted_form(text: &str) -> String {
    format!("`'{}'`", clip(text).replace('\'', "''"))
}

/// The first character of the line that may not stand anywhere, not even in a comment.
pub fn unwanted(line: &str) -> Option<(usize, String)> {
    // Nearly every line is printable ASCII: one pass over the bytes decides.
    if line
        .bytes()
        .all(|b| (b' '..0x7f).contains(&b) || b == b'\t')
    {
        return None;
    }
    let (at, c) = line.char_indices().find(|(_, c)| is_unwanted(*c))?;
    let message = match c {
        '\0' => "a NUL character: remove it".to_owned(),
        '\r' => "a carriage return without a newline: end the line with a newline, or with both"
            .to_owned(),
        '\u{feff}' => {
            "a byte order mark that is not at the start of the file: remove it".to_owned()
        }
        _ => format!(
            "the invisible character U+{:04X}: remove it, or write it as an escape in double quotes",
            u32::from(c)
        ),
    };
    Some((at, message))
}

fn is_unwanted(c: char) -> bool {
    (c.is_control() && c != '\t')
        || matches!(
            c,
            '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
        )
}

/// Whether nothing but blanks and a comment comes, behind a colon, a dash or a closing quote. A `#` begins a comment
/// only behind a space.
pub fn is_end(behind: &str) -> bool {
    let text = behind.trim_start_matches(' ');
    text.is_empty() || (text.starts_with('#') && text.len() < behind.len())
}

/// Whether the line is a value and no `key: value`: decides which of two messages helps more.
pub fn looks_like_text(line: &str) -> bool {
    match line.chars().next() {
        Some('"' | '\'') => value(line).is_ok(),
        _ => !line.contains(':'),
    }
}

/// The key at the start of a line and the offset behind its colon.
pub fn key(text: &str) -> Result<(Cow<'_, str>, usize), Flaw> {
    let (key, colon) = if text.starts_with(['"', '\'']) {
        let (key, end) = quoted(text)?;
        let rest = text.get(end..).unwrap_or_default();
        let blanks = rest.len() - rest.trim_start_matches(' ').len();
        (key, end + blanks)
    } else {
        if let Some(message) = indicator(text, Place::Key) {
            return flaw(0, message);
        }
        let Some(colon) = find_colon(text) else {
            return no_colon(text);
        };
        let key = text.get(..colon).unwrap_or_default().trim_end_matches(' ');
        if let Some(tab) = key.find('\t') {
            return flaw(tab, "a tab in a key: write spaces instead");
        }
        (Cow::Borrowed(key), colon)
    };
    match text.get(colon..).map(|rest| rest.strip_prefix(':')) {
        Some(Some(rest)) if rest.is_empty() || rest.starts_with(' ') => {}
        Some(Some(rest)) if rest.starts_with('\t') => {
            return flaw(colon + 1, "a tab behind the colon: write a space instead");
        }
        Some(Some(_)) => return flaw(colon, "a space is missing behind the colon"),
        _ => return flaw(colon, "a colon is missing here: write `key: value`"),
    }
    if colon > MAX_KEY {
        return flaw(
            0,
            format!("a key longer than {MAX_KEY} bytes: no key is that long"),
        );
    }
    Ok((key, colon + 1))
}

fn no_colon<T>(text: &str) -> Result<T, Flaw> {
    let end = find_comment(text).unwrap_or(text.len());
    let text = text.get(..end).unwrap_or_default().trim_end();
    match text.split_once([':', '=']) {
        Some((key, value)) if !key.trim().is_empty() => flaw(
            key.len(),
            format!(
                "no `key: value`: write `{}: {}`, with a space behind the colon",
                clip(key.trim()),
                clip(value.trim())
            ),
        ),
        _ => flaw(0, format!("no `key: value`: `{}` has no colon", clip(text))),
    }
}

/// The value at the start of `text`, up to the end of the line.
pub fn value(text: &str) -> Result<Scalar<'_>, Flaw> {
    if text.starts_with(['"', '\'']) {
        let (content, end) = quoted(text)?;
        let behind = text.get(end..).unwrap_or_default();
        if !is_end(behind) {
            let at = end + behind.len() - behind.trim_start_matches(' ').len();
            return flaw(
                at,
                "text behind the closing quote: put all of it into the quotes, or a space and `#` before a comment",
            );
        }
        return Ok(Scalar {
            text: content,
            is_quoted: true,
        });
    }
    if let Some(message) = indicator(text, Place::Value) {
        return flaw(0, message);
    }
    let end = find_comment(text).unwrap_or(text.len());
    let plain = text.get(..end).unwrap_or_default().trim_end_matches(' ');
    if let Some(tab) = plain.find('\t') {
        return flaw(
            tab,
            "a tab in a plain value: write a space, or `\\t` in double quotes",
        );
    }
    if let Some(colon) = find_colon(plain) {
        return flaw(
            colon,
            format!(
                "a colon and a space inside a plain value: put the value in quotes, {}",
                quoted_form(plain)
            ),
        );
    }
    Ok(Scalar {
        text: Cow::Borrowed(plain),
        is_quoted: false,
    })
}

/// The first colon with a blank or the end behind it, before a comment.
fn find_colon(text: &str) -> Option<usize> {
    let mut before = b'x';
    let mut bytes = text.bytes().enumerate().peekable();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'#' if matches!(before, b' ' | b'\t') => return None,
            b':' if bytes
                .peek()
                .is_none_or(|(_, next)| matches!(next, b' ' | b'\t')) =>
            {
                return Some(at);
            }
            _ => before = byte,
        }
    }
    None
}

/// The first `#` with a blank before it.
fn find_comment(text: &str) -> Option<usize> {
    text.bytes()
        .zip(text.bytes().skip(1))
        .position(|(before, byte)| byte == b'#' && matches!(before, b' ' | b'\t'))
        .map(|at| at + 1)
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Key,
    Value,
}

/// Why a plain key or value may not begin like this.
fn indicator(text: &str, place: Place) -> Option<String> {
    let mut chars = text.chars();
    let first = chars.next()?;
    let second_is_blank = chars.next().is_none_or(|c| matches!(c, ' ' | '\t'));
    let message = match first {
        '{' | '[' if place == Place::Key => {
            format!("flow style (`{first}`) is not supported: write one `key: value` a line")
        }
        '{' => "flow style (`{`) is not supported: write one `key: value` a line, indented below the key".to_owned(),
        '[' => "flow style (`[`) is not supported: write one `- item` a line below the key".to_owned(),
        '&' => "anchors (`&`) are not supported: write the value itself, in quotes if it begins with `&`".to_owned(),
        '*' => "aliases (`*`) are not supported: write the value itself, in quotes if it begins with `*`".to_owned(),
        '!' => "tags (`!`) are not supported: write the value itself, in quotes if it begins with `!`".to_owned(),
        '|' | '>' => format!(
            "block scalars (`{first}`) are not supported: write the text on one line in double quotes, with `\\n` for a line end"
        ),
        '?' if second_is_blank && place == Place::Key => {
            "complex keys (`? `) are not supported: write `key: value`".to_owned()
        }
        ':' if second_is_blank && place == Place::Key => "the key before the colon is missing".to_owned(),
        '-' if second_is_blank => "a list item stands on a line of its own: write `- item` below the key".to_owned(),
        '?' | ':' | ',' | ']' | '}' | '%' | '@' | '`' | '#' | '\t' => {
            let shown = if first == '\t' { "a tab".to_owned() } else { format!("`{first}`") };
            match place {
                Place::Key => format!("a key cannot begin with {shown}: remove it"),
                Place::Value if first == '\t' => "a tab before the value: write a space instead".to_owned(),
                Place::Value => format!("a plain value cannot begin with {shown}: put it in quotes, {}", quoted_form(text)),
            }
        }
        _ => return None,
    };
    Some(message)
}

/// The content of the quoted text at the start of `text`, and the offset behind the closing quote.
fn quoted(text: &str) -> Result<(Cow<'_, str>, usize), Flaw> {
    if text.starts_with('\'') {
        single_quoted(text)
    } else {
        double_quoted(text)
    }
}

const UNCLOSED: &str = "the quote is not closed on this line: close it";

fn single_quoted(text: &str) -> Result<(Cow<'_, str>, usize), Flaw> {
    let mut at = 1;
    let mut doubled = false;
    loop {
        let rest = text.get(at..).unwrap_or_default();
        let Some(quote) = rest.find('\'') else {
            return flaw(0, UNCLOSED);
        };
        at += quote + 1;
        if text.get(at..).is_some_and(|rest| rest.starts_with('\'')) {
            doubled = true;
            at += 1;
            continue;
        }
        let content = text.get(1..at - 1).unwrap_or_default();
        let content = if doubled {
            Cow::Owned(content.replace("''", "'"))
        } else {
            Cow::Borrowed(content)
        };
        return Ok((content, at));
    }
}

fn double_quoted(text: &str) -> Result<(Cow<'_, str>, usize), Flaw> {
    let mut content = Cow::Borrowed("");
    let mut at = 1;
    loop {
        let rest = text.get(at..).unwrap_or_default();
        let Some(stop) = rest.find(['"', '\\']) else {
            return flaw(0, format!("{UNCLOSED}, and write a line end as `\\n`"));
        };
        let (run, rest) = rest.split_at_checked(stop).unwrap_or_default();
        content += run;
        at += stop;
        if rest.starts_with('"') {
            return Ok((content, at + 1));
        }
        let (c, used) = escape(rest).map_err(|message| Flaw { at, message })?;
        content.to_mut().push(c);
        at += used;
    }
}

/// The character of the escape at the start of `text`, and its length.
fn escape(text: &str) -> Result<(char, usize), String> {
    let named = match text.chars().nth(1) {
        Some('\\') => '\\',
        Some('"') => '"',
        Some('n') => '\n',
        Some('t') => '\t',
        Some('r') => '\r',
        Some('0') => return Err(nul("\\0")),
        Some('x') => return coded(text, 4),
        Some('u') => return coded(text, 6),
        other => {
            return Err(format!(
                "the escape `\\{}` is not supported: write one of `\\\\ \\\" \\n \\t \\r \\xNN \\uNNNN`, or `\\\\` for a backslash",
                other.map(String::from).unwrap_or_default()
            ));
        }
    };
    Ok((named, 2))
}

fn coded(text: &str, length: usize) -> Result<(char, usize), String> {
    let digits = text.get(2..length).unwrap_or_default();
    let escape = text.get(..length).unwrap_or(text);
    let code = Some(digits)
        .filter(|digits| {
            digits.len() + 2 == length && digits.bytes().all(|b| b.is_ascii_hexdigit())
        })
        .and_then(|digits| u32::from_str_radix(digits, 16).ok());
    match (code, code.and_then(char::from_u32)) {
        (_, Some('\0')) => Err(nul(escape)),
        (_, Some(c)) => Ok((c, length)),
        (Some(_), None) => Err(format!(
            "`{escape}` is half of a surrogate pair and no character: write the character itself"
        )),
        (None, None) => Err(format!(
            "`{}` needs {} hexadecimal digits",
            text.get(..2).unwrap_or_default(),
            length - 2
        )),
    }
}

fn nul(escape: &str) -> String {
    format!("`{escape}` stands for NUL, which no value may hold: remove it")
}
