//! The keys that a template may define: what Compose's dotenv parser takes, without blanks inside and not empty (it takes
//! those too, and no container could use them). Also the list of names that would steer docker itself. A key is wider
//! than a [`VarName`]: `spring.mail.host` and `LIST[0]` reach a container, though nothing can refer to them.

use crate::names::VarName;
use std::borrow::Borrow;
use std::fmt;

/// A key of `.env`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

impl Key {
    /// Checks `text`.
    pub fn new(text: &str) -> Option<Self> {
        (!text.is_empty() && text.chars().all(is_key_char)).then(|| Self(text.to_owned()))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key as a name that `${…}` can refer to, if it is one.
    pub fn var_name(&self) -> Option<VarName> {
        VarName::new(&self.0).ok()
    }

    /// Whether docker or Compose would take the key as an instruction to itself, one that could lead it elsewhere than
    /// the agent wants. `COMPOSE_PROJECT_NAME` loses to `-p` and `COMPOSE_PROFILES` is a feature.
    pub fn is_reserved(&self) -> bool {
        const NAMES: [&str; 11] = [
            "COMPOSE_FILE",
            "COMPOSE_ENV_FILES",
            "COMPOSE_DISABLE_ENV_FILE",
            "COMPOSE_PATH_SEPARATOR",
            "COMPOSE_REMOVE_ORPHANS",
            "COMPOSE_IGNORE_ORPHANS",
            "COMPOSE_CONVERT_WINDOWS_PATHS",
            "DOCKER_HOST",
            "DOCKER_CONTEXT",
            "DOCKER_CONFIG",
            "DOCKER_CERT_PATH",
        ];
        NAMES.contains(&self.as_str()) || self.0.starts_with("DOCKER_TLS")
    }
}

/// So that a map by key can be asked with a plain text.
impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_key_char(c: char) -> bool {
    matches!(c, '_' | '.' | '-' | '[' | ']') || c.is_alphanumeric()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_what_compose_takes() {
        for good in [
            "A", "_", "a.b", "A-B", "A[0]", "1A", "ä", "٣", "export", "exportA",
        ] {
            assert!(Key::new(good).is_some(), "{good}");
        }
        for bad in [
            "",
            "A B",
            "A\tB",
            "A/B",
            "A$B",
            "'A'",
            "A,B",
            "A\\",
            "A\u{1}",
            "\u{feff}A",
        ] {
            assert!(Key::new(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn only_names_that_steer_docker_are_reserved() {
        for (key, reserved) in [
            ("COMPOSE_FILE", true),
            ("DOCKER_HOST", true),
            ("DOCKER_TLS", true),
            ("DOCKER_TLS_VERIFY", true),
            ("DOCKER_TLSX", true),
            ("COMPOSE_PROJECT_NAME", false),
            ("COMPOSE_PROFILES", false),
            ("COMPOSE_FILES_DIR", false),
            ("DOCKER_HOST_NAME", false),
            ("DOCKER_IMAGE", false),
            ("compose_file", false),
        ] {
            assert_eq!(
                Key::new(key).map(|key| key.is_reserved()),
                Some(reserved),
                "{key}"
            );
        }
    }

    #[test]
    fn only_a_plain_name_can_be_referred_to() {
        assert!(Key::new("A_1").and_then(|key| key.var_name()).is_some());
        assert!(Key::new("A.1").and_then(|key| key.var_name()).is_none());
    }
}
