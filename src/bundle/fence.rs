//! The fence around an environment's secrets. A manifest may spell a path in four ways; all of them come to one
//! [`SecretPath`] below the KV mount, which must lie below `<env_id>/`, or below the narrower prefix that tenancy named
//! in its checkin. Tenancy can narrow the fence and never move it.

use super::findings::show;
use super::manifest::{Entry, Manifest, Purpose};
use crate::code::Code;
use crate::error::Finding;
use crate::names::{EnvId, SecretPath};

/// Where the secrets of this environment lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    env_id: String,
    mount: String,
    prefix: String,
}

/// A secret to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretRef {
    /// What it is for.
    pub purpose: Purpose,
    /// Its path below the KV mount.
    pub path: SecretPath,
    /// The version to read; the newest where none is pinned.
    pub version: Option<u64>,
    /// The key inside the secret.
    pub key: Option<String>,
}

impl Fence {
    /// The fence of `env_id` on the KV mount `mount`, narrowed by the checkin's `vault.prefix`; a prefix outside the
    /// environment's own tree is left aside, with a warning.
    pub fn new(env_id: &EnvId, mount: &str, prefix: Option<&str>) -> (Self, Option<String>) {
        let own = env_id.as_str();
        let mut warning = None;
        let mut narrowed = own.to_owned();
        if let Some(prefix) = prefix.filter(|prefix| !prefix.is_empty()) {
            let bare = prefix.strip_suffix('/').unwrap_or(prefix);
            if SecretPath::new(bare).is_ok() && (bare == own || is_below(bare, own)) {
                bare.clone_into(&mut narrowed);
            } else {
                warning = Some(format!(
                    "tenancy's vault.prefix {} is not {own} or below it and is ignored",
                    show(prefix.as_bytes())
                ));
            }
        }
        let fence = Self {
            env_id: own.to_owned(),
            mount: mount.trim_matches('/').to_owned(),
            prefix: narrowed,
        };
        (fence, warning)
    }

    /// The secret that a manifest's path names, or why it may not.
    pub fn resolve(&self, path: &str) -> Result<SecretPath, String> {
        let why = if path.is_empty() {
            "is empty"
        } else if path.chars().any(char::is_control) {
            "has control characters"
        } else if path.contains('%') {
            "has a %"
        } else if path.starts_with('/') {
            "is absolute"
        } else if path.contains("//") {
            "has a //"
        } else if path.split('/').any(|part| part == "..") {
            "has a .. component"
        } else {
            return self.place(path);
        };
        Err(why.to_owned())
    }

    fn place(&self, path: &str) -> Result<SecretPath, String> {
        let full = self
            .spellings(path)
            .into_iter()
            .flatten()
            .find_map(|path| self.rooted(path))
            .filter(|full| is_below(full, &self.prefix))
            .ok_or_else(|| format!("is outside {}/", self.prefix))?;
        SecretPath::new(&full).map_err(|_| "is not a plain path".to_owned())
    }

    /// The path without the mount, where it names one, and as it stands.
    fn spellings<'a>(&self, path: &'a str) -> [Option<&'a str>; 3] {
        let below_mount = path
            .strip_prefix(self.mount.as_str())
            .and_then(|path| path.strip_prefix('/'));
        let below_data = below_mount.and_then(|path| path.strip_prefix("data/"));
        [below_data, below_mount, Some(path)]
    }

    /// The path from the mount's root, where it says whose it is.
    fn rooted(&self, path: &str) -> Option<String> {
        if is_below(path, &self.env_id) {
            Some(path.to_owned())
        } else if is_below(path, "see") {
            Some(format!("{}/{path}", self.env_id))
        } else {
            None
        }
    }

    /// Every secret of the manifest, and a finding for each path outside the fence.
    pub fn resolve_all(&self, manifest: &Manifest) -> (Vec<SecretRef>, Vec<Finding>) {
        let mut secrets = Vec::new();
        let mut findings = Vec::new();
        for entry in &manifest.entries {
            let Entry {
                purpose,
                path,
                version,
                key,
            } = entry;
            match self.resolve(path) {
                Ok(path) => secrets.push(SecretRef {
                    purpose: purpose.clone(),
                    path,
                    version: *version,
                    key: key.clone(),
                }),
                Err(why) => findings.push(Finding::new(
                    Code::ManifestPath,
                    format!("the path {} of {purpose} {why}", show(path.as_bytes())),
                )),
            }
        }
        (secrets, findings)
    }
}

