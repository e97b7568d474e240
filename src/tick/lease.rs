//! A granted lease that was not used yet, in `lease.json`: stored durably before the login that uses it, so that a crash
//! or a sealed OpenBao between the two costs no second lease, and forgotten on use, on refusal and when it expires.

use crate::error::{Error, Result};
use crate::host::clock::Timestamp;
use crate::host::disk::Durability;
use crate::host::paths::state_dir;
use crate::names::Sha256;
use crate::remote::tenancy::Lease;
use crate::secret::Secret;
use crate::tick::context::{Context, Memory};
use serde_json::{Value, json};

const LEASE_CAP_BYTES: u64 = 64 * 1024;

/// A lease on the disk.
#[derive(Clone, Debug)]
pub struct StoredLease {
    /// The lease.
    pub lease: Lease,
    /// Whether an earlier tick got it.
    pub is_from_before: bool,
}

/// The stored lease, unless it has expired.
///
/// # Errors
/// A failed file operation, or a file that others may write.
pub fn load(context: &Context<'_>, memory: &Memory) -> Result<Option<StoredLease>> {
    let bytes = context
        .state_dir
        .read_ours(state_dir::LEASE, LEASE_CAP_BYTES, &mut |warning| {
            log::warn!("{warning}")
        })?;
    let Some(bytes) = bytes.map(zeroize::Zeroizing::new) else {
        return Ok(None);
    };
    let stored = serde_json::from_slice::<Value>(&bytes)
        .ok()
        .and_then(|value| read(&value));
    match stored {
        // A kill between the login and the forgetting leaves a lease that has done its work.
        Some((lease, _)) if is_used(memory, &lease) => {
            forget(context)?;
            Ok(None)
        }
        Some((lease, expires_at)) if expires_at > context.started_at => {
            context.redactor.learn("LEASE_GRANT", &lease.grant);
            Ok(Some(StoredLease {
                lease,
                is_from_before: true,
            }))
        }
        _ => {
            forget(context)?;
            Ok(None)
        }
    }
}

/// Stores a lease that tenancy just granted.
///
/// # Errors
/// A failed file operation.
pub fn store(context: &Context<'_>, lease: &Lease) -> Result<StoredLease> {
    context.redactor.learn("LEASE_GRANT", &lease.grant);
    let document = json!({
        "login_jwt": lease.grant.expose(),
        "expires_at": Timestamp::now().plus_s(lease.ttl_s),
        "ttl_s": lease.ttl_s,
        "mount": lease.mount,
        "role": lease.role,
        "addr": lease.addr,
    });
    let bytes = serde_json::to_vec(&document)
        .map(zeroize::Zeroizing::new)
        .map_err(|e| Error::Internal(format!("the lease cannot be written: {e}")))?;
    context
        .state_dir
        .write(state_dir::LEASE, &bytes, 0o600, Durability::Synced)?;
    Ok(StoredLease {
        lease: lease.clone(),
        is_from_before: false,
    })
}

/// Deletes the stored lease.
///
/// # Errors
/// A failed file operation.
pub fn forget(context: &Context<'_>) -> Result<()> {
    context.state_dir.remove(state_dir::LEASE).map(drop)
}

/// Whether the present token came from this lease.
fn is_used(memory: &Memory, lease: &Lease) -> bool {
    let digest = Sha256::of(lease.grant.expose().as_bytes());
    memory
        .state
        .token
        .as_ref()
        .and_then(|record| record.grant_sha256.as_ref())
        == Some(&digest)
}

fn read(value: &Value) -> Option<(Lease, Timestamp)> {
    let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let lease = Lease {
        grant: Secret::new(text("login_jwt")?),
        ttl_s: value.get("ttl_s").and_then(Value::as_u64)?,
        mount: text("mount"),
        role: text("role"),
        addr: text("addr"),
    };
    Some((lease, Timestamp::parse(&text("expires_at")?)?))
}
