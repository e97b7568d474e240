//! The HTTP/1.1 server of both peers and the small client towards a real OpenBao: blocking, hand-written on std, because
//! faults need the raw socket.

mod client;
mod deliver;
mod message;
mod reader;
mod server;

pub use client::{Client, Url};
pub use message::{Header, Request, Response, percent_decode};
pub(crate) use server::{Handler, Server, Shared};
