//! Writes the members of a verified bundle below a directory. The directory is ours alone, exists, and is empty; every
//! entry in it is created here and must not have been there, so nothing that an earlier run or anybody else left is
//! followed or overwritten. Modes are set explicitly, for the process runs with umask 077 and containers that are not
//! root must read what they mount. Nothing is synced: one `syncfs` by the caller is cheaper than 2,000 `fsync`s.

use super::verify::VerifiedBundle;
use crate::error::{Error, Result};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const PLAIN: u32 = 0o644;
const EXECUTABLE: u32 = 0o755;
const DIRECTORY: u32 = 0o755;

/// Writes every member below `root`, an empty directory.
pub fn unpack(bundle: &VerifiedBundle, root: &Path) -> Result<()> {
    check_empty(root)?;
    for path in bundle.directories() {
        let path = root.join(path.as_str());
        make_directory(&path)
            .map_err(|e| Error::file("make a directory of the bundle", &path, e))?;
    }
    for (path, bytes, executable) in bundle.members() {
        let path = root.join(path.as_str());
        let mode = if executable { EXECUTABLE } else { PLAIN };
        write_member(&path, bytes, mode)
            .map_err(|e| Error::file("write a member of the bundle", &path, e))?;
    }
    Ok(())
}

fn check_empty(root: &Path) -> Result<()> {
    let doing = "unpack the bundle";
    let meta = fs::symlink_metadata(root).map_err(|e| Error::file(doing, root, e))?;
    if !meta.is_dir() {
        return Err(Error::file(
            doing,
            root,
            io::Error::from(io::ErrorKind::NotADirectory),
        ));
    }
    let mut entries = fs::read_dir(root).map_err(|e| Error::file(doing, root, e))?;
    if entries.next().is_some() {
        let kind = io::ErrorKind::DirectoryNotEmpty;
        return Err(Error::file(doing, root, io::Error::from(kind)));
    }
    Ok(())
}

fn make_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(DIRECTORY).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(DIRECTORY))
}

fn write_member(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file: File = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    file.write_all(bytes)?;
    file.set_permissions(Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::testing::{Tar, minimal};

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn members_land_with_the_modes_that_containers_need() {
        let dir = tempfile::tempdir().unwrap();
        let bundle = Tar::new()
            .members(minimal())
            .entry(b'5', "conf/", 0o2775, b"")
            .file_with_mode("bin/deep/run.sh", 0o4710, b"#!/bin/sh\n")
            .file_with_mode("conf/a", 0o600, b"a")
            .verified();
        unpack(&bundle, dir.path()).unwrap();
        assert_eq!(mode(&dir.path().join("bin/deep/run.sh")), 0o755);
        assert_eq!(mode(&dir.path().join("conf/a")), 0o644);
        assert_eq!(mode(&dir.path().join("docker-compose.yml")), 0o644);
        for inner in ["bin", "bin/deep", "conf"] {
            assert_eq!(mode(&dir.path().join(inner)), 0o755, "{inner}");
        }
        assert_eq!(fs::read(dir.path().join("conf/a")).unwrap(), b"a");
    }

    #[test]
    fn a_directory_that_is_not_empty_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let bundle = Tar::new().members(minimal()).verified();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("meta.json")).unwrap();
        let error = unpack(&bundle, dir.path()).unwrap_err().to_string();
        assert!(error.contains("not empty"), "{error}");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(tempfile::tempdir().unwrap().path(), &link).unwrap();
        assert!(unpack(&bundle, &link).is_err());
        assert!(unpack(&bundle, &dir.path().join("missing")).is_err());
    }
}
