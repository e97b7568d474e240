//! Whether what runs is good: a pure verdict on one look at the containers, and the wait that looks until everything is
//! good and stays good. `compose up --wait` is not used: it fails on jobs that exit with 0 and takes the first
//! "running" of a crash loop for success.

use crate::deploy::compose::Docker;
use crate::deploy::compose_output::{Container, Service};
use crate::error::{Culprit, Error, Result};
use crate::ordered::map_of;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long an unhealthy container may recover before it is a failure, where `stable_for_s` is shorter.
const UNHEALTHY_PATIENCE: Duration = Duration::from_secs(15);
/// So many restarts are a crash loop even where a few are the policy (`on-failure`).
const CRASH_LOOP_RESTARTS: u64 = 3;
/// The pause between two looks, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What is known from before `up`.
#[derive(Clone, Debug, Default)]
pub struct Baseline {
    restarts: BTreeMap<String, u64>,
}

/// The verdict on one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Good now.
    Good,
    /// Not good yet: why.
    Pending(String),
    /// Unhealthy: a failure unless it recovers soon.
    Ailing,
    /// A failure for certain: why.
    Bad(String),
}

impl Baseline {
    /// The restart counts of the containers that are there before `up`.
    pub fn of(containers: &[Container]) -> Self {
        Self {
            restarts: map_of(containers.iter().map(|c| (c.id.clone(), c.restarts))),
        }
    }

    fn restarts_since(&self, container: &Container) -> u64 {
        container
            .restarts
            .saturating_sub(self.restarts.get(&container.id).copied().unwrap_or(0))
    }

    /// The verdict on `container`, of which the model says `service`.
    pub fn judge(&self, container: &Container, service: &Service) -> Verdict {
        let restarts = self.restarts_since(container);
        let is_patient = container.policy == "on-failure";
        let loops = || {
            format!(
                "restarts again and again ({restarts} times, last exit code {})",
                container.exit_code
            )
        };
        match container.state.as_str() {
            "running" if restarts > 0 && (!is_patient || restarts >= CRASH_LOOP_RESTARTS) => {
                Verdict::Bad(loops())
            }
            "running" if restarts > 0 => {
                Verdict::Pending(format!("was restarted {restarts} times"))
            }
            "running" => match container.health.as_str() {
                "" | "none" | "healthy" => Verdict::Good,
                "unhealthy" => Verdict::Ailing,
                _ => Verdict::Pending("its health check has not passed yet".into()),
            },
            "restarting" if is_patient && restarts < CRASH_LOOP_RESTARTS => {
                Verdict::Pending("is restarted".into())
            }
            "restarting" => Verdict::Bad(loops()),
            "exited" if container.exit_code == 0 && service.is_job => Verdict::Good,
            "exited" if container.exit_code == 0 => {
                Verdict::Bad("exited with 0, though it should keep running".into())
            }
            "exited" => Verdict::Bad(format!("exited with {}", container.exit_code)),
            "dead" => Verdict::Bad("is dead".into()),
            "paused" => Verdict::Bad("is paused".into()),
            "created" if !container.error.is_empty() => {
                Verdict::Bad(format!("cannot start: {}", container.error))
            }
            "created" => Verdict::Pending("has not started yet".into()),
            other => Verdict::Pending(format!("is {other}")),
        }
    }
}

/// What one look showed.
#[derive(Debug, Default)]
struct Look {
    pending: Vec<Culprit>,
    ailing: Vec<Culprit>,
    bad: Vec<Culprit>,
}

fn look(
    containers: &[Container],
    services: &BTreeMap<String, Service>,
    baseline: &Baseline,
) -> Look {
    let mut seen = Look::default();
    for container in containers {
        let service = services
            .get(&container.service)
            .cloned()
            .unwrap_or_default();
        let culprit = |why: String| Culprit {
            service: container.service.clone(),
            why,
        };
        match baseline.judge(container, &service) {
            Verdict::Good => {}
            Verdict::Pending(why) => seen.pending.push(culprit(why)),
            Verdict::Ailing => seen.ailing.push(culprit("is unhealthy".into())),
            Verdict::Bad(why) => seen.bad.push(culprit(why)),
        }
    }
    for (name, service) in services {
        if !service.is_optional
            && !containers
                .iter()
                .any(|container| container.service == *name)
        {
            seen.pending.push(Culprit {
                service: name.clone(),
                why: "has no container".into(),
            });
        }
    }
    seen
}

/// How long to wait, and for what.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Until everything must be good.
    pub limit: Duration,
    /// How long everything must stay good.
    pub stable_for: Duration,
}

/// Waits until every container is good and stays good; `on_progress` hears, at every look, what is still missing.
///
/// # Errors
/// [`Error::Unhealthy`] with everything that is wrong, as soon as it is certain; [`Error::Interrupted`]; docker's own
/// trouble.
pub fn wait(
    docker: &Docker<'_>,
    services: &BTreeMap<String, Service>,
    baseline: &Baseline,
    patience: Patience,
    on_progress: &mut dyn FnMut(&str),
) -> Result<Vec<Container>> {
    let started = Instant::now();
    let mut good_since: Option<Instant> = None;
    let mut ailing_since: Option<Instant> = None;
    let mut pause = FIRST_PAUSE;
    loop {
        let containers = docker.containers()?;
        let now = Instant::now();
        let seen = look(&containers, services, baseline);
        let waited_s = now.duration_since(started).as_secs();
        if !seen.bad.is_empty() {
            return Err(Error::Unhealthy {
                culprits: [seen.bad, seen.ailing].concat(),
                waited_s,
            });
        }
        ailing_since = if seen.ailing.is_empty() {
            None
        } else {
            ailing_since.or(Some(now))
        };
        if ailing_since.is_some_and(|since| {
            now.duration_since(since) >= patience.stable_for.max(UNHEALTHY_PATIENCE)
        }) {
            return Err(Error::Unhealthy {
                culprits: seen.ailing,
                waited_s,
            });
        }
        let missing = [seen.ailing, seen.pending].concat();
        good_since = if missing.is_empty() {
            good_since.or(Some(now))
        } else {
            None
        };
        if good_since.is_some_and(|since| now.duration_since(since) >= patience.stable_for) {
            return Ok(containers);
        }
        // Something that is good in time may take its stable time after the limit.
        if good_since.is_none() && now.duration_since(started) >= patience.limit {
            return Err(Error::Unhealthy {
                culprits: missing,
                waited_s,
            });
        }
        on_progress(&progress(&missing, waited_s));
        let rest = good_since.map(|since| {
            patience
                .stable_for
                .saturating_sub(now.duration_since(since))
        });
        if docker.runner.interrupt().wait(
            rest.map_or(pause, |rest| rest.min(pause))
                .max(Duration::from_millis(20)),
        ) {
            return Err(Error::Interrupted {
                doing: "waiting for health".into(),
            });
        }
        if docker.runner.left().is_some_and(|left| left.is_zero()) {
            return Err(Error::Deadline {
                doing: "waiting for health".into(),
                after_s: waited_s,
            });
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn progress(missing: &[Culprit], waited_s: u64) -> String {
    if missing.is_empty() {
        return format!("all good, watching that it stays so ({waited_s} s)");
    }
    let list: Vec<String> = missing
        .iter()
        .map(|c| format!("{} {}", c.service, c.why))
        .collect();
    format!("waiting for {} ({waited_s} s)", list.join(", "))
}

#[cfg(test)]
mod tests;
