//! Everything that needs no real part: the agent against the embedded control plane and a stand-in for docker. One
//! behaviour a file.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test, and a helper of it, fails"
)]

#[path = "../support/mod.rs"]
mod support;

mod bundle_python;
mod docker;
mod docs;
mod down;
mod drift;
mod faults;
mod fixtures;
mod gates;
mod hardening;
mod health;
mod house;
mod leaks;
mod leases;
mod life;
mod lifecycle;
mod minimal;
mod mismatch;
mod operations;
mod orders;
mod pacing;
mod refusals;
mod registry;
mod reports;
mod restore;
mod retention;
mod rules;
mod run_loop;
mod secrets;
mod signals;
mod tokens;
mod transport;
