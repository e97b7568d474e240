//! A converged tick, which most ticks are: beside curl and a Python script that send the same one request to the same place.

use crate::estate::{Estate, bundle};
use crate::measure::{ROUNDS, in_turn, median, peak_kib, syscalls, wall_ms};
use crate::support::real_process::run;
use crate::table::{Table, ms, times};
use control_plane::Peer;
use std::fs;
use std::process::Command;

/// Memory differs little from run to run.
const PEAK_ROUNDS: usize = 5;

/// Fills in the rows.
pub fn measure(table: &mut Table) {
    let estate = Estate::embedded();
    estate.plane.apply(&bundle(1, 0).build());
    estate.settle();
    estate
        .plane
        .tenancy()
        .set(|settings| settings.force_apply = false);
    // Facts were gathered now, and are not due again for ten minutes.
    estate.agent.tick().exits(0);
    estate.plane.log().clear();
    estate.agent.tick().exits(0);
    let scratch = estate.agent.path("");

    let sent = estate.plane.log().requests();
    assert_eq!(sent.len(), 1, "a converged tick sends one request");
    assert_eq!(
        estate.plane.log().count(Peer::Tenancy, "/v1/agent/checkin"),
        1
    );
    let body = estate.agent.path("body.json");
    fs::write(&body, &sent[0].request.body).unwrap();
    let token = fs::read_to_string(estate.agent.state_dir().join("token")).unwrap();
    let token = token.trim();
    let url = format!("{}/v1/agent/checkin", estate.plane.tenancy_url());

    let agent = || estate.agent.command(&["tick", "--force"]);
    let curl = || {
        let mut command = Command::new("curl");
        command
            .args(["--silent", "--show-error", "--fail", "--noproxy", "*"])
            .args(["--header", &format!("Authorization: Bearer {token}")])
            .args(["--header", "Content-Type: application/json"])
            .arg("--data-binary")
            .arg(format!("@{}", body.display()))
            .arg(&url);
        command
    };
    // The interpreter itself: a version manager in front of it would count as Python's time.
    let python = run(Command::new("python3").args(["-c", "import sys; print(sys.executable)"]));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bench/checkin.py");
    let python = || {
        let mut command = Command::new(&python);
        command.args([script, &url, token]).arg(&body);
        command
    };

    let [ours, curls, pythons] = in_turn(
        ROUNDS,
        [
            &mut || wall_ms(&mut agent()),
            &mut || wall_ms(&mut curl()),
            &mut || wall_ms(&mut python()),
        ],
    );
    table.row(
        "converged tick, wall",
        format!("{}, {}", ms(ours), times(ours, curls)),
        "0.5 ×",
        format!("curl, the same one request: {}", ms(curls)),
    );
    table.row(
        "converged tick, wall",
        format!("{}, {}", ms(ours), times(ours, pythons)),
        "1/20 ×",
        format!("Python's standard library, the same: {}", ms(pythons)),
    );

    let peak = |command: &dyn Fn() -> Command| {
        let seen = (0..PEAK_ROUNDS).map(|_| peak_kib(&command(), &scratch));
        median(seen.collect()) / 1024.0
    };
    table.row(
        "converged tick, peak memory",
        format!("{:.1} MiB", peak(&agent)),
        "3 MiB",
        format!(
            "curl {:.1} MiB, Python {:.1} MiB",
            peak(&curl),
            peak(&python)
        ),
    );

    let calls = |command: &dyn Fn() -> Command| {
        median((0..3).map(|_| syscalls(&command(), &scratch)).collect())
    };
    table.row(
        "converged tick, facts not due, system calls",
        calls(&agent),
        "120",
        format!("curl {}, Python {}", calls(&curl), calls(&python)),
    );
}
