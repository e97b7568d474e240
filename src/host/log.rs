//! Where log lines go, and their one form: a message, then `key=value`, the tick's id last; one line an event. Every
//! line passes the redactor here, at the sink, at every level.
//!
//! Under systemd lines carry a `<N>` priority and no time (the journal has its own). On a terminal they carry a short
//! time, and colour unless `NO_COLOR` is set. Otherwise they go to syslog and, where there is none, to standard error.

use crate::redact::Redactor;
use log::kv::{Key, Value, VisitSource};
use log::{Level, LevelFilter, Log, Metadata, Record};
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};

/// What the configuration asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The journal or the terminal where standard error is one of them, else syslog.
    Auto,
    /// Standard error, whatever it is.
    Stderr,
    /// `/dev/log`.
    Syslog,
}

/// The form of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Journal,
    Terminal { colour: bool },
    Plain,
}

type Syslog = syslog::Logger<syslog::LoggerBackend, LocalFormat>;

/// What a local syslog daemon takes: priority, program, pid, message. It knows the time itself.
#[derive(Clone, Debug)]
struct LocalFormat;

impl<T: std::fmt::Display> syslog::LogFormat<T> for LocalFormat {
    fn format<W: std::io::Write>(
        &self,
        writer: &mut W,
        severity: syslog::Severity,
        message: T,
    ) -> syslog::Result<()> {
        let priority = syslog::Facility::LOG_DAEMON as u8 | severity as u8;
        let pid = std::process::id();
        write!(writer, "<{priority}>monky-deployd[{pid}]: {message}").map_err(syslog::Error::Io)
    }
}

/// Where lines go. A tick that has nothing to say neither asks the terminal nor looks for a syslog daemon.
enum Sink {
    Unopened(Target),
    Stderr(Style),
    /// With the style of standard error, which stays the way out.
    Syslog(Box<Syslog>, Style),
}

impl Sink {
    fn open(target: Target) -> Self {
        let style = stderr_style();
        let wanted = target == Target::Syslog || (target == Target::Auto && style == Style::Plain);
        if wanted && let Ok(syslog) = syslog::unix(LocalFormat) {
            return Self::Syslog(Box::new(syslog), style);
        }
        // Without /dev/log standard error stays.
        Self::Stderr(style)
    }
}

struct Logger {
    sink: Mutex<Sink>,
    redactor: Redactor,
    tick: RwLock<Option<String>>,
}

static LOGGER: OnceLock<Logger> = OnceLock::new();

/// Installs the logger; from here on every line passes `redactor`. Before the configuration is known, lines from
/// `level` up go to standard error. A second call changes nothing.
pub fn install(level: LevelFilter, redactor: &Redactor) {
    let logger = LOGGER.get_or_init(|| Logger {
        sink: Mutex::new(Sink::Unopened(Target::Stderr)),
        redactor: redactor.clone(),
        tick: RwLock::new(None),
    });
    if log::set_logger(logger).is_ok() {
        log::set_max_level(level);
    }
}

/// Follows the configuration.
pub fn configure(level: LevelFilter, target: Target) {
    log::set_max_level(level);
    let Some(logger) = LOGGER.get() else { return };
    *logger.sink.lock().unwrap_or_else(PoisonError::into_inner) = Sink::Unopened(target);
}

/// Names the tick that the following lines belong to.
pub fn set_tick(id: &str) {
    if let Some(logger) = LOGGER.get() {
        *logger.tick.write().unwrap_or_else(PoisonError::into_inner) = Some(id.to_owned());
    }
}

/// Whether standard error is a terminal that a person looks at.
pub fn is_interactive() -> bool {
    std::io::stderr().is_terminal()
}

