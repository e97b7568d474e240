//! Everything that needs a real part: OpenBao, docker with Compose, a registry. One behaviour a file.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test, and a helper of it, fails"
)]

#[path = "../support/mod.rs"]
mod support;

mod binary;
mod contract;
mod disk;
mod env_differential;
mod fake_matches_real;
mod gate;
mod health;
mod killed;
mod lab;
mod lifecycle;
mod live;
mod refusals;
mod registry;
mod restore;
mod roundtrip;
mod secrets;
