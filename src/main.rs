//! The program: three lines around the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    monky_deployd::cli::run(std::env::args_os().skip(1)).into()
}
