//! What is allowed and most likely a mistake: warnings of a valid configuration. Whoever loads it logs them.

use super::values::{Scheme, VolumesOnAbsent};
use super::{Settings, parts};
use crate::names::TransportKind;

/// The port that tenancy's pod listens on, behind the mesh: no intercept.
const POD_PORT: u16 = 8081;

/// The warnings, each with what to do.
pub fn warnings(settings: &Settings, is_port_named: bool) -> Vec<String> {
    let mut found = Vec::new();
    let Settings { tenancy, bao, .. } = settings;
    if tenancy.port == POD_PORT {
        found.push(format!(
            "`tenancy.port` is {POD_PORT}, the pod's own port, which is no intercept of the mesh: set it to 443"
        ));
    }
    if !is_port_named && tenancy.scheme == Scheme::Http {
        found.push(format!(
            "`tenancy.base_url` names no port, so {} is used; the intercept's usually is 443: write `http://{}:443`",
            tenancy.port,
            // An origin without its port, whatever the form of the host.
            tenancy.origin().trim_start_matches("http://").trim_end_matches(":80")
        ));
    }
    if settings.transport == TransportKind::Proxy {
        let pairs = [
            ("tenancy.proxy_addr", tenancy.scheme, &tenancy.proxy_addr),
            ("bao.proxy_addr", bao.scheme, &bao.proxy_addr),
        ];
        for (key, scheme, addr) in pairs {
            if scheme == Scheme::Http && !parts::is_loopback(addr.host()) {
                found.push(format!(
                    "`{key}` is {addr}, which is not this machine: the token leaves it without TLS; use a local forwarder"
                ));
            }
        }
    } else if bao.scheme == Scheme::Http && !parts::is_loopback(&bao.host) {
        found.push(
            "`bao.addr` begins with `http://`: the token and the secrets leave this machine without TLS; use `https://`"
                .to_owned(),
        );
    }
    if settings.prod && settings.volumes_on_absent == VolumesOnAbsent::Purge {
        found.push(
            "`volumes_on_absent: purge` has no effect on a production box: only `tick --purge-volumes` deletes volumes there"
                .to_owned(),
        );
    }
    if let Some(path) = &settings.metrics_textfile
        && path.extension().is_none_or(|extension| extension != "prom")
    {
        found.push(format!(
            "`metrics_textfile` is {}, and node_exporter reads only files whose names end in `.prom`: rename it",
            path.display()
        ));
    }
    found
}
