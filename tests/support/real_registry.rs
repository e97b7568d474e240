//! A real image registry for one test: docker's own, on a free port of loopback over plain HTTP (which docker allows
//! there), with a user and a password. Images are put in from the engine; a tag can be taken away again.

use std::io::Write;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, path};

use base64::Engine;
use serde_json::json;

use super::real_docker::RealDocker;
use super::real_process::{BoundChild, find_program, free_port};

/// The account: a robot's name has a `$`, and a password may have a colon.
pub const USER: &str = "robot$pull";
pub const PASSWORD: &str = "p4:ss";

/// A running registry; ends on drop, with what it held.
pub struct RealRegistry {
    server: BoundChild,
    dir: tempfile::TempDir,
    port: u16,
}

/// An image in the registry.
#[derive(Clone, Debug)]
pub struct Pushed {
    /// `127.0.0.1:PORT/NAME:TAG`
    pub reference: String,
    /// `127.0.0.1:PORT/NAME@sha256:…`
    pub pinned: String,
}

impl RealRegistry {
    /// Starts one. `Err` says that a program is missing.
    pub fn start() -> Result<RealRegistry, String> {
        let program = find_program("docker-registry")?;
        let htpasswd = find_program("htpasswd")?;
        let registry = (0..3)
            .find_map(|_| RealRegistry::launch(&program, &htpasswd))
            .expect("three registries in a row ended before they listened");
        Ok(registry)
    }

    fn launch(program: &path::Path, htpasswd: &path::Path) -> Option<RealRegistry> {
        let dir = tempfile::tempdir().expect("a directory for the registry");
        let port = free_port();
        fs::write(dir.path().join("htpasswd"), password_line(htpasswd)).expect("the htpasswd file");
        // JSON is YAML: no quoting to get wrong.
        let config = json!({
            "version": 0.1,
            "log": {"level": "info"},
            "storage": {
                "filesystem": {"rootdirectory": dir.path().join("data")},
                "delete": {"enabled": true},
            },
            "http": {"addr": format!("127.0.0.1:{port}")},
            "auth": {"htpasswd": {"realm": "test", "path": dir.path().join("htpasswd")}},
        });
        let config_file = dir.path().join("config.yml");
        fs::write(&config_file, config.to_string()).expect("the registry's config");
        let log = fs::File::create(dir.path().join("log")).expect("the registry's log");
        let mut command = BoundChild::command(program.to_owned());
        command
            .arg("serve")
            .arg(&config_file)
            .env_clear()
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdout(log.try_clone().expect("the log, twice"))
            .stderr(Stdio::from(log));
        let mut server = BoundChild::spawn(command);
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = fs::read_to_string(dir.path().join("log")).unwrap_or_default();
            match server.ended() {
                Some(_) if log.contains("address already in use") => return None,
                Some(status) => panic!("the registry ended ({status}):\n{log}"),
                None => assert!(
                    Instant::now() < deadline,
                    "the registry is not up in time:\n{log}"
                ),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(RealRegistry { server, dir, port })
    }

    /// `127.0.0.1:PORT`, as in an image's name.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// What a `registry-auth` secret for it holds.
    pub fn credential(&self) -> serde_json::Value {
        json!({"registry": self.host(), "username": USER, "password": PASSWORD})
    }

    /// What the registry logged, for a failing test, or to see who pulled.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Pushes a local image as `NAME:TAG` (say `monky/api:1`). The engine forgets the name, so that a test must pull it.
    #[track_caller]
    pub fn push(&self, docker: RealDocker, image: &str, name_and_tag: &str) -> Pushed {
        let reference = format!("{}/{name_and_tag}", self.host());
        docker.run(&["tag", image, &reference]);
        self.as_pusher(docker, &["push", "--quiet", &reference]);
        let digests = docker.inspect(&reference, "{{join .RepoDigests \"\\n\"}}");
        let repository = format!("{}@", reference.rsplit_once(':').expect("a tag").0);
        let pinned = digests
            .lines()
            .find(|line| line.starts_with(&repository))
            .unwrap_or_else(|| panic!("no digest of {reference} in {digests}"))
            .to_owned();
        docker.run(&["rmi", &reference]);
        // The digest is a name of its own; it may have gone with the tag.
        docker.try_run(&["rmi", &pinned]);
        Pushed { reference, pinned }
    }

    fn as_pusher(&self, docker: RealDocker, args: &[&str]) {
        let config_dir = self.dir.path().join("pusher");
        let auth = base64::engine::general_purpose::STANDARD.encode(format!("{USER}:{PASSWORD}"));
        let config = json!({"auths": {self.host(): {"auth": auth}}});
        fs::create_dir_all(&config_dir).expect("the pusher's directory");
        fs::write(config_dir.join("config.json"), config.to_string()).expect("its config");
        let mut command = docker.command(args);
        super::real_process::run(command.env("DOCKER_CONFIG", config_dir));
    }
}

/// The password goes in by stdin, in bcrypt: the only form that this registry takes.
fn password_line(htpasswd: &path::Path) -> Vec<u8> {
    let mut child = Command::new(htpasswd)
        .args(["-n", "-i", "-B", USER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("htpasswd starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin
        .write_all(PASSWORD.as_bytes())
        .expect("htpasswd reads");
    drop(stdin);
    let output = child.wait_with_output().expect("htpasswd ends");
    assert!(output.status.success(), "htpasswd: {output:?}");
    output.stdout
}
