//! An apply: from the desired sha to healthy containers. Each stage takes what the one before gave; until `promote`
//! nothing that runs is touched, so whatever fails before leaves the old release as it is.

use crate::bundle::fence::{Fence, SecretRef};
use crate::bundle::images::{Known, judge_images};
use crate::bundle::meta::Pull;
use crate::bundle::refuse::{self, Case, ComposeFacts, Room};
use crate::bundle::template::reference::{self, Dialect};
use crate::bundle::{self, VerifiedBundle, unpack};
use crate::code::Code;
use crate::deploy::compose::ProjectFiles;
use crate::deploy::compose_output::{Container, Service, read_services};
use crate::deploy::env_file;
use crate::deploy::health::{self, Baseline, Patience};
use crate::deploy::live::Live;
use crate::deploy::overlay::overlay;
use crate::deploy::proof;
use crate::deploy::registry;
use crate::deploy::release::{Details, Release, Releases};
use crate::error::{Error, Finding, Result};
use crate::host::clock::Stopwatch;
use crate::host::disk::{self, Dir};
use crate::host::log::one_line;
use crate::host::paths::deploy_dir;
use crate::names::{ReleaseName, Sha256};
use crate::ordered::map_of;
use crate::remote::tenancy::{FetchedBundle, Vault};
use crate::state::Applied;
use crate::tick::context::{Context, Memory};
use crate::tick::progress::Progress;
use crate::tick::secrets::{self, Secrets};
use crate::tick::token::{self, Peers, Token};
use serde_json::Value;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The room that the end of an apply may take in the state directory: state, report, log.
const STATE_ROOM_BYTES: u64 = 256 * 1024;
const STATE_ROOM_INODES: u64 = 8;

/// What is wanted.
#[derive(Debug)]
pub struct Desired {
    /// The bundle.
    pub sha: Sha256,
    /// Where tenancy says it is.
    pub url: Option<String>,
    /// Where tenancy says the secrets are.
    pub vault: Vault,
}

/// What an apply came to.
#[derive(Debug)]
pub struct Running {
    /// What is up now.
    pub applied: Applied,
    /// Its containers.
    pub containers: Vec<Container>,
}

/// A bundle that nothing speaks against.
struct Judged {
    bundle: VerifiedBundle,
    model: Value,
    services: BTreeMap<String, Service>,
    overlay: Value,
    secrets: Vec<SecretRef>,
    judge_images_again: bool,
}

/// Applies `desired`.
///
/// # Errors
/// Whatever kept it from running; the error says by its code what it was.
pub fn apply(
    context: &Context<'_>,
    memory: &mut Memory,
    peers: &Peers<'_>,
    token: &mut Token,
    desired: &Desired,
) -> Result<Running> {
    refuse_full_state_dir(context)?;
    let deploy = Dir::open_or_create(&context.settings.deploy_dir)?;
    let releases = Releases::open(&deploy)?;
    let fetched = fetch(context, memory, peers, token, desired)?;
    let bundle = verify(context, fetched, &desired.sha)?;
    let judged = judge(context, memory, &deploy, bundle, &desired.vault)?;
    let secrets = read_secrets(context, memory, peers, token, &judged, &desired.vault)?;
    let release = stage(context, &releases, &judged, secrets)?;
    pull(context, &releases, &judged.bundle, &release)?;
    let containers = bring_up(context, &deploy, &releases, &release)?;
    let applied = Applied {
        sha: desired.sha.clone(),
        release: Some(release.name),
        at: context.started_at,
        generation: release.generation,
        rendered_at: release.rendered_at,
        secrets: release.secrets,
        duration_s: context.stopwatch.seconds(),
    };
    Ok(Running {
        applied,
        containers,
    })
}

/// Brings the release `name` up again as it was rendered then: no lease, no secrets, no pull.
///
/// # Errors
/// As [`apply`]'s last stages; the release is missing.
pub fn bring_back(context: &Context<'_>, name: &ReleaseName) -> Result<Vec<Container>> {
    let deploy = Dir::open_or_create(&context.settings.deploy_dir)?;
    let releases = Releases::open(&deploy)?;
    let release = releases.load(name)?.ok_or_else(|| {
        let path = context
            .settings
            .deploy_dir
            .join(deploy_dir::RELEASES)
            .join(name.as_str());
        Error::file(
            "bring the applied release back",
            &path,
            std::io::Error::from(std::io::ErrorKind::NotFound),
        )
    })?;
    log::info!(release = name.as_str(); "bringing the applied release back");
    bring_up(context, &deploy, &releases, &release)
}

