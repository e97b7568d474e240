//! Everything that needs a real part: OpenBao, docker with Compose, a registry. One behaviour a file.

#[path = "../support/mod.rs"]
mod support;

mod env_differential;
