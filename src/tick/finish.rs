//! How a tick ends: the outcome goes into the state together with the report of it, the state is saved, the report is
//! sent, and only then cleared. At least once, never lost, never an obstacle.

use crate::code::Code;
use crate::deploy::compose_output::Container;
use crate::deploy::live;
use crate::deploy::release::{Release, Releases};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::host::disk::Dir;
use crate::names::Sha256;
use crate::outcome::ResultWord;
use crate::report::{self, Report};
use crate::state::{Last, Mismatch};
use crate::tick::apply;
use crate::tick::bring_up::{Running, culprits_logs};
use crate::tick::context::{Context, Memory};
use crate::tick::pacing;
use crate::tick::prune;
use crate::tick::restore::Aftermath;
use crate::tick::token::{self, Peers, Token};

/// The longest `Retry-After` that is honoured: a peer's slip must not silence a box for days.
const RETRY_AFTER_CAP_S: u64 = 3_600;

/// What is told of an outcome.
struct Told<'a> {
    sha: Option<&'a str>,
    result: ResultWord,
    code: Option<Code>,
    detail: Option<String>,
    log_tail: Option<String>,
    containers: &'a [Container],
    secrets: Vec<String>,
    restored: Option<&'a str>,
}

/// What is seen of a failure right after it, before anything is done about it.
#[derive(Debug, Default)]
pub struct Evidence {
    containers: Vec<Container>,
    log_tail: Option<String>,
}

/// A failure, as it is told.
#[derive(Debug)]
pub struct Failed<'a> {
    /// The bundle, if it was about one.
    pub sha: Option<&'a Sha256>,
    /// What went wrong.
    pub error: &'a Error,
    /// What was seen of it.
    pub evidence: Evidence,
    /// What was done about it.
    pub aftermath: &'a Aftermath,
}

impl Evidence {
    /// Collects what containers and their logs tell of `error`.
    pub fn of(context: &Context<'_>, error: &Error) -> Self {
        let containers = if is_about_containers(error) {
            context.docker().containers().unwrap_or_default()
        } else {
            Vec::new()
        };
        let logs = context
            .redactor
            .clean(&culprits_logs(context, error, &containers));
        let log_tail = Some([logs, context.apply_log()].join("")).filter(|tail| !tail.is_empty());
        Self {
            containers,
            log_tail,
        }
    }
}

/// An apply succeeded.
///
/// # Errors
/// A failed file operation. An undelivered report is no error.
pub fn applied(
    context: &Context<'_>,
    memory: &mut Memory,
    peers: &Peers<'_>,
    token: &mut Token,
    running: Running,
) -> Result<()> {
    let Running {
        applied,
        containers,
    } = running;
    let sha = applied.sha.clone();
    let secrets = apply::secret_names(Some(&applied));
    memory.state.note_applied(applied);
    note_success(context, memory, ResultWord::Applied);
    let told = Told {
        sha: Some(sha.as_str()),
        result: ResultWord::Applied,
        code: None,
        detail: None,
        log_tail: None,
        containers: &containers,
        secrets,
        restored: None,
    };
    tell(context, memory, &told);
    memory.save(context)?;
    deliver(context, memory, peers, token)?;
    log::info!(sha = sha.short(), took:% = context.stopwatch; "applied");
    let releases = open_releases(context)?;
    let deleted = clean_up(context, memory, &releases)?;
    prune::images(context, &releases, &deleted)
}

/// The applied release is up again after tenancy went back to it: what was seen and kept of the failed one is of no use.
///
/// # Errors
/// A failed file operation.
pub fn brought_back(context: &Context<'_>, memory: &mut Memory) -> Result<()> {
    memory.state.failing_since = None;
    memory.state.drift = None;
    clean_up(context, memory, &open_releases(context)?).map(drop)
}

/// A `down` succeeded.
///
/// # Errors
/// As [`applied`].
pub fn down(
    context: &Context<'_>,
    memory: &mut Memory,
    peers: &Peers<'_>,
    token: &mut Token,
    detail: String,
) -> Result<()> {
    note_success(context, memory, ResultWord::Down);
    let told = Told {
        sha: None,
        result: ResultWord::Down,
        code: None,
        detail: Some(detail),
        log_tail: None,
        containers: &[],
        secrets: Vec::new(),
        restored: None,
    };
    tell(context, memory, &told);
    memory.save(context)?;
    deliver(context, memory, peers, token)
}

/// What tenancy wanted could not be done. Temporary ends neither count nor are reported: the next tick tries again.
///
/// # Errors
/// As [`applied`].
pub fn failed(
    context: &Context<'_>,
    memory: &mut Memory,
    peers: &Peers<'_>,
    token: &mut Token,
    failed: Failed<'_>,
) -> Result<()> {
    let Failed {
        sha,
        error,
        evidence,
        aftermath,
    } = failed;
    if error.exit() != Exit::Failed || matches!(error, Error::PutOff { .. }) {
        return Ok(());
    }
    let code = error.code();
    let detail = aftermath.add_to(report::detail(error, context.redactor), context.redactor);
    remember(context, memory, code, detail.clone());
    if let Some(sha) = sha {
        let interval_s = context.settings.interval_s;
        pacing::note_failure(&mut memory.state, sha, code, interval_s, context.started_at);
        aftermath.hold(memory, sha, code, context.started_at);
    }
    let is_known = match (error, sha) {
        (Error::Refused { .. }, Some(sha)) => memory.state.note_refusal(sha, code),
        _ => false,
    };
    if !is_known {
        let secrets = apply::secret_names(memory.state.applied.as_ref());
        let told = Told {
            sha: sha.map(Sha256::as_str),
            result: ResultWord::Failed,
            code: Some(code),
            detail: Some(detail),
            log_tail: evidence.log_tail,
            containers: &evidence.containers,
            secrets,
            restored: aftermath.restored().map(Sha256::as_str),
        };
        tell(context, memory, &told);
    }
    memory.save(context)?;
    // A bundle that fails again and again is staged again and again.
    clean_up(context, memory, &open_releases(context)?)?;
    deliver(context, memory, peers, token)
}

