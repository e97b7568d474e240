//! As written → validated: defaults are filled in, texts become checked types, keys are held against each other. All
//! faults are found in one pass; only when there is none does a [`Settings`] come to be.

use super::fault::Faults;
use super::keys::{Key, Spec};
use super::parts::{self, Checked, Url};
use super::raw::{Raw, Value, Written, default_value};
use super::values::{OnDrift, OnUnhealthy, Origin, PruneImages, Scheme, VolumesOnAbsent};
use super::yaml::scalar::clip;
use super::{Bao, LogTarget, Settings, Tenancy, warn};
use crate::names::{EnvId, ProjectName, Sha256, TransportKind};
use std::borrow::Cow;
use std::path::Path;

/// `healthy_timeout_s` and `pull_timeout_s` share the tick's 40 minutes with everything else.
const MAX_WAITS_S: u64 = 2100;

/// Validates; none when there are faults, which then stand in `faults`. `is_whole` says that no line was refused, so that
/// a key that is missing really is.
pub fn validate<'a>(
    path: &Path,
    sha256: Sha256,
    raw: &Raw<'a>,
    is_whole: bool,
    faults: &mut Faults<'a>,
) -> Option<Settings> {
    let mut check = Check {
        raw,
        faults,
        is_whole,
    };
    let env_id = check.required(Key::EnvId, "env-qa-02", env_id);
    let site = check.required(Key::Site, "cbs", |text| Ok(text.to_owned()));
    let identity = check.checked(Key::Identity, parts::path);
    let base_url = check.checked(Key::TenancyBaseUrl, parts::url);
    let tenancy = check.tenancy(base_url.as_ref());
    let bao = check.bao();
    let transport = match &*check.text(Key::Transport) {
        "proxy" => TransportKind::Proxy,
        _ => TransportKind::System,
    };
    if transport == TransportKind::Proxy {
        check.forwarders(tenancy.as_ref(), bao.as_ref());
    }
    let state_dir = check.checked(Key::StateDir, parts::directory);
    let deploy_dir = match check.checked(Key::DeployDir, parts::directory) {
        None => state_dir
            .as_ref()
            .zip(env_id.as_ref())
            .map(|(dir, env)| dir.join(env.as_str())),
        given => given,
    };
    let compose_project = match check.checked(Key::ComposeProject, project) {
        None => env_id
            .as_ref()
            .and_then(|env| project(&format!("monky-{env}")).ok()),
        given => given,
    };
    let bootstrap_file = check.checked(Key::BootstrapFile, parts::path);
    let docker_bin = check.checked(Key::DockerBin, parts::program);
    let registry_host = check.checked(Key::RegistryHost, parts::registry);
    let metrics_textfile = check.checked(Key::MetricsTextfile, parts::path);
    check.waits();
    if !check.faults.is_empty() {
        return None;
    }

    // Every part that could be missing below has noted its fault above, so each `?` only takes what is there.
    let env_id = env_id?;
    let mut settings = Settings {
        path: path.to_owned(),
        prod: check
            .flag(Key::Prod)
            .unwrap_or_else(|| env_id.as_str().starts_with("env-prod")),
        env_id,
        site: site?,
        transport,
        identity,
        tenancy: tenancy?,
        bao: bao?,
        interval_s: check.int(Key::IntervalS),
        state_dir: state_dir?,
        deploy_dir: deploy_dir?,
        bootstrap_file: bootstrap_file?,
        laptop_mode: check.flag(Key::LaptopMode)?,
        volumes_on_absent: VolumesOnAbsent::from_word(&check.text(Key::VolumesOnAbsent))?,
        disk_factor: check.number(Key::DiskFactor),
        disk_headroom_bytes: check.int(Key::DiskHeadroomBytes),
        healthy_timeout_s: check.int(Key::HealthyTimeoutS),
        stable_for_s: check.int(Key::StableForS),
        on_drift: OnDrift::from_word(&check.text(Key::OnDrift))?,
        on_unhealthy: OnUnhealthy::from_word(&check.text(Key::OnUnhealthy))?,
        keep_releases: usize::try_from(check.int(Key::KeepReleases)).ok()?,
        prune_images: PruneImages::from_word(&check.text(Key::PruneImages))?,
        compose_project: compose_project?,
        docker_bin: docker_bin?,
        docker_timeout_s: check.int(Key::DockerTimeoutS),
        pull_timeout_s: check.int(Key::PullTimeoutS),
        registry_host: registry_host?,
        metrics_textfile,
        facts_interval_s: check.int(Key::FactsIntervalS),
        log_level: check.text(Key::LogLevel).parse().ok()?,
        log_target: match &*check.text(Key::LogTarget) {
            "stderr" => LogTarget::Stderr,
            "syslog" => LogTarget::Syslog,
            _ => LogTarget::Auto,
        },
        sha256,
        warnings: Vec::new(),
        origins: check.origins(),
    };
    let is_port_named =
        base_url.is_none_or(|url| url.port.is_some()) || check.is_set(Key::TenancyPort);
    settings.warnings = warn::warnings(&settings, is_port_named);
    Some(settings)
}

