//! Reading the secrets of a manifest: over a few connections at once, and everything that cannot be read named together.

use crate::bundle::fence::SecretRef;
use crate::bundle::manifest::Purpose;
use crate::deploy::registry::{self, Credential};
use crate::error::{Error, Result};
use crate::names::VarName;
use crate::redact::Cover;
use crate::remote::openbao::{OpenBao, Reading, value_of};
use crate::secret::Secret;
use crate::state::SecretRecord;
use crate::tick::context::Context;
use crate::tick::token::Token;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Connections at once, at most, and secrets for which one more is worth while.
const CONNECTIONS: usize = 8;
const SECRETS_A_CONNECTION: usize = 8;

/// Everything that a manifest asked for.
#[derive(Debug, Default)]
pub struct Secrets {
    /// The values, by variable.
    pub values: BTreeMap<VarName, Secret>,
    /// Where each came from.
    pub records: Vec<SecretRecord>,
    /// The usable pull credentials.
    pub credentials: Vec<Credential>,
    /// Why other pull credentials cannot be used.
    pub credential_problems: Vec<String>,
}

/// Reads every entry of the manifest.
///
/// # Errors
/// [`Error::SecretsUnreadable`] naming every one that cannot be read; temporary errors.
pub fn read(
    context: &Context<'_>,
    openbao: &OpenBao,
    token: &Token,
    mount: &str,
    wanted: &[SecretRef],
) -> Result<Secrets> {
    let readings = read_all(openbao, token, mount, wanted)?;
    if !wanted.is_empty()
        && readings
            .iter()
            .all(|reading| *reading == Reading::Forbidden)
    {
        // Everything forbidden is either a dead token or a wrong policy, and only OpenBao can tell.
        let problem = match openbao.lookup_self(&token.secret)? {
            None => "OpenBao has revoked the token: the next try gets a new one".to_owned(),
            Some(_) => format!(
                "OpenBao's policy lets us read none of them at the mount {mount}: {}; check the role's policy, and that there is a KV store at that mount",
                names(wanted)
            ),
        };
        return Err(Error::SecretsUnreadable {
            problems: vec![problem],
        });
    }
    let mut secrets = Secrets::default();
    let mut problems = Vec::new();
    for (entry, reading) in wanted.iter().zip(readings) {
        if let Err(problem) = take(context, entry, reading, mount, &mut secrets) {
            problems.push(format!("{}: {problem}", name_of(entry)));
        }
    }
    if problems.is_empty() {
        Ok(secrets)
    } else {
        Err(Error::SecretsUnreadable { problems })
    }
}

fn take(
    context: &Context<'_>,
    entry: &SecretRef,
    reading: Reading,
    mount: &str,
    secrets: &mut Secrets,
) -> Result<(), String> {
    let path = entry.path.as_str();
    let (data, version) = match reading {
        Reading::Data { data, version } => (data, version),
        Reading::Missing => {
            return Err(match entry.version {
                Some(version) => format!("{path} has no version {version}"),
                None => format!("there is no secret {path}"),
            });
        }
        Reading::Deleted { at } => {
            return Err(format!("{path} was deleted at {at}; it can be undeleted"));
        }
        Reading::Destroyed => return Err(format!("that version of {path} was destroyed")),
        Reading::NoMount(words) => {
            return Err(format!(
                "there is no KV store at the mount {mount} ({words})"
            ));
        }
        Reading::Forbidden => return Err(format!("OpenBao's policy does not let us read {path}")),
    };
    match &entry.purpose {
        Purpose::Env(var) => {
            let value = value_of(&data, entry.key.as_deref())
                .map_err(|problem| format!("{path}: {problem}"))?;
            if context.redactor.learn(var.as_str(), &value) == Cover::TooShort {
                log::warn!(var = var.as_str(); "a secret shorter than 4 bytes cannot be redacted");
            }
            secrets.values.insert(var.clone(), value);
            secrets.records.push(SecretRecord {
                var: var.clone(),
                path: path.to_owned(),
                version,
            });
        }
        Purpose::Registry => {
            let whole = registry::whole_object(&data).filter(|_| entry.key.is_none());
            let text = match whole {
                Some(text) => Ok(text),
                None => credential_text(&data, entry.key.as_deref())
                    .map_err(|problem| problem.to_string()),
            };
            let parsed = text.and_then(|text| {
                context.redactor.learn("REGISTRY_CREDENTIAL", &text);
                registry::parse(&text, context.settings.registry_host.as_deref())
                    .map_err(str::to_owned)
            });
            match parsed {
                Ok(credential) => {
                    context
                        .redactor
                        .learn("REGISTRY_PASSWORD", &credential.password);
                    secrets.credentials.push(credential);
                }
                Err(why) => secrets.credential_problems.push(format!(
                    "the registry credential {path} cannot be used: {why}"
                )),
            }
        }
    }
    Ok(())
}

/// A credential's text; an object counts as its JSON text.
fn credential_text(data: &serde_json::Value, key: Option<&str>) -> Result<Secret, String> {
    let object = data
        .get(key.unwrap_or("value"))
        .filter(|value| value.is_object());
    match object {
        Some(object) => Ok(Secret::new(object.to_string())),
        None => value_of(data, key).map_err(|problem| problem.to_string()),
    }
}

/// One reading for each wanted secret, in their order. The first error that is no reading ends it.
fn read_all(
    openbao: &OpenBao,
    token: &Token,
    mount: &str,
    wanted: &[SecretRef],
) -> Result<Vec<Reading>> {
    let connections = wanted.len().div_ceil(SECRETS_A_CONNECTION).min(CONNECTIONS);
    if connections <= 1 {
        return wanted
            .iter()
            .map(|entry| openbao.read(&token.secret, mount, &entry.path, entry.version))
            .collect();
    }
    let next = AtomicUsize::new(0);
    let mut readings: BTreeMap<usize, Reading> = BTreeMap::new();
    let mut failed = None;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..connections)
            .map(|_| {
                scope.spawn(|| {
                    let mut own = Vec::new();
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(entry) = wanted.get(index) else {
                            return Ok(own);
                        };
                        match openbao.read(&token.secret, mount, &entry.path, entry.version) {
                            Ok(reading) => own.push((index, reading)),
                            Err(error) => {
                                // The others need not go on.
                                next.store(wanted.len(), Ordering::Relaxed);
                                return Err(error);
                            }
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            match worker.join() {
                Ok(Ok(own)) => readings.extend(own),
                Ok(Err(error)) => failed = Some(error),
                Err(_) => {
                    failed = Some(Error::Internal(
                        "a thread that reads secrets panicked".into(),
                    ))
                }
            }
        }
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(readings.into_values().collect()),
    }
}

fn name_of(entry: &SecretRef) -> &str {
    match &entry.purpose {
        Purpose::Env(var) => var.as_str(),
        Purpose::Registry => "the registry credential",
    }
}

fn names(wanted: &[SecretRef]) -> String {
    wanted.iter().map(name_of).collect::<Vec<_>>().join(", ")
}