/// A person brought an earlier bundle back; tenancy hears of it when it can.
///
/// # Errors
/// A failed file operation.
pub fn restored_by_hand(
    context: &Context<'_>,
    memory: &mut Memory,
    running: Running,
) -> Result<()> {
    let sha = running.applied.sha.clone();
    let secrets = apply::secret_names(Some(&running.applied));
    let told = Told {
        sha: Some(sha.as_str()),
        result: ResultWord::Applied,
        code: None,
        detail: Some("restored by hand".into()),
        log_tail: None,
        containers: &running.containers,
        secrets,
        restored: Some(sha.as_str()),
    };
    note_success(context, memory, ResultWord::Applied);
    tell(context, memory, &told);
    memory.save(context)?;
    clean_up(context, memory, &open_releases(context)?).map(drop)
}

fn is_about_containers(error: &Error) -> bool {
    matches!(
        error,
        Error::Unhealthy { .. }
            | Error::Compose {
                code: Code::UpFailed | Code::DownFailed,
                ..
            }
    )
}

fn note_success(context: &Context<'_>, memory: &mut Memory, result: ResultWord) {
    memory.state.last = Some(Last {
        result,
        code: None,
        detail: None,
        at: context.started_at,
    });
    memory.state.failing_since = None;
}

/// Remembers how a tick failed, for the status, the pacing and the next checkin.
pub fn note_end(context: &Context<'_>, memory: &mut Memory, error: &Error, grant: Option<&Sha256>) {
    let detail = report::detail(error, context.redactor);
    // A peer's `Retry-After` goes before our own interval.
    memory.pulse.not_before = error
        .retry_after_s()
        .map(|seconds| context.started_at.plus_s(seconds.min(RETRY_AFTER_CAP_S)));
    memory.pulse.error = Some(detail.clone());
    match error {
        Error::PutOff { .. } | Error::Interrupted { .. } => return,
        Error::EnvMismatch { .. } => {
            let config_sha256 = context.settings.sha256.clone();
            memory.state.mismatch = Some(Mismatch {
                config_sha256,
                grant_sha256: grant.cloned(),
                detail: detail.clone(),
            });
        }
        _ => {}
    }
    // What passes by itself is not what happened last; that it lasts is told by `failing_since`.
    if error.is_temporary() {
        memory.state.failing_since.get_or_insert(context.started_at);
    } else if memory
        .state
        .last
        .as_ref()
        .is_none_or(|last| last.at != context.started_at)
    {
        remember(context, memory, error.code(), detail);
    }
}

fn remember(context: &Context<'_>, memory: &mut Memory, code: Code, detail: String) {
    let code = Some(code.as_str().to_owned());
    let detail = Some(detail);
    memory.state.last = Some(Last {
        result: ResultWord::Failed,
        code,
        detail,
        at: context.started_at,
    });
    memory.state.failing_since.get_or_insert(context.started_at);
}

fn tell(context: &Context<'_>, memory: &mut Memory, told: &Told<'_>) {
    let report = Report {
        env_id: context.settings.env_id.as_str(),
        tick_id: &context.tick_id,
        sha: told.sha,
        result: told.result,
        code: told.code,
        detail: told.detail.clone(),
        log_tail: told.log_tail.clone(),
        containers: told.containers,
        duration_s: context.stopwatch.seconds(),
        secrets: told.secrets.clone(),
        restored: told.restored,
    };
    report::spool(&mut memory.state, report.to_json());
}

/// Sends what is in the spool, oldest first. A temporary failure keeps the rest for a later tick; a report that tenancy
/// refuses for good is logged and dropped, so that it never blocks the others.
///
/// # Errors
/// A failed file operation, an interruption, or a bearer that tenancy refuses for good.
pub fn deliver(
    context: &Context<'_>,
    memory: &mut Memory,
    peers: &Peers<'_>,
    token: &mut Token,
) -> Result<()> {
    if memory.state.reports.is_empty() {
        return Ok(());
    }
    context.enter("reporting");
    while let Some(report) = memory.state.reports.first().cloned() {
        match token::with_bearer(context, memory, peers, token, |tenancy, bearer| {
            tenancy.report(bearer, &report)
        }) {
            Ok(()) => log::debug!("report delivered"),
            Err(error) if context.interrupt.is_pending() => return Err(error),
            Err(error @ (Error::EnvMismatch { .. } | Error::NoGrant { .. })) => return Err(error),
            Err(Error::Answer(refusal))
                if !refusal.is_temporary() && !matches!(refusal.status, 401 | 403) =>
            {
                log::warn!("tenancy refuses a report, it is dropped: {refusal}");
            }
            Err(error) => {
                log::warn!("a report is kept for a later tick: {error}");
                return Ok(());
            }
        }
        memory.state.reports.remove(0);
    }
    memory.save(context)
}

/// Deletes releases that nobody needs any more, and the rendered variables of all but those that may run again. Gives
/// the deleted ones.
fn clean_up(context: &Context<'_>, memory: &Memory, releases: &Releases) -> Result<Vec<Release>> {
    let current = live::current(&Dir::open(&context.settings.deploy_dir)?)?;
    let kept = memory.state.kept_releases(current);
    releases.prune(&kept, context.settings.keep_releases)
}

fn open_releases(context: &Context<'_>) -> Result<Releases> {
    Releases::open(&Dir::open_or_create(&context.settings.deploy_dir)?)
}
