//! From a staged release to healthy containers: promote, up, wait. Used by an apply, and to bring an earlier release back
//! as it was rendered then, without tenancy or OpenBao.

use crate::code::Code;
use crate::deploy::compose_output::Container;
use crate::deploy::drift;
use crate::deploy::health::{self, Baseline, Patience};
use crate::deploy::live::Live;
use crate::deploy::release::{ImageUse, Release, Releases};
use crate::error::{Error, Result};
use crate::host::clock::Stopwatch;
use crate::host::disk::Dir;
use crate::host::paths::deploy_dir;
use crate::names::ReleaseName;
use crate::state::{Applied, State};
use crate::tick::context::{Context, Memory};
use crate::tick::progress::Progress;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What is up now.
#[derive(Debug)]
pub struct Running {
    /// What the state remembers of it.
    pub applied: Applied,
    /// Its containers.
    pub containers: Vec<Container>,
}

/// Brings the release `name` up again as it was rendered then: no lease, no secrets, no pull.
///
/// # Errors
/// The release is missing; else as [`bring_up`].
pub fn bring_back(
    context: &Context<'_>,
    memory: &mut Memory,
    name: &ReleaseName,
) -> Result<Running> {
    let deploy = Dir::open_or_create(&context.settings.deploy_dir)?;
    let releases = Releases::open(&deploy)?;
    let release = releases.load(name)?.ok_or_else(|| {
        let path = context
            .settings
            .deploy_dir
            .join(deploy_dir::RELEASES)
            .join(name.as_str());
        Error::file(
            "bring the release back",
            &path,
            std::io::Error::from(std::io::ErrorKind::NotFound),
        )
    })?;
    log::info!(release = name.as_str(); "bringing an earlier release back");
    bring_up(context, memory, &deploy, &releases, release)
}

/// Promotes the release, starts it and waits until it is healthy.
///
/// # Errors
/// [`Error::ProjectConflict`], `UP_FAILED`, [`Error::Unhealthy`], docker's own trouble, failed file operations.
pub fn bring_up(
    context: &Context<'_>,
    memory: &mut Memory,
    deploy: &Dir,
    releases: &Releases,
    mut release: Release,
) -> Result<Running> {
    let docker = context.docker();
    let live = Live::open(deploy)?;
    context.enter("looking at the containers");
    let before = docker.containers()?;
    let adopted = refuse_foreign(context, &memory.state, &before)?;
    note_project_dirs(context, memory, adopted)?;
    heal(context, &before)?;
    // From here until everything is healthy nothing that runs can be relied upon, also when this tick is killed.
    memory.state.unsettled = Some(release.name.clone());
    memory.save(context)?;
    context.enter("promoting the release");
    live.promote(releases, &release)?;
    context.enter("compose up");
    let watch = Stopwatch::start();
    let mut progress = Progress::new("starting");
    let said = docker.up(&live.project_files(&release), &mut |line| {
        context.keep_line(line);
        progress.tell(&context.redactor.clean(line));
    });
    progress.end();
    let said = said?;
    // Compose asks about a changed volume; without an answer it leaves the volume as it is, and says so only here.
    for line in said
        .lines()
        .filter(|line| line.contains("exists but doesn't match configuration"))
    {
        log::warn!(
            "a volume's definition changed and was not applied, its data stays as it is: {}",
            line.trim()
        );
    }
    log::info!(took:% = watch; "containers started");
    context.enter("waiting for health");
    let watch = Stopwatch::start();
    let patience = Patience {
        limit: Duration::from_secs(context.settings.healthy_timeout_s),
        stable_for: Duration::from_secs(context.settings.stable_for_s),
    };
    let mut progress = Progress::new("health");
    let healthy = health::wait(
        &docker,
        &release.services,
        &Baseline::of(&before),
        patience,
        &mut |line| progress.tell(line),
    );
    progress.end();
    let containers = healthy?;
    log::info!(containers = containers.len(), took:% = watch; "healthy");
    memory.state.unsettled = None;
    releases.note_images(&mut release, ImageUse::of(&containers))?;
    let applied = Applied {
        sha: release.name.sha(),
        at: context.started_at,
        generation: release.generation,
        rendered_at: release.rendered_at,
        secrets: release.secrets,
        duration_s: context.stopwatch.seconds(),
        running: drift::running_services(&containers),
        release: Some(release.name),
    };
    Ok(Running {
        applied,
        containers,
    })
}

