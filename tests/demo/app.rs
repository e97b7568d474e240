//! The program inside the demo's containers: a static file that is the whole image. It serves one page, works, migrates
//! nothing, and tells what it finds in its environment.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

const ADDRESS: (&str, u16) = ("127.0.0.1", 8080);
const PAGE: &str = "/page/index.html";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["serve"] => serve(),
        ["healthy"] => get().map(drop),
        ["get"] => get().and_then(|page| io::stdout().write_all(&page)),
        ["show", name] => show(name),
        ["migrate"] => io::stdout().write_all(b"the database is up to date\n"),
        ["work"] => loop {
            thread::sleep(Duration::from_secs(3600));
        },
        _ => Err(io::Error::other(
            "app serve|healthy|get|show NAME|migrate|work",
        )),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody may be listening any more.
            let _ = writeln!(io::stderr(), "app: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> io::Result<()> {
    for visitor in TcpListener::bind(ADDRESS)?.incoming() {
        // A visitor who went away is no reason to stop serving.
        let _ = visitor.and_then(answer);
    }
    Ok(())
}

fn answer(mut visitor: TcpStream) -> io::Result<()> {
    visitor.set_read_timeout(Some(Duration::from_secs(1)))?;
    // The question is always the same; it is read so that the connection ends cleanly.
    let _ = visitor.read(&mut [0; 1024])?;
    let page = std::fs::read(PAGE)?;
    write!(
        visitor,
        "HTTP/1.0 200 OK\r\ncontent-length: {}\r\n\r\n",
        page.len()
    )?;
    visitor.write_all(&page)
}

fn get() -> io::Result<Vec<u8>> {
    let mut server = TcpStream::connect(ADDRESS)?;
    server.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n");
    match end {
        Some(end) => Ok(answer.split_off(end + 4)),
        None => Err(io::Error::other("no answer")),
    }
}

fn show(name: &str) -> io::Result<()> {
    let value =
        std::env::var_os(name).ok_or_else(|| io::Error::other(format!("{name} is not set")))?;
    io::stdout().write_all(value.as_bytes())
}
