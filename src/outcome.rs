//! What a tick came to, as the state, the status and the reports name it.

use serde::{Deserialize, Serialize};

/// The result of the last thing that was done, as tenancy and `status` read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResultWord {
    /// A bundle was applied.
    Applied,
    /// Something failed.
    Failed,
    /// Everything was taken down.
    Down,
}

impl ResultWord {
    /// The word itself.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Failed => "failed",
            Self::Down => "down",
        }
    }
}

/// How a tick that did not fail ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The next checkin is not due yet; nothing was asked.
    NotDue,
    /// What runs is what is wanted.
    Converged,
    /// A bundle was applied.
    Applied,
    /// Everything is down.
    Down,
    /// Offline, and this is a laptop.
    Offline,
    /// A person paused the box, and there would be something to do.
    Paused,
    /// Taken down, and tenancy knows the box no more.
    Retired,
}

impl Done {
    /// The word for logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotDue => "not_due",
            Self::Converged => "converged",
            Self::Applied => "applied",
            Self::Down => "down",
            Self::Offline => "offline",
            Self::Paused => "paused",
            Self::Retired => "retired",
        }
    }
}
