//! The size of the shipped binary, and which crates it is made of.

use crate::support::agent::agent_binary;
use crate::support::symbols;
use crate::table::Table;
use std::fs;

/// Fills in the rows.
pub fn measure(table: &mut Table) {
    let binary = agent_binary();
    let bytes = fs::metadata(&binary).unwrap().len();
    table.row(
        "static binary, stripped",
        format!(
            "{:.2} MiB ({bytes} bytes)",
            bytes as f64 / f64::from(1 << 20)
        ),
        "2.5 MiB",
        "agents of this kind in Go or Python: tens of MiB",
    );
    match symbols::largest_crates(&binary, 10) {
        Ok(crates) => table.note(format!(
            "Its ten largest crates: {}.",
            symbols::shown(&crates)
        )),
        Err(why) => table.note(format!("Its crates: {why}.")),
    }
}
