//! The documents against the program: a fact that stands in both is the same in both, every link leads somewhere, and
//! nothing is listed that is not there.

use super::house::{files_below, root, sources};
use monky_deployd::code::Code;
use monky_deployd::exit::Exit;
use monky_deployd::help;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const EXITS: [Exit; 6] = [
    Exit::Ok,
    Exit::Failed,
    Exit::Usage,
    Exit::Internal,
    Exit::Temporary,
    Exit::Config,
];

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The lines that are not inside a fenced block.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_fenced = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    })
}

/// The headings of one level, in order, with the text below each up to the next heading of that level or above.
fn sections(text: &str, level: usize) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut is_open = false;
    for line in prose(text) {
        let hashes = line.bytes().take_while(|b| *b == b'#').count();
        if (1..=level).contains(&hashes) {
            is_open = hashes == level;
            if is_open {
                found.push((line[level..].trim().to_owned(), String::new()));
            }
        } else if let (true, Some((_, body))) = (is_open, found.last_mut()) {
            body.push_str(line);
            body.push('\n');
        }
    }
    found
}

fn section(text: &str, level: usize, heading: &str) -> String {
    let all = sections(text, level);
    let found = all.into_iter().find(|(name, _)| name == heading);
    found.unwrap_or_else(|| panic!("no heading {heading}")).1
}

/// The rows of every table in a text, without heads and rules.
fn rows(text: &str) -> Vec<Vec<String>> {
    let lines: Vec<&str> = text.lines().collect();
    let is_rule = |line: &str| line.starts_with("|---");
    let mut found = Vec::new();
    for (n, line) in lines.iter().enumerate() {
        let is_head = lines.get(n + 1).is_some_and(|next| is_rule(next));
        if line.starts_with('|') && !is_rule(line) && !is_head {
            // A bar inside a cell is written \|.
            let inner = line.trim_matches('|').replace("\\|", "\u{0}");
            let cells = inner.split('|');
            found.push(
                cells
                    .map(|cell| cell.trim().replace('\u{0}', "|"))
                    .collect(),
            );
        }
    }
    found
}

/// What stands between backticks.
fn quoted(text: &str) -> Vec<String> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_code_has_its_remedy_and_its_exit_code() {
    let listed: BTreeMap<String, String> = sections(&read("docs/TROUBLESHOOTING.md"), 3)
        .into_iter()
        .collect();
    let wanted: BTreeSet<String> = Code::ALL
        .iter()
        .map(|code| format!("`{code}` ({})", code.exit().number()))
        .collect();
    assert_eq!(listed.keys().cloned().collect::<BTreeSet<_>>(), wanted);
    for (code, text) in listed {
        assert!(
            text.contains("*You see*") && text.contains("*Do*"),
            "{code} does not say what one sees and does"
        );
    }
}

#[test]
fn every_refusal_names_a_test_that_asserts_its_text() {
    let text = read("docs/TROUBLESHOOTING.md");
    let refusals: BTreeSet<String> = sections(&section(&text, 2, "The bundle is refused"), 3)
        .iter()
        .map(|(heading, _)| quoted(heading).remove(0))
        .collect();
    assert!(refusals.len() > 10, "{refusals:?}");
    let mut held = BTreeSet::new();
    for row in rows(&section(&text, 2, "Which test holds which refusal")) {
        let [code, place, words] = row.as_slice() else {
            panic!("{row:?}")
        };
        let (place, words) = (quoted(place), quoted(words).remove(0));
        let source = read(&place[0]);
        let body = source
            .split_once(&format!("fn {}()", place[1]))
            .unwrap_or_else(|| panic!("{} has no test {}", place[0], place[1]))
            .1;
        let body = body.split("#[test]").next().unwrap();
        assert!(
            body.contains(&words),
            "{} does not assert: {words}",
            place[1]
        );
        held.insert(quoted(code).remove(0));
    }
    assert_eq!(held, refusals);
}

