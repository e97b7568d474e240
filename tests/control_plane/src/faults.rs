//! Owns what goes wrong on purpose: rules that match a connection or a request and say how it is spoilt.
//!
//! Takes rules from tests at any time, gives the servers the first that matches and still has turns left; counts every hit.
//! Never writes to a socket itself: `http::deliver` does.

use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;

use crate::Peer;
use crate::http::{Request, Response};
use crate::sync::lock;

/// How a connection or an answer is spoilt.
#[derive(Clone, Debug)]
pub enum Action {
    /// This answer instead of the real one; the request has no effect.
    Respond(Response),
    /// The request takes effect, then these fields are laid over the JSON of its answer.
    Merge(Value),
    /// The real thing, later.
    Delay(Duration),
    /// No answer, the connection is closed in an orderly way.
    Close,
    /// No answer, the connection is reset.
    Reset,
    /// The real answer, of whose body only `keep` bytes are sent before the connection is closed.
    Cut {
        /// Body bytes that are sent.
        keep: usize,
        /// What the head says about the length.
        length: BodyLength,
    },
    /// The real answer's first `keep` body bytes, then a reset.
    ResetInBody {
        /// Body bytes that are sent.
        keep: usize,
    },
    /// The real answer, one byte at a time from the status line on.
    DripHead(Duration),
    /// The real answer, its body one byte at a time.
    DripBody(Duration),
    /// Status 200 and a body of that many bytes.
    Huge {
        /// Bytes to send; sending stops when the client hangs up.
        bytes: u64,
        /// What the head says about the length.
        length: BodyLength,
    },
    /// Raw bytes instead of an HTTP message, then the end.
    Garbage(Vec<u8>),
    /// No answer; the connection stays open.
    Hang,
}

impl Action {
    /// An answer with a JSON body.
    pub fn json(status: u16, body: &Value) -> Self {
        Self::Respond(Response::json(status, body))
    }

    /// An answer with a text body.
    pub fn text(status: u16, body: &str) -> Self {
        Self::Respond(Response::bytes(status, "text/plain", body))
    }

    /// A redirect.
    pub fn redirect(status: u16, location: &str) -> Self {
        Self::Respond(Response::empty(status).with_header("Location", location))
    }

    /// False for those that only change the answer or its time.
    pub(crate) fn spoils_the_wire(&self) -> bool {
        !matches!(self, Self::Respond(_) | Self::Merge(_) | Self::Delay(_))
    }
}

/// What the head of a spoilt answer says about its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// Content-Length of the whole.
    Declared,
    /// Content-Length of 10 bytes, whatever follows.
    Understated,
    /// None: the body ends with the connection, so that a cut one looks complete.
    Absent,
}

/// When a rule applies and what it does.
#[derive(Clone, Debug)]
pub struct Rule {
    peer: Option<Peer>,
    method: Option<String>,
    path: String,
    at_connect: bool,
    after_effect: bool,
    skip: usize,
    times: usize,
    action: Action,
}

impl Rule {
    /// For every request to `peer`.
    pub fn on(peer: Peer, action: Action) -> Self {
        Self {
            peer: Some(peer),
            ..Self::anywhere(action)
        }
    }

    /// For every request to either server.
    pub fn anywhere(action: Action) -> Self {
        Self {
            peer: None,
            method: None,
            path: String::new(),
            at_connect: false,
            after_effect: false,
            skip: 0,
            times: usize::MAX,
            action,
        }
    }

    /// For every new connection to `peer`, before TLS. Of the actions, `Delay`, `Close`, `Reset`, `Hang` and `Garbage` have a meaning there.
    pub fn on_connect(peer: Peer, action: Action) -> Self {
        Self {
            at_connect: true,
            ..Self::on(peer, action)
        }
    }

    /// Only for this method.
    #[must_use]
    pub fn method(mut self, method: &str) -> Self {
        self.method = Some(method.to_owned());
        self
    }

    /// Only for paths that begin so.
    #[must_use]
    pub fn path(mut self, prefix: &str) -> Self {
        self.path = prefix.to_owned();
        self
    }

