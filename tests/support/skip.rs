//! Skips that cannot be overlooked. A test asks for a part; when the machine has not got it the test ends early, one line
//! goes to stderr past libtest's capture, and one to the file named by `MONKY_DEPLOYD_SKIPS`, which `make test` lists
//! and counts. With `E2E=require` the same is a failure.
//!
//! ```ignore
//! let Some(docker) = skip::require("docker", RealDocker::get()) else { return };
//! ```

use std::env;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::panic::Location;

/// The part, or `None` after the skip was counted. `found`'s error is the reason, as a sentence with the remedy in it.
#[track_caller]
pub fn require<T>(part: &str, found: Result<T, String>) -> Option<T> {
    match found {
        Ok(value) => Some(value),
        Err(reason) => {
            count(&test_name(Location::caller()), part, &reason);
            None
        }
    }
}

fn count(test: &str, part: &str, reason: &str) {
    assert!(
        env::var("E2E").as_deref() != Ok("require"),
        "E2E=require, and {part} is missing: {reason}"
    );
    // Written to the handle: the print macros would end in libtest's capture, which a passing test never shows.
    let _ = writeln!(io::stderr(), "skipped: {test}: {part}: {reason}");
    if let Some(path) = env::var_os("MONKY_DEPLOYD_SKIPS") {
        let line = format!("{test}: {part}: {}\n", reason.replace('\n', " "));
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .unwrap_or_else(|e| panic!("a skip cannot be counted in {}: {e}", path.display()));
    }
}

/// libtest names a test's thread after the test, except when it runs them all in the main thread (one at a time).
fn test_name(caller: &Location<'_>) -> String {
    match std::thread::current().name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => format!("{}:{}", caller.file(), caller.line()),
    }
}
