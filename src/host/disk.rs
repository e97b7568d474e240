//! Directories of ours as handles, and the one durable write.
//!
//! Everything below the state and deploy directories is reached through a [`Dir`]: each step is relative to an open
//! directory and never follows a symlink, so that a container that can write into `live/` cannot lead a write elsewhere.
//! Only the path of a top directory itself, which the operator configured, may be a symlink. One writer at a time is
//! given by the lock; a temporary name left by a killed tick is replaced by the next write of the same file.

use crate::error::{Error, Result};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// How much a write must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The file and its name are on the disk when the call returns.
    Synced,
    /// The file appears whole or not at all, but may be lost in a power cut.
    Renamed,
}

/// What a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// Anything else.
    Other,
}

/// Free space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Free {
    /// Bytes that an unprivileged process may still write.
    pub bytes: u64,
    /// Files that may still be created; `u64::MAX` where the file system does not count them.
    pub inodes: u64,
}

/// An open directory.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    path: PathBuf,
}

const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::CLOEXEC)
    .union(OFlags::RDONLY);

impl Dir {
    /// Opens a configured directory; its own path may contain symlinks.
    pub fn open(path: &Path) -> Result<Self> {
        let fd = rustix::fs::open(path, DIRECTORY, Mode::empty())
            .map_err(|e| Error::file("open the directory", path, e))?;
        Ok(Self {
            fd,
            path: path.to_owned(),
        })
    }

