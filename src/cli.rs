//! The command line: argv → a command → an exit code. What people asked for goes to standard output, everything else to
//! standard error; a closed pipe is no reason to fail.

use crate::code::Code;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::help::{self, CommandHelp};
use crate::host::interrupt::Interrupt;
use crate::host::log::one_line;
use crate::host::user;
use crate::names::nearest;
use crate::redact::Redactor;
use crate::settings::Settings;
use crate::tick::{self, TickOptions, orders, run_loop};
use lexopt::Arg;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

const DEFAULT_CONFIG: &str = "/etc/monky-deployd/config.yaml";

/// What was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Command {
    Tick(TickOptions),
    Run,
    Pause { for_s: Option<u64>, reason: String },
    Resume,
    Restore(Option<String>),
    ConfigCheck(Option<PathBuf>),
    Version { json: bool },
    Help(Option<&'static CommandHelp>),
}

/// How it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Invocation {
    command: Command,
    config: PathBuf,
    /// Levels more (or fewer) than the configuration says.
    verbosity: i8,
}

/// Runs the program with `args` (without the program's name) and gives its exit code.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Exit {
    let redactor = Redactor::new();
    crate::host::log::install(log::LevelFilter::Info, &redactor);
    end_on_panic(&redactor);
    let args: Vec<OsString> = args.into_iter().collect();
    match parse(args.clone()).and_then(|invocation| execute(&invocation, &args, &redactor)) {
        Ok(exit) => exit,
        Err(error) => {
            // The one place where an error that no tick has logged is shown.
            let _ = writeln!(
                std::io::stderr(),
                "monky-deployd: {}",
                redactor.clean(&error.to_string())
            );
            error.exit()
        }
    }
}

/// A panic is a bug, and still it says one line, is remembered, and ends with its own exit code, on whatever thread it
/// happens; nothing unwinds.
fn end_on_panic(redactor: &Redactor) {
    let redactor = redactor.clone();
    std::panic::set_hook(Box::new(move |panic| {
        let text = one_line(&redactor.clean(&panic.to_string()));
        log::error!(code = Code::Internal.as_str(); "{}", Error::Internal(text.clone()));
        tick::note_panic(&text);
        std::process::exit(Exit::Internal.number().into());
    }));
}

fn execute(invocation: &Invocation, args: &[OsString], redactor: &Redactor) -> Result<Exit> {
    match &invocation.command {
        Command::Help(None) => print(&help::program()),
        Command::Help(Some(command)) => print(&help::command(command)),
        Command::Version { json } => print(&version(*json)),
        Command::ConfigCheck(file) => {
            let settings = Settings::load(file.as_ref().unwrap_or(&invocation.config))?;
            print(&config_check(&settings))
        }
        command => {
            rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
            let settings = Settings::load(&invocation.config)?;
            user::become_owner_of(&settings.state_dir, args)?;
            forbid_core_dumps();
            crate::host::log::configure(
                level(&settings, invocation.verbosity),
                settings.log_target,
            );
            let interrupt = Interrupt::catch()
                .map_err(|e| Error::Internal(format!("signals cannot be caught: {e}")))?;
            work(command, &settings, redactor, &interrupt)
        }
    }
}

/// The commands that touch this box.
fn work(
    command: &Command,
    settings: &Settings,
    redactor: &Redactor,
    interrupt: &Interrupt,
) -> Result<Exit> {
    match command {
        Command::Tick(options) => Ok(tick::run(settings, *options, redactor, interrupt)),
        Command::Run => Ok(run_loop::run(
            settings,
            TickOptions::default(),
            redactor,
            interrupt,
        )),
        Command::Pause { for_s, reason } => {
            print(&orders::pause(settings, interrupt, *for_s, reason)?)
        }
        Command::Resume => print(&orders::resume(settings, interrupt)?),
        Command::Restore(sha) => print(&orders::restore(
            settings,
            redactor,
            interrupt,
            sha.as_deref(),
        )?),
        Command::ConfigCheck(_) | Command::Version { .. } | Command::Help(_) => Ok(Exit::Ok),
    }
}

/// Secrets are in this process's memory: no core dump, and no look into it by other processes of the same user.
fn forbid_core_dumps() {
    let not_dumpable = rustix::process::DumpableBehavior::NotDumpable;
    if let Err(error) = rustix::process::set_dumpable_behavior(not_dumpable) {
        log::debug!("core dumps stay as the system has them: {error}");
    }
}

