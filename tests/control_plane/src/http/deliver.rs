//! Owns how an answer gets onto the wire, whole or spoilt.
//!
//! Takes a connection, the answer and the fault's decision, gives back whether the connection lives on and how many body
//! bytes went out; never decides which fault applies.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use rustls::{ServerConnection, StreamOwned};
use serde_json::Value;

use super::message::Response;
use crate::faults::{Action, BodyLength};
use crate::sync::Stop;

/// A connection, in the clear or inside TLS.
pub(super) enum Conn {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Conn {
    /// The socket below.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.sock,
        }
    }

    /// True while no TLS session has been agreed.
    pub fn is_handshaking(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.conn.is_handshaking())
    }

    /// Ends in an orderly way, inside TLS with a close_notify, so that a body without a length looks complete; or with the
    /// reset that was decided on.
    pub fn finish(&mut self) {
        if is_reset(self.socket()) {
            return;
        }
        if let Self::Tls(stream) = self {
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
        close(self.socket());
    }
}

impl Read for Conn {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(stream) => match stream.read(buffer) {
                // A client that hangs up without close_notify is an ordinary end for a server.
                Err(error)
                    if error.kind() == io::ErrorKind::UnexpectedEof
                        && !stream.conn.is_handshaking() =>
                {
                    Ok(0)
                }
                other => other,
            },
        }
    }
}

impl Write for Conn {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// What became of one answer.
pub(super) struct Delivered {
    pub keep_alive: bool,
    pub status: Option<u16>,
    pub sent: u64,
}

impl Delivered {
    /// No answer, and the end of the connection.
    pub const NOTHING: Self = Self {
        keep_alive: false,
        status: None,
        sent: 0,
    };
}

/// Writes `response` as it is.
pub(super) fn deliver(
    conn: &mut Conn,
    response: &Response,
    date: &str,
    keep_alive: bool,
) -> io::Result<()> {
    let mut wire = response.head(date, Some(response.body.len() as u64), keep_alive);
    wire.extend(&response.body);
    conn.write_all(&wire)?;
    conn.flush()
}

/// Writes what `action` makes of `response`.
pub(super) fn spoil(
    conn: &mut Conn,
    action: &Action,
    response: &Response,
    date: &str,
    stop: &Stop,
) -> io::Result<Delivered> {
    let total = response.body.len() as u64;
    let status = Some(response.status);
    match action {
        Action::Respond(_) | Action::Merge(_) | Action::Delay(_) => {
            deliver(conn, response, date, true)?;
            Ok(Delivered {
                keep_alive: true,
                status,
                sent: total,
            })
        }
        Action::Close => Ok(Delivered::NOTHING),
        Action::Reset => {
            reset(conn.socket());
            Ok(Delivered::NOTHING)
        }
        Action::Hang => {
            stop.wait_for_ever();
            Ok(Delivered::NOTHING)
        }
        Action::Garbage(bytes) => {
            conn.write_all(bytes)?;
            conn.flush()?;
            Ok(Delivered {
                sent: bytes.len() as u64,
                ..Delivered::NOTHING
            })
        }
        Action::Cut { keep, length } => {
            let sent = write_part(conn, response, date, *keep, *length)?;
            Ok(Delivered {
                keep_alive: false,
                status,
                sent,
            })
        }
        Action::ResetInBody { keep } => {
            let sent = write_part(conn, response, date, *keep, BodyLength::Declared)?;
            reset(conn.socket());
            Ok(Delivered {
                keep_alive: false,
                status,
                sent,
            })
        }
        Action::DripHead(pause) => {
            let mut wire = response.head(date, Some(total), true);
            let head = wire.len() as u64;
            wire.extend(&response.body);
            let sent = drip(conn, &wire, *pause, stop)?;
            Ok(Delivered {
                keep_alive: true,
                status,
                sent: sent.saturating_sub(head),
            })
        }
        Action::DripBody(pause) => {
            conn.write_all(&response.head(date, Some(total), true))?;
            let sent = drip(conn, &response.body, *pause, stop)?;
            Ok(Delivered {
                keep_alive: true,
                status,
                sent,
            })
        }
        Action::Huge { bytes, length } => {
            let head = Response::bytes(200, "application/json", "");
            conn.write_all(&head.head(date, declared(*length, *bytes), false))?;
            let sent = pour(conn, *bytes, stop);
            Ok(Delivered {
                keep_alive: false,
                status: Some(200),
                sent,
            })
        }
    }
}

/// Does what `action` means for a connection that has just been accepted; true when it may go on.
pub(super) fn spoil_connection(socket: &TcpStream, action: &Action, stop: &Stop) -> bool {
    match action {
        Action::Delay(pause) => return !stop.wait(*pause),
        Action::Reset => reset(socket),
        Action::Hang => stop.wait_for_ever(),
        Action::Garbage(bytes) => {
            let mut socket = socket;
            let _ = socket.write_all(bytes);
        }
        _ => {}
    }
    close(socket);
    false
}

/// Lays `fields` over the JSON object in `response`.
pub(super) fn merge(response: &mut Response, fields: &Value) {
    let mut body = response.body_json();
    if let (Some(target), Some(source)) = (body.as_object_mut(), fields.as_object()) {
        target.extend(source.clone());
        response.body = body.to_string().into_bytes();
    }
}

fn write_part(
    conn: &mut Conn,
    response: &Response,
    date: &str,
    keep: usize,
    length: BodyLength,
) -> io::Result<u64> {
    let part = response.body.get(..keep).unwrap_or(&response.body);
    conn.write_all(&response.head(date, declared(length, response.body.len() as u64), false))?;
    conn.write_all(part)?;
    conn.flush()?;
    Ok(part.len() as u64)
}

fn declared(length: BodyLength, total: u64) -> Option<u64> {
    match length {
        BodyLength::Declared => Some(total),
        BodyLength::Understated => Some(10),
        BodyLength::Absent => None,
    }
}

fn drip(conn: &mut Conn, bytes: &[u8], pause: Duration, stop: &Stop) -> io::Result<u64> {
    let mut sent = 0;
    for byte in bytes {
        conn.write_all(&[*byte])?;
        conn.flush()?;
        sent += 1;
        if stop.wait(pause) {
            break;
        }
    }
    Ok(sent)
}

fn pour(conn: &mut Conn, bytes: u64, stop: &Stop) -> u64 {
    let block = [b' '; 64 * 1024];
    let mut sent = 0;
    while sent < bytes && !stop.is_raised() {
        let part = usize::try_from(bytes - sent).map_or(block.len(), |left| left.min(block.len()));
        if conn.write_all(block.get(..part).unwrap_or(&block)).is_err() {
            break;
        }
        sent += part as u64;
    }
    sent
}

/// SO_LINGER 0 turns the close into an RST.
fn reset(socket: &TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}

fn is_reset(socket: &TcpStream) -> bool {
    rustix::net::sockopt::socket_linger(socket).ok().flatten() == Some(Duration::ZERO)
}

/// Shuts the writing side, and takes what the peer still sends for a moment: closing with unread bytes would be a reset.
fn close(socket: &TcpStream) {
    if is_reset(socket) {
        return;
    }
    let _ = socket.shutdown(Shutdown::Write);
    let _ = socket.set_read_timeout(Some(Duration::from_millis(20)));
    let mut waste = [0; 4096];
    let mut reader = socket;
    while matches!(reader.read(&mut waste), Ok(n) if n > 0) {}
}
