//! The token: read from its file, renewed while that helps, swapped for a leased one when it does not, bootstrapped when
//! there is none. A lease is precious (five an hour): it is stored before it is used, used before another is asked for,
//! and a token that came from one is used again as long as OpenBao confirms it.
//!
//! The new token is durable before the old one is revoked; a grant is spent once OpenBao refused it for good or tenancy
//! refused the token that it yielded.

use crate::error::{Error, Refusal, Result};
use crate::host::clock::Timestamp;
use crate::host::disk::{self, Durability};
use crate::host::interrupt::Interrupt;
use crate::host::paths::state_dir;
use crate::names::Sha256;
use crate::remote::openbao::{Login, OpenBao, TokenInfo};
use crate::remote::tenancy::{LeaseReason, Tenancy, Vault};
use crate::secret::Secret;
use crate::settings::Settings;
use crate::state::{TokenRecord, TokenSource};
use crate::tick::context::{Context, Memory};
use crate::tick::lease::{self, StoredLease};
use std::cell::OnceCell;

const TOKEN_CAP_BYTES: u64 = 16 * 1024;

/// Both peers.
pub struct Peers<'a> {
    /// The control plane.
    pub tenancy: Tenancy,
    settings: &'a Settings,
    interrupt: &'a Interrupt,
    openbao: OnceCell<OpenBao>,
}

impl<'a> Peers<'a> {
    /// Prepares the connection to tenancy; dials nobody yet.
    ///
    /// # Errors
    /// As [`Tenancy::new`].
    pub fn new(settings: &'a Settings, interrupt: &'a Interrupt) -> Result<Self> {
        let tenancy = Tenancy::new(settings, interrupt)?;
        Ok(Self {
            tenancy,
            settings,
            interrupt,
            openbao: OnceCell::new(),
        })
    }

    /// The secret store. A converged tick never needs it, and so never reads its roots either.
    ///
    /// # Errors
    /// As [`OpenBao::new`].
    pub fn openbao(&self) -> Result<&OpenBao> {
        if let Some(openbao) = self.openbao.get() {
            return Ok(openbao);
        }
        let openbao = OpenBao::new(self.settings, self.interrupt)?;
        Ok(self.openbao.get_or_init(|| openbao))
    }
}

/// A token to work with.
#[derive(Clone, Debug)]
pub struct Token {
    /// The token itself.
    pub secret: Secret,
    /// Whether OpenBao confirmed in this tick that it lives, and for how long.
    confirmed: bool,
}

/// Where a login is made.
struct LoginPlace<'a> {
    mount: &'a str,
    role: &'a str,
}

/// The token of this tick: the stored one, renewed or swapped if it runs out, else one from the bootstrap grant.
///
/// # Errors
/// [`Error::NoGrant`], [`Error::LoginRefused`], [`Error::EnvMismatch`], and temporary errors where no token works.
pub fn obtain(context: &Context<'_>, memory: &mut Memory, peers: &Peers<'_>) -> Result<Token> {
    let Some(token) = load(context)? else {
        return bootstrap(context, memory, peers);
    };
    let digest = Sha256::of(token.secret.expose().as_bytes());
    let known = memory
        .state
        .token
        .clone()
        .filter(|record| record.token_sha256.as_ref() == Some(&digest));
    let Some(record) = known else {
        return adopt(context, memory, peers, token, digest);
    };
    let Some(expires_at) = record.expires_at else {
        return Ok(token);
    };
    if was_the_clock_set(context, &record, expires_at) {
        log::info!(
            "the clock was set since the token was made; OpenBao is asked what is left of it"
        );
        return adopt(context, memory, peers, token, digest);
    }
    let left_s = expires_at.since_s(context.started_at);
    if left_s <= 0 {
        log::info!("the token has expired");
        return bootstrap(context, memory, peers)
            .or_else(|error| survive(context, memory, peers, token, error));
    }
    if left_s >= threshold_s(context, &record) {
        return Ok(token);
    }
    prolong(context, memory, peers, token, &record)
}

