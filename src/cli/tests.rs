//! Tests of the file that this folder is named after.

use super::*;

fn parsed(line: &str) -> Result<Command> {
    parse(line.split_whitespace().map(OsString::from).collect())
        .map(|invocation| invocation.command)
}

fn refusal(line: &str) -> String {
    parsed(line).unwrap_err().to_string()
}

#[test]
fn a_command_line_is_understood() {
    let tick = |force, wait, purge_volumes| {
        Command::Tick(TickOptions {
            force,
            wait,
            purge_volumes,
            ..TickOptions::default()
        })
    };
    let rows = [
        ("tick", tick(false, false, false)),
        ("tick --force --wait", tick(true, true, false)),
        ("-v tick --purge-volumes -q", tick(false, false, true)),
        ("config check", Command::ConfigCheck(None)),
        (
            "config check /tmp/x.yaml",
            Command::ConfigCheck(Some("/tmp/x.yaml".into())),
        ),
        ("run", Command::Run),
        ("resume", Command::Resume),
        ("restore", Command::Restore(None)),
        ("restore 7a10c3", Command::Restore(Some("7a10c3".into()))),
        (
            "pause --for 2h --reason work",
            Command::Pause {
                for_s: Some(7_200),
                reason: "work".into(),
            },
        ),
        (
            "pause --reason=work",
            Command::Pause {
                for_s: None,
                reason: "work".into(),
            },
        ),
        ("version --json", Command::Version { json: true }),
        ("-V", Command::Version { json: false }),
        ("--version", Command::Version { json: false }),
        ("--help", Command::Help(None)),
        ("help", Command::Help(None)),
        ("help tick", Command::Help(help::find("tick"))),
        ("tick --help", Command::Help(help::find("tick"))),
        (
            "help config check",
            Command::Help(help::find("config check")),
        ),
    ];
    for (line, command) in rows {
        assert_eq!(parsed(line).unwrap(), command, "{line}");
    }
}

#[test]
fn a_mistake_names_the_nearest_word() {
    let rows = [
        ("", "a command is missing"),
        ("tikc", "did you mean `monky-deployd tick`"),
        ("config", "did you mean `monky-deployd config check`"),
        ("config chekc", "did you mean `monky-deployd config check`"),
        ("tick --forse", "did you mean --force"),
        ("tick --confg x", "did you mean --config"),
        ("frobnicate", "see `monky-deployd help`"),
        ("pause", "--reason"),
        ("pause --for 2x --reason a", "90s, 30m, 2h or 1d"),
        ("tick --for 2h", "there is no option --for of tick"),
        ("restore a b", "takes no argument"),
        ("tick now", "takes no argument \"now\""),
        ("config check a b", "takes no argument \"b\""),
        ("version --force", "there is no option --force of version"),
        ("help nothing-like-it", "there is no command"),
        ("--config", "missing argument"),
    ];
    for (line, words) in rows {
        let text = refusal(line);
        assert!(text.contains(words), "{line}: {text}");
        assert_eq!(parsed(line).unwrap_err().exit(), Exit::Usage);
    }
}

#[test]
fn every_help_fits_a_screen_and_tells_the_exit_codes() {
    for text in help::COMMANDS
        .iter()
        .map(help::command)
        .chain([help::program()])
    {
        assert!(
            text.lines().count() <= 40 && text.lines().all(|line| line.len() <= 110),
            "{text}"
        );
        assert!(
            ["0 ", "1 ", "64", "70", "75", "78"]
                .iter()
                .all(|code| text.contains(&format!("\n  {code}"))),
            "{text}"
        );
    }
}

/// Not a test of its own: what [`a_panic_is_told_remembered_and_ends_with_70`] runs in a process of its own.
#[test]
fn panics_where_it_was_asked_to() {
    let Some(state_dir) = std::env::var_os("MONKY_DEPLOYD_TEST_PANIC") else {
        return;
    };
    let redactor = Redactor::new();
    redactor.learn("PW", &crate::secret::Secret::new("hunter2-hunter2".into()));
    crate::host::log::install(log::LevelFilter::Info, &redactor);
    end_on_panic(&redactor);
    tick::remember_panics_in(&PathBuf::from(state_dir));
    panic!("boom with hunter2-hunter2");
}

#[test]
fn a_panic_is_told_remembered_and_ends_with_70() {
    let dir = tempfile::tempdir().unwrap();
    let state = crate::state::State::new(&crate::names::EnvId::new("env-a").unwrap());
    std::fs::write(
        dir.path().join("state.json"),
        serde_json::to_vec(&state).unwrap(),
    )
    .unwrap();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "cli::tests::panics_where_it_was_asked_to",
            "--nocapture",
        ])
        .env("MONKY_DEPLOYD_TEST_PANIC", dir.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(70), "{stderr}");
    assert_eq!(
        stderr.lines().filter(|line| line.contains("boom")).count(),
        1,
        "{stderr}"
    );
    assert!(
        stderr.contains("INTERNAL") && !stderr.contains("hunter2-hunter2"),
        "{stderr}"
    );
    let state: serde_json::Value =
        serde_json::from_slice(&std::fs::read(dir.path().join("state.json")).unwrap()).unwrap();
    assert_eq!(state["last"]["code"], "INTERNAL");
    assert!(!state.to_string().contains("hunter2-hunter2"));
}
