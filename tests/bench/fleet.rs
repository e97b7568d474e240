//! Ten thousand boxes that were booted together, over ten minutes: how many ticks the busiest second carries. The timer
//! gives each box a delay of its own that stays (systemd: `RandomizedDelaySec=60s` with `FixedRandomDelay=yes`); `run` and
//! the cron form take theirs from the environment's name.

use crate::table::Table;
use monky_deployd::names::Sha256;
use monky_deployd::tick::run_loop::phase_s;

const BOXES: u64 = 10_000;
const INTERVAL_S: u64 = 60;
const MINUTES: u64 = 10;
/// Fleets of different machines, of which each is as likely.
const FLEETS: u64 = 25;

/// Fills in the rows.
pub fn measure(table: &mut Table) {
    let timer = (0..FLEETS)
        .map(|fleet| busiest(&|n| delay_s(&format!("machine {fleet}/{n}"))))
        .fold((f64::MAX, 0.0_f64), |(least, most), ratio| {
            (least.min(ratio), most.max(ratio))
        });
    table.row(
        &format!("fleet of {BOXES}, the timer: busiest second of {MINUTES} minutes"),
        format!("{:.2} to {:.2} × the mean", timer.0, timer.1),
        "1.3 ×",
        format!("without spreading {INTERVAL_S} ×; {FLEETS} fleets"),
    );
    let named = busiest(&|n| phase_s(&format!("env-qa-{n:05}"), INTERVAL_S) as f64);
    table.row(
        &format!("fleet of {BOXES}, `run` and cron: busiest second of {MINUTES} minutes"),
        format!("{named:.2} × the mean"),
        "1.3 ×",
        format!("without spreading {INTERVAL_S} ×"),
    );
}

/// A box's delay as systemd makes it: a hash of the machine's and the unit's names, anywhere below the configured time.
fn delay_s(machine: &str) -> f64 {
    let digest = Sha256::of(machine.as_bytes());
    let head = u64::from_str_radix(&digest.as_str()[..13], 16).unwrap();
    head as f64 / (1_u64 << 52) as f64 * INTERVAL_S as f64
}

/// How much more the busiest second carries than the mean one, when each box ticks at that time behind the minute.
fn busiest(behind_s: &dyn Fn(u64) -> f64) -> f64 {
    let seconds = MINUTES * INTERVAL_S;
    let mut ticks = vec![0_u64; usize::try_from(seconds).unwrap()];
    for n in 0..BOXES {
        let behind = behind_s(n);
        // The minute in which they are booted is the first; what it leaves for the next one falls out at the end.
        for minute in 0..MINUTES {
            let at = (minute * INTERVAL_S) as f64 + behind;
            if let Some(second) = ticks.get_mut(at as usize) {
                *second += 1;
            }
        }
    }
    let mean = BOXES as f64 / INTERVAL_S as f64;
    *ticks.iter().max().unwrap() as f64 / mean
}
