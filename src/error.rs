//! The one error type: a variant for each failed operation, with the path, name or address in it, a stable [`Code`], and
//! through the code an exit code. Its `Display` is the whole message for a person: what failed, where, why in the
//! peer's own words, and what to do. It is printed once, at the top. Nothing in it is secret by construction, but a
//! peer's words may be: whoever shows an error passes it through the redactor.

use crate::code::{Cause, Code};
use crate::exit::Exit;
use crate::names::{Peer, TransportKind};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The result of everything that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One thing that is wrong with a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line, from 1; 0 when the problem belongs to no line.
    pub line: usize,
    /// Column in characters, from 1; 0 when the problem belongs to no column.
    pub column: usize,
    /// The line's text, for the underlined excerpt; may be empty.
    pub excerpt: String,
    /// What is wrong and what to write instead.
    pub message: String,
}

/// One reason why a bundle is refused, names only, never values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The refusal code.
    pub code: Code,
    /// What exactly, without the code in front.
    pub detail: String,
}

impl Finding {
    /// A finding.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
        }
    }
}

/// A container that kept an apply from becoming healthy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Culprit {
    /// The compose service.
    pub service: String,
    /// What is wrong with it, for example `exited with 3`.
    pub why: String,
}

/// A connection that did not come about or broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dial {
    /// Whom we called.
    pub peer: Peer,
    /// Over which transport.
    pub transport: TransportKind,
    /// The host as configured.
    pub host: String,
    /// The port as configured.
    pub port: u16,
    /// What happened.
    pub cause: String,
    /// What to check.
    pub remedy: String,
}

/// An answer that is not the one we need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Who answered.
    pub peer: Peer,
    /// The request, for example `POST /v1/agent/checkin`.
    pub request: String,
    /// The HTTP status.
    pub status: u16,
    /// The peer's own code, if it gave one.
    pub code: Option<String>,
    /// The peer's own words.
    pub words: String,
    /// `Retry-After`, in seconds.
    pub retry_after_s: Option<u64>,
    /// What to do, when we know.
    pub remedy: Option<String>,
}

