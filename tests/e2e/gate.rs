//! A door in front of a registry. Closed, it takes connections and keeps them waiting, so that a test knows the moment at
//! which a pull is under way, and the pull ends no sooner than the test wants.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::lab::PATIENCE;

/// The door; closed when made, and gone on drop.
pub struct Gate {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    behind: String,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_open: bool,
    is_gone: bool,
    knocks: usize,
}

impl Gate {
    /// A closed door in front of `behind`, which is HOST:PORT.
    pub fn in_front_of(behind: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            behind: behind.to_owned(),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let door = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().filter_map(Result::ok) {
                if door.lock().is_gone {
                    return;
                }
                let door = Arc::clone(&door);
                thread::spawn(move || door.let_in(stream));
            }
        });
        Self { addr, shared }
    }

    /// `127.0.0.1:PORT`, as in an image's name.
    pub fn host(&self) -> String {
        self.addr.to_string()
    }

    /// Lets everybody in, those who wait already, too.
    pub fn open(&self) {
        self.shared.change(|state| state.is_open = true);
    }

    /// Waits until somebody stands at the door.
    #[track_caller]
    pub fn wait_for_a_knock(&self) {
        let nobody = |state: &mut State| state.knocks == 0;
        let waited = self
            .shared
            .changed
            .wait_timeout_while(self.shared.lock(), PATIENCE, nobody);
        let waited = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!waited.1.timed_out(), "nobody came to the registry");
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.shared.change(|state| state.is_gone = true);
        // The listening thread looks up.
        let _ = TcpStream::connect(self.addr);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Both ends may hang up at any time; that is their business.
    fn let_in(&self, client: TcpStream) {
        self.change(|state| state.knocks += 1);
        let closed = |state: &mut State| !state.is_open && !state.is_gone;
        let waited = self.changed.wait_while(self.lock(), closed);
        if waited.unwrap_or_else(PoisonError::into_inner).is_gone {
            return;
        }
        let Ok(server) = TcpStream::connect(&self.behind) else {
            return;
        };
        let pair = client.try_clone().ok().zip(server.try_clone().ok());
        let Some((client_reader, server_reader)) = pair else {
            return;
        };
        thread::spawn(move || pass_on(client_reader, server));
        pass_on(server_reader, client);
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}