#[test]
fn the_command_line_is_the_one_of_the_help() {
    let text = read("docs/CLI.md");
    let commands = sections(&section(&text, 2, "Commands"), 3);
    let names: Vec<String> = commands
        .iter()
        .map(|(heading, _)| quoted(heading).remove(0))
        .collect();
    let known: Vec<&str> = help::COMMANDS.iter().map(|command| command.name).collect();
    assert_eq!(names, known);
    for (command, (_, body)) in help::COMMANDS.iter().zip(&commands) {
        assert!(
            body.contains(&format!("    {}\n", command.usage)),
            "the usage of {}: {}",
            command.name,
            command.usage
        );
        let listed: Vec<String> = rows(body)
            .into_iter()
            .map(|row| row[0].trim_matches('`').to_owned())
            .filter(|name| name.starts_with('-'))
            .collect();
        let options: Vec<&str> = command.options.iter().map(|(name, _)| *name).collect();
        assert_eq!(listed, options, "{}", command.name);
    }
    let global: Vec<String> = rows(&section(&text, 2, "Options of every command"))
        .into_iter()
        .map(|row| row[0].replace('`', ""))
        .collect();
    let known: Vec<&str> = help::GLOBAL_OPTIONS.iter().map(|(name, _)| *name).collect();
    assert_eq!(global, known);
}

#[test]
fn the_exit_codes_are_those_of_the_program() {
    let listed: Vec<(String, String)> = rows(&section(&read("docs/CLI.md"), 2, "Exit codes"))
        .into_iter()
        .map(|row| (row[0].clone(), row[1].clone()))
        .collect();
    let known = EXITS.map(|exit| (exit.number().to_string(), exit.word().to_owned()));
    assert_eq!(listed, known);
    assert!(Code::ALL.iter().all(|code| EXITS.contains(&code.exit())));
}

#[test]
fn every_environment_variable_that_is_read_is_listed() {
    let listed: BTreeSet<String> = rows(&section(&read("docs/CLI.md"), 2, "Environment variables"))
        .iter()
        .flat_map(|row| quoted(&row[0]))
        .collect();
    let mut read_by_code = BTreeSet::new();
    let mut all_code = String::new();
    for (path, text) in sources() {
        // Tests talk to themselves through variables of their own.
        let shipped = text.split("#[cfg(test)]").next().unwrap();
        if path.contains("/tests") {
            continue;
        }
        for call in ["var_os(\"", "var(\""] {
            let names = shipped.split(call).skip(1);
            read_by_code.extend(names.map(|rest| rest.split('"').next().unwrap().to_owned()));
        }
        all_code.push_str(shipped);
    }
    let missing: Vec<&String> = read_by_code.difference(&listed).collect();
    assert!(missing.is_empty(), "not in docs/CLI.md: {missing:?}");
    let unknown: Vec<&String> = listed
        .iter()
        .filter(|name| !all_code.contains(&format!("\"{name}\"")))
        .collect();
    assert!(
        unknown.is_empty(),
        "in docs/CLI.md and not read: {unknown:?}"
    );
}

#[test]
fn the_dependencies_are_those_of_cargo_toml() {
    let manifest = read("Cargo.toml");
    let table = manifest.split_once("\n[dependencies]\n").unwrap().1;
    let table = table.split("\n[").next().unwrap();
    let mut known = Vec::new();
    for line in table
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
    {
        let (name, value) = line.split_once(" = ").unwrap();
        let texts: Vec<&str> = value.split('"').skip(1).step_by(2).collect();
        // The first text is the version, the others are the features.
        known.push(vec![
            format!("`{name}`"),
            texts[0].to_owned(),
            texts[1..].join(", "),
        ]);
    }
    let text = read("docs/DEPENDENCIES.md");
    let head = text.split("\n## ").next().unwrap();
    let listed: Vec<Vec<String>> = rows(head)
        .into_iter()
        .map(|row| {
            assert!(!row[3].is_empty(), "{} has no reason", row[0]);
            row[..3].to_vec()
        })
        .collect();
    assert_eq!(listed, known);
}

#[test]
fn the_version_is_the_newest_of_the_changelog() {
    let releases = sections(&read("CHANGELOG.md"), 2);
    assert_eq!(releases[0].0, env!("CARGO_PKG_VERSION"));
    let shown = format!("`monky-deployd {}`", env!("CARGO_PKG_VERSION"));
    assert!(read("docs/CLI.md").contains(&shown), "{shown}");
}

