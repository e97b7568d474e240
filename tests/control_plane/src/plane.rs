//! Owns a whole control plane: both servers, their certificates, grants, faults and the record, and what tests ask for most.
//!
//! Takes `Options`, listens on free loopback ports before `start` returns, ends every thread when dropped.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::Value;

use crate::Peer;
use crate::bao::{BaoSettings, FakeBao};
use crate::bundle::Bundle;
use crate::faults::{FaultId, Faults, Rule};
use crate::grants::Grants;
use crate::http::{Handler, Server, Shared};
use crate::log::Log;
use crate::steering::Steering;
use crate::tenancy::{Bearer, RealBao, Tenancy, TenancySettings, Want};
use crate::tls::{CertKind, Tls};

/// How a control plane starts; `Options::new(env_id)` is enough for most tests.
#[derive(Clone, Debug)]
pub struct Options {
    /// The environment that is served.
    pub env_id: String,
    /// Names of the server certificates besides `localhost` and `127.0.0.1`.
    pub names: Vec<String>,
    /// The certificate that OpenBao shows; None speaks plain HTTP.
    pub bao_tls: Option<CertKind>,
    /// The certificate that tenancy shows; None speaks plain HTTP, as inside the mesh.
    pub tenancy_tls: Option<CertKind>,
    /// OpenBao's port, 0 for a free one.
    pub bao_port: u16,
    /// Tenancy's port, 0 for a free one.
    pub tenancy_port: u16,
    /// OpenBao's settings at the start.
    pub bao: BaoSettings,
    /// Serves `/_control/…` on tenancy's port, for shells.
    pub steering: bool,
}

impl Options {
    /// TLS for OpenBao, plain HTTP for tenancy, free ports.
    pub fn new(env_id: &str) -> Self {
        Self {
            env_id: env_id.to_owned(),
            names: Vec::new(),
            bao_tls: Some(CertKind::Good),
            tenancy_tls: None,
            bao_port: 0,
            tenancy_port: 0,
            bao: BaoSettings::default(),
            steering: false,
        }
    }
}

/// Both servers and all that belongs to them.
pub struct ControlPlane {
    env_id: String,
    tls: Tls,
    grants: Arc<Grants>,
    shared: Shared,
    tenancy: Arc<Tenancy>,
    tenancy_server: Server,
    fake: Option<(Arc<FakeBao>, Server)>,
    real: Option<(String, RealBao)>,
}

impl ControlPlane {
    /// Tenancy beside the fake of OpenBao.
    pub fn start(options: Options) -> io::Result<Self> {
        let grants = Arc::new(Grants::new()?);
        let tls = Tls::new(&options.names)?;
        let shared = Shared::default();
        let bao = Arc::new(FakeBao::new(Arc::clone(&grants), options.bao.clone()));
        let config = options
            .bao_tls
            .map(|kind| tls.server_config(kind))
            .transpose()?;
        let bao_server = Server::start(
            Peer::Bao,
            options.bao_port,
            config,
            Arc::clone(&bao) as _,
            shared.clone(),
        )?;
        let scheme = if options.bao_tls.is_some() {
            "https"
        } else {
            "http"
        };
        let addr = format!("{scheme}://{}", bao_server.addr());
        let bearer = Bearer::Fake(Arc::clone(&bao));
        let parts = (grants, tls, shared);
        Self::with_tenancy(
            &options,
            parts,
            bearer,
            &addr,
            Some((bao, bao_server)),
            None,
        )
    }

    /// Tenancy alone, in front of a real OpenBao whose root token it uses for look-ups. `grants` must be the signer whose key
    /// that OpenBao trusts.
    pub fn start_with_real_bao(
        options: Options,
        addr: &str,
        root_token: &str,
        ca_pem: &str,
        grants: Arc<Grants>,
    ) -> io::Result<Self> {
        let real = RealBao::new(addr, root_token, ca_pem)?;
        let parts = (grants, Tls::new(&options.names)?, Shared::default());
        let bearer = Bearer::Real(real.clone());
        Self::with_tenancy(
            &options,
            parts,
            bearer,
            addr,
            None,
            Some((addr.to_owned(), real)),
        )
    }

    fn with_tenancy(
        options: &Options,
        (grants, tls, shared): (Arc<Grants>, Tls, Shared),
        bearer: Bearer,
        addr: &str,
        fake: Option<(Arc<FakeBao>, Server)>,
        real: Option<(String, RealBao)>,
    ) -> io::Result<Self> {
        let mut settings = TenancySettings::new(&options.env_id);
        settings.point_to(
            addr,
            &options.bao.kv_mount,
            &options.bao.auth_mount,
            &options.bao.role,
        );
        let tenancy = Arc::new(Tenancy::new(Arc::clone(&grants), bearer, settings));
        let config = options
            .tenancy_tls
            .map(|kind| tls.server_config(kind))
            .transpose()?;
        let handler: Arc<dyn Handler> = match options.steering {
            false => Arc::clone(&tenancy) as _,
            true => Arc::new(Steering {
                env_id: options.env_id.clone(),
                tenancy: Arc::clone(&tenancy),
                bao: fake.as_ref().map(|(bao, _)| Arc::clone(bao)),
                grants: Arc::clone(&grants),
                shared: shared.clone(),
            }),
        };
        let tenancy_server = Server::start(
            Peer::Tenancy,
            options.tenancy_port,
            config,
            handler,
            shared.clone(),
        )?;
        Ok(Self {
            env_id: options.env_id.clone(),
            tls,
            grants,
            shared,
            tenancy,
            tenancy_server,
            fake,
            real,
        })
    }