/// Nothing is begun whose end could not be remembered and reported.
fn refuse_full_state_dir(context: &Context<'_>) -> Result<()> {
    let free = context.state_dir.free()?;
    if free.bytes >= STATE_ROOM_BYTES && free.inodes >= STATE_ROOM_INODES {
        return Ok(());
    }
    let why = format!("{} bytes and {} inodes are free", free.bytes, free.inodes);
    Err(Error::file(
        "keep room for the state of an apply in",
        context.state_dir.path(),
        std::io::Error::new(std::io::ErrorKind::StorageFull, why),
    ))
}

fn fetch(
    context: &Context<'_>,
    memory: &mut Memory,
    peers: &Peers<'_>,
    token: &mut Token,
    desired: &Desired,
) -> Result<FetchedBundle> {
    context.enter("fetching the bundle");
    token::with_bearer(context, memory, peers, token, |tenancy, bearer| {
        tenancy.bundle(bearer, &desired.sha, desired.url.as_deref())
    })
}

fn verify(context: &Context<'_>, fetched: FetchedBundle, sha: &Sha256) -> Result<VerifiedBundle> {
    context.enter("verifying the bundle");
    let len_bytes = fetched.body.len();
    if let Some(header) = fetched
        .header_sha
        .as_deref()
        .filter(|header| !header.eq_ignore_ascii_case(sha.as_str()))
    {
        log::warn!(header = header; "tenancy's X-Bundle-Sha header names another bundle; only the content counts");
    }
    let bundle = bundle::verify(fetched.body, sha, &context.settings.env_id)
        .map_err(|findings| Error::Refused { findings })?;
    for warning in bundle
        .warnings()
        .iter()
        .chain(&bundle.template().warnings())
    {
        log::warn!("{warning}");
    }
    log::info!(sha = sha.short(), bytes = len_bytes, files = bundle.members().count(); "bundle verified");
    Ok(bundle)
}

/// Everything that may speak against the bundle, before any lease is asked for.
fn judge(
    context: &Context<'_>,
    memory: &mut Memory,
    deploy: &Dir,
    bundle: VerifiedBundle,
    vault: &Vault,
) -> Result<Judged> {
    context.enter("judging the bundle");
    deploy.remove_tree(deploy_dir::INCOMING)?;
    let incoming = deploy.subdir_or_create(deploy_dir::INCOMING, 0o700)?;
    unpack::unpack(&bundle, incoming.path())?;
    let judged = judge_unpacked(context, memory, &incoming, bundle, vault);
    deploy.remove_tree(deploy_dir::INCOMING)?;
    judged
}

fn judge_unpacked(
    context: &Context<'_>,
    memory: &mut Memory,
    incoming: &Dir,
    bundle: VerifiedBundle,
    vault: &Vault,
) -> Result<Judged> {
    let docker = context.docker();
    let files = ProjectFiles {
        directory: incoming.path().to_owned(),
        compose_file: bundle.compose_file().as_str().to_owned(),
        overlay: None,
        env_file: None,
    };
    let asked = docker
        .references(&files)
        .and_then(|references| Ok((read_references(&references), docker.model(&files)?)));
    let (references, model, refusal) = match asked {
        Ok((references, model)) => (references, model, None),
        Err(Error::Compose {
            code: Code::ComposeInvalid,
            words,
            ..
        }) => {
            let words = words.replace(&format!("{}/", incoming.path().display()), "");
            (
                Vec::new(),
                Value::Null,
                Some(context.redactor.clean(&one_line(&words))),
            )
        }
        Err(error) => return Err(error),
    };
    let compose = match &refusal {
        Some(words) => Err(words.as_str()),
        None => Ok(ComposeFacts {
            references: &references,
            model: &model,
        }),
    };
    let (fence, warning) = Fence::new(
        &context.settings.env_id,
        kv_mount(context, vault),
        vault.prefix.as_deref(),
    );
    if let Some(warning) = warning {
        log::warn!("{warning}");
    }
    let age = memory
        .state
        .applied
        .as_ref()
        .map(|applied| bundle::rollback::Age {
            sha: applied.sha.clone(),
            generation: applied.generation,
            rendered_at: applied.rendered_at.clone(),
        });
    let judgement = refuse::judge(&Case {
        sha: bundle.sha(),
        meta: bundle.meta(),
        manifest: bundle.manifest(),
        inodes: bundle.inodes(),
        fence: &fence,
        template: bundle.template(),
        compose,
        rooms: &rooms(context, memory)?,
        disk_factor: context.settings.disk_factor,
        disk_headroom_bytes: context.settings.disk_headroom_bytes,
        binary_version: env!("CARGO_PKG_VERSION"),
        applied: age.as_ref(),
        history: &memory.state.history,
    });
    for warning in &judgement.warnings {
        log::warn!("{warning}");
    }
    if !judgement.findings.is_empty() {
        return Err(Error::Refused {
            findings: judgement.findings,
        });
    }
    let known = bundle
        .template()
        .values(&|name| bundle.manifest().provides(name));
    let overlay = overlay(&bundle, &model, &|path| fill_in(path, &known));
    let services = read_services(&model);
    Ok(Judged {
        services,
        overlay,
        secrets: judgement.secrets,
        judge_images_again: !judgement.deferred_images.is_empty(),
        model,
        bundle,
    })
}

