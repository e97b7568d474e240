//! What the demo prints: a heading for each step, plain words, and what the agent or docker said, set in. Colours on a
//! terminal only. A reader who went away is no reason to stop.

use std::io::{IsTerminal, Write};

const WIDTH: usize = 100;

/// A step's heading.
pub fn heading(text: &str) {
    let rule = "─".repeat(WIDTH.saturating_sub(text.chars().count() + 4));
    line(&format!("\n{}", bold(&format!("── {text} {rule}"))));
}

/// Plain words, wrapped.
pub fn words(text: &str) {
    line("");
    wrapped(text, WIDTH).iter().for_each(|row| line(row));
}

/// A command, as a person would type it.
pub fn command(text: &str) {
    line(&format!("\n    {}", bold(&format!("$ {text}"))));
}

/// A line that a program said.
pub fn said(text: &str) {
    line(&format!("    {} {text}", paint("│", colour_of(text))));
}

/// A long line that a program said, on as many as it takes.
pub fn said_wrapped(text: &str) {
    let bar = paint("│", colour_of(text));
    for (n, row) in wrapped(text, WIDTH - 10).iter().enumerate() {
        let indent = if n == 0 { "" } else { "    " };
        line(&format!("    {bar} {indent}{row}"));
    }
}

fn colour_of(text: &str) -> &'static str {
    match text.split_once(':').map(|(level, _)| level) {
        Some("error") => "31",
        Some("warn") => "33",
        Some("info") => "32",
        _ => "2",
    }
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut rows = vec![String::new()];
    for word in text.split_whitespace() {
        let is_full = rows.last().is_some_and(|row| {
            !row.is_empty() && row.chars().count() + 1 + word.chars().count() > width
        });
        if is_full {
            rows.push(String::new());
        }
        if let Some(row) = rows.last_mut() {
            if !row.is_empty() {
                row.push(' ');
            }
            row.push_str(word);
        }
    }
    rows
}

/// Many lines that a program said.
pub fn output(text: &str) {
    text.lines().for_each(said);
}

/// Something that was checked and holds.
pub fn holds(text: &str) {
    line(&format!("    {} {text}", paint("✓", "32")));
}

/// Something that only a real container could have shown.
pub fn not_looked_at(text: &str) {
    line(&format!(
        "    - not looked at without a real container: {text}"
    ));
}

/// Something that nobody may overlook.
pub fn banner(lines: &[&str]) {
    line("");
    let lines: Vec<String> = lines
        .iter()
        .flat_map(|text| wrapped(text, WIDTH - 6))
        .collect();
    let width = lines
        .iter()
        .map(|text| text.chars().count())
        .max()
        .unwrap_or(0);
    let bar = "!".repeat(width + 6);
    line(&paint(&bar, "33"));
    for text in lines {
        line(&paint(&format!("!! {text:width$} !!"), "33"));
    }
    line(&paint(&bar, "33"));
}

/// What went wrong.
pub fn problem(text: &str) {
    let mut err = std::io::stderr().lock();
    // Where else could it be said?
    let _ = writeln!(err, "\n{} {text}", paint("demo:", "31"));
}

/// A line as it is.
pub fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

fn bold(text: &str) -> String {
    paint(text, "1")
}

fn paint(text: &str, colour: &str) -> String {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if plain || !std::io::stdout().is_terminal() {
        text.to_owned()
    } else {
        format!("\x1b[{colour}m{text}\x1b[0m")
    }
}