    /// Lets the first `n` matches pass.
    #[must_use]
    pub fn skip(mut self, n: usize) -> Self {
        self.skip = n;
        self
    }

    /// Applies to `n` matches, then never again.
    #[must_use]
    pub fn times(mut self, n: usize) -> Self {
        self.times = n;
        self
    }

    /// Applies once.
    #[must_use]
    pub fn once(self) -> Self {
        self.times(1)
    }

    /// The request takes effect (a lease is counted, a report kept) although its answer is replaced or lost.
    #[must_use]
    pub fn after_effect(mut self) -> Self {
        self.after_effect = true;
        self
    }
}

/// Names a rule, for `remove` and `hits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultId(pub u64);

struct Entry {
    id: u64,
    rule: Rule,
    matched: usize,
    hits: usize,
}

#[derive(Default)]
struct Inner {
    entries: Vec<Entry>,
    last: u64,
}

/// The rules in force.
#[derive(Default)]
pub struct Faults {
    inner: Mutex<Inner>,
}

/// A rule's decision for one request.
pub(crate) struct Hit {
    pub id: u64,
    pub action: Action,
    pub after_effect: bool,
}

impl Faults {
    /// Puts a rule in force. The oldest that matches wins.
    pub fn add(&self, rule: Rule) -> FaultId {
        let mut inner = lock(&self.inner);
        inner.last += 1;
        let id = inner.last;
        inner.entries.push(Entry {
            id,
            rule,
            matched: 0,
            hits: 0,
        });
        FaultId(id)
    }

    /// Ends a rule; false when it is not there.
    pub fn remove(&self, id: FaultId) -> bool {
        let mut inner = lock(&self.inner);
        let before = inner.entries.len();
        inner.entries.retain(|entry| entry.id != id.0);
        inner.entries.len() < before
    }

    /// Ends all rules.
    pub fn clear(&self) {
        lock(&self.inner).entries.clear();
    }

    /// How often a rule was applied.
    pub fn hits(&self, id: FaultId) -> usize {
        let inner = lock(&self.inner);
        inner
            .entries
            .iter()
            .find(|e| e.id == id.0)
            .map_or(0, |e| e.hits)
    }

    pub(crate) fn for_request(&self, peer: Peer, request: &Request) -> Option<Hit> {
        self.pick(|rule| {
            !rule.at_connect
                && rule.peer.is_none_or(|p| p == peer)
                && rule.method.as_ref().is_none_or(|m| *m == request.method)
                && request.path().starts_with(&rule.path)
        })
    }

    pub(crate) fn for_connection(&self, peer: Peer) -> Option<Hit> {
        self.pick(|rule| rule.at_connect && rule.peer.is_none_or(|p| p == peer))
    }

    fn pick(&self, matches: impl Fn(&Rule) -> bool) -> Option<Hit> {
        let mut inner = lock(&self.inner);
        for entry in inner
            .entries
            .iter_mut()
            .filter(|entry| matches(&entry.rule))
        {
            entry.matched += 1;
            if entry.matched > entry.rule.skip && entry.hits < entry.rule.times {
                entry.hits += 1;
                return Some(Hit {
                    id: entry.id,
                    action: entry.rule.action.clone(),
                    after_effect: entry.rule.after_effect,
                });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_applies_to_its_turns_only_and_is_counted() {
        let faults = Faults::default();
        let rule = Rule::on(Peer::Tenancy, Action::Close)
            .path("/v1/agent/")
            .method("POST")
            .skip(1)
            .times(2);
        let id = faults.add(rule);
        let post = Request {
            method: "POST".into(),
            target: "/v1/agent/lease?x".into(),
            ..Request::default()
        };
        let hit = |peer| faults.for_request(peer, &post).is_some();
        assert!(!hit(Peer::Bao));
        let turns: Vec<bool> = (0..4).map(|_| hit(Peer::Tenancy)).collect();
        assert_eq!(turns, [false, true, true, false]);
        assert_eq!(faults.hits(id), 2);
        assert!(faults.for_connection(Peer::Tenancy).is_none());
        assert!(faults.remove(id) && !faults.remove(id));
    }
}
