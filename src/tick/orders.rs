//! What a person orders by hand: pause, resume, restore. Each holds the lock like a tick and is durable when it returns.

use crate::deploy::live;
use crate::deploy::release::Releases;
use crate::error::{Error, Result};
use crate::host::clock::{Timestamp, span};
use crate::host::disk::Dir;
use crate::host::interrupt::Interrupt;
use crate::host::lock::{Contended, Lock};
use crate::host::paths::deploy_dir;
use crate::names::{ReleaseName, Sha256};
use crate::redact::Redactor;
use crate::settings::Settings;
use crate::state::store::Store;
use crate::state::{Applied, Held, Paused, State};
use crate::tick;
use crate::tick::bring_up::bring_back;
use crate::tick::context::{Context, TickOptions};
use crate::tick::finish;
use crate::tick::known;

/// Pauses the box for `for_s` seconds, or until `resume`: ticks go on checking in and touch nothing. Gives the line for the
/// person.
///
/// # Errors
/// The lock is held; a failed file operation.
pub fn pause(
    settings: &Settings,
    interrupt: &Interrupt,
    for_s: Option<u64>,
    reason: &str,
) -> Result<String> {
    let now = Timestamp::now();
    let until = for_s.map(|seconds| now.plus_s(seconds));
    with_state(settings, interrupt, |state| {
        state.paused = Some(Paused {
            since: now,
            until,
            reason: reason.to_owned(),
        });
    })?;
    Ok(match (until, for_s) {
        (Some(until), Some(seconds)) => format!("paused for {}, until {until}\n", span(seconds)),
        _ => "paused until `monky-deployd resume`\n".into(),
    })
}

/// Ends a pause. Gives the line for the person.
///
/// # Errors
/// As [`pause`].
pub fn resume(settings: &Settings, interrupt: &Interrupt) -> Result<String> {
    let mut was_paused = false;
    with_state(settings, interrupt, |state| {
        was_paused = state.paused.take().is_some()
    })?;
    Ok(if was_paused {
        "resumed\n".into()
    } else {
        "nothing was paused\n".into()
    })
}

/// Brings the applied release before, or the kept one of `sha` (its first digits are enough), up again and holds the
/// present one. Needs neither tenancy nor OpenBao. Gives the line for the person.
///
/// # Errors
/// There is no such release; as an apply's last stages.
pub fn restore(
    settings: &Settings,
    redactor: &Redactor,
    interrupt: &Interrupt,
    sha: Option<&str>,
) -> Result<String> {
    let state_dir = Dir::open_or_create(&settings.state_dir)?;
    let lock = Lock::acquire(&state_dir, Contended::Fail, interrupt, &mut |line| {
        log::warn!("{line}")
    })?;
    let context = Context::new(
        settings,
        TickOptions::default(),
        redactor,
        interrupt,
        &state_dir,
        &lock,
    );
    let grant = tick::grant_digest(settings)?;
    let mut memory = tick::load(&context, grant.as_ref())?;
    let deploy = Dir::open_or_create(&settings.deploy_dir)?;
    let present = live::current(&deploy)?;
    let release = choose(
        &Releases::open(&deploy)?,
        &memory.state,
        present.as_ref(),
        sha,
    )?;
    known::learn(&context, &memory.state)?;
    known::learn_release(redactor, &Releases::open(&deploy)?, &release)?;
    let running = bring_back(&context, &mut memory, &release).inspect_err(|_| {
        // The error says more than what keeps the log from being written.
        let _ = context.save_apply_log();
    })?;
    let restored = running.applied.sha.clone();
    // A hold that is there already names what tenancy wants: a second restore does not let go of it.
    let standing = memory
        .state
        .held
        .clone()
        .filter(|held| held.sha != restored);
    let present = present
        .map(|present| present.sha())
        .filter(|present| *present != restored);
    let held = standing.or_else(|| {
        present.map(|sha| Held {
            sha,
            since: context.started_at,
            why: format!("{} was restored by hand", restored.short()),
        })
    });
    let holds = held
        .as_ref()
        .map(|held| format!("; {} is held", held.sha.short()))
        .unwrap_or_default();
    memory.state.note_restored(running.applied.clone(), held);
    // What changed before this order does not lift its hold.
    memory.state.config_sha256 = Some(settings.sha256.clone());
    memory.state.grant_sha256 = grant;
    finish::restored_by_hand(&context, &mut memory, running)?;
    context.save_apply_log()?;
    Ok(format!("{} is up again{holds}\n", restored.short()))
}

/// The release to bring back: it must still have its variables.
fn choose(
    releases: &Releases,
    state: &State,
    present: Option<&ReleaseName>,
    sha: Option<&str>,
) -> Result<ReleaseName> {
    let no_release = |why: String| Error::Usage(why);
    if state.down.is_some() {
        return Err(no_release(
            "everything was taken down, and the rendered variables with it: nothing can be restored; ask tenancy for an apply".into(),
        ));
    }
    let has_values = |name: &ReleaseName| -> Result<bool> {
        Ok(releases.load(name)?.is_some()
            && releases.directory(name)?.kind(deploy_dir::ENV)?.is_some())
    };
    let mut kept = Vec::new();
    for name in releases.list()? {
        if has_values(&name)? {
            kept.push(name);
        }
    }
    match sha {
        None => {
            let release_of = |applied: &Option<Applied>| {
                applied.as_ref().and_then(|applied| applied.release.clone())
            };
            // What failed is up now: the last good one is the applied one.
            let good = release_of(&state.applied).filter(|applied| present != Some(applied));
            let before = good.or_else(|| release_of(&state.previous));
            before.filter(|name| kept.contains(name)).ok_or_else(|| {
                no_release(format!(
                    "there is no applied release before the present one; {}",
                    list(&kept)
                ))
            })
        }
        Some(digits) => {
            let digits = digits.to_ascii_lowercase();
            let matching: Vec<&ReleaseName> = kept
                .iter()
                .filter(|name| name.as_str().starts_with(&digits))
                .collect();
            let shas: Vec<Sha256> = matching.iter().map(|name| name.sha()).collect();
            match (matching.last(), shas.first()) {
                (Some(newest), Some(first))
                    if digits.len() >= 6 && shas.iter().all(|sha| sha == first) =>
                {
                    Ok((*newest).clone())
                }
                (None, _) => Err(no_release(format!(
                    "no kept release begins with {digits}; {}",
                    list(&kept)
                ))),
                _ => Err(no_release(format!(
                    "{digits} names no single release; {}",
                    list(&kept)
                ))),
            }
        }
    }
}

fn list(kept: &[ReleaseName]) -> String {
    if kept.is_empty() {
        return "none is kept".into();
    }
    let names: Vec<String> = kept
        .iter()
        .map(|name| name.sha().short().to_owned())
        .collect();
    format!("kept are {}", names.join(", "))
}

fn with_state(
    settings: &Settings,
    interrupt: &Interrupt,
    change: impl FnOnce(&mut State),
) -> Result<()> {
    let state_dir = Dir::open_or_create(&settings.state_dir)?;
    let lock = Lock::acquire(&state_dir, Contended::Wait, interrupt, &mut |line| {
        log::warn!("{line}")
    })?;
    let warn = &mut |warning: String| log::warn!("{warning}");
    let (mut store, mut state, origin) = Store::load(&state_dir, &lock, &settings.env_id, warn)?;
    tick::tell_origin(&origin);
    change(&mut state);
    store.save(&state_dir, &lock, &state)
}
