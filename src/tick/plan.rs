//! What should happen: a pure function of what tenancy wants, what is remembered and the time. It decides and does
//! nothing.

use crate::error::Error;
use crate::host::clock::Timestamp;
use crate::names::{ReleaseName, Sha256};
use crate::remote::tenancy::Action;
use crate::state::State;

/// What this tick does.
#[derive(Debug)]
pub enum Plan {
    /// What runs is what is wanted.
    Nothing,
    /// An apply failed after its `up`, then tenancy went back: the applied release is brought up again.
    BringBack(ReleaseName),
    /// This bundle is applied.
    Apply(Sha256),
    /// Everything is taken down.
    TakeDown(Purge),
    /// A person paused the box: nothing is touched.
    Paused,
    /// Not now, or not this.
    Refuse(Error),
}

impl Plan {
    /// Whether docker is going to do something.
    pub fn touches_docker(&self) -> bool {
        matches!(
            self,
            Self::Apply(_) | Self::BringBack(_) | Self::TakeDown(_)
        )
    }
}

/// What becomes of the volumes in a `down`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purge {
    /// Tenancy did not ask for it.
    NotAsked,
    /// Tenancy asked, and this box does not allow it.
    NotAllowed,
    /// Tenancy asked, and this box allows it.
    Go,
}

/// What the decision depends on besides tenancy and the memory.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The release that was brought up last.
    pub current: Option<&'a ReleaseName>,
    /// The back-off is to be ignored.
    pub force: bool,
    /// This box, or this tick, allows volumes to be deleted.
    pub may_purge: bool,
    /// The time.
    pub now: Timestamp,
}

/// Decides.
pub fn decide(action: &Action, state: &State, situation: Situation<'_>) -> Plan {
    let plan = wish(action, state, situation);
    // A pause goes before a hold or a back-off: nothing is wrong with a box that a person paused.
    let touches = matches!(
        plan,
        Plan::Apply(_)
            | Plan::BringBack(_)
            | Plan::TakeDown(_)
            | Plan::Refuse(Error::PutOff { .. })
    );
    if touches && state.pause_at(situation.now).is_some() {
        Plan::Paused
    } else {
        plan
    }
}

/// What would happen on a box that nobody paused.
fn wish(action: &Action, state: &State, situation: Situation<'_>) -> Plan {
    let put_off =
        |sha: &Sha256| reason_to_wait(state, sha, situation.now).filter(|_| !situation.force);
    match action {
        Action::None => match bring_back(state, situation.current) {
            None => Plan::Nothing,
            Some(release) => match put_off(&release.sha()) {
                Some(why) => Plan::Refuse(Error::PutOff { why }),
                None => Plan::BringBack(release),
            },
        },
        Action::Apply(sha) => match put_off(sha) {
            Some(why) => Plan::Refuse(Error::PutOff { why }),
            None => Plan::Apply(sha.clone()),
        },
        Action::Down { purge_volumes } => {
            let purge = match (purge_volumes, situation.may_purge) {
                (false, _) => Purge::NotAsked,
                (true, false) => Purge::NotAllowed,
                (true, true) => Purge::Go,
            };
            match &state.down {
                // A purge that became allowed after a `down` that kept the volumes is still to be done.
                Some(down) if down.purged || purge != Purge::Go => Plan::Nothing,
                _ => Plan::TakeDown(purge),
            }
        }
        Action::Unknown(action) => Plan::Refuse(Error::UnknownAction {
            action: action.clone(),
        }),
    }
}

fn bring_back(state: &State, current: Option<&ReleaseName>) -> Option<ReleaseName> {
    let applied = state.applied.as_ref()?.release.as_ref()?;
    let is_current = current.is_none_or(|current| current == applied);
    // What was begun and never seen healthy is not up, whatever `current` says.
    (!is_current || state.unsettled.is_some()).then(|| applied.clone())
}

fn reason_to_wait(state: &State, sha: &Sha256, now: Timestamp) -> Option<String> {
    if let Some(held) = state.held.as_ref().filter(|held| held.sha == *sha) {
        return Some(format!(
            "{} is held since {}: {}; another bundle, a changed configuration or `monky-deployd tick --force` lifts the hold",
            sha.short(),
            held.since.to_minute(),
            held.why
        ));
    }
    let (next_try_at, code) = wait_until(state, sha, now)?;
    Some(format!(
        "{} failed with {code}, next try at {next_try_at}",
        sha.short()
    ))
}

fn wait_until<'a>(state: &'a State, sha: &Sha256, now: Timestamp) -> Option<(Timestamp, &'a str)> {
    let failure = state
        .failure
        .as_ref()
        .filter(|failure| failure.sha == *sha)?;
    // A clock that was set back must not put a bundle off for ever.
    let is_ahead = failure.next_try_at > now && failure.failed_at <= now;
    is_ahead.then_some((failure.next_try_at, failure.code.as_str()))
}

#[cfg(test)]
mod tests;
