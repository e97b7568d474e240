//! Everything that needs no real part: the agent against the embedded control plane and a stand-in for docker. One
//! behaviour a file.

#[path = "../support/mod.rs"]
mod support;

mod bundle_python;
