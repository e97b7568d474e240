//! The shipped file itself: static, stripped, relocatable, and small. Its ten largest crates are printed, so that a growth
//! can be told apart.

use crate::support::agent::agent_binary;
use crate::support::{skip, symbols};
use std::fs;
use std::process::Command;

/// 2.5 MiB.
const LIMIT_BYTES: u64 = 2_621_440;

/// What `readelf` says.
fn readelf(option: &str) -> String {
    let output = Command::new("readelf")
        .arg("-W")
        .arg(option)
        .arg(agent_binary())
        .output()
        .unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_shipped_binary_is_static_stripped_and_small() {
    let shipped = std::env::var("MONKY_DEPLOYD_BIN")
        .map_err(|_| "MONKY_DEPLOYD_BIN is not set: this is a debug build");
    let Some(_) = skip::require("the shipped binary", shipped.map_err(str::to_owned)) else {
        return;
    };
    assert!(readelf("--file-header").contains("DYN (Position-Independent Executable file)"));
    let segments = readelf("--program-headers");
    assert!(!segments.contains("INTERP"), "{segments}");
    let dynamic = readelf("--dynamic");
    assert!(!dynamic.contains("(NEEDED)"), "{dynamic}");
    let sections = readelf("--section-headers");
    assert!(
        !sections.contains(".symtab") && !sections.contains(".debug_"),
        "{sections}"
    );

    let size_bytes = fs::metadata(agent_binary()).unwrap().len();
    println!(
        "{size_bytes} bytes; {}",
        symbols::shown(&symbols::largest_crates(&agent_binary(), 10).unwrap())
    );
    assert!(size_bytes <= LIMIT_BYTES, "{size_bytes} bytes");
}
