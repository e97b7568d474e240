//! What counts as running, on real containers: jobs that end, crash loops quick and slow, health checks, dependencies, and
//! containers of others.

use crate::lab::{Lab, page_at};
use crate::support::real_docker::{Container, IMAGE, RealDocker};
use crate::support::real_process::{find_program, free_port, run};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::process::Stdio;
use std::{fs, io};

/// A service line by line; `image` and a restart policy unless the lines give one.
fn service(name: &str, lines: &[&str]) -> String {
    let mut text = format!("  {name}:\n    image: {IMAGE}\n");
    if !lines.iter().any(|line| line.starts_with("restart:")) {
        text.push_str("    restart: unless-stopped\n");
    }
    for line in lines {
        text.push_str(&format!("    {line}\n"));
    }
    text
}

fn compose(services: &[String]) -> String {
    format!("services:\n{}", services.concat())
}

/// A tick that must fail with this code and these words; the report of it.
#[track_caller]
fn fails(lab: &Lab, code: &str, words: &str) -> Value {
    lab.agent.tick().exits(1).says(code).says(words);
    let report = lab.last_report_is(code);
    assert!(
        report["detail"].as_str().unwrap().contains(words),
        "{report:#}"
    );
    report
}

fn started_at(lab: &Lab, container: &Container) -> String {
    lab.docker.inspect(&container.id, "{{.State.StartedAt}}")
}

#[test]
fn a_job_that_ends_well_is_fine_and_is_not_run_again() {
    let Some(lab) = Lab::open("env-job") else {
        return;
    };
    let job = service("migrate", &["restart: \"no\"", "command: [\"true\"]"]);
    lab.applies(&lab.bundle(1, &compose(&[job, service("web", &[])])));
    let before = lab.service("migrate");
    assert_eq!(before.state, "exited");
    let started = started_at(&lab, &before);
    for _ in 0..3 {
        lab.agent.timer_tick().exits(0).says("converged");
    }
    let after = lab.service("migrate");
    assert_eq!(after.id, before.id);
    assert_eq!(started_at(&lab, &after), started);
    assert_eq!(lab.reports().len(), 1);
}

#[test]
fn a_job_that_ends_badly_fails_the_apply_and_its_log_is_told() {
    let Some(lab) = Lab::open("env-job-bad") else {
        return;
    };
    lab.put_secret("db", &json!({"value": "s3cret-password"}));
    let job = service(
        "migrate",
        &[
            "restart: \"no\"",
            "env_file: .env",
            "command: [\"sh\", \"-c\", \"echo no such column for $$DB; exit 3\"]",
        ],
    );
    let bundle = lab
        .bundle(1, &compose(&[job, service("web", &[])]))
        .template("DB=${DB}\n")
        .secret("DB", "see/db");
    lab.want(&bundle);
    let report = fails(&lab, "UNHEALTHY", "migrate exited with 3");
    let tail = report["log_tail"].as_str().unwrap();
    assert!(
        tail.contains("no such column for [redacted:DB]"),
        "{report:#}"
    );
    assert!(!report.to_string().contains("s3cret-password"));
    let containers = report["containers"].as_array().unwrap();
    let job = containers.iter().find(|c| c["service"] == "migrate");
    assert_eq!(job.unwrap()["exit_code"], 3);
    assert_eq!(lab.service("web").state, "running");
    assert_eq!(lab.applied(), None);
    let log = fs::read_to_string(lab.agent.state_dir().join("last-apply.log")).unwrap();
    assert!(!log.contains("s3cret-password"), "{log}");
}

#[test]
fn a_quick_crash_loop_is_no_success() {
    let Some(mut lab) = Lab::open("env-crash") else {
        return;
    };
    lab.agent.set("stable_for_s", "4");
    let crash = service(
        "web",
        &[
            "restart: always",
            "command: [\"sh\", \"-c\", \"echo out of cheese; exit 7\"]",
        ],
    );
    lab.want(&lab.bundle(1, &compose(&[crash])));
    let report = fails(&lab, "UNHEALTHY", "web restarts again and again");
    assert!(
        report["log_tail"]
            .as_str()
            .unwrap()
            .contains("out of cheese"),
        "{report:#}"
    );
}

#[test]
fn a_slow_crash_loop_is_no_success_either() {
    let Some(mut lab) = Lab::open("env-crash-slow") else {
        return;
    };
    lab.agent.set("stable_for_s", "15");
    let crash = service(
        "web",
        &[
            "restart: unless-stopped",
            "command: [\"sh\", \"-c\", \"sleep 8; exit 1\"]",
        ],
    );
    lab.want(&lab.bundle(1, &compose(&[crash])));
    fails(&lab, "UNHEALTHY", "web restarts again and again");
}

#[test]
fn an_unhealthy_container_fails_the_apply_before_the_time_out() {
    let Some(lab) = Lab::open("env-sick") else {
        return;
    };
    let sick = service(
        "web",
        &["healthcheck: {test: [\"CMD\", \"false\"], interval: 300ms, retries: 1}"],
    );
    lab.want(&lab.bundle(1, &compose(&[sick])));
    // The limit is five minutes; a container that stays unhealthy is given up much earlier.
    let report = fails(&lab, "UNHEALTHY", "web is unhealthy");
    assert!(report["duration_s"].as_u64().unwrap() < 60, "{report:#}");
    assert_eq!(report["containers"][0]["health"], "unhealthy");
}

#[test]
fn a_health_check_that_never_passes_ends_at_the_limit() {
    let Some(mut lab) = Lab::open("env-starting") else {
        return;
    };
    lab.agent.set("healthy_timeout_s", "2");
    let slow = service(
        "web",
        &["healthcheck: {test: [\"CMD\", \"false\"], interval: 300ms, start_period: 10m}"],
    );
    lab.want(&lab.bundle(1, &compose(&[slow])));
    fails(&lab, "UNHEALTHY", "its health check has not passed yet");
}

