//! The tick's lock: `flock` on a file in the state directory. Whoever reads or replaces the state holds the [`Lock`],
//! so it is an argument of those functions. The file says who holds it since when and at which stage, and names the
//! process group of a running child, so that the next holder can end what a killed tick left behind.

use crate::error::{Error, Result};
use crate::host::clock::Timestamp;
use crate::host::disk::{self, Dir, temporary_name};
use crate::host::interrupt::Interrupt;
use crate::host::paths::state_dir;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a left-behind process group has between SIGTERM and SIGKILL.
const LEFTOVER_GRACE: Duration = Duration::from_secs(10);
const RECORD_CAP_BYTES: u64 = 4_096;
const ENVIRON_CAP_BYTES: u64 = 1024 * 1024;

/// What the lock file says of its holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The holder's process.
    pub pid: i32,
    /// When that process started, in the kernel's clock ticks since boot: with the pid, its identity.
    pub started_ticks: u64,
    /// The session that the holder and its children belong to.
    pub session: i32,
    /// Since when the lock is held.
    pub since: Timestamp,
    /// What the holder is doing.
    pub stage: String,
    /// The running child's process group.
    pub child: Option<Child>,
    /// A child is about to start, and its group is not known yet.
    #[serde(default)]
    pub is_spawning: bool,
}

/// A child's process group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Child {
    /// The group, which is the leader's pid.
    pub group: i32,
    /// When the leader started, in clock ticks since boot.
    pub started_ticks: u64,
}

/// Proof that this process holds the lock.
#[derive(Debug)]
pub struct Lock {
    file: File,
    holder: RefCell<Holder>,
}

/// What to do when somebody else holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contended {
    /// Fail at once, naming the holder.
    Fail,
    /// Wait until it is free or a signal comes.
    Wait,
}

impl Lock {
    /// Takes the lock of `dir` and ends the process group that a killed holder left behind; `report` is told of it.
    pub fn acquire(
        dir: &Dir,
        contended: Contended,
        interrupt: &Interrupt,
        report: &mut dyn FnMut(String),
    ) -> Result<Self> {
        let path = dir.path().join(state_dir::LOCK);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file: File = rustix::fs::openat(dir, state_dir::LOCK, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|e| Error::file("open the lock", &path, e))?
            .into();
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) if contended == Contended::Fail => {
                    let holder = read_holder(&file)
                        .map_or_else(|| "its holder cannot be read".into(), |h| h.describe());
                    return Err(Error::Locked { path, holder });
                }
                Err(Errno::WOULDBLOCK) => {
                    if interrupt.wait(Duration::from_millis(200)) {
                        return Err(Error::Interrupted {
                            doing: "waiting for the lock".into(),
                        });
                    }
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(Error::file("take the lock", &path, e)),
            }
        }
        if let Some(before) = read_holder(&file) {
            end_leftover(dir, &before, report);
            remove_temporaries(dir);
        }
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        // From /proc, not by getsid: in a pid namespace whose session leader is outside, the session is 0, for which
        // rustix has no value.
        let own = process_stat(pid);
        let holder = Holder {
            pid,
            started_ticks: own.as_ref().map_or(0, |stat| stat.started_ticks),
            session: own.as_ref().map_or(0, |stat| stat.session),
            since: Timestamp::now(),
            stage: "start".into(),
            child: None,
            is_spawning: false,
        };
        let lock = Self {
            file,
            holder: RefCell::new(holder),
        };
        lock.store();
        Ok(lock)
    }

    /// Notes what the holder is doing, for whoever finds the lock held.
    pub fn enter(&self, stage: &str) {
        self.holder.borrow_mut().stage = stage.to_owned();
        self.store();
    }

    /// The present stage.
    pub fn stage(&self) -> String {
        self.holder.borrow().stage.clone()
    }

    /// Notes that a child is about to start: whoever is killed right after that still leaves a trace of it.
    pub fn child_starting(&self) {
        self.holder.borrow_mut().is_spawning = true;
        self.store();
    }

    /// Notes that a child with this process group runs.
    pub fn child_started(&self, group: i32) {
        let started_ticks = process_stat(group).map_or(0, |stat| stat.started_ticks);
        self.holder.borrow_mut().is_spawning = false;
        self.holder.borrow_mut().child = Some(Child {
            group,
            started_ticks,
        });
        self.store();
    }

    /// Notes that no child runs any more.
    pub fn child_ended(&self) {
        self.holder.borrow_mut().is_spawning = false;
        self.holder.borrow_mut().child = None;
        self.store();
    }

    /// Best effort: the record serves messages and cleaning up; the lock itself does not depend on it.
    fn store(&self) {
        if let Ok(text) = serde_json::to_string(&*self.holder.borrow()) {
            // What a longer record before leaves behind the line's end is not read.
            let _ = self.file.write_all_at(format!("{text}\n").as_bytes(), 0);
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // An empty record says that nothing was left behind. The lock is released by name, not by closing: a child
        // between fork and exec still holds the descriptor.
        let _ = self.file.set_len(0);
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

impl Holder {
    /// `pid 4711 since 2026-09-08 14:02 UTC, at compose pull`.
    pub fn describe(&self) -> String {
        format!(
            "pid {} since {}, at {}",
            self.pid,
            self.since.to_minute(),
            self.stage
        )
    }
}

/// Who holds the lock of `dir` now; `None` when nobody does. It takes no lock itself, or a glance at the status would
/// make a tick fail: a record counts while its process, by pid and start time, is alive.
pub fn current_holder(dir: &Dir) -> Option<Holder> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file: File = rustix::fs::openat(dir, state_dir::LOCK, flags, Mode::empty())
        .ok()?
        .into();
    read_holder(&file).filter(|holder| {
        process_stat(holder.pid).is_some_and(|stat| stat.started_ticks == holder.started_ticks)
    })
}

fn read_holder(file: &File) -> Option<Holder> {
    let len = file.metadata().ok()?.len();
    if len == 0 || len > RECORD_CAP_BYTES {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(len).ok()?];
    file.read_exact_at(&mut bytes, 0).ok()?;
    serde_json::from_slice(bytes.split(|b| *b == b'\n').next()?).ok()
}

/// What `/proc/<pid>/stat` says.
struct ProcessStat {
    /// It has ended, and its parent has not asked how yet: a first process that never asks is common in containers.
    has_ended: bool,
    group: i32,
    session: i32,
    started_ticks: u64,
}

fn process_stat(pid: i32) -> Option<ProcessStat> {
    let bytes = disk::read_file(
        Path::new(&format!("/proc/{pid}/stat")),
        RECORD_CAP_BYTES,
        false,
    )
    .ok()??;
    let text = String::from_utf8_lossy(&bytes);
    // The command name, in parentheses, may itself hold spaces and parentheses.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    Some(ProcessStat {
        has_ended: matches!(fields.next()?, "Z" | "X"),
        group: fields.nth(1)?.parse().ok()?,
        session: fields.next()?.parse().ok()?,
        started_ticks: fields.nth(15)?.parse().ok()?,
    })
}

