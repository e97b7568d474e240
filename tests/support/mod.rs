//! What both test binaries share. `real_*` start real servers on loopback, which end with the test; `skip` is how a
//! test says that a part it needs is not here.
//!
//! A helper panics with everything it knows when something fails; it returns `Err` only for "this machine has not got
//! that part", which `skip::require` turns into a counted skip, or into a failure under `E2E=require`.

#![allow(
    dead_code,
    reason = "each of the two test binaries uses a part of this folder"
)]
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test helper fails its test"
)]

pub mod agent;
pub mod nasty;
pub mod real_bao;
pub mod real_docker;
pub mod real_process;
pub mod real_registry;
pub mod scene;
pub mod skip;
pub mod stand_in;
pub mod symbols;
