//! The one HTTP file: every default of ureq that matters is set here. Statuses are values and their bodies are read;
//! redirects are never followed; proxy variables of the environment are never read; nothing is read without a cap; the
//! whole request has a deadline, also against a peer that sends one byte a second; a signal ends it.

use crate::error::{Dial, Error, Refusal, Result};
use crate::host::clock::Timestamp;
use crate::host::interrupt::Interrupt;
use crate::names::{Peer, TransportKind};
use crate::remote::resolve::{ResolveError, Route};
use crate::remote::socket::SocketConnector;
use crate::remote::{tls, words};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;
use ureq::http::{HeaderMap, Method, Request};
use ureq::unversioned::transport::{Connector, RustlsConnector};

/// The most that a JSON answer may have, in bytes.
pub const JSON_CAP_BYTES: u64 = 1024 * 1024;
/// A dial must not outlast the ten seconds in which a signal has to end the tick.
const CONNECT_LIMIT: Duration = Duration::from_secs(8);

/// Whom to talk to, and how.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The peer, for messages.
    pub peer: Peer,
    /// Whether TLS is spoken.
    pub https: bool,
    /// Where connections go.
    pub route: Route,
    /// The most that one request may take.
    pub timeout: Duration,
    /// The only roots to trust; the system's when `None`.
    pub ca_file: Option<PathBuf>,
    /// What to check when a dial fails.
    pub dial_remedy: String,
}

/// One request.
#[derive(Debug)]
pub struct Call<'a> {
    /// GET or POST.
    pub method: Method,
    /// Path and query, from the first slash.
    pub path: &'a str,
    /// The header that carries the token, and the token.
    pub auth: Option<(&'static str, &'a str)>,
    /// A JSON body.
    pub body: Option<&'a [u8]>,
    /// The most that the answer's body may have, in bytes.
    pub cap_bytes: u64,
}

/// An answer, whatever its status.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The whole body.
    pub body: Vec<u8>,
    headers: HeaderMap,
}

impl Answer {
    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Whether the status is 2xx.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// `Retry-After` in seconds, also from its date form.
    pub fn retry_after_s(&self) -> Option<u64> {
        let text = self.header("retry-after")?.trim();
        text.parse().ok().or_else(|| {
            let until = Timestamp::parse_http(text)?;
            u64::try_from(until.since_s(self.date().unwrap_or_else(Timestamp::now))).ok()
        })
    }

    /// The peer's clock.
    pub fn date(&self) -> Option<Timestamp> {
        Timestamp::parse_http(self.header("date")?)
    }
}

/// Connections to one peer.
pub struct Http {
    agent: ureq::Agent,
    endpoint: Endpoint,
    roots: tls::Roots,
    base: String,
    skew_s: Mutex<Option<i64>>,
}

impl Http {
    /// Prepares connections; dials nothing yet.
    ///
    /// # Errors
    /// [`Error::CaFile`] when the configured roots cannot be read.
    pub fn new(endpoint: Endpoint, interrupt: &Interrupt) -> Result<Self> {
        let mut config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .accept_encoding("identity")
            .user_agent(concat!("monky-deployd/", env!("CARGO_PKG_VERSION")))
            .timeout_global(Some(endpoint.timeout))
            .timeout_connect(Some(CONNECT_LIMIT.min(endpoint.timeout)))
            .max_idle_connections_per_host(8)
            .max_response_header_size(64 * 1024)
            // The default of 128 KiB each is for bulk; our answers are a few kilobytes.
            .input_buffer_size(16 * 1024)
            .output_buffer_size(16 * 1024);
        let mut roots = tls::Roots {
            path: None,
            count: 0,
        };
        if endpoint.https {
            let (tls_config, found) = tls::configure(endpoint.ca_file.as_deref())?;
            config = config.tls_config(tls_config);
            roots = found;
        }
        let agent = ureq::Agent::with_parts(
            config.build(),
            SocketConnector::new(interrupt).chain(RustlsConnector::default()),
            endpoint.route.clone(),
        );
        let scheme = if endpoint.https { "https" } else { "http" };
        let base = format!("{scheme}://{}:{}", endpoint.route.host, endpoint.route.port);
        Ok(Self {
            agent,
            endpoint,
            roots,
            base,
            skew_s: Mutex::new(None),
        })
    }

    /// Whom this talks to.
    pub fn peer(&self) -> Peer {
        self.endpoint.peer
    }

