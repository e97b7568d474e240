//! `make bench`: what the agent costs, beside what does the same. Nothing here passes or fails: it prints the table of
//! `docs/BENCHMARKS.md`, every ratio from one run in which both sides took turns, as medians.
//!
//! Each part is a file that gives rows; a part whose other side is not on this machine says so in its row.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for the one who reads its table; what is not as it must be ends it"
)]

#[path = "../support/mod.rs"]
mod support;

mod apply;
mod bundle;
mod delay;
mod estate;
mod fleet;
mod measure;
mod secrets;
mod size;
mod table;
mod tick;
mod timeline;

use table::Table;

/// One part of the table.
type Part = fn(&mut Table);

fn main() {
    // Without an argument every part; else those whose names are given. Cargo adds `--bench`.
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let parts: [(&str, Part); 6] = [
        ("tick", tick::measure),
        ("secrets", secrets::measure),
        ("apply", apply::measure),
        ("bundle", bundle::measure),
        ("size", size::measure),
        ("fleet", fleet::measure),
    ];
    let mut table = Table::default();
    for (name, measure) in parts {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            eprintln!("bench: {name}");
            measure(&mut table);
        }
    }
    print!("{table}");
}
