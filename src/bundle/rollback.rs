//! Whether a bundle is older than the applied one. Two bundles are compared by generation; where either has none, by
//! the instant at which they were rendered; and a bundle that was applied before the present one is old in any case.
//! What cannot be read is no evidence. Pure: no clock is asked, a wrong clock on the box changes nothing.

use crate::code::Code;
use crate::error::Finding;
use crate::names::Sha256;
use time::{Date, Month};

/// How much earlier a bundle may have been rendered: renderers' clocks differ.
const SLACK_NS: i128 = 300 * NS;
const NS: i128 = 1_000_000_000;
/// 1970-01-01 as a Julian day.
const JULIAN_1970: i32 = 2_440_588;

/// What is compared of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Age {
    /// Its name.
    pub sha: Sha256,
    /// `meta.generation`.
    pub generation: Option<u64>,
    /// `meta.rendered_at`, as written.
    pub rendered_at: Option<String>,
}

/// Whether `bundle` would be a step back from `applied`, and what could not be read. `history` are the bundles that
/// were applied earlier.
pub fn judge(
    bundle: &Age,
    applied: Option<&Age>,
    history: &[Sha256],
) -> (Option<Finding>, Option<String>) {
    if applied.is_some_and(|applied| applied.sha == bundle.sha) {
        return (None, None);
    }
    let refused = |why: String| {
        let detail = format!("{why}; meta.agent.allow_rollback is not true");
        Finding::new(Code::RollbackRefused, detail)
    };
    let (mut why, warning) = match applied {
        Some(applied) => older(bundle, applied),
        None => (None, None),
    };
    if why.is_none() && history.contains(&bundle.sha) {
        why = Some("this bundle was applied before and replaced since".to_owned());
    }
    (why.map(refused), warning)
}

fn older(bundle: &Age, applied: &Age) -> (Option<String>, Option<String>) {
    if let (Some(new), Some(old)) = (bundle.generation, applied.generation) {
        let why = (new < old).then(|| {
            format!(
                "generation {new} is older than {old} of the applied {}",
                applied.sha.short()
            )
        });
        return (why, None);
    }
    let (Some(new_text), Some(old_text)) = (&bundle.rendered_at, &applied.rendered_at) else {
        return (None, None);
    };
    match (instant(new_text), instant(old_text)) {
        (Some(new), Some(old)) => {
            let why = (old - new >= SLACK_NS).then(|| {
                format!(
                    "it was rendered {} s before the applied {}",
                    (old - new) / NS,
                    applied.sha.short()
                )
            });
            (why, None)
        }
        (new, _) => {
            let whose = if new.is_none() {
                "the bundle's"
            } else {
                "the applied bundle's"
            };
            let warning = format!(
                "{whose} meta.rendered_at is no RFC 3339 or ISO 8601 time and says nothing about a rollback"
            );
            (None, Some(warning))
        }
    }
}

/// The instant of an RFC 3339 or ISO 8601 text in nanoseconds since 1970; without an offset it is UTC.
fn instant(text: &str) -> Option<i128> {
    let mut reader = Reader(text.trim());
    let year = reader.digits(4)?;
    let dashes = reader.skip("-");
    let month = reader.digits(2)?;
    if dashes && !reader.skip("-") {
        return None;
    }
    let day = reader.digits(2)?;
    let mut at = days(year, month, day)? * 86_400 * NS;
    if reader.0.is_empty() {
        return Some(at);
    }
    if !(reader.skip("T") || reader.skip("t") || reader.skip(" ")) {
        return None;
    }
    at += reader.time_of_day()?;
    at -= reader.offset()?;
    reader.0.is_empty().then_some(at)
}

struct Reader<'a>(&'a str);

impl Reader<'_> {
    fn skip(&mut self, text: &str) -> bool {
        match self.0.strip_prefix(text) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    fn digits(&mut self, count: usize) -> Option<i128> {
        let (digits, rest) = self.0.split_at_checked(count)?;
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        self.0 = rest;
        digits.parse().ok()
    }

    fn starts_with_digit(&self) -> bool {
        self.0.starts_with(|c: char| c.is_ascii_digit())
    }

    /// `HH:MM[:SS[.fraction]]`, with or without colons; 24:00 is the end of the day, :60 a leap second.
    fn time_of_day(&mut self) -> Option<i128> {
        let hour = self.digits(2)?;
        let colons = self.skip(":");
        let minute = self.digits(2)?;
        let has_seconds = if colons {
            self.skip(":")
        } else {
            self.starts_with_digit()
        };
        let second = if has_seconds { self.digits(2)? } else { 0 };
        let mut fraction = 0;
        if has_seconds && (self.skip(".") || self.skip(",")) {
            fraction = self.fraction()?;
        }
        let end = hour == 24 && minute == 0 && second == 0 && fraction == 0;
        let good = (hour < 24 || end) && minute < 60 && second <= 60;
        good.then_some((hour * 3600 + minute * 60 + second) * NS + fraction)
    }

    /// Digits behind the point; those beyond nanoseconds are dropped.
    fn fraction(&mut self) -> Option<i128> {
        let end = self
            .0
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(self.0.len());
        let (digits, rest) = self.0.split_at_checked(end)?;
        self.0 = rest;
        let first: String = digits.chars().chain("000000000".chars()).take(9).collect();
        (end > 0).then(|| first.parse().ok())?
    }

    /// `Z`, `+HH`, `+HH:MM[:SS]`, `+HHMM`, or nothing.
    fn offset(&mut self) -> Option<i128> {
        if self.0.is_empty() || self.skip("Z") || self.skip("z") {
            return Some(0);
        }
        let sign = if self.skip("+") {
            1
        } else if self.skip("-") || self.skip("\u{2212}") {
            -1
        } else {
            return None;
        };
        let hour = self.digits(2)?;
        let colons = self.skip(":");
        let minute = if colons || self.starts_with_digit() {
            self.digits(2)?
        } else {
            0
        };
        let second = if colons && self.skip(":") {
            self.digits(2)?
        } else {
            0
        };
        let good = hour < 24 && minute < 60 && second < 60;
        good.then_some(sign * (hour * 3600 + minute * 60 + second) * NS)
    }
}

/// Days since 1970; a date that the calendar does not have is none.
fn days(year: i128, month: i128, day: i128) -> Option<i128> {
    let month = Month::try_from(u8::try_from(month).ok()?).ok()?;
    let date = Date::from_calendar_date(year.try_into().ok()?, month, day.try_into().ok()?).ok()?;
    Some(i128::from(date.to_julian_day() - JULIAN_1970))
}

#[cfg(test)]
mod tests;
