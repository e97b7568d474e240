//! SIGTERM and SIGINT as something to wait for: the handler writes a byte into a pipe that is polled and never read, so
//! that every thread and every wait of the tick, also one for a peer, sees the same interruption.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A shared handle on the process's interruption.
#[derive(Clone, Debug)]
pub struct Interrupt {
    receiver: Arc<UnixStream>,
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// A signal, now or earlier.
    Interrupted,
    /// What was waited for, in this state.
    Ready(PollFlags),
    /// The time is up.
    TimeUp,
}

impl Interrupt {
    /// Catches SIGTERM and SIGINT from now on.
    pub fn catch() -> io::Result<Self> {
        use rustix::process::Signal;
        let (receiver, sender) = UnixStream::pair()?;
        let second = rustix::io::fcntl_dupfd_cloexec(&sender, 0)?;
        signal_hook::low_level::pipe::register(Signal::TERM.as_raw(), second)?;
        signal_hook::low_level::pipe::register(Signal::INT.as_raw(), sender)?;
        Ok(Self {
            receiver: Arc::new(receiver),
        })
    }

    /// One that never comes, for programs and tests that leave the signals alone.
    pub fn never() -> io::Result<Self> {
        let (receiver, sender) = UnixStream::pair()?;
        // The other end must stay open: a closed one would read as an interruption.
        std::mem::forget(sender);
        Ok(Self {
            receiver: Arc::new(receiver),
        })
    }

    /// One that comes when the other end of the pair is written to.
    #[cfg(test)]
    pub(crate) fn from_receiver(receiver: UnixStream) -> Self {
        Self {
            receiver: Arc::new(receiver),
        }
    }

    /// Whether a signal came.
    pub fn is_pending(&self) -> bool {
        self.wait(Duration::ZERO)
    }

    /// Waits at most `limit` for a signal; says whether one came.
    pub fn wait(&self, limit: Duration) -> bool {
        let mut watched = [self.watched()];
        matches!(poll_until(&mut watched, until(limit)), Ok(ready) if ready > 0)
    }

    /// Waits at most `limit` until `other` is ready for `flags`, or broken. A signal comes first, also one from before.
    ///
    /// # Errors
    /// Those of `poll`, other than an interruption of the call.
    pub fn wait_for(
        &self,
        other: impl AsFd,
        flags: PollFlags,
        limit: Duration,
    ) -> io::Result<Woken> {
        let mut watched = [
            self.watched(),
            PollFd::from_borrowed_fd(other.as_fd(), flags),
        ];
        poll_until(&mut watched, until(limit))?;
        let [signal, other] = watched.map(|fd| fd.revents());
        Ok(match (signal.is_empty(), other.is_empty()) {
            (false, _) => Woken::Interrupted,
            (true, false) => Woken::Ready(other),
            (true, true) => Woken::TimeUp,
        })
    }

    fn watched(&self) -> PollFd<'_> {
        PollFd::from_borrowed_fd(self.receiver.as_fd(), PollFlags::IN)
    }
}

/// The instant `limit` from now; none where the clock does not reach that far.
fn until(limit: Duration) -> Option<Instant> {
    Instant::now().checked_add(limit)
}

/// Polls until something is ready or that instant, however often a signal interrupts the call itself.
fn poll_until(watched: &mut [PollFd<'_>], until: Option<Instant>) -> rustix::io::Result<usize> {
    loop {
        let timeout = until.map(|until| {
            let left = until.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        match poll(watched, timeout.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            polled => return polled,
        }
    }
}

impl AsFd for Interrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_signal_is_seen_by_every_wait_and_comes_before_anything_else() {
        let interrupt = Interrupt::catch().unwrap();
        assert!(!interrupt.is_pending());
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let wait = |limit| interrupt.wait_for(&ours, PollFlags::IN, limit).unwrap();
        assert_eq!(wait(Duration::ZERO), Woken::TimeUp);
        theirs.write_all(b"x").unwrap();
        assert_eq!(wait(Duration::MAX), Woken::Ready(PollFlags::IN));
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM)
            .unwrap();
        assert!(interrupt.wait(Duration::from_secs(5)));
        assert!(interrupt.clone().is_pending());
        assert_eq!(wait(Duration::MAX), Woken::Interrupted);
    }
}
