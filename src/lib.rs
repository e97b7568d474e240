//! The library of the `monky-deployd` agent; the program is three lines around [`cli`].
//!
//! Read `tick/mod.rs` first: it is the whole story, one stage a line. The modules below stand in the order in which they
//! may know each other: a module uses only its own folder and those above it.

// The foundation: what the others are made of.
pub mod code;
pub mod error;
pub mod exit;
pub mod json;
pub mod names;
pub mod ordered;
pub mod outcome;
pub mod redact;
pub mod secret;

// The rooms, in the order of a tick.
pub mod bundle;
pub mod deploy;
pub mod host;
pub mod remote;
pub mod report;
pub mod settings;
pub mod state;
pub mod tick;

// The door.
pub mod cli;
pub mod help;
