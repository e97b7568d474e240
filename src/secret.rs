//! The type of everything that must not be shown: secret values, tokens, grants. It prints as nothing, compares by
//! content and is wiped when dropped. Copies inside the HTTP, TLS and JSON layers are out of its reach; they live until
//! the process ends.

use std::fmt;
use zeroize::Zeroizing;

/// A text that is never logged, printed or passed as an argument.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes the text over; the caller keeps no copy.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The text itself. Every call is a place where the value could leak: keep them few.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_prints_nothing_of_its_content() {
        let secret = Secret::new("hunter2".into());
        assert!(!format!("{secret} {secret:?} {:#?}", Some(&secret)).contains("hunter2"));
        assert_eq!(secret.expose(), "hunter2");
    }
}
