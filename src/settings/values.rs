//! The small types of a validated configuration. Each is made by this folder alone.

use std::fmt;

macro_rules! choice {
    ($(#[doc = $doc:literal])+ $name:ident { $($(#[doc = $vdoc:literal])+ $variant:ident = $word:literal,)+ }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[doc = $vdoc])+ $variant,)+ }

        impl $name {
            /// The words of the configuration.
            pub(super) const WORDS: &'static [&'static str] = &[$($word,)+];

            /// The word of the configuration.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }

            pub(super) fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

choice! {
    /// How HTTP is spoken.
    Scheme {
        /// In plain.
        Http = "http",
        /// Inside TLS.
        Https = "https",
    }
}

choice! {
    /// What becomes of volumes when the environment is taken down.
    VolumesOnAbsent {
        /// They stay.
        Keep = "keep",
        /// They may be deleted.
        Purge = "purge",
    }
}

choice! {
    /// What to do about drift.
    OnDrift {
        /// Tell tenancy and `status`.
        Report = "report",
        /// Start what is missing.
        Repair = "repair",
    }
}

choice! {
    /// What to do when an apply fails after `up`.
    OnUnhealthy {
        /// Leave it as it is.
        Keep = "keep",
        /// Bring the previous release back up.
        Restore = "restore",
    }
}

choice! {
    /// Which images are deleted after a good apply.
    PruneImages {
        /// Those that only deleted releases used.
        Old = "old",
        /// None.
        None = "none",
    }
}

impl Scheme {
    /// The port that a URL of this scheme means when it names none.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// A checked host and a port. The host carries no brackets, also when it is an IPv6 address; `Display` adds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    host: String,
    port: u16,
}

impl HostPort {
    pub(super) fn new(host: &str, port: u16) -> Self {
        Self {
            host: host.to_owned(),
            port,
        }
    }

    /// The host, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_authority(f, &self.host, self.port)
    }
}

fn write_authority(f: &mut impl fmt::Write, host: &str, port: u16) -> fmt::Result {
    if host.contains(':') {
        write!(f, "[{host}]:{port}")
    } else {
        write!(f, "{host}:{port}")
    }
}

/// `scheme://host:port`, an IPv6 host in brackets.
pub(super) fn origin(scheme: Scheme, host: &str, port: u16) -> String {
    let mut text = format!("{scheme}://");
    // Writing into a String cannot fail.
    let _ = write_authority(&mut text, host, port);
    text
}

/// Where a setting comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The table of defaults.
    Default,
    /// The configuration file.
    File,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::File => "file",
        })
    }
}