/// A path of the compose file with its variables filled in; `None` where that needs a secret.
fn fill_in(path: &str, known: &BTreeMap<String, Option<String>>) -> Option<String> {
    let needs_secret = Cell::new(false);
    let look_up = |name: &str| match known.get(name) {
        Some(Some(value)) => Some(value.as_str()),
        Some(None) => {
            needs_secret.set(true);
            None
        }
        None => None,
    };
    let filled = reference::evaluate(
        &reference::parse(path, Dialect::ComposeFile).ok()?,
        &look_up,
    )
    .ok()?;
    (!needs_secret.get()).then(|| filled.as_str().to_owned())
}

/// Compose's list of variables: each with whether it has neither default nor alternative, as far as the list tells.
fn read_references(references: &Value) -> Vec<(String, bool)> {
    let is_empty = |variable: &Value, field: &str| {
        variable
            .get(field)
            .and_then(Value::as_str)
            .is_none_or(str::is_empty)
    };
    let list = references.as_object().into_iter().flatten();
    list.map(|(name, variable)| {
        (
            name.clone(),
            is_empty(variable, "DefaultValue") && is_empty(variable, "PresenceValue"),
        )
    })
    .collect()
}

/// The free space where images and releases go.
fn rooms(context: &Context<'_>, memory: &Memory) -> Result<Vec<Room>> {
    let deploy = &context.settings.deploy_dir;
    let mut places = vec![deploy.clone()];
    let root = memory
        .state
        .facts
        .as_ref()
        .and_then(|facts| facts.docker_root.as_deref());
    places.extend(
        root.map(Path::new)
            .filter(|root| root.exists())
            .map(Path::to_owned),
    );
    let mut rooms = Vec::new();
    for place in places {
        let free = disk::free_at(&place)?;
        rooms.push(Room {
            place: place.display().to_string(),
            free_bytes: free.bytes,
            free_inodes: Some(free.inodes).filter(|inodes| *inodes != u64::MAX),
        });
    }
    Ok(rooms)
}

fn kv_mount<'a>(context: &'a Context<'_>, vault: &'a Vault) -> &'a str {
    vault
        .mount
        .as_deref()
        .unwrap_or(&context.settings.bao.kv_mount)
}

/// A bundle whose manifest is empty needs no lease and no OpenBao.
fn read_secrets(
    context: &Context<'_>,
    memory: &mut Memory,
    peers: &Peers<'_>,
    token: &mut Token,
    judged: &Judged,
    vault: &Vault,
) -> Result<Secrets> {
    if judged.secrets.is_empty() {
        write_credentials(context, &Secrets::default())?;
        return Ok(Secrets::default());
    }
    let mount = kv_mount(context, vault);
    if mount != context.settings.bao.kv_mount {
        log::info!(mount = mount; "using the KV mount that tenancy names");
    }
    token::warn_of_another_openbao(peers, vault.addr.as_deref(), "tenancy")?;
    context.enter("token for the apply");
    *token = token::for_apply(context, memory, peers, token, vault)?;
    context.enter("reading secrets");
    let watch = Stopwatch::start();
    let secrets = secrets::read(context, peers.openbao()?, token, mount, &judged.secrets)?;
    let mut names = secrets
        .records
        .iter()
        .map(|record| record.var.as_str())
        .collect::<Vec<_>>()
        .join(" ");
    if !secrets.credentials.is_empty() {
        names.push_str(" (+ registry credential)");
    }
    log::info!(names = names.trim(), took:% = watch; "secrets read");
    write_credentials(context, &secrets)?;
    Ok(secrets)
}

fn write_credentials(context: &Context<'_>, secrets: &Secrets) -> Result<()> {
    for problem in &secrets.credential_problems {
        log::warn!("{problem}; the last good one stays");
    }
    let keep_others = !secrets.credential_problems.is_empty();
    if registry::write(context.state_dir, &secrets.credentials, keep_others)? {
        for credential in &secrets.credentials {
            log::info!(registry = credential.registry, user = credential.username; "registry credential written");
        }
    }
    Ok(())
}

