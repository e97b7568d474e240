//! Tests of the file that this folder is named after.

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
            "a held bundle on a paused box",
            apply("new"),
            State {
                held: holding("new").held,
                ..paused(None)
            },
            usual,
            "paused",
        ),
        (
            "a word that we do not know, on a paused box",
            Action::Unknown("dance".into()),
            paused(None),
            usual,
            "refuse",
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
