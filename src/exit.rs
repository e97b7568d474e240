//! The exit codes of every command: one enum, one meaning each. They are an interface: the systemd unit, Ansible and
//! people's scripts read them, so a number never changes its meaning.

use std::process::ExitCode;

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Converged, applied, down, retired, not due, paused, or offline on a laptop.
    Ok,
    /// Something failed that will not mend itself within a minute.
    Failed,
    /// Bad command line (`EX_USAGE`).
    Usage,
    /// A caught panic: a bug to report (`EX_SOFTWARE`).
    Internal,
    /// A passing trouble; the next tick tries again (`EX_TEMPFAIL`).
    Temporary,
    /// The box is set up wrongly; nothing is retried until a person mends it (`EX_CONFIG`).
    Config,
}

impl Exit {
    /// The number that the process returns.
    pub const fn number(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failed => 1,
            Self::Usage => 64,
            Self::Internal => 70,
            Self::Temporary => 75,
            Self::Config => 78,
        }
    }

    /// The word that documents and the log use for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::Internal => "internal",
            Self::Temporary => "temporary",
            Self::Config => "config",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.number())
    }
}
