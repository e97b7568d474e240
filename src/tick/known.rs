//! What earlier ticks wrote down, for the redactor: a tick that reads no secret still runs docker over releases that hold
//! some, and docker, Compose and containers may print them. The values are found again in the rendered variables: those
//! of the keys that the release's template makes from a secret, and the bare secret where a key is one with text around.

use crate::bundle::template::Template;
use crate::bundle::template::reference::Part;
use crate::bundle::verify::TEMPLATE;
use crate::deploy::live;
use crate::deploy::release::{Release, Releases};
use crate::error::Result;
use crate::host::disk::Dir;
use crate::host::paths::{deploy_dir, state_dir};
use crate::names::ReleaseName;
use crate::ordered::set_of;
use crate::redact::Redactor;
use crate::secret::Secret;
use crate::state::State;
use crate::tick::context::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

const CAP_BYTES: u64 = 64 * 1024 * 1024;

/// Teaches the redactor the secrets of the releases that may run or be brought back, and the registry's.
///
/// # Errors
/// A failed file operation.
pub fn learn(context: &Context<'_>, state: &State) -> Result<()> {
    let deploy = Dir::open_or_create(&context.settings.deploy_dir)?;
    let releases = Releases::open(&deploy)?;
    let named = [&state.applied, &state.previous]
        .into_iter()
        .flatten()
        .filter_map(|applied| applied.release.clone());
    let names = set_of(named.chain(live::current(&deploy)?));
    for name in &names {
        learn_release(context.redactor, &releases, name)?;
    }
    learn_registry(context)
}

/// The same for one release.
///
/// # Errors
/// A failed file operation.
pub fn learn_release(redactor: &Redactor, releases: &Releases, name: &ReleaseName) -> Result<()> {
    let Some(release) = releases.load(name)? else {
        return Ok(());
    };
    let directory = releases.directory(name)?;
    let template = directory.read(TEMPLATE, CAP_BYTES)?;
    let rendered = directory
        .read(deploy_dir::ENV, CAP_BYTES)?
        .map(zeroize::Zeroizing::new);
    if let (Some(template), Some(rendered)) = (template, rendered) {
        learn_values(redactor, &release, &template, &rendered);
    }
    Ok(())
}

fn learn_values(redactor: &Redactor, release: &Release, template: &[u8], rendered: &[u8]) {
    let (Ok(template), Ok(rendered)) = (Template::parse(template), Template::parse(rendered))
    else {
        return;
    };
    let is_secret = |name: &str| {
        release
            .secrets
            .iter()
            .any(|record| record.var.as_str() == name)
    };
    let made_from_secrets = template.values(&is_secret);
    let values = rendered.values(&|_| false);
    for assignment in template.assignments() {
        let key = assignment.key.as_str();
        // A key without a plain value is one that depends on a secret.
        if made_from_secrets.get(key).is_none_or(Option::is_some) {
            continue;
        }
        let Some(Some(value)) = values.get(key) else {
            continue;
        };
        redactor.learn(key, &Secret::new(value.clone()));
        if let Some(bare) = bare(&assignment.value, value) {
            redactor.learn(key, &Secret::new(bare.to_owned()));
        }
    }
}

/// The one reference's value in a text like `postgres://app:${PASSWORD}@db`.
fn bare<'v>(parts: &[Part], value: &'v str) -> Option<&'v str> {
    let text = |part: Option<&Part>| match part {
        Some(Part::Text(text)) => text.to_string(),
        _ => String::new(),
    };
    let at = parts
        .iter()
        .position(|part| matches!(part, Part::Reference(_)))?;
    let is_only = parts
        .iter()
        .filter(|part| matches!(part, Part::Reference(_)))
        .count()
        == 1;
    let before = at
        .checked_sub(1)
        .map(|before| text(parts.get(before)))
        .unwrap_or_default();
    let inner = value
        .strip_prefix(before.as_str())?
        .strip_suffix(text(parts.get(at + 1)).as_str())?;
    (is_only && parts.len() > 1 && parts.len() <= 3).then_some(inner)
}

fn learn_registry(context: &Context<'_>) -> Result<()> {
    let Some(dir) = context.state_dir.subdir(state_dir::DOCKER)? else {
        return Ok(());
    };
    let config = dir
        .read(state_dir::DOCKER_CONFIG, CAP_BYTES)?
        .map(zeroize::Zeroizing::new);
    let config: Value = config
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default();
    for entry in config
        .get("auths")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let Some(auth) = entry.1.get("auth").and_then(Value::as_str) else {
            continue;
        };
        context
            .redactor
            .learn("REGISTRY_CREDENTIAL", &Secret::new(auth.to_owned()));
        let pair = STANDARD
            .decode(auth)
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok());
        if let Some((_, password)) = pair.as_deref().and_then(|pair| pair.split_once(':')) {
            context
                .redactor
                .learn("REGISTRY_PASSWORD", &Secret::new(password.to_owned()));
        }
    }
    Ok(())
}