    /// Opens a configured directory, creating it and its parents with mode 0700 where they are missing.
    pub fn open_or_create(path: &Path) -> Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        match Self::open(path) {
            Err(Error::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                std::fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(path)
                    .map_err(|e| Error::file("create the directory", path, e))?;
                Self::open(path)
            }
            opened => opened,
        }
    }

    /// The directory's path, for messages and for other programs.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the directory `name` inside this one, `None` when there is none.
    pub fn subdir(&self, name: &str) -> Result<Option<Self>> {
        let path = self.path.join(name);
        match rustix::fs::openat(&self.fd, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(fd) => Ok(Some(Self { fd, path })),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(Error::file("open the directory", &path, e)),
        }
    }

    /// Opens the directory `name` inside this one, creating it with exactly `mode` where it is missing.
    pub fn subdir_or_create(&self, name: &str, mode: u32) -> Result<Self> {
        if let Some(dir) = self.subdir(name)? {
            return Ok(dir);
        }
        let path = self.path.join(name);
        match rustix::fs::mkdirat(&self.fd, name, Mode::from_raw_mode(mode)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(Error::file("create the directory", &path, e)),
        }
        let dir = self
            .subdir(name)?
            .ok_or_else(|| Error::file("open the directory", &path, Errno::NOENT))?;
        // The umask took bits away that containers need.
        rustix::fs::fchmod(&dir.fd, Mode::from_raw_mode(mode))
            .map_err(|e| Error::file("set the mode", &path, e))?;
        Ok(dir)
    }

    /// What `name` is, without following a link; `None` when there is nothing.
    pub fn kind(&self, name: &str) -> Result<Option<Kind>> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => Kind::File,
                FileType::Directory => Kind::Directory,
                FileType::Symlink => Kind::Link,
                _ => Kind::Other,
            })),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(Error::file("look at", &self.path.join(name), e)),
        }
    }

    /// The permission bits of `name`, without following a link; 0 when there is nothing.
    pub fn mode(&self, name: &str) -> Result<u32> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(stat.st_mode & 0o7777),
            Err(Errno::NOENT) => Ok(0),
            Err(e) => Err(Error::file("look at", &self.path.join(name), e)),
        }
    }

    /// The one write: a temporary file in the same directory, its mode set before it gets its name, its bytes synced
    /// before the rename and the directory synced after it. Readers see the old file or the new one, never a part.
    pub fn write(&self, name: &str, bytes: &[u8], mode: u32, durability: Durability) -> Result<()> {
        let path = self.path.join(name);
        let temporary = temporary_name(name);
        let written = self
            .write_temporary(&temporary, bytes, mode, durability)
            .and_then(|()| {
                rustix::fs::renameat(&self.fd, &temporary, &self.fd, name)?;
                if durability == Durability::Synced {
                    rustix::fs::fsync(&self.fd)
                } else {
                    Ok(())
                }
            });
        written.map_err(|e| {
            // Best effort: a temporary file that stays is replaced by the next write.
            let _ = rustix::fs::unlinkat(&self.fd, &temporary, AtFlags::empty());
            Error::file("write the file", &path, e)
        })
    }

    fn write_temporary(
        &self,
        name: &str,
        bytes: &[u8],
        mode: u32,
        durability: Durability,
    ) -> Result<(), Errno> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let private = Mode::RUSR | Mode::WUSR;
        let fd = match rustix::fs::openat(&self.fd, name, flags, private) {
            Err(Errno::EXIST) => {
                rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())?;
                rustix::fs::openat(&self.fd, name, flags, private)?
            }
            opened => opened?,
        };
        let mut file = std::fs::File::from(fd);
        file.write_all(bytes)
            .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        if mode != 0o600 {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        }
        if durability == Durability::Synced {
            rustix::fs::fsync(&file)
        } else {
            Ok(())
        }
    }

    /// Reads the regular file `name` of at most `cap` bytes; `None` when there is none. A link is an error.
    pub fn read(&self, name: &str, cap: u64) -> Result<Option<Vec<u8>>> {
        let path = self.path.join(name);
        match rustix::fs::openat(
            &self.fd,
            name,
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC,
            Mode::empty(),
        ) {
            Ok(fd) => {
                let stat = look_at(&fd, &path)?;
                read_capped(&fd, &stat, &path, cap).map(Some)
            }
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(Error::file("read the file", &path, e)),
        }
    }

    /// As [`Dir::read`], for files that decide what the agent does: refuses one that others may change, and tightens
    /// one that is merely too readable; then `warn` gets a line.
    pub fn read_ours(
        &self,
        name: &str,
        cap: u64,
        warn: &mut dyn FnMut(String),
    ) -> Result<Option<Vec<u8>>> {
        let path = self.path.join(name);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => {
                return Err(Error::FileUnsafe {
                    path,
                    why: "it is a symbolic link".into(),
                });
            }
            Err(e) => return Err(Error::file("read the file", &path, e)),
        };
        let stat = look_at(&fd, &path)?;
        match judge_ownership(&stat, &path)? {
            Trust::Good => {}
            Trust::TooReadable => {
                rustix::fs::fchmod(&fd, Mode::RUSR | Mode::WUSR)
                    .map_err(|e| Error::file("tighten the mode of", &path, e))?;
                warn(format!(
                    "{} was readable by others; its mode is now 0600",
                    path.display()
                ));
            }
        }
        read_capped(&fd, &stat, &path, cap).map(Some)
    }

    /// Makes `name` a symbolic link to `target`, replacing what was there in one step, durably.
    pub fn link(&self, name: &str, target: &str) -> Result<()> {
        let temporary = temporary_name(name);
        let linked = (|| {
            match rustix::fs::unlinkat(&self.fd, &temporary, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(e) => return Err(e),
            }
            rustix::fs::symlinkat(target, &self.fd, &temporary)?;
            rustix::fs::renameat(&self.fd, &temporary, &self.fd, name)?;
            rustix::fs::fsync(&self.fd)
        })();
        linked.map_err(|e| Error::file("set the link", &self.path.join(name), e))
    }

    /// Where the symbolic link `name` points; `None` when there is none.
    pub fn link_target(&self, name: &str) -> Result<Option<String>> {
        match rustix::fs::readlinkat(&self.fd, name, Vec::new()) {
            Ok(target) => Ok(target.into_string().ok()),
            Err(Errno::NOENT | Errno::INVAL) => Ok(None),
            Err(e) => Err(Error::file("read the link", &self.path.join(name), e)),
        }
    }

    /// Renames `from` to `to` inside this directory, durably. What `to` named before is replaced if both are files.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        rustix::fs::renameat(&self.fd, from, &self.fd, to)
            .and_then(|()| rustix::fs::fsync(&self.fd))
            .map_err(|e| Error::file("rename", &self.path.join(from), e))
    }

    /// Renames the file `from` to `to_name` in the directory `to` on the same file system, where it replaces a file or
    /// link of that name. Not synced.
    pub fn move_into(&self, from: &str, to: &Self, to_name: &str) -> Result<()> {
        rustix::fs::renameat(&self.fd, from, &to.fd, to_name)
            .map_err(|e| Error::file("write the file", &to.path.join(to_name), e))
    }

    /// Removes the file or link `name`; a missing one is fine. Says whether there was one.
    pub fn remove(&self, name: &str) -> Result<bool> {
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(Error::file("remove", &self.path.join(name), e)),
        }
    }

    /// Removes the directory `name` if it is there and empty. Says whether it was removed.
    pub fn remove_empty(&self, name: &str) -> Result<bool> {
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => Ok(false),
            Err(e) => Err(Error::file(
                "remove the directory",
                &self.path.join(name),
                e,
            )),
        }
    }

    /// Removes `name` with everything below it; a missing one is fine.
    pub fn remove_tree(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        let removed = match self.kind(name)? {
            None => Ok(()),
            // The standard library walks by open directories and follows no link.
            Some(Kind::Directory) => std::fs::remove_dir_all(&path),
            Some(_) => std::fs::remove_file(&path),
        };
        match removed {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::file("remove", &path, e)),
            _ => Ok(()),
        }
    }

    /// The names in this directory, sorted. Names that are not UTF-8 cannot be ours and are left out.
    pub fn names(&self) -> Result<Vec<String>> {
        let listed = || -> io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in rustix::fs::Dir::read_from(&self.fd)? {
                if let Ok(name) = OsStr::from_bytes(entry?.file_name().to_bytes())
                    .to_os_string()
                    .into_string()
                    && name != "."
                    && name != ".."
                {
                    names.push(name);
                }
            }
            names.sort();
            Ok(names)
        };
        listed().map_err(|e| Error::file("list the directory", &self.path, e))
    }

    /// Everything written so far to the file system of this directory is on the disk when this returns: one call in
    /// place of two thousand.
    pub fn sync_filesystem(&self) -> Result<()> {
        rustix::fs::syncfs(&self.fd)
            .map_err(|e| Error::file("sync the file system of", &self.path, e))
    }

    /// Free space of the file system that this directory is on.
    pub fn free(&self) -> Result<Free> {
        rustix::fs::fstatvfs(&self.fd)
            .map(free_of)
            .map_err(|e| Error::file("measure the free space of", &self.path, e))
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What a file is called while it is written.
pub fn temporary_name(name: &str) -> String {
    format!(".{name}.tmp")
}

/// Free space of the file system that `path`, or its nearest existing parent, is on.
pub fn free_at(path: &Path) -> Result<Free> {
    let mut candidates = path.ancestors();
    loop {
        let Some(candidate) = candidates.next() else {
            return Err(Error::file("measure the free space of", path, Errno::NOENT));
        };
        match rustix::fs::statvfs(candidate) {
            Ok(stat) => return Ok(free_of(stat)),
            Err(Errno::NOENT | Errno::ACCESS | Errno::NOTDIR) => {}
            Err(e) => return Err(Error::file("measure the free space of", candidate, e)),
        }
    }
}

fn free_of(stat: rustix::fs::StatVfs) -> Free {
    Free {
        bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
        // btrfs and others have no table of inodes and report 0 of 0.
        inodes: if stat.f_files == 0 {
            u64::MAX
        } else {
            stat.f_favail
        },
    }
}

/// Reads a file that the agent is only told of (a grant, a CA), of at most `cap` bytes; `None` when there is none.
/// With `ours`, it must belong to us or root and not be writable by others.
pub fn read_file(path: &Path, cap: u64, ours: bool) -> Result<Option<Vec<u8>>> {
    match rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        Ok(fd) => {
            let stat = look_at(&fd, path)?;
            if ours {
                judge_ownership(&stat, path)?;
            }
            read_capped(&fd, &stat, path, cap).map(Some)
        }
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(Error::file("read the file", path, e)),
    }
}

