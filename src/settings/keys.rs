//! The one table of configuration keys: name, type with range, default, meaning. It drives the reading, the unknown-key
//! suggestions, the defaults, `config check`, and the tests that hold `docs/CONFIG.md` and
//! `packaging/config.example.yaml` to it.

use super::values::{OnDrift, OnUnhealthy, PruneImages, Scheme, VolumesOnAbsent};

/// What may stand behind a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// One line of text; the word is for people.
    Text(&'static str),
    /// An absolute path.
    Path,
    /// `true` or `false`.
    Bool,
    /// A whole number within a range.
    Int { min: u64, max: u64 },
    /// A number within a range.
    Number { min: f64, max: f64 },
    /// One of some words.
    OneOf(&'static [&'static str]),
    /// One of the log levels, in any case.
    Level,
}

/// What holds when the file does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// Nothing: the file must say.
    Required,
    /// The thing stays unset.
    Unset,
    /// This, as one would write it.
    Fixed(&'static str),
    /// It follows from other keys, in these words.
    Derived(&'static str),
}

/// What the table says of a key.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Type and range.
    pub kind: Kind,
    /// The default.
    pub fallback: Fallback,
    /// One line for people.
    pub meaning: &'static str,
}

/// The log levels.
pub const LEVELS: &[&str] = &["ERROR", "WARN", "INFO", "DEBUG", "TRACE"];

const fn text(word: &'static str) -> Kind {
    Kind::Text(word)
}

const fn from_to(min: u64, max: u64) -> Kind {
    Kind::Int { min, max }
}

macro_rules! keys {
    ($($key:ident = $name:literal, $kind:expr, $fallback:expr, $meaning:literal;)+) => {
        /// A key of the configuration.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Key { $($key,)+ }

        impl Key {
            /// Every key, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$key,)+];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// Its line of the table.
            pub const fn spec(self) -> Spec {
                match self {
                    $(Self::$key => Spec { kind: $kind, fallback: $fallback, meaning: $meaning },)+
                }
            }

            /// Its name, with the section and a dot in front.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$key => $name,)+ }
            }
        }
    };
}

use Fallback::{Derived, Fixed, Required, Unset};
use Kind::{Bool, Level, Number, OneOf, Path};

