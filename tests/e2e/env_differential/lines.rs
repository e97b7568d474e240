//! Random template lines whose meaning is the same to Compose and to docs/ENV.md: every form of key, quote, escape,
//! reference and comment, nested. Left out is only what differs on purpose (`$NAME`; `$$` and `${…}` in single quotes;
//! a comment in place of a value; a line break in an operand), and what both refuse.

use crate::support::nasty::Random;

/// Variables that are provided from outside, with their values.
pub const PROVIDED: [(&str, &str); 5] = [
    ("A", "av"),
    ("A_1", "other"),
    ("_lower", "x y"),
    ("EMPTY", ""),
    ("NASTY", "$A ${A} $$ 'q' \"d\" \\ # \n\r\t end "),
];
const FILLED: [&str; 4] = ["A", "A_1", "_lower", "NASTY"];
const UNSET: [&str; 3] = ["UNSET", "A_", "Z9"];

/// The quoting style of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    Single,
    Double,
}

/// `count` lines that define `K0`, `K1`, …; each may refer to those above it.
pub fn template(random: &mut Random, count: usize) -> String {
    let mut text = String::new();
    for n in 0..count {
        if random.one_in(12) {
            text.push_str(random.pick(&[
                "# it says ${NAME} and 'quotes\n",
                "\n",
                "  \t \r\n",
                "\t# \"\r\n",
            ]));
        }
        let end = random.pick(&["\n", "\n", "\n", "\r\n"]);
        text.push_str(&line(random, n));
        text.push_str(end);
    }
    text
}

fn line(random: &mut Random, n: usize) -> String {
    let before = random.pick(&["", "", "", " ", "\t", "export ", "export\t", " export  "]);
    let separator = random.pick(&["=", "=", "=", " = ", ": ", ":", "= ", "\t=\t"]);
    let style = random.pick(&[Style::Plain, Style::Single, Style::Double]);
    let value = value(random, style, n);
    let comment = match style {
        Style::Plain if value.is_empty() => "",
        Style::Plain => random.pick(&["", "", " # c", " #${NO} 'c", "  "]),
        Style::Single | Style::Double => random.pick(&["", "", " # c", "#c ${NO}", " \t"]),
    };
    format!("{before}K{n}{separator}{value}{comment}")
}

fn value(random: &mut Random, style: Style, n: usize) -> String {
    let mut text = String::new();
    for _ in 0..random.below(7) {
        text.push_str(&atom(random, style, n));
    }
    match style {
        // Blanks at the end go; at the start a quote would open, and space and # would begin a comment.
        Style::Plain => {
            while text.contains(" #") {
                text = text.replace(" #", "#");
            }
            text.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '#'))
                .to_owned()
        }
        Style::Single => format!("'{text}'"),
        Style::Double => format!("\"{text}\""),
    }
}

fn atom(random: &mut Random, style: Style, n: usize) -> String {
    match (style, random.below(8)) {
        (_, 0 | 1) => word(random),
        (_, 2) => random
            .pick(&["{", "}", "{}", "}}", "{x}", " # ", "#", ":-", "?"])
            .to_owned(),
        (Style::Plain, 3) => random
            .pick(&["'", "\"", "\\", "\\n", "\\\\", "\\t\\", "\u{b}", "\r"])
            .to_owned(),
        (Style::Single, 3 | 4) => {
            random
                .pick(&[
                    "\\'", "\\\\", "\\n", "\\q", "\"", "\n", "\r\n", "$A", "$1", "$ ", "$", "${1",
                    "\\$", "\\0101",
                ])
                .to_owned()
                + random.pick(&["-", ".", " "])
        }
        (Style::Single, _) => word(random),
        (Style::Double, 3 | 4) => double_escape(random).to_owned(),
        (Style::Double, 5) => random.pick(&["'", "\n", "\r\n", "\t", " # "]).to_owned(),
        _ => dollar(random, style, n, 0),
    }
}

fn word(random: &mut Random) -> String {
    let bits = [
        "a", "Zz", "_", "0", " ", "  ", ".", "-", "+", "=", ":", "/", "@", "%", "!", "ä", "🙂",
        "\u{a0}", "\u{1}", "\u{7f}", ",", "~", "`", "(",
    ];
    (0..=random.below(4)).map(|_| random.pick(&bits)).collect()
}

fn double_escape(random: &mut Random) -> &'static str {
    random.pick(&[
        "\\n", "\\r", "\\t", "\\a", "\\b", "\\f", "\\v", "\\\\", "\\\"", "\\$", "\\${A}", "\\q",
        "\\x41", "\\u0041", "\\0101", "\\0377", "\\0400", "\\044", "\\0.", "\\c", "\\'",
        "\\\\\\\"", "\\\\\\$A", "\\\\n",
    ])
}

/// Something with a dollar: an escape, a dollar that is text, or a reference.
fn dollar(random: &mut Random, style: Style, n: usize, depth: usize) -> String {
    match random.below(6) {
        0 => random
            .pick(&["$$", "$$$$", "$$x", "$1", "$%", "$.", "$-"])
            .to_owned(),
        1 if depth > 0 => "$${A}".to_owned(),
        1 => random.pick(&["$${A}", "$${", "$$}", "$$A"]).to_owned(),
        _ => reference(random, style, n, depth),
    }
}

fn reference(random: &mut Random, style: Style, n: usize, depth: usize) -> String {
    let above = format!("K{}", random.below(n.max(1)));
    let filled = random.pick(&FILLED);
    let set = match random.below(4) {
        0 if n > 0 => above.as_str(),
        1 => "EMPTY",
        _ => filled,
    };
    let any = if random.one_in(3) {
        random.pick(&UNSET)
    } else {
        set
    };
    let operator = random.pick(&["", "", ":-", "-", ":?", "?", ":+", "+"]);
    let name = match operator {
        "" | "?" => set,
        ":?" => filled,
        _ => any,
    };
    if operator.is_empty() {
        return format!("${{{name}}}");
    }
    format!(
        "${{{name}{operator}{}}}",
        operand(random, style, n, depth + 1)
    )
}

/// No line break and no brace of its own: Compose takes neither. In a plain value no comment may begin in it.
fn operand(random: &mut Random, style: Style, n: usize, depth: usize) -> String {
    let mut text = String::new();
    for _ in 0..random.below(4) {
        match (style, random.below(6)) {
            (_, 0 | 1) => text.push_str(&word(random)),
            (_, 2) if depth < 4 => text.push_str(&dollar(random, style, n, depth)),
            (Style::Double, 3) => {
                let escape = double_escape(random);
                text.push_str(if escape == "\\n" { "\\t" } else { escape });
            }
            (Style::Plain, 3) => text.push_str(random.pick(&["'", "\"", "\\", "#"])),
            _ => text.push_str(random.pick(&[":-", "?", "+", "-", "=", "x"])),
        }
    }
    text
}
