//! SIGINT, SIGTERM and SIGHUP: noted, and passed on to the agent if it runs. The story ends at the next step's end, and
//! with it everything is cleaned up.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// A handle; clones are about the same signals.
#[derive(Clone, Default)]
pub struct Signals {
    arrived: Arc<AtomicBool>,
    child: Arc<Mutex<Option<Pid>>>,
}

impl Signals {
    /// Catches them from here on.
    pub fn catch() -> io::Result<Self> {
        let signals = Self::default();
        let (wake, mut signalled) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::low_level::pipe::register(signal, wake.try_clone()?)?;
        }
        let noting = signals.clone();
        thread::spawn(move || {
            while signalled.read_exact(&mut [0]).is_ok() {
                noting.arrived.store(true, Ordering::SeqCst);
                if let Some(pid) = *noting.child.lock().unwrap_or_else(PoisonError::into_inner) {
                    // It may have ended this instant.
                    let _ = kill_process(pid, Signal::TERM);
                }
            }
        });
        Ok(signals)
    }

    /// Whether one came.
    pub fn arrived(&self) -> bool {
        self.arrived.load(Ordering::SeqCst)
    }

    /// Names the process that signals go on to; none when it has ended.
    pub fn pass_to(&self, child: Option<&std::process::Child>) {
        let pid = child.map(Pid::from_child);
        *self.child.lock().unwrap_or_else(PoisonError::into_inner) = pid;
    }
}
