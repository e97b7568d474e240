//! `current` and `live/`: which release is up, and the stable project directory that Compose works in. Because the
//! directory never changes its name, an unchanged service is never recreated by a new bundle, and data directories
//! beside the compose file survive.
//!
//! Only files that the agent put there are ever replaced or removed; the list of them stands in `live.json` before the
//! first of them is written. A crash at any instant leaves `current` at a whole release; bringing `live/` to it again
//! finishes what was begun. What is being written stands in `.tmp/` beside `live/` until it is whole: a kill leaves
//! nothing in `live/` that nobody would know, and no name that a bundle or a service may use is taken.

use crate::deploy::compose::ProjectFiles;
use crate::deploy::release::{FileRecord, Release, Releases};
use crate::error::{Error, Result};
use crate::host::disk::{Dir, Durability, Kind};
use crate::host::paths::deploy_dir;
use crate::names::{BundlePath, ReleaseName, Sha256};
use crate::ordered::set_of;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io;

const RECORD: &str = "live.json";
/// Files on their way into `live/`, beside it on the same file system.
const UNDERWAY: &str = ".tmp";
/// The one such file.
const NEXT: &str = "next";
/// What earlier versions left in `live/` when they were killed while they wrote the variables.
const OLD_LEFTOVER: &str = "..env.tmp";
const OVERLAY: &str = "overlay.json";
const RECORD_CAP_BYTES: u64 = 8 * 1024 * 1024;
const FILE_CAP_BYTES: u64 = 64 * 1024 * 1024;
/// What a projection needs besides the bundle's files: `.env`, records, the link, directories.
const SPARE_BYTES: u64 = 64 * 1024;
const SPARE_INODES: u64 = 32;
const BLOCK_BYTES: u64 = 4_096;

/// Which files in `live/` are the agent's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// The release that `live/` was brought to completely; none while that is going on.
    release: Option<ReleaseName>,
    /// The files.
    files: BTreeSet<BundlePath>,
}

/// The deploy directory's visible side.
#[derive(Debug)]
pub struct Live<'a> {
    deploy: &'a Dir,
    dir: Dir,
}

impl<'a> Live<'a> {
    /// Opens `live/`, creating it where it is missing.
    ///
    /// # Errors
    /// A failed file operation.
    pub fn open(deploy: &'a Dir) -> Result<Self> {
        Ok(Self {
            deploy,
            dir: deploy.subdir_or_create(deploy_dir::LIVE, 0o700)?,
        })
    }

    /// What Compose needs to know to work on `release` as it is in `live/`.
    pub fn project_files(&self, release: &Release) -> ProjectFiles {
        ProjectFiles {
            directory: self.dir.path().to_owned(),
            compose_file: release.compose_file.as_str().to_owned(),
            overlay: (!release.overlay.is_null()).then(|| self.deploy.path().join(OVERLAY)),
            env_file: Some(self.dir.path().join(deploy_dir::ENV)),
        }
    }

    /// Whether `release` could be brought into `live/` without touching a file of somebody else; says which stands in the
    /// way.
    ///
    /// # Errors
    /// The conflict, or a failed file operation.
    pub fn check(&self, release: &Release) -> Result<()> {
        let ours = self.record()?.files;
        for (path, file) in &release.files {
            if let Some(foreign) = self.obstacle(path, file, &ours)? {
                return Err(self.in_the_way(&foreign));
            }
        }
        // `.env` is always ours, but what somebody put into a directory of that name is not.
        match self.dir.kind(deploy_dir::ENV)? {
            Some(Kind::Directory) if !self.is_all_ours(deploy_dir::ENV, &ours)? => {
                Err(self.in_the_way(deploy_dir::ENV))
            }
            _ => Ok(()),
        }
    }

