//! The table that is printed: a row a figure, with what it may be and what it is compared with.

use std::fmt;

/// One figure.
pub struct Row {
    figure: String,
    measured: String,
    allowed: String,
    beside: String,
}

/// All of them, and what is to be said below.
#[derive(Default)]
pub struct Table {
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl Table {
    /// A figure with the most that it may be, and the other side of the comparison.
    pub fn row(
        &mut self,
        figure: &str,
        measured: impl fmt::Display,
        allowed: impl fmt::Display,
        beside: impl fmt::Display,
    ) {
        self.rows.push(Row {
            figure: figure.into(),
            measured: measured.to_string(),
            allowed: allowed.to_string(),
            beside: beside.to_string(),
        });
    }

    /// A line below the table.
    pub fn note(&mut self, line: impl Into<String>) {
        self.notes.push(line.into());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| figure | measured | at most | beside |")?;
        writeln!(f, "|---|---|---|---|")?;
        for row in &self.rows {
            writeln!(
                f,
                "| {} | {} | {} | {} |",
                row.figure, row.measured, row.allowed, row.beside
            )?;
        }
        for note in &self.notes {
            writeln!(f, "\n{note}")?;
        }
        Ok(())
    }
}

/// Milliseconds as people read them: `4.2 ms`, `580 ms`.
pub fn ms(value: f64) -> String {
    if value < 100.0 {
        format!("{value:.1} ms")
    } else {
        format!("{value:.0} ms")
    }
}

/// One of two figures as a multiple of the other.
pub fn times(ours: f64, theirs: f64) -> String {
    let ratio = ours / theirs;
    if ratio < 0.1 {
        format!("1/{:.0} ×", 1.0 / ratio)
    } else {
        format!("{ratio:.2} ×")
    }
}
