//! Quoted values the way Compose's dotenv parser reads them: where the closing quote is, and which escapes of a
//! double-quoted value count. Takes text, gives text; references are not its business, but their dollars are: `\$` comes
//! out as `$$`, which the reference grammar undoes.

/// What stands between the quotes of a text that begins with `quote`, and what follows the closing one; `None` when there
/// is none. A backslash before the quote hides it and goes away; every other backslash stays.
pub(super) fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let inside = text.get(quote.len_utf8()..)?;
    let mut content = String::new();
    let mut chars = inside.char_indices();
    while let Some((at, c)) = chars.next() {
        if c == quote {
            return Some((content, inside.get(at + c.len_utf8()..)?));
        }
        if c != '\\' {
            content.push(c);
            continue;
        }
        let (_, escaped) = chars.next()?;
        if escaped != quote {
            content.push('\\');
        }
        content.push(escaped);
    }
    None
}

/// Resolves the escapes of a double-quoted value: `\a \b \f \n \r \t \v \" \\`, `\$`, and `\0` with three octal digits.
/// Any other backslash is text.
pub(super) fn unescape(content: &str) -> String {
    let mut out = String::with_capacity(content.len());
    let mut rest = content;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let mut chars = after.chars();
        let simple = match chars.next() {
            Some('a') => "\u{7}",
            Some('b') => "\u{8}",
            Some('f') => "\u{c}",
            Some('n') => "\n",
            Some('r') => "\r",
            Some('t') => "\t",
            Some('v') => "\u{b}",
            Some('"') => "\"",
            Some('\\') => "\\",
            Some('$') => "$$",
            Some('0') => {
                rest = octal(chars.as_str(), &mut out);
                continue;
            }
            _ => {
                out.push('\\');
                rest = after;
                continue;
            }
        };
        out.push_str(simple);
        rest = chars.as_str();
    }
    out.push_str(rest);
    out
}

/// What follows `\0`: three octal digits up to 377 are a character. Of anything else Compose drops the zero and keeps the
/// rest. Gives what is left of the text.
fn octal<'t>(text: &'t str, out: &mut String) -> &'t str {
    let count = text.bytes().take(3).take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(count);
    match u8::from_str_radix(digits, 8) {
        Ok(byte) if count == 3 => out.push(char::from(byte)),
        _ => {
            out.push('\\');
            out.push_str(digits);
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_quote_is_the_first_that_no_backslash_hides() {
        for (text, quote, expected) in [
            ("'a' b", '\'', Some(("a", " b"))),
            ("''", '\'', Some(("", ""))),
            (r"'a\'b'", '\'', Some(("a'b", ""))),
            (r"'a\\'b'", '\'', Some((r"a\\", "b'"))),
            (r"'a\nb\x'", '\'', Some((r"a\nb\x", ""))),
            (r"'a\", '\'', None),
            (r"'a\'", '\'', None),
            (r#""a\"b"c"#, '"', Some((r#"a"b"#, "c"))),
            (r#""a'b""#, '"', Some(("a'b", ""))),
            ("\"a\nb\"", '"', Some(("a\nb", ""))),
            ("\"ä\\", '"', None),
        ] {
            let read = quoted(text, quote);
            let read = read
                .as_ref()
                .map(|(content, rest)| (content.as_str(), *rest));
            assert_eq!(read, expected, "{text}");
        }
    }

    #[test]
    fn escapes_are_those_of_compose() {
        for (content, expected) in [
            (r"a\nb\rc\td", "a\nb\rc\td"),
            (r"\a\b\f\v", "\u{7}\u{8}\u{c}\u{b}"),
            (r"\\n", r"\n"),
            (r"\c\q\x41\u0041", r"\c\q\x41\u0041"),
            (r"\$X", "$$X"),
            (r"\\$X", r"\$X"),
            (r"\0101", "A"),
            (r"\0377", "ÿ"),
            (r"\0400", r"\400"),
            (r"\044", r"\44"),
            (r"\0", r"\"),
            (r"\0ä", r"\ä"),
            (r"\0089", r"\089"),
            (r"a\", r"a\"),
            ("a\\\nb", "a\\\nb"),
        ] {
            assert_eq!(unescape(content), expected, "{content}");
        }
    }
}
