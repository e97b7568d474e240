//! What TLS trusts, and what its errors mean in words: which of the two is wrong, the certificate or our roots, for
//! which name, with dates where TLS tells them.

use crate::error::{Error, Result};
use crate::host::clock::Timestamp;
use crate::host::disk::read_file;
use rustls::CertificateError;
use rustls::crypto::{CryptoProvider, KeyProvider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::SigningKey;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

const CA_CAP_BYTES: u64 = 4 * 1024 * 1024;

/// Where distributions keep their bundle of roots: Debian, RHEL, SUSE, Alpine.
const SYSTEM_BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The roots in use, for messages.
#[derive(Clone, Debug)]
pub struct Roots {
    /// The file that they came from; `None` where the box has no bundle at all.
    pub path: Option<PathBuf>,
    /// How many they are.
    pub count: usize,
}

/// The TLS settings of an agent: ring, and the roots of `ca_file` alone or else the system's.
///
/// # Errors
/// [`Error::CaFile`] when `ca_file` is missing or holds no certificate. A box without any system bundle is no error yet:
/// the first handshake fails and says so.
pub fn configure(ca_file: Option<&Path>) -> Result<(TlsConfig, Roots)> {
    let (path, certificates) = match ca_file {
        Some(path) => (Some(path.to_owned()), load(path)?),
        None => system_roots(),
    };
    let roots = Roots {
        path,
        count: certificates.len(),
    };
    let config = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(provider()))
        .root_certs(RootCerts::Specific(Arc::new(certificates)))
        .build();
    Ok((config, roots))
}

/// Ring without the loading of private keys: the agent never presents a certificate of its own.
fn provider() -> CryptoProvider {
    CryptoProvider {
        key_provider: &NoKeys,
        ..rustls::crypto::ring::default_provider()
    }
}

#[derive(Debug)]
struct NoKeys;

impl KeyProvider for NoKeys {
    fn load_private_key(
        &self,
        _: PrivateKeyDer<'static>,
    ) -> std::result::Result<Arc<dyn SigningKey>, rustls::Error> {
        Err(rustls::Error::General(
            "the agent has no private key".into(),
        ))
    }
}

fn load(path: &Path) -> Result<Vec<Certificate<'static>>> {
    let unusable = |why: String| Error::CaFile {
        path: path.to_owned(),
        why,
    };
    let bytes = read_file(path, CA_CAP_BYTES, false)
        .map_err(|e| unusable(e.to_string()))?
        .ok_or_else(|| unusable("there is no such file".into()))?;
    let certificates = parse(&bytes);
    if certificates.is_empty() {
        return Err(unusable(
            "it holds no PEM certificate (-----BEGIN CERTIFICATE-----)".into(),
        ));
    }
    Ok(certificates)
}

fn parse(pem: &[u8]) -> Vec<Certificate<'static>> {
    CertificateDer::pem_slice_iter(pem)
        .filter_map(std::result::Result::ok)
        .map(|der| Certificate::from_der(&der).to_owned())
        .collect()
}

fn system_roots() -> (Option<PathBuf>, Vec<Certificate<'static>>) {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    for path in named
        .into_iter()
        .chain(SYSTEM_BUNDLES.iter().map(PathBuf::from))
    {
        if let Ok(Some(bytes)) = read_file(&path, CA_CAP_BYTES, false) {
            let certificates = parse(&bytes);
            if !certificates.is_empty() {
                return (Some(path), certificates);
            }
        }
    }
    (None, Vec::new())
}

/// What a failed handshake means, and what to do.
pub fn explain(error: &rustls::Error, roots: &Roots) -> (String, String) {
    let store = match &roots.path {
        Some(path) => format!("{} ({} roots)", path.display(), roots.count),
        None => "no root at all: this box has no CA bundle".into(),
    };
    match error {
        rustls::Error::InvalidCertificate(certificate) => explain_certificate(certificate, &store),
        rustls::Error::AlertReceived(alert) => (
            format!("the server ended the TLS handshake with {alert:?}"),
            "check what the server expects of its clients".into(),
        ),
        rustls::Error::InvalidMessage(_) => (
            format!("the server does not speak TLS there ({error})"),
            "check the port, and whether the service speaks plain HTTP".into(),
        ),
        other => (
            format!("TLS failed: {other}"),
            "check the service's TLS settings".into(),
        ),
    }
}

fn explain_certificate(error: &CertificateError, store: &str) -> (String, String) {
    let instant = |time: rustls::pki_types::UnixTime| {
        Timestamp::from_unix(i64::try_from(time.as_secs()).unwrap_or(0)).to_minute()
    };
    match error {
        CertificateError::ExpiredContext { time, not_after } => (
            format!("the server's certificate expired on {} (our clock says {})", instant(*not_after), instant(*time)),
            "renew the server's certificate, or set this box's clock".into(),
        ),
        CertificateError::Expired => {
            ("the server's certificate expired".into(), "renew the server's certificate, or set this box's clock".into())
        }
        CertificateError::NotValidYetContext { time, not_before } => (
            format!("the server's certificate is valid only from {} (our clock says {})", instant(*not_before), instant(*time)),
            "set this box's clock".into(),
        ),
        CertificateError::NotValidForNameContext { expected, presented } if presented.is_empty() => (
            format!("the server's certificate names no host in its subject alternative names, so not {}", expected.to_str()),
            "issue one with a subjectAltName; a common name alone does not count".into(),
        ),
        CertificateError::NotValidForNameContext { expected, presented } => (
            format!("the server's certificate is for {}, not for {}", presented.join(", "), expected.to_str()),
            "check the configured host, or issue a certificate for it".into(),
        ),
        CertificateError::UnknownIssuer => (
            format!("the server's certificate was issued by nobody in {store}"),
            "set bao.ca_file to the issuer's certificate, or let the server send its intermediate certificates too".into(),
        ),
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => (
            format!("the server presents a CA certificate as its own (roots: {store})"),
            "issue a server certificate from that CA, without the CA flag".into(),
        ),
        other => (format!("the server's certificate is not acceptable: {other} (roots: {store})"), "issue a proper one".into()),
    }
}