    /// Sends `call` and reads the whole answer.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::Tls`] or [`Error::Malformed`]; never because of a status.
    pub fn send(&self, call: &Call<'_>) -> Result<Answer> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(format!("{}{}", self.base, call.path));
        if let Some((name, value)) = call.auth {
            request = request.header(name, value);
        }
        let sent = match call.body {
            Some(body) => request
                .header("content-type", "application/json")
                .body(body)
                .map(|request| self.agent.run(request)),
            None => request.body(()).map(|request| self.agent.run(request)),
        };
        let request_text = format!("{} {}", call.method, call.path);
        let response = sent.map_err(|e| {
            self.malformed(
                &request_text,
                &format!("the request cannot be written: {e}"),
            )
        })?;
        let mut response = response.map_err(|e| self.broken(&request_text, e))?;
        let body = response
            .body_mut()
            .with_config()
            .limit(call.cap_bytes)
            .read_to_vec()
            .map_err(|e| self.broken(&request_text, e))?;
        let (parts, _) = response.into_parts();
        let answer = Answer {
            status: parts.status.as_u16(),
            body,
            headers: parts.headers,
        };
        if let (Some(theirs), Ok(mut skew_s)) = (answer.date(), self.skew_s.lock()) {
            *skew_s = Some(Timestamp::now().since_s(theirs));
        }
        Ok(answer)
    }

    /// How far our clock is ahead of the peer's, in seconds, as the last answer told.
    pub fn skew_s(&self) -> Option<i64> {
        self.skew_s.lock().ok().and_then(|skew| *skew)
    }

    /// The refusal that an answer means.
    pub fn refusal(&self, call: &Call<'_>, answer: &Answer) -> Refusal {
        let words = words::read(&answer.body);
        Refusal {
            peer: self.endpoint.peer,
            request: format!("{} {}", call.method, call.path),
            status: answer.status,
            code: words.code,
            words: words.text,
            retry_after_s: answer.retry_after_s(),
            remedy: None,
        }
    }

    /// The error that an answer with an unwanted status means.
    pub fn refused(&self, call: &Call<'_>, answer: &Answer) -> Error {
        if (300..400).contains(&answer.status) {
            return Error::Redirected {
                peer: self.endpoint.peer,
                request: format!("{} {}", call.method, call.path),
                status: answer.status,
                location: answer.header("location").unwrap_or("nowhere").to_owned(),
            };
        }
        Error::Answer(self.refusal(call, answer))
    }

    /// The error of an answer that cannot be understood.
    pub fn malformed(&self, request: &str, why: &str) -> Error {
        Error::Malformed {
            peer: self.endpoint.peer,
            request: request.to_owned(),
            why: why.to_owned(),
        }
    }

    fn broken(&self, request: &str, error: ureq::Error) -> Error {
        match error {
            ureq::Error::BodyExceedsLimit(limit) => {
                self.malformed(request, &format!("its body is longer than {limit} bytes"))
            }
            ureq::Error::Rustls(error) => self.tls(&error),
            ureq::Error::Io(error) => {
                let inner = error.get_ref();
                if let Some(tls_error) = inner.and_then(|e| e.downcast_ref::<rustls::Error>()) {
                    return self.tls(tls_error);
                }
                if inner.is_some_and(|e| e.is::<ResolveError>())
                    || error.kind() != std::io::ErrorKind::UnexpectedEof
                {
                    return self.unreachable(error.to_string());
                }
                self.unreachable("the connection was closed in the middle of the answer".into())
            }
            ureq::Error::Timeout(timeout) => self.unreachable(match timeout {
                ureq::Timeout::Connect | ureq::Timeout::Resolve => {
                    format!(
                        "no answer within {} s",
                        CONNECT_LIMIT.min(self.endpoint.timeout).as_secs()
                    )
                }
                _ => format!(
                    "the request did not end within {} s",
                    self.endpoint.timeout.as_secs()
                ),
            }),
            ureq::Error::Protocol(error) => self.malformed(request, &format!("not HTTP: {error}")),
            ureq::Error::LargeResponseHeader(..) => {
                self.malformed(request, "its header is too long")
            }
            other => self.unreachable(other.to_string()),
        }
    }

    fn tls(&self, error: &rustls::Error) -> Error {
        let (cause, remedy) = tls::explain(error, &self.roots);
        Error::Tls(Dial {
            remedy,
            ..self.dial(cause)
        })
    }

    fn unreachable(&self, cause: String) -> Error {
        Error::Unreachable(self.dial(cause))
    }

    fn dial(&self, cause: String) -> Dial {
        let route = &self.endpoint.route;
        let cause = match route.transport {
            TransportKind::System => cause,
            TransportKind::Proxy => format!("{cause} (by the forwarder {})", route.forwarder),
        };
        Dial {
            peer: self.endpoint.peer,
            transport: route.transport,
            host: route.host.clone(),
            port: route.port,
            cause,
            remedy: self.endpoint.dial_remedy.clone(),
        }
    }
}

impl Http {
    /// Whether a URL with this scheme and authority means this peer.
    pub fn is_origin(&self, scheme: &str, authority: &str) -> bool {
        let own = if self.endpoint.https { "https" } else { "http" };
        let default_port = if self.endpoint.https { 443 } else { 80 };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
            _ => (authority, Some(default_port)),
        };
        scheme.eq_ignore_ascii_case(own)
            && host.eq_ignore_ascii_case(&self.endpoint.route.host)
            && port == Some(self.endpoint.route.port)
    }
}
