//! Checked texts: hosts, ports, URLs, mounts, paths. Each function takes a text without control characters and gives the
//! checked thing, or what is wrong with it and what to write instead, in words that follow the key's name.

use super::values::{HostPort, Scheme};
use super::yaml::scalar::clip;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Component, Path, PathBuf};

/// A checked thing, or what is wrong.
pub type Checked<T> = Result<T, String>;

/// The parts of `scheme://host[:port]`.
#[derive(Debug, PartialEq, Eq)]
pub struct Url {
    /// How HTTP is spoken.
    pub scheme: Scheme,
    /// The host, without brackets.
    pub host: String,
    /// The port, if the URL names one.
    pub port: Option<u16>,
}

impl Url {
    /// The named port, or the scheme's own.
    pub fn effective_port(&self) -> u16 {
        self.port.unwrap_or(self.scheme.default_port())
    }
}

/// A host name or an address, in lower case and without brackets.
pub fn host(text: &str) -> Checked<String> {
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text);
    if bare.contains(':') {
        return match bare.parse::<Ipv6Addr>() {
            Ok(address) => Ok(address.to_string()),
            Err(_) if text.contains("://") => Err(format!(
                "must be a host alone, not `{}`: write it without scheme, port and path",
                clip(text)
            )),
            Err(_) => Err(format!(
                "must be a host alone, not `{}`: write the port under its own key",
                clip(text)
            )),
        };
    }
    if is_host_name(text) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(format!(
            "must be a host name or an address, not `{}`: letters, digits, `-`, `_` and single dots",
            clip(text)
        ))
    }
}

fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // A name that ends in a number is read as an address by resolvers, so it must be a whole one.
    let last = text.rsplit('.').next().unwrap_or_default();
    let is_number = !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit());
    text.len() <= 253
        && text.split('.').all(is_label)
        && (!is_number || text.parse::<Ipv4Addr>().is_ok())
}

/// `host[:port]`, an IPv6 host in brackets.
fn authority(text: &str) -> Checked<(String, Option<u16>)> {
    let (name, port) = if text.starts_with('[') {
        match text.split_once(']') {
            Some((_, "")) => (text, None),
            Some((address, rest)) => match rest.strip_prefix(':') {
                Some(port) => (text.get(..=address.len()).unwrap_or(text), Some(port)),
                None => (text, None),
            },
            None => (text, None),
        }
    } else {
        match text.rsplit_once(':') {
            Some((name, _)) if name.contains(':') => {
                return Err(format!(
                    "holds an IPv6 address without brackets: write `[{}]`, and the port behind it",
                    clip(text)
                ));
            }
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        }
    };
    let port = match port.map(port_number) {
        Some(None) => {
            return Err(format!(
                "has no good port in `{}`: write a number from 1 to 65535 behind the colon",
                clip(text)
            ));
        }
        Some(Some(port)) => Some(port),
        None => None,
    };
    Ok((host(name)?, port))
}

fn port_number(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| {
        *port > 0 && text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0')
    })
}

/// `host:port`.
pub fn host_port(text: &str) -> Checked<HostPort> {
    if text.contains("://") {
        return Err(format!(
            "must be `host:port`, not `{}`: write it without the scheme",
            clip(text)
        ));
    }
    match authority(text)? {
        (host, Some(port)) => Ok(HostPort::new(&host, port)),
        (_, None) => Err(format!(
            "must be `host:port`, not `{0}`: write the port too, for example `{0}:18443`",
            clip(text)
        )),
    }
}

/// `http://host[:port]` or `https://host[:port]`, with nothing else in it. A text that may hold a password is not
/// repeated.
pub fn url(text: &str) -> Checked<Url> {
    if text.contains('@') {
        return Err(
            "must not hold a user name or a password: write `scheme://host:port`".to_owned(),
        );
    }
    let lower = text.get(..8).unwrap_or(text).to_ascii_lowercase();
    let (scheme, rest) = if lower.starts_with("https://") {
        (Scheme::Https, text.get(8..))
    } else if lower.starts_with("http://") {
        (Scheme::Http, text.get(7..))
    } else {
        return Err(format!(
            "must be a URL, not `{}`: begin it with `https://` or `http://`",
            clip(text)
        ));
    };
    let rest = rest.unwrap_or_default();
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if let Some(at) = rest.find(['/', '?', '#', '\\']) {
        return Err(format!(
            "must not hold a path or a query: write `{scheme}://{}`",
            clip(rest.get(..at).unwrap_or_default())
        ));
    }
    let (host, port) = authority(rest)?;
    Ok(Url { scheme, host, port })
}

fn is_segment(text: &str) -> bool {
    !text.is_empty()
        && text != "."
        && text != ".."
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// A mount of OpenBao; it becomes a part of URLs.
pub fn mount(text: &str) -> Checked<String> {
    if text.split('/').all(is_segment) {
        return Ok(text.to_owned());
    }
    let trimmed = text.trim_matches('/');
    let remedy = if trimmed.split('/').all(is_segment) {
        format!("write `{}`", clip(trimmed))
    } else {
        "use letters, digits, `-`, `_`, `.` and single `/` between".to_owned()
    };
    Err(format!(
        "must be a mount's name, not `{}`: {remedy}",
        clip(text)
    ))
}

/// A role of OpenBao.
pub fn role(text: &str) -> Checked<String> {
    if is_segment(text) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "must be a role's name, not `{}`: use letters, digits, `-`, `_` and `.`",
            clip(text)
        ))
    }
}

/// An absolute path.
pub fn path(text: &str) -> Checked<PathBuf> {
    if !text.starts_with('/') {
        return Err(format!(
            "must be an absolute path, not `{}`: begin it with `/`",
            clip(text)
        ));
    }
    let path = Path::new(text);
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(format!(
            "must not hold `..`: write where `{}` leads",
            clip(text)
        ));
    }
    // Components leave out doubled and trailing slashes and `.`, so that paths compare as texts too.
    Ok(path.components().collect())
}

/// A directory that the agent fills.
pub fn directory(text: &str) -> Checked<PathBuf> {
    let path = path(text)?;
    if path.parent().is_none() {
        return Err("must not be the root directory: write a directory of its own".to_owned());
    }
    Ok(path)
}

/// A program: a name in PATH, or an absolute path.
pub fn program(text: &str) -> Checked<String> {
    if text.starts_with('-') || text.contains(char::is_whitespace) {
        return Err(format!(
            "must be one program, not `{}`: write it without arguments",
            clip(text)
        ));
    }
    if text.contains('/') {
        path(text)?;
    }
    Ok(text.to_owned())
}

/// A registry, or an explicit none.
pub fn registry(text: &str) -> Checked<Option<String>> {
    if text.is_empty() {
        return Ok(None);
    }
    if let Some((_, rest)) = text.split_once("://") {
        return Err(format!(
            "must be a host, not a URL: write `{}`",
            clip(rest.split('/').next().unwrap_or_default())
        ));
    }
    if let Some((host, _)) = text.split_once('/') {
        return Err(format!(
            "must be a host without a path: write `{}`",
            clip(host)
        ));
    }
    Ok(Some(match authority(text)? {
        (host, Some(port)) => HostPort::new(&host, port).to_string(),
        (host, None) if host.contains(':') => format!("[{host}]"),
        (host, None) => host,
    }))
}

/// Whether the host is this machine.
pub fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host.ends_with(".localhost")
        || host.parse::<Ipv4Addr>().is_ok_and(|a| a.is_loopback())
        || host.parse::<Ipv6Addr>().is_ok_and(|a| a.is_loopback())
}

#[cfg(test)]
mod tests;
