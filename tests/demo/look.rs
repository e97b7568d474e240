//! What the demo looks at after a step: requests, containers, the page, the password, the files. Each check says what
//! holds; what does not hold ends the story.

use control_plane::{Logged, Peer};
use serde_json::Value;

use crate::engine::Container;
use crate::lab::{Lab, Ticked};
use crate::sample;
use crate::show::{self, holds, line};

/// Says what holds, or ends the story with it.
pub fn check(is_so: bool, what: &str) -> Result<(), String> {
    if is_so {
        holds(what);
        Ok(())
    } else {
        Err(format!("this should hold and does not: {what}"))
    }
}

/// Shows what the control plane received.
pub fn show_requests(requests: &[Logged]) {
    line("\n    what the control plane received:");
    for logged in requests {
        let peer = match logged.peer {
            Peer::Tenancy => "tenancy",
            Peer::Bao => "OpenBao",
        };
        let status = logged
            .status
            .map_or_else(|| "-".into(), |status| status.to_string());
        show::said(&format!(
            "{peer}  {:<4} {} → {status}",
            logged.request.method,
            shortened(&logged.request.target)
        ));
    }
}

/// A request's target with a bundle's sha cut to its beginning.
fn shortened(target: &str) -> String {
    match target.rsplit_once('/') {
        Some((head, sha)) if sha.len() == 64 => {
            format!("{head}/{}…", sha.get(..12).unwrap_or(sha))
        }
        _ => target.to_owned(),
    }
}

/// Shows the containers as a person would look at them.
pub fn show_containers(lab: &Lab) -> Result<(), String> {
    if lab.engine.is_real() {
        let format = "table {{.Names}}\t{{.ID}}\t{{.Image}}\t{{.Status}}";
        let filter = format!("label=com.docker.compose.project={}", lab.project);
        let shown = ["ps", "--all", "--filter", &filter, "--format", format];
        show::command("docker ps --all");
        show::output(&lab.engine.run(&shown)?);
        return Ok(());
    }
    line("\n    what the stand-in has on record, no real containers:");
    for container in lab.containers()? {
        show::said(&format!(
            "{:<28} {:.12}   {}   {}",
            container.name, container.id, container.image, container.state
        ));
    }
    Ok(())
}

/// A field of the last report that tenancy got.
pub fn last_report(lab: &Lab, field: &str) -> String {
    let reports = lab.plane.reports();
    let value = reports.last().and_then(|report| report.get(field));
    value.and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// How many requests went to `path`.
pub fn requests_to(requests: &[Logged], path: &str) -> usize {
    let hits = requests
        .iter()
        .filter(|logged| logged.request.path() == path);
    hits.count()
}

/// The three services are as they should be.
pub fn are_running(lab: &Lab) -> Result<(), String> {
    let states: Vec<String> = lab
        .containers()?
        .into_iter()
        .map(|container| format!("{} {}", container.service, container.state))
        .collect();
    check(
        states == ["migrate exited", "web running", "worker running"],
        "web and worker run, the job migrate has ended well",
    )
}

/// `service` was left alone, and `web` was made anew.
pub fn was_kept(lab: &Lab, before: &[Container], service: &str) -> Result<(), String> {
    let id = lab.container(service)?;
    let is_same = before
        .iter()
        .any(|container| container.service == service && container.id == id);
    check(is_same, &format!("{service} is still the same container"))?;
    let web = lab.container("web")?;
    let is_new = before.iter().all(|container| container.id != web);
    check(is_new, "web is a new one")
}

/// `web` serves this page.
pub fn serves(lab: &Lab, page: &str) -> Result<(), String> {
    if !lab.engine.is_real() {
        show::not_looked_at("what web serves");
        return Ok(());
    }
    let web = lab.container("web")?;
    let served = lab.engine.run(&["exec", &web, "/app", "get"])?;
    check(
        served.trim_end() == page,
        &format!("web serves \"{}\"", served.trim_end()),
    )
}

/// The password arrived in `web`.
pub fn has_password(lab: &Lab, password: &str) -> Result<(), String> {
    if !lab.engine.is_real() {
        show::not_looked_at("the password inside web");
        return Ok(());
    }
    let web = lab.container("web")?;
    let seen = lab
        .engine
        .run(&["exec", &web, "/app", "show", "DB_PASSWORD"])?;
    check(
        seen == password,
        &format!("inside web DB_PASSWORD is, byte for byte, {seen}"),
    )
}

/// The secrets of this environment are where they have to be, and nowhere else.
pub fn no_leak(lab: &Lab, ticked: &Ticked, password: &str) -> Result<(), String> {
    let secrets = [password, sample::SESSION_KEY];
    let is_said = ticked
        .lines
        .iter()
        .any(|line| secrets.iter().any(|secret| line.contains(secret)));
    let is_sent = secrets
        .iter()
        .any(|secret| lab.plane.log().contains(secret));
    check(
        !is_said && !is_sent,
        "no secret is in the log or in what tenancy received",
    )?;
    let holders = lab.files_with(&secrets)?;
    check(
        !holders.is_empty()
            && holders
                .iter()
                .all(|(name, mode)| name.ends_with("/.env") && *mode == 0o600),
        "on the box the secrets are in .env files of mode 0600 and nowhere else",
    )
}
