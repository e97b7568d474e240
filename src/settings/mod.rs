//! The configuration: the file's text → a tree (`yaml`) → what is written (`raw`) → validated [`Settings`] (`check`).
//! Only validated settings leave this folder, and nothing checks them again. `keys` is the one table of all keys.
//!
//! Everything wrong with a file is reported at once, each problem with line, column and what to write instead.

mod check;
mod fault;
mod file;
mod keys;
mod parts;
mod raw;
mod show;
mod values;
mod warn;
mod yaml;

pub use crate::host::log::Target as LogTarget;
pub use values::{HostPort, OnDrift, OnUnhealthy, Origin, PruneImages, Scheme, VolumesOnAbsent};

use crate::error::{Error, Problem, Result};
use crate::names::{EnvId, ProjectName, Sha256, TransportKind};
use fault::Faults;
use keys::Key;
use std::path::{Path, PathBuf};

/// A longer file is refused (bytes).
pub const MAX_BYTES: usize = 64 * 1024;

/// A valid configuration. There is one way to get one: to read it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The file that it was read from.
    pub path: PathBuf,
    /// The environment that this box runs.
    pub env_id: EnvId,
    /// Where the box stands.
    pub site: String,
    /// How connections leave the box.
    pub transport: TransportKind,
    /// The box's ziti identity file, for the words of a failed connection.
    pub identity: Option<PathBuf>,
    /// How tenancy is reached.
    pub tenancy: Tenancy,
    /// How OpenBao is reached.
    pub bao: Bao,
    /// Seconds between two ticks of `run`; the base of the back-off.
    pub interval_s: u64,
    /// The agent's own files.
    pub state_dir: PathBuf,
    /// The releases and the project directory.
    pub deploy_dir: PathBuf,
    /// The staged deploy grant.
    pub bootstrap_file: PathBuf,
    /// Whether being offline is normal.
    pub laptop_mode: bool,
    /// Whether this is a production box.
    pub prod: bool,
    /// What becomes of volumes when the environment is taken down.
    pub volumes_on_absent: VolumesOnAbsent,
    /// Free space must be the bundle's need times this, plus the headroom.
    pub disk_factor: f64,
    /// Bytes that must stay free in any case.
    pub disk_headroom_bytes: u64,
    /// Seconds that containers may take to become healthy.
    pub healthy_timeout_s: u64,
    /// Seconds that all containers must stay good.
    pub stable_for_s: u64,
    /// What to do about drift.
    pub on_drift: OnDrift,
    /// What to do when an apply fails after `up`.
    pub on_unhealthy: OnUnhealthy,
    /// How many releases stay on the disk.
    pub keep_releases: usize,
    /// Which images are deleted after a good apply.
    pub prune_images: PruneImages,
    /// The compose project.
    pub compose_project: ProjectName,
    /// The docker command: a name in PATH or an absolute path.
    pub docker_bin: String,
    /// Seconds that one docker command may take.
    pub docker_timeout_s: u64,
    /// Seconds that the pull may take.
    pub pull_timeout_s: u64,
    /// The registry of a credential that names none; none when explicitly empty.
    pub registry_host: Option<String>,
    /// Where metrics are written.
    pub metrics_textfile: Option<PathBuf>,
    /// Seconds between two looks at docker for facts and drift.
    pub facts_interval_s: u64,
    /// The least important level that is logged.
    pub log_level: log::LevelFilter,
    /// Where log lines go.
    pub log_target: LogTarget,
    /// The digest of the file, to see whether it changed.
    pub sha256: Sha256,
    /// What is allowed and most likely a mistake; the caller logs it.
    pub warnings: Vec<String>,
    origins: [Origin; Key::COUNT],
}

/// How tenancy is reached.
#[derive(Clone, Debug)]
pub struct Tenancy {
    /// The mesh service's name.
    pub service: String,
    /// The intercept host, without brackets.
    pub host: String,
    /// The intercept port.
    pub port: u16,
    /// Plain HTTP inside the mesh, or HTTPS.
    pub scheme: Scheme,
    /// The local forwarder, for `transport: proxy`.
    pub proxy_addr: HostPort,
    /// Seconds that one request may take.
    pub timeout_s: u64,
}

impl Tenancy {
    /// `scheme://host:port`.
    pub fn origin(&self) -> String {
        values::origin(self.scheme, &self.host, self.port)
    }
}

/// How OpenBao is reached.
#[derive(Clone, Debug)]
pub struct Bao {
    /// The mesh service's name.
    pub service: String,
    /// How HTTP is spoken.
    pub scheme: Scheme,
    /// The host, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The local forwarder, for `transport: proxy`.
    pub proxy_addr: HostPort,
    /// The only trusted CA certificates, when set.
    pub ca_file: Option<PathBuf>,
    /// The JWT auth mount.
    pub auth_mount: String,
    /// The role.
    pub role: String,
    /// The KV v2 mount.
    pub kv_mount: String,
    /// Seconds that one request may take.
    pub timeout_s: u64,
    /// The token is renewed when it has fewer seconds left.
    pub renew_below_s: u64,
}

impl Bao {
    /// `scheme://host:port`.
    pub fn origin(&self) -> String {
        values::origin(self.scheme, &self.host, self.port)
    }
}

impl Settings {
    /// Reads and validates a file.
    ///
    /// # Errors
    /// [`Error::ConfigUnreadable`], [`Error::FileUnsafe`] when others could have written it, or [`Error::ConfigInvalid`]
    /// with every problem found.
    pub fn load(path: &Path) -> Result<Self> {
        Self::parse(path, &file::read(path)?)
    }

    /// Validates a file's bytes; the path is for messages.
    ///
    /// # Errors
    /// [`Error::ConfigInvalid`] with every problem found.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self> {
        Self::read(path, bytes, raw::NOT_YET).map_err(|problems| Error::ConfigInvalid {
            path: path.to_owned(),
            problems,
        })
    }

    fn read(
        path: &Path,
        bytes: &[u8],
        not_yet: &[&str],
    ) -> std::result::Result<Self, Vec<Problem>> {
        let text = fault::to_text(bytes, MAX_BYTES)?;
        let mut faults = Faults::new(text);
        let entries = yaml::parse(text, &mut faults);
        let is_whole = faults.is_empty();
        let raw = raw::Raw::read(entries, &mut faults, not_yet);
        match check::validate(path, Sha256::of(bytes), &raw, is_whole, &mut faults) {
            Some(settings) => Ok(settings),
            None => Err(faults.into_problems()),
        }
    }
}

#[cfg(test)]
mod tests;
