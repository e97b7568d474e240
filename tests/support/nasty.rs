//! Values that have come back damaged from some `.env`, here or elsewhere, and random ones of the same kinds. None holds a
//! NUL (no environment carries it), each fits into one string of an environment (128 KiB), all are distinct. A random
//! seed is printed by whoever uses it; `MONKY_DEPLOYD_SEED` repeats a run.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

/// About 200 nasty values.
pub fn nasty_values() -> Vec<String> {
    let mut values: Vec<String> = ROWS.iter().map(|row| (*row).to_owned()).collect();
    // Every character that means something somewhere: alone, doubled, first, last, in the middle, behind a backslash.
    for c in "$#\\'\"`\n\r\t {}=:;&%!~*?\u{b}\u{c}".chars() {
        values.extend([
            format!("{c}"),
            format!("{c}{c}"),
            format!("{c}a"),
            format!("a{c}"),
            format!("a{c}b"),
            format!("a\\{c}b"),
        ]);
    }
    values.extend(
        (1..=31_u8)
            .chain([127])
            .map(|code| format!("<{}>", char::from(code))),
    );
    values.push((1..=127_u8).map(char::from).collect());
    values.push((0x80..0x250_u32).filter_map(char::from_u32).collect());
    values.push("x".repeat(100_000));
    values.push("$\\\"\n'#".repeat(16_000));
    values.push(pem("PRIVATE KEY", "\n"));
    values.push(pem("CERTIFICATE", "\r\n"));
    values.push(format!(
        "{}{}",
        pem("CERTIFICATE", "\n"),
        pem("RSA PRIVATE KEY", "\n")
    ));
    values.push(pem("PRIVATE KEY", "\\n"));
    let mut seen = BTreeSet::new();
    values.retain(|value| seen.insert(value.clone()));
    values
}

/// A value as a key looks in a file, with this line end.
fn pem(label: &str, end: &str) -> String {
    let line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cK+";
    let mut text = format!("-----BEGIN {label}-----{end}");
    for _ in 0..24 {
        text.push_str(line);
        text.push_str(end);
    }
    text.push_str(&format!("-----END {label}-----{end}"));
    text
}

/// `count` random values; the same seed gives the same ones.
pub fn random_values(seed: u64, count: usize) -> Vec<String> {
    let mut random = Random::new(seed);
    (0..count).map(|_| random_value(&mut random)).collect()
}

fn random_value(random: &mut Random) -> String {
    let alphabet: &[char] = match random.below(4) {
        0 => &['$', '{', '}', 'A', ':', '-', '?', '+', '\\'],
        1 => &[
            '"', '\'', '\\', '#', ' ', '\n', '\r', '\t', '$', '=', 'n', '0',
        ],
        2 => &[],
        _ => &['a', 'Z', '0', '_', '.', '/', '@', ' ', '%', '$', 'ä', '🙂'],
    };
    let length = random.below(60);
    let any = |random: &mut Random| loop {
        let below = [0x80, 0x800, 0x11_0000][random.below(3)];
        let code = u32::try_from(random.below(below)).unwrap_or(0);
        if let Some(c) = char::from_u32(code).filter(|c| *c != '\0') {
            return c;
        }
    };
    (0..length)
        .map(|_| match alphabet {
            [] => any(random),
            some => some[random.below(some.len())],
        })
        .collect()
}

/// A small generator (splitmix64): the tests need repeatable, not good, randomness.
pub struct Random(u64);

impl Random {
    /// The generator that `seed` starts.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number from 0 to `bound`, without `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        usize::try_from(mixed >> 1).unwrap_or(0) % bound
    }

    /// One of `choices`.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Whether one chance in `n` came true.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// `MONKY_DEPLOYD_SEED`, or a new seed every time.
