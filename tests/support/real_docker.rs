//! The docker engine that the tests talk to: the one of `DOCKER_HOST`, as `tests/e2e/with-docker` provides it, or of the
//! default socket. Owns the test image, which is made here from the static busybox (nothing is pulled), and the
//! cleaning up after a compose project.

use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::{env, fs, io};

use super::real_process::{argv, find_program, run};

/// A shell, httpd and wget; by default it serves `/www` on port 8080 and ends at once on SIGTERM.
pub const IMAGE: &str = "monky-deployd-test/busybox:1";

const PROJECT_LABEL: &str = "com.docker.compose.project";
const DEFAULT_CMD: &str =
    r#"CMD ["/bin/sh", "-c", "trap 'exit 0' TERM; httpd -f -p 8080 -h /www & wait"]"#;

/// An engine that answers, with Compose.
#[derive(Clone, Copy, Debug)]
pub struct RealDocker {
    _one_way_to_make_it: (),
}

/// A container of a compose project, running or not.
#[derive(Clone, Debug)]
pub struct Container {
    pub id: String,
    pub name: String,
    pub service: String,
    pub state: String,
    pub image: String,
}

/// Removes what a compose project left, on drop, also when the test failed.
pub struct ProjectGuard {
    docker: RealDocker,
    project: String,
}

impl RealDocker {
    /// The engine, asked for once per process. `Err` says why there is none.
    pub fn get() -> Result<RealDocker, String> {
        static FOUND: OnceLock<Result<RealDocker, String>> = OnceLock::new();
        FOUND.get_or_init(probe).clone()
    }