/// How far a file's owner and mode can be trusted.
enum Trust {
    Good,
    TooReadable,
}

fn look_at(fd: &OwnedFd, path: &Path) -> Result<Stat> {
    rustix::fs::fstat(fd).map_err(|e| Error::file("look at", path, e))
}

fn judge_ownership(stat: &Stat, path: &Path) -> Result<Trust> {
    let unsafe_because = |why: String| {
        Err(Error::FileUnsafe {
            path: path.to_owned(),
            why,
        })
    };
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return unsafe_because("it is not a regular file".into());
    }
    let us = our_user();
    if stat.st_uid != us && stat.st_uid != 0 {
        return unsafe_because(format!(
            "it belongs to user {}, not to us ({us}) or root: chown it",
            stat.st_uid
        ));
    }
    if stat.st_mode & 0o022 != 0 {
        return unsafe_because(format!(
            "group or others may write it (mode {:04o}): chmod 600",
            stat.st_mode & 0o7777
        ));
    }
    Ok(if stat.st_mode & 0o044 != 0 {
        Trust::TooReadable
    } else {
        Trust::Good
    })
}

fn read_capped(fd: &OwnedFd, stat: &Stat, path: &Path, cap: u64) -> Result<Vec<u8>> {
    let failed = |e: io::Error| Error::file("read the file", path, e);
    let bytes = read_at_most(fd, stat, cap.saturating_add(1)).map_err(failed)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > cap {
        let why = format!("it is larger than {cap} bytes");
        return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, why)));
    }
    Ok(bytes)
}

