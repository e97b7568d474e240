//! A tar in memory whose every member is harmless, as ranges of the body, nothing copied. [`Archive::read`] is the only
//! way to one; the walk over the headers is in `walk`. Everything that could harm is refused with `BUNDLE_UNSAFE`,
//! everything that is not a whole tar within its caps with `BUNDLE_INVALID`, all of it together.

mod walk;

pub(super) use walk::{Presence, Scan, scan};

use crate::error::Finding;
use crate::names::BundlePath;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What a bundle may be at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of the tar.
    pub bytes: usize,
    /// Members, directories with an entry of their own included.
    pub members: usize,
    /// Directories, those that only follow from the members inside them included.
    pub directories: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 4 * 1024 * 1024,
            members: 2_000,
            directories: 4_000,
        }
    }
}

/// A regular file of the bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    range: Range<usize>,
    executable: bool,
}

impl Member {
    /// Whether any execute bit was set.
    pub fn is_executable(&self) -> bool {
        self.executable
    }

    /// How many bytes it holds.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }
}

/// A tar whose every member is harmless.
#[derive(Debug)]
pub struct Archive {
    body: Vec<u8>,
    members: BTreeMap<BundlePath, Member>,
    directories: BTreeSet<BundlePath>,
}

impl Archive {
    /// Reads a whole tar, or says everything that is wrong with it.
    pub fn read(body: Vec<u8>, limits: Limits) -> Result<Self, Vec<Finding>> {
        let scan = scan(&body, limits);
        if scan.findings.is_empty() {
            Ok(scan.into_archive(body))
        } else {
            Err(scan.findings.into_vec())
        }
    }

    /// The members, in the order of their paths.
    pub fn members(&self) -> impl Iterator<Item = (&BundlePath, &Member)> {
        self.members.iter()
    }

    /// All directories inside the bundle, parents first.
    pub fn directories(&self) -> impl Iterator<Item = &BundlePath> {
        self.directories.iter()
    }

    /// What a member holds.
    pub fn bytes(&self, member: &Member) -> &[u8] {
        self.body.get(member.range.clone()).unwrap_or_default()
    }

    /// The member of that name.
    pub fn get(&self, name: &str) -> Option<&Member> {
        let path = BundlePath::new(name).ok()?;
        self.members.get(&path)
    }

    /// How many files and directories it makes on disk.
    pub fn inodes(&self) -> u64 {
        (self.members.len() + self.directories.len()) as u64
    }
}

#[cfg(test)]
mod tests;