/// What is made from this directory is ours from here on, also when the configuration moves it one day. So is what was
/// adopted: Compose does not make a container anew whose service stays the same, and it keeps its old label then.
fn note_project_dirs(
    context: &Context<'_>,
    memory: &mut Memory,
    adopted: Vec<String>,
) -> Result<()> {
    let own = resolved(&context.settings.deploy_dir.join(deploy_dir::LIVE))
        .display()
        .to_string();
    for directory in adopted.into_iter().chain([own]) {
        if !memory.state.project_dirs.contains(&directory) {
            memory.state.project_dirs.push(directory);
        }
    }
    memory.save(context)
}

/// Paths are compared with their symlinks resolved.
fn resolved(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Containers under our project's name that were made from another directory are somebody else's: `--remove-orphans`
/// must not take them. Gives the directories that this tick adopts.
fn refuse_foreign(
    context: &Context<'_>,
    state: &State,
    containers: &[Container],
) -> Result<Vec<String>> {
    let ours = resolved(&context.settings.deploy_dir.join(deploy_dir::LIVE));
    let is_foreign = |container: &&Container| {
        let made_from = resolved(Path::new(&container.working_dir));
        let is_known = state
            .project_dirs
            .iter()
            .any(|known| *known == made_from.display().to_string());
        !container.working_dir.is_empty() && made_from != ours && !is_known
    };
    let Some(foreign) = containers.iter().find(is_foreign) else {
        return Ok(Vec::new());
    };
    if context.options.adopt {
        log::warn!(container = foreign.name, made_from = foreign.working_dir; "taking over a deployment that was made by hand; its volumes stay");
        let made_from = |container: &Container| resolved(Path::new(&container.working_dir));
        return Ok(containers
            .iter()
            .filter(is_foreign)
            .map(|container| made_from(container).display().to_string())
            .collect());
    }
    Err(Error::ProjectConflict {
        project: context.settings.compose_project.to_string(),
        why: format!(
            "container {} was made from {}, not from {}; `monky-deployd tick --adopt` takes that deployment over with its \
             volumes; or stop it, or choose another compose_project",
            foreign.name,
            foreign.working_dir,
            ours.display()
        ),
    })
}

/// An interrupted recreate leaves a container behind that has a makeshift name. Beside the one that it was to replace it
/// goes, and `up` makes it anew; alone it gets the name that was meant for it, for it holds the old one's volumes.
fn heal(context: &Context<'_>, containers: &[Container]) -> Result<()> {
    let docker = context.docker();
    for container in containers {
        let Some(name) = container.meant_name() else {
            continue;
        };
        log::info!(container = container.name; "healing what an interrupted recreate left");
        if containers.iter().any(|other| other.name == name) {
            docker.remove_container(&container.id)?;
        } else {
            docker.rename_container(&container.id, name)?;
        }
    }
    Ok(())
}

/// The last lines that the containers which kept an apply from succeeding logged: the most telling lines first.
pub fn culprits_logs(context: &Context<'_>, error: &Error, containers: &[Container]) -> String {
    const LINES: u32 = 200;
    let guilty: Vec<&Container> = match error {
        Error::Unhealthy { culprits, .. } => containers
            .iter()
            .filter(|c| culprits.iter().any(|guilty| guilty.service == c.service))
            .collect(),
        Error::Compose {
            code: Code::UpFailed,
            ..
        } => containers
            .iter()
            .filter(|c| c.state != "running" || c.health == "unhealthy")
            .collect(),
        _ => Vec::new(),
    };
    let docker = context.docker();
    let mut text = String::new();
    for container in guilty {
        match docker.logs(&container.id, LINES) {
            Ok(lines) => text.push_str(&format!(
                "== {} ({}, exit code {})\n{lines}\n",
                container.name, container.state, container.exit_code
            )),
            Err(error) => log::debug!("no logs of {}: {error}", container.name),
        }
    }
    text
}
