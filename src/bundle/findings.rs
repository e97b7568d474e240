//! The collector of everything that is wrong with a bundle. A broken bundle tends to be broken in many places, and its
//! maker wants to see them together; a hostile one could name thousands, so the list is short and the rest is counted.

use crate::error::Finding;

/// How many findings are told one by one.
const SHOWN: usize = 20;
/// How much of a name that somebody else chose is shown.
const NAME_SHOWN: usize = 120;

/// What was found so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    list: Vec<Finding>,
    more: Option<Finding>,
    hidden: usize,
}

impl Findings {
    /// Adds one.
    pub(super) fn push(&mut self, finding: Finding) {
        if self.list.len() < SHOWN {
            self.list.push(finding);
        } else {
            self.hidden += 1;
            self.more.get_or_insert(finding);
        }
    }

    /// Adds several.
    pub(super) fn extend(&mut self, findings: impl IntoIterator<Item = Finding>) {
        for finding in findings {
            self.push(finding);
        }
    }

    /// Whether nothing is wrong so far.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The list, at its end "and N more" where some were left out.
    pub(super) fn into_vec(mut self) -> Vec<Finding> {
        if let Some(mut more) = self.more {
            if self.hidden > 1 {
                more.detail = format!("and {} more", self.hidden);
            }
            self.list.push(more);
        }
        self.list
    }
}

/// A name from the bundle for a message: quoted, escaped, cut to a sensible length.
pub(super) fn show(name: &[u8]) -> String {
    let head = name.get(..NAME_SHOWN * 4).unwrap_or(name);
    let text = String::from_utf8_lossy(head);
    let shown: String = text.chars().take(NAME_SHOWN).collect();
    let cut = if shown.len() < text.len() || head.len() < name.len() {
        "…"
    } else {
        ""
    };
    format!("\"{}{cut}\"", shown.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Code;

    fn found(count: usize) -> Vec<Finding> {
        let mut findings = Findings::default();
        findings.extend((0..count).map(|n| Finding::new(Code::BundleUnsafe, n.to_string())));
        findings.into_vec()
    }

    #[test]
    fn a_long_list_ends_with_the_number_of_the_rest() {
        assert_eq!(found(0).len(), 0);
        assert_eq!(found(20).last().unwrap().detail, "19");
        assert_eq!(found(21).last().unwrap().detail, "20");
        let many = found(1000);
        assert_eq!(many.len(), 21);
        assert_eq!(
            many.last().unwrap().to_string(),
            "BUNDLE_UNSAFE: and 980 more"
        );
    }

    #[test]
    fn a_shown_name_is_escaped_and_short() {
        assert_eq!(show(b"a\x1b[2J\nb\xff"), "\"a\\u{1b}[2J\\nb\u{fffd}\"");
        assert_eq!(show(&[b'x'; 4000]).chars().count(), NAME_SHOWN + 3);
    }
}