/// Whether what is left of the token cannot be told by the clock: it was made in the future, or has more left than it was
/// made with.
fn was_the_clock_set(context: &Context<'_>, record: &TokenRecord, expires_at: Timestamp) -> bool {
    let slack_s = 60;
    let left_s = expires_at.since_s(context.started_at);
    let whole_s = i64::try_from(record.creation_ttl_s).unwrap_or(i64::MAX);
    let is_from_later = record
        .known_at
        .is_some_and(|at| at.since_s(context.started_at) > slack_s);
    is_from_later || (whole_s > 0 && left_s > whole_s.saturating_add(slack_s))
}

/// A token that has expired by our clock and that no grant can replace may still live by OpenBao's.
fn survive(
    context: &Context<'_>,
    memory: &mut Memory,
    peers: &Peers<'_>,
    token: Token,
    error: Error,
) -> Result<Token> {
    if !matches!(error, Error::NoGrant { .. } | Error::LoginRefused(_)) {
        return Err(error);
    }
    match peers.openbao()?.lookup_self(&token.secret) {
        Ok(Some(info)) => {
            log::warn!("the token lives on by OpenBao's clock: is this box's clock ahead?");
            note_lookup(context, memory, &info);
            Ok(Token {
                confirmed: true,
                ..token
            })
        }
        Ok(None) | Err(_) => Err(error),
    }
}

/// What OpenBao said of the token goes before what was worked out from the clock.
fn note_lookup(context: &Context<'_>, memory: &mut Memory, info: &TokenInfo) {
    if let Some(record) = memory.state.token.as_mut() {
        record.known_at = Some(context.started_at);
        record.expires_at = info.ttl_s.map(|ttl_s| context.started_at.plus_s(ttl_s));
        record.creation_ttl_s = info.creation_ttl_s;
        record.renewable = info.renewable;
    }
}

/// A token that is not the one that was recorded (an upgrade, a crash between two writes, a hand-made file): OpenBao is
/// asked what it is.
fn adopt(
    context: &Context<'_>,
    memory: &mut Memory,
    peers: &Peers<'_>,
    token: Token,
    digest: Sha256,
) -> Result<Token> {
    let info = match peers.openbao()?.lookup_self(&token.secret) {
        Ok(Some(info)) => info,
        // Whether it is of use is for tenancy to say.
        Ok(None) => return Ok(token),
        Err(error) if error.is_temporary() => return Ok(token),
        Err(error) => return Err(error),
    };
    let source = memory
        .state
        .token
        .as_ref()
        .map_or(TokenSource::Bootstrap, |record| record.source);
    let same = memory
        .state
        .token
        .as_ref()
        .filter(|record| record.token_sha256.as_ref() == Some(&digest));
    let grant = same.and_then(|record| record.grant_sha256.clone());
    let mut record = TokenRecord::of(source, grant, digest, info.ttl_s, info.renewable);
    record.creation_ttl_s = info.creation_ttl_s;
    let is_low = record
        .expires_at
        .is_some_and(|at| at.since_s(context.started_at) < threshold_s(context, &record));
    memory.state.token = Some(record.clone());
    if is_low {
        prolong(context, memory, peers, token, &record)
    } else {
        Ok(Token {
            confirmed: true,
            ..token
        })
    }
}