/// Renders `.env`, has Compose prove that it reads every value back exactly, and writes the release.
fn stage(
    context: &Context<'_>,
    releases: &Releases,
    judged: &Judged,
    secrets: Secrets,
) -> Result<Release> {
    context.enter("staging the release");
    let watch = Stopwatch::start();
    let bundle = &judged.bundle;
    let refused = |findings: Vec<Finding>| Error::Refused { findings };
    let rendered = env_file::render(bundle.template(), &secrets.values).map_err(refused)?;
    if judged.judge_images_again {
        let values = map_of(
            rendered
                .values()
                .iter()
                .map(|(key, value)| (key.as_str(), value.expose())),
        );
        let known = |name: &str| {
            values
                .get(name)
                .map_or(Known::Unset, |value| Known::Value(value))
        };
        let images = judge_images(&judged.model, bundle.meta().images_policy, &known);
        if !images.findings.is_empty() {
            return Err(refused(images.findings));
        }
    }
    let staging = releases.begin(bundle, rendered.text())?;
    let proved = prove(context, &rendered, &staging.env_path());
    if let Err(error) = proved {
        staging.abandon()?;
        return Err(error);
    }
    let details = Details {
        overlay: judged.overlay.clone(),
        services: judged.services.clone(),
        secrets: secrets.records,
    };
    let release = staging.commit(bundle, rendered.text(), details)?;
    Live::open(&Dir::open(&context.settings.deploy_dir)?)?.check(&release)?;
    log::info!(release = release.name.as_str(), took:% = watch; "release staged");
    Ok(release)
}

fn prove(context: &Context<'_>, rendered: &env_file::Rendered, env_path: &Path) -> Result<()> {
    if rendered.values().is_empty() {
        return Ok(());
    }
    let document = proof::document(rendered);
    let read_back = context.docker().read_back(env_path, document)?;
    let findings = proof::check(rendered, &read_back);
    if findings.is_empty() {
        Ok(())
    } else {
        Err(Error::Refused { findings })
    }
}

fn pull(
    context: &Context<'_>,
    releases: &Releases,
    bundle: &VerifiedBundle,
    release: &Release,
) -> Result<()> {
    let policy = match bundle.meta().pull {
        Pull::Never => return Ok(()),
        Pull::Missing => "missing",
        Pull::Always => "always",
    };
    context.enter("compose pull");
    let directory = releases.directory(&release.name)?;
    let files = ProjectFiles {
        directory: directory.path().to_owned(),
        compose_file: release.compose_file.as_str().to_owned(),
        overlay: None,
        env_file: Some(directory.path().join(deploy_dir::ENV)),
    };
    let watch = Stopwatch::start();
    let mut progress = Progress::new("pulling");
    let docker = context.docker();
    let pulled = docker.pull(&files, policy, &mut |line| {
        context.keep_line(line);
        progress.tell(&context.redactor.clean(line));
    });
    progress.end();
    pulled?;
    log::info!(took:% = watch; "images pulled");
    Ok(())
}

/// Promotes the release, starts it and waits until it is healthy.
fn bring_up(
    context: &Context<'_>,
    deploy: &Dir,
    releases: &Releases,
    release: &Release,
) -> Result<Vec<Container>> {
    let docker = context.docker();
    let live = Live::open(deploy)?;
    context.enter("looking at the containers");
    let before = docker.containers()?;
    refuse_foreign(context, &before)?;
    heal(context, &before)?;
    context.enter("promoting the release");
    live.promote(releases, release)?;
    context.enter("compose up");
    let watch = Stopwatch::start();
    let mut progress = Progress::new("starting");
    let said = docker.up(&live.project_files(release), &mut |line| {
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
    Ok(containers)
}

/// Containers under our project's name that were made from another directory are somebody else's: `--remove-orphans`
/// must not take them.
fn refuse_foreign(context: &Context<'_>, containers: &[Container]) -> Result<()> {
    let resolve = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let ours = resolve(&context.settings.deploy_dir.join(deploy_dir::LIVE));
    let foreign = containers
        .iter()
        .find(|c| !c.working_dir.is_empty() && resolve(Path::new(&c.working_dir)) != ours);
    match foreign {
        None => Ok(()),
        Some(container) => Err(Error::ProjectConflict {
            project: context.settings.compose_project.to_string(),
            why: format!(
                "container {} was made from {}, not from {}; stop that deployment first, or choose another compose_project",
                container.name,
                container.working_dir,
                ours.display()
            ),
        }),
    }
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

/// The secrets by name, for a report.
pub fn secret_names(applied: Option<&Applied>) -> Vec<String> {
    applied
        .map(|applied| {
            applied
                .secrets
                .iter()
                .map(|record| record.var.as_str().to_owned())
                .collect()
        })
        .unwrap_or_default()
}