    fn in_the_way(&self, foreign: &str) -> Error {
        let why = io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the release has a file of this name, and what is there is not the agent's: move it away",
        );
        Error::file(
            "bring the release's file into live",
            &self.dir.path().join(foreign),
            why,
        )
    }

    /// Makes `release` the current one and brings `live/` to its files.
    ///
    /// # Errors
    /// A failed file operation; `current` is then at the old release or at this one, whole.
    pub fn promote(&self, releases: &Releases, release: &Release) -> Result<()> {
        self.deploy.remove_tree(UNDERWAY)?;
        let mut record = self.record()?;
        self.check(release)?;
        self.refuse_without_room(releases, &record, release)?;
        self.deploy.link(
            deploy_dir::CURRENT,
            &format!("{}/{}", deploy_dir::RELEASES, release.name),
        )?;
        let before = record.files.clone();
        record.release = None;
        record.files.extend(release.files.keys().cloned());
        self.write_record(&record)?;

        if !release
            .files
            .keys()
            .any(|path| path.as_str() == OLD_LEFTOVER)
        {
            self.remove_old_leftover(&before)?;
        }
        let source = releases.directory(&release.name)?;
        let underway = self.deploy.subdir_or_create(UNDERWAY, 0o700)?;
        for path in before
            .iter()
            .filter(|path| !release.files.contains_key(path))
        {
            self.remove(path)?;
        }
        for (path, file) in &release.files {
            self.bring(&underway, &source, path, file)?;
        }
        let env = source
            .read(deploy_dir::ENV, FILE_CAP_BYTES)?
            .map(zeroize::Zeroizing::new)
            .ok_or_else(|| {
                Error::file(
                    "read the release's variables",
                    &source.path().join(deploy_dir::ENV),
                    io::Error::from(io::ErrorKind::NotFound),
                )
            })?;
        place(&underway, &self.dir, deploy_dir::ENV, &env, 0o600)?;
        self.write_overlay(&release.overlay)?;
        self.dir.sync_filesystem()?;

        let record = Record {
            release: Some(release.name.clone()),
            files: set_of(release.files.keys().cloned()),
        };
        self.write_record(&record)?;
        self.deploy.remove_tree(UNDERWAY)
    }

    /// Whether the files that change fit: a projection that stops half way for want of space would leave `current` at a
    /// release that never came up.
    fn refuse_without_room(
        &self,
        releases: &Releases,
        record: &Record,
        release: &Release,
    ) -> Result<()> {
        let there = match &record.release {
            Some(name) => releases.load(name)?,
            None => None,
        };
        let source = releases.directory(&release.name)?;
        let (mut bytes, mut inodes) = (SPARE_BYTES, SPARE_INODES);
        for (path, file) in &release.files {
            if there.as_ref().and_then(|there| there.files.get(path)) == Some(file) {
                continue;
            }
            let len = std::fs::symlink_metadata(source.path().join(path.as_str()))
                .map_or(0, |meta| meta.len());
            bytes += len.next_multiple_of(BLOCK_BYTES);
            inodes += 1;
        }
        let free = self.dir.free()?;
        if free.bytes >= bytes && free.inodes >= inodes {
            return Ok(());
        }
        let why = format!(
            "{} bytes and {} inodes are free, {bytes} and {inodes} may be needed",
            free.bytes, free.inodes
        );
        Err(Error::file(
            "make room for the bundle's files in live",
            self.dir.path(),
            io::Error::new(io::ErrorKind::StorageFull, why),
        ))
    }

    /// Takes the rendered variables out of `live/`.
    ///
    /// # Errors
    /// A failed file operation.
    pub fn forget_values(&self) -> Result<()> {
        if self.dir.kind(deploy_dir::ENV)? != Some(Kind::Directory) {
            self.dir.remove(deploy_dir::ENV)?;
        }
        self.deploy.remove_tree(UNDERWAY)?;
        self.remove_old_leftover(&self.record()?.files)
    }

    fn remove_old_leftover(&self, ours: &BTreeSet<BundlePath>) -> Result<()> {
        let is_of_a_bundle = ours.iter().any(|path| path.as_str() == OLD_LEFTOVER);
        if !is_of_a_bundle && self.dir.kind(OLD_LEFTOVER)? == Some(Kind::File) {
            self.dir.remove(OLD_LEFTOVER)?;
        }
        Ok(())
    }

    fn bring(
        &self,
        underway: &Dir,
        source: &Dir,
        path: &BundlePath,
        file: &FileRecord,
    ) -> Result<()> {
        let (folders, name) = split(path);
        let mode = if file.executable { 0o755 } else { 0o644 };
        let mut from: Option<Dir> = None;
        let mut to: Option<Dir> = None;
        for folder in folders {
            let here = from.as_ref().unwrap_or(source);
            let next = here.subdir(folder)?.ok_or_else(|| {
                Error::file(
                    "open the release's directory",
                    &here.path().join(folder),
                    io::Error::from(io::ErrorKind::NotFound),
                )
            })?;
            from = Some(next);
            to = Some(
                to.as_ref()
                    .unwrap_or(&self.dir)
                    .subdir_or_create(folder, 0o755)?,
            );
        }
        let (from, to) = (
            from.as_ref().unwrap_or(source),
            to.as_ref().unwrap_or(&self.dir),
        );
        let bytes = from.read(name, FILE_CAP_BYTES)?.ok_or_else(|| {
            Error::file(
                "read the release's file",
                &from.path().join(name),
                io::Error::from(io::ErrorKind::NotFound),
            )
        })?;
        // A file that is the same keeps its inode, and whoever has it mounted keeps seeing it. One that is longer, or
        // cannot be read, is not the same.
        let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if to.kind(name)? == Some(Kind::File)
            && to.mode(name)? == mode
            && to.read(name, len).ok().flatten().as_deref() == Some(&bytes)
        {
            return Ok(());
        }
        place(underway, to, name, &bytes, mode)
    }

    /// Removes a file of ours, and the directories that it leaves empty.
    fn remove(&self, path: &BundlePath) -> Result<()> {
        let (folders, name) = split(path);
        let depth = folders.len();
        let mut dirs: Vec<(Dir, &str)> = Vec::new();
        for folder in folders {
            let here = dirs.last().map_or(&self.dir, |(dir, _)| dir);
            match here.subdir(folder) {
                Ok(Some(next)) => dirs.push((next, folder)),
                // A removal that was cut off got so far: the directories above may still have to go.
                Ok(None) => break,
                // Somebody replaced the directory by something else: what is there is not ours any more.
                Err(_) => return Ok(()),
            }
        }
        if dirs.len() == depth {
            let here = dirs.last().map_or(&self.dir, |(dir, _)| dir);
            if here.kind(name)? != Some(Kind::Directory) {
                here.remove(name)?;
            } else if !here.remove_empty(name)? {
                return Ok(());
            }
        }
        while let Some((_, folder)) = dirs.pop() {
            let parent = dirs.last().map_or(&self.dir, |(dir, _)| dir);
            if !parent.remove_empty(folder)? {
                break;
            }
        }
        Ok(())
    }

    /// What stands in the way of a file, at its own path or in place of one of its directories. At a path that is ours
    /// it is a directory with something in it; at another one, anything but the very same file or an empty directory.
    fn obstacle(
        &self,
        path: &BundlePath,
        file: &FileRecord,
        ours: &BTreeSet<BundlePath>,
    ) -> Result<Option<String>> {
        let (folders, name) = split(path);
        let mut dir: Option<Dir> = None;
        let mut way = String::new();
        for folder in folders {
            way.push_str(folder);
            let here = dir.as_ref().unwrap_or(&self.dir);
            match here.kind(folder)? {
                None => return Ok(None),
                Some(Kind::Directory) => dir = here.subdir(folder)?,
                // A file of ours makes room for the directory; another one does not.
                Some(_) if ours.iter().any(|known| known.as_str() == way) => return Ok(None),
                Some(_) => return Ok(Some(way)),
            }
            way.push('/');
        }
        let here = dir.as_ref().unwrap_or(&self.dir);
        // One that is too long or cannot be read is not the same.
        let is_same = |dir: &Dir| {
            let bytes = dir.read(name, FILE_CAP_BYTES).ok().flatten();
            bytes.is_some_and(|bytes| Sha256::of(&bytes) == file.sha256)
        };
        match here.kind(name)? {
            None => Ok(None),
            // A directory makes room when all that is in it is ours. Docker makes an empty one in place of a file that it
            // was to mount and did not find.
            Some(Kind::Directory) if self.is_all_ours(path.as_str(), ours)? => Ok(None),
            Some(Kind::File | Kind::Link | Kind::Other) if ours.contains(path) => Ok(None),
            Some(Kind::File) if is_same(here) => Ok(None),
            Some(_) => Ok(Some(path.as_str().to_owned())),
        }
    }

    /// Whether nothing is in the directory but files of ours and what is left of their directories.
    fn is_all_ours(&self, top: &str, ours: &BTreeSet<BundlePath>) -> Result<bool> {
        let mut pending = vec![top.to_owned()];
        while let Some(folder) = pending.pop() {
            let mut dir: Option<Dir> = None;
            for part in folder.split('/') {
                let Some(next) = dir.as_ref().unwrap_or(&self.dir).subdir(part)? else {
                    return Ok(false);
                };
                dir = Some(next);
            }
            let Some(dir) = dir else { return Ok(false) };
            let names = dir.names()?;
            let all = std::fs::read_dir(dir.path())
                .map_err(|e| Error::file("list the directory", dir.path(), e))?;
            // A name that is not UTF-8 is not ours.
            if all.count() != names.len() {
                return Ok(false);
            }
            if names.is_empty() && folder != top && !is_ours_or_above(&folder, ours) {
                return Ok(false);
            }
            for name in names {
                let path = format!("{folder}/{name}");
                if dir.kind(&name)? == Some(Kind::Directory) {
                    pending.push(path);
                } else if !ours.iter().any(|known| known.as_str() == path) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn write_overlay(&self, overlay: &Value) -> Result<()> {
        if overlay.is_null() {
            return self.deploy.remove(OVERLAY).map(drop);
        }
        self.deploy.write(
            OVERLAY,
            overlay.to_string().as_bytes(),
            0o600,
            Durability::Renamed,
        )
    }

    fn record(&self) -> Result<Record> {
        let bytes = self.deploy.read(RECORD, RECORD_CAP_BYTES)?;
        Ok(bytes
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default())
    }

    fn write_record(&self, record: &Record) -> Result<()> {
        let bytes = serde_json::to_vec(record)
            .map_err(|e| Error::Internal(format!("the record of live cannot be written: {e}")))?;
        self.deploy.write(RECORD, &bytes, 0o600, Durability::Synced)
    }
}

/// The release that `current` points to; `None` when nothing is up.
///
/// # Errors
/// A failed file operation.
pub fn current(deploy: &Dir) -> Result<Option<ReleaseName>> {
    let target = deploy.link_target(deploy_dir::CURRENT)?;
    Ok(target.and_then(|target| ReleaseName::new(target.rsplit('/').next()?).ok()))
}

/// Gives `to` the file `name`, whole or not at all; an empty directory of that name makes room.
fn place(underway: &Dir, to: &Dir, name: &str, bytes: &[u8], mode: u32) -> Result<()> {
    if to.kind(name)? == Some(Kind::Directory) {
        // What is not empty stays, and the rename says so.
        to.remove_empty(name)?;
    }
    underway.write(NEXT, bytes, mode, Durability::Renamed)?;
    underway.move_into(NEXT, to, name).inspect_err(|_| {
        // Best effort: the next projection begins with an empty directory.
        let _ = underway.remove(NEXT);
    })
}

fn is_ours_or_above(folder: &str, ours: &BTreeSet<BundlePath>) -> bool {
    ours.iter().any(|known| {
        known
            .as_str()
            .strip_prefix(folder)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

fn split(path: &BundlePath) -> (Vec<&str>, &str) {
    let mut parts: Vec<&str> = path.as_str().split('/').collect();
    let name = parts.pop().unwrap_or_default();
    (parts, name)
}

#[cfg(test)]
mod tests;