keys! {
    EnvId = "env_id", text("name"), Required, "the environment that this box runs: `[a-z0-9][a-z0-9-]{0,62}`";
    Site = "site", text("string"), Required, "where the box stands, for example `cbs`";
    Transport = "transport", OneOf(&["system", "proxy"]), Fixed("system"), "how connections leave the box: `system` through the mesh tunneler, `proxy` through local forwarders";
    Identity = "identity", Path, Unset, "the box's ziti identity file; the agent never reads it, and a failed connection says when it is not there";
    TenancyService = "tenancy.service", text("name"), Fixed("monky.tenancy.deploy"), "tenancy's mesh service name";
    TenancyHost = "tenancy.host", text("host"), Derived("`tenancy.service`"), "tenancy's intercept host";
    TenancyPort = "tenancy.port", from_to(1, 65535), Fixed("443"), "tenancy's intercept port";
    TenancyScheme = "tenancy.scheme", OneOf(Scheme::WORDS), Fixed("http"), "plain HTTP inside the mesh, or HTTPS";
    TenancyBaseUrl = "tenancy.base_url", text("URL"), Unset, "sets `tenancy.scheme`, `tenancy.host` and `tenancy.port` in one; both forms with different values are an error";
    TenancyProxyAddr = "tenancy.proxy_addr", text("host:port"), Fixed("127.0.0.1:18443"), "the local forwarder to tenancy, for `transport: proxy`";
    TenancyTimeoutS = "tenancy.timeout_s", from_to(1, 600), Fixed("30"), "seconds that one request to tenancy may take";
    BaoService = "bao.service", text("name"), Fixed("openbao"), "OpenBao's mesh service name";
    BaoAddr = "bao.addr", text("URL"), Fixed("https://bao.cbs.tikali.net:8200"), "OpenBao's address; without a port 443 for `https`, 80 for `http`";
    BaoProxyAddr = "bao.proxy_addr", text("host:port"), Fixed("127.0.0.1:18200"), "the local forwarder to OpenBao, for `transport: proxy`";
    BaoCaFile = "bao.ca_file", Path, Unset, "CA certificates (PEM) for OpenBao; when set, only these are trusted";
    BaoAuthMount = "bao.auth_mount", text("mount"), Fixed("jwt-tenancy"), "the JWT auth mount that the agent logs in at";
    BaoRole = "bao.role", text("name"), Fixed("see-env"), "the role that the agent logs in with";
    BaoKvMount = "bao.kv_mount", text("mount"), Fixed("monky"), "the KV v2 mount of the secrets; a different one in tenancy's answer wins, with a log line";
    BaoTimeoutS = "bao.timeout_s", from_to(1, 600), Fixed("15"), "seconds that one request to OpenBao may take";
    BaoRenewBelowS = "bao.renew_below_s", from_to(60, 2_592_000), Fixed("21600"), "the token is renewed, or replaced through a lease, when it has fewer seconds left";
    IntervalS = "interval_s", from_to(10, 86_400), Fixed("60"), "seconds between two ticks of `run`; also the base of the back-off";
    StateDir = "state_dir", Path, Fixed("/var/lib/monky-deployd"), "the agent's own files";
    DeployDir = "deploy_dir", Path, Derived("`<state_dir>/<env_id>`"), "the releases and the project directory";
    BootstrapFile = "bootstrap_file", Path, Fixed("/etc/monky-deployd/bootstrap.jwt"), "the deploy grant that the operator stages; the agent only reads it";
    LaptopMode = "laptop_mode", Bool, Fixed("false"), "being offline ends a tick quietly with exit code 0";
    Prod = "prod", Bool, Derived("`true` if `env_id` begins `env-prod`"), "a production box never deletes volumes because of `volumes_on_absent`";
    VolumesOnAbsent = "volumes_on_absent", OneOf(VolumesOnAbsent::WORDS), Fixed("keep"), "what becomes of volumes when tenancy takes the environment down and asks for a purge";
    DiskFactor = "disk_factor", Number { min: 1.0, max: 10.0 }, Fixed("1.5"), "free space must be the bundle's need times this, plus the headroom";
    DiskHeadroomBytes = "disk_headroom_bytes", from_to(0, 1 << 50), Fixed("2147483648"), "bytes that must stay free in any case";
    HealthyTimeoutS = "healthy_timeout_s", from_to(1, 2100), Fixed("300"), "seconds that containers may take to become healthy; together with `pull_timeout_s` at most 2100";
    StableForS = "stable_for_s", from_to(0, 300), Fixed("15"), "seconds that all containers must stay good";
    OnDrift = "on_drift", OneOf(OnDrift::WORDS), Fixed("report"), "what to do about a service that no longer runs as it should";
    OnUnhealthy = "on_unhealthy", OneOf(OnUnhealthy::WORDS), Fixed("keep"), "`restore` brings the previous release back up when an apply fails";
    KeepReleases = "keep_releases", from_to(1, 50), Fixed("3"), "how many releases stay on the disk";
    PruneImages = "prune_images", OneOf(PruneImages::WORDS), Fixed("old"), "`old` deletes, after a good apply, images that only deleted releases used";
    ComposeProject = "compose_project", text("name"), Derived("`monky-<env_id>`"), "the compose project";
    DockerBin = "docker_bin", text("program"), Fixed("docker"), "the docker command: a name in PATH or an absolute path";
    DockerTimeoutS = "docker_timeout_s", from_to(1, 2100), Fixed("600"), "seconds that one docker command may take";
    PullTimeoutS = "pull_timeout_s", from_to(1, 2100), Fixed("1800"), "seconds that the pull may take; together with `healthy_timeout_s` at most 2100";
    RegistryHost = "registry_host", text("host[:port]"), Fixed("harbor.tikali.net"), "the registry of a credential that names none; `\"\"` makes such a credential an error";
    MetricsTextfile = "metrics_textfile", Path, Unset, "Prometheus text file for node_exporter, written after every tick; not supported by this version yet, and refused when set";
    FactsIntervalS = "facts_interval_s", from_to(0, 86_400), Fixed("600"), "seconds between two looks at docker for facts and drift";
    LogLevel = "log_level", Level, Fixed("INFO"), "the least important level that is logged, in any case";
    LogTarget = "log_target", OneOf(&["auto", "stderr", "syslog"]), Fixed("auto"), "where log lines go; `auto` is the journal or the terminal, else syslog";
}

impl Key {
    /// The key with this name within a section; the section of a top-level key is empty.
    pub fn find(section: &str, name: &str) -> Option<Self> {
        let is_it = |full: &str| match section {
            "" => full == name && !name.contains('.'),
            // The lengths decide nearly always, so a file is read without splitting every name for every line.
            _ => {
                full.len() == section.len() + 1 + name.len()
                    && full.split_once('.') == Some((section, name))
            }
        };
        Self::ALL.iter().copied().find(|key| is_it(key.name()))
    }

    /// Whether keys stand below this name.
    pub fn is_section(name: &str) -> bool {
        let begins = |full: &str| {
            full.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('.'))
        };
        !name.is_empty() && Self::ALL.iter().any(|key| begins(key.name()))
    }

    /// What stands before the dot; empty for a top-level key.
    pub fn section(self) -> &'static str {
        self.name()
            .split_once('.')
            .map_or("", |(section, _)| section)
    }

    /// What stands behind the dot.
    pub fn short_name(self) -> &'static str {
        self.name()
            .split_once('.')
            .map_or(self.name(), |(_, name)| name)
    }
}
