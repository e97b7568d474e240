//! Who runs a command. State files belong to the agent's own user; a root shell that typed the command hands it over to
//! that user, with all of its groups, so that no root-owned file ever blocks the timer's ticks.

use crate::error::{Error, Result};
use crate::host::disk::our_user;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Re-executes this very command as the owner of `directory` when we are root and it is somebody else's; returns when
/// nothing is to be done.
///
/// # Errors
/// [`Error::WrongUser`] with the command to type, where neither `setpriv` nor `runuser` exists.
pub fn become_owner_of(directory: &Path, args: &[OsString]) -> Result<()> {
    if our_user() != 0 {
        return Ok(());
    }
    let Ok(meta) = std::fs::metadata(directory) else {
        return Ok(());
    };
    if meta.uid() == 0 {
        return Ok(());
    }
    let name = user_name(meta.uid());
    let program = std::env::current_exe()
        .map_err(|e| Error::file("find this program", Path::new("/proc/self/exe"), e))?;
    let mut setpriv = Command::new("setpriv");
    setpriv
        .arg(format!("--reuid={}", meta.uid()))
        .arg(format!("--regid={}", meta.gid()));
    // Groups come from the user's name; a number without a name has none.
    setpriv.arg(if name.is_some() {
        "--init-groups"
    } else {
        "--clear-groups"
    });
    // `exec` only returns when it failed.
    let first = setpriv.arg("--").arg(&program).args(args).exec();
    if first.kind() == std::io::ErrorKind::NotFound
        && let Some(name) = &name
    {
        let second = Command::new("runuser")
            .args(["-u", name, "--"])
            .arg(&program)
            .args(args)
            .exec();
        log::debug!("runuser: {second}");
    }
    let user = name.unwrap_or_else(|| format!("#{}", meta.uid()));
    let line = args
        .iter()
        .map(|arg| arg.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ");
    Err(Error::WrongUser {
        command: format!("sudo -u '{user}' {} {line}", program.display()),
    })
}

fn user_name(uid: u32) -> Option<String> {
    let passwd = std::fs::read_to_string("/etc/passwd").ok()?;
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}