/// Renews the token, or swaps it for a leased one where renewing no longer helps. A peer in trouble is no reason to stop
/// while the token is still valid by the clock.
fn prolong(
    context: &Context<'_>,
    memory: &mut Memory,
    peers: &Peers<'_>,
    mut token: Token,
    record: &TokenRecord,
) -> Result<Token> {
    let tolerate = |error: Error, token: Token| {
        if !error.is_temporary() || context.interrupt.is_pending() {
            return Err(error);
        }
        log::warn!("the token could not be prolonged, going on with it: {error}");
        Ok(token)
    };
    if record.renewable {
        match peers.openbao()?.renew_self(&token.secret) {
            Ok(Some(left_s)) => {
                let expires_at = Timestamp::now().plus_s(left_s);
                if let Some(known) = memory.state.token.as_mut() {
                    known.expires_at = Some(expires_at);
                }
                let is_enough =
                    i64::try_from(left_s).unwrap_or(i64::MAX) >= threshold_s(context, record);
                log::info!(left_s = left_s; "token renewed");
                if is_enough {
                    return Ok(Token {
                        confirmed: true,
                        ..token
                    });
                }
            }
            Ok(None) => {
                log::warn!("OpenBao does not know the token any more; the checkin decides");
                return Ok(token);
            }
            // OpenBao's word for a token that cannot be renewed after all.
            Err(Error::Answer(refusal)) if refusal.status == 400 => {
                log::info!("the token cannot be renewed: {}", refusal.words)
            }
            Err(error) => return tolerate(error, token),
        }
    }
    match swap(
        context,
        memory,
        peers,
        &mut token,
        LeaseReason::Renew,
        &Vault::default(),
    ) {
        Ok(fresh) => Ok(fresh),
        // A refused token is never sent again.
        Err(error) if memory.state.token.is_none() => Err(error),
        Err(error) => tolerate(error, token),
    }
}

