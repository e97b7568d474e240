//! How things are measured: in turn, after a round that does not count, as medians; wall time from the start of a process
//! to its end, CPU time and memory as the kernel counts them.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// How often each side is run.
pub const ROUNDS: usize = 21;

/// Runs all sides once in each round, in this order, and gives the median of each; a first round is for the caches.
pub fn in_turn<const N: usize>(rounds: usize, mut sides: [&mut dyn FnMut() -> f64; N]) -> [f64; N] {
    let mut seen = [(); N].map(|()| Vec::with_capacity(rounds));
    for round in 0..=rounds {
        for (side, seen) in sides.iter_mut().zip(&mut seen) {
            let value = side();
            if round > 0 {
                seen.push(value);
            }
        }
    }
    seen.map(median)
}

/// The value in the middle.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Milliseconds of a command that must succeed; what it says is dropped.
pub fn wall_ms(command: &mut Command) -> f64 {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let started = Instant::now();
    let status = command.status().unwrap();
    let elapsed = started.elapsed();
    assert!(status.success(), "{}: {status}", shown(command));
    elapsed.as_secs_f64() * 1_000.0
}

/// Milliseconds of processor time, with that of the children that it waited for.
pub fn cpu_ms(command: &Command, scratch: &Path) -> f64 {
    let file = scratch.join("cpu");
    let script = r#"TIMEFORMAT='%3U %3S'; { time "$@" >/dev/null 2>&1; } 2>"$0""#;
    let mut outer = around(command, "bash", &["-c".as_ref(), script.as_ref()], &file);
    wall_ms(&mut outer);
    let text = fs::read_to_string(&file).unwrap();
    let seconds: f64 = text
        .split_whitespace()
        .map(|part| part.replace(',', ".").parse::<f64>().unwrap())
        .sum();
    seconds * 1_000.0
}

/// The most memory that a command had, in KiB, by GNU time.
pub fn peak_kib(command: &Command, scratch: &Path) -> f64 {
    let file = scratch.join("peak");
    let options = ["-f", "%M", "-o"].map(str::as_ref);
    let mut outer = around(command, "/usr/bin/time", &options, &file);
    wall_ms(&mut outer);
    fs::read_to_string(&file).unwrap().trim().parse().unwrap()
}

/// How many system calls a command makes, by strace.
pub fn syscalls(command: &Command, scratch: &Path) -> f64 {
    let file = scratch.join("calls");
    let options = ["-f", "-c", "-U", "calls", "-o"].map(str::as_ref);
    let mut outer = around(command, "strace", &options, &file);
    wall_ms(&mut outer);
    let text = fs::read_to_string(&file).unwrap();
    let total = text.lines().rev().find(|line| line.contains("total"));
    let numbers = total.unwrap_or_else(|| panic!("no total in {text}"));
    numbers
        .split_whitespace()
        .find_map(|word| word.parse().ok())
        .unwrap()
}

/// `program options FILE command…`, in the command's own environment.
pub fn around(
    command: &Command,
    program: &str,
    options: &[&std::ffi::OsStr],
    file: &Path,
) -> Command {
    let mut outer = Command::new(program);
    outer.args(options).arg(file);
    outer.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}

fn shown(command: &Command) -> String {
    crate::support::real_process::argv(command)
}
