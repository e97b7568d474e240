//! TCP below ureq: a non-blocking socket whose every wait is one `poll` of itself and of the interruption, with the time
//! that the request has left. So a signal ends a connect, a TLS handshake and a body alike, without a thread that watches
//! and without a time-out to set before each read. TLS is ureq's own, chained behind this.
//!
//! What is written is held back until an answer is awaited: head and body, or the end of a handshake and the request, go
//! out as one, so that nothing small waits for the acknowledgement of something small before it.

mod space;

use crate::host::interrupt::{Interrupt, Woken};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use space::Space;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, NextTimeout, Transport};
use ureq::{Error, Timeout};

/// Opens sockets that a signal ends.
#[derive(Debug)]
pub struct SocketConnector {
    interrupt: Interrupt,
}

impl SocketConnector {
    /// One whose connections end with `interrupt`.
    pub fn new(interrupt: &Interrupt) -> Self {
        Self {
            interrupt: interrupt.clone(),
        }
    }

    fn dial(&self, address: SocketAddr, limit: Duration) -> Result<OwnedFd, Error> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)
            .map_err(io::Error::from)?;
        match rustix::net::connect(&socket, &address) {
            // A signal does not take back a connect that has begun.
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
            Err(e) => return Err(io::Error::from(e).into()),
        }
        let ready = wait(
            &self.interrupt,
            &socket,
            PollFlags::OUT,
            limit,
            Timeout::Connect,
        )?;
        if ready.intersects(PollFlags::ERR | PollFlags::HUP) {
            sockopt::socket_error(&socket)
                .and_then(|failed| failed)
                .map_err(io::Error::from)?;
        }
        Ok(socket)
    }
}

impl Connector for SocketConnector {
    type Out = Socket;

    /// The addresses are tried in turn: each has half of the time that is left, the last one all of it.
    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<Socket>, Error> {
        let started = Instant::now();
        let mut failed = Error::HostNotFound;
        let mut addresses = details.addrs.iter().copied().peekable();
        while let Some(address) = addresses.next() {
            let left = details.timeout.after.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Err(Error::Timeout(details.timeout.reason));
            }
            let share = match addresses.peek() {
                Some(_) => left / 2,
                None => left,
            };
            failed = match self.dial(address, share) {
                Ok(socket) => {
                    return Ok(Some(Socket {
                        socket,
                        interrupt: self.interrupt.clone(),
                        space: Space::new(
                            details.config.input_buffer_size(),
                            details.config.output_buffer_size(),
                        ),
                    }));
                }
                Err(Error::Io(e)) if !is_of_one_address(&e) => return Err(Error::Io(e)),
                Err(e) => e,
            };
        }
        Err(match failed {
            Error::Timeout(_) => Error::Timeout(details.timeout.reason),
            other => other,
        })
    }
}

/// Whether another address of the host may do better.
fn is_of_one_address(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::AddrNotAvailable
            | io::ErrorKind::TimedOut
    )
}

/// Waits until the socket is ready for `flags`; a signal and the end of the time are errors.
fn wait(
    interrupt: &Interrupt,
    socket: &OwnedFd,
    flags: PollFlags,
    limit: Duration,
    reason: Timeout,
) -> Result<PollFlags, Error> {
    match interrupt.wait_for(socket, flags, limit)? {
        Woken::Ready(ready) => Ok(ready),
        Woken::TimeUp => Err(Error::Timeout(reason)),
        // Not ErrorKind::Interrupted, upon which everybody tries again.
        Woken::Interrupted => Err(io::Error::other("stopped by a signal").into()),
    }
}

/// A connection.
#[derive(Debug)]
pub struct Socket {
    socket: OwnedFd,
    interrupt: Interrupt,
    space: Space,
}

impl Socket {
    /// Sends what was held back. Where that fails, the rest is never sent: nobody could say what the peer made of it.
    fn send(&mut self, timeout: &NextTimeout, started: Instant) -> Result<(), Error> {
        let sent = self.send_all(timeout, started);
        self.space.forget_held_back();
        sent
    }

    fn send_all(&self, timeout: &NextTimeout, started: Instant) -> Result<(), Error> {
        let mut rest = self.space.held_back();
        while !rest.is_empty() {
            match rustix::net::send(&self.socket, rest, SendFlags::NOSIGNAL) {
                Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, timeout, started)?,
                Err(Errno::INTR) => {}
                Err(e) => return Err(io::Error::from(e).into()),
            }
        }
        Ok(())
    }

    fn wait(&self, flags: PollFlags, left: &NextTimeout, started: Instant) -> Result<(), Error> {
        let limit = left.after.saturating_sub(started.elapsed());
        wait(&self.interrupt, &self.socket, flags, limit, left.reason).map(|_| ())
    }
}

impl Transport for Socket {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.space
    }

    fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), Error> {
        self.space.hold_back(amount);
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let started = Instant::now();
        self.send(&timeout.for_write(), started)?;
        let timeout = timeout.for_read();
        loop {
            // An answer takes its time: asked first, the socket would only say so.
            self.wait(PollFlags::IN, &timeout, started)?;
            let input = self.space.input_append_buf();
            match rustix::net::recv(&self.socket, input, RecvFlags::empty()) {
                Ok((amount, _)) => {
                    self.space.input_appended(amount);
                    return Ok(amount > 0);
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(e) => return Err(io::Error::from(e).into()),
            }
        }
    }

    /// An idle connection is silent: what there is to read is its end, or something that nobody asked for. After a signal
    /// none is used again, and no other can be opened.
    fn is_open(&mut self) -> bool {
        let seen = self
            .interrupt
            .wait_for(&self.socket, PollFlags::IN, Duration::ZERO);
        matches!(seen, Ok(Woken::TimeUp))
    }
}

impl Drop for Socket {
    /// The alert of a TLS handshake that failed awaits no answer. The server's log is where an operator looks for it.
    fn drop(&mut self) {
        let rest = self.space.held_back();
        if !rest.is_empty() {
            // There is nobody left to tell, and nothing to wait for.
            let _ = rustix::net::send(&self.socket, rest, SendFlags::NOSIGNAL);
        }
    }
}

#[cfg(test)]
mod tests;