/// The names that follow one of these openings in the code, up to the closing quote.
fn names_after(text: &str, openings: &[&str]) -> BTreeSet<String> {
    let is_name =
        |name: &&str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    openings
        .iter()
        .flat_map(|opening| text.split(opening).skip(1))
        .filter_map(|rest| rest.split('"').next())
        .filter(is_name)
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_field_that_is_read_or_sent_is_in_the_protocol() {
    let text = read("docs/PROTOCOL.md");
    let listed: BTreeSet<String> = prose(&text)
        .flat_map(quoted)
        .flat_map(|words| {
            words
                .split(|c: char| !c.is_ascii_lowercase() && c != '_')
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect();
    let reading = [
        "text(\"",
        "whole(\"",
        "seconds(\"",
        "boolean(\"",
        "object(\"",
        "list(\"",
        "object(&fields, \"",
        "text(&fields, \"",
        "whole(f, \"",
    ];
    for path in [
        "src/remote/tenancy.rs",
        "src/remote/openbao.rs",
        "src/bundle/meta.rs",
        "src/bundle/manifest.rs",
    ] {
        let source = read(path);
        let used = names_after(source.split("#[cfg(test)]").next().unwrap(), &reading);
        let missing: Vec<&String> = used.difference(&listed).collect();
        assert!(
            missing.is_empty() && !used.is_empty(),
            "{path} reads {missing:?}"
        );
    }
    for path in ["src/tick/facts.rs", "src/report/mod.rs"] {
        let source = read(path);
        let shipped = source.split("#[cfg(test)]").next().unwrap();
        let keys: BTreeSet<String> = shipped
            .split('"')
            .collect::<Vec<_>>()
            .windows(2)
            .filter(|pair| pair[1].starts_with(": "))
            .flat_map(|pair| names_after(&format!("\"{}\"", pair[0]), &["\""]))
            .chain(names_after(shipped, &["(\"", "insert(\""]))
            .collect();
        let missing: Vec<&String> = keys.difference(&listed).collect();
        assert!(
            missing.is_empty() && keys.len() > 5,
            "{path} sends {missing:?}"
        );
    }
}

#[test]
fn every_call_is_in_the_protocol() {
    let text = read("docs/PROTOCOL.md");
    for path in ["src/remote/tenancy.rs", "src/remote/openbao.rs"] {
        let source = read(path);
        for call in source.split("\"/v1/").skip(1) {
            let known = format!("/v1/{}", call.split('"').next().unwrap());
            let fixed = known.split("{}").next().unwrap();
            let fixed = fixed.split("/{sha").next().unwrap();
            assert!(text.contains(fixed), "{path} calls {known}");
        }
    }
}

#[test]
fn the_map_of_the_house_shows_every_room() {
    let text = read("docs/ARCHITECTURE.md");
    let listed: BTreeSet<String> = rows(&section(&text, 2, "The rooms"))
        .iter()
        .map(|row| quoted(&row[0]).remove(0))
        .collect();
    let rooms: BTreeSet<String> = fs::read_dir(root().join("src"))
        .unwrap()
        .map(|entry| entry.unwrap())
        // `cli/` beside `cli.rs` holds only its tests.
        .filter(|entry| !entry.path().is_dir() || !entry.path().with_extension("rs").exists())
        .map(|entry| {
            let slash = if entry.path().is_dir() { "/" } else { "" };
            format!("src/{}{slash}", entry.file_name().display())
        })
        .filter(|name| name != "src/lib.rs")
        .collect();
    assert_eq!(listed, rooms);
}

/// The anchor that a heading gets where the repository is shown.
fn anchor(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut broken = Vec::new();
    let mut count = 0;
    let documents = files_below("");
    for (path, text) in documents.iter().filter(|(path, _)| path.ends_with(".md")) {
        let links = prose(text).flat_map(|line| line.split("](").skip(1));
        for link in links.filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            count += 1;
            let (file, fragment) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() {
                root().join(path)
            } else {
                root().join(path).parent().unwrap().join(file)
            };
            if !leads_somewhere(&target, fragment) {
                broken.push(format!("{path}: {link}"));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(count > 10);
}

fn leads_somewhere(target: &Path, fragment: &str) -> bool {
    if fragment.is_empty() {
        return target.exists();
    }
    let Ok(text) = fs::read_to_string(target) else {
        return false;
    };
    prose(&text)
        .filter(|line| line.starts_with('#'))
        .any(|line| anchor(line.trim_start_matches('#').trim()) == fragment)
}
