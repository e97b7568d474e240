//! An apply: from the desired sha to healthy containers. Each stage takes what the one before gave; until `promote`
//! nothing that runs is touched, so whatever fails before leaves the old release as it is.

use crate::bundle::images::{Known, judge_images};
use crate::bundle::meta::Pull;
use crate::bundle::{self, VerifiedBundle};
use crate::code::Code;
use crate::deploy::compose::ProjectFiles;
use crate::deploy::env_file;
use crate::deploy::live::Live;
use crate::deploy::proof;
use crate::deploy::registry;
use crate::deploy::release::{Details, Release, Releases};
use crate::error::{Error, Finding, Result};
use crate::host::clock::Stopwatch;
use crate::host::disk::Dir;
use crate::host::paths::deploy_dir;
use crate::names::Sha256;
use crate::ordered::map_of;
use crate::remote::tenancy::{FetchedBundle, Vault};
use crate::state::Applied;
use crate::tick::bring_up::{Running, bring_up};
use crate::tick::context::{Context, Memory};
use crate::tick::judge::{Judged, composes_words, judge, kv_mount};
use crate::tick::progress::Progress;
use crate::tick::secrets::{self, Secrets};
use crate::tick::token::{self, Peers, Token};
use std::path::Path;

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
    bring_up(context, memory, &deploy, &releases, release)
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
    let accepted = prove(context, &rendered, &staging.env_path())
        .and_then(|()| validate(context, bundle, staging.path()));
    if let Err(error) = accepted {
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

/// What Compose would only say once it starts something is said before anything is staged.
fn validate(context: &Context<'_>, bundle: &VerifiedBundle, directory: &Path) -> Result<()> {
    let files = ProjectFiles {
        directory: directory.to_owned(),
        compose_file: bundle.compose_file().as_str().to_owned(),
        overlay: None,
        env_file: Some(directory.join(deploy_dir::ENV)),
    };
    context
        .docker()
        .validate(&files)
        .map_err(|error| match error {
            Error::Compose {
                code: code @ Code::ComposeInvalid,
                words,
                ..
            } => {
                let words = composes_words(context, directory, &words);
                Error::Refused {
                    findings: vec![Finding::new(code, words)],
                }
            }
            other => other,
        })
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