fn env_id(text: &str) -> Checked<EnvId> {
    EnvId::new(text).map_err(|e| format!("{e}, not `{}`", clip(text)))
}

fn project(text: &str) -> Checked<ProjectName> {
    ProjectName::new(text).map_err(|e| format!("{e}, not `{}`", clip(text)))
}

struct Check<'c, 'a> {
    raw: &'c Raw<'a>,
    faults: &'c mut Faults<'a>,
    /// Whether the whole text could be read: otherwise a key may be missing only because its line was refused.
    is_whole: bool,
}

impl<'a> Check<'_, 'a> {
    /// Whether the file gives the key a value.
    fn is_set(&self, key: Key) -> bool {
        self.raw
            .get(key)
            .is_some_and(|written| written.value != Value::Unset)
    }

    /// The written value, or the default.
    fn value(&self, key: Key) -> Value<'a> {
        match self.raw.get(key) {
            Some(written) if written.value != Value::Unset => written.value.clone(),
            _ => default_value(key),
        }
    }

    /// Notes a fault at the key's value, or at no place when the file does not give it.
    fn fault(&mut self, key: Key, message: &str) {
        let message = format!("`{}` {message}", key.name());
        match self.raw.get(key) {
            Some(Written {
                value: Value::Text(text),
                key_at,
                ..
            }) if text.contains('@') => {
                // A password may stand in a URL: the excerpt ends before it.
                self.faults.at_name(key_at, message);
            }
            Some(written) => self.faults.at(written.at, message),
            None => self.faults.anywhere(message),
        }
    }

    /// The checked text of a key; none when it has no value, or when the fault is noted.
    fn checked<T>(&mut self, key: Key, check: impl Fn(&str) -> Checked<T>) -> Option<T> {
        let Value::Text(text) = self.value(key) else {
            return None;
        };
        let checked = if text.is_empty() && key != Key::RegistryHost {
            Err("must not be empty: write a value, or remove the line".to_owned())
        } else {
            check(&text)
        };
        checked.map_err(|message| self.fault(key, &message)).ok()
    }

    /// The checked text of a key that the file must give.
    fn required<T>(
        &mut self,
        key: Key,
        example: &str,
        check: impl Fn(&str) -> Checked<T>,
    ) -> Option<T> {
        if !self.is_set(key) && self.is_whole {
            let Spec { meaning, .. } = key.spec();
            let message = format!(
                "is required ({meaning}): write it, for example `{}: {example}`",
                key.name()
            );
            self.fault(key, &message);
        }
        self.checked(key, check)
    }

    /// The text of a key as it is; empty when it has none.
    fn text(&self, key: Key) -> Cow<'a, str> {
        match self.value(key) {
            Value::Text(text) => text,
            _ => Cow::Borrowed(""),
        }
    }

    fn int(&self, key: Key) -> u64 {
        match self.value(key) {
            Value::Int(value) => value,
            _ => 0,
        }
    }

    fn number(&self, key: Key) -> f64 {
        match self.value(key) {
            Value::Number(value) => value,
            _ => 0.0,
        }
    }

    fn flag(&self, key: Key) -> Option<bool> {
        match self.value(key) {
            Value::Bool(value) => Some(value),
            _ => None,
        }
    }

    fn tenancy(&mut self, base_url: Option<&Url>) -> Option<Tenancy> {
        let service = self.checked(Key::TenancyService, |text| Ok(text.to_owned()));
        let own_host = self.checked(Key::TenancyHost, parts::host);
        let proxy_addr = self.checked(Key::TenancyProxyAddr, parts::host_port);
        let scheme = Scheme::from_word(&self.text(Key::TenancyScheme));
        let port = u16::try_from(self.int(Key::TenancyPort)).unwrap_or(0);
        if let Some(url) = base_url {
            self.same(
                Key::TenancyScheme,
                scheme.map(Scheme::as_str),
                url.scheme.as_str(),
            );
            self.same(Key::TenancyHost, own_host.as_deref(), &url.host);
            if let Some(named) = url.port {
                self.same(
                    Key::TenancyPort,
                    Some(&port.to_string()),
                    &named.to_string(),
                );
            }
        }
        let host = match (base_url, own_host) {
            (Some(url), _) => Some(url.host.clone()),
            (None, Some(host)) => Some(host),
            (None, None) if self.is_set(Key::TenancyHost) => None,
            // Without a host of its own, the service's name is dialled.
            (None, None) => self.checked(Key::TenancyService, parts::host),
        };
        let port = match base_url {
            Some(url) if url.port.is_some() || !self.is_set(Key::TenancyPort) => {
                url.effective_port()
            }
            _ => port,
        };
        Some(Tenancy {
            service: service?,
            host: host?,
            port,
            scheme: base_url.map(|url| url.scheme).or(scheme)?,
            proxy_addr: proxy_addr?,
            timeout_s: self.int(Key::TenancyTimeoutS),
        })
    }

    /// Refuses a part of `tenancy.base_url` that is also given by itself, with another value.
    fn same(&mut self, key: Key, own: Option<&str>, of_url: &str) {
        if let Some(own) = own.filter(|own| self.is_set(key) && *own != of_url) {
            let message = format!(
                "says `{}`, `tenancy.base_url` says `{}`: remove one of the two",
                clip(own),
                clip(of_url)
            );
            self.fault(key, &message);
        }
    }

    fn bao(&mut self) -> Option<Bao> {
        let service = self.checked(Key::BaoService, |text| Ok(text.to_owned()));
        let addr = self.checked(Key::BaoAddr, parts::url);
        let proxy_addr = self.checked(Key::BaoProxyAddr, parts::host_port);
        let ca_file = self.checked(Key::BaoCaFile, parts::path);
        let auth_mount = self.checked(Key::BaoAuthMount, parts::mount);
        let role = self.checked(Key::BaoRole, parts::role);
        let kv_mount = self.checked(Key::BaoKvMount, parts::mount);
        let addr = addr?;
        Some(Bao {
            service: service?,
            scheme: addr.scheme,
            port: addr.effective_port(),
            host: addr.host,
            proxy_addr: proxy_addr?,
            ca_file,
            auth_mount: auth_mount?,
            role: role?,
            kv_mount: kv_mount?,
            timeout_s: self.int(Key::BaoTimeoutS),
            renew_below_s: self.int(Key::BaoRenewBelowS),
        })
    }

    /// The map of `transport: proxy` needs two addresses that can be told apart, or one forwarder for both.
    fn forwarders(&mut self, tenancy: Option<&Tenancy>, bao: Option<&Bao>) {
        if let (Some(tenancy), Some(bao)) = (tenancy, bao)
            && tenancy.host == bao.host
            && tenancy.port == bao.port
            && tenancy.proxy_addr != bao.proxy_addr
        {
            let message = "is tenancy's host and port too, so `transport: proxy` cannot tell which forwarder to use: give one of them another host or port";
            self.fault(Key::BaoAddr, message);
        }
    }

    fn waits(&mut self) {
        let (healthy, pull) = (self.int(Key::HealthyTimeoutS), self.int(Key::PullTimeoutS));
        if healthy + pull <= MAX_WAITS_S {
            return;
        }
        // Whichever the file gives is the one to change; the pull's when it gives both or the other one cannot help.
        let key = if self.is_set(Key::PullTimeoutS) {
            Key::PullTimeoutS
        } else {
            Key::HealthyTimeoutS
        };
        let message = format!(
            "is too long: `healthy_timeout_s` ({healthy}) and `pull_timeout_s` ({pull}) together may be at most {MAX_WAITS_S}"
        );
        self.fault(key, &message);
    }

    fn origins(&self) -> [Origin; Key::COUNT] {
        let mut origins = [Origin::Default; Key::COUNT];
        for (key, origin) in Key::ALL.iter().zip(&mut origins) {
            let by_url = matches!(
                key,
                Key::TenancyScheme | Key::TenancyHost | Key::TenancyPort
            ) && self.is_set(Key::TenancyBaseUrl);
            if by_url || self.is_set(*key) {
                *origin = Origin::File;
            }
        }
        origins
    }
}
