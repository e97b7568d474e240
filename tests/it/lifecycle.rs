//! `docs/LIFECYCLE.md` and the table of refusals in `docs/TROUBLESHOOTING.md` against the sources: every test that they
//! name is one and is run, every file of tests is named, and every text is one that its test asserts.

use super::house::{files_below, root};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// Where tests are, and what stands in front of their names.
const PLACES: [(&str, &str); 4] = [
    ("lib", "src"),
    ("it", "tests/it"),
    ("e2e", "tests/e2e"),
    ("plane", "tests/control_plane/src"),
];

struct Test {
    file: String,
    is_ignored: bool,
}

/// Every test function by its place and module path, as `cargo test` names it: `it::life::down_takes_everything_down`.
fn tests() -> BTreeMap<String, Test> {
    let mut found = BTreeMap::new();
    for (place, folder) in PLACES {
        for (file, text) in files_below(folder) {
            let Some(inner) = file
                .strip_prefix(&format!("{folder}/"))
                .and_then(|inner| inner.strip_suffix(".rs"))
            else {
                continue;
            };
            let mut path: Vec<&str> = vec![place];
            path.extend(inner.split('/'));
            path.retain(|part| !["mod", "main", "lib"].contains(part) || *part == place);
            for (name, is_ignored) in tests_of(&text) {
                let test = Test {
                    file: file.clone(),
                    is_ignored,
                };
                found.insert(format!("{}::{name}", path.join("::")), test);
            }
        }
    }
    found
}

/// The tests of a file, those of an inner module with its name in front, and whether each is ignored.
fn tests_of(text: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let mut module = None;
    let mut attributes: Option<bool> = None;
    for line in text.lines() {
        if let Some(name) = line
            .strip_prefix("mod ")
            .and_then(|rest| rest.strip_suffix(" {"))
        {
            module = Some(name);
        } else if line.starts_with('}') {
            module = None;
        }
        let line = line.trim_start();
        if line == "#[test]" {
            attributes = Some(false);
        } else if line.starts_with("#[ignore") {
            attributes = attributes.map(|_| true);
        } else if let (Some(rest), Some(is_ignored)) = (line.strip_prefix("fn "), attributes) {
            let name = rest.split('(').next().unwrap_or_default();
            let way = module.map(|module| format!("{module}::"));
            found.push((format!("{}{name}", way.unwrap_or_default()), is_ignored));
            attributes = None;
        }
    }
    found
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

/// Everything between backticks that has the shape of a test's name.
fn named(text: &str) -> BTreeSet<String> {
    let is_test = |words: &&str| {
        let place = words.split("::").next().unwrap_or_default();
        words.contains("::") && PLACES.iter().any(|(known, _)| *known == place)
    };
    let words = text.split('`').skip(1).step_by(2);
    words.filter(is_test).map(str::to_owned).collect()
}

#[test]
fn every_test_that_the_lifecycle_names_is_one_and_is_run() {
    let tests = tests();
    assert!(tests.len() > 400, "{}", tests.len());
    let named = named(&read("docs/LIFECYCLE.md"));
    assert!(named.len() > 150, "{}", named.len());
    let wrong: Vec<&String> = named
        .iter()
        .filter(|name| tests.get(*name).is_none_or(|test| test.is_ignored))
        .collect();
    assert!(wrong.is_empty(), "no such test, or ignored: {wrong:#?}");
}

#[test]
fn every_file_of_tests_has_its_place_in_the_lifecycle() {
    let tests = tests();
    let named = named(&read("docs/LIFECYCLE.md"));
    let told: BTreeSet<&str> = named
        .iter()
        .filter_map(|name| Some(tests.get(name)?.file.as_str()))
        .collect();
    let files: BTreeSet<&str> = tests
        .values()
        .map(|test| test.file.as_str())
        .filter(|file| file.starts_with("tests/it/") || file.starts_with("tests/e2e/"))
        .collect();
    let silent: Vec<_> = files.difference(&told).collect();
    assert!(
        silent.is_empty(),
        "not a word in docs/LIFECYCLE.md of {silent:?}"
    );
}

#[test]
fn every_refusal_stands_beside_a_test_of_the_whole_agent_and_its_words() {
    let text = read("docs/TROUBLESHOOTING.md");
    let heading = "\n## What a refused bundle looks like\n";
    let section = text.split_once(heading).expect(heading).1;
    let section = section.split("\n## ").next().unwrap();
    let tests = tests();
    let mut codes = BTreeSet::new();
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let quoted: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        let [code, test, words @ ..] = quoted.as_slice() else {
            panic!("{row}");
        };
        let source = read(&tests.get(*test).unwrap_or_else(|| panic!("no {test}")).file);
        let bare = source.replace("\\\"", "\"");
        for words in words {
            assert!(bare.contains(words), "{test} does not assert: {words}");
        }
        assert!(!words.is_empty() && bare.contains(code), "{row}");
        codes.insert(*code);
    }
    // Everything that the section before tells of, and a deployment of somebody else.
    let refusals = text
        .split_once("\n## The bundle is refused\n")
        .expect("the refusals")
        .1;
    let refusals = refusals.split("\n## ").next().unwrap();
    let mut wanted: BTreeSet<&str> = refusals
        .lines()
        .filter_map(|line| line.strip_prefix("### `")?.split('`').next())
        .collect();
    wanted.insert("PROJECT_CONFLICT");
    assert_eq!(codes, wanted);
}

#[test]
fn tests_are_found_wherever_they_stand() {
    let text = "#[test]\nfn a() {}\nmod tests {\n    #[test]\n    #[ignore = \"x\"]\n    fn b() {}\n    fn c() {}\n}\n#[test]\nfn d(n in 0..1) {}\n";
    let found = tests_of(text);
    let names: Vec<_> = found
        .iter()
        .map(|(name, on)| (name.as_str(), *on))
        .collect();
    assert_eq!(names, [("a", false), ("tests::b", true), ("d", false)]);
}