fn level(settings: &Settings, verbosity: i8) -> log::LevelFilter {
    use log::LevelFilter::{Debug, Error, Info, Trace, Warn};
    let levels = [Error, Warn, Info, Debug, Trace];
    let base = levels
        .iter()
        .position(|level| *level == settings.log_level)
        .unwrap_or(2);
    if verbosity < 0 {
        return Warn.min(settings.log_level);
    }
    let wanted = base + usize::try_from(verbosity).unwrap_or(0);
    levels.get(wanted).copied().unwrap_or(Trace)
}

fn config_check(settings: &Settings) -> String {
    let mut text = String::new();
    for warning in &settings.warnings {
        text.push_str(&format!("# warning: {warning}\n"));
    }
    for (key, value, origin) in settings.effective() {
        text.push_str(&format!("{key} = {value}  # {origin}\n"));
    }
    text
}

fn version(json: bool) -> String {
    let version = env!("CARGO_PKG_VERSION");
    if !json {
        return format!("monky-deployd {version}\n");
    }
    let document = serde_json::json!({
        "version": version,
        "target": env!("MONKY_DEPLOYD_TARGET"),
        "commit": env!("MONKY_DEPLOYD_COMMIT"),
        "built": env!("MONKY_DEPLOYD_BUILT"),
        "rustc": env!("MONKY_DEPLOYD_RUSTC"),
    });
    format!("{document}\n")
}

fn print(text: &str) -> Result<Exit> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Whoever closed the pipe has read enough.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::file("write to", Path::new("standard output"), error))
        }
        _ => Ok(Exit::Ok),
    }
}

fn parse(args: Vec<OsString>) -> Result<Invocation> {
    let mut parser = lexopt::Parser::from_args(args);
    let mut words: Vec<String> = Vec::new();
    let mut given: Vec<String> = Vec::new();
    let mut values: Vec<(&str, String)> = Vec::new();
    let mut config = std::env::var_os("MONKY_DEPLOYD_CONFIG")
        .filter(|path| !path.is_empty())
        .map_or_else(|| DEFAULT_CONFIG.into(), PathBuf::from);
    let (mut verbosity, mut wants_help, mut wants_version) = (0_i8, false, false);
    while let Some(arg) = parser.next().map_err(|e| Error::Usage(format!("{e}")))? {
        match arg {
            Arg::Long("config") => {
                config = parser
                    .value()
                    .map_err(|e| Error::Usage(e.to_string()))?
                    .into()
            }
            Arg::Short('v') | Arg::Long("verbose") => verbosity = verbosity.saturating_add(1),
            Arg::Short('q') | Arg::Long("quiet") => verbosity = -1,
            Arg::Short('h') | Arg::Long("help") => wants_help = true,
            Arg::Short('V') => wants_version = true,
            Arg::Long("version") => wants_version = true,
            Arg::Long("for") => values.push(("--for", value_of(&mut parser)?)),
            Arg::Long("reason") => values.push(("--reason", value_of(&mut parser)?)),
            Arg::Long(name) => given.push(format!("--{name}")),
            Arg::Short(name) => given.push(format!("-{name}")),
            Arg::Value(word) => words.push(word.to_string_lossy().into_owned()),
        }
    }
    given.extend(values.iter().map(|(option, _)| (*option).to_owned()));
    if wants_version && words.is_empty() {
        words = vec!["version".into()];
    }
    let (command, rest) = find_command(&words, wants_help)?;
    let Some(command) = command else {
        refuse_unknown_options(&given, None)?;
        return Ok(Invocation {
            command: Command::Help(None),
            config,
            verbosity,
        });
    };
    refuse_unknown_options(&given, Some(command))?;
    let has = |option: &str| given.iter().any(|given| given == option);
    let value = |option: &str| {
        values
            .iter()
            .find(|(given, _)| *given == option)
            .map(|(_, value)| value.as_str())
    };
    let parsed = match command.name {
        _ if wants_help => Command::Help(Some(command)),
        "tick" => Command::Tick(TickOptions {
            force: has("--force"),
            wait: has("--wait"),
            purge_volumes: has("--purge-volumes"),
            adopt: has("--adopt"),
            prune: has("--prune"),
        }),
        "run" => Command::Run,
        "pause" => pause_command(value("--for"), value("--reason"))?,
        "resume" => Command::Resume,
        "restore" => Command::Restore(rest.first().cloned()),
        "config check" => Command::ConfigCheck(rest.first().map(PathBuf::from)),
        "version" => Command::Version {
            json: has("--json"),
        },
        _ => help_command(rest)?,
    };
    // `help` takes the words of a command and has looked at them itself.
    let allowed = match command.name {
        "config check" | "restore" => 1,
        "help" => rest.len(),
        _ => 0,
    };
    match rest.get(allowed) {
        Some(extra) => Err(Error::Usage(format!(
            "{} takes no argument {extra:?}; see `monky-deployd help {}`",
            command.name, command.name
        ))),
        None => Ok(Invocation {
            command: parsed,
            config,
            verbosity,
        }),
    }
}

