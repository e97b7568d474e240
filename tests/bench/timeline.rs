//! Where the time of a tick goes. The lock's record names each stage as it begins; strace shows those writes, the syncs,
//! and the life of every child. With a filter in the kernel only these calls stop, so the rest runs at its own speed.

use crate::measure::around;
use crate::support::agent::AgentBox;
use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;

/// What a stage took, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// From its beginning to that of the next.
    pub wall: f64,
    /// Of it, waiting for the disk.
    pub sync: f64,
    /// Of it, while a docker command ran.
    pub docker: f64,
}

impl Spent {
    /// The agent's own: without docker's and the disk's.
    pub fn own(&self) -> f64 {
        self.wall - self.sync - self.docker
    }

    fn add(&mut self, other: &Self) {
        self.wall += other.wall;
        self.sync += other.sync;
        self.docker += other.docker;
    }
}

/// The stages of one tick by name; the time before the first is `start`.
pub struct Timeline {
    stages: BTreeMap<String, Spent>,
}

impl Timeline {
    /// Runs a tick that must succeed.
    pub fn of_tick(agent: &AgentBox) -> Self {
        let log = agent.path("timeline");
        let options = [
            "-f",
            "--seccomp-bpf",
            "-ttt",
            "-T",
            "-s",
            "400",
            "-e",
            "trace=pwrite64,fsync,syncfs,execve,exit_group",
            "-e",
            "signal=none",
            "-o",
        ]
        .map(str::as_ref);
        let mut command = around(
            &agent.command(&["tick", "--force"]),
            "strace",
            &options,
            &log,
        );
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        Self::read(&fs::read_to_string(&log).unwrap())
    }

    /// All stages whose names are given, together.
    pub fn sum(&self, names: &[&str]) -> Spent {
        let mut sum = Spent::default();
        for (name, spent) in &self.stages {
            if names.contains(&name.as_str()) {
                sum.add(spent);
            }
        }
        sum
    }

    /// The whole tick.
    pub fn whole(&self) -> Spent {
        let mut sum = Spent::default();
        self.stages.values().for_each(|spent| sum.add(spent));
        sum
    }

    /// Every stage that took time, for a reader who wonders.
    pub fn names(&self) -> impl Iterator<Item = (&str, &Spent)> {
        self.stages
            .iter()
            .map(|(name, spent)| (name.as_str(), spent))
    }

    fn read(log: &str) -> Self {
        let mut lines = log.lines().filter_map(Line::read).peekable();
        let first = lines.peek().expect("a trace");
        let (agent, mut stage, mut since) = (first.pid, "start".to_owned(), first.at);
        // The agent's threads sync, too; a child is known by its execve.
        let mut children: BTreeMap<i32, f64> = BTreeMap::new();
        let mut stages: BTreeMap<String, Spent> = BTreeMap::new();
        let mut docker_since = 0.0;
        for line in lines {
            let spent = stages.entry(stage.clone()).or_default();
            if line.pid != agent && line.text.starts_with("execve(") {
                if children.is_empty() {
                    docker_since = line.at;
                }
                children.insert(line.pid, line.at);
            } else if line.text.starts_with("+++") && children.remove(&line.pid).is_some() {
                if children.is_empty() {
                    spent.docker += line.at - docker_since;
                }
            } else if children.contains_key(&line.pid) {
                // Its syncs are its own.
            } else if line.text.contains("sync") {
                spent.sync += line.took();
            } else if let Some(next) = line.stage() {
                spent.wall += line.at - since;
                if !children.is_empty() {
                    spent.docker += line.at - docker_since;
                    docker_since = line.at;
                }
                (stage, since) = (next, line.at);
            } else if line.pid == agent && line.text.starts_with("exit_group(") {
                spent.wall += line.at - since;
                since = line.at;
            }
        }
        Self { stages }
    }
}

/// One line of strace.
struct Line<'a> {
    pid: i32,
    /// Milliseconds.
    at: f64,
    text: &'a str,
}

impl<'a> Line<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let (pid, rest) = line.split_once(' ')?;
        let (at, text) = rest.trim_start().split_once(' ')?;
        let at: f64 = at.parse().ok()?;
        Some(Self {
            pid: pid.parse().ok()?,
            at: at * 1_000.0,
            text,
        })
    }

    /// `… = 0 <0.000123>`
    fn took(&self) -> f64 {
        let seconds = self
            .text
            .rsplit_once('<')
            .and_then(|(_, rest)| rest.strip_suffix('>')?.parse::<f64>().ok());
        seconds.unwrap_or(0.0) * 1_000.0
    }

    /// The stage that the lock's record names.
    fn stage(&self) -> Option<String> {
        if !self.text.starts_with("pwrite64(") {
            return None;
        }
        let (_, rest) = self.text.split_once(r#"\"stage\":\""#)?;
        Some(rest.split_once('\\')?.0.to_owned())
    }
}