/// Ends the process group that `before` left running: SIGTERM, ten seconds, SIGKILL. A group whose number was taken over
/// by somebody else is left alone: the leader must have the recorded start time or, when it is gone, the members must
/// be of the holder's session and not older than the leader was.
fn end_leftover(dir: &Dir, before: &Holder, report: &mut dyn FnMut(String)) {
    let unknown = before
        .is_spawning
        .then(|| unrecorded_child(dir, before))
        .flatten();
    let Some(child) = before.child.clone().or(unknown) else {
        return;
    };
    let Some(group) = Pid::from_raw(child.group).filter(|_| child.group > 1) else {
        return;
    };
    if !is_left_running(&child, before.session) {
        return;
    }
    report(format!(
        "ending process group {} that an interrupted tick left running at {}",
        child.group, before.stage
    ));
    let _ = rustix::process::kill_process_group(group, Signal::TERM);
    let until = Instant::now() + LEFTOVER_GRACE;
    while is_left_running(&child, before.session) {
        if Instant::now() >= until {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Half-written files of a killed holder: nobody reads them, and they may hold a token or a credential.
fn remove_temporaries(dir: &Dir) {
    let secret = [
        state_dir::TOKEN,
        state_dir::LEASE,
        state_dir::STATE,
        state_dir::LAST_APPLY_LOG,
    ];
    for name in secret {
        // Best effort: what stays is replaced by the next write of the same file.
        let _ = dir.remove(&temporary_name(name));
    }
    if let Ok(Some(docker)) = dir.subdir(state_dir::DOCKER) {
        let _ = docker.remove(&temporary_name(state_dir::DOCKER_CONFIG));
    }
}

/// The child of a holder that was killed between starting it and noting it: the leader of a group of its own, in the
/// holder's session, younger than the holder, and with this directory's docker configuration in its environment, which
/// nobody else has.
fn unrecorded_child(dir: &Dir, before: &Holder) -> Option<Child> {
    let mark = format!(
        "DOCKER_CONFIG={}",
        dir.path().join(state_dir::DOCKER).display()
    );
    let is_marked = |pid: i32| {
        let path = format!("/proc/{pid}/environ");
        let environ = disk::read_file(Path::new(&path), ENVIRON_CAP_BYTES, false)
            .ok()
            .flatten();
        environ.is_some_and(|environ| {
            environ
                .split(|b| *b == 0)
                .any(|variable| variable == mark.as_bytes())
        })
    };
    processes()
        .filter(|(pid, stat)| {
            *pid == stat.group && stat.session == before.session && !stat.has_ended
        })
        .filter(|(_, stat)| stat.started_ticks >= before.started_ticks)
        .find(|(pid, _)| is_marked(*pid))
        .map(|(group, stat)| Child {
            group,
            started_ticks: stat.started_ticks,
        })
}

fn is_left_running(child: &Child, session: i32) -> bool {
    match process_stat(child.group).filter(|leader| !leader.has_ended) {
        Some(leader) => leader.started_ticks == child.started_ticks && leader.group == child.group,
        None => group_members(child.group)
            .iter()
            .any(|member| member.session == session && member.started_ticks >= child.started_ticks),
    }
}

fn group_members(group: i32) -> Vec<ProcessStat> {
    processes()
        .map(|(_, stat)| stat)
        .filter(|stat| stat.group == group && !stat.has_ended)
        .collect()
}

/// Every process that `/proc` shows us.
fn processes() -> impl Iterator<Item = (i32, ProcessStat)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| Some((pid, process_stat(pid)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    fn acquire(dir: &Dir) -> Result<Lock> {
        Lock::acquire(
            dir,
            Contended::Fail,
            &Interrupt::never().unwrap(),
            &mut |_| {},
        )
    }

    #[test]
    fn a_held_lock_names_its_holder_and_stage() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        assert_eq!(current_holder(&dir), None);
        let lock = acquire(&dir).unwrap();
        lock.enter("compose pull");
        let error = acquire(&dir).unwrap_err();
        assert_eq!(error.exit().number(), 75);
        let text = error.to_string();
        assert!(
            text.contains(&format!("pid {}", std::process::id())) && text.contains("compose pull"),
            "{text}"
        );
        assert_eq!(current_holder(&dir).unwrap().stage, "compose pull");
        drop(lock);
        assert_eq!(current_holder(&dir), None);
        assert!(acquire(&dir).is_ok());
    }

    /// Leaves a lock record behind as a killed tick does.
    fn leave_record(dir: &Dir, child: Option<Child>) {
        let record = Holder {
            pid: 1,
            started_ticks: 0,
            session: process_stat(i32::try_from(std::process::id()).unwrap())
                .unwrap()
                .session,
            since: Timestamp::now(),
            stage: "compose up".into(),
            is_spawning: child.is_none(),
            child,
        };
        std::fs::write(
            dir.path().join(state_dir::LOCK),
            serde_json::to_string(&record).unwrap(),
        )
        .unwrap();
    }

    #[test]
    fn what_a_killed_tick_left_running_is_ended_and_nothing_else() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        let mut left = Command::new("sleep")
            .arg("600")
            .process_group(0)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let group = i32::try_from(left.id()).unwrap();
        let started_ticks = process_stat(group).unwrap().started_ticks;

        // The same number with another start time is somebody else.
        leave_record(
            &dir,
            Some(Child {
                group,
                started_ticks: started_ticks + 1,
            }),
        );
        drop(acquire(&dir).unwrap());
        assert!(left.try_wait().unwrap().is_none());

        leave_record(
            &dir,
            Some(Child {
                group,
                started_ticks,
            }),
        );
        let waiter = std::thread::spawn(move || left.wait().unwrap());
        let mut told = Vec::new();
        drop(
            Lock::acquire(
                &dir,
                Contended::Fail,
                &Interrupt::never().unwrap(),
                &mut |line| told.push(line),
            )
            .unwrap(),
        );
        assert!(!waiter.join().unwrap().success());
        assert!(
            told.iter().any(|line| line.contains("compose up")),
            "{told:?}"
        );
    }

    #[test]
    fn a_child_that_was_never_noted_is_found_by_its_mark() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        let start = |config: &Path| {
            let mut command = Command::new("sleep");
            command
                .arg("600")
                .process_group(0)
                .env("DOCKER_CONFIG", config)
                .spawn()
                .unwrap()
        };
        let mut ours = start(&temp.path().join("docker"));
        let mut theirs = start(Path::new("/elsewhere/docker"));
        // The environment is there once the new program is.
        while !std::fs::read(format!("/proc/{}/cmdline", ours.id()))
            .unwrap()
            .starts_with(b"sleep")
        {
            std::thread::yield_now();
        }
        leave_record(&dir, None);
        let waiter = std::thread::spawn(move || ours.wait().unwrap());
        drop(acquire(&dir).unwrap());
        assert!(!waiter.join().unwrap().success());
        assert!(theirs.try_wait().unwrap().is_none());
        theirs.kill().unwrap();
        theirs.wait().unwrap();
    }

    #[test]
    fn a_garbled_record_is_no_obstacle() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        std::fs::write(temp.path().join(state_dir::LOCK), "\0\0{").unwrap();
        assert!(acquire(&dir).is_ok());
    }
}
