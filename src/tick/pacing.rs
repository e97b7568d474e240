//! How long a failing bundle waits: twice as long after each try, capped, and capped lower where the cause lies outside
//! the bundle and may be mended any minute. Temporary ends never count.

use crate::code::{Cause, Code};
use crate::host::clock::Timestamp;
use crate::names::Sha256;
use crate::state::{Failure, State};

const CAP_BUNDLE_S: u64 = 30 * 60;
const CAP_OUTSIDE_S: u64 = 5 * 60;

/// The pause after the `tries`-th failure in a row, in seconds.
pub fn pause_s(interval_s: u64, tries: u32, cause: Cause) -> u64 {
    let cap_s = match cause {
        Cause::Bundle => CAP_BUNDLE_S,
        Cause::Outside => CAP_OUTSIDE_S,
    };
    let factor = 1_u64
        .checked_shl(tries.saturating_sub(1))
        .unwrap_or(u64::MAX);
    interval_s.saturating_mul(factor).min(cap_s)
}

/// Notes that an apply of `sha` failed with `code`.
pub fn note_failure(state: &mut State, sha: &Sha256, code: Code, interval_s: u64, now: Timestamp) {
    let tries = state
        .failure
        .as_ref()
        .filter(|failure| failure.sha == *sha)
        .map_or(0, |failure| failure.tries)
        .saturating_add(1);
    let next_try_at = now.plus_s(pause_s(interval_s, tries, code.cause()));
    state.failure = Some(Failure {
        sha: sha.clone(),
        tries,
        code: code.as_str().into(),
        failed_at: now,
        next_try_at,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_up_to_its_cap() {
        let pauses = |cause| {
            (1..=8)
                .map(|tries| pause_s(60, tries, cause))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            pauses(Cause::Bundle),
            [60, 120, 240, 480, 960, 1800, 1800, 1800]
        );
        assert_eq!(
            pauses(Cause::Outside),
            [60, 120, 240, 300, 300, 300, 300, 300]
        );
        assert_eq!(pause_s(60, 10_000, Cause::Bundle), 1800);
    }
}
