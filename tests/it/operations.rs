//! `docs/OPERATIONS.md` against the program: its recorded run is what is printed, and its commands are commands.

use super::house::root;
use crate::support::agent::Ran;
use crate::support::scene::{Scene, bundle, compose};
use serde_json::json;
use std::fs;

fn document() -> String {
    fs::read_to_string(root().join("docs/OPERATIONS.md")).unwrap()
}

/// What differs from run to run, replaced.
fn steady(line: &str) -> String {
    let words = line.split(' ').map(|word| match word.split_once('=') {
        Some(("took", _)) => "took=…".to_owned(),
        Some(("tick", _)) => "tick=…".to_owned(),
        Some(("sha" | "release", _)) => format!("{}…", word.chars().take(8).collect::<String>()),
        _ if is_digest(word) => "…".to_owned(),
        // A date, or a time of day.
        _ if word.starts_with("20") && word.matches('-').count() == 2 => "…".to_owned(),
        _ if word.len() == 5 && word.as_bytes()[2] == b':' => "…".to_owned(),
        _ => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

fn is_digest(word: &str) -> bool {
    word.len() == 12 && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The lines below each `$ sudo monky-deployd tick` of the document.
fn recorded() -> Vec<Vec<String>> {
    let text = document();
    let blocks = text
        .split("```console\n$ sudo monky-deployd tick\n")
        .skip(1);
    blocks
        .map(|block| {
            let lines = block.split("```").next().unwrap().lines();
            lines.map(str::to_owned).collect()
        })
        .collect()
}

#[track_caller]
fn assert_recorded(recorded: &[String], ran: &Ran) {
    let said = ran.stderr(1);
    let expected: Vec<String> = recorded.iter().map(|line| steady(line)).collect();
    let seen: Vec<String> = said.lines().map(steady).collect();
    assert_eq!(expected, seen, "docs/OPERATIONS.md should have\n{said}");
}

#[test]
fn the_recorded_run_is_what_is_printed() {
    let mut scene = Scene::new();
    scene
        .agent
        .set("on_unhealthy", "restore")
        .set("log_level", "INFO");
    scene.want(&bundle(1).build());
    scene.agent.tick().exits(0);
    let worker = json!({"worker": {"image": "harbor.example/monky/worker:1", "restart": "always"}});
    scene.docker.script("exit", "worker=9\n");
    scene.want(&bundle(2).compose(&compose(&worker).to_string()).build());
    let [failing, held] = recorded().try_into().expect("two recorded runs");
    assert_recorded(&failing, &scene.due_tick());
    assert_recorded(&held, &scene.due_tick());
}

#[test]
fn every_command_that_is_shown_is_a_command() {
    let scene = Scene::new();
    let missing = scene.agent.path("no-such-config.yaml");
    let mut count = 0;
    for line in document().lines() {
        let Some(command) = line.strip_prefix("    sudo monky-deployd ") else {
            continue;
        };
        // Words, and texts in quotation marks.
        let parts: Vec<String> = command
            .split('"')
            .enumerate()
            .flat_map(|(at, part)| match at % 2 {
                0 => part.split_whitespace().map(str::to_owned).collect(),
                _ => vec![part.to_owned()],
            })
            .collect();
        let mut args = vec!["--config".to_owned(), missing.display().to_string()];
        args.extend(parts);
        // It is understood, and ends at the configuration.
        scene
            .agent
            .run(&args)
            .exits(78)
            .says("cannot read the configuration");
        count += 1;
    }
    assert!(count >= 8, "{count}");
}
