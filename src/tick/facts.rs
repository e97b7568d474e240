//! What a checkin tells of the box. Docker is asked only when the last look is old or the last action changed something;
//! otherwise no process is started.

use crate::error::Result;
use crate::host::{clock, disk};
use crate::names::Sha256;
use crate::state::{Facts, State};
use crate::tick::context::{Context, Memory};
use crate::tick::repair;
use serde_json::{Value, json};

/// Looks at docker if that is due. Docker's own trouble is a fact too: the checkin goes on without its versions.
///
/// # Errors
/// [`crate::error::Error::Interrupted`] only.
pub fn refresh(context: &Context<'_>, memory: &mut Memory) -> Result<()> {
    if !is_due(context, memory) {
        return Ok(());
    }
    context.enter("docker facts");
    let mut facts = Facts {
        at: context.started_at,
        docker: None,
        compose: None,
        docker_root: None,
    };
    match context.docker().versions() {
        Ok(versions) => {
            facts.docker = Some(versions.docker);
            facts.compose = Some(versions.compose);
            facts.docker_root = versions
                .data_root
                .map(|path| path.to_string_lossy().into_owned());
            match repair::look(context, memory) {
                Err(error) if context.interrupt.is_pending() => return Err(error),
                Err(error) => log::debug!("drift: {error}"),
                Ok(()) => {}
            }
        }
        Err(error) if context.interrupt.is_pending() => return Err(error),
        Err(error) => log::debug!("docker facts: {error}"),
    }
    memory.state.facts = Some(facts);
    Ok(())
}

fn is_due(context: &Context<'_>, memory: &Memory) -> bool {
    let Some(facts) = &memory.state.facts else {
        return true;
    };
    let age_s = context.started_at.since_s(facts.at);
    let last_action = memory
        .last_pulse
        .as_ref()
        .and_then(|pulse| pulse.action.as_deref());
    let has_changed = match last_action {
        None | Some("none") => false,
        // A `down` that is repeated changes nothing, and makes no docker call.
        Some("down") => memory.state.down.is_none(),
        Some(_) => true,
    };
    has_changed
        || age_s < 0
        || u64::try_from(age_s).unwrap_or(0) >= context.settings.facts_interval_s
}

/// The body of a checkin.
pub fn checkin_body(context: &Context<'_>, state: &State) -> Value {
    let facts = state.facts.as_ref();
    let last = state.last.as_ref();
    let mut body = json!({
        "env_id": context.settings.env_id,
        "site": context.settings.site,
        "agent": {"version": env!("CARGO_PKG_VERSION"), "transport": context.settings.transport},
        "applied_sha": state.applied_sha().map(Sha256::as_str),
        "last_result": last.map(|last| last.result),
        "last_error": last.and_then(|last| last.detail.as_deref()),
        "facts": {
            "docker": facts.and_then(|facts| facts.docker.as_deref()),
            "compose": facts.and_then(|facts| facts.compose.as_deref()),
            "disk_free_bytes": disk::free_at(&context.settings.deploy_dir).ok().map(|free| free.bytes),
            "hostname": hostname(),
            "boot_id": clock::boot_id(),
            "uptime_s": clock::uptime_s(),
        },
    });
    let paused = state.pause_at(context.started_at);
    let optional = [
        (
            "failing_since",
            state.failing_since.map(|since| json!(since)),
        ),
        (
            "held",
            state
                .held
                .as_ref()
                .map(|held| json!({"sha": held.sha, "since": held.since})),
        ),
        (
            "paused",
            paused.map(|p| json!({"since": p.since, "until": p.until, "reason": p.reason})),
        ),
        (
            "drift",
            state.drift.as_ref().map(|drift| json!(drift.services)),
        ),
    ];
    if let Some(fields) = body.as_object_mut() {
        fields.extend(
            optional
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value?))),
        );
    }
    body
}

fn hostname() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}
