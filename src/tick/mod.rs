//! One tick, from the lock to the exit code: this file is the whole story, one stage a line. The stages live in the files
//! beside it and never call one another; `docs/ARCHITECTURE.md` draws the way.

mod apply;
mod bring_up;
mod context;
mod down;
mod facts;
mod finish;
mod judge;
mod known;
mod lease;
pub mod orders;
mod pacing;
mod plan;
mod progress;
mod prune;
mod repair;
mod restore;
pub mod run_loop;
mod secrets;
mod token;

pub use context::TickOptions;

use crate::deploy::live;
use crate::deploy::release::Releases;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::host::clock::Timestamp;
use crate::host::disk::{self, Dir};
use crate::host::interrupt::Interrupt;
use crate::host::lock::{Contended, Lock};
use crate::names::Sha256;
use crate::outcome::Done;
use crate::redact::Redactor;
use crate::remote::tenancy::{Action, Checkin};
use crate::settings::Settings;
use crate::state::heartbeat::Heartbeat;
use crate::state::store::{Origin, Store};
use crate::state::{Held, State};
use apply::Desired;
use context::{Context, Memory};
use finish::{Evidence, Failed};
use plan::{Plan, Situation};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use token::{Peers, Token};

/// The longest interval that tenancy may ask for: its slip must not silence a box for months.
const INTERVAL_CAP_S: u64 = 86_400;
const GRANT_CAP_BYTES: u64 = 16 * 1024;

/// Runs one tick and says how the process ends. Everything that went wrong has been logged by then, once.
pub fn run(
    settings: &Settings,
    options: TickOptions,
    redactor: &Redactor,
    interrupt: &Interrupt,
) -> Exit {
    match locked(settings, options, redactor, interrupt) {
        Ok(exit) => exit,
        Err(error) => {
            log::error!(code = error.code().as_str(); "{error}");
            error.exit()
        }
    }
}

/// The gates before the way: lock, state, mismatch memory, due. What fails here changes nothing.
fn locked(
    settings: &Settings,
    options: TickOptions,
    redactor: &Redactor,
    interrupt: &Interrupt,
) -> Result<Exit> {
    let state_dir = Dir::open_or_create(&settings.state_dir)?;
    let contended = if options.wait {
        Contended::Wait
    } else {
        Contended::Fail
    };
    let lock = Lock::acquire(&state_dir, contended, interrupt, &mut |line| {
        log::warn!("{line}")
    })?;
    let context = Context::new(settings, options, redactor, interrupt, &state_dir, &lock);
    crate::host::log::set_tick(&context.tick_id);
    remember_panics_in(&settings.state_dir);
    let grant = grant_digest(settings)?;
    let mut memory = load(&context, grant.as_ref())?;
    warn_daily(&context, &mut memory);
    if memory.state.grant_sha256 != grant {
        // A fresh kit may be the mending of whatever failed.
        memory.state.failure = None;
    }
    refuse_remembered_mismatch(&context, &memory, grant.as_ref())?;
    if !is_due(&context, &memory, grant.as_ref()) {
        tell_not_due(&context, &memory);
        return Ok(Exit::Ok);
    }
    Ok(end(&context, &mut memory, grant))
}

/// A timer's tick that is not due is nothing to speak of; a person who typed it wants to know why nothing happened.
fn tell_not_due(context: &Context<'_>, memory: &Memory) {
    let pulse = memory.last_pulse.as_ref();
    let next = pulse.and_then(|pulse| pulse.next_checkin_at(context.settings.interval_s));
    let left_s = next.map_or(0, |next| next.since_s(context.started_at).max(0));
    let last = pulse
        .and_then(|pulse| pulse.error.as_deref())
        .unwrap_or("all was well");
    if crate::host::log::is_interactive() {
        log::info!(
            "nothing asked: the next checkin is due in {left_s} s, `tick --force` asks now (the last tick: {last})"
        );
    } else {
        log::debug!("{}", Done::NotDue.as_str());
    }
}

/// Goes the way and leaves the state saved whatever came of it.
fn end(context: &Context<'_>, memory: &mut Memory, grant: Option<Sha256>) -> Exit {
    let ended = go(context, memory).map_err(|error| {
        // Whatever failed in a stage that a signal cut short failed because of the signal.
        if context.interrupt.is_pending() {
            Error::Interrupted {
                doing: context.lock.stage(),
            }
        } else {
            error
        }
    });
    let exit = match &ended {
        Ok(Done::Paused) if crate::host::log::is_interactive() => {
            log::info!("paused, nothing was touched; `monky-deployd resume` ends it");
            Exit::Ok
        }
        Ok(done) => {
            log::debug!(took:% = context.stopwatch; "{}", done.as_str());
            Exit::Ok
        }
        Err(error) => {
            log::error!(code = error.code().as_str(); "{error}");
            finish::note_end(context, memory, error, grant.as_ref());
            error.exit()
        }
    };
    memory.pulse.exit = exit.number();
    memory.state.config_sha256 = Some(context.settings.sha256.clone());
    memory.state.grant_sha256 = grant;
    let kept = memory
        .save(context)
        .and_then(|()| memory.pulse.save(context.state_dir))
        .and_then(|()| context.save_apply_log());
    match kept {
        Ok(()) => exit,
        Err(error) => {
            log::error!(code = error.code().as_str(); "{error}");
            if exit == Exit::Ok { error.exit() } else { exit }
        }
    }
}

