//! The bundle: from the bytes that tenancy sent to a [`VerifiedBundle`], and from that to a verdict. `verify` is the only
//! way to the first, [`refuse::judge`] gives the second; both tell everything that is wrong at once. Only `unpack`
//! touches the disk.
//!
//! `archive` (over `headers` and `tree`) reads the tar, `meta` and `manifest` its documents; `fence`, `images`,
//! `rollback` and `version` are single rules of the verdict; `template` is the text that becomes `.env`.

pub mod archive;
pub mod fence;
mod findings;
mod headers;
pub mod images;
pub mod manifest;
pub mod meta;
pub mod refuse;
pub mod rollback;
pub mod template;
#[cfg(test)]
mod testing;
mod tree;
pub mod unpack;
pub mod verify;
pub mod version;

pub use verify::{VerifiedBundle, verify};
