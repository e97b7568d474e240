//! Hands the build's own facts to `version --json`. The commit and its date come from the environment, so that two builds
//! of one commit are byte-identical wherever they run.

use std::process::Command;

fn main() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let version = Command::new(rustc)
        .arg("--version")
        .output()
        .ok()
        .and_then(|output| String::from_utf8(output.stdout).ok());
    let variable = |name: &str| {
        std::env::var(name)
            .ok()
            .filter(|value| !value.is_empty())
            .unwrap_or_else(|| "unknown".into())
    };
    println!(
        "cargo:rustc-env=MONKY_DEPLOYD_TARGET={}",
        variable("TARGET")
    );
    println!(
        "cargo:rustc-env=MONKY_DEPLOYD_COMMIT={}",
        variable("MONKY_DEPLOYD_COMMIT")
    );
    println!(
        "cargo:rustc-env=MONKY_DEPLOYD_BUILT={}",
        variable("SOURCE_DATE_EPOCH")
    );
    println!(
        "cargo:rustc-env=MONKY_DEPLOYD_RUSTC={}",
        version.as_deref().map_or("unknown", str::trim)
    );
    for name in ["MONKY_DEPLOYD_COMMIT", "SOURCE_DATE_EPOCH"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
}