    /// A `docker` command with the engine's address and none of the person's own configuration.
    pub fn command<S: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        docker(args)
    }

    /// Runs `docker ARGS…`, which must succeed; its standard output.
    #[track_caller]
    pub fn run(&self, args: &[&str]) -> String {
        run(&mut docker(args))
    }

    /// Runs `docker ARGS…`, whatever comes of it.
    pub fn try_run(&self, args: &[&str]) -> Output {
        docker(args).output().expect("docker starts")
    }

    /// The name of the test image, made when the engine has not got it.
    pub fn image(&self) -> &'static str {
        static MADE: OnceLock<()> = OnceLock::new();
        MADE.get_or_init(|| {
            if !self.try_run(&["image", "inspect", IMAGE]).status.success() {
                self.make_image(IMAGE, "hello from busybox\n");
            }
        });
        IMAGE
    }

    /// Makes an image like the test image under another name, with its own front page, hence its own digest; its id.
    pub fn make_image(&self, name: &str, front_page: &str) -> String {
        let tar = image_tar(front_page).expect("a tar of busybox");
        let mut command = docker(["import", "--change", DEFAULT_CMD, "-", name]);
        let shown = argv(&command);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("docker starts");
        // An early end of docker shows in its status; the broken pipe itself says nothing.
        let _ = io::Write::write_all(&mut child.stdin.take().expect("a pipe"), &tar);
        let output = child.wait_with_output().expect("docker ends");
        assert!(output.status.success(), "{shown}: {output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// The containers of a project, stopped ones too, in the order of their names.
    pub fn ps(&self, project: &str) -> Vec<Container> {
        let format = "{{.ID}}\t{{.Names}}\t{{.Label \"com.docker.compose.service\"}}\t{{.State}}\t{{.Image}}";
        let filter = format!("label={PROJECT_LABEL}={project}");
        let lines = self.run(&[
            "ps",
            "-a",
            "--no-trunc",
            "--filter",
            &filter,
            "--format",
            format,
        ]);
        let mut containers: Vec<Container> = lines
            .lines()
            .map(|line| {
                let mut fields = line.split('\t').map(str::to_owned);
                let mut next = || fields.next().unwrap_or_default();
                Container {
                    id: next(),
                    name: next(),
                    service: next(),
                    state: next(),
                    image: next(),
                }
            })
            .collect();
        containers.sort_by(|a, b| a.name.cmp(&b.name));
        containers
    }

    /// The container of one service.
    #[track_caller]
    pub fn service(&self, project: &str, service: &str) -> Container {
        let all = self.ps(project);
        let found = all.iter().find(|container| container.service == service);
        found
            .unwrap_or_else(|| panic!("no container of {service} in {all:?}"))
            .clone()
    }

    /// `docker inspect` with a template.
    #[track_caller]
    pub fn inspect(&self, id: &str, format: &str) -> String {
        self.run(&["inspect", "--format", format, id])
    }

    /// Runs a command in a container; its standard output, trimmed at the end.
    #[track_caller]
    pub fn exec(&self, id: &str, command: &[&str]) -> String {
        self.run(&[&["exec", id], command].concat())
    }

    /// The volumes of a project.
    pub fn volumes(&self, project: &str) -> Vec<String> {
        self.labelled(project, &["volume", "ls", "-q"])
    }

    /// Removes the containers, networks and volumes of a project.
    pub fn cleanup(&self, project: &str) {
        for (list, remove) in [
            (&["ps", "-aq"][..], &["rm", "-f", "-v"][..]),
            (&["network", "ls", "-q"], &["network", "rm"]),
            (&["volume", "ls", "-q"], &["volume", "rm", "-f"]),
        ] {
            let found = self.labelled(project, list);
            if !found.is_empty() {
                let ids: Vec<&str> = found.iter().map(String::as_str).collect();
                self.run(&[remove, &ids[..]].concat());
            }
        }
    }

    /// Cleans up when the guard is dropped.
    pub fn guard(&self, project: &str) -> ProjectGuard {
        ProjectGuard {
            docker: *self,
            project: project.to_owned(),
        }
    }

    fn labelled(&self, project: &str, list: &[&str]) -> Vec<String> {
        let filter = format!("label={PROJECT_LABEL}={project}");
        self.run(&[list, &["--filter", &filter]].concat())
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

impl Drop for ProjectGuard {
    fn drop(&mut self) {
        // A second panic would abort the whole test binary and hide the first.
        if std::thread::panicking() {
            let _ = std::panic::catch_unwind(|| self.docker.cleanup(&self.project));
        } else {
            self.docker.cleanup(&self.project);
        }
    }
}

fn docker<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new("docker");
    command
        .args(args)
        .env("DOCKER_CONFIG", "/nonexistent/docker-config")
        .env_remove("DOCKER_CONTEXT")
        .stdin(Stdio::null());
    command
}

fn probe() -> Result<RealDocker, String> {
    if env::var_os("MONKY_DEPLOYD_NO_DOCKER").is_some() {
        return Err(env::var("MONKY_DEPLOYD_NO_DOCKER_REASON")
            .unwrap_or_else(|_| "switched off by MONKY_DEPLOYD_NO_DOCKER".to_owned()));
    }
    for (args, what) in [
        (
            &["version", "--format", "{{.Server.Version}}"][..],
            "no docker engine answers (run the tests under tests/e2e/with-docker)",
        ),
        (
            &["compose", "version", "--short"],
            "docker has no compose plugin (run tests/e2e/setup engine)",
        ),
    ] {
        match docker(args).output() {
            Err(e) => return Err(format!("docker does not start: {e}")),
            Ok(output) if !output.status.success() => {
                let words = String::from_utf8_lossy(&output.stderr);
                return Err(format!("{what}: {}", words.trim()));
            }
            Ok(_) => {}
        }
    }
    find_program("busybox")?;
    Ok(RealDocker {
        _one_way_to_make_it: (),
    })
}

/// `/bin` with busybox and a link for each of its applets, two users, a world-writable `/tmp`, a front page.
fn image_tar(front_page: &str) -> io::Result<Vec<u8>> {
    let busybox = find_program("busybox").map_err(io::Error::other)?;
    let applets = run(Command::new(&busybox).arg("--list"));
    let program = fs::read(&busybox)?;
    let passwd = "root:x:0:0:root:/:/bin/sh\nwww:x:1000:1000:www:/:/bin/sh\n";
    let mut tar = tar::Builder::new(Vec::new());
    let mut add = |path: &str, mode: u32, content: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        if path.ends_with('/') {
            header.set_entry_type(tar::EntryType::Directory);
        }
        tar.append_data(&mut header, path, content)
    };
    add("bin/", 0o755, b"")?;
    add("bin/busybox", 0o755, &program)?;
    add("etc/passwd", 0o644, passwd.as_bytes())?;
    add("etc/group", 0o644, b"root:x:0:\nwww:x:1000:\n")?;
    add("tmp/", 0o1777, b"")?;
    add("www/index.html", 0o644, front_page.as_bytes())?;
    for applet in applets.lines().filter(|name| *name != "busybox") {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_mode(0o777);
        header.set_size(0);
        tar.append_link(&mut header, format!("bin/{applet}"), "busybox")?;
    }
    tar.into_inner()
}