/// The value of an option.
fn value_of(parser: &mut lexopt::Parser) -> Result<String> {
    let value = parser.value().map_err(|e| Error::Usage(e.to_string()))?;
    value
        .into_string()
        .map_err(|_| Error::Usage("an option's value is not UTF-8".into()))
}

/// A span like `90s`, `30m`, `2h`, `1d`, in seconds.
fn span_s(text: &str) -> Result<u64> {
    let wrong = || {
        Error::Usage(format!(
            "--for takes a span like 90s, 30m, 2h or 1d, not {text:?}"
        ))
    };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match text.strip_prefix(digits) {
        Some("s") => 1,
        Some("m") => 60,
        Some("h") => 3_600,
        Some("d") => 86_400,
        _ => return Err(wrong()),
    };
    let seconds = digits
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(factor));
    seconds
        .filter(|seconds| (1..=366 * 86_400).contains(seconds))
        .ok_or_else(wrong)
}

fn pause_command(duration: Option<&str>, reason: Option<&str>) -> Result<Command> {
    let reason = reason.map(str::trim).filter(|reason| !reason.is_empty());
    let reason = reason
        .ok_or_else(|| Error::Usage("pause needs --reason, so that others know why".into()))?;
    Ok(Command::Pause {
        for_s: duration.map(span_s).transpose()?,
        reason: reason.to_owned(),
    })
}

fn help_command(words: &[String]) -> Result<Command> {
    if words.is_empty() {
        return Ok(Command::Help(None));
    }
    match find_command(words, true)? {
        (Some(command), []) => Ok(Command::Help(Some(command))),
        (_, extra) => Err(Error::Usage(format!(
            "there is no command {:?}",
            extra.join(" ")
        ))),
    }
}

/// The command that the words begin with, and the words behind it; none when there are no words.
fn find_command(
    words: &[String],
    wants_help: bool,
) -> Result<(Option<&'static CommandHelp>, &[String])> {
    let Some(first) = words.first() else {
        if wants_help {
            return Ok((None, words));
        }
        return Err(Error::Usage(
            "a command is missing; see `monky-deployd help`".into(),
        ));
    };
    for len in [2, 1] {
        let name = words.get(..len).map(|words| words.join(" "));
        if let Some(command) = name.as_deref().and_then(help::find) {
            return Ok((Some(command), words.get(len..).unwrap_or_default()));
        }
    }
    let two = words.get(..2).map(|words| words.join(" "));
    let known = help::COMMANDS.iter().map(|command| command.name);
    let guess = two
        .as_deref()
        .and_then(|two| nearest(two, known.clone()))
        .or_else(|| nearest(first, known.clone()));
    let guess = guess.or_else(|| {
        known
            .clone()
            .find(|name| name.split(' ').next() == Some(first))
    });
    Err(Error::Usage(match guess {
        Some(guess) => {
            format!("there is no command {first:?}; did you mean `monky-deployd {guess}`?")
        }
        None => format!("there is no command {first:?}; see `monky-deployd help`"),
    }))
}

fn refuse_unknown_options(given: &[String], command: Option<&CommandHelp>) -> Result<()> {
    let own = command.map_or(&[][..], |command| command.options);
    let spelled = |options: &'static [(&str, &str)]| {
        options.iter().flat_map(|(option, _)| {
            option
                .split([' ', ','])
                .filter(|word| word.starts_with('-'))
        })
    };
    for option in given {
        if own.iter().any(|(known, _)| known == option) {
            continue;
        }
        let candidates = own
            .iter()
            .map(|(known, _)| *known)
            .chain(spelled(help::GLOBAL_OPTIONS));
        let place = command.map_or_else(String::new, |command| format!(" of {}", command.name));
        return Err(Error::Usage(match nearest(option, candidates) {
            Some(guess) => format!("there is no option {option}{place}; did you mean {guess}?"),
            None => format!("there is no option {option}{place}; see `monky-deployd help`"),
        }));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
