//! The texts of `help`: one screen each, the exit codes at the end. `docs/CLI.md` shows the same options; a test holds
//! parser, help and document against each other.

/// A command of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandHelp {
    /// Its name, with its second word if it has one.
    pub name: &'static str,
    /// One line for the list.
    pub summary: &'static str,
    /// How it is called.
    pub usage: &'static str,
    /// Its options: as typed, and what each does.
    pub options: &'static [(&'static str, &'static str)],
    /// What else there is to know.
    pub notes: &'static str,
}

/// Every command, in the order of the list.
pub const COMMANDS: &[CommandHelp] = &[
    CommandHelp {
        name: "tick",
        summary: "one pass: ask tenancy, do what is wanted, report, exit",
        usage: "monky-deployd tick [OPTIONS]",
        options: &[
            (
                "--force",
                "ignore back-off, holds, the remembered mismatch and \"not due\"",
            ),
            ("--wait", "wait for another tick to end instead of failing"),
            ("--prune", "also delete images that no kept release uses"),
            (
                "--purge-volumes",
                "let this tick delete volumes that tenancy asked to purge",
            ),
            (
                "--adopt",
                "take over a deployment that was made by hand under our project name",
            ),
        ],
        notes: "The systemd timer runs it every minute. A tick that finds nothing to do sends one request\nand starts no process.",
    },
    CommandHelp {
        name: "run",
        summary: "tick again and again in the foreground, for a laptop",
        usage: "monky-deployd run",
        options: &[],
        notes: "Ticks at once, then every interval until Ctrl-C or SIGTERM; the step in hand is finished first.",
    },
    CommandHelp {
        name: "pause",
        summary: "go on checking in, but touch nothing",
        usage: "monky-deployd pause [--for SPAN] --reason TEXT",
        options: &[
            (
                "--for",
                "for how long: 90s, 30m, 2h, 1d; without it until `resume`",
            ),
            ("--reason", "why; tenancy is told"),
        ],
        notes: "A paused box applies, repairs and takes down nothing.",
    },
    CommandHelp {
        name: "resume",
        summary: "end a pause",
        usage: "monky-deployd resume",
        options: &[],
        notes: "",
    },
    CommandHelp {
        name: "restore",
        summary: "bring an earlier release up again, by hand",
        usage: "monky-deployd restore [SHA]",
        options: &[],
        notes: "Without SHA the applied release before the present one; with it the kept one that begins so.\nThe present bundle is held until another is wanted, the configuration changes, or `tick --force`.",
    },
    CommandHelp {
        name: "config check",
        summary: "check a configuration and show every key with its origin",
        usage: "monky-deployd config check [FILE]",
        options: &[],
        notes: "FILE defaults to the file of --config. Every problem is shown at once, with line and column.",
    },
    CommandHelp {
        name: "version",
        summary: "show the version",
        usage: "monky-deployd version [--json]",
        options: &[(
            "--json",
            "one JSON document with version, target, commit, built, rustc",
        )],
        notes: "",
    },
    CommandHelp {
        name: "help",
        summary: "show this, or the help of one command",
        usage: "monky-deployd help [COMMAND]",
        options: &[],
        notes: "",
    },
];

/// The options that every command takes.
pub const GLOBAL_OPTIONS: &[(&str, &str)] = &[
    (
        "--config FILE",
        "the configuration; default /etc/monky-deployd/config.yaml or $MONKY_DEPLOYD_CONFIG",
    ),
    ("-v, --verbose", "log one level more; twice: two"),
    ("-q, --quiet", "log warnings and errors only"),
    ("-h, --help", "show help"),
    ("-V, --version", "show the version"),
];

const EXIT_CODES: &str = "\
Exit codes:
  0   converged, applied, down, not due, or offline on a laptop
  1   failed: refused bundle, back-off, secrets, compose, health, docker, no usable grant
  64  bad command line
  70  internal error: please report it
  75  temporary: no connection, peer in trouble, docker daemon down, another tick runs
  78  configuration: bad file, unsafe file mode, another environment's grant
";

/// The help of the program.
pub fn program() -> String {
    let mut text = String::from(
        "monky-deployd - pull-based deploy agent\n\nUsage: monky-deployd [OPTIONS] COMMAND\n\nCommands:\n",
    );
    for command in COMMANDS {
        text.push_str(&format!("  {:<13} {}\n", command.name, command.summary));
    }
    text.push_str("\nOptions:\n");
    push_options(&mut text, GLOBAL_OPTIONS);
    text.push_str("\n`monky-deployd help COMMAND` shows a command's own options.\n\n");
    text.push_str(EXIT_CODES);
    text
}

/// The help of one command.
pub fn command(command: &CommandHelp) -> String {
    let mut text = format!(
        "monky-deployd {} - {}\n\nUsage: {}\n",
        command.name, command.summary, command.usage
    );
    if !command.options.is_empty() {
        text.push_str("\nOptions:\n");
        push_options(&mut text, command.options);
    }
    text.push_str("\nGlobal options:\n");
    push_options(&mut text, GLOBAL_OPTIONS);
    if !command.notes.is_empty() {
        text.push_str(&format!("\n{}\n", command.notes));
    }
    text.push('\n');
    text.push_str(EXIT_CODES);
    text
}

/// The command of that name.
pub fn find(name: &str) -> Option<&'static CommandHelp> {
    COMMANDS.iter().find(|command| command.name == name)
}

fn push_options(text: &mut String, options: &[(&str, &str)]) {
    for (option, meaning) in options {
        text.push_str(&format!("  {option:<17} {meaning}\n"));
    }
}
