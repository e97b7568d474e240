//! A way to a server on loopback that takes as long as a far one: every byte arrives half a round trip later, and a new
//! connection's first bytes a whole one more, as behind TCP's handshake. Bytes under way do not wait for one another.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// Listens on a free port for as long as the process lives; the port.
pub fn start(server_port: u16, round_trip: Duration) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)) else {
                break;
            };
            client.set_nodelay(true).unwrap();
            server.set_nodelay(true).unwrap();
            let (from_client, to_client) = (client.try_clone().unwrap(), client);
            let (from_server, to_server) = (server.try_clone().unwrap(), server);
            carry(from_client, to_server, round_trip / 2, round_trip);
            carry(from_server, to_client, round_trip / 2, Duration::ZERO);
        }
    });
    port
}

fn carry(mut from: TcpStream, mut to: TcpStream, late: Duration, first: Duration) {
    let (under_way, arriving) = channel::<(Instant, Vec<u8>)>();
    let opened = Instant::now() + first;
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(len) = from.read(&mut buffer) {
            let due = Instant::now().max(opened) + late;
            if len == 0 || under_way.send((due, buffer[..len].to_vec())).is_err() {
                break;
            }
        }
    });
    thread::spawn(move || {
        for (due, bytes) in arriving {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                return;
            }
        }
        // The other side may be gone already.
        let _ = to.shutdown(Shutdown::Write);
    });
}
