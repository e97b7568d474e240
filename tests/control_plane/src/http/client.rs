//! Owns the small blocking HTTP client that speaks to a real OpenBao: one request a connection, roots from one PEM.
//!
//! Takes a base URL, gives responses of any status; never follows a redirect.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::message::{Header, Response};
use super::reader::Reader;
use crate::tls::provider;

const PATIENCE: Duration = Duration::from_secs(30);

/// `http://host:port` or `https://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Whether TLS is spoken.
    pub https: bool,
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Url {
    /// Reads a base URL; a path is ignored.
    pub fn parse(text: &str) -> io::Result<Self> {
        let wrong = || io::Error::other(format!("not a base URL: {text}"));
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let https = match scheme {
            "https" => true,
            "http" => false,
            _ => return Err(wrong()),
        };
        let authority = rest.split('/').next().unwrap_or_default();
        let (host, port) = authority.rsplit_once(':').ok_or_else(wrong)?;
        Ok(Self {
            https,
            host: host.to_owned(),
            port: port.parse().map_err(|_| wrong())?,
        })
    }
}

/// A client for one base URL.
#[derive(Clone)]
pub struct Client {
    url: Url,
    tls: Option<Arc<ClientConfig>>,
}

impl Client {
    /// Trusts only the certificates in `ca_pem`; it may be empty for plain HTTP.
    pub fn new(base_url: &str, ca_pem: &str) -> io::Result<Self> {
        let url = Url::parse(base_url)?;
        let tls = match url.https {
            false => None,
            true => Some(trusting(ca_pem)?),
        };
        Ok(Self { url, tls })
    }

    /// One request on its own connection. `target` is path and query.
    pub fn send(
        &self,
        method: &str,
        target: &str,
        headers: &[Header],
        body: &[u8],
    ) -> io::Result<Response> {
        let socket = TcpStream::connect((self.url.host.as_str(), self.url.port))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        socket.set_nodelay(true)?;
        let wire = self.spell(method, target, headers, body);
        match &self.tls {
            None => exchange(socket, &wire),
            Some(config) => {
                let name = ServerName::try_from(self.url.host.clone()).map_err(io::Error::other)?;
                let session =
                    ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
                exchange(StreamOwned::new(session, socket), &wire)
            }
        }
    }

    fn spell(&self, method: &str, target: &str, headers: &[Header], body: &[u8]) -> Vec<u8> {
        let mut head = format!(
            "{method} {target} HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\nContent-Length: {}\r\n",
            self.url.host,
            self.url.port,
            body.len()
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let mut wire = head.into_bytes();
        wire.extend(body);
        wire
    }
}

fn exchange(mut stream: impl Read + Write, wire: &[u8]) -> io::Result<Response> {
    stream.write_all(wire)?;
    stream.flush()?;
    Reader::default().response(&mut stream)
}

fn trusting(ca_pem: &str) -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        roots
            .add(certificate.map_err(io::Error::other)?)
            .map_err(io::Error::other)?;
    }
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_urls_are_read() {
        let url = Url::parse("https://127.0.0.1:8200/v1").unwrap();
        assert_eq!(
            url,
            Url {
                https: true,
                host: "127.0.0.1".into(),
                port: 8200
            }
        );
        assert!(Url::parse("https://nowhere").is_err());
        assert!(Url::parse("ftp://a:1").is_err());
    }
}
