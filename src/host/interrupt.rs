//! SIGTERM and SIGINT as something to wait for: the handler writes a byte into a pipe that is polled and never read, so
//! that every thread and every wait of the tick sees the same interruption. Callbacks (closing connections) run on a
//! thread that starts when the first one is registered.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

type Callback = Box<dyn FnOnce() + Send>;

/// A shared handle on the process's interruption.
#[derive(Clone)]
pub struct Interrupt {
    receiver: Arc<UnixStream>,
    callbacks: Arc<Mutex<Option<Vec<Callback>>>>,
}

impl Interrupt {
    /// Catches SIGTERM and SIGINT from now on.
    pub fn catch() -> io::Result<Self> {
        let (receiver, sender) = UnixStream::pair()?;
        for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
            signal_hook::low_level::pipe::register(signal.as_raw(), sender.try_clone()?)?;
        }
        Ok(Self {
            receiver: Arc::new(receiver),
            callbacks: Arc::default(),
        })
    }

    /// One that never comes, for programs and tests that leave the signals alone.
    pub fn never() -> io::Result<Self> {
        let (receiver, sender) = UnixStream::pair()?;
        // The other end must stay open: a closed one would read as an interruption.
        std::mem::forget(sender);
        Ok(Self {
            receiver: Arc::new(receiver),
            callbacks: Arc::default(),
        })
    }

    /// Whether a signal came.
    pub fn is_pending(&self) -> bool {
        self.wait(std::time::Duration::ZERO)
    }

    /// Waits at most `limit` for a signal; says whether one came.
    pub fn wait(&self, limit: std::time::Duration) -> bool {
        let until = std::time::Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(std::time::Instant::now());
            let timeout = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            match poll(
                &mut [PollFd::new(&*self.receiver, PollFlags::IN)],
                Some(&timeout),
            ) {
                Ok(ready) => return ready > 0,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    /// Runs `callback` on another thread as soon as a signal comes.
    pub fn on_signal(&self, callback: impl FnOnce() + Send + 'static) {
        let mut callbacks = self
            .callbacks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(registered) = callbacks.as_mut() {
            registered.push(Box::new(callback));
            return;
        }
        *callbacks = Some(vec![Box::new(callback)]);
        let watched = self.clone();
        // Without the thread a signal still ends the tick, only not in the middle of a request.
        let _ = std::thread::Builder::new()
            .name("signals".into())
            .stack_size(64 * 1024)
            .spawn(move || {
                while !watched.wait(std::time::Duration::from_secs(3_600)) {}
                let callbacks = watched
                    .callbacks
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take();
                for callback in callbacks.into_iter().flatten() {
                    callback();
                }
            });
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
    use std::time::Duration;

    #[test]
    fn a_signal_is_seen_by_every_wait_and_runs_the_callbacks() {
        let interrupt = Interrupt::catch().unwrap();
        assert!(!interrupt.is_pending());
        let (sender, receiver) = std::sync::mpsc::channel();
        interrupt.on_signal(move || sender.send(()).unwrap());
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM)
            .unwrap();
        assert!(interrupt.wait(Duration::from_secs(5)));
        assert!(interrupt.clone().is_pending());
        receiver.recv_timeout(Duration::from_secs(5)).unwrap();
    }
}