pub fn seed() -> u64 {
    match std::env::var("MONKY_DEPLOYD_SEED") {
        Ok(text) => text.parse().expect("MONKY_DEPLOYD_SEED is a number"),
        Err(_) => SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(1, |since| {
                u64::from(since.subsec_nanos()) ^ since.as_secs() << 20
            }),
    }
}

const ROWS: &[&str] = &[
    "",
    "simple",
    "a$b",
    "a$$b",
    "a$$$b",
    "pw$HOME",
    "pw${HOME}",
    "$PATH",
    "${X",
    "${X}",
    "${X:-d}",
    "$${X}",
    "\\${X}",
    "${}",
    "${1V}",
    "$2y$10$abcdefghijklmnopqrstuv",
    "{SSHA}c2FsdA==",
    "a\\$b",
    "a#b",
    "a #b",
    "#b",
    " #b",
    "a # ",
    "'a'b",
    "\"a\" b",
    "'a'",
    "\"a\"",
    "'",
    "\"",
    "'\"'\"'",
    "a\\\\b",
    "a\\nb",
    "a\\",
    "a\\\\",
    "\\",
    "\\\\\\",
    "\\\"",
    "\\'",
    "\\n",
    "\\\\n",
    "\\q\\x41\\u0041\\0101",
    "a\nb",
    "a\r\nb\r\n",
    "a\n\nb",
    "\n",
    "\r",
    "\r\n",
    "\n\n\n",
    "a\nB=injected",
    "a\nexport B=injected",
    "a\n# comment",
    "a\"\nB=\"injected",
    "a'\nB='injected",
    " leading",
    "trailing ",
    "\ttab both\t",
    "  ",
    "\u{a0}no-break\u{a0}",
    "\u{85}next line\u{85}",
    "\u{3000}wide\u{3000}",
    "\u{2028}separators\u{2029}",
    "\u{feff}bom",
    "\u{fffd}replacement",
    "\u{200b}zero\u{200d}width",
    "\u{202e}right to left",
    "emoji 🙂👩‍👩‍👧‍👦🇩🇪",
    "ünïcödé ß",
    "e\u{301} combining",
    "日本語 العربية עברית",
    "\u{10ffff}\u{e000}\u{fdd0}",
    "null",
    "~",
    "true",
    "no",
    "0123",
    "0x1F",
    "1e3",
    "1_000",
    "12:30:45",
    "2026-01-01",
    "- a",
    "? a",
    "a: b",
    "a:",
    "[1, 2]",
    "{\"a\": 1}",
    "{\"key\": \"va\\\"l$ue\", \"list\": [1, \"#2\", null], \"nl\": \"a\\nb\"}",
    "{{ .Value }}",
    "{% raw %}",
    "<% erb %>",
    "&anchor *alias !tag |",
    "> folded",
    "%TEMP%",
    "!history!",
    "`id`",
    "$(id)",
    "$((1+1))",
    "a && b || c; d & e | f > g < h",
    "*?[a-z]~/",
    "A=B",
    "=",
    "==",
    "export A=1",
    "KEY: value",
    "postgres://user:p%40ss$w#rd@db:5432/name?sslmode=require&x=${Y}",
    "amqp://guest:gu'est\"@mq/%2f",
    "redis://:p@ss@[::1]:6379/0",
    "-----BEGIN KEY----- inline -----END KEY-----",
    "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhZ2VudCJ9.c2ln-_",
    "c2VjcmV0Cg==",
    "AKIA/+abc==",
    "<xml a=\"b\">&amp;</xml>",
    "C:\\Users\\new\\table\\file",
    "\\\\server\\share$",
    "s/\\$\\{x\\}/\\1/g",
    "^(?:[a-z]+\\d{2,})$",
    "100%",
    "50% off $5",
    "price: $5",
    "$",
    "$$",
    "$ ",
    "a$",
    "a$$",
    "a$ b",
    "\u{1b}[31mred\u{1b}[0m",
    "bell\u{7}back\u{8}",
    "a\u{1}b\u{7f}c",
];
