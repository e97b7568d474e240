//! A stand-in for the `docker` program, for tests and for a demo on a machine without an engine. It answers the calls that
//! the agent makes with docker's own shapes and words, keeps containers and volumes as records in a file, and runs
//! nothing. It reads compose files in JSON (a subset of YAML) only. A call that it does not know fails loudly.
//!
//! The agent clears the environment of its children, so everything is found from `DOCKER_CONFIG`, which is
//! `<state_dir>/docker`: beside the state directory lies `docker-stand-in/` with
//!
//! - `calls.jsonl`: every call as it began (argv, environment, working directory, a digest of its standard input), and
//!   a line when it ended;
//! - `engine.json`: containers, volumes and images;
//! - `script/`: one file a behaviour that a test wants (see `script.rs`).

mod compose;
mod dotenv;
mod engine;
mod format;
mod interpolate;
mod record;
mod script;

use record::Home;
use script::Script;
use std::io::{self, Read, Write};
use std::process::ExitCode;

/// What a call comes to: its output, or docker's words and exit code.
type Outcome = Result<String, Failure>;

/// A call that fails.
struct Failure {
    code: u8,
    words: String,
}

impl Failure {
    fn new(code: u8, words: impl Into<String>) -> Self {
        Self {
            code,
            words: words.into(),
        }
    }
}

/// One call, taken apart.
struct Call<'a> {
    home: &'a Home,
    script: &'a Script,
    args: &'a [&'a str],
    stdin: &'a [u8],
}

fn main() -> ExitCode {
    let argv: Vec<String> = std::env::args().skip(1).collect();
    if argv.first().map(String::as_str) == Some(script::SLEEPER) {
        script::sleep_for_ever();
    }
    let Some(home) = Home::find() else {
        return end(
            None,
            Err(Failure::new(
                125,
                "docker-stand-in: DOCKER_CONFIG is not set",
            )),
        );
    };
    let script = Script::of(&home);
    let args: Vec<&str> = argv.iter().map(String::as_str).collect();
    let verb = verb_of(&args);
    let stdin = read_stdin(&args);
    home.record_start(&argv, &stdin);
    let call = Call {
        home: &home,
        script: &script,
        args: &args,
        stdin: &stdin,
    };
    let outcome = script.interfere(&verb).and_then(|()| answer(&call, &verb));
    end(Some(&home), outcome)
}

/// `pull` for `compose … pull`, `ps`, `inspect`, `version` for `compose version`.
fn verb_of(args: &[&str]) -> String {
    let Some((&"compose", rest)) = args.split_first() else {
        return args.first().copied().unwrap_or_default().to_owned();
    };
    compose::split(rest)
        .1
        .first()
        .copied()
        .unwrap_or_default()
        .to_owned()
}

/// Only a compose file on `-f -` is ever read from standard input.
fn read_stdin(args: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    if args.windows(2).any(|pair| pair == ["-f", "-"]) {
        // What cannot be read is an empty document, which is refused.
        let _ = io::stdin().read_to_end(&mut bytes);
    }
    bytes
}

fn answer(call: &Call<'_>, verb: &str) -> Outcome {
    let is_compose = call.args.first() == Some(&"compose");
    if is_compose {
        call.script.refuse_compose(call.args)?;
        return compose::answer(call);
    }
    call.script.refuse_engine()?;
    match verb {
        "info" => engine::info(call),
        "ps" => engine::ps(call),
        "inspect" => engine::inspect(call),
        "logs" => engine::logs(call),
        "rm" => engine::remove(call),
        "image" => engine::image(call),
        other => Err(Failure::new(
            125,
            format!("docker-stand-in: it has no command {other:?}"),
        )),
    }
}

fn end(home: Option<&Home>, outcome: Outcome) -> ExitCode {
    let code = match outcome {
        Ok(text) => {
            let _ = io::stdout().write_all(text.as_bytes());
            0
        }
        Err(failure) => {
            let _ = writeln!(io::stderr(), "{}", failure.words);
            failure.code
        }
    };
    if let Some(home) = home {
        home.record_end(code);
    }
    ExitCode::from(code)
}

/// Progress, as Compose prints it without a terminal.
fn progress(line: &str) {
    // Nobody has to listen.
    let _ = writeln!(io::stderr(), "{line}");
}

/// The value behind an option, in both spellings.
fn option<'a>(args: &[&'a str], name: &str) -> Option<&'a str> {
    args.iter().enumerate().find_map(|(at, arg)| {
        if *arg == name {
            args.get(at + 1).copied()
        } else {
            arg.strip_prefix(name)?.strip_prefix('=')
        }
    })
}
