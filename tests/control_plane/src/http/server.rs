//! Owns a listener on a free loopback port and the threads of its connections.
//!
//! Takes a handler, gives a server that can change its certificate, refuse connections for a while, and ends with all its
//! threads when dropped. Records every request before it is answered.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::deliver::{self, Conn, Delivered};
use super::message::{Request, Response};
use super::reader::Reader;
use crate::faults::{Action, Faults, Hit};
use crate::log::Log;
use crate::sync::{Stop, lock};
use crate::{Peer, clock};

/// What answers the requests of one peer.
pub(crate) trait Handler: Send + Sync {
    /// The answer.
    fn handle(&self, request: &Request) -> Response;

    /// A request of the person who steers the control plane: neither logged nor spoilt. None when it is an ordinary one.
    fn steer(&self, request: &Request) -> Option<Response> {
        let _ = request;
        None
    }
}

/// What both servers share.
#[derive(Clone, Default)]
pub(crate) struct Shared {
    pub log: Arc<Log>,
    pub faults: Arc<Faults>,
}

struct Inner {
    peer: Peer,
    handler: Arc<dyn Handler>,
    shared: Shared,
    tls: Mutex<Option<Arc<ServerConfig>>>,
    date_offset_s: AtomicI64,
    stop: Stop,
    open: Mutex<HashMap<u64, TcpStream>>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

/// A running server.
pub(crate) struct Server {
    inner: Arc<Inner>,
    addr: SocketAddr,
    acceptor: Mutex<Option<JoinHandle<()>>>,
}

impl Server {
    /// Listens on `port` of loopback, 0 for a free one.
    pub fn start(
        peer: Peer,
        port: u16,
        tls: Option<Arc<ServerConfig>>,
        handler: Arc<dyn Handler>,
        shared: Shared,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let addr = listener.local_addr()?;
        let inner = Arc::new(Inner {
            peer,
            handler,
            shared,
            tls: Mutex::new(tls),
            date_offset_s: AtomicI64::new(0),
            stop: Stop::default(),
            open: Mutex::default(),
            workers: Mutex::default(),
        });
        let acceptor = Mutex::new(Some(spawn_acceptor(&inner, listener)));
        Ok(Self {
            inner,
            addr,
            acceptor,
        })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// From the next connection on: another certificate, or none.
    pub fn set_tls(&self, tls: Option<Arc<ServerConfig>>) {
        *lock(&self.inner.tls) = tls;
    }

    /// Shifts the `Date` header.
    pub fn set_date_offset(&self, seconds: i64) {
        self.inner.date_offset_s.store(seconds, Ordering::Relaxed);
    }

    /// Stops listening and ends every connection: clients see "connection refused".
    pub fn close(&self) {
        let Some(acceptor) = lock(&self.acceptor).take() else {
            return;
        };
        self.inner.stop.raise();
        // `accept` has no time-out; a connection wakes it.
        let _ = TcpStream::connect(self.addr);
        let _ = acceptor.join();
        for stream in lock(&self.inner.open).values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let workers = std::mem::take(&mut *lock(&self.inner.workers));
        for worker in workers {
            let _ = worker.join();
        }
    }

    /// Listens again on the same port.
    pub fn reopen(&self) -> io::Result<()> {
        let mut acceptor = lock(&self.acceptor);
        if acceptor.is_none() {
            let listener = TcpListener::bind(self.addr)?;
            self.inner.stop.reset();
            *acceptor = Some(spawn_acceptor(&self.inner, listener));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.close();
    }
}

fn spawn_acceptor(inner: &Arc<Inner>, listener: TcpListener) -> JoinHandle<()> {
    let inner = Arc::clone(inner);
    std::thread::spawn(move || {
        while let Ok((socket, _)) = listener.accept() {
            if inner.stop.is_raised() {
                break;
            }
            inner.admit(socket);
        }
    })
}

impl Inner {
    fn admit(self: &Arc<Self>, socket: TcpStream) {
        let number = self.shared.log.connected(self.peer);
        if let Ok(copy) = socket.try_clone() {
            lock(&self.open).insert(number, copy);
        }
        let inner = Arc::clone(self);
        let worker = std::thread::spawn(move || {
            inner.converse(number, socket);
            lock(&inner.open).remove(&number);
        });
        let mut workers = lock(&self.workers);
        workers.retain(|worker| !worker.is_finished());
        workers.push(worker);
    }

    fn converse(&self, number: u64, socket: TcpStream) {
        let _ = socket.set_nodelay(true);
        if let Some(hit) = self.shared.faults.for_connection(self.peer)
            && !deliver::spoil_connection(&socket, &hit.action, &self.stop)
        {
            return;
        }
        let Ok(mut conn) = self.wrap(socket) else {
            return;
        };
        let mut reader = Reader::default();
        loop {
            match reader.request(&mut conn) {
                Ok(Some(request)) => {
                    if !self.answer(number, &mut conn, &request).unwrap_or(false) {
                        break;
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    if conn.is_handshaking() && !self.stop.is_raised() {
                        self.shared.log.tls_failed(self.peer, error.to_string());
                    }
                    break;
                }
            }
        }
        conn.finish();
    }

    fn wrap(&self, socket: TcpStream) -> io::Result<Conn> {
        let tls = lock(&self.tls).clone();
        Ok(match tls {
            None => Conn::Plain(socket),
            Some(config) => {
                let session = ServerConnection::new(config).map_err(io::Error::other)?;
                Conn::Tls(Box::new(StreamOwned::new(session, socket)))
            }
        })
    }

    /// Answers one request; whether the connection goes on.
    fn answer(&self, number: u64, conn: &mut Conn, request: &Request) -> io::Result<bool> {
        let keep_alive = !request
            .header("connection")
            .is_some_and(|v| v.eq_ignore_ascii_case("close"));
        let date = self.date();
        if let Some(response) = self.handler.steer(request) {
            deliver::deliver(conn, &response, &date, keep_alive)?;
            return Ok(keep_alive);
        }
        let log = &self.shared.log;
        let hit = self.shared.faults.for_request(self.peer, request);
        let entry = log.arrived(self.peer, number, request, hit.as_ref().map(|hit| hit.id));
        let response = match &hit {
            None => self.handler.handle(request),
            Some(hit) => self.spoilt(hit, request),
        };
        let Some(hit) = hit.filter(|hit| hit.action.spoils_the_wire()) else {
            // Recorded first: a client that has its answer finds it in the record.
            log.answered(entry, Some(response.status), response.body.len() as u64);
            deliver::deliver(conn, &response, &date, keep_alive)?;
            return Ok(keep_alive && !self.stop.is_raised());
        };
        // A client that hung up in the middle of an answer is still a line of the log.
        let written = deliver::spoil(conn, &hit.action, &response, &date, &self.stop);
        let Delivered {
            keep_alive: more,
            status,
            sent,
        } = written.unwrap_or(Delivered::NOTHING);
        log.answered(entry, status, sent);
        Ok(more && keep_alive && !self.stop.is_raised())
    }

    /// The answer that a fault starts from; the handler sees the request only where the fault lets it take effect.
    fn spoilt(&self, hit: &Hit, request: &Request) -> Response {
        let lost = || match hit.after_effect {
            true => self.handler.handle(request),
            false => Response::empty(200),
        };
        match &hit.action {
            Action::Respond(response) => {
                lost();
                response.clone()
            }
            Action::Merge(fields) => {
                let mut response = self.handler.handle(request);
                deliver::merge(&mut response, fields);
                response
            }
            Action::Delay(pause) => {
                self.stop.wait(*pause);
                self.handler.handle(request)
            }
            Action::Close
            | Action::Reset
            | Action::Hang
            | Action::Garbage(_)
            | Action::Huge { .. } => lost(),
            Action::Cut { .. }
            | Action::ResetInBody { .. }
            | Action::DripHead(_)
            | Action::DripBody(_) => self.handler.handle(request),
        }
    }

    fn date(&self) -> String {
        let offset = self.date_offset_s.load(Ordering::Relaxed);
        clock::http_date(clock::now().as_secs().saturating_add_signed(offset))
    }
}
