//! The pulse of the ticks: when the last one started, when it checked in and how it ended. A small file that is renamed
//! without fsync at every checkin, so that a converged box writes nothing durable; a lost one only means that the next
//! tick checks in. The rule when a tick is due is here too, a pure function.

use crate::error::Result;
use crate::host::clock::Timestamp;
use crate::host::disk::{Dir, Durability};
use crate::host::paths::state_dir;
use serde::{Deserialize, Serialize};

const CAP_BYTES: u64 = 4_096;

/// What the last tick left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// When the last tick that did something started.
    pub started_at: Timestamp,
    /// The last checkin that tenancy answered.
    pub checkin_at: Option<Timestamp>,
    /// The interval that tenancy asked for then, in seconds.
    pub interval_s: Option<u64>,
    /// The exit code of that tick.
    pub exit: u8,
    /// A peer's `Retry-After`.
    pub not_before: Option<Timestamp>,
    /// What that tick failed with, redacted.
    #[serde(default)]
    pub error: Option<String>,
    /// What tenancy wanted at the last checkin: `none`, `apply` or `down`.
    #[serde(default)]
    pub action: Option<String>,
}

impl Heartbeat {
    /// Reads the last pulse; a missing or unreadable one is none.
    pub fn load(dir: &Dir) -> Option<Self> {
        let bytes = dir.read(state_dir::HEARTBEAT, CAP_BYTES).ok()??;
        serde_json::from_slice(&bytes).ok()
    }

    /// Leaves a pulse.
    ///
    /// # Errors
    /// A failed file operation.
    pub fn save(&self, dir: &Dir) -> Result<()> {
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        dir.write(state_dir::HEARTBEAT, &bytes, 0o600, Durability::Renamed)
    }

    /// When the next checkin is due. Nine tenths of the interval, so that a timer that fires a little early does not
    /// lose a whole round. After a tick that failed the server's interval does not count, only our own.
    pub fn next_checkin_at(&self, own_interval_s: u64) -> Option<Timestamp> {
        if self.exit != 0 {
            return Some(
                self.not_before
                    .unwrap_or_else(|| self.started_at.plus_s(nine_tenths(own_interval_s))),
            );
        }
        Some(self.checkin_at?.plus_s(nine_tenths(self.interval_s?)))
    }

    /// Whether a checkin is due `now`.
    pub fn is_due(&self, own_interval_s: u64, now: Timestamp) -> bool {
        // A clock that was set back must not silence the box until it catches up.
        if self.started_at > now || self.checkin_at.is_some_and(|at| at > now) {
            return true;
        }
        self.next_checkin_at(own_interval_s)
            .is_none_or(|at| now >= at)
    }
}

fn nine_tenths(seconds: u64) -> u64 {
    seconds.saturating_mul(9) / 10
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix(seconds)
    }

    #[test]
    fn due_as_the_rules_say() {
        let good = Heartbeat {
            started_at: at(1000),
            checkin_at: Some(at(1000)),
            interval_s: Some(100),
            exit: 0,
            not_before: None,
            error: None,
            action: None,
        };
        let failed = Heartbeat {
            exit: 75,
            ..good.clone()
        };
        let asked = Heartbeat {
            not_before: Some(at(1500)),
            ..failed.clone()
        };
        let always = Heartbeat {
            interval_s: None,
            ..good.clone()
        };
        let rows = [
            ("within the interval", &good, 1089, false),
            ("nine tenths have passed", &good, 1090, true),
            ("the clock was set back", &good, 999, true),
            ("no interval means always", &always, 1000, true),
            (
                "after a failure our own interval counts",
                &failed,
                1053,
                false,
            ),
            (
                "after a failure our own interval has passed",
                &failed,
                1054,
                true,
            ),
            ("Retry-After is honoured", &asked, 1499, false),
            ("Retry-After has passed", &asked, 1500, true),
        ];
        for (what, heartbeat, now, due) in rows {
            assert_eq!(heartbeat.is_due(60, at(now)), due, "{what}");
        }
    }
}
