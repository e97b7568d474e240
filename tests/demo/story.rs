//! The story that the demo tells: one function a step. Each says what will happen, lets it happen, and checks it; the
//! first thing that is not as told ends it.

use std::time::{Duration, Instant};

use control_plane::Peer;

use crate::engine::Kind;
use crate::lab::{Lab, Ticked, count};
use crate::look::{
    are_running, check, has_password, last_report, no_leak, requests_to, serves, show_containers,
    show_requests, was_kept,
};
use crate::sample::{self, ENV_ID};
use crate::show::{self, heading, line, words};

/// A line of the summary.
struct Row {
    step: &'static str,
    outcome: &'static str,
    exit: i32,
    requests: usize,
    docker_commands: usize,
    took: Duration,
}

/// Tells it all.
pub fn tell(lab: &mut Lab) -> Result<(), String> {
    let started = Instant::now();
    introduce(lab);
    let mut rows = Vec::new();
    new_box(lab, &mut rows)?;
    nothing_to_do(lab, &mut rows)?;
    changed_bundle(lab, &mut rows)?;
    broken_bundle(lab, &mut rows)?;
    changed_secret(lab, &mut rows)?;
    down(lab, &mut rows)?;
    sum_up(lab, &rows, started.elapsed());
    Ok(())
}

fn introduce(lab: &Lab) {
    heading("monky-deployd: a pull-based deploy agent");
    words(
        "A box runs one environment: a few containers. Nothing listens on the box. Once a minute a timer starts the agent; \
         it asks the control plane what should run here, makes it so, reports, and ends. One such pass is a tick.",
    );
    words(
        "This demo plays both sides on this machine, over loopback. The control plane is a small program of the tests: \
         `tenancy`, which decides what runs where, and OpenBao, which keeps the secrets and is spoken to over TLS with a \
         certificate made for this demo. The agent is the real one, as it would be shipped; its own lines stand behind a bar \
         (without the tick's id, in which each of them ends).",
    );
    match &lab.engine.kind {
        Kind::Real(version) => words(&format!(
            "Containers are real: docker {version}. Their image is made here out of one small program; nothing is pulled."
        )),
        Kind::StandIn(why) => show::banner(&[
            "THERE ARE NO REAL CONTAINERS IN THIS DEMO.",
            why,
            "A stand-in of the tests answers in docker's place and keeps containers as records in a file.",
            "All the rest is real: the agent, its requests, the secrets, the files.",
        ]),
    }
}

fn new_box(lab: &mut Lab, rows: &mut Vec<Row>) -> Result<(), String> {
    heading("1 of 6: a new box");
    words(
        "An operator has installed the agent with this configuration and a bootstrap grant, a signed note of one hour that \
         says \"this box is env-demo\". There is nothing else on the box:",
    );
    line("");
    show::output(&lab.config());
    words(
        "Tenancy wants a bundle to run: a compose file, a template for its .env, and the list of secrets that go into it. \
         The agent logs in with the grant, checks in, fetches the bundle and verifies it. Only then does it ask for a lease \
         (a fresh grant), reads the secrets from OpenBao, writes .env, starts the containers and waits until they are well.",
    );
    for (path, data) in sample::secrets(&sample::awkward_password(1)) {
        lab.plane
            .put_secret(&path, data)
            .map_err(|e| e.to_string())?;
    }
    let bundle = sample::first(lab.form())?;
    lab.plane.apply(&bundle);
    let ticked = tick(lab, &[], 0)?;
    show_requests(&ticked.requests);
    show_containers(lab)?;
    check(
        last_report(lab, "result") == "applied" && last_report(lab, "sha") == bundle.sha(),
        "tenancy got the report: applied",
    )?;
    are_running(lab)?;
    serves(lab, "Hello from the first bundle.")?;
    has_password(lab, &sample::awkward_password(1))?;
    rows.push(ticked.row("a new box", "bundle applied"));
    Ok(())
}

fn nothing_to_do(lab: &mut Lab, rows: &mut Vec<Row>) -> Result<(), String> {
    heading("2 of 6: nothing to do");
    words(
        "This is what happens nearly always. The first tick after a change looks at docker once, to tell tenancy its \
         versions; the ones after it ask one question and start no process at all. They log nothing.",
    );
    let before = lab.containers()?;
    tick(lab, &[], 0)?;
    let ticked = tick(lab, &[], 0)?;
    show_requests(&ticked.requests);
    check(
        ticked.requests.len() == 1 && ticked.docker_commands == 0,
        "one request, no docker command",
    )?;
    check(ticked.lines.is_empty(), "not a line in the log")?;
    check(lab.containers()? == before, "the containers are the same")?;
    rows.push(ticked.row("nothing to do", "converged"));
    Ok(())
}

fn changed_bundle(lab: &mut Lab, rows: &mut Vec<Row>) -> Result<(), String> {
    heading("3 of 6: a changed bundle");
    words(
        "Somebody changed the page that `web` serves, a file of the bundle. Tenancy wants the new bundle. A service that \
         mounts a changed file is made anew, or it would go on serving the old one; the others are left alone.",
    );
    let before = lab.containers()?;
    lab.plane.apply(&sample::second(lab.form())?);
    let ticked = tick(lab, &[], 0)?;
    show_containers(lab)?;
    check(
        last_report(lab, "result") == "applied",
        "tenancy got the report: applied",
    )?;
    are_running(lab)?;
    serves(lab, sample::SECOND_PAGE)?;
    check(
        requests_to(&ticked.requests, "/v1/agent/lease") == 0,
        "no new lease: the token from the first one is still good",
    )?;
    was_kept(lab, &before, "worker")?;
    rows.push(ticked.row("a changed bundle", "bundle applied"));
    Ok(())
}

