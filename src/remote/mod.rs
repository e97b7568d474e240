//! The peers: tenancy and OpenBao, over one HTTP file. This is the only folder that names `ureq` and `rustls`.

pub mod http;
pub mod openbao;
pub mod resolve;
mod socket;
pub mod tenancy;
mod tls;
mod words;
