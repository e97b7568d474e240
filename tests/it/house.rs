//! The house rules that a compiler does not know: which room may use which, how a file begins, how long it may be, and
//! what nothing in the repository may refer to.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms of `src/`, each able to use those before it and its own; `docs/ARCHITECTURE.md` tells what each is for. The
/// foundation is one level: its files are what the others are made of.
const ORDER: &[&[&str]] = &[
    &[
        "code", "error", "exit", "json", "names", "ordered", "outcome", "redact", "secret",
    ],
    &["host"],
    &["settings"],
    &["state"],
    &["remote"],
    &["bundle"],
    &["deploy"],
    &["report"],
    &["tick"],
    &["help"],
    &["cli"],
    &["main"],
];

/// The files that may have more than [`LINES`], and why.
const LONG: &[(&str, &str)] = &[
    (
        "src/host/disk.rs",
        "the one place that reads and writes files: every way to do it, side by side, with its tests",
    ),
    (
        "src/settings/tests.rs",
        "one table of configurations, and what each comes to",
    ),
    (
        "src/tick/token.rs",
        "the token's whole life; its rules hold only together",
    ),
];
const LINES: usize = 500;

/// The checkout.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every text file below `start` with its path relative to the checkout, in order. Build directories, the history and
/// files that are not text are left out.
pub fn files_below(start: &str) -> Vec<(String, String)> {
    let root = root();
    let mut found = Vec::new();
    let mut pending = vec![root.join(start)];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let is_built = || path.join("CACHEDIR.TAG").exists() || name == "dist";
            if path.is_symlink() || name == ".git" || (path.is_dir() && is_built()) {
                continue;
            } else if path.is_dir() {
                pending.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                found.push((relative(&path, &root), text));
            }
        }
    }
    found.sort();
    found
}

fn relative(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).unwrap().display().to_string()
}

/// The sources of the agent.
pub fn sources() -> Vec<(String, String)> {
    let all = files_below("src");
    all.into_iter()
        .filter(|(path, _)| path.ends_with(".rs"))
        .collect()
}

/// `src/tick/mod.rs` belongs to `tick`, `src/cli.rs` to `cli`.
fn room_of(path: &str) -> &str {
    let inner = path.strip_prefix("src/").unwrap();
    let first = inner.split('/').next().unwrap();
    first.trim_end_matches(".rs")
}

fn level_of(room: &str) -> Option<usize> {
    ORDER.iter().position(|rooms| rooms.contains(&room))
}

/// The rooms that a line of code names, as `crate::room`.
fn used_rooms(line: &str) -> Vec<&str> {
    line.match_indices("crate::")
        .map(|(at, found)| {
            let rest = &line[at + found.len()..];
            let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_');
            &rest[..end.unwrap_or(rest.len())]
        })
        .filter(|room| !room.is_empty())
        .collect()
}

#[test]
fn a_file_uses_only_its_own_room_and_those_before_it() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let room = room_of(&path);
        if room == "lib" {
            continue;
        }
        let Some(level) = level_of(room) else {
            wrong.push(format!(
                "{path}: give the room {room} its place in ORDER and in docs/ARCHITECTURE.md"
            ));
            continue;
        };
        let code = text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim_start().starts_with("//"));
        for (n, line) in code {
            for used in used_rooms(line) {
                let is_allowed = used == room || level_of(used).is_some_and(|other| other <= level);
                let is_sideways =
                    used != room && level_of(used) == Some(level) && ORDER[level].len() == 1;
                if !is_allowed || is_sideways {
                    wrong.push(format!("{path}:{}: {room} may not use {used}", n + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn rooms_are_found_wherever_a_line_names_them() {
    assert_eq!(
        used_rooms("use crate::error::{Error, Result}; crate::bundle::x(crate::secret::Secret)"),
        ["error", "bundle", "secret"]
    );
    assert_eq!(
        used_rooms("pub(crate) fn a() {} use crate::{Peer};"),
        Vec::<&str>::new()
    );
    assert!(level_of("remote") < level_of("bundle") && level_of("host") > level_of("error"));
}

#[test]
fn every_source_says_first_what_it_is_for() {
    let silent: Vec<String> = sources()
        .into_iter()
        .filter(|(_, text)| !text.starts_with("//!"))
        .map(|(path, _)| path)
        .collect();
    assert!(silent.is_empty(), "without a //! at its head: {silent:?}");
}

#[test]
fn no_source_is_longer_than_a_person_reads_in_one_go() {
    let long: BTreeSet<String> = sources()
        .into_iter()
        .filter(|(_, text)| text.lines().count() > LINES)
        .map(|(path, _)| path)
        .collect();
    let allowed: BTreeSet<String> = LONG.iter().map(|(path, _)| (*path).to_owned()).collect();
    let new: Vec<&String> = long.difference(&allowed).collect();
    assert!(
        new.is_empty(),
        "over {LINES} lines; split them, or say in LONG why not: {new:?}"
    );
    let short: Vec<&String> = allowed.difference(&long).collect();
    assert!(
        short.is_empty(),
        "no longer over {LINES} lines, so no longer in LONG: {short:?}"
    );
}

#[test]
fn the_product_speaks_of_itself_alone() {
    // Written in pieces, or this file would be the first to be found.
    let foreign = [concat!("../", "shared"), concat!("/work", "/")];
    let mut found = Vec::new();
    for (path, text) in files_below("") {
        for (n, line) in text.lines().enumerate() {
            for words in foreign.iter().filter(|words| line.contains(**words)) {
                found.push(format!("{path}:{}: {words}", n + 1));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
