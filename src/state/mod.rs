//! What the agent remembers between ticks: `state.json`, schema 1. Everything in it is names, times, counts and digests;
//! no secret is ever stored here. `store` reads and writes it under the lock, `legacy` reads the form of 0.1.x.

pub mod heartbeat;
mod legacy;
pub mod store;

use crate::code::Code;
use crate::host::clock::Timestamp;
use crate::names::{EnvId, ReleaseName, Sha256, VarName};
use crate::ordered::set_of;
use crate::outcome::ResultWord;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;

/// The schema that this agent writes.
pub const SCHEMA: u64 = 1;
/// How many shas once applied are remembered for rollback protection.
pub const HISTORY_LEN: usize = 50;
/// How many spent grants are remembered; a grant lives an hour and a kit is re-revealed rarely.
const SPENT_GRANTS_LEN: usize = 64;
/// How many reported refusals are remembered.
const REPORTED_REFUSALS_LEN: usize = 64;

/// The whole memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The form of this document.
    pub schema: u64,
    /// The environment that it belongs to.
    pub env_id: EnvId,
    /// The bundle whose health wait succeeded last.
    #[serde(default)]
    pub applied: Option<Applied>,
    /// The applied bundle before that.
    #[serde(default)]
    pub previous: Option<Applied>,
    /// Shas once applied, oldest first, without the applied one.
    #[serde(default)]
    pub history: Vec<Sha256>,
    /// What was done last.
    #[serde(default)]
    pub last: Option<Last>,
    /// Since when nothing succeeds.
    #[serde(default)]
    pub failing_since: Option<Timestamp>,
    /// The failing apply's back-off.
    #[serde(default)]
    pub failure: Option<Failure>,
    /// A release that is being brought up, or that never became healthy.
    #[serde(default)]
    pub unsettled: Option<ReleaseName>,
    /// A bundle that is not tried again by itself.
    #[serde(default)]
    pub held: Option<Held>,
    /// A person paused the box.
    #[serde(default)]
    pub paused: Option<Paused>,
    /// What runs is not what was applied.
    #[serde(default)]
    pub drift: Option<Drift>,
    /// The box is bound to another environment: remembered until the config or the grant changes.
    #[serde(default)]
    pub mismatch: Option<Mismatch>,
    /// The configuration of the last tick that looked.
    #[serde(default)]
    pub config_sha256: Option<Sha256>,
    /// The bootstrap grant of the last tick that looked.
    #[serde(default)]
    pub grant_sha256: Option<Sha256>,
    /// Digests of grants that are of no use any more.
    #[serde(default)]
    pub spent_grants: Vec<Sha256>,
    /// What is known of the token.
    #[serde(default)]
    pub token: Option<TokenRecord>,
    /// The last look at docker.
    #[serde(default)]
    pub facts: Option<Facts>,
    /// Everything was taken down.
    #[serde(default)]
    pub down: Option<Down>,
    /// When the box was last said to be retired: one line a day.
    #[serde(default)]
    pub retired_said_at: Option<Timestamp>,
    /// When the configuration's warnings were logged last: once a day.
    #[serde(default)]
    pub warned_at: Option<Timestamp>,
    /// Project directories of ours, the present one and earlier ones: what was made from them is no stranger.
    #[serde(default)]
    pub project_dirs: Vec<String>,
    /// Reports that tenancy has not taken yet, oldest first.
    #[serde(default)]
    pub reports: Vec<Value>,
    /// Refusals that tenancy knows of: one report a sha and code.
    #[serde(default)]
    pub reported_refusals: Vec<(Sha256, String)>,
}

/// A bundle that was brought up and became healthy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// The bundle.
    pub sha: Sha256,
    /// Its staged release; unknown for a state that was imported.
    #[serde(default)]
    pub release: Option<ReleaseName>,
    /// Since when.
    pub at: Timestamp,
    /// `meta.generation`.
    #[serde(default)]
    pub generation: Option<u64>,
    /// `meta.rendered_at`, as written.
    #[serde(default)]
    pub rendered_at: Option<String>,
    /// The secrets that it was rendered with, by name.
    #[serde(default)]
    pub secrets: Vec<SecretRecord>,
    /// How long the apply took, in seconds.
    #[serde(default)]
    pub duration_s: u64,
    /// The services that kept running when it became healthy, and so should run now.
    #[serde(default)]
    pub running: Vec<String>,
}

/// Which secret a variable came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretRecord {
    /// The variable.
    pub var: VarName,
    /// The secret's path.
    pub path: String,
    /// The version that was read.
    pub version: Option<u64>,
}

/// What was done last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Last {
    /// How it ended.
    pub result: ResultWord,
    /// The code of a failure.
    #[serde(default)]
    pub code: Option<String>,
    /// What a person reads, redacted.
    #[serde(default)]
    pub detail: Option<String>,
    /// When.
    pub at: Timestamp,
}

