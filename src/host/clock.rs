//! The wall clock: instants in whole seconds (UTC), their text forms, and how long things took. Written and read forms
//! are RFC 3339; HTTP's `Date` is read too. The boot id and uptime come from the kernel, or from systemd where
//! `/proc` hides them.

use crate::host::disk;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use time::OffsetDateTime;
use time::format_description::well_known::{Rfc2822, Rfc3339};

/// An instant in whole seconds, UTC. It is stored as RFC 3339 text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Timestamp(i64);

/// 9999-12-31T23:59:59Z, the last instant that RFC 3339 can write.
const LATEST_S: i64 = 253_402_300_799;

impl Timestamp {
    /// The present instant.
    pub fn now() -> Self {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        Self(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
    }

    /// The instant that many seconds after 1970.
    pub const fn from_unix(seconds: i64) -> Self {
        Self(seconds)
    }

    /// Seconds since 1970.
    pub const fn unix(self) -> i64 {
        self.0
    }

    /// The instant `seconds` later, at most the last one that can be written.
    #[must_use]
    pub fn plus_s(self, seconds: u64) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(seconds).unwrap_or(i64::MAX))
                .min(LATEST_S),
        )
    }

    /// Seconds from `earlier` to this; negative when this is the earlier one.
    pub const fn since_s(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Reads RFC 3339.
    pub fn parse(text: &str) -> Option<Self> {
        OffsetDateTime::parse(text, &Rfc3339)
            .ok()
            .map(|t| Self(t.unix_timestamp().min(LATEST_S)))
    }

    /// Reads the value of HTTP's `Date` header.
    pub fn parse_http(text: &str) -> Option<Self> {
        OffsetDateTime::parse(text, &Rfc2822)
            .ok()
            .map(|t| Self(t.unix_timestamp()))
    }

    /// `2026-09-08 14:02 UTC`, for people.
    pub fn to_minute(self) -> String {
        let text = self.to_string();
        format!(
            "{} {} UTC",
            text.get(..10).unwrap_or_default(),
            text.get(11..16).unwrap_or_default()
        )
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let date =
            OffsetDateTime::from_unix_timestamp(self.0).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        f.write_str(&date.format(&Rfc3339).unwrap_or_default())
    }
}

impl From<Timestamp> for String {
    fn from(at: Timestamp) -> Self {
        at.to_string()
    }
}

impl TryFrom<String> for Timestamp {
    type Error = &'static str;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or("an RFC 3339 instant is expected")
    }
}

/// A span for people: `42 s`, `12 min`, `17 h`, `3 d`.
pub fn span(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Measures how long something takes, in seconds with one decimal when printed.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    /// Whole seconds since the start.
    pub fn seconds(&self) -> u64 {
        self.0.elapsed().as_secs()
    }
}

impl fmt::Display for Stopwatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1}s", self.0.elapsed().as_secs_f64())
    }
}

/// The kernel's boot id; under systemd's `ProcSubset=pid` the unit hands it over in `MONKY_BOOT_ID`.
pub fn boot_id() -> Option<String> {
    let kernel = disk::read_file(Path::new("/proc/sys/kernel/random/boot_id"), 64, false);
    let kernel = kernel
        .ok()
        .flatten()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    kernel
        .or_else(|| std::env::var("MONKY_BOOT_ID").ok())
        .map(|id| id.trim().replace('-', ""))
        .filter(|id| !id.is_empty())
}

/// Seconds since the kernel started.
pub fn uptime_s() -> u64 {
    u64::try_from(rustix::system::sysinfo().uptime).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_goes_through_its_texts() {
        let at = Timestamp::from_unix(1_788_876_172);
        assert_eq!(Timestamp::parse(&at.to_string()), Some(at));
        assert_eq!(at.to_minute(), "2026-09-08 14:02 UTC");
        assert_eq!(Timestamp::parse("2026-09-08T16:02:52+02:00"), Some(at));
        assert_eq!(
            Timestamp::parse_http("Tue, 08 Sep 2026 14:02:52 GMT"),
            Some(at)
        );
        assert_eq!(Timestamp::parse("yesterday"), None);
    }

    #[test]
    fn an_instant_too_late_to_be_written_is_the_last_one() {
        let last = "9999-12-31T23:59:59Z";
        for seconds in [300_000_000_000, u64::MAX] {
            let at = Timestamp::from_unix(1_788_876_172).plus_s(seconds);
            assert_eq!(at.to_string(), last);
            assert_eq!(Timestamp::parse(last), Some(at));
        }
        let west = Timestamp::parse("9999-12-31T23:59:59-05:00").unwrap();
        assert_eq!(west.to_string(), last);
    }

    #[test]
    fn a_span_has_one_unit() {
        assert_eq!(
            [span(42), span(900), span(61_200), span(300_000)],
            ["42 s", "15 min", "17 h", "3 d"]
        );
    }
}
