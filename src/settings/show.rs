//! What `config check` shows: every key of the table with its effective value and where it comes from.

use super::keys::Key;
use super::values::Origin;
use super::{LogTarget, Settings};
use std::path::Path;

impl Settings {
    /// Every key in the order of the table: name, value as one would write it, origin. An unset value is `null`, an
    /// explicitly empty one `""`.
    pub fn effective(&self) -> Vec<(String, String, Origin)> {
        Key::ALL
            .iter()
            .zip(self.origins)
            .map(|(key, origin)| (key.name().to_owned(), self.show(*key, origin), origin))
            .collect()
    }

    fn show(&self, key: Key, origin: Origin) -> String {
        let Self { tenancy, bao, .. } = self;
        match key {
            Key::EnvId => self.env_id.to_string(),
            Key::Site => self.site.clone(),
            Key::Transport => self.transport.to_string(),
            Key::Identity => path_or_null(self.identity.as_deref()),
            Key::TenancyService => tenancy.service.clone(),
            Key::TenancyHost => tenancy.host.clone(),
            Key::TenancyPort => tenancy.port.to_string(),
            Key::TenancyScheme => tenancy.scheme.to_string(),
            Key::TenancyBaseUrl if origin == Origin::File => tenancy.origin(),
            Key::TenancyBaseUrl => null(),
            Key::TenancyProxyAddr => tenancy.proxy_addr.to_string(),
            Key::TenancyTimeoutS => tenancy.timeout_s.to_string(),
            Key::BaoService => bao.service.clone(),
            Key::BaoAddr => bao.origin(),
            Key::BaoProxyAddr => bao.proxy_addr.to_string(),
            Key::BaoCaFile => path_or_null(bao.ca_file.as_deref()),
            Key::BaoAuthMount => bao.auth_mount.clone(),
            Key::BaoRole => bao.role.clone(),
            Key::BaoKvMount => bao.kv_mount.clone(),
            Key::BaoTimeoutS => bao.timeout_s.to_string(),
            Key::BaoRenewBelowS => bao.renew_below_s.to_string(),
            Key::IntervalS => self.interval_s.to_string(),
            Key::StateDir => path(&self.state_dir),
            Key::DeployDir => path(&self.deploy_dir),
            Key::BootstrapFile => path(&self.bootstrap_file),
            Key::LaptopMode => self.laptop_mode.to_string(),
            Key::Prod => self.prod.to_string(),
            Key::VolumesOnAbsent => self.volumes_on_absent.to_string(),
            Key::DiskFactor => self.disk_factor.to_string(),
            Key::DiskHeadroomBytes => self.disk_headroom_bytes.to_string(),
            Key::HealthyTimeoutS => self.healthy_timeout_s.to_string(),
            Key::StableForS => self.stable_for_s.to_string(),
            Key::OnDrift => self.on_drift.to_string(),
            Key::OnUnhealthy => self.on_unhealthy.to_string(),
            Key::KeepReleases => self.keep_releases.to_string(),
            Key::PruneImages => self.prune_images.to_string(),
            Key::ComposeProject => self.compose_project.to_string(),
            Key::DockerBin => self.docker_bin.clone(),
            Key::DockerTimeoutS => self.docker_timeout_s.to_string(),
            Key::PullTimeoutS => self.pull_timeout_s.to_string(),
            Key::RegistryHost => self
                .registry_host
                .clone()
                .unwrap_or_else(|| "\"\"".to_owned()),
            Key::MetricsTextfile => path_or_null(self.metrics_textfile.as_deref()),
            Key::FactsIntervalS => self.facts_interval_s.to_string(),
            Key::LogLevel => self.log_level.to_string(),
            Key::LogTarget => log_target(self.log_target),
        }
    }
}

fn log_target(target: LogTarget) -> String {
    match target {
        LogTarget::Auto => "auto",
        LogTarget::Stderr => "stderr",
        LogTarget::Syslog => "syslog",
    }
    .to_owned()
}

fn null() -> String {
    "null".to_owned()
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

fn path_or_null(value: Option<&Path>) -> String {
    value.map_or_else(null, path)
}
