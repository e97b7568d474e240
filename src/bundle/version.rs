//! Semantic versions, as far as the order of two of them needs it: `agent.min_version` against this binary.

use std::cmp::Ordering;

/// A version; a missing minor or patch number is 0, build metadata is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    numbers: [u64; 3],
    pre: Vec<String>,
    text: String,
}

impl Version {
    /// Reads `[v]MAJOR[.MINOR[.PATCH]][-PRE][+BUILD]`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let bare = text.strip_prefix('v').unwrap_or(text);
        let (bare, build) = bare.split_once('+').unwrap_or((bare, "0"));
        let (core, pre) = match bare.split_once('-') {
            Some((core, pre)) => (core, pre.split('.').map(str::to_owned).collect()),
            None => (bare, Vec::new()),
        };
        let is_word = |word: &str| {
            !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        };
        if !build.split('.').all(is_word) || !pre.iter().all(|word: &String| is_word(word)) {
            return None;
        }
        let mut numbers = [0; 3];
        let mut parts = core.split('.');
        for (n, slot) in numbers.iter_mut().enumerate() {
            match parts.next() {
                Some(part) if is_number(part) => *slot = part.parse().ok()?,
                None if n > 0 => {}
                _ => return None,
            }
        }
        parts.next().is_none().then(|| Self {
            numbers,
            pre,
            text: text.to_owned(),
        })
    }

    /// The version as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The order of semantic versioning: a pre-release comes before its release.
    pub fn precedence(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| {
            match (self.pre.is_empty(), other.pre.is_empty()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => compare_words(&self.pre, &other.pre),
            }
        })
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn compare_words(a: &[String], b: &[String]) -> Ordering {
    a.iter()
        .zip(b)
        .map(|(a, b)| compare_word(a, b))
        .find(|order| order.is_ne())
        .unwrap_or_else(|| a.len().cmp(&b.len()))
}

/// Numbers compare as numbers and come before words.
fn compare_word(a: &str, b: &str) -> Ordering {
    match (is_number(a), is_number(b)) {
        (true, true) => {
            let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
            a.len().cmp(&b.len()).then_with(|| a.cmp(b))
        }
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (false, false) => a.cmp(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_semantic_versioning() {
        let rising = [
            "0.1.7",
            "0.2.0-alpha",
            "0.2.0-alpha.1",
            "0.2.0-alpha.beta",
            "0.2.0-beta",
            "0.2.0-beta.2",
            "0.2.0-beta.11",
            "0.2.0-rc.1",
            "0.2.0",
            "0.2.1",
            "0.10.0",
            "1.0.0",
        ];
        for (i, a) in rising.iter().enumerate() {
            for (j, b) in rising.iter().enumerate() {
                let order = Version::parse(a)
                    .unwrap()
                    .precedence(&Version::parse(b).unwrap());
                assert_eq!(order, i.cmp(&j), "{a} {b}");
            }
        }
    }

    #[test]
    fn short_forms_and_build_metadata_are_taken() {
        for (a, b) in [
            ("v0.2", "0.2.0"),
            ("1", "1.0.0"),
            ("0.2.0+build.5", "0.2.0"),
            (" 0.2.0 ", "0.2.0"),
        ] {
            let order = Version::parse(a)
                .unwrap()
                .precedence(&Version::parse(b).unwrap());
            assert_eq!(order, Ordering::Equal, "{a}");
        }
        for bad in [
            "",
            "latest",
            "0.2.x",
            "0.2.0.1",
            "0..1",
            "-1",
            "0.2.0-",
            "1+",
            "99999999999999999999",
        ] {
            assert_eq!(Version::parse(bad), None, "{bad}");
        }
    }
}
