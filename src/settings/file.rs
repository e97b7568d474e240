//! The configuration file's bytes, from a file that nobody but root and we can have written.

use super::MAX_BYTES;
use crate::error::{Error, Result};
use crate::host::disk::{our_user, read_at_most};
use rustix::fs::{FileType, Mode, OFlags};
use std::io;
use std::path::Path;

/// Reads the file; one byte more than [`MAX_BYTES`] at most, so that a longer one shows.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let unreadable = |source: io::Error| Error::ConfigUnreadable {
        path: path.to_owned(),
        source,
    };
    // NONBLOCK: opening a FIFO must not wait for a writer. What was opened is judged, not what the path names later.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| unreadable(e.into()))?;
    let stat = rustix::fs::fstat(&file).map_err(|e| unreadable(e.into()))?;
    let why = judge(
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile,
        stat.st_mode & 0o7777,
        stat.st_uid,
        our_user(),
    );
    if let Some(why) = why {
        return Err(Error::FileUnsafe {
            path: path.to_owned(),
            why,
        });
    }
    let most = u64::try_from(MAX_BYTES)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    read_at_most(&file, &stat, most).map_err(unreadable)
}

/// Why such a file is not safe to use, if it is not.
fn judge(is_file: bool, mode: u32, owner: u32, us: u32) -> Option<String> {
    if !is_file {
        return Some("it is not a regular file".to_owned());
    }
    if mode & 0o022 != 0 {
        return Some(format!(
            "group or others may write it (mode {mode:04o}): chmod go-w"
        ));
    }
    if owner != 0 && owner != us {
        return Some(format!(
            "it belongs to user {owner}, who is neither root nor the one who runs this ({us}): chown root"
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_root_and_we_may_have_written_it() {
        let row = |is_file, mode, owner, us| judge(is_file, mode, owner, us).unwrap_or_default();
        assert_eq!(row(true, 0o640, 0, 990), "");
        assert_eq!(row(true, 0o644, 990, 990), "");
        assert_eq!(
            row(true, 0o660, 0, 990),
            "group or others may write it (mode 0660): chmod go-w"
        );
        assert_eq!(
            row(true, 0o602, 0, 990),
            "group or others may write it (mode 0602): chmod go-w"
        );
        assert_eq!(
            row(true, 0o600, 1000, 990),
            "it belongs to user 1000, who is neither root nor the one who runs this (990): chown root"
        );
        assert_eq!(row(false, 0o600, 0, 0), "it is not a regular file");
    }

    #[test]
    fn what_is_no_good_file_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        let missing = read(&path).unwrap_err();
        assert!(matches!(missing, Error::ConfigUnreadable { .. }));
        assert_eq!(missing.exit(), crate::exit::Exit::Config);
        assert!(matches!(read(dir.path()), Err(Error::FileUnsafe { .. })));

        std::fs::write(&path, "env_id: a\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o664)).unwrap();
        let loose = read(&path).unwrap_err();
        assert_eq!(loose.exit(), crate::exit::Exit::Config);
        assert_eq!(
            loose.to_string(),
            format!(
                "{} is not safe to use: group or others may write it (mode 0664): chmod go-w",
                path.display()
            )
        );
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(read(&path).unwrap(), b"env_id: a\n");

        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(read(&link).unwrap(), b"env_id: a\n");
    }

    #[test]
    fn a_fifo_is_refused_without_waiting_for_a_writer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, mode, 0).unwrap();
        assert!(matches!(read(&path), Err(Error::FileUnsafe { .. })));
    }

    #[test]
    fn no_more_than_the_cap_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        std::fs::write(&path, vec![b'#'; MAX_BYTES * 2]).unwrap();
        assert_eq!(read(&path).unwrap().len(), MAX_BYTES + 1);
    }
}
