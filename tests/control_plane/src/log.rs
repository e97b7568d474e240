//! Owns the record of everything the two servers received, kept from the moment a request has arrived.
//!
//! Takes requests and their outcome from the servers, gives tests counts, copies and waits; never drops or hides a header,
//! because leak tests look for secrets in it.

use std::io::Write;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Peer;
use crate::clock;
use crate::http::Request;
use crate::sync::lock;

/// One request that arrived.
#[derive(Clone, Debug)]
pub struct Logged {
    /// Position since the start; survives `clear`.
    pub id: u64,
    /// Which server it came to.
    pub peer: Peer,
    /// The connection's number, counted over both servers from 1.
    pub connection: u64,
    /// When it was complete, since the Unix epoch.
    pub at: Duration,
    /// The request, headers and body as sent.
    pub request: Request,
    /// The status answered; None while unanswered, and for ever when a fault kept the answer back.
    pub status: Option<u16>,
    /// Body bytes put on the wire (what a fault cut or padded, too).
    pub sent: u64,
    /// The fault rule that took part.
    pub fault: Option<u64>,
}

impl Logged {
    /// One line of `log.jsonl`.
    pub fn to_json(&self) -> Value {
        json!({
            "id": self.id,
            "peer": self.peer.as_str(),
            "connection": self.connection,
            "at": clock::rfc3339(self.at),
            "method": self.request.method,
            "target": self.request.target,
            "headers": self.request.headers,
            "body": String::from_utf8_lossy(&self.request.body),
            "status": self.status,
            "sent": self.sent,
            "fault": self.fault,
        })
    }
}

#[derive(Default)]
struct Inner {
    requests: Vec<Logged>,
    connections: Vec<(u64, Peer)>,
    tls_errors: Vec<(Peer, String)>,
    next_request: u64,
    next_connection: u64,
    sink: Option<Box<dyn Write + Send>>,
}

/// The record, shared by both servers.
#[derive(Default)]
pub struct Log {
    inner: Mutex<Inner>,
    changed: Condvar,
}

impl Log {
    /// All requests since the start or the last `clear`, in order of arrival.
    pub fn requests(&self) -> Vec<Logged> {
        lock(&self.inner).requests.clone()
    }

    /// How many requests came to `peer` for a path that begins with `path`.
    pub fn count(&self, peer: Peer, path: &str) -> usize {
        let inner = lock(&self.inner);
        inner
            .requests
            .iter()
            .filter(|r| is_for(r, peer, path))
            .count()
    }

    /// How many connections were accepted by `peer`.
    pub fn connections(&self, peer: Peer) -> usize {
        let inner = lock(&self.inner);
        inner.connections.iter().filter(|(_, p)| *p == peer).count()
    }

    /// TLS handshakes that failed, with the server's view of the reason.
    pub fn tls_errors(&self) -> Vec<(Peer, String)> {
        lock(&self.inner).tls_errors.clone()
    }

    /// True when `needle` occurs in any target, header or body.
    pub fn contains(&self, needle: &str) -> bool {
        let find = |hay: &[u8]| hay.windows(needle.len()).any(|w| w == needle.as_bytes());
        !needle.is_empty()
            && lock(&self.inner).requests.iter().any(|r| {
                find(r.request.target.as_bytes())
                    || find(&r.request.body)
                    || r.request
                        .headers
                        .iter()
                        .any(|(_, value)| find(value.as_bytes()))
            })
    }

    /// Waits until at least `n` requests for `path` came to `peer`; false after `patience`.
    pub fn wait_for(&self, peer: Peer, path: &str, n: usize, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let mut inner = lock(&self.inner);
        loop {
            if inner
                .requests
                .iter()
                .filter(|r| is_for(r, peer, path))
                .count()
                >= n
            {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let (guard, _) = self
                .changed
                .wait_timeout(inner, left)
                .unwrap_or_else(PoisonError::into_inner);
            inner = guard;
        }
    }

    /// Forgets requests, connections and TLS errors; numbers go on.
    pub fn clear(&self) {
        let mut inner = lock(&self.inner);
        inner.requests.clear();
        inner.connections.clear();
        inner.tls_errors.clear();
    }

    /// Streams each answered request as a line of JSON.
    pub fn stream_to(&self, sink: Box<dyn Write + Send>) {
        lock(&self.inner).sink = Some(sink);
    }

    pub(crate) fn connected(&self, peer: Peer) -> u64 {
        let mut inner = lock(&self.inner);
        inner.next_connection += 1;
        let number = inner.next_connection;
        inner.connections.push((number, peer));
        number
    }

    pub(crate) fn tls_failed(&self, peer: Peer, reason: String) {
        lock(&self.inner).tls_errors.push((peer, reason));
    }

    pub(crate) fn arrived(
        &self,
        peer: Peer,
        connection: u64,
        request: &Request,
        fault: Option<u64>,
    ) -> u64 {
        let mut inner = lock(&self.inner);
        inner.next_request += 1;
        let id = inner.next_request;
        inner.requests.push(Logged {
            id,
            peer,
            connection,
            at: clock::now(),
            request: request.clone(),
            status: None,
            sent: 0,
            fault,
        });
        self.changed.notify_all();
        id
    }

    pub(crate) fn answered(&self, id: u64, status: Option<u16>, sent: u64) {
        let mut inner = lock(&self.inner);
        let Some(entry) = inner.requests.iter_mut().find(|r| r.id == id) else {
            return;
        };
        entry.status = status;
        entry.sent = sent;
        let line = entry.to_json();
        // The record in memory is the truth; a full disk must not end the server.
        if let Some(sink) = &mut inner.sink {
            let _ = writeln!(sink, "{line}").and_then(|()| sink.flush());
        }
    }
}

fn is_for(entry: &Logged, peer: Peer, path: &str) -> bool {
    entry.peer == peer && entry.request.path().starts_with(path)
}
