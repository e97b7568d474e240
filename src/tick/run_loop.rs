//! The foreground loop for a laptop: tick, wait until the next one is due, until a signal comes. The wait looks at the wall
//! clock every few seconds, so a machine that slept ticks soon after it woke; boxes that are started together spread over
//! the interval by a hash of their environment.

use crate::exit::Exit;
use crate::host::clock::Timestamp;
use crate::host::disk::Dir;
use crate::host::interrupt::Interrupt;
use crate::host::log::is_interactive;
use crate::names::Sha256;
use crate::redact::Redactor;
use crate::settings::Settings;
use crate::state::heartbeat::Heartbeat;
use crate::tick::{self, TickOptions};
use std::io::Write;
use std::time::Duration;

/// How often the wait looks at the clock.
const GLANCE: Duration = Duration::from_secs(2);

/// Ticks until a signal comes. A tick that the signal finds at work finishes or aborts its step first.
pub fn run(
    settings: &Settings,
    options: TickOptions,
    redactor: &Redactor,
    interrupt: &Interrupt,
) -> Exit {
    log::info!(env_id = settings.env_id.as_str(); "running in the foreground, Ctrl-C ends it");
    loop {
        let exit = tick::run(settings, options, redactor, interrupt);
        if interrupt.is_pending() {
            break;
        }
        let interval_s = interval_s(settings);
        let next = next_slot(
            Timestamp::now(),
            interval_s,
            phase_s(settings.env_id.as_str(), interval_s),
        );
        let mut now = Timestamp::now();
        while now < next && next.since_s(now) <= i64::try_from(interval_s).unwrap_or(i64::MAX) {
            let left_s = next.since_s(now);
            show(settings, exit, left_s);
            let left = Duration::from_secs(u64::try_from(left_s).unwrap_or(0));
            if interrupt.wait(GLANCE.min(left)) {
                break;
            }
            now = Timestamp::now();
        }
        clear();
        if interrupt.is_pending() {
            break;
        }
    }
    log::info!("stopped");
    Exit::Ok
}

/// The server's interval where it names one, else our own.
fn interval_s(settings: &Settings) -> u64 {
    let pulse = Dir::open(&settings.state_dir)
        .ok()
        .and_then(|dir| Heartbeat::load(&dir));
    let theirs = pulse
        .filter(|pulse| pulse.exit == 0)
        .and_then(|pulse| pulse.interval_s);
    theirs.unwrap_or(settings.interval_s).clamp(1, 86_400)
}

/// This environment's place in the interval, in seconds: the same on every box and after every start.
pub fn phase_s(env_id: &str, interval_s: u64) -> u64 {
    let digest = Sha256::of(env_id.as_bytes());
    let head = u64::from_str_radix(digest.as_str().get(..12).unwrap_or_default(), 16).unwrap_or(0);
    head % interval_s.max(1)
}

/// The first instant after `now` that lies `phase_s` behind a multiple of the interval.
fn next_slot(now: Timestamp, interval_s: u64, phase_s: u64) -> Timestamp {
    let interval = i64::try_from(interval_s.max(1)).unwrap_or(i64::MAX);
    let behind = (now.unix() - i64::try_from(phase_s).unwrap_or(0)).rem_euclid(interval);
    now.plus_s(u64::try_from(interval - behind).unwrap_or(interval_s))
}

fn show(settings: &Settings, exit: Exit, left_s: i64) {
    if is_interactive() {
        // A terminal that went away is no reason to stop.
        let _ = write!(
            std::io::stderr(),
            "\r\x1b[K{}: {}, next tick in {left_s} s",
            settings.env_id,
            exit.word()
        );
    }
}

fn clear() {
    if is_interactive() {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_lie_one_interval_apart_and_never_at_now() {
        let at = Timestamp::from_unix;
        assert_eq!(next_slot(at(1000), 60, 10), at(1030));
        assert_eq!(next_slot(at(1030), 60, 10), at(1090));
        assert_eq!(next_slot(at(1029), 60, 10), at(1030));
        assert_eq!(next_slot(at(0), 60, 59), at(59));
    }

    #[test]
    fn environments_spread_over_the_interval() {
        let mut seconds = [0_u32; 60];
        for n in 0..10_000 {
            seconds[usize::try_from(phase_s(&format!("env-qa-{n:05}"), 60)).unwrap()] += 1;
        }
        let busiest = seconds.iter().max().copied().unwrap();
        assert!(f64::from(busiest) <= 1.3 * 10_000.0 / 60.0, "{busiest}");
        assert_eq!(phase_s("env-a", 60), phase_s("env-a", 60));
    }
}