/// An apply that failed, and when it is tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The bundle.
    pub sha: Sha256,
    /// How often it failed in a row.
    pub tries: u32,
    /// The last code.
    pub code: String,
    /// When it failed last.
    pub failed_at: Timestamp,
    /// When it is tried again.
    pub next_try_at: Timestamp,
}

/// A bundle that waits for a person, another bundle or another configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The bundle.
    pub sha: Sha256,
    /// Since when.
    pub since: Timestamp,
    /// Why, in words.
    pub why: String,
}

/// A pause that a person ordered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    /// Since when.
    pub since: Timestamp,
    /// Until when; `None` means until `resume`.
    pub until: Option<Timestamp>,
    /// Why.
    pub reason: String,
}

/// A service that does not run as it did when its bundle was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drifted {
    /// The service.
    pub service: String,
    /// What is wrong with it: `missing`, `exited`, `restarting`, `unhealthy`.
    pub why: String,
}

/// The record of a drift, apart from that of an apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drift {
    /// The services.
    pub services: Vec<Drifted>,
    /// Since when the picture is this one.
    pub since: Timestamp,
    /// How often it was repaired in vain.
    pub tries: u32,
    /// When it is repaired next.
    #[serde(default)]
    pub next_try_at: Option<Timestamp>,
    /// What the last repair failed with, redacted.
    #[serde(default)]
    pub last_error: Option<String>,
}

/// Why the box is bound to another environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mismatch {
    /// The configuration then.
    pub config_sha256: Sha256,
    /// The bootstrap grant then.
    pub grant_sha256: Option<Sha256>,
    /// What was said.
    pub detail: String,
}

/// Where a token came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenSource {
    /// From the operator's bootstrap grant.
    Bootstrap,
    /// From a lease.
    Lease,
}

/// What is known of the token without showing it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// Where it came from.
    pub source: TokenSource,
    /// The grant that it came from.
    #[serde(default)]
    pub grant_sha256: Option<Sha256>,
    /// When it was made, renewed or looked up, by this box's clock.
    #[serde(default)]
    pub known_at: Option<Timestamp>,
    /// The digest of the token that this describes: a file that holds another one is looked up anew.
    #[serde(default)]
    pub token_sha256: Option<Sha256>,
    /// When it expires; `None` means never.
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
    /// The seconds that it was made with; 0 when unknown.
    #[serde(default)]
    pub creation_ttl_s: u64,
    /// Whether it can be renewed.
    #[serde(default)]
    pub renewable: bool,
    /// The swap for a leased one was put off.
    #[serde(default)]
    pub swap_deferred: bool,
}

/// What docker said when it was asked last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// When.
    pub at: Timestamp,
    /// The engine's version.
    #[serde(default)]
    pub docker: Option<String>,
    /// Compose's version.
    #[serde(default)]
    pub compose: Option<String>,
    /// Where docker keeps its data.
    #[serde(default)]
    pub docker_root: Option<String>,
}

/// A finished `down`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Down {
    /// Since when.
    pub at: Timestamp,
    /// Whether the volumes were deleted too.
    pub purged: bool,
}

impl TokenRecord {
    /// What is known right after a login or a lookup: `ttl_s` seconds are left, for ever with `None`.
    pub fn of(
        source: TokenSource,
        grant: Option<Sha256>,
        token: Sha256,
        ttl_s: Option<u64>,
        renewable: bool,
    ) -> Self {
        Self {
            source,
            grant_sha256: grant,
            known_at: Some(Timestamp::now()),
            token_sha256: Some(token),
            expires_at: ttl_s.map(|ttl_s| Timestamp::now().plus_s(ttl_s)),
            creation_ttl_s: ttl_s.unwrap_or(0),
            renewable,
            swap_deferred: false,
        }
    }
}

impl State {
    /// The memory of a new box.
    pub fn new(env_id: &EnvId) -> Self {
        Self {
            schema: SCHEMA,
            env_id: env_id.clone(),
            applied: None,
            previous: None,
            history: Vec::new(),
            last: None,
            failing_since: None,
            failure: None,
            unsettled: None,
            held: None,
            paused: None,
            drift: None,
            mismatch: None,
            config_sha256: None,
            grant_sha256: None,
            spent_grants: Vec::new(),
            token: None,
            facts: None,
            down: None,
            retired_said_at: None,
            warned_at: None,
            project_dirs: Vec::new(),
            reports: Vec::new(),
            reported_refusals: Vec::new(),
        }
    }

    /// The applied sha.
    pub fn applied_sha(&self) -> Option<&Sha256> {
        self.applied.as_ref().map(|applied| &applied.sha)
    }

