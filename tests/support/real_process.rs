//! Where the programs of the real parts are, free ports, and servers that end with the test process.
//!
//! A server is killed on drop, and by the kernel when this process dies without dropping it (SIGKILL, a static that
//! is never dropped). The kernel's death signal is bound to the *thread* that forked, and libtest runs each test in a
//! thread of its own; so one thread that lives as long as the process starts them all.

use std::env;
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock};

/// The directory that `tests/e2e/setup` fills.
pub fn cache_dir() -> PathBuf {
    let under = |name: &str, below: &str| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(|value| PathBuf::from(value).join(below))
    };
    under("MONKY_DEPLOYD_CACHE", "")
        .or_else(|| under("XDG_CACHE_HOME", "monky-deployd"))
        .or_else(|| under("HOME", ".cache/monky-deployd"))
        .unwrap_or_else(|| PathBuf::from("/var/cache/monky-deployd"))
}

/// A program of the tests: from the cache directory, else from the PATH (with the sbin directories).
pub fn find_program(name: &str) -> Result<PathBuf, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    std::iter::once(cache_dir().join("bin"))
        .chain(env::split_paths(&path))
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
        .ok_or_else(|| format!("no program {name} (run tests/e2e/setup)"))
}

/// A port of 127.0.0.1 that was free a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .expect("no free port on loopback")
        .port()
}

/// Runs a command that must succeed; its standard output, trimmed at the end. A failure shows argv and both streams.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{}: {e}", argv(command)));
    assert!(
        output.status.success(),
        "{}",
        describe(&argv(command), &output)
    );
    String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned()
}

/// Program and arguments, without the environment that `Command`'s own `Debug` prints.
pub fn argv(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

fn describe(argv: &str, output: &Output) -> String {
    format!(
        "{argv}: {}\n--- stdout\n{}\n--- stderr\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// A server of a test.
pub struct BoundChild {
    child: Child,
}

/// What the keeper thread is asked: start this, answer there.
type Order = (Command, Sender<io::Result<Child>>);

impl BoundChild {
    /// The beginning of the command line of a server: the program, to be killed when the starting thread ends.
    pub fn command(program: PathBuf) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .stdin(Stdio::null());
        command
    }

    /// Starts a command made by [`BoundChild::command`].
    pub fn spawn(command: Command) -> BoundChild {
        static KEEPER: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
        let keeper = KEEPER.get_or_init(|| {
            let (orders, inbox) = channel::<Order>();
            std::thread::spawn(move || {
                for (mut command, answer) in inbox {
                    let _ = answer.send(command.spawn());
                }
            });
            Mutex::new(orders)
        });
        let shown = argv(&command);
        let (answer, result) = channel();
        keeper
            .lock()
            .expect("the keeper's lock")
            .send((command, answer))
            .expect("the keeper thread runs as long as the process");
        let child = result
            .recv()
            .expect("the keeper thread answers")
            .unwrap_or_else(|e| panic!("{shown}: {e}"));
        BoundChild { child }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("wait for a server")
    }
}

impl Drop for BoundChild {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
