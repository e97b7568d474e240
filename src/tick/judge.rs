//! Everything that may speak against a bundle, before any lease is asked for: its members are unpacked to `.incoming`,
//! where the real Compose reads them; all checks run, all findings come together, and the members are gone again.

use crate::bundle::fence::{Fence, SecretRef};
use crate::bundle::refuse::{self, Case, ComposeFacts, Room};
use crate::bundle::template::reference::{self, Dialect};
use crate::bundle::{self, VerifiedBundle, unpack};
use crate::code::Code;
use crate::deploy::compose::ProjectFiles;
use crate::deploy::compose_output::{Service, read_services};
use crate::deploy::overlay::overlay;
use crate::error::{Error, Finding, Result};
use crate::host::disk::{self, Dir};
use crate::host::log::one_line;
use crate::host::paths::deploy_dir;
use crate::remote::tenancy::Vault;
use crate::tick::context::{Context, Memory};
use serde_json::Value;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;

/// Compose lists a reference that is none without a name, and refuses it only when it fills it in.
const NAMELESS: &str = "a reference to a variable is none: ${} or ${1V}, or a ${ that is never closed; for a plain $ write $$";

/// A bundle that nothing speaks against.
pub struct Judged {
    /// The bundle.
    pub bundle: VerifiedBundle,
    /// Compose's model of it, before any variable is filled in.
    pub model: Value,
    /// The model's services.
    pub services: BTreeMap<String, Service>,
    /// The further compose file; null when none is needed.
    pub overlay: Value,
    /// The secrets that it asks for.
    pub secrets: Vec<SecretRef>,
    /// An image's name needs a secret, and is judged again when the secrets are known.
    pub judge_images_again: bool,
}

/// Judges the bundle.
///
/// # Errors
/// [`Error::Refused`] with every finding; docker's own trouble.
pub fn judge(
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
        Ok((references, _)) if references.iter().any(|(name, _)| name.is_empty()) => {
            (Vec::new(), Value::Null, Some(NAMELESS.to_owned()))
        }
        Ok((references, model)) => (references, model, None),
        Err(Error::Compose {
            code: Code::ComposeInvalid,
            words,
            ..
        }) => {
            let words = composes_words(context, incoming.path(), &words);
            (Vec::new(), Value::Null, Some(words))
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
    let foreign = bundle.foreign().cloned();
    let findings: Vec<Finding> = foreign.into_iter().chain(judgement.findings).collect();
    if !findings.is_empty() {
        return Err(Error::Refused { findings });
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

/// Why Compose refuses a file, as a person reads it: one line, redacted, its paths relative to the bundle.
pub fn composes_words(context: &Context<'_>, directory: &Path, words: &str) -> String {
    let words = words.replace(&format!("{}/", directory.display()), "");
    context.redactor.clean(&one_line(&words))
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

/// The KV mount of this apply: tenancy's, else the configuration's.
pub fn kv_mount<'a>(context: &'a Context<'_>, vault: &'a Vault) -> &'a str {
    vault
        .mount
        .as_deref()
        .unwrap_or(&context.settings.bao.kv_mount)
}