/// Everything that can fail.
#[derive(Debug)]
#[allow(missing_docs, reason = "a variant's line and its fields' names say it")]
pub enum Error {
    /// The command line is wrong.
    Usage(String),
    /// The configuration could not be read.
    ConfigUnreadable { path: PathBuf, source: io::Error },
    /// The configuration is wrong: every problem found.
    ConfigInvalid {
        path: PathBuf,
        problems: Vec<Problem>,
    },
    /// `bao.ca_file` is unusable.
    CaFile { path: PathBuf, why: String },
    /// A file of ours is not safe to use.
    FileUnsafe { path: PathBuf, why: String },
    /// `state.json` is of a newer agent.
    StateNewer { path: PathBuf, schema: u64 },
    /// `state.json` belongs to another environment.
    StateForeign { path: PathBuf, env_id: String },
    /// A local file operation failed; `doing` reads like "write the token".
    File {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// The command needs another user than the one who runs it.
    WrongUser { command: String },
    /// Another tick holds the lock.
    Locked { path: PathBuf, holder: String },
    /// Who we are and who the peer says we are differ.
    EnvMismatch { whose: String, remedy: String },
    /// No connection.
    Unreachable(Dial),
    /// No TLS.
    Tls(Dial),
    /// A body that is too long, cut or not what it should be.
    Malformed {
        peer: Peer,
        request: String,
        why: String,
    },
    /// A peer's refusal, temporary or not.
    Answer(Refusal),
    /// OpenBao's 307: a standby that points elsewhere.
    Redirected {
        peer: Peer,
        request: String,
        status: u16,
        location: String,
    },
    /// No grant is left that could give a token.
    NoGrant { why: String },
    /// OpenBao refused the login.
    LoginRefused(Refusal),
    /// A lease without a login grant.
    LeaseShape { why: String },
    /// An action that this agent does not know.
    UnknownAction { action: String },
    /// The desired state moved on.
    BundleGone(Refusal),
    /// The bundle is refused: every finding.
    Refused { findings: Vec<Finding> },
    /// Secrets could not be read: every one, by name.
    SecretsUnreadable { problems: Vec<String> },
    /// The apply of this bundle is put off.
    PutOff { why: String },
    /// The docker program, its plugin or the daemon cannot be used.
    Docker {
        code: Code,
        why: String,
        remedy: String,
    },
    /// A compose verb failed: `doing` reads like `compose pull`.
    Compose {
        code: Code,
        doing: &'static str,
        words: String,
    },
    /// The containers did not become healthy.
    Unhealthy {
        culprits: Vec<Culprit>,
        waited_s: u64,
    },
    /// Containers under our project name that are not ours.
    ProjectConflict { project: String, why: String },
    /// A child process could not be started.
    Spawn { program: String, source: io::Error },
    /// A child process, or the tick as a whole, ran past its deadline.
    Deadline { doing: String, after_s: u64 },
    /// A signal ended the tick.
    Interrupted { doing: String },
    /// A bug.
    Internal(String),
}

impl Error {
    /// The stable code.
    pub fn code(&self) -> Code {
        match self {
            Self::Usage(_) => Code::Usage,
            Self::ConfigUnreadable { .. } | Self::ConfigInvalid { .. } | Self::CaFile { .. } => {
                Code::ConfigInvalid
            }
            Self::FileUnsafe { .. } => Code::FileUnsafe,
            Self::StateNewer { .. } | Self::StateForeign { .. } => Code::StateForeign,
            Self::File { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Code::NoSpace,
                _ => Code::FileFailed,
            },
            Self::WrongUser { .. } => Code::FileFailed,
            Self::Locked { .. } => Code::Locked,
            Self::EnvMismatch { .. } => Code::EnvMismatch,
            Self::Unreachable(_) => Code::Unreachable,
            Self::Tls(_) => Code::TlsFailed,
            Self::Malformed { .. } => Code::AnswerMalformed,
            Self::Redirected {
                peer: Peer::OpenBao,
                ..
            } => Code::PeerTemporary,
            Self::Redirected {
                peer: Peer::Tenancy,
                ..
            } => Code::PeerRefused,
            Self::Answer(refusal) if refusal.is_temporary() => Code::PeerTemporary,
            Self::Answer(_) => Code::PeerRefused,
            Self::NoGrant { .. } => Code::NoGrant,
            Self::LoginRefused(_) => Code::LoginRefused,
            Self::LeaseShape { .. } => Code::LeaseShape,
            Self::UnknownAction { .. } => Code::UnknownAction,
            Self::BundleGone(_) => Code::BundleGone,
            Self::Refused { findings } => findings
                .first()
                .map_or(Code::BundleInvalid, |finding| finding.code),
            Self::SecretsUnreadable { .. } => Code::SecretsUnreadable,
            Self::PutOff { .. } => Code::PutOff,
            Self::Docker { code, .. } | Self::Compose { code, .. } => *code,
            Self::Unhealthy { .. } => Code::Unhealthy,
            Self::ProjectConflict { .. } => Code::ProjectConflict,
            Self::Spawn { .. } => Code::DockerFailed,
            Self::Deadline { .. } => Code::Deadline,
            Self::Interrupted { .. } => Code::Interrupted,
            Self::Internal(_) => Code::Internal,
        }
    }

    /// The exit code of a command that ends with this error.
    pub fn exit(&self) -> Exit {
        self.code().exit()
    }

    /// Whether trying again soon may help; such an end never counts against a bundle.
    pub fn is_temporary(&self) -> bool {
        self.exit() == Exit::Temporary
    }

    /// Where the cause lies.
    pub fn cause(&self) -> Cause {
        self.code().cause()
    }

    /// What a failed file operation gives.
    pub fn file(doing: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::File {
            doing,
            path: path.to_owned(),
            source: source.into(),
        }
    }

    /// How long the peer asked us to wait, in seconds.
    pub fn retry_after_s(&self) -> Option<u64> {
        match self {
            Self::Answer(refusal) | Self::LoginRefused(refusal) | Self::BundleGone(refusal) => {
                refusal.retry_after_s
            }
            _ => None,
        }
    }
}

impl Refusal {
    /// Rate limits, standby, sealed and every 5xx pass by themselves (429, 472 and 473 are OpenBao's rate limit and
    /// standbys).
    pub fn is_temporary(&self) -> bool {
        matches!(self.status, 429 | 472 | 473 | 500..=599)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} answered {} to {}",
            self.peer, self.status, self.request
        )?;
        if let Some(code) = &self.code {
            write!(f, " with {code}")?;
        }
        if !self.words.is_empty() {
            write!(f, ": {}", self.words)?;
        }
        if let Some(seconds) = self.retry_after_s {
            write!(f, " (retry after {seconds} s)")?;
        }
        if let Some(remedy) = &self.remedy {
            write!(f, "; {remedy}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            peer,
            transport,
            host,
            port,
            cause,
            remedy,
        } = self;
        write!(
            f,
            "no connection to {peer} at {host}:{port} over transport {transport}: {cause}"
        )?;
        if remedy.is_empty() {
            Ok(())
        } else {
            write!(f, "; {remedy}")
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}", self.line)?;
            if self.column > 0 {
                write!(f, ", column {}", self.column)?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.message)?;
        if self.excerpt.is_empty() {
            return Ok(());
        }
        write!(f, "\n    {}", self.excerpt)?;
        if self.column > 0 {
            write!(f, "\n    {:>width$}", "^", width = self.column)?;
        }
        Ok(())
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)
    }
}