    /// A bundle became the applied one: the one before goes into history.
    pub fn note_applied(&mut self, applied: Applied) {
        if let Some(before) = self
            .applied
            .take()
            .filter(|before| before.sha != applied.sha)
        {
            self.history.retain(|sha| *sha != before.sha);
            self.history.push(before.sha.clone());
            self.previous = Some(before);
        }
        self.history.retain(|sha| *sha != applied.sha);
        let excess = self.history.len().saturating_sub(HISTORY_LEN);
        self.history.drain(..excess);
        self.applied = Some(applied);
        self.failure = None;
        self.held = None;
        self.drift = None;
        self.down = None;
    }

    /// A person brought an earlier bundle back: it is the applied one, the one before it is held and is no history, so
    /// that it can come back when the hold is lifted.
    pub fn note_restored(&mut self, applied: Applied, held: Option<Held>) {
        self.history.retain(|sha| *sha != applied.sha);
        let before = self.applied.take();
        if let Some(before) = before.filter(|before| before.sha != applied.sha) {
            self.previous = Some(before);
        }
        self.applied = Some(applied);
        self.failure = None;
        self.drift = None;
        self.down = None;
        self.held = held;
    }

    /// The releases that may run again: the applied one, the applied one before, and the `current` one. They are never
    /// deleted, and only they keep their rendered variables.
    pub fn kept_releases(&self, current: Option<ReleaseName>) -> BTreeSet<ReleaseName> {
        let applied = [&self.applied, &self.previous].into_iter().flatten();
        let names = applied.filter_map(|applied| applied.release.clone());
        set_of(names.chain(current))
    }

    /// The pause that is in force `now`.
    pub fn pause_at(&self, now: Timestamp) -> Option<&Paused> {
        self.paused
            .as_ref()
            .filter(|paused| paused.until.is_none_or(|until| now < until))
    }

    /// Everything was taken down: nothing is applied, and nothing would be a rollback.
    pub fn note_down(&mut self, down: Down) {
        self.applied = None;
        self.previous = None;
        self.history.clear();
        self.unsettled = None;
        self.failure = None;
        self.held = None;
        self.drift = None;
        self.down = Some(down);
    }

    /// Whether a grant is of no use any more.
    pub fn is_spent(&self, grant: &Sha256) -> bool {
        self.spent_grants.contains(grant)
    }

    /// Remembers that a grant is of no use any more.
    pub fn spend(&mut self, grant: Sha256) {
        if !self.is_spent(&grant) {
            self.spent_grants.push(grant);
            let excess = self.spent_grants.len().saturating_sub(SPENT_GRANTS_LEN);
            self.spent_grants.drain(..excess);
        }
    }

    /// Whether tenancy already knows that this bundle is refused for this reason; remembers it.
    pub fn note_refusal(&mut self, sha: &Sha256, code: Code) -> bool {
        let key = (sha.clone(), code.as_str().to_owned());
        if self.reported_refusals.contains(&key) {
            return true;
        }
        self.reported_refusals.push(key);
        let excess = self
            .reported_refusals
            .len()
            .saturating_sub(REPORTED_REFUSALS_LEN);
        self.reported_refusals.drain(..excess);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(text: &str) -> Applied {
        Applied {
            sha: Sha256::of(text.as_bytes()),
            release: None,
            at: Timestamp::from_unix(0),
            generation: None,
            rendered_at: None,
            secrets: Vec::new(),
            duration_s: 0,
            running: Vec::new(),
        }
    }

    #[test]
    fn history_holds_what_was_applied_without_the_applied_one() {
        let mut state = State::new(&EnvId::new("env-a").unwrap());
        for text in ["a", "b", "b", "a", "c"] {
            state.note_applied(applied(text));
        }
        assert_eq!(state.applied_sha(), Some(&Sha256::of(b"c")));
        assert_eq!(state.history, [Sha256::of(b"b"), Sha256::of(b"a")]);
        assert_eq!(
            state.previous.as_ref().map(|a| a.sha.clone()),
            Some(Sha256::of(b"a"))
        );
        state.note_down(Down {
            at: Timestamp::from_unix(1),
            purged: false,
        });
        assert!(state.history.is_empty() && state.applied.is_none() && state.previous.is_none());
    }

    #[test]
    fn history_is_bounded() {
        let mut state = State::new(&EnvId::new("env-a").unwrap());
        for n in 0..200 {
            state.note_applied(applied(&n.to_string()));
        }
        assert_eq!(state.history.len(), HISTORY_LEN);
        assert_eq!(state.history.last(), Some(&Sha256::of(b"198")));
    }

    #[test]
    fn one_refusal_is_reported_once() {
        let mut state = State::new(&EnvId::new("env-a").unwrap());
        let sha = Sha256::of(b"a");
        assert!(!state.note_refusal(&sha, Code::BundleInvalid));
        assert!(state.note_refusal(&sha, Code::BundleInvalid));
        assert!(!state.note_refusal(&sha, Code::DiskShort));
    }
}