    /// The environment that is served.
    pub fn env_id(&self) -> &str {
        &self.env_id
    }

    /// Where tenancy listens.
    pub fn tenancy_addr(&self) -> SocketAddr {
        self.tenancy_server.addr()
    }

    /// Tenancy's base URL in plain HTTP.
    pub fn tenancy_url(&self) -> String {
        format!("http://{}", self.tenancy_addr())
    }

    /// Where the fake listens; None beside a real OpenBao.
    pub fn bao_addr(&self) -> Option<SocketAddr> {
        self.fake.as_ref().map(|(_, server)| server.addr())
    }

    /// OpenBao's base URL, fake or real.
    pub fn bao_url(&self) -> String {
        match &self.real {
            Some((addr, _)) => addr.clone(),
            None => self
                .tenancy
                .settings()
                .lease_addr
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        }
    }

    /// The root that the fakes' certificates chain to.
    pub fn ca_pem(&self) -> String {
        self.tls.ca_pem()
    }

    /// All certificates.
    pub fn tls(&self) -> &Tls {
        &self.tls
    }

    /// The signer.
    pub fn grants(&self) -> &Arc<Grants> {
        &self.grants
    }

    /// A fresh deploy grant for the served environment.
    pub fn grant(&self) -> String {
        self.grants.deploy_grant(&self.env_id)
    }

    /// Tenancy's knobs.
    pub fn tenancy(&self) -> &Tenancy {
        &self.tenancy
    }

    /// The fake's knobs; None beside a real OpenBao.
    pub fn fake_bao(&self) -> Option<&FakeBao> {
        self.fake.as_ref().map(|(bao, _)| bao.as_ref())
    }

    /// The real OpenBao; None beside the fake.
    pub fn real_bao(&self) -> Option<&RealBao> {
        self.real.as_ref().map(|(_, real)| real)
    }

    /// The record of requests.
    pub fn log(&self) -> &Log {
        &self.shared.log
    }

    /// The fault rules.
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// Puts a fault rule in force.
    pub fn fault(&self, rule: Rule) -> FaultId {
        self.shared.faults.add(rule)
    }

    /// Writes a new version of a secret, e.g. `env-qa-02/see/db`, into whichever OpenBao there is; gives its number.
    pub fn put_secret(&self, path: &str, data: Value) -> io::Result<u64> {
        match (&self.fake, &self.real) {
            (Some((bao, _)), _) => Ok(bao.put_secret(path, data)),
            (None, Some((_, real))) => real.put_secret(path, &data),
            (None, None) => Err(io::Error::other("no OpenBao")),
        }
    }

    /// Wants this bundle.
    pub fn apply(&self, bundle: &Bundle) {
        self.tenancy.apply(bundle);
    }

    /// Wants nothing.
    pub fn set_none(&self) {
        self.tenancy.set(|settings| settings.want = Want::Nothing);
    }

    /// Wants the environment down.
    pub fn down(&self, purge_volumes: bool) {
        self.tenancy
            .set(|settings| settings.want = Want::Down { purge_volumes });
    }

    /// Bodies of accepted reports.
    pub fn reports(&self) -> Vec<Value> {
        self.tenancy.reports()
    }

    /// Bodies of accepted check-ins.
    pub fn checkins(&self) -> Vec<Value> {
        self.tenancy.checkins()
    }

    /// Shows another certificate from the next connection on; None speaks plain HTTP.
    pub fn set_tls(&self, peer: Peer, kind: Option<CertKind>) -> io::Result<()> {
        let config = kind.map(|kind| self.tls.server_config(kind)).transpose()?;
        if let Some(server) = self.server(peer) {
            server.set_tls(config);
        }
        Ok(())
    }

    /// Shifts the `Date` header that a peer sends.
    pub fn set_date_offset(&self, peer: Peer, seconds: i64) {
        if let Some(server) = self.server(peer) {
            server.set_date_offset(seconds);
        }
    }

    /// Refuses connections, and ends those there are.
    pub fn refuse_connections(&self, peer: Peer) {
        if let Some(server) = self.server(peer) {
            server.close();
        }
    }

    /// Takes connections again, on the same port.
    pub fn accept_connections(&self, peer: Peer) -> io::Result<()> {
        self.server(peer).map_or(Ok(()), Server::reopen)
    }

    fn server(&self, peer: Peer) -> Option<&Server> {
        match peer {
            Peer::Tenancy => Some(&self.tenancy_server),
            Peer::Bao => self.fake.as_ref().map(|(_, server)| server),
        }
    }
}

#[cfg(test)]
mod tests;