/// The way: token, pending reports, facts, checkin, and what the checkin asks for.
fn go(context: &Context<'_>, memory: &mut Memory) -> Result<Done> {
    let settings = context.settings;
    let peers = Peers::new(settings, context.interrupt)?;
    let asked = ask(context, memory, &peers);
    let (mut token, checkin) = match asked {
        Err(error)
            if settings.laptop_mode && error.is_temporary() && !context.interrupt.is_pending() =>
        {
            log::debug!("offline: {error}");
            return Ok(Done::Offline);
        }
        Err(Error::NoGrant { .. })
            if memory.state.down.is_some() && memory.state.reports.is_empty() =>
        {
            return Ok(retired(context, memory));
        }
        asked => asked?,
    };
    let token = &mut token;
    let deploy = Dir::open_or_create(&settings.deploy_dir)?;
    let current = live::current(&deploy)?;
    let situation = Situation {
        current: current.as_ref(),
        // Whoever adopts has mended what the bundle was put off for.
        force: context.options.force || context.options.adopt,
        may_purge: down::may_purge(settings, context.options),
        now: context.started_at,
    };
    let plan = plan::decide(&checkin.action, &memory.state, situation);
    if plan.touches_docker() || memory.state.drift.is_some() {
        known::learn(context, &memory.state)?;
    }
    match plan {
        Plan::Nothing => {
            memory.state.failing_since = None;
            repair::repair(context, memory)?;
            if context.options.prune {
                prune::images(context, &Releases::open(&deploy)?, &[])?;
            }
            Ok(if memory.state.down.is_some() {
                Done::Down
            } else {
                Done::Converged
            })
        }
        Plan::Paused => Ok(Done::Paused),
        Plan::BringBack(release) => {
            let sha = release.sha();
            let brought = bring_up::bring_back(context, memory, &release);
            conclude(context, memory, &peers, token, Some(&sha), brought)?;
            finish::brought_back(context, memory)?;
            Ok(Done::Converged)
        }
        Plan::Apply(sha) => {
            let desired = Desired {
                sha,
                url: checkin.bundle_url,
                vault: checkin.vault,
            };
            let applied = apply::apply(context, memory, &peers, token, &desired);
            let running = conclude(context, memory, &peers, token, Some(&desired.sha), applied)?;
            finish::applied(context, memory, &peers, token, running)?;
            Ok(Done::Applied)
        }
        Plan::TakeDown(purge) => {
            let down = down::take_down(context, memory, purge);
            let detail = conclude(context, memory, &peers, token, None, down)?;
            finish::down(context, memory, &peers, token, detail)?;
            Ok(Done::Down)
        }
        Plan::Refuse(error) => conclude(context, memory, &peers, token, None, Err(error)),
    }
}

/// After a reported `down` a refused token only means that the box was retired: nothing fails, and one line a day says how
/// it would come back.
fn retired(context: &Context<'_>, memory: &mut Memory) -> Done {
    if is_a_day_old(memory.state.retired_said_at, context.started_at) {
        log::info!("this box was taken down and retired; a fresh bootstrap grant brings it back");
        memory.state.retired_said_at = Some(context.started_at);
    }
    Done::Retired
}

/// Whether what is said once a day is to be said again.
fn is_a_day_old(said_at: Option<Timestamp>, now: Timestamp) -> bool {
    said_at.is_none_or(|at| !(0..86_400).contains(&now.since_s(at)))
}

/// Everything up to tenancy's answer.
fn ask(context: &Context<'_>, memory: &mut Memory, peers: &Peers<'_>) -> Result<(Token, Checkin)> {
    let mut token = token::obtain(context, memory, peers)?;
    finish::deliver(context, memory, peers, &mut token)?;
    facts::refresh(context, memory)?;
    context.enter("checkin");
    let body = facts::checkin_body(context, &memory.state);
    let checkin = token::with_bearer(context, memory, peers, &mut token, |tenancy, bearer| {
        tenancy.checkin(bearer, &body)
    })?;
    if let Some(theirs) = checkin
        .env_id
        .as_deref()
        .filter(|theirs| *theirs != context.settings.env_id.as_str())
    {
        return Err(Error::EnvMismatch {
            whose: format!(
                "tenancy answers for {theirs}, the configuration says {}",
                context.settings.env_id
            ),
            remedy: format!("check env_id in {}", context.settings.path.display()),
        });
    }
    let is_wanted_still = |held: &Held| match &checkin.action {
        Action::Apply(sha) => *sha == held.sha,
        // It changes nothing.
        Action::Unknown(_) => true,
        Action::None | Action::Down { .. } => false,
    };
    memory.state.held = memory.state.held.take().filter(is_wanted_still);
    memory.state.retired_said_at = None;
    memory.pulse.checkin_at = Some(Timestamp::now());
    memory.pulse.interval_s = checkin
        .interval_s
        .map(|interval_s| interval_s.min(INTERVAL_CAP_S));
    memory.pulse.action = Some(
        match &checkin.action {
            Action::None => "none",
            Action::Apply(_) => "apply",
            Action::Down { .. } => "down",
            Action::Unknown(_) => "unknown",
        }
        .into(),
    );
    Ok((token, checkin))
}

