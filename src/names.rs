//! Names that carry a proof: each type here has one checking constructor, so a value that exists is a value that was
//! checked, and no later code checks it again.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a text is not such a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError {
    /// What the text should have been, in words that end a sentence "… must be …".
    pub expected: &'static str,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "must be {}", self.expected)
    }
}

impl std::error::Error for NameError {}

macro_rules! checked_name {
    ($(#[doc = $doc:literal])+ $name:ident, $expected:literal, $check:expr) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks `text`; an error says what it must be.
            pub fn new(text: &str) -> Result<Self, NameError> {
                let check: fn(&str) -> bool = $check;
                if check(text) { Ok(Self(text.to_owned())) } else { Err(NameError { expected: $expected }) }
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(&text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

checked_name! {
    /// An environment, for example `env-qa-02`; it names directories, the compose project and the secrets' fence.
    EnvId, "1 to 63 characters a-z, 0-9 or -, beginning with a letter or digit",
    |text| (1..=63).contains(&text.len())
        && !text.starts_with('-')
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

checked_name! {
    /// A sha256 as 64 lower-case hexadecimal digits: the name of a bundle.
    Sha256, "64 lower-case hexadecimal digits",
    |text| text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

checked_name! {
    /// The name of a variable in `.env`, as Compose takes it.
    VarName, "a letter or _ followed by letters, digits or _",
    |text| text.bytes().enumerate().all(|(i, b)| b == b'_' || b.is_ascii_alphabetic() || (i > 0 && b.is_ascii_digit()))
        && !text.is_empty()
}

checked_name! {
    /// A compose project name.
    ProjectName, "lower-case letters, digits, _ or -, beginning with a letter or digit",
    |text| !text.is_empty()
        && text.len() <= 100
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
        && text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
}

checked_name! {
    /// The directory name of a staged release: `<sha256>-<n>`.
    ReleaseName, "a sha256, - and a number",
    |text| text.split_once('-').is_some_and(|(sha, n)| {
        Sha256::new(sha).is_ok() && !n.is_empty() && n.len() <= 6 && n.bytes().all(|b| b.is_ascii_digit())
    })
}

checked_name! {
    /// The path of a regular file inside a bundle: relative, `/` between components, no component that is empty, `.` or
    /// `..`, no control characters, at most 255 bytes a component and 1,024 bytes in all.
    BundlePath, "a plain relative path without . or .. components and control characters",
    |text| !text.is_empty()
        && text.len() <= 1024
        && !text.chars().any(char::is_control)
        && text.split('/').all(|part| !part.is_empty() && part.len() <= 255 && part != "." && part != "..")
}

checked_name! {
    /// The path of a secret below its KV mount, inside the environment's fence: `<env_id>/see/…`.
    SecretPath, "a plain path below the environment's own prefix",
    |text| !text.is_empty()
        && text.len() <= 1024
        && !text.chars().any(|c| c.is_control() || matches!(c, '%' | '?' | '#' | '\\'))
        && text.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
}

impl Sha256 {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        use sha2::Digest;
        let digest = sha2::Sha256::digest(bytes);
        let mut text = String::with_capacity(64);
        for byte in digest {
            for nibble in [byte >> 4, byte & 15] {
                text.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0'));
            }
        }
        Self(text)
    }

    /// The first 12 digits, for people.
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

impl ReleaseName {
    /// The `n`-th rendering of the bundle `sha`.
    pub fn of(sha: &Sha256, n: u32) -> Self {
        Self(format!("{sha}-{n}"))
    }

    /// The bundle that this is a rendering of.
    pub fn sha(&self) -> Sha256 {
        Sha256(self.0.split('-').next().unwrap_or_default().to_owned())
    }

    /// Which rendering of the bundle it is.
    pub fn number(&self) -> u32 {
        self.0
            .split('-')
            .nth(1)
            .and_then(|n| n.parse().ok())
            .unwrap_or(0)
    }
}

/// Whom the agent talks to over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The control plane.
    Tenancy,
    /// The secret store.
    OpenBao,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tenancy => "tenancy",
            Self::OpenBao => "OpenBao",
        })
    }
}

/// How connections leave the box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TransportKind {
    /// The operating system's name resolution and TCP; the mesh tunneler intercepts.
    System,
    /// Plain TCP to local forwarders, one for each of the two services.
    Proxy,
}

impl TransportKind {
    /// The word of the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Proxy => "proxy",
        }
    }
}

impl fmt::Display for TransportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The candidate that a person most likely meant by `word`: the one with the fewest edits, if those are few for its
/// length. Used for unknown commands, options and configuration keys.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| (edits(word, candidate), candidate))
        .min()
        .filter(|(distance, candidate)| {
            *distance <= candidate.chars().count().max(word.chars().count()) / 2
        })
        .map(|(_, candidate)| candidate)
}

/// The Levenshtein distance of two words, one row at a time.
fn edits(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cb, cell) in b.chars().zip(row.iter_mut().skip(1)) {
            let above = *cell;
            let best = (diagonal + usize::from(ca != cb))
                .min(above + 1)
                .min(left + 1);
            diagonal = above;
            *cell = best;
            left = best;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_env_id_is_lower_case_and_short() {
        for good in ["a", "env-qa-02", "0x", &"a".repeat(63)] {
            assert!(EnvId::new(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "-a",
            "A",
            "a_b",
            "a.b",
            "a/b",
            "ä",
            "a\n",
            &"a".repeat(64),
        ] {
            assert!(EnvId::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_bundle_path_stays_inside_its_bundle() {
        for good in ["a", "a/b.c", "..a", "a b", "ä"] {
            assert!(BundlePath::new(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "/a",
            "a/",
            "a//b",
            "./a",
            "a/../b",
            "a\0",
            "a\nb",
            &"x".repeat(256),
            &"x/".repeat(600),
        ] {
            assert!(BundlePath::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_digest_of_nothing_is_the_known_one() {
        assert_eq!(
            Sha256::of(b"").as_str(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }

    #[test]
    fn a_release_name_gives_back_what_it_was_made_of() {
        let sha = Sha256::of(b"x");
        let name = ReleaseName::of(&sha, 3);
        assert_eq!((name.sha(), name.number()), (sha, 3));
        assert!(ReleaseName::new("x-1").is_err());
    }

    #[test]
    fn the_nearest_word_is_a_plausible_typo_or_none() {
        assert_eq!(nearest("tikc", ["tick", "run"]), Some("tick"));
        assert_eq!(nearest("tenacy", ["tenancy", "bao"]), Some("tenancy"));
        assert_eq!(nearest("zzzzzz", ["tick", "run"]), None);
        assert_eq!(edits("kitten", "sitting"), 3);
    }
}
