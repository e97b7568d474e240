//! The one runner of child processes. A child runs in a process group of its own, with a cleared environment, a
//! deadline and capped output; it inherits no descriptor of ours (all are close-on-exec). Waiting is one `poll` over its
//! output, its end (a pidfd) and the interruption, so a grandchild that keeps a pipe open cannot hang the tick. The
//! environment is never printed.

use crate::error::{Error, Result};
use crate::host::interrupt::Interrupt;
use crate::host::lock::Lock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a child has between SIGTERM and SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(8);
/// How long output may still arrive after the child itself has ended.
const DRAIN: Duration = Duration::from_millis(500);
/// The most reads of one stream before the deadline and the signals are looked at again. Together they read more than
/// an ordinary pipe holds, so that nothing an ended child wrote is lost.
const READS_AT_ONCE: usize = 16;
/// A line longer than this (bytes) is a flood, not a line, and is not shown.
const LINE_CAP_BYTES: usize = 64 * 1024;

/// What to run.
#[derive(Clone, Debug)]
pub struct Task {
    /// The program, looked up in the PATH given below.
    pub program: String,
    /// Its arguments; never a secret.
    pub args: Vec<OsString>,
    /// Its whole environment.
    pub env: Vec<(String, OsString)>,
    /// Where it runs; the root directory when `None`.
    pub directory: Option<PathBuf>,
    /// What it reads; nothing (`/dev/null`) when `None`.
    pub input: Option<zeroize::Zeroizing<Vec<u8>>>,
    /// How long it may run.
    pub limit: Duration,
    /// How much of each output stream is kept, in bytes; the middle of more is dropped.
    pub cap_bytes: usize,
    /// What a person would call it, for messages and the lock: `compose pull`.
    pub name: &'static str,
}

/// How a child ended by itself.
#[derive(Debug)]
pub struct Finished {
    /// Its exit status.
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
}

impl Finished {
    /// Whether it exited with 0.
    pub fn succeeded(&self) -> bool {
        self.status.success()
    }

    /// `exit status 3` or `signal 9`.
    pub fn how(&self) -> String {
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "an unknown end".into(),
        }
    }
}

/// Runs children for one holder of the lock.
#[derive(Clone, Copy)]
pub struct Runner<'a> {
    lock: Option<&'a Lock>,
    interrupt: &'a Interrupt,
    until: Option<Instant>,
}

impl<'a> Runner<'a> {
    /// A runner that notes each child in `lock`, stops it when `interrupt` comes and never lets it run past `until`.
    pub fn new(lock: Option<&'a Lock>, interrupt: &'a Interrupt, until: Option<Instant>) -> Self {
        Self {
            lock,
            interrupt,
            until,
        }
    }

