//! The verdict on every kind of container.

use super::*;

fn container(state: &str, health: &str, exit_code: i64, restarts: u64, policy: &str) -> Container {
    Container {
        id: "c1".into(),
        service: "api".into(),
        state: state.into(),
        health: health.into(),
        exit_code,
        restarts,
        policy: policy.into(),
        ..Container::default()
    }
}

/// A verdict without its words.
fn judge(container: &Container, is_job: bool) -> &'static str {
    match Baseline::default().judge(
        container,
        &Service {
            is_job,
            is_optional: false,
        },
    ) {
        Verdict::Good => "good",
        Verdict::Pending(_) => "pending",
        Verdict::Ailing => "ailing",
        Verdict::Bad(_) => "bad",
    }
}

#[test]
fn verdicts() {
    let rows = [
        (
            "running without a check",
            container("running", "", 0, 0, "always"),
            false,
            "good",
        ),
        (
            "running and healthy",
            container("running", "healthy", 0, 0, "always"),
            false,
            "good",
        ),
        (
            "running, check not passed yet",
            container("running", "starting", 0, 0, "always"),
            false,
            "pending",
        ),
        (
            "running and unhealthy",
            container("running", "unhealthy", 0, 0, "always"),
            false,
            "ailing",
        ),
        (
            "running after a crash",
            container("running", "", 0, 1, "always"),
            false,
            "bad",
        ),
        (
            "between two crashes",
            container("restarting", "", 0, 4, "always"),
            false,
            "bad",
        ),
        (
            "a retrying job",
            container("restarting", "", 3, 1, "on-failure"),
            true,
            "pending",
        ),
        (
            "a job in a crash loop",
            container("restarting", "", 3, 3, "on-failure"),
            true,
            "bad",
        ),
        (
            "a retried job that ended well",
            container("exited", "", 0, 2, "on-failure"),
            true,
            "good",
        ),
        (
            "a job that ended well",
            container("exited", "", 0, 0, "no"),
            true,
            "good",
        ),
        (
            "a job that failed",
            container("exited", "", 3, 0, "no"),
            true,
            "bad",
        ),
        (
            "a service that stopped",
            container("exited", "", 0, 0, "always"),
            false,
            "bad",
        ),
        (
            "not started yet",
            container("created", "", 0, 0, ""),
            true,
            "pending",
        ),
        (
            "being removed",
            container("removing", "", 0, 0, ""),
            true,
            "pending",
        ),
        (
            "paused by a person",
            container("paused", "", 0, 0, ""),
            false,
            "bad",
        ),
    ];
    for (what, container, is_job, verdict) in rows {
        assert_eq!(judge(&container, is_job), verdict, "{what}");
    }
}

#[test]
fn restarts_from_before_do_not_count() {
    let old = container("running", "", 0, 7, "always");
    let baseline = Baseline::of(std::slice::from_ref(&old));
    assert_eq!(baseline.judge(&old, &Service::default()), Verdict::Good);
    let crashed = Container { restarts: 8, ..old };
    assert!(matches!(
        baseline.judge(&crashed, &Service::default()),
        Verdict::Bad(_)
    ));
}

#[test]
fn a_service_without_a_container_is_missing_unless_it_is_optional() {
    let services = BTreeMap::from([
        (
            "api".to_owned(),
            Service {
                is_job: false,
                is_optional: false,
            },
        ),
        (
            "debug".to_owned(),
            Service {
                is_job: false,
                is_optional: true,
            },
        ),
        (
            "worker".to_owned(),
            Service {
                is_job: false,
                is_optional: false,
            },
        ),
    ]);
    let seen = look(
        &[container("running", "", 0, 0, "always")],
        &services,
        &Baseline::default(),
    );
    assert_eq!(
        seen.pending,
        [Culprit {
            service: "worker".into(),
            why: "has no container".into()
        }]
    );
}