/// Passes a success on. Of a failure the evidence is taken first, then what is configured is done about it, then it is
/// remembered, counted and reported.
fn conclude<T>(
    context: &Context<'_>,
    memory: &mut Memory,
    peers: &Peers<'_>,
    token: &mut Token,
    sha: Option<&Sha256>,
    ended: Result<T>,
) -> Result<T> {
    let Err(error) = &ended else { return ended };
    if context.interrupt.is_pending() {
        return ended;
    }
    let evidence = Evidence::of(context, error);
    let aftermath = match sha {
        Some(_) => restore::after_failure(context, memory, error),
        None => restore::Aftermath::Nothing,
    };
    if !context.interrupt.is_pending() {
        let failed = Failed {
            sha,
            error,
            evidence,
            aftermath: &aftermath,
        };
        finish::failed(context, memory, peers, token, failed)?;
    }
    ended
}

fn load(context: &Context<'_>, grant: Option<&Sha256>) -> Result<Memory> {
    let warn = &mut |warning: String| log::warn!("{warning}");
    let (store, mut state, origin) = Store::load(
        context.state_dir,
        context.lock,
        &context.settings.env_id,
        warn,
    )?;
    tell_origin(&origin);
    if has_changed(context, &state, grant) {
        state.held = None;
        state.failure = None;
    }
    Ok(Memory::new(
        store,
        state,
        Heartbeat::load(context.state_dir),
        context.started_at,
    ))
}

fn tell_origin(origin: &Origin) {
    match origin {
        Origin::Own | Origin::New => {}
        Origin::Imported => log::info!("the state of 0.1.x was imported"),
        Origin::SetAside(name) => {
            log::error!("state.json could not be read and stands aside as {name}; starting afresh")
        }
    }
}

fn refuse_remembered_mismatch(
    context: &Context<'_>,
    memory: &Memory,
    grant: Option<&Sha256>,
) -> Result<()> {
    let Some(mismatch) = memory
        .state
        .mismatch
        .as_ref()
        .filter(|_| !context.options.force)
    else {
        return Ok(());
    };
    if mismatch.config_sha256 != context.settings.sha256 || mismatch.grant_sha256.as_ref() != grant
    {
        return Ok(());
    }
    Err(Error::EnvMismatch {
        whose: format!("remembered, nothing was asked: {}", mismatch.detail),
        remedy: "`monky-deployd tick --force` asks again".into(),
    })
}

fn is_due(context: &Context<'_>, memory: &Memory, grant: Option<&Sha256>) -> bool {
    let state = &memory.state;
    context.options.is_order()
        || has_changed(context, state, grant)
        || !state.reports.is_empty()
        || memory
            .last_pulse
            .as_ref()
            .is_none_or(|pulse| pulse.is_due(context.settings.interval_s, context.started_at))
}

/// Whether a person changed something since the last tick that looked: what was put off is tried again then.
fn has_changed(context: &Context<'_>, state: &State, grant: Option<&Sha256>) -> bool {
    state.config_sha256.as_ref() != Some(&context.settings.sha256)
        || state.grant_sha256.as_ref() != grant
}

/// What is allowed in the configuration and most likely a mistake is said once a day.
fn warn_daily(context: &Context<'_>, memory: &mut Memory) {
    if context.settings.warnings.is_empty()
        || !is_a_day_old(memory.state.warned_at, context.started_at)
    {
        return;
    }
    for warning in &context.settings.warnings {
        log::warn!("{warning}");
    }
    memory.state.warned_at = Some(context.started_at);
}

fn grant_digest(settings: &Settings) -> Result<Option<Sha256>> {
    let bytes = disk::read_file(&settings.bootstrap_file, GRANT_CAP_BYTES, true)?
        .map(zeroize::Zeroizing::new);
    Ok(bytes.map(|bytes| Sha256::of(bytes.trim_ascii())))
}

/// The state directory of the tick that this process runs, for the panic hook.
static PANIC_NOTES: OnceLock<PathBuf> = OnceLock::new();

/// From here on a panic is remembered in the state of `state_dir`, whose lock this process holds.
pub(crate) fn remember_panics_in(state_dir: &Path) {
    PANIC_NOTES.get_or_init(|| state_dir.to_owned());
}

/// Called by the panic hook, right before the process ends: what the disk remembers becomes a failed tick. The state there
/// is always one that a kill could have left, so only the outcome is added to it.
pub fn note_panic(text: &str) {
    if let Some(state_dir) = PANIC_NOTES.get() {
        // There is nobody left to tell that even this failed.
        let _ = Dir::open(state_dir).and_then(|dir| Store::note_panic(&dir, text));
    }
}