    /// The interruption that this runner heeds.
    pub fn interrupt(&self) -> &'a Interrupt {
        self.interrupt
    }

    /// The time that is left before the tick's own deadline.
    pub fn left(&self) -> Option<Duration> {
        self.until
            .map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// Runs `task` to its end. `on_line` sees each line of standard error as it comes.
    pub fn run(&self, task: &Task, on_line: &mut dyn FnMut(&str)) -> Result<Finished> {
        if self.interrupt.is_pending() {
            return Err(Error::Interrupted {
                doing: task.name.into(),
            });
        }
        let limit = self.left().map_or(task.limit, |left| left.min(task.limit));
        if let Some(lock) = self.lock {
            lock.child_starting();
        }
        let mut child =
            spawn(task).inspect_err(|_| self.lock.into_iter().for_each(Lock::child_ended))?;
        let group = i32::try_from(child.id()).unwrap_or(0);
        if let Some(lock) = self.lock {
            lock.child_started(group);
        }
        let ended = self.watch(task, &mut child, limit, on_line);
        if let Some(lock) = self.lock {
            lock.child_ended();
        }
        ended
    }

    fn watch(
        &self,
        task: &Task,
        child: &mut Child,
        limit: Duration,
        on_line: &mut dyn FnMut(&str),
    ) -> Result<Finished> {
        let wait_error = |source| Error::Spawn {
            program: task.program.clone(),
            source,
        };
        let pid = Pid::from_child(child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| wait_error(e.into()))?;
        let mut streams = Streams::new(task, child).map_err(wait_error)?;
        let started = Instant::now();
        let mut stop: Option<(Stop, Instant)> = None;
        let mut ended: Option<Instant> = None;
        loop {
            let now = Instant::now();
            if stop.is_none() && ended.is_none() {
                if now.duration_since(started) >= limit {
                    stop = Some((Stop::Deadline, now));
                } else if self.interrupt.is_pending() {
                    stop = Some((Stop::Signal, now));
                }
                if stop.is_some() {
                    let _ = kill_process_group(pid, Signal::TERM);
                }
            }
            if let (Some((_, since)), None) = (&stop, ended)
                && now.duration_since(*since) >= TERM_GRACE
            {
                let _ = kill_process_group(pid, Signal::KILL);
            }
            if ended.is_some_and(|at| now.duration_since(at) >= DRAIN)
                || (ended.is_some() && streams.is_drained())
            {
                break;
            }
            let wake = match (ended, &stop) {
                (Some(at), _) => (at + DRAIN).saturating_duration_since(now),
                (None, Some((_, since))) => (*since + TERM_GRACE)
                    .saturating_duration_since(now)
                    .max(Duration::from_millis(10)),
                (None, None) => limit.saturating_sub(now.duration_since(started)),
            };
            let watch_signal = stop.is_none().then_some(self.interrupt);
            let pidfd_ready = streams.wait(&pidfd, ended.is_some(), watch_signal, wake);
            streams.pump(on_line);
            if pidfd_ready && ended.is_none() {
                ended = Some(Instant::now());
            }
        }
        // The child's own children must not outlive the step: a second compose beside one that still runs breaks both.
        // The ended child still holds its number until it is waited for, so the group cannot be anybody else's.
        let _ = kill_process_group(pid, Signal::KILL);
        let status = child.wait().map_err(wait_error)?;
        streams.finish(on_line);
        match stop {
            Some((Stop::Signal, _)) => Err(Error::Interrupted {
                doing: task.name.into(),
            }),
            Some((Stop::Deadline, _)) => Err(Error::Deadline {
                doing: task.name.into(),
                after_s: limit.as_secs(),
            }),
            None => Ok(Finished {
                status,
                stdout: streams.out.kept.take(),
                stderr: streams.err.kept.take(),
            }),
        }
    }
}

#[derive(Clone, Copy)]
enum Stop {
    Deadline,
    Signal,
}

fn spawn(task: &Task) -> Result<Child> {
    let mut command = Command::new(&task.program);
    command
        .args(&task.args)
        .env_clear()
        .envs(task.env.iter().map(|(k, v)| (k, v)))
        .process_group(0);
    command.stdin(if task.input.is_some() {
        Stdio::piped()
    } else {
        Stdio::null()
    });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // Ours may be gone by now, and a child that needs one would blame its own work.
    command.current_dir(task.directory.as_deref().unwrap_or(Path::new("/")));
    command.spawn().map_err(|source| Error::Spawn {
        program: task.program.clone(),
        source,
    })
}

/// The three pipes of a child.
struct Streams<'t> {
    input: Option<(std::process::ChildStdin, &'t [u8])>,
    out: Stream,
    err: Stream,
}

struct Stream {
    pipe: Option<std::fs::File>,
    kept: Kept,
    lines: Lines,
}

/// Puts lines together from the pieces that are read.
#[derive(Default)]
struct Lines {
    begun: Vec<u8>,
    too_long: bool,
}

impl Lines {
    fn push(&mut self, bytes: &[u8], on_line: &mut dyn FnMut(&str)) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !self.too_long {
                self.begun.extend_from_slice(piece);
                // No part of a long line is shown: a secret could be cut in two, and then nothing would redact it.
                self.too_long = self.begun.len() > LINE_CAP_BYTES;
            }
            if piece.ends_with(b"\n") {
                self.end(on_line);
            }
        }
    }

    fn end(&mut self, on_line: &mut dyn FnMut(&str)) {
        if !self.too_long && !self.begun.is_empty() {
            on_line(String::from_utf8_lossy(&self.begun).trim_end());
        }
        self.begun.clear();
        self.too_long = false;
    }
}

impl Stream {
    fn of(fd: Option<OwnedFd>, cap_bytes: usize) -> std::io::Result<Self> {
        if let Some(fd) = &fd {
            rustix::io::ioctl_fionbio(fd, true)?;
        }
        Ok(Self {
            pipe: fd.map(Into::into),
            kept: Kept::new(cap_bytes),
            lines: Lines::default(),
        })
    }

