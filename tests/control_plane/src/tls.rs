//! Owns the throw-away certificates: a CA, a good server certificate, and every bad one that a client must tell apart.
//!
//! Takes the names that the server goes by, gives rustls server configurations and the PEM of the roots; keys never leave memory.

use std::io;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, IsCa, Issuer,
    KeyPair, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// Which certificate a server shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CertKind {
    /// Right CA, right names, right dates.
    #[default]
    Good,
    /// Signed by a CA that nobody trusts.
    OtherCa,
    /// Right CA, for `elsewhere.example` only.
    WrongName,
    /// Right CA and names, valid from 2019 to 2020-02-03.
    Expired,
    /// Right CA and names, valid from 2090 on.
    NotYetValid,
    /// Its own issuer, with the CA flag, as `openssl req -x509` makes it; `Tls::ca_pem_for` gives the very same certificate as
    /// the root. (Without the flag rustls accepts it.)
    SelfSigned,
    /// The name in the CN, and no subjectAltName.
    CnOnly,
    /// Signed by an intermediate that the server sends along.
    WithIntermediate,
    /// Signed by the same intermediate, which the server keeps to itself.
    MissingIntermediate,
}

impl CertKind {
    /// Every kind, for tests that walk through them.
    pub const ALL: [Self; 9] = [
        Self::Good,
        Self::OtherCa,
        Self::WrongName,
        Self::Expired,
        Self::NotYetValid,
        Self::SelfSigned,
        Self::CnOnly,
        Self::WithIntermediate,
        Self::MissingIntermediate,
    ];
}

/// The certificates of one control plane.
pub struct Tls {
    names: Vec<String>,
    root: Authority,
    stranger: Authority,
    intermediate: Authority,
    key: KeyPair,
    self_signed: Certificate,
}

struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Tls {
    /// A CA and server certificates for `localhost`, `127.0.0.1` and `names`.
    pub fn new(names: &[String]) -> io::Result<Self> {
        let mut all = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        all.extend_from_slice(names);
        let root = Authority::root("control-plane test CA")?;
        let intermediate = Authority::below(&root, "control-plane test intermediate")?;
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let mut params = server_params(&all, "control-plane self-signed")?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let self_signed = params.self_signed(&key).map_err(io::Error::other)?;
        Ok(Self {
            names: all,
            stranger: Authority::root("somebody else's CA")?,
            root,
            intermediate,
            key,
            self_signed,
        })
    }

    /// The root that a client should trust.
    pub fn ca_pem(&self) -> String {
        self.root.certificate.pem()
    }

    /// The root that makes the mistake of `kind`: for `SelfSigned` the server's own certificate, else `ca_pem`.
    pub fn ca_pem_for(&self, kind: CertKind) -> String {
        match kind {
            CertKind::SelfSigned => self.self_signed.pem(),
            _ => self.ca_pem(),
        }
    }

    /// A CA that signed nothing here.
    pub fn other_ca_pem(&self) -> String {
        self.stranger.certificate.pem()
    }

    /// A server that shows the certificate of that kind.
    pub fn server_config(&self, kind: CertKind) -> io::Result<Arc<ServerConfig>> {
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(self.chain(kind)?, key)
            .map_err(io::Error::other)?;
        Ok(Arc::new(config))
    }

    fn chain(&self, kind: CertKind) -> io::Result<Vec<CertificateDer<'static>>> {
        let mut params = server_params(&self.names, "control-plane server")?;
        let mut by = &self.root;
        let mut along = None;
        match kind {
            CertKind::Good => {}
            CertKind::SelfSigned => return Ok(vec![self.self_signed.der().clone()]),
            CertKind::OtherCa => by = &self.stranger,
            CertKind::WrongName => {
                params = server_params(&["elsewhere.example".to_owned()], "elsewhere.example")?
            }
            CertKind::Expired => {
                params.not_before = date_time_ymd(2019, 1, 2);
                params.not_after = date_time_ymd(2020, 2, 3);
            }
            CertKind::NotYetValid => {
                params.not_before = date_time_ymd(2090, 1, 2);
                params.not_after = date_time_ymd(2091, 1, 2);
            }
            CertKind::CnOnly => params = server_params(&[], "localhost")?,
            CertKind::WithIntermediate => {
                by = &self.intermediate;
                along = Some(by.certificate.der().clone());
            }
            CertKind::MissingIntermediate => by = &self.intermediate,
        }
        let leaf = params
            .signed_by(&self.key, &by.issuer)
            .map_err(io::Error::other)?;
        let mut chain = vec![leaf.der().clone()];
        chain.extend(along);
        Ok(chain)
    }
}

impl Authority {
    fn root(name: &str) -> io::Result<Self> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let params = authority_params(name)?;
        let certificate = params.self_signed(&key).map_err(io::Error::other)?;
        Ok(Self {
            certificate,
            issuer: Issuer::new(params, key),
        })
    }

    fn below(parent: &Self, name: &str) -> io::Result<Self> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let params = authority_params(name)?;
        let certificate = params
            .signed_by(&key, &parent.issuer)
            .map_err(io::Error::other)?;
        Ok(Self {
            certificate,
            issuer: Issuer::new(params, key),
        })
    }
}

/// The one crypto provider; nothing relies on a process-wide default, which a test binary may or may not have set.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn authority_params(name: &str) -> io::Result<CertificateParams> {
    let mut params = server_params(&[], name)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Ok(params)
}

fn server_params(names: &[String], common_name: &str) -> io::Result<CertificateParams> {
    let mut params = CertificateParams::new(names.to_vec()).map_err(io::Error::other)?;
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    Ok(params)
}
