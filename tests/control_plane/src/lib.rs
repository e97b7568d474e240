//! Development only: an embedded control plane for tests and the demo. *Tenancy* and the used part of *OpenBao's* API over
//! loopback on free ports, with faults on demand and a record of everything received.
//!
//! Blocking, a thread per connection; everything ends when the `ControlPlane` is dropped. No part of the shipped program.
//!
//! ```no_run
//! use control_plane::{Action, Bundle, ControlPlane, Options, Peer, Rule};
//! use serde_json::json;
//!
//! # fn main() -> std::io::Result<()> {
//! let plane = ControlPlane::start(Options::new("env-qa-02"))?;
//! plane.put_secret("env-qa-02/see/db", json!({"value": "s3cret"}))?;
//! plane.apply(&Bundle::sample("env-qa-02", "demo:1").secret("DB", "see/db").build());
//! plane.fault(Rule::on(Peer::Bao, Action::Reset).path("/v1/monky/").once());
//! // … run the agent against plane.tenancy_url() and plane.bao_url(), with plane.ca_pem() and plane.grant() …
//! assert_eq!(plane.log().count(Peer::Tenancy, "/v1/agent/lease"), 1);
//! # Ok(())
//! # }
//! ```

mod bao;
mod bundle;
mod clock;
mod faults;
mod grants;
mod http;
mod log;
mod plane;
mod steering;
mod sync;
mod tenancy;
mod tls;

pub use bao::{BaoSettings, FakeBao, Mode, Token};
pub use bundle::{Bundle, BundleBuilder, Member};
pub use faults::{Action, BodyLength, FaultId, Faults, Rule};
pub use grants::{GrantSpec, Grants};
pub use http::{Client, Header, Request, Response, Url};
pub use log::{Log, Logged};
pub use plane::{ControlPlane, Options};
pub use tenancy::{Bearer, Lookup, RealBao, Tenancy, TenancySettings, Want};
pub use tls::{CertKind, Tls};

/// The two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The control plane's agent entrypoint.
    Tenancy,
    /// The secret store.
    Bao,
}

impl Peer {
    /// The name in `log.jsonl` and in fault rules.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tenancy => "tenancy",
            Self::Bao => "bao",
        }
    }
}
