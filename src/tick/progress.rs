//! Telling that long work goes on: a live line where a person watches, a log line every 15 seconds elsewhere.

use crate::host::log::{is_interactive, one_line};
use std::io::Write;
use std::time::{Duration, Instant};

const LOG_EVERY: Duration = Duration::from_secs(15);
const LINE_CHARACTERS: usize = 100;

/// One piece of long work.
pub struct Progress {
    what: &'static str,
    is_live: bool,
    told_at: Instant,
    is_dirty: bool,
}

impl Progress {
    /// Begins; `what` reads like `pulling`.
    pub fn new(what: &'static str) -> Self {
        Self {
            what,
            is_live: is_interactive(),
            told_at: Instant::now(),
            is_dirty: false,
        }
    }

    /// Tells the present state, already redacted.
    pub fn tell(&mut self, line: &str) {
        let line: String = one_line(line).chars().take(LINE_CHARACTERS).collect();
        if self.is_live {
            // A terminal that went away is no reason to stop.
            let _ = write!(std::io::stderr(), "\r\x1b[K{}: {line}", self.what);
            self.is_dirty = true;
        } else if self.told_at.elapsed() >= LOG_EVERY {
            self.told_at = Instant::now();
            log::info!("{}: {line}", self.what);
        }
    }

    /// Ends, so that the next line begins on a clean one.
    pub fn end(&mut self) {
        if self.is_dirty {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
            self.is_dirty = false;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}