fn broken_bundle(lab: &mut Lab, rows: &mut Vec<Row>) -> Result<(), String> {
    heading("4 of 6: a broken bundle");
    words(
        "The next bundle has three mistakes: a variable that nothing provides, an image without a fixed version, and a \
         secret of another environment. The agent refuses it, names all three at once, and tells tenancy. It has not \
         asked for a secret by then, and what runs goes on running.",
    );
    let before = lab.containers()?;
    let bundle = sample::broken(lab.form())?;
    lab.plane.apply(&bundle);
    let ticked = tick(lab, &[], 1)?;
    show_requests(&ticked.requests);
    for code in ["ENV_INCOMPLETE", "MANIFEST_PATH", "IMAGE_NOT_PINNED"] {
        check(
            ticked.lines.iter().any(|line| line.contains(code)),
            &format!("{code} is named"),
        )?;
    }
    check(
        last_report(lab, "result") == "failed" && last_report(lab, "sha") == bundle.sha(),
        "tenancy got the report: failed",
    )?;
    check(
        ticked
            .requests
            .iter()
            .all(|logged| logged.peer == Peer::Tenancy),
        "OpenBao was not asked for anything",
    )?;
    check(lab.containers()? == before, "the containers are the same")?;
    serves(lab, sample::SECOND_PAGE)?;
    rows.push(ticked.row("a broken bundle", "refused"));
    Ok(())
}

fn changed_secret(lab: &mut Lab, rows: &mut Vec<Row>) -> Result<(), String> {
    heading("5 of 6: a changed secret");
    words(
        "Tenancy goes back to the good bundle, and the database has a new password: tenancy, which never sees a secret, says \
         `apply` again. The password is a nasty one, full of what dotenv files choke on. After a failed tick the agent \
         waits a little before it asks again; we do not, hence --force.",
    );
    let before = lab.containers()?;
    let password = sample::awkward_password(2);
    for (path, data) in sample::secrets(&password) {
        lab.plane
            .put_secret(&path, data)
            .map_err(|e| e.to_string())?;
    }
    lab.plane.apply(&sample::second(lab.form())?);
    lab.plane
        .tenancy()
        .set(|settings| settings.force_apply = true);
    let ticked = tick(lab, &["--force"], 0)?;
    lab.plane
        .tenancy()
        .set(|settings| settings.force_apply = false);
    check(
        last_report(lab, "result") == "applied",
        "tenancy got the report: applied",
    )?;
    are_running(lab)?;
    has_password(lab, &password)?;
    was_kept(lab, &before, "worker")?;
    no_leak(lab, &ticked, &password)?;
    rows.push(ticked.row("a changed secret", "bundle applied"));
    Ok(())
}

fn down(lab: &mut Lab, rows: &mut Vec<Row>) -> Result<(), String> {
    heading("6 of 6: down");
    words(
        "Tenancy wants nothing to run here any more. The agent stops and removes the containers and deletes every rendered \
         secret. Volumes are data: they stay unless tenancy asks and the box allows it.",
    );
    lab.plane.down(false);
    let ticked = tick(lab, &[], 0)?;
    show_containers(lab)?;
    check(lab.containers()?.is_empty(), "no container is left")?;
    if lab.engine.is_real() {
        let volumes = lab.engine.volumes(&lab.project)?;
        check(
            volumes.len() == 1,
            &format!("the volume {} is still there", volumes.join(" ")),
        )?;
    } else {
        show::not_looked_at("the volume");
    }
    check(
        last_report(lab, "result") == "down",
        "tenancy got the report: down",
    )?;
    let holders = lab.files_with(&[sample::SESSION_KEY])?;
    check(
        holders.is_empty(),
        "no file of the box holds a secret any more",
    )?;
    rows.push(ticked.row("down", "all removed"));
    Ok(())
}

fn sum_up(lab: &Lab, rows: &[Row], took: Duration) {
    heading("all went as told");
    line("");
    line("    step               the agent       exit  requests  docker commands     time");
    for row in rows {
        line(&format!(
            "    {:<18} {:<15} {:>4} {:>9} {:>16} {:>6.1} s",
            row.step,
            row.outcome,
            row.exit,
            row.requests,
            row.docker_commands,
            row.took.as_secs_f32()
        ));
    }
    line("");
    line(&format!(
        "    {} of {ENV_ID}, {} granted, {:.0} s in all; everything that the demo made is removed.",
        count(lab.plane.reports().len(), "report"),
        count(lab.plane.tenancy().leases_granted(), "lease"),
        took.as_secs_f32()
    ));
    if !lab.engine.is_real() {
        line("    NOT REAL: the containers. A stand-in answered in docker's place.");
    }
    line("    Read on in README.md.");
}

impl Ticked {
    fn row(&self, step: &'static str, outcome: &'static str) -> Row {
        Row {
            step,
            outcome,
            exit: self.exit,
            requests: self.requests.len(),
            docker_commands: self.docker_commands,
            took: self.took,
        }
    }
}

fn tick(lab: &Lab, options: &[&str], exit: i32) -> Result<Ticked, String> {
    let ticked = lab.tick(options)?;
    if ticked.exit == exit {
        Ok(ticked)
    } else {
        Err(format!("the exit code is {}, not {exit}", ticked.exit))
    }
}
