//! The pull credential: read from secrets, written as docker's own `auths` into the agent's DOCKER_CONFIG, never an
//! argument and never in `.env`. The file is rewritten only when it changes; a registry that the manifest no longer names
//! disappears from it; a credential that cannot be used is a warning, and the last good entry stays.

use crate::error::{Error, Result};
use crate::host::disk::{Dir, Durability};
use crate::host::paths::state_dir;
use crate::secret::Secret;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

const CONFIG_CAP_BYTES: u64 = 1024 * 1024;

/// A usable credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// The registry, as image names begin.
    pub registry: String,
    /// The user.
    pub username: String,
    /// The password.
    pub password: Secret,
}

/// Reads one credential: after trimming `{"registry"?, "username", "password"}` or `username:password`.
///
/// # Errors
/// Says what is wrong, never the value.
pub fn parse(value: &Secret, default_registry: Option<&str>) -> Result<Credential, &'static str> {
    let text = value.expose();
    if text.is_empty() {
        return Err("it is empty");
    }
    let text = text.trim();
    if text.is_empty() {
        return Err("it holds nothing but blanks");
    }
    let (registry, username, password) = if text.starts_with('{') {
        let object: Value =
            serde_json::from_str(text).map_err(|_| "it begins with { and is not JSON")?;
        let field = |name: &str| {
            object
                .get(name)
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
        };
        let username = field("username").ok_or("its JSON has no username")?;
        (
            field("registry"),
            username,
            field("password").ok_or("its JSON has no password")?,
        )
    } else {
        let (username, password) = text
            .split_once(':')
            .ok_or("it is neither JSON nor username:password, there is no colon")?;
        if username.is_empty() || password.is_empty() {
            return Err("its username or its password is empty");
        }
        (None, username.to_owned(), password.to_owned())
    };
    let registry = registry
        .or_else(|| default_registry.map(str::to_owned))
        .ok_or("it names no registry, and registry_host is empty")?;
    Ok(Credential {
        registry,
        username,
        password: Secret::new(password),
    })
}

/// The secret's data as a credential's text, when no key was asked for: `value`, the whole object when it has both
/// fields, or nothing.
pub fn whole_object(data: &Value) -> Option<Secret> {
    let has = |name: &str| data.get(name).is_some_and(Value::is_string);
    (data.get("value").is_none() && has("username") && has("password"))
        .then(|| Secret::new(data.to_string()))
}

/// Brings docker's configuration to exactly these credentials; with `keep_others` entries of other registries stay.
/// Says whether the file was written.
///
/// # Errors
/// A failed file operation.
pub fn write(state: &Dir, credentials: &[Credential], keep_others: bool) -> Result<bool> {
    let dir = state.subdir_or_create(state_dir::DOCKER, 0o700)?;
    // A killed tick's half-written file holds a credential, and without a change no write comes to replace it.
    dir.remove(&format!(".{}.tmp", state_dir::DOCKER_CONFIG))?;
    let before = dir
        .read(state_dir::DOCKER_CONFIG, CONFIG_CAP_BYTES)?
        .map(zeroize::Zeroizing::new);
    // A file that docker could not read either is replaced whole.
    let mut config: Map<String, Value> = before
        .as_ref()
        .and_then(|bytes| serde_json::from_slice(bytes).ok())
        .unwrap_or_default();
    let mut auths = match config.get("auths") {
        Some(Value::Object(auths)) if keep_others => auths.clone(),
        _ => Map::new(),
    };
    for credential in credentials {
        let pair = zeroize::Zeroizing::new(format!(
            "{}:{}",
            credential.username,
            credential.password.expose()
        ));
        auths.insert(
            credential.registry.clone(),
            json!({"auth": STANDARD.encode(pair.as_bytes())}),
        );
    }
    if auths.is_empty() {
        config.remove("auths");
    } else {
        config.insert("auths".into(), Value::Object(auths));
    }
    if config.is_empty() && before.is_none() {
        return Ok(false);
    }
    let mut bytes =
        zeroize::Zeroizing::new(serde_json::to_vec_pretty(&config).map_err(|e| {
            Error::Internal(format!("docker's configuration cannot be written: {e}"))
        })?);
    bytes.push(b'\n');
    if before.as_deref() == Some(&*bytes) {
        return Ok(false);
    }
    dir.write(state_dir::DOCKER_CONFIG, &bytes, 0o600, Durability::Synced)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(String, String, String), &'static str> {
        parse(&Secret::new(text.into()), Some("r.example"))
            .map(|c| (c.registry, c.username, c.password.expose().to_owned()))
    }

    #[test]
    fn every_shape_of_a_credential() {
        let triple = |r: &str, u: &str, p: &str| Ok((r.to_owned(), u.to_owned(), p.to_owned()));
        assert_eq!(
            read("robot$pull:p4ss\n"),
            triple("r.example", "robot$pull", "p4ss")
        );
        assert_eq!(read("u:p4:ss"), triple("r.example", "u", "p4:ss"));
        assert_eq!(
            read(r#" {"registry": "o.example", "username": "u", "password": "p"} "#),
            triple("o.example", "u", "p")
        );
        assert_eq!(
            read(r#"{"registry": null, "username": "u", "password": "p"}"#),
            triple("r.example", "u", "p")
        );
        for (bad, why) in [
            ("", "empty"),
            ("  \n", "blanks"),
            ("no-colon-here", "no colon"),
            (r#"{"username": "u"}"#, "no password"),
            ("{not json", "not JSON"),
        ] {
            assert!(read(bad).unwrap_err().contains(why), "{bad}");
        }
        assert!(
            parse(&Secret::new("u:p".into()), None)
                .unwrap_err()
                .contains("registry_host")
        );
    }

    #[test]
    fn the_file_is_written_when_it_changes_and_forgets_what_is_gone() {
        let temp = tempfile::tempdir().unwrap();
        let state = Dir::open(temp.path()).unwrap();
        let credential = |registry: &str| Credential {
            registry: registry.into(),
            username: "u".into(),
            password: Secret::new("p".into()),
        };
        assert!(!write(&state, &[], false).unwrap());
        assert!(write(&state, &[credential("a"), credential("b")], false).unwrap());
        assert!(!write(&state, &[credential("b"), credential("a")], false).unwrap());
        assert!(write(&state, &[credential("a")], false).unwrap());
        let text = std::fs::read_to_string(temp.path().join("docker/config.json")).unwrap();
        assert!(
            text.contains("\"a\"")
                && !text.contains("\"b\"")
                && text.contains(&STANDARD.encode("u:p")),
            "{text}"
        );
        assert!(write(&state, &[credential("c")], true).unwrap());
        let text = std::fs::read_to_string(temp.path().join("docker/config.json")).unwrap();
        assert!(text.contains("\"a\"") && text.contains("\"c\""));
    }

    #[test]
    fn what_a_killed_write_left_is_removed_even_when_nothing_is_written() {
        let temp = tempfile::tempdir().unwrap();
        let state = Dir::open(temp.path()).unwrap();
        let left = temp.path().join("docker/.config.json.tmp");
        let credential = Credential {
            registry: "a".into(),
            username: "u".into(),
            password: Secret::new("p".into()),
        };
        std::fs::create_dir(temp.path().join("docker")).unwrap();
        std::fs::write(&left, "torn").unwrap();
        assert!(!write(&state, &[], false).unwrap());
        assert!(!left.exists());
        write(&state, std::slice::from_ref(&credential), false).unwrap();
        std::fs::write(&left, "torn").unwrap();
        assert!(!write(&state, &[credential], false).unwrap());
        assert!(!left.exists());
    }
}
