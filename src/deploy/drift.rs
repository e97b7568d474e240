//! Whether what runs is still what was applied: a pure comparison of the services that ran when the bundle became healthy
//! with the containers of now. An exited job is no drift; it was not running then either.

use crate::deploy::compose_output::Container;
use crate::state::Drifted;

/// The services of `running` that do not run well now, in their order.
pub fn find(running: &[String], containers: &[Container]) -> Vec<Drifted> {
    running
        .iter()
        .filter_map(|service| {
            let mut own = containers
                .iter()
                .filter(|container| container.service == *service)
                .peekable();
            let why = match own.peek() {
                None => Some("missing".to_owned()),
                Some(_) => own.find_map(ailment),
            };
            why.map(|why| Drifted {
                service: service.clone(),
                why,
            })
        })
        .collect()
}

fn ailment(container: &Container) -> Option<String> {
    match (container.state.as_str(), container.health.as_str()) {
        ("running", "unhealthy") => Some("unhealthy".into()),
        ("running", _) => None,
        // A job may outlast the wait for health; then it ran when its bundle was applied, and has ended well since.
        ("exited", _)
            if container.exit_code == 0
                && matches!(container.policy.as_str(), "" | "no" | "on-failure") =>
        {
            None
        }
        (state, _) => Some(state.to_owned()),
    }
}

/// The services that keep running: what [`find`] compares with later.
pub fn running_services(containers: &[Container]) -> Vec<String> {
    let mut services: Vec<String> = Vec::new();
    for container in containers
        .iter()
        .filter(|container| container.state == "running")
    {
        if !services.contains(&container.service) {
            services.push(container.service.clone());
        }
    }
    services
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(service: &str, state: &str, health: &str) -> Container {
        Container {
            service: service.into(),
            state: state.into(),
            health: health.into(),
            ..Container::default()
        }
    }

    #[test]
    fn what_ran_and_does_not_is_drift_and_an_exited_job_is_not() {
        let applied = [
            container("api", "running", ""),
            container("db", "running", "healthy"),
            container("job", "exited", ""),
        ];
        let running = running_services(&applied);
        assert_eq!(running, ["api", "db"]);
        assert!(find(&running, &applied).is_empty());
        let now = [
            container("api", "restarting", ""),
            container("job", "exited", ""),
        ];
        let drifted: Vec<_> = find(&running, &now)
            .into_iter()
            .map(|d| (d.service, d.why))
            .collect();
        assert_eq!(
            drifted,
            [
                ("api".into(), "restarting".into()),
                ("db".into(), "missing".into())
            ]
        );
        let ailing = [
            container("api", "running", "unhealthy"),
            container("db", "running", "starting"),
        ];
        assert_eq!(find(&running, &ailing).len(), 1);
    }

    #[test]
    fn a_job_that_outlasted_the_wait_and_ended_well_is_no_drift() {
        let ended = |policy: &str, exit_code| Container {
            policy: policy.into(),
            exit_code,
            ..container("job", "exited", "")
        };
        let is_drift = |container| !find(&["job".into()], &[container]).is_empty();
        for policy in ["", "no", "on-failure"] {
            assert!(!is_drift(ended(policy, 0)), "{policy}");
            assert!(is_drift(ended(policy, 1)), "{policy}");
        }
        assert!(is_drift(ended("always", 0)) && is_drift(ended("unless-stopped", 0)));
    }

    #[test]
    fn one_bad_replica_is_drift() {
        let containers = [
            container("api", "running", ""),
            container("api", "restarting", ""),
        ];
        assert_eq!(find(&["api".into()], &containers).len(), 1);
    }
}