/// What an open file has, but no more than `most` bytes. Where its size is known and true, this is one read.
///
/// # Errors
/// Those of `read`.
pub fn read_at_most(fd: &OwnedFd, stat: &Stat, most: u64) -> io::Result<Vec<u8>> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let size = usize::try_from(stat.st_size).unwrap_or(0).min(most);
    // A file in `/proc` is a regular one without a size; those that we read are short and come in one piece.
    let room = if size == 0 { 400 } else { size };
    let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let mut bytes = vec![0; room.saturating_add(1).min(most)];
    let mut len = 0;
    loop {
        let free = bytes.get_mut(len..).unwrap_or_default();
        let is_room_left = match rustix::io::read(fd, free) {
            Ok(0) => break,
            Ok(more) => {
                len += more;
                len < bytes.len()
            }
            Err(Errno::INTR) => continue,
            Err(e) => return Err(e.into()),
        };
        // Where the byte more than the size stays free, the next read would say that there is nothing.
        if len == most || (is_room_left && is_regular && len >= size) {
            break;
        }
        if !is_room_left {
            bytes.resize(len.saturating_mul(2).min(most), 0);
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

/// Our effective user, which no command of ours changes.
pub fn our_user() -> u32 {
    static US: OnceLock<u32> = OnceLock::new();
    *US.get_or_init(|| rustix::process::geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn scratch() -> (tempfile::TempDir, Dir) {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        (temp, dir)
    }

    #[test]
    fn a_write_has_its_mode_and_replaces_a_leftover() {
        let (temp, dir) = scratch();
        std::fs::write(temp.path().join(".a.tmp"), "torn").unwrap();
        dir.write("a", b"one", 0o600, Durability::Synced).unwrap();
        dir.write("a", b"two", 0o644, Durability::Renamed).unwrap();
        assert_eq!(dir.read("a", 10).unwrap().unwrap(), b"two");
        assert_eq!(
            std::fs::metadata(temp.path().join("a")).unwrap().mode() & 0o7777,
            0o644
        );
        assert_eq!(dir.names().unwrap(), ["a"]);
    }

    #[test]
    fn no_step_follows_a_link() {
        let (temp, dir) = scratch();
        std::fs::create_dir(temp.path().join("elsewhere")).unwrap();
        symlink("elsewhere", temp.path().join("sub")).unwrap();
        std::fs::write(temp.path().join("victim"), "kept").unwrap();
        symlink("victim", temp.path().join("file")).unwrap();
        assert!(dir.subdir("sub").is_err());
        assert!(dir.subdir_or_create("sub", 0o755).is_err());
        assert!(dir.read("file", 10).is_err());
        dir.write("file", b"new", 0o600, Durability::Renamed)
            .unwrap();
        assert_eq!(std::fs::read(temp.path().join("victim")).unwrap(), b"kept");
        dir.remove_tree("sub").unwrap();
        assert!(temp.path().join("elsewhere").is_dir());
    }

    #[test]
    fn a_read_has_a_cap() {
        let (_temp, dir) = scratch();
        dir.write("a", b"12345", 0o600, Durability::Renamed)
            .unwrap();
        assert!(dir.read("a", 5).is_ok());
        assert!(
            dir.read("a", 4)
                .unwrap_err()
                .to_string()
                .contains("larger than 4 bytes")
        );
        assert_eq!(dir.read("b", 4).unwrap(), None);
    }

    #[test]
    fn a_file_that_others_may_write_is_refused_and_a_readable_one_is_tightened() {
        let (temp, dir) = scratch();
        dir.write("a", b"x", 0o644, Durability::Renamed).unwrap();
        let mut warnings = Vec::new();
        dir.read_ours("a", 10, &mut |w| warnings.push(w)).unwrap();
        assert_eq!(warnings.len(), 1);
        assert_eq!(
            std::fs::metadata(temp.path().join("a")).unwrap().mode() & 0o777,
            0o600
        );
        std::fs::set_permissions(
            temp.path().join("a"),
            std::fs::Permissions::from_mode(0o620),
        )
        .unwrap();
        let error = dir.read_ours("a", 10, &mut |_| {}).unwrap_err();
        assert_eq!(error.exit().number(), 78);
        assert!(error.to_string().contains("0620"), "{error}");
    }

    #[test]
    fn a_link_is_swapped_in_one_step() {
        let (_temp, dir) = scratch();
        dir.link("current", "releases/a").unwrap();
        dir.link("current", "releases/b").unwrap();
        assert_eq!(
            dir.link_target("current").unwrap().as_deref(),
            Some("releases/b")
        );
        assert_eq!(dir.link_target("none").unwrap(), None);
        assert_eq!(dir.kind("current").unwrap(), Some(Kind::Link));
    }
}