fn join<T: fmt::Display>(items: &[T], separator: &str) -> String {
    items
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(separator)
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) => f.write_str(message),
            Self::ConfigUnreadable { path, source } => write!(
                f,
                "cannot read the configuration {}: {source}",
                path.display()
            ),
            Self::ConfigInvalid { path, problems } => {
                write!(
                    f,
                    "the configuration {} is wrong:\n{}",
                    path.display(),
                    join(problems, "\n")
                )
            }
            Self::CaFile { path, why } => {
                write!(f, "the CA file {} cannot be used: {why}", path.display())
            }
            Self::FileUnsafe { path, why } => {
                write!(f, "{} is not safe to use: {why}", path.display())
            }
            Self::StateNewer { path, schema } => write!(
                f,
                "{} has schema {schema}, which is newer than this agent knows: install the newer agent again",
                path.display()
            ),
            Self::StateForeign { path, env_id } => write!(
                f,
                "{} belongs to environment {env_id}: give this one a state_dir of its own, or remove the old one",
                path.display()
            ),
            Self::File {
                doing,
                path,
                source,
            } => write!(f, "cannot {doing} ({}): {source}", path.display()),
            Self::WrongUser { command } => write!(f, "run it as the agent's user: {command}"),
            Self::Locked { path, holder } => {
                write!(f, "another tick holds {}: {holder}", path.display())
            }
            Self::EnvMismatch { whose, remedy } => write!(f, "{whose}: {remedy}"),
            Self::Unreachable(dial) | Self::Tls(dial) => dial.fmt(f),
            Self::Malformed { peer, request, why } => {
                write!(f, "{peer} gave an unusable answer to {request}: {why}")
            }
            Self::Answer(refusal) | Self::LoginRefused(refusal) | Self::BundleGone(refusal) => {
                refusal.fmt(f)
            }
            Self::Redirected {
                peer,
                request,
                status,
                location,
            } => {
                write!(
                    f,
                    "{peer} answered {status} to {request} and points to {location}; redirects are never followed"
                )
            }
            Self::NoGrant { why } => {
                write!(f, "no usable deploy grant ({why}): re-run the install kit")
            }
            Self::LeaseShape { why } => write!(f, "tenancy's lease cannot be used: {why}"),
            Self::UnknownAction { action } => {
                write!(
                    f,
                    "tenancy asks for the action \"{action}\", which this agent does not know; nothing was changed"
                )
            }
            Self::Refused { findings } => {
                write!(f, "the bundle is refused: {}", join(findings, "; "))
            }
            Self::SecretsUnreadable { problems } => {
                write!(f, "secrets cannot be read: {}", problems.join("; "))
            }
            Self::PutOff { why } => f.write_str(why),
            Self::Docker { why, remedy, .. } => write!(f, "{why}; {remedy}"),
            Self::Compose { doing, words, .. } => write!(f, "{doing}: {words}"),
            Self::Unhealthy { culprits, waited_s } => {
                let list: Vec<String> = culprits
                    .iter()
                    .map(|c| format!("{} {}", c.service, c.why))
                    .collect();
                write!(f, "not healthy after {waited_s} s: {}", list.join(", "))
            }
            Self::ProjectConflict { project, why } => {
                write!(f, "the compose project {project} is somebody else's: {why}")
            }
            Self::Spawn { program, source } => write!(f, "cannot start {program}: {source}"),
            Self::Deadline { doing, after_s } => {
                write!(f, "{doing} did not end within {after_s} s and was stopped")
            }
            Self::Interrupted { doing } => write!(
                f,
                "stopped by a signal during {doing}; the next tick goes on"
            ),
            Self::Internal(message) => write!(f, "internal error, please report it: {message}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::ConfigUnreadable { source, .. }
            | Self::File { source, .. }
            | Self::Spawn { source, .. } => Some(source),
            _ => None,
        }
    }
}