/// A token for an apply: a leased one that OpenBao confirms is used again; a bootstrap one is swapped once, or kept when
/// no lease can be had for now.
///
/// # Errors
/// Temporary errors where no token works; [`Error::LeaseShape`]; a refused login.
pub fn for_apply(
    context: &Context<'_>,
    memory: &mut Memory,
    peers: &Peers<'_>,
    token: &Token,
    vault: &Vault,
) -> Result<Token> {
    let is_leased = memory
        .state
        .token
        .as_ref()
        .is_some_and(|record| record.source == TokenSource::Lease);
    if is_leased {
        let info = if token.confirmed {
            None
        } else {
            Some(peers.openbao()?.lookup_self(&token.secret)?)
        };
        if let Some(Some(info)) = &info {
            note_lookup(context, memory, info);
        }
        match info {
            None => return Ok(token.clone()),
            Some(Some(info)) if is_enough(context, &info) => {
                return Ok(Token {
                    confirmed: true,
                    ..token.clone()
                });
            }
            Some(Some(_)) => log::info!("the token has too little time left for an apply"),
            Some(None) => log::info!("OpenBao does not know the token any more"),
        }
    }
    let mut token = token.clone();
    match swap(
        context,
        memory,
        peers,
        &mut token,
        LeaseReason::Apply,
        vault,
    ) {
        Ok(fresh) => Ok(fresh),
        // A refused token is never sent again.
        Err(error) if memory.state.token.is_none() => Err(error),
        Err(error) if error.is_temporary() && !context.interrupt.is_pending() => {
            // Without a lease the apply goes on with what we have, if OpenBao itself says that it works.
            match peers.openbao()?.lookup_self(&token.secret)? {
                Some(_) => {
                    log::warn!(
                        "no lease for now, the apply goes on with the present token: {error}"
                    );
                    if let Some(record) = memory.state.token.as_mut() {
                        record.swap_deferred = true;
                    }
                    Ok(Token {
                        confirmed: true,
                        ..token
                    })
                }
                None => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

/// Makes a tenancy call with the token. A bearer that tenancy refuses is set aside; a fresh bootstrap grant gives
/// another one, with which the call is repeated once.
///
/// # Errors
/// Those of the call; [`Error::NoGrant`] when the bearer is refused and no fresh grant is there; [`Error::EnvMismatch`].
pub fn with_bearer<T>(
    context: &Context<'_>,
    memory: &mut Memory,
    peers: &Peers<'_>,
    token: &mut Token,
    call: impl Fn(&Tenancy, &Secret) -> Result<T>,
) -> Result<T> {
    match call(&peers.tenancy, &token.secret) {
        Err(Error::Answer(refusal)) if is_unauthenticated(&refusal) => {
            log::warn!("tenancy refuses the token: {refusal}");
            set_aside(context, memory)?;
            *token = bootstrap(context, memory, peers)?;
            match call(&peers.tenancy, &token.secret) {
                // OpenBao takes a superseded grant until it expires; only tenancy knows better.
                Err(Error::Answer(refusal)) if is_unauthenticated(&refusal) => {
                    set_aside(context, memory)?;
                    Err(Error::NoGrant {
                        why: format!("tenancy refuses the new token, too: {refusal}"),
                    })
                }
                answered => answered.map_err(|error| bound_elsewhere(context, error)),
            }
        }
        answered => answered.map_err(|error| bound_elsewhere(context, error)),
    }
}

fn is_unauthenticated(refusal: &Refusal) -> bool {
    refusal.status == 401 && refusal.code.as_deref() == Some("AGENT_UNAUTHENTICATED")
}

fn bound_elsewhere(context: &Context<'_>, error: Error) -> Error {
    match error {
        Error::Answer(refusal)
            if refusal.status == 403 && refusal.code.as_deref() == Some("AGENT_ENV_MISMATCH") =>
        {
            mismatch(
                context,
                &format!(
                    "tenancy says that our token is not for {} ({})",
                    context.settings.env_id, refusal.words
                ),
            )
        }
        other => other,
    }
}

fn mismatch(context: &Context<'_>, whose: &str) -> Error {
    Error::EnvMismatch {
        whose: whose.to_owned(),
        remedy: format!(
            "set env_id in {} to the environment of the kit, or re-run the install kit of {}; nothing is tried until one of them changes",
            context.settings.path.display(),
            context.settings.env_id
        ),
    }
}

/// The refused token is never sent again; its grant is spent.
fn set_aside(context: &Context<'_>, memory: &mut Memory) -> Result<()> {
    if let Some(grant) = memory
        .state
        .token
        .as_ref()
        .and_then(|record| record.grant_sha256.clone())
    {
        memory.state.spend(grant);
    }
    context
        .state_dir
        .rename(state_dir::TOKEN, state_dir::TOKEN_REFUSED)?;
    memory.state.token = None;
    memory.save(context)
}

/// Logs in with a lease that was never used, else with the bootstrap grant unless it is spent.
fn bootstrap(context: &Context<'_>, memory: &mut Memory, peers: &Peers<'_>) -> Result<Token> {
    let bao = &context.settings.bao;
    if let Some(stored) = lease::load(context, memory)? {
        match log_in_with_lease(context, memory, peers, &stored, &Vault::default()) {
            Ok(token) => return Ok(token),
            Err(error @ (Error::LoginRefused(_) | Error::EnvMismatch { .. })) => {
                log::warn!("the stored lease is of no use: {error}");
                lease::forget(context)?;
            }
            Err(error) => return Err(error),
        }
    }
    let path = &context.settings.bootstrap_file;
    let no_grant = |why: String| Error::NoGrant { why };
    let bytes = disk::read_file(path, TOKEN_CAP_BYTES, true)?
        .ok_or_else(|| no_grant(format!("{} is missing", path.display())))?;
    let grant = text_of(bytes)
        .filter(|grant| !grant.is_empty())
        .ok_or_else(|| no_grant(format!("{} holds no grant", path.display())))?;
    context.redactor.learn("BOOTSTRAP_GRANT", &grant);
    let digest = Sha256::of(grant.expose().as_bytes());
    if memory.state.is_spent(&digest) {
        return Err(no_grant(format!("the one in {} is spent", path.display())));
    }
    let place = LoginPlace {
        mount: &bao.auth_mount,
        role: &bao.role,
    };
    let login = log_in(context, memory, peers, &grant, &digest, &place)?;
    log::info!("logged in with the bootstrap grant");
    take_over(context, memory, login, TokenSource::Bootstrap, digest)
}

/// Asks for a lease (or takes the stored one), logs in with it, and revokes the token before. A `token` that tenancy
/// refuses is replaced on the way.
fn swap(
    context: &Context<'_>,
    memory: &mut Memory,
    peers: &Peers<'_>,
    token: &mut Token,
    reason: LeaseReason,
    vault: &Vault,
) -> Result<Token> {
    let mut tried_stored = false;
    loop {
        let stored = match lease::load(context, memory)?.filter(|_| !tried_stored) {
            Some(stored) => stored,
            None => {
                let lease = with_bearer(context, memory, peers, token, |tenancy, bearer| {
                    tenancy.lease(bearer, reason)
                })?;
                log::info!(ttl_s = lease.ttl_s; "lease granted");
                lease::store(context, &lease)?
            }
        };
        match log_in_with_lease(context, memory, peers, &stored, vault) {
            Ok(fresh) => {
                if let Err(error) = peers.openbao()?.revoke_self(&token.secret) {
                    log::debug!("the token before was not revoked: {error}");
                }
                return Ok(fresh);
            }
            // A stored lease may have been superseded; a new one decides.
            Err(Error::LoginRefused(refusal)) if stored.is_from_before && !tried_stored => {
                log::info!("the stored lease is of no use: {refusal}");
                lease::forget(context)?;
                tried_stored = true;
            }
            Err(error) => {
                if matches!(error, Error::LoginRefused(_)) {
                    lease::forget(context)?;
                }
                return Err(error);
            }
        }
    }
}

fn log_in_with_lease(
    context: &Context<'_>,
    memory: &mut Memory,
    peers: &Peers<'_>,
    stored: &StoredLease,
    vault: &Vault,
) -> Result<Token> {
    let bao = &context.settings.bao;
    warn_of_another_openbao(peers, stored.lease.addr.as_deref(), "the lease")?;
    let first = |ours: &Option<String>, theirs: &Option<String>, default: &str| {
        ours.clone()
            .or_else(|| theirs.clone())
            .unwrap_or_else(|| default.to_owned())
    };
    let mount = first(&stored.lease.mount, &vault.auth_mount, &bao.auth_mount);
    let role = first(&stored.lease.role, &vault.auth_role, &bao.role);
    let digest = Sha256::of(stored.lease.grant.expose().as_bytes());
    let login = log_in(
        context,
        memory,
        peers,
        &stored.lease.grant,
        &digest,
        &LoginPlace {
            mount: &mount,
            role: &role,
        },
    )?;
    let token = take_over(context, memory, login, TokenSource::Lease, digest)?;
    lease::forget(context)?;
    Ok(token)
}

/// Whoever names an OpenBao can only name the one of the configuration: a token never goes elsewhere.
///
/// # Errors
/// As [`OpenBao::new`].
pub fn warn_of_another_openbao(peers: &Peers<'_>, addr: Option<&str>, who: &str) -> Result<()> {
    if let Some(addr) = addr
        && !peers.openbao()?.is_at(addr)
    {
        log::warn!(addr = addr; "{who} names another OpenBao than the configuration; the configuration's stays");
    }
    Ok(())
}

fn log_in(
    context: &Context<'_>,
    memory: &mut Memory,
    peers: &Peers<'_>,
    grant: &Secret,
    digest: &Sha256,
    place: &LoginPlace<'_>,
) -> Result<Login> {
    context.enter("OpenBao login");
    let login = match peers.openbao()?.login(place.mount, place.role, grant) {
        Ok(login) => login,
        Err(Error::LoginRefused(refusal)) => {
            if refuses_the_grant(&refusal) {
                memory.state.spend(digest.clone());
            }
            return Err(Error::LoginRefused(refusal));
        }
        Err(error) => return Err(error),
    };
    context.redactor.learn("TOKEN", &login.token);
    match login.env_id.as_deref() {
        Some(env_id) if env_id != context.settings.env_id.as_str() => Err(mismatch(
            context,
            &format!(
                "the deploy grant is for {env_id}, the configuration says {}",
                context.settings.env_id
            ),
        )),
        _ => Ok(login),
    }
}

/// A role or a mount that is missing is OpenBao's setting, not the grant's fault: OpenBao answers the first with 400 and
/// words, the second with a bare 403.
fn refuses_the_grant(refusal: &Refusal) -> bool {
    let words = refusal.words.to_ascii_lowercase();
    refusal.status == 400 && !(words.contains("role") && words.contains("could not be found"))
}

/// The new token is on the disk before anything else happens to the old one.
fn take_over(
    context: &Context<'_>,
    memory: &mut Memory,
    login: Login,
    source: TokenSource,
    grant: Sha256,
) -> Result<Token> {
    context.state_dir.write(
        state_dir::TOKEN,
        login.token.expose().as_bytes(),
        0o600,
        Durability::Synced,
    )?;
    let digest = Sha256::of(login.token.expose().as_bytes());
    memory.state.token = Some(TokenRecord::of(
        source,
        Some(grant),
        digest,
        login.ttl_s,
        login.renewable,
    ));
    memory.state.mismatch = None;
    memory.save(context)?;
    context.state_dir.remove(state_dir::TOKEN_REFUSED)?;
    Ok(Token {
        secret: login.token,
        confirmed: true,
    })
}

fn load(context: &Context<'_>) -> Result<Option<Token>> {
    let bytes = context
        .state_dir
        .read_ours(state_dir::TOKEN, TOKEN_CAP_BYTES, &mut |warning| {
            log::warn!("{warning}")
        })?;
    let secret = bytes.and_then(text_of).filter(|token| !token.is_empty());
    Ok(secret.map(|secret| {
        context.redactor.learn("TOKEN", &secret);
        Token {
            secret,
            confirmed: false,
        }
    }))
}

fn text_of(bytes: Vec<u8>) -> Option<Secret> {
    let text = zeroize::Zeroizing::new(String::from_utf8(bytes).ok()?);
    Some(Secret::new(text.trim().to_owned()))
}

/// With less than this left a token is renewed or swapped.
fn threshold_s(context: &Context<'_>, record: &TokenRecord) -> i64 {
    threshold(context.settings.bao.renew_below_s, record.creation_ttl_s)
}

fn threshold(renew_below_s: u64, creation_ttl_s: u64) -> i64 {
    let half = if creation_ttl_s == 0 {
        renew_below_s
    } else {
        creation_ttl_s / 2
    };
    i64::try_from(renew_below_s.min(half)).unwrap_or(i64::MAX)
}

fn is_enough(context: &Context<'_>, info: &TokenInfo) -> bool {
    let needed = threshold(context.settings.bao.renew_below_s, info.creation_ttl_s);
    info.ttl_s
        .is_none_or(|left_s| i64::try_from(left_s).unwrap_or(i64::MAX) >= needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_prolonged_below_half_its_life_at_the_latest() {
        assert_eq!(threshold(21_600, 86_400), 21_600);
        assert_eq!(threshold(21_600, 3_600), 1_800);
        assert_eq!(threshold(21_600, 0), 21_600);
    }

    #[test]
    fn a_missing_role_does_not_spend_the_grant() {
        let refusal = |status, words: &str| Refusal {
            peer: crate::names::Peer::OpenBao,
            request: String::new(),
            status,
            code: None,
            words: words.into(),
            retry_after_s: None,
            remedy: None,
        };
        assert!(refuses_the_grant(&refusal(
            400,
            "error validating token: token is expired"
        )));
        assert!(!refuses_the_grant(&refusal(
            400,
            "role \"see-env\" could not be found"
        )));
        assert!(!refuses_the_grant(&refusal(403, "permission denied")));
        assert!(!refuses_the_grant(&refusal(404, "no handler for route")));
    }
}