fn stderr_style() -> Style {
    if std::env::var_os("JOURNAL_STREAM").is_some() {
        Style::Journal
    } else if is_interactive() {
        Style::Terminal {
            colour: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        }
    } else {
        Style::Plain
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // The lines of the libraries below us tell of bytes and states, not of the deploy.
        metadata.target().starts_with("monky_deployd") || metadata.level() <= Level::Warn
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let mut text = record.args().to_string();
        // Writing to a String cannot fail.
        let _ = record.key_values().visit(&mut Pairs(&mut text));
        if let Some(tick) = self
            .tick
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .as_deref()
        {
            push_pair(&mut text, "tick", tick);
        }
        let text = one_line(&self.redactor.clean(&text));
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        if let Sink::Unopened(target) = *sink {
            *sink = Sink::open(target);
        }
        let style = match &mut *sink {
            Sink::Syslog(writer, style) => {
                let sent = match record.level() {
                    Level::Error => writer.err(&text),
                    Level::Warn => writer.warning(&text),
                    Level::Info => writer.info(&text),
                    Level::Debug | Level::Trace => writer.debug(&text),
                };
                if sent.is_ok() {
                    return;
                }
                *style
            }
            Sink::Stderr(style) => *style,
            Sink::Unopened(_) => Style::Plain,
        };
        let line = decorate(style, record.level(), &text);
        // A log that nobody can read any more is no reason to stop.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    fn flush(&self) {}
}

struct Pairs<'a>(&'a mut String);

impl<'kvs> VisitSource<'kvs> for Pairs<'_> {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), log::kv::Error> {
        push_pair(self.0, key.as_str(), &value.to_string());
        Ok(())
    }
}

fn push_pair(text: &mut String, key: &str, value: &str) {
    let plain =
        !value.is_empty() && !value.contains(|c: char| c.is_whitespace() || c == '"' || c == '=');
    // Writing to a String cannot fail.
    let _ = if plain {
        write!(text, " {key}={value}")
    } else {
        write!(text, " {key}={value:?}")
    };
}

/// One event is one line, whatever a peer said; control characters cannot steer the operator's terminal.
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for (index, part) in text
        .lines()
        .map(str::trim_end)
        .filter(|part| !part.is_empty())
        .enumerate()
    {
        if index > 0 {
            line.push_str(" | ");
        }
        line.extend(part.chars().map(|c| if c.is_control() { ' ' } else { c }));
    }
    line
}

fn decorate(style: Style, level: Level, text: &str) -> String {
    let priority = match level {
        Level::Error => 3,
        Level::Warn => 4,
        // A tick that has something to tell is out of the ordinary. A unit with `LogLevelMax=notice` keeps these lines and
        // drops those that systemd itself writes about each tick.
        Level::Info => 5,
        Level::Debug | Level::Trace => 7,
    };
    let word = level.as_str().to_ascii_lowercase();
    match style {
        Style::Journal => format!("<{priority}>{text}\n"),
        Style::Plain => format!("{word}: {text}\n"),
        Style::Terminal { colour } => {
            let now = crate::host::clock::Timestamp::now().to_string();
            let time = now.get(11..19).unwrap_or_default();
            let (on, off) = match (colour, level) {
                (false, _) => ("", ""),
                (true, Level::Error) => ("\x1b[31m", "\x1b[0m"),
                (true, Level::Warn) => ("\x1b[33m", "\x1b[0m"),
                (true, Level::Info) => ("\x1b[32m", "\x1b[0m"),
                (true, Level::Debug | Level::Trace) => ("\x1b[2m", "\x1b[0m"),
            };
            format!("{time} {on}{word:5}{off} {text}\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_without_control_characters() {
        assert_eq!(one_line("a\n\n  b \r\n\x1b[31mc\x07"), "a |   b |  [31mc ");
    }

    #[test]
    fn values_with_blanks_are_quoted() {
        let mut text = "pulled".to_owned();
        push_pair(&mut text, "image", "a/b:1");
        push_pair(&mut text, "why", "no space");
        push_pair(&mut text, "empty", "");
        assert_eq!(text, "pulled image=a/b:1 why=\"no space\" empty=\"\"");
    }

    #[test]
    fn the_journal_gets_priorities_and_no_time() {
        assert_eq!(decorate(Style::Journal, Level::Warn, "x"), "<4>x\n");
        assert_eq!(decorate(Style::Journal, Level::Info, "x"), "<5>x\n");
        assert_eq!(decorate(Style::Plain, Level::Error, "x"), "error: x\n");
        assert!(!decorate(Style::Terminal { colour: false }, Level::Info, "x").contains('\x1b'));
    }
}
