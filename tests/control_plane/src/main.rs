//! `control-plane`: an embedded control plane for shells. Writes what an agent needs into a directory and serves until stdin
//! closes, or SIGTERM or SIGINT arrives.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

use control_plane::{ControlPlane, Options};
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};

const USAGE: &str = "\
control-plane --env ENV_ID --dir DIR [--tenancy-port N] [--bao-port N] [--name NAME]... [--daemon]

Writes DIR/ca.pem, DIR/bootstrap.jwt, DIR/endpoints.json and streams DIR/log.jsonl. Prints one line when it serves.
Steered under http://TENANCY/_control/…; ends when stdin closes (not with --daemon) or on SIGTERM.
";

struct Arguments {
    options: Options,
    dir: PathBuf,
    daemon: bool,
}

fn main() -> ExitCode {
    let outcome = read_arguments().and_then(|arguments| arguments.map_or(Ok(()), serve));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A closed stderr is no reason for a panic.
            let _ = writeln!(io::stderr(), "control-plane: {error}");
            ExitCode::FAILURE
        }
    }
}

/// None after `--help`.
fn read_arguments() -> io::Result<Option<Arguments>> {
    use lexopt::prelude::{Long, Short};
    let mut parser = lexopt::Parser::from_env();
    let mut options = Options {
        steering: true,
        ..Options::new("")
    };
    let (mut dir, mut daemon) = (PathBuf::new(), false);
    while let Some(argument) = parser.next().map_err(io::Error::other)? {
        match argument {
            Long("env") => options.env_id = text(&mut parser)?,
            Long("dir") => dir = PathBuf::from(text(&mut parser)?),
            Long("tenancy-port") => options.tenancy_port = port(&mut parser)?,
            Long("bao-port") => options.bao_port = port(&mut parser)?,
            Long("name") => options.names.push(text(&mut parser)?),
            Long("daemon") => daemon = true,
            Long("help") | Short('h') => {
                let _ = io::stdout().write_all(USAGE.as_bytes());
                return Ok(None);
            }
            other => {
                return Err(io::Error::other(format!(
                    "{}\n\n{USAGE}",
                    other.unexpected()
                )));
            }
        }
    }
    if options.env_id.is_empty() || dir.as_os_str().is_empty() {
        return Err(io::Error::other(format!(
            "--env and --dir are needed\n\n{USAGE}"
        )));
    }
    Ok(Some(Arguments {
        options,
        dir,
        daemon,
    }))
}

fn text(parser: &mut lexopt::Parser) -> io::Result<String> {
    let value = parser.value().map_err(io::Error::other)?;
    value
        .into_string()
        .map_err(|_| io::Error::other("an argument is not UTF-8"))
}

fn port(parser: &mut lexopt::Parser) -> io::Result<u16> {
    text(parser)?
        .parse()
        .map_err(|_| io::Error::other("a port is a number up to 65535"))
}

fn serve(
    Arguments {
        options,
        dir,
        daemon,
    }: Arguments,
) -> io::Result<()> {
    let (wake, signalled) = UnixStream::pair()?;
    for signal in [SIGTERM, SIGINT] {
        signal_hook::low_level::pipe::register(signal, wake.try_clone()?)?;
    }
    let env_id = options.env_id.clone();
    let plane = ControlPlane::start(options)?;
    fs::create_dir_all(&dir)?;
    plane
        .log()
        .stream_to(Box::new(File::create(dir.join("log.jsonl"))?));
    fs::write(dir.join("ca.pem"), plane.ca_pem())?;
    let mut grant = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(dir.join("bootstrap.jwt"))?;
    grant.write_all(plane.grant().as_bytes())?;
    let endpoints = json!({
        "env_id": env_id,
        "tenancy_url": plane.tenancy_url(),
        "tenancy_port": plane.tenancy_addr().port(),
        "bao_url": plane.bao_url(),
        "bao_port": plane.bao_addr().map(|addr| addr.port()),
        "bao_root_token": plane.fake_bao().map(|bao| bao.root_token()),
        "control_url": format!("{}/_control", plane.tenancy_url()),
        "pid": std::process::id(),
    });
    // Last, and by rename: a shell that waits for this file finds all the others complete.
    let temporary = dir.join("endpoints.json.tmp");
    fs::write(&temporary, format!("{endpoints:#}\n"))?;
    fs::rename(&temporary, dir.join("endpoints.json"))?;
    let _ = writeln!(
        io::stdout(),
        "tenancy {} bao {}",
        plane.tenancy_url(),
        plane.bao_url()
    );
    wait_for_the_end(&signalled, daemon)
}

/// Returns on a signal, or (unless `daemon`) at the end of stdin.
fn wait_for_the_end(signalled: &UnixStream, daemon: bool) -> io::Result<()> {
    let stdin = io::stdin();
    loop {
        let mut watched = vec![PollFd::new(signalled, PollFlags::IN)];
        if !daemon {
            watched.push(PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN));
        }
        match poll(&mut watched, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = watched.iter().map(|fd| !fd.revents().is_empty()).collect();
        match ready.as_slice() {
            [true, ..] => return Ok(()),
            // What comes on stdin is of no interest, only its end; std's reader would wait for more than there is.
            [_, true] if rustix::io::read(&stdin, &mut [0; 4096])? == 0 => return Ok(()),
            _ => {}
        }
    }
}