fn is_below(path: &str, root: &str) -> bool {
    path.strip_prefix(root)
        .and_then(|rest| rest.strip_prefix('/'))
        .is_some_and(|rest| !rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence(mount: &str, prefix: Option<&str>) -> (Fence, Option<String>) {
        Fence::new(&EnvId::new("env-qa-02").unwrap(), mount, prefix)
    }

    #[test]
    fn four_spellings_name_the_same_secret() {
        for mount in ["monky", "/monky/", "kv/monky", "see", "env-qa-02", "data"] {
            let (fence, _) = fence(mount, Some("env-qa-02/see"));
            let bare = mount.trim_matches('/');
            for path in [
                "see/db/main".to_owned(),
                "env-qa-02/see/db/main".to_owned(),
                format!("{bare}/env-qa-02/see/db/main"),
                format!("{bare}/data/env-qa-02/see/db/main"),
                format!("{bare}/see/db/main"),
                format!("{bare}/data/see/db/main"),
            ] {
                assert_eq!(
                    fence.resolve(&path).as_ref().map(SecretPath::as_str),
                    Ok("env-qa-02/see/db/main"),
                    "{mount} {path}"
                );
            }
        }
    }

    #[test]
    fn a_path_that_leaves_the_fence_says_why() {
        let (fence, _) = fence("monky", Some("env-qa-02/see"));
        for (path, why) in [
            ("", "is empty"),
            ("/see/db", "is absolute"),
            ("/", "is absolute"),
            ("see//db", "has a //"),
            ("see/../../env-prod/see/db", "has a .. component"),
            ("see/db/..", "has a .. component"),
            ("see/%2e%2e/db", "has a %"),
            ("see/d\nb", "has control characters"),
            ("see/d\0b", "has control characters"),
            ("see/./db", "is not a plain path"),
            ("see/db/", "is not a plain path"),
            ("see/db?version=1", "is not a plain path"),
            ("see/db#a", "is not a plain path"),
            ("see/a\\b", "is not a plain path"),
            ("see", "is outside env-qa-02/see/"),
            ("see/", "is outside env-qa-02/see/"),
            ("db", "is outside env-qa-02/see/"),
            ("seen/db", "is outside env-qa-02/see/"),
            ("env-qa-02", "is outside env-qa-02/see/"),
            ("env-qa-02/db", "is outside env-qa-02/see/"),
            ("env-qa-02/seed/db", "is outside env-qa-02/see/"),
            ("env-qa-020/see/db", "is outside env-qa-02/see/"),
            ("env-prod-01/see/db", "is outside env-qa-02/see/"),
            ("monky/data/env-prod-01/see/db", "is outside env-qa-02/see/"),
            ("monky/monky/see/db", "is outside env-qa-02/see/"),
            ("other/data/env-qa-02/see/db", "is outside env-qa-02/see/"),
        ] {
            assert_eq!(fence.resolve(path), Err(why.to_owned()), "{path}");
        }
    }

    #[test]
    fn tenancy_narrows_the_fence_and_never_moves_it() {
        for (prefix, wide, deep) in [
            (None, true, true),
            (Some(""), true, true),
            (Some("env-qa-02"), true, true),
            (Some("env-qa-02/"), true, true),
            (Some("env-qa-02/see"), false, true),
            (Some("env-qa-02/see/"), false, true),
            (Some("env-qa-02/see/team"), false, false),
        ] {
            let (fence, warning) = fence("monky", prefix);
            assert_eq!(warning, None, "{prefix:?}");
            assert_eq!(
                fence.resolve("env-qa-02/other/x").is_ok(),
                wide,
                "{prefix:?}"
            );
            assert_eq!(fence.resolve("see/x").is_ok(), deep, "{prefix:?}");
            assert!(fence.resolve("see/team/x").is_ok());
        }
        for prefix in [
            "env-prod-01/see",
            "env-qa-020",
            "see",
            "/env-qa-02/see",
            "env-qa-02/../env-prod-01",
            "env-qa-02//see",
            "/",
            "*",
        ] {
            let (fence, warning) = fence("monky", Some(prefix));
            let warning = warning.unwrap_or_default();
            assert!(
                warning.ends_with("is not env-qa-02 or below it and is ignored"),
                "{prefix}"
            );
            assert!(fence.resolve("see/x").is_ok());
            assert!(fence.resolve("env-prod-01/see/x").is_err());
        }
    }

    #[test]
    fn every_bad_path_of_a_manifest_is_told_by_name() {
        let (fence, _) = fence("monky", None);
        let entry = |purpose, path: &str| Entry {
            purpose,
            path: path.to_owned(),
            version: Some(3),
            key: None,
        };
        let var = |name: &str| Purpose::Env(crate::names::VarName::new(name).unwrap());
        let (secrets, findings) = fence.resolve_all(&Manifest {
            entries: vec![
                entry(var("A"), "see/a"),
                entry(var("B"), "../b"),
                entry(Purpose::Registry, "env-prod/see/r"),
            ],
        });
        assert_eq!(secrets.len(), 1);
        assert_eq!(
            (secrets[0].path.as_str(), secrets[0].version),
            ("env-qa-02/see/a", Some(3))
        );
        let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "MANIFEST_PATH: the path \"../b\" of B has a .. component",
                "MANIFEST_PATH: the path \"env-prod/see/r\" of the registry credential is outside env-qa-02/",
            ]
        );
    }

    proptest::proptest! {
        #[test]
        fn no_spelling_leaves_the_fence(
            pieces in proptest::collection::vec(0..14usize, 0..8),
            narrow in 0..3usize,
        ) {
            const PIECES: [&str; 14] = [
                "see", "env-qa-02", "env-prod-01", "monky", "data", "/", "/", "/", "..", ".", "%2f", "x", "\n", "",
            ];
            let path: String = pieces.iter().map(|piece| PIECES[*piece]).collect();
            let prefix = [None, Some("env-qa-02/see"), Some("env-prod-01")][narrow];
            let (fence, _) = fence("monky", prefix);
            if let Ok(path) = fence.resolve(&path) {
                proptest::prop_assert!(path.as_str().starts_with("env-qa-02/"));
                proptest::prop_assert!(path.as_str().split('/').all(|part| part != ".."));
            }
        }
    }
}