    /// Reads what is there, within bounds: a flood must not keep the caller here. A closed pipe is let go.
    fn pump(&mut self, on_line: Option<&mut dyn FnMut(&str)>) {
        let mut on_line = on_line;
        let mut buffer = [0; 16 * 1024];
        for _ in 0..READS_AT_ONCE {
            let Some(pipe) = &mut self.pipe else { return };
            match pipe.read(&mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(n) => {
                    let bytes = buffer.get(..n).unwrap_or_default();
                    self.kept.push(bytes);
                    if let Some(on_line) = on_line.as_mut() {
                        self.lines.push(bytes, on_line);
                    }
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(_) => self.pipe = None,
            }
        }
    }
}

impl<'t> Streams<'t> {
    fn new(task: &'t Task, child: &mut Child) -> std::io::Result<Self> {
        let input = match (child.stdin.take(), &task.input) {
            (Some(pipe), Some(bytes)) => {
                rustix::io::ioctl_fionbio(&pipe, true)?;
                Some((pipe, bytes.as_slice()))
            }
            _ => None,
        };
        let out = Stream::of(child.stdout.take().map(OwnedFd::from), task.cap_bytes)?;
        let err = Stream::of(child.stderr.take().map(OwnedFd::from), task.cap_bytes)?;
        Ok(Self { input, out, err })
    }

    fn is_drained(&self) -> bool {
        self.out.pipe.is_none() && self.err.pipe.is_none()
    }

    /// Waits for something to do, at most `wake`; says whether the child has ended.
    fn wait(
        &self,
        pidfd: &OwnedFd,
        ended: bool,
        interrupt: Option<&Interrupt>,
        wake: Duration,
    ) -> bool {
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(5);
        if !ended {
            fds.push(PollFd::new(pidfd, PollFlags::IN));
        }
        if let (Some(interrupt), false) = (interrupt, ended) {
            fds.push(PollFd::from_borrowed_fd(interrupt.as_fd(), PollFlags::IN));
        }
        if let Some((pipe, _)) = &self.input {
            fds.push(PollFd::new(pipe, PollFlags::OUT));
        }
        for stream in [&self.out, &self.err] {
            if let Some(pipe) = &stream.pipe {
                fds.push(PollFd::new(pipe, PollFlags::IN));
            }
        }
        let timeout = Timespec {
            tv_sec: i64::try_from(wake.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: wake.subsec_nanos().into(),
        };
        // An interrupted poll only means that the loop looks again.
        let _ = poll(&mut fds, Some(&timeout));
        !ended && fds.first().is_some_and(|fd| !fd.revents().is_empty())
    }

    fn pump(&mut self, on_line: &mut dyn FnMut(&str)) {
        self.feed();
        self.out.pump(None);
        self.err.pump(Some(on_line));
    }

    fn feed(&mut self) {
        while let Some((pipe, rest)) = &mut self.input {
            match pipe.write(rest) {
                Ok(n) => *rest = rest.get(n..).unwrap_or_default(),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return,
                // A child that does not read its input says so with its exit status.
                Err(_) => *rest = &[],
            }
            if rest.is_empty() {
                self.input = None;
            }
        }
    }

    fn finish(&mut self, on_line: &mut dyn FnMut(&str)) {
        self.pump(on_line);
        self.err.lines.end(on_line);
    }
}

/// The beginning and the end of a stream, each up to half of the cap.
struct Kept {
    head: Vec<u8>,
    tail: std::collections::VecDeque<u8>,
    half: usize,
    dropped: usize,
}

impl Kept {
    fn new(cap_bytes: usize) -> Self {
        Self {
            head: Vec::new(),
            tail: std::collections::VecDeque::new(),
            half: cap_bytes / 2,
            dropped: 0,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        let room = (self.half - self.head.len()).min(bytes.len());
        let (head, rest) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
        self.head.extend_from_slice(head);
        self.tail.extend(rest);
        let excess = self.tail.len().saturating_sub(self.half);
        self.tail.drain(..excess);
        self.dropped += excess;
    }

    fn take(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.head);
        if self.dropped > 0 {
            bytes.extend_from_slice(format!("\n[… {} bytes dropped …]\n", self.dropped).as_bytes());
        }
        bytes.extend(std::mem::take(&mut self.tail));
        bytes
    }
}

#[cfg(test)]
mod tests;
