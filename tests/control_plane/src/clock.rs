//! Owns the two spellings of time that the peers use: RFC 3339 with nanoseconds (OpenBao) and the `Date` header.
//!
//! Takes a `Duration` since the Unix epoch, gives text; never reads a time zone.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time since the Unix epoch.
pub fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// `2026-12-01T14:47:26.234815315Z`, as OpenBao writes instants.
pub fn rfc3339(at: Duration) -> String {
    let Civil {
        year, month, day, ..
    } = Civil::of(at.as_secs());
    let (hour, minute, second) = clock_of_day(at.as_secs());
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:09}Z",
        at.subsec_nanos()
    )
}

/// `Tue, 01 Dec 2026 14:47:26 GMT`, as the `Date` header wants it.
pub fn http_date(at_seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let date = Civil::of(at_seconds);
    let (hour, minute, second) = clock_of_day(at_seconds);
    let weekday = DAYS.get(date.weekday_from_thursday).unwrap_or(&"Thu");
    let month = MONTHS.get(date.month as usize - 1).unwrap_or(&"Jan");
    format!(
        "{weekday}, {:02} {month} {:04} {hour:02}:{minute:02}:{second:02} GMT",
        date.day, date.year
    )
}

/// `24h`, `1h30m`, `90s` → Go's short form without trailing zero parts, as OpenBao prints a TTL in warnings.
pub fn go_duration(seconds: u64) -> String {
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let mut text = String::new();
    if hours > 0 {
        text.push_str(&format!("{hours}h"));
    }
    if minutes > 0 || (hours > 0 && rest > 0) {
        text.push_str(&format!("{minutes}m"));
    }
    if rest > 0 || text.is_empty() {
        text.push_str(&format!("{rest}s"));
    }
    text
}

struct Civil {
    year: u64,
    month: u64,
    day: u64,
    weekday_from_thursday: usize,
}

impl Civil {
    /// Days to a Gregorian date, with years that begin in March so that the leap day comes last.
    fn of(seconds: u64) -> Self {
        let days = seconds / 86_400;
        let shifted = days + 719_468;
        let era = shifted / 146_097;
        let day_of_era = shifted % 146_097;
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let month = if march_month < 10 {
            march_month + 3
        } else {
            march_month - 9
        };
        Self {
            year: year_of_era + era * 400 + u64::from(month <= 2),
            month,
            day: day_of_year - (153 * march_month + 2) / 5 + 1,
            weekday_from_thursday: (days % 7) as usize,
        }
    }
}

fn clock_of_day(seconds: u64) -> (u64, u64, u64) {
    (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_written_as_the_peers_write_them() {
        let at = Duration::new(1_796_136_446, 234_815_315);
        assert_eq!(rfc3339(at), "2026-12-01T14:47:26.234815315Z");
        assert_eq!(http_date(at.as_secs()), "Tue, 01 Dec 2026 14:47:26 GMT");
        assert_eq!(http_date(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
    }

    #[test]
    fn durations_drop_their_zero_parts() {
        let seen: Vec<String> = [4, 3600, 86_400, 5400, 3601].map(go_duration).into();
        assert_eq!(seen, ["4s", "1h", "24h", "1h30m", "1h0m1s"]);
    }
}
