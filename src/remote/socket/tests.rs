//! A connection against peers that answer, refuse, reset, drip and stay silent, and against an interruption.

use super::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;
use ureq::Agent;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Every name is these addresses.
#[derive(Debug)]
struct Fixed(Vec<SocketAddr>);

impl Resolver for Fixed {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let mut addresses = self.empty();
        for address in &self.0 {
            addresses.push(*address);
        }
        Ok(addresses)
    }
}

fn agent(addresses: &[SocketAddr], limit: Duration, interrupt: &Interrupt) -> Agent {
    let config = Agent::config_builder()
        .proxy(None)
        .timeout_global(Some(limit))
        .build();
    let connector = SocketConnector::new(interrupt);
    Agent::with_parts(config, connector, Fixed(addresses.to_vec()))
}

fn get(agent: &Agent) -> Result<String, Error> {
    agent
        .get("http://peer.test/")
        .call()?
        .body_mut()
        .read_to_string()
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// An address of loopback that nobody listens at.
fn refusing() -> SocketAddr {
    listen().1
}

/// Reads one request's head.
fn take_request(stream: &mut TcpStream) {
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        seen.push(byte[0]);
    }
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn requests_in_a_row_share_a_connection() {
    let (listener, address) = listen();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        for _ in 0..3 {
            take_request(&mut stream);
            stream.write_all(ANSWER).unwrap();
        }
    });
    let agent = agent(&[address], LONG, &Interrupt::never().unwrap());
    for _ in 0..3 {
        assert_eq!(get(&agent).unwrap(), "ok");
    }
    server.join().unwrap();
}

#[test]
fn a_connection_that_its_peer_has_closed_is_not_used_again() {
    let (listener, address) = listen();
    let (closed, is_closed) = std::sync::mpsc::channel();
    let server = thread::spawn(move || {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            take_request(&mut stream);
            stream.write_all(ANSWER).unwrap();
            drop(stream);
            closed.send(()).unwrap();
        }
    });
    let agent = agent(&[address], LONG, &Interrupt::never().unwrap());
    for _ in 0..2 {
        assert_eq!(get(&agent).unwrap(), "ok");
        is_closed.recv().unwrap();
    }
    server.join().unwrap();
}

#[test]
fn a_refused_address_leaves_its_time_to_the_next_and_is_the_error_when_it_was_the_last() {
    let (listener, address) = listen();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        take_request(&mut stream);
        stream.write_all(ANSWER).unwrap();
    });
    let never = Interrupt::never().unwrap();
    let both = agent(&[refusing(), address], LONG, &never);
    assert_eq!(get(&both).unwrap(), "ok");
    server.join().unwrap();
    match get(&agent(&[refusing(), refusing()], LONG, &never)) {
        Err(Error::Io(e)) => assert_eq!(e.kind(), io::ErrorKind::ConnectionRefused),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_time_is_the_whole_requests_also_against_a_peer_that_drips() {
    let (listener, address) = listen();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        take_request(&mut stream);
        // Until the other side has had enough.
        for byte in ANSWER.iter().cycle() {
            if stream.write_all(&[*byte]).is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
    });
    let started = Instant::now();
    let dripped = agent(
        &[address],
        Duration::from_millis(300),
        &Interrupt::never().unwrap(),
    );
    match get(&dripped) {
        Err(Error::Timeout(Timeout::Global)) => {}
        other => panic!("{other:?}"),
    }
    assert!(started.elapsed() < Duration::from_secs(10));
    drop(dripped);
    server.join().unwrap();
}

#[test]
fn a_peer_that_resets_is_said_so() {
    let (listener, address) = listen();
    let server = thread::spawn(move || {
        // Closed with a request unread, a socket answers with a reset.
        let (stream, _) = listener.accept().unwrap();
        stream.peek(&mut [0]).unwrap();
    });
    match get(&agent(&[address], LONG, &Interrupt::never().unwrap())) {
        Err(Error::Io(e)) => assert_eq!(e.kind(), io::ErrorKind::ConnectionReset),
        other => panic!("{other:?}"),
    }
    server.join().unwrap();
}

#[test]
fn more_than_the_socket_holds_is_sent_whole() {
    let (listener, address) = listen();
    let body = vec![b'x'; 8 << 20];
    let expected = body.len();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        take_request(&mut stream);
        let mut left = expected;
        let mut buffer = vec![0; 64 * 1024];
        while left > 0 {
            left -= stream.read(&mut buffer).unwrap();
        }
        stream.write_all(ANSWER).unwrap();
    });
    let agent = agent(&[address], LONG, &Interrupt::never().unwrap());
    let answer = agent.post("http://peer.test/").send(&body[..]).unwrap();
    assert_eq!(answer.status(), 200);
    server.join().unwrap();
}

/// An interruption that comes when the returned end is written to.
fn interrupt() -> (Interrupt, UnixStream) {
    let (receiver, sender) = UnixStream::pair().unwrap();
    (Interrupt::from_receiver(receiver), sender)
}

#[test]
fn an_interruption_ends_a_wait_for_an_answer_and_every_later_request() {
    let (listener, address) = listen();
    let (interrupt, mut signal) = interrupt();
    let agent = agent(&[address], LONG, &interrupt);
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        take_request(&mut stream);
        stream.write_all(ANSWER).unwrap();
        take_request(&mut stream);
        signal.write_all(b"x").unwrap();
        (listener, stream, signal)
    });
    assert_eq!(get(&agent).unwrap(), "ok");
    let started = Instant::now();
    for _ in 0..2 {
        match get(&agent) {
            Err(Error::Io(e)) => assert_eq!(e.to_string(), "stopped by a signal"),
            other => panic!("{other:?}"),
        }
    }
    assert!(started.elapsed() < LONG);
    let (listener, mut stream, _signal) = server.join().unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(
        rest.is_empty(),
        "nothing more was asked on the old connection"
    );
    listener.set_nonblocking(true).unwrap();
    if let Ok((mut late, _)) = listener.accept() {
        late.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty(), "nor on a new one");
    }
}

#[test]
fn an_interruption_ends_a_connect() {
    // A queue that is full answers no more connects.
    let (_listener, address) = {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&socket, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
        rustix::net::listen(&socket, 0).unwrap();
        let listener = TcpListener::from(socket);
        let address = listener.local_addr().unwrap();
        (listener, address)
    };
    let mut queued = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        queued.push(stream);
    }
    let (interrupt, mut signal) = interrupt();
    let agent = agent(&[address], LONG, &interrupt);
    let started = Instant::now();
    let waiting = thread::spawn(move || get(&agent));
    signal.write_all(b"x").unwrap();
    match waiting.join().unwrap() {
        Err(Error::Io(e)) => assert_eq!(e.to_string(), "stopped by a signal"),
        other => panic!("{other:?}"),
    }
    assert!(started.elapsed() < LONG);
}