#[test]
fn a_dependency_that_must_complete_decides() {
    let Some(lab) = Lab::open("env-depends") else {
        return;
    };
    let pair = |code: u8| {
        let command = format!("command: [\"sh\", \"-c\", \"echo migrating; exit {code}\"]");
        compose(&[
            // Even with a policy like this one, a service that another waits for is a job.
            service("migrate", &["restart: on-failure:1", &command]),
            service(
                "web",
                &["depends_on: {migrate: {condition: service_completed_successfully}}"],
            ),
        ])
    };
    let good = lab.applies(&lab.bundle(1, &pair(0)));
    assert_eq!(lab.service("migrate").state, "exited");

    lab.want(&lab.bundle(2, &pair(5)));
    let report = fails(&lab, "UP_FAILED", "didn't complete successfully");
    assert!(
        report["log_tail"].as_str().unwrap().contains("migrating"),
        "{report:#}"
    );
    assert_eq!(lab.applied().as_deref(), Some(good.sha()));
}

#[test]
fn a_port_that_is_taken_is_told_in_dockers_words() {
    let Some(lab) = Lab::open("env-port") else {
        return;
    };
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let ports = format!("ports: [\"127.0.0.1:{port}:8080\"]");
    lab.want(&lab.bundle(1, &compose(&[service("web", &[&ports])])));
    fails(&lab, "UP_FAILED", "address already in use");
    drop(taken);
    lab.agent.tick().exits(0);
    assert_eq!(page_at(port), "hello from busybox\n");
}

#[test]
fn a_program_that_is_not_in_the_image_is_told_in_dockers_words() {
    let Some(lab) = Lab::open("env-program") else {
        return;
    };
    let bad = service("web", &["command: [\"/no/such/program\"]"]);
    lab.want(&lab.bundle(1, &compose(&[bad])));
    fails(&lab, "UP_FAILED", "/no/such/program");
}

/// One static program and a page, nothing else.
fn make_image_without_shell(docker: RealDocker, name: &str) {
    let program = fs::read(find_program("busybox").unwrap()).unwrap();
    let mut tar = tar::Builder::new(Vec::new());
    for (path, mode, content) in [
        ("httpd", 0o755, program.as_slice()),
        ("www/index.html", 0o644, b"no shell here\n"),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        tar.append_data(&mut header, path, content).unwrap();
    }
    let command = "CMD [\"/httpd\", \"-f\", \"-p\", \"8080\", \"-h\", \"/www\"]";
    let mut child = docker
        .command(["import", "--change", command, "-", name])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    io::Write::write_all(&mut child.stdin.take().unwrap(), &tar.into_inner().unwrap()).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn an_image_without_a_shell_is_fine() {
    let Some(lab) = Lab::open("env-shell") else {
        return;
    };
    let image = "monky-deployd-test/no-shell:1";
    make_image_without_shell(lab.docker, image);
    let port = free_port();
    let text = format!(
        "services:\n  web:\n    image: {image}\n    restart: always\n    ports: [\"127.0.0.1:{port}:8080\"]\n"
    );
    lab.applies(&lab.bundle(1, &text));
    assert_eq!(page_at(port), "no shell here\n");
    lab.docker.cleanup(&lab.project());
    lab.docker.run(&["rmi", image]);
}

#[test]
fn a_container_that_somebody_ran_by_hand_is_nobodys_failure() {
    let Some(mut lab) = Lab::open("env-oneoff") else {
        return;
    };
    lab.applies(&lab.bundle(1, &compose(&[service("web", &[])])));
    let by_hand = "monky-env-oneoff-by-hand";
    let mut compose_run = lab.docker.command(["compose", "-p", &lab.project()]);
    compose_run
        .arg("--project-directory")
        .arg(lab.agent.live(""))
        .arg("-f")
        .arg(lab.agent.live("docker-compose.yml"))
        .args(["run", "-d", "--name", by_hand, "web", "sleep", "1000"]);
    run(&mut compose_run);

    // It fails while the agent watches whether everything stays good.
    lab.agent.set("stable_for_s", "3");
    let second = compose(&[service("web", &["environment: {A: b}"])]);
    lab.want(&lab.bundle(2, &second));
    let mut tick = lab.start(&["tick", "--force"]);
    tick.wait_until_it_says("waiting for health");
    lab.docker.run(&["kill", by_hand]);
    tick.ends(0);
    assert_eq!(lab.docker.inspect(by_hand, "{{.State.ExitCode}}"), "137");
    let report = lab.reports().pop().unwrap();
    assert_eq!(report["containers"].as_array().unwrap().len(), 1);
    lab.agent.timer_tick().exits(0).says("converged");
}

#[test]
fn a_deployment_of_somebody_else_under_our_name_is_left_alone() {
    let Some(lab) = Lab::open("env-foreign") else {
        return;
    };
    let theirs = lab.agent.path("theirs");
    fs::create_dir(&theirs).unwrap();
    let file = theirs.join("compose.yml");
    fs::write(&file, compose(&[service("db", &[])])).unwrap();
    let mut by_hand = lab.docker.command(["compose", "-p", &lab.project(), "-f"]);
    run(by_hand.arg(file).args(["up", "-d"]));

    lab.want(&lab.bundle(1, &compose(&[service("web", &[])])));
    fails(&lab, "PROJECT_CONFLICT", &theirs.display().to_string());
    assert_eq!(lab.service("db").state, "running");
    assert_eq!(lab.docker.ps(&lab.project()).len(), 1);
}
