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
    let touches = matches!(
        plan,
        Plan::Apply(_) | Plan::BringBack(_) | Plan::TakeDown(_)
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
    current
        .filter(|current| *current != applied)
        .map(|_| applied.clone())
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
mod tests {
    use super::*;
    use crate::names::EnvId;
    use crate::state::{Applied, Down, Failure, Held, Paused};

    fn sha(text: &str) -> Sha256 {
        Sha256::of(text.as_bytes())
    }

    fn release(text: &str) -> ReleaseName {
        ReleaseName::of(&sha(text), 1)
    }

    fn state() -> State {
        let mut state = State::new(&EnvId::new("env-a").unwrap());
        state.applied = Some(Applied {
            sha: sha("old"),
            release: Some(release("old")),
            at: Timestamp::from_unix(0),
            generation: None,
            rendered_at: None,
            secrets: Vec::new(),
            duration_s: 0,
            running: Vec::new(),
        });
        state
    }

    fn word(plan: &Plan) -> &'static str {
        match plan {
            Plan::Nothing => "nothing",
            Plan::BringBack(_) => "bring back",
            Plan::Apply(_) => "apply",
            Plan::TakeDown(_) => "down",
            Plan::Paused => "paused",
            Plan::Refuse(_) => "refuse",
        }
    }

    #[test]
    fn decisions() {
        let now = Timestamp::from_unix(1000);
        let at = Timestamp::from_unix;
        let failing = |failed_at, next_try_at| State {
            failure: Some(Failure {
                sha: sha("new"),
                tries: 1,
                code: "UP_FAILED".into(),
                failed_at: at(failed_at),
                next_try_at: at(next_try_at),
            }),
            ..state()
        };
        let down = |purged| State {
            down: Some(Down { at: at(0), purged }),
            ..State::new(&EnvId::new("env-a").unwrap())
        };
        let holding = |text: &str| State {
            held: Some(Held {
                sha: sha(text),
                since: at(0),
                why: "it failed".into(),
            }),
            ..state()
        };
        let paused = |until: Option<i64>| State {
            paused: Some(Paused {
                since: at(0),
                until: until.map(at),
                reason: "work".into(),
            }),
            ..state()
        };
        let new_box = || State::new(&EnvId::new("env-a").unwrap());
        let apply = |text: &str| Action::Apply(sha(text));
        let (old, new) = (release("old"), release("new"));
        let usual = Situation {
            current: Some(&old),
            force: false,
            may_purge: false,
            now,
        };
        let forced = Situation {
            force: true,
            ..usual
        };
        let purging = Situation {
            may_purge: true,
            ..usual
        };
        let (keep, purge) = (
            Action::Down {
                purge_volumes: false,
            },
            Action::Down {
                purge_volumes: true,
            },
        );
        let rows = [
            (
                "none, and the applied release is up",
                Action::None,
                state(),
                usual,
                "nothing",
            ),
            (
                "none, but another release is up",
                Action::None,
                state(),
                Situation {
                    current: Some(&new),
                    ..usual
                },
                "bring back",
            ),
            (
                "none on a new box",
                Action::None,
                new_box(),
                Situation {
                    current: None,
                    ..usual
                },
                "nothing",
            ),
            ("a new bundle", apply("new"), state(), usual, "apply"),
            (
                "the applied bundle again",
                apply("old"),
                state(),
                usual,
                "apply",
            ),
            (
                "a bundle in back-off",
                apply("new"),
                failing(900, 1100),
                usual,
                "refuse",
            ),
            (
                "a bundle in back-off, forced",
                apply("new"),
                failing(900, 1100),
                forced,
                "apply",
            ),
            (
                "the back-off is over",
                apply("new"),
                failing(900, 1000),
                usual,
                "apply",
            ),
            (
                "another bundle than the failing one",
                apply("newer"),
                failing(900, 1100),
                usual,
                "apply",
            ),
            (
                "the clock was set back during the back-off",
                apply("new"),
                failing(5000, 5100),
                usual,
                "apply",
            ),
            (
                "a held bundle",
                apply("new"),
                holding("new"),
                usual,
                "refuse",
            ),
            (
                "a held bundle, forced",
                apply("new"),
                holding("new"),
                forced,
                "apply",
            ),
            (
                "another bundle than the held one",
                apply("newer"),
                holding("new"),
                usual,
                "apply",
            ),
            (
                "a bundle on a paused box",
                apply("new"),
                paused(None),
                usual,
                "paused",
            ),
            (
                "a down on a paused box",
                Action::Down {
                    purge_volumes: false,
                },
                paused(Some(2000)),
                usual,
                "paused",
            ),
            (
                "nothing to do on a paused box",
                Action::None,
                paused(None),
                usual,
                "nothing",
            ),
            (
                "a pause that is over",
                apply("new"),
                paused(Some(1000)),
                usual,
                "apply",
            ),
            ("down", keep.clone(), state(), usual, "down"),
            ("down again", keep, down(false), purging, "nothing"),
            (
                "down again with a purge that is not allowed here",
                purge.clone(),
                down(false),
                usual,
                "nothing",
            ),
            (
                "down again with a purge that is allowed now",
                purge.clone(),
                down(false),
                purging,
                "down",
            ),
            (
                "down again after a purge",
                purge,
                down(true),
                purging,
                "nothing",
            ),
            (
                "a word that we do not know",
                Action::Unknown("dance".into()),
                state(),
                usual,
                "refuse",
            ),
        ];
        for (what, action, state, situation, expected) in rows {
            assert_eq!(
                word(&decide(&action, &state, situation)),
                expected,
                "{what}"
            );
        }
    }
}
