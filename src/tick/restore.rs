//! What follows a failed apply: with `on_unhealthy: restore` the applied release comes back as it was rendered, its own
//! secret versions and all, and the failed bundle is held. With `keep` the failed one stays up and is tried again a few
//! times before it is held. Either way nothing is deployed again and again.

use crate::code::Code;
use crate::deploy::live;
use crate::error::{Error, Result};
use crate::host::clock::Timestamp;
use crate::host::disk::Dir;
use crate::names::{ReleaseName, Sha256};
use crate::redact::Redactor;
use crate::report;
use crate::settings::OnUnhealthy;
use crate::state::Held;
use crate::tick::bring_up::bring_back;
use crate::tick::context::{Context, Memory};

/// So often a bundle that does not become healthy is tried, then it is held.
const TRIES_BEFORE_HOLD: u32 = 5;

/// What was done about a failed apply.
#[derive(Debug, Default)]
pub enum Aftermath {
    /// Nothing: what ran before still runs, or the failed release stays up.
    #[default]
    Nothing,
    /// The applied release is up again.
    Restored(Sha256),
    /// The applied release did not come back either.
    Lost {
        /// The bundle that should have come back.
        sha: Sha256,
        /// Why it did not.
        error: Error,
    },
}

/// Brings the applied release back if that is configured and `error` came after `up`.
pub fn after_failure(context: &Context<'_>, memory: &mut Memory, error: &Error) -> Aftermath {
    if context.settings.on_unhealthy != OnUnhealthy::Restore || !came_after_up(error.code()) {
        return Aftermath::Nothing;
    }
    let release = match applied_release(context, memory) {
        Ok(Some(release)) => release,
        Ok(None) => {
            log::warn!("there is no earlier release to bring back");
            return Aftermath::Nothing;
        }
        Err(error) => {
            log::warn!("whether there is an earlier release to bring back cannot be told: {error}");
            return Aftermath::Nothing;
        }
    };
    let sha = release.sha();
    log::warn!(failed = error.code().as_str(); "the new bundle is up and not good, the applied one is brought back");
    match bring_back(context, memory, &release) {
        Ok(_) => {
            log::info!(sha = sha.short(); "the applied release is up again");
            Aftermath::Restored(sha)
        }
        Err(error) => {
            log::error!(code = error.code().as_str(); "the applied release did not come back: {error}");
            Aftermath::Lost { sha, error }
        }
    }
}

/// The applied release, unless it is the one that has just failed. It may be another rendering of the same bundle: with
/// the secrets as they were.
fn applied_release(context: &Context<'_>, memory: &Memory) -> Result<Option<ReleaseName>> {
    let failed = live::current(&Dir::open(&context.settings.deploy_dir)?)?;
    let applied = memory.state.applied.as_ref();
    Ok(applied
        .and_then(|applied| applied.release.clone())
        .filter(|release| failed.as_ref() != Some(release)))
}

fn came_after_up(code: Code) -> bool {
    matches!(code, Code::UpFailed | Code::Unhealthy)
}

impl Aftermath {
    /// The bundle that is up again.
    pub fn restored(&self) -> Option<&Sha256> {
        match self {
            Self::Restored(sha) => Some(sha),
            Self::Nothing | Self::Lost { .. } => None,
        }
    }

    /// A failure's detail with what was done about it.
    pub fn add_to(&self, detail: String, redactor: &Redactor) -> String {
        match self {
            Self::Nothing => detail,
            Self::Restored(sha) => {
                report::cut_detail(&format!("{detail}; {} is up again", sha.short()))
            }
            Self::Lost { sha, error } => {
                let lost = report::detail(error, redactor);
                report::cut_detail(&format!(
                    "{detail}; and {} did not come back: {lost}",
                    sha.short()
                ))
            }
        }
    }

    /// Holds the failed bundle where trying again by itself would only deploy it again and again.
    pub fn hold(&self, memory: &mut Memory, failed: &Sha256, code: Code, now: Timestamp) {
        let tries = memory
            .state
            .failure
            .as_ref()
            .map_or(0, |failure| failure.tries);
        let why = match self {
            Self::Restored(sha) => format!(
                "it failed with {code}, and {} was brought back",
                sha.short()
            ),
            Self::Lost { sha, .. } => format!(
                "it failed with {code}, and {} did not come back",
                sha.short()
            ),
            Self::Nothing if came_after_up(code) && tries >= TRIES_BEFORE_HOLD => {
                format!("it failed with {code} {tries} times")
            }
            Self::Nothing => return,
        };
        memory.state.held = Some(Held {
            sha: failed.clone(),
            since: now,
            why,
        });
    }
}
