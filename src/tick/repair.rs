//! Drift: what runs is no longer what was applied. It is looked at with docker's facts, told to tenancy, and with
//! `on_drift: repair` started again: without lease or secrets, without running jobs again, a few times. It has a record of
//! its own and never touches that of an apply.

use crate::code::Cause;
use crate::deploy::drift;
use crate::deploy::live::{self, Live};
use crate::deploy::release::Releases;
use crate::error::Result;
use crate::host::disk::Dir;
use crate::report;
use crate::settings::OnDrift;
use crate::state::Drift;
use crate::tick::context::{Context, Memory};
use crate::tick::pacing;

/// After so many repairs in vain the box waits until the picture changes.
const TRIES: u32 = 5;

/// Compares what runs with what was applied.
///
/// # Errors
/// Docker's own trouble.
pub fn look(context: &Context<'_>, memory: &mut Memory) -> Result<()> {
    let running = memory
        .state
        .applied
        .as_ref()
        .map(|applied| applied.running.clone())
        .unwrap_or_default();
    if running.is_empty() {
        memory.state.drift = None;
        return Ok(());
    }
    let services = drift::find(&running, &context.docker().containers()?);
    if services.is_empty() {
        if memory.state.drift.take().is_some() {
            log::info!("everything runs again as it was applied");
        }
    } else if memory
        .state
        .drift
        .as_ref()
        .is_none_or(|known| known.services != services)
    {
        let list: Vec<String> = services
            .iter()
            .map(|drifted| format!("{} {}", drifted.service, drifted.why))
            .collect();
        log::warn!("what runs is not what was applied: {}", list.join(", "));
        memory.state.drift = Some(Drift {
            services,
            since: context.started_at,
            tries: 0,
            next_try_at: None,
            last_error: None,
        });
    }
    Ok(())
}

/// Starts what drifted again, if that is configured and due.
///
/// # Errors
/// A failed file operation; a repair that fails is noted in the drift's own record and is no error of the tick.
pub fn repair(context: &Context<'_>, memory: &mut Memory) -> Result<()> {
    let now = context.started_at;
    let Some(drift) = memory.state.drift.clone() else {
        return Ok(());
    };
    let is_due = drift.tries < TRIES && drift.next_try_at.is_none_or(|at| now >= at);
    if context.settings.on_drift != OnDrift::Repair
        || !is_due
        || memory.state.pause_at(now).is_some()
    {
        return Ok(());
    }
    let deploy = Dir::open(&context.settings.deploy_dir)?;
    let releases = Releases::open(&deploy)?;
    let Some(release) = live::current(&deploy)?
        .map(|name| releases.load(&name))
        .transpose()?
        .flatten()
    else {
        return Ok(());
    };
    context.enter("repairing drift");
    let services: Vec<&str> = drift
        .services
        .iter()
        .map(|drifted| drifted.service.as_str())
        .collect();
    let repaired = context
        .docker()
        .up_again(&Live::open(&deploy)?.project_files(&release), &services);
    let tries = drift.tries.saturating_add(1);
    let last_error = match repaired {
        Ok(()) => {
            log::info!(services = services.join(" "); "started again what had drifted");
            None
        }
        Err(error) if context.interrupt.is_pending() => return Err(error),
        Err(error) => {
            log::warn!("the drift could not be repaired: {error}");
            Some(report::detail(&error, context.redactor))
        }
    };
    if tries >= TRIES {
        log::warn!(
            "this was the last of {tries} repairs; should it not help, nothing more is tried until the picture changes"
        );
    }
    let pause_s = pacing::pause_s(context.settings.interval_s, tries, Cause::Outside);
    memory.state.drift = Some(Drift {
        tries,
        next_try_at: Some(now.plus_s(pause_s)),
        last_error,
        ..drift
    });
    // The next tick looks whether it helped.
    memory.pulse.action = Some("repair".into());
    Ok(())
}
