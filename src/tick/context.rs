//! What every stage of a tick is given: the settings, the lock, the clock and the log of this tick (never changed), and
//! the memory (changed only through it, saved under the lock).

use crate::deploy::compose::Docker;
use crate::error::Result;
use crate::host::clock::{Stopwatch, Timestamp};
use crate::host::disk::{Dir, Durability};
use crate::host::interrupt::Interrupt;
use crate::host::lock::Lock;
use crate::host::paths::state_dir;
use crate::host::process::Runner;
use crate::redact::Redactor;
use crate::settings::Settings;
use crate::state::State;
use crate::state::heartbeat::Heartbeat;
use crate::state::store::Store;
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// A tick has this long over all.
pub const TICK_LIMIT: Duration = Duration::from_secs(40 * 60);
/// How much of an apply's output `last-apply.log` keeps, in bytes.
const APPLY_LOG_CAP_BYTES: usize = 1024 * 1024;

/// What this tick was asked to do besides the usual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TickOptions {
    /// Ignore back-off, the mismatch memory and "not due".
    pub force: bool,
    /// Wait for the lock.
    pub wait: bool,
    /// This tick may delete volumes that tenancy asked to purge.
    pub purge_volumes: bool,
    /// Take over a deployment that somebody made by hand under our project's name.
    pub adopt: bool,
    /// Also delete images that no kept release uses.
    pub prune: bool,
}

impl TickOptions {
    /// A person asks for something that must happen in this tick, due or not.
    pub fn is_order(self) -> bool {
        self.force || self.adopt || self.prune || self.purge_volumes
    }
}

/// The unchanging side of a tick.
pub struct Context<'a> {
    /// The configuration.
    pub settings: &'a Settings,
    /// What was asked.
    pub options: TickOptions,
    /// Every secret that this tick learns goes in here.
    pub redactor: &'a Redactor,
    /// SIGTERM and SIGINT.
    pub interrupt: &'a Interrupt,
    /// The state directory.
    pub state_dir: &'a Dir,
    /// Proof that no other tick runs.
    pub lock: &'a Lock,
    /// This tick's name, in logs and reports.
    pub tick_id: String,
    /// When it started.
    pub started_at: Timestamp,
    /// How long it runs.
    pub stopwatch: Stopwatch,
    until: Instant,
    apply_log: RefCell<String>,
}

impl<'a> Context<'a> {
    /// The context of a tick that starts now.
    pub fn new(
        settings: &'a Settings,
        options: TickOptions,
        redactor: &'a Redactor,
        interrupt: &'a Interrupt,
        state_dir: &'a Dir,
        lock: &'a Lock,
    ) -> Self {
        let started_at = Timestamp::now();
        let tick_id = format!("{:x}-{:x}", started_at.unix(), std::process::id());
        Self {
            settings,
            options,
            redactor,
            interrupt,
            state_dir,
            lock,
            tick_id,
            started_at,
            stopwatch: Stopwatch::start(),
            until: Instant::now() + TICK_LIMIT,
            apply_log: RefCell::new(String::new()),
        }
    }

    /// Says where the tick is, for the lock's holder record and the debug log.
    pub fn enter(&self, stage: &str) {
        log::debug!("{stage}");
        self.lock.enter(stage);
    }

    /// The docker of this box.
    pub fn docker(&self) -> Docker<'_> {
        Docker {
            program: self.settings.docker_bin.clone(),
            project: self.settings.compose_project.clone(),
            state_dir: self.state_dir.path().to_owned(),
            limit: Duration::from_secs(self.settings.docker_timeout_s),
            pull_limit: Duration::from_secs(self.settings.pull_timeout_s),
            runner: Runner::new(Some(self.lock), self.interrupt, Some(self.until)),
        }
    }

    /// Keeps a line of the apply's output.
    pub fn keep_line(&self, line: &str) {
        let mut log = self.apply_log.borrow_mut();
        if log.len() + line.len() < APPLY_LOG_CAP_BYTES {
            log.push_str(line);
            log.push('\n');
        }
    }

    /// What the apply printed so far, redacted.
    pub fn apply_log(&self) -> String {
        self.redactor.clean(&self.apply_log.borrow())
    }

    /// Writes `last-apply.log` if anything was applied in this tick.
    ///
    /// # Errors
    /// A failed file operation.
    pub fn save_apply_log(&self) -> Result<()> {
        let text = self.apply_log();
        if text.is_empty() {
            return Ok(());
        }
        self.state_dir.write(
            state_dir::LAST_APPLY_LOG,
            text.as_bytes(),
            0o600,
            Durability::Renamed,
        )
    }
}

/// The changing side of a tick.
pub struct Memory {
    store: Store,
    /// What is remembered between ticks.
    pub state: State,
    /// What the last tick left.
    pub last_pulse: Option<Heartbeat>,
    /// What this tick will leave.
    pub pulse: Heartbeat,
}

impl Memory {
    /// The memory as it was loaded.
    pub fn new(
        store: Store,
        state: State,
        last_pulse: Option<Heartbeat>,
        started_at: Timestamp,
    ) -> Self {
        let pulse = Heartbeat {
            started_at,
            checkin_at: last_pulse.as_ref().and_then(|pulse| pulse.checkin_at),
            interval_s: last_pulse.as_ref().and_then(|pulse| pulse.interval_s),
            exit: 0,
            not_before: None,
            error: None,
            action: last_pulse.as_ref().and_then(|pulse| pulse.action.clone()),
        };
        Self {
            store,
            state,
            last_pulse,
            pulse,
        }
    }

    /// Makes the state durable, if it changed.
    ///
    /// # Errors
    /// A failed file operation.
    pub fn save(&mut self, context: &Context<'_>) -> Result<()> {
        self.store
            .save(context.state_dir, context.lock, &self.state)
    }
}
