//! Where a connection goes. `system`: the operating system's names, with `getent` as a second opinion, because musl's
//! resolver fails outright where a nameserver answers the AAAA question with an error (mesh nameservers do) or a second
//! nameserver is quicker with "no such name". `proxy`: a fixed map of one name to one local forwarder; every other name
//! is refused before a connection is made.

use crate::host::interrupt::Interrupt;
use crate::host::process::{Runner, Task};
use crate::names::TransportKind;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc;
use std::time::Duration;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// How long the system's resolver may take: shorter than the ten seconds in which a signal must end the tick.
const RESOLVE_LIMIT: Duration = Duration::from_secs(8);
const GETENT_LIMIT: Duration = Duration::from_secs(3);
/// ureq keeps no more addresses than this.
const MAX_ADDRESSES: usize = 16;

/// The one name that a connection may go to, and how.
#[derive(Clone, Debug)]
pub struct Route {
    /// `system` or `proxy`.
    pub transport: TransportKind,
    /// The configured host.
    pub host: String,
    /// The configured port.
    pub port: u16,
    /// The local forwarder of the `proxy` transport, `host:port`.
    pub forwarder: String,
}

/// A name that could not be turned into an address, in words.
#[derive(Debug)]
pub struct ResolveError(String);

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ResolveError {}

impl Route {
    /// The addresses to dial for `host:port`.
    ///
    /// # Errors
    /// Says in words why there are none.
    pub fn addresses(
        &self,
        host: &str,
        port: u16,
        limit: Duration,
    ) -> Result<Vec<SocketAddr>, ResolveError> {
        match self.transport {
            TransportKind::Proxy if host == self.host && port == self.port => self
                .forwarder
                .to_socket_addrs()
                .map(Iterator::collect)
                .map_err(|e| {
                    ResolveError(format!(
                        "the forwarder's address {} does not resolve: {e}",
                        self.forwarder
                    ))
                }),
            TransportKind::Proxy => Err(ResolveError(format!(
                "transport proxy has no forwarder for {host}:{port}, only for {}:{}",
                self.host, self.port
            ))),
            TransportKind::System => resolve_by_system(host, port, limit.min(RESOLVE_LIMIT)),
        }
    }
}

impl Resolver for Route {
    fn resolve(
        &self,
        uri: &Uri,
        _: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let host = uri.host().unwrap_or_default();
        let port = uri
            .port_u16()
            .unwrap_or(if uri.scheme_str() == Some("https") {
                443
            } else {
                80
            });
        let found = self
            .addresses(host, port, *timeout.after)
            .map_err(|e| ureq::Error::Io(io::Error::other(e)))?;
        let mut addresses = self.empty();
        for address in found.into_iter().take(MAX_ADDRESSES) {
            addresses.push(address);
        }
        Ok(addresses)
    }
}

fn resolve_by_system(
    host: &str,
    port: u16,
    limit: Duration,
) -> Result<Vec<SocketAddr>, ResolveError> {
    if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let first = match ask_libc(host, port, limit) {
        Ok(addresses) => return Ok(addresses),
        Err(cause) => cause,
    };
    match ask_getent(host) {
        Ok(addresses) => {
            log::debug!(host = host, cause = first; "the resolver failed, getent answered");
            Ok(addresses
                .into_iter()
                .map(|address| SocketAddr::new(address, port))
                .collect())
        }
        Err(second) => Err(ResolveError(format!(
            "the name {host} does not resolve: {first}; getent: {second}; an entry in /etc/hosts helps where the mesh's nameserver does not answer"
        ))),
    }
}

/// The libc's resolver, on a thread because it has no time limit of its own.
fn ask_libc(host: &str, port: u16, limit: Duration) -> Result<Vec<SocketAddr>, String> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let name = (host.to_owned(), port);
    std::thread::Builder::new()
        .name("resolver".into())
        .spawn(move || {
            let found = name
                .to_socket_addrs()
                .map(Iterator::collect::<Vec<_>>)
                .map_err(|e| e.to_string());
            // Nobody listens any more after the time limit.
            let _ = sender.send(found);
        })
        .map_err(|e| e.to_string())?;
    match receiver.recv_timeout(limit) {
        Ok(Ok(addresses)) if addresses.is_empty() => Err("no address".into()),
        Ok(found) => found,
        Err(_) => Err(format!("no answer within {} s", limit.as_secs())),
    }
}

/// The C library's resolver of the box, which survives what musl's does not.
fn ask_getent(host: &str) -> Result<Vec<IpAddr>, String> {
    let interrupt = Interrupt::never().map_err(|e| e.to_string())?;
    let task = Task {
        program: "getent".into(),
        args: vec!["ahosts".into(), host.into()],
        env: vec![(
            "PATH".into(),
            std::env::var_os("PATH").unwrap_or_else(|| "/usr/sbin:/usr/bin:/sbin:/bin".into()),
        )],
        directory: None,
        input: None,
        limit: GETENT_LIMIT,
        cap_bytes: 16 * 1024,
        name: "getent ahosts",
    };
    let finished = Runner::new(None, &interrupt, None)
        .run(&task, &mut |_| {})
        .map_err(|e| e.to_string())?;
    let mut addresses = Vec::new();
    for line in String::from_utf8_lossy(&finished.stdout).lines() {
        if let Some(Ok(address)) = line
            .split_ascii_whitespace()
            .next()
            .map(str::parse::<IpAddr>)
            && !addresses.contains(&address)
        {
            addresses.push(address);
        }
    }
    if addresses.is_empty() {
        Err(format!("no address ({})", finished.how()))
    } else {
        Ok(addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(transport: TransportKind) -> Route {
        Route {
            transport,
            host: "tenancy.mesh".into(),
            port: 443,
            forwarder: "127.0.0.1:18443".into(),
        }
    }

    #[test]
    fn the_proxy_maps_one_name_and_refuses_every_other() {
        let route = route(TransportKind::Proxy);
        let second = Duration::from_secs(1);
        assert_eq!(
            route.addresses("tenancy.mesh", 443, second).unwrap(),
            ["127.0.0.1:18443".parse().unwrap()]
        );
        for (host, port) in [("tenancy.mesh", 8081), ("elsewhere", 443)] {
            let error = route.addresses(host, port, second).unwrap_err().to_string();
            assert!(error.contains(&format!("{host}:{port}")), "{error}");
        }
    }

    #[test]
    fn an_address_needs_no_resolver_and_a_bad_name_says_both_causes() {
        let route = route(TransportKind::System);
        let second = Duration::from_secs(1);
        assert_eq!(
            route.addresses("[::1]", 8200, second).unwrap(),
            ["[::1]:8200".parse().unwrap()]
        );
        let error = route
            .addresses("no-such-name.invalid", 1, second)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("getent") && error.contains("/etc/hosts"),
            "{error}"
        );
    }
}
