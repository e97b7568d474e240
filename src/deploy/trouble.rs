//! What a failing docker command means: docker itself missing, down or forbidden (each with its remedy), the kind of a
//! failed pull, and the peer's own words. The kind labels a report and caps its back-off; nothing else hangs on it.

use crate::code::Code;
use crate::error::Error;
use crate::host::process::Finished;
use std::io;

/// The oldest Compose that prints a file's variables (`config --variables`) and an unresolved model.
pub const MINIMUM_COMPOSE: &str = "2.30.0";
/// How much of a command's output is passed on, in characters, counted from its end.
const WORDS_CHARACTERS: usize = 600;

/// The error of a docker program that could not be started.
pub fn not_started(program: &str, source: &io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::NotFound => Error::Docker {
            code: Code::DockerMissing,
            why: format!("the docker program {program} is not installed"),
            remedy: "install docker and its compose plugin, or set docker_bin".into(),
        },
        _ => Error::Docker {
            code: Code::DockerMissing,
            why: format!("the docker program {program} cannot be started: {source}"),
            remedy: "check docker_bin and the file's mode".into(),
        },
    }
}

/// The error that docker's own trouble means; `None` when the command failed for a reason of its own.
pub fn diagnose(stderr: &[u8]) -> Option<Error> {
    let text = String::from_utf8_lossy(stderr);
    let lower = text.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let docker = |code, why: &str, remedy: &str| {
        Some(Error::Docker {
            code,
            why: why.into(),
            remedy: remedy.into(),
        })
    };
    if says(&[
        "permission denied while trying to connect",
        "dial unix /var/run/docker.sock: connect: permission denied",
    ]) {
        return docker(
            Code::DockerPermission,
            "the agent may not use docker's socket",
            "add its user to the group docker: usermod -aG docker monky-deployd",
        );
    }
    if says(&[
        "cannot connect to the docker daemon",
        "is the docker daemon running",
        "failed to connect to the docker api",
    ]) {
        return docker(
            Code::DockerDown,
            &format!(
                "the docker daemon does not answer ({})",
                text.lines()
                    .map(str::trim)
                    .find(|line| !line.is_empty())
                    .unwrap_or("no words")
            ),
            "start it: systemctl start docker",
        );
    }
    if says(&[
        "'compose' is not a docker command",
        "unknown command: docker compose",
        "unknown shorthand flag: 'p' in -p",
    ]) {
        return docker(
            Code::DockerMissing,
            "docker has no compose plugin in a system directory",
            "install docker-compose-plugin; a plugin in a person's ~/.docker is not seen by the agent",
        );
    }
    if says(&[
        "unknown flag: --variables",
        "unknown flag: --no-env-resolution",
    ]) {
        return Some(Error::Docker {
            code: Code::DockerMissing,
            why: "the installed Compose is too old".into(),
            remedy: format!("install Compose {MINIMUM_COMPOSE} or newer"),
        });
    }
    None
}

/// The kind of a failed pull.
pub fn pull_code(words: &str) -> Code {
    let lower = words.to_ascii_lowercase();
    let rows: [(Code, &[&str]); 6] = [
        (
            Code::PullDisk,
            &["no space left on device", "disk quota exceeded"],
        ),
        (
            Code::PullRateLimit,
            &["toomanyrequests", "too many requests", "rate limit"],
        ),
        (Code::PullTls, &["x509:", "tls:", "certificate"]),
        (
            Code::PullAuth,
            &[
                "no basic auth credentials",
                "unauthorized",
                "authentication required",
                "access denied",
                "access to the resource is denied",
                "403 forbidden",
                "incorrect username or password",
            ],
        ),
        (
            Code::PullNotFound,
            &[
                "manifest unknown",
                "not found",
                "does not exist",
                "name unknown",
            ],
        ),
        (
            Code::PullNetwork,
            &[
                "no such host",
                "connection refused",
                "i/o timeout",
                "timeout exceeded",
                "network is unreachable",
                "no route to host",
                "temporary failure in name resolution",
                "server misbehaving",
                "connection reset",
                "unexpected eof",
                "bad gateway",
                "service unavailable",
            ],
        ),
    ];
    rows.iter()
        .find(|(_, signs)| signs.iter().any(|sign| lower.contains(sign)))
        .map_or(Code::PullFailed, |(code, _)| *code)
}

/// A command's own words: the non-empty lines of its output joined by ` | `. Not cut yet: redaction comes first.
pub fn words(finished: &Finished) -> String {
    let mut lines: Vec<String> = Vec::new();
    for stream in [&finished.stdout, &finished.stderr] {
        let text = String::from_utf8_lossy(stream);
        lines.extend(
            text.lines()
                .map(str::trim)
                .filter(|line| !line.is_empty())
                .map(str::to_owned),
        );
    }
    if lines.is_empty() {
        finished.how()
    } else {
        lines.join(" | ")
    }
}

/// The end of already redacted words, as reports carry it.
pub fn tail(words: &str) -> &str {
    let skipped = words.chars().count().saturating_sub(WORDS_CHARACTERS);
    words
        .char_indices()
        .nth(skipped)
        .and_then(|(at, _)| words.get(at..))
        .unwrap_or(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_pull_has_its_kind() {
        let rows = [
            (
                "Error response from daemon: Head \"https://r/v2/a/manifests/1\": no basic auth credentials",
                Code::PullAuth,
            ),
            (
                "manifest for r/a:nope not found: manifest unknown: manifest unknown",
                Code::PullNotFound,
            ),
            (
                "toomanyrequests: You have reached your pull rate limit",
                Code::PullRateLimit,
            ),
            (
                "dial tcp: lookup r on 127.0.0.53:53: no such host",
                Code::PullNetwork,
            ),
            (
                "dial tcp 127.0.0.1:5000: connect: connection refused",
                Code::PullNetwork,
            ),
            (
                "x509: certificate signed by unknown authority",
                Code::PullTls,
            ),
            (
                "write /var/lib/docker/tmp/x: no space left on device",
                Code::PullDisk,
            ),
            ("something else", Code::PullFailed),
        ];
        for (words, code) in rows {
            assert_eq!(pull_code(words), code, "{words}");
        }
    }

    #[test]
    fn dockers_own_trouble_is_told_apart() {
        let rows: [(&str, Option<Code>); 5] = [
            (
                "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
                Some(Code::DockerDown),
            ),
            (
                "permission denied while trying to connect to the Docker daemon socket at unix:///x",
                Some(Code::DockerPermission),
            ),
            (
                "unknown shorthand flag: 'p' in -p\nSee 'docker --help'.",
                Some(Code::DockerMissing),
            ),
            ("unknown flag: --variables", Some(Code::DockerMissing)),
            ("service \"api\" refers to undefined network x", None),
        ];
        for (stderr, code) in rows {
            assert_eq!(
                diagnose(stderr.as_bytes()).map(|e| e.code()),
                code,
                "{stderr}"
            );
        }
    }

    #[test]
    fn the_tail_counts_characters() {
        let words = format!("{}ä", "x".repeat(700));
        assert_eq!(tail(&words).chars().count(), 600);
        assert_eq!(tail("short"), "short");
    }
}
