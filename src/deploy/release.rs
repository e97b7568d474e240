//! Releases on the disk: a bundle with its rendered `.env` under `releases/<sha>-<n>/`, and beside it a record of what
//! the release is made of. A release is written under a temporary name, synced, and renamed: it is there whole or not at
//! all, and never changes afterwards.

use crate::bundle::{VerifiedBundle, unpack};
use crate::deploy::compose_output::{Container, Service};
use crate::error::{Error, Result};
use crate::host::disk::{Dir, Durability, Kind};
use crate::host::paths::deploy_dir;
use crate::names::{BundlePath, ReleaseName, Sha256};
use crate::ordered::{map_of, set_of};
use crate::secret::Secret;
use crate::state::SecretRecord;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const STAGING: &str = ".staging";
const RECORD_CAP_BYTES: u64 = 8 * 1024 * 1024;
const ENV_CAP_BYTES: u64 = 64 * 1024 * 1024;

/// What a release is made of: all that is needed to bring it up again without tenancy or OpenBao.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Release {
    /// Its directory.
    pub name: ReleaseName,
    /// The compose file.
    pub compose_file: BundlePath,
    /// The bundle's files, without `.env`.
    pub files: BTreeMap<BundlePath, FileRecord>,
    /// The further compose file that the agent made; null when none is needed.
    pub overlay: Value,
    /// The services of the model.
    pub services: BTreeMap<String, Service>,
    /// `meta.generation`.
    pub generation: Option<u64>,
    /// `meta.rendered_at`, as written.
    pub rendered_at: Option<String>,
    /// The secrets that it was rendered with, by name.
    pub secrets: Vec<SecretRecord>,
    /// The images that its containers were made from; known once it was healthy.
    #[serde(default)]
    pub images: Vec<ImageUse>,
}

/// An image that a release's containers were made from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ImageUse {
    /// The name in the compose file.
    pub name: String,
    /// Docker's id of it.
    pub id: String,
}

impl ImageUse {
    /// The images of `containers`, each once.
    pub fn of(containers: &[Container]) -> Vec<Self> {
        let images = containers.iter().map(|c| Self {
            name: c.image.clone(),
            id: c.image_id.clone(),
        });
        set_of(images).into_iter().collect()
    }
}

/// A file of a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// The digest of its content.
    pub sha256: Sha256,
    /// Whether it may be executed.
    pub executable: bool,
}

/// The directory of all releases.
#[derive(Debug)]
pub struct Releases {
    dir: Dir,
}

/// A release that is written but has no name yet.
#[derive(Debug)]
pub struct Staging<'a> {
    releases: &'a Releases,
    dir: Dir,
}

impl Releases {
    /// Opens `releases/` in the deploy directory, creating it where it is missing.
    ///
    /// # Errors
    /// A failed file operation.
    pub fn open(deploy: &Dir) -> Result<Self> {
        Ok(Self {
            dir: deploy.subdir_or_create(deploy_dir::RELEASES, 0o700)?,
        })
    }

    /// Every release that is there whole, oldest rendering first within a sha.
    ///
    /// # Errors
    /// A failed file operation.
    pub fn list(&self) -> Result<Vec<ReleaseName>> {
        let mut names: Vec<ReleaseName> = self
            .dir
            .names()?
            .iter()
            .filter_map(|name| ReleaseName::new(name).ok())
            .collect();
        names.sort_by_key(|name| (name.sha(), name.number()));
        Ok(names)
    }

    /// The record of a release; `None` when it or its record is missing.
    ///
    /// # Errors
    /// A failed file operation, or a record that cannot be read.
    pub fn load(&self, name: &ReleaseName) -> Result<Option<Release>> {
        if self.dir.kind(name.as_str())? != Some(Kind::Directory) {
            return Ok(None);
        }
        let Some(bytes) = self.dir.read(&record_name(name), RECORD_CAP_BYTES)? else {
            return Ok(None);
        };
        serde_json::from_slice(&bytes).map(Some).map_err(|e| {
            let path = self.dir.path().join(record_name(name));
            Error::file(
                "read the release's record",
                &path,
                std::io::Error::new(std::io::ErrorKind::InvalidData, e),
            )
        })
    }

    /// The release's directory.
    ///
    /// # Errors
    /// It is missing, or a failed file operation.
    pub fn directory(&self, name: &ReleaseName) -> Result<Dir> {
        self.dir.subdir(name.as_str())?.ok_or_else(|| {
            Error::file(
                "open the release",
                &self.dir.path().join(name.as_str()),
                std::io::Error::from(std::io::ErrorKind::NotFound),
            )
        })
    }

    /// Writes the members of `bundle` and its rendered `.env` under a temporary name.
    ///
    /// # Errors
    /// A failed file operation.
    pub fn begin(&self, bundle: &VerifiedBundle, env: &Secret) -> Result<Staging<'_>> {
        self.dir.remove_tree(STAGING)?;
        let dir = self.dir.subdir_or_create(STAGING, 0o700)?;
        unpack::unpack(bundle, dir.path())?;
        // Not through a temporary name, which the bundle may have a member of: a staging directory is whole or nothing.
        let env_path = dir.path().join(deploy_dir::ENV);
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&env_path)
            .and_then(|mut file| file.write_all(env.expose().as_bytes()))
            .map_err(|e| Error::file("write the file", &env_path, e))?;
        Ok(Staging {
            releases: self,
            dir,
        })
    }

    /// Remembers which images the release's containers were made from.
    ///
    /// # Errors
    /// A failed file operation.
    pub fn note_images(&self, release: &mut Release, images: Vec<ImageUse>) -> Result<()> {
        if release.images == images {
            return Ok(());
        }
        release.images = images;
        let record = encode(release)?;
        self.dir.write(
            &record_name(&release.name),
            &record,
            0o600,
            Durability::Synced,
        )
    }

    /// Deletes releases except those in `kept`, oldest first, until at most `limit` are left, and the `.env` of every
    /// release that is not in `kept`. Gives the deleted ones.
    ///
    /// # Errors
    /// A failed file operation.
    pub fn prune(&self, kept: &BTreeSet<ReleaseName>, limit: usize) -> Result<Vec<Release>> {
        let mut others: Vec<(std::time::SystemTime, ReleaseName)> = Vec::new();
        for name in self.list()?.into_iter().filter(|name| !kept.contains(name)) {
            let made = std::fs::metadata(self.dir.path().join(record_name(&name)))
                .and_then(|meta| meta.modified());
            others.push((made.unwrap_or(std::time::UNIX_EPOCH), name));
        }
        others.sort();
        let excess = (others.len() + kept.len())
            .saturating_sub(limit)
            .min(others.len());
        let mut deleted = Vec::new();
        for (index, (_, name)) in others.into_iter().enumerate() {
            if index < excess {
                deleted.extend(self.load(&name)?);
                self.delete(&name)?;
            } else {
                self.directory(&name)?.remove(deploy_dir::ENV)?;
            }
        }
        self.dir.remove_tree(STAGING)?;
        Ok(deleted)
    }

    /// Deletes the rendered `.env` of every release.
    ///
    /// # Errors
    /// A failed file operation.
    pub fn forget_values(&self) -> Result<()> {
        self.dir.remove_tree(STAGING)?;
        for name in self.list()? {
            self.directory(&name)?.remove(deploy_dir::ENV)?;
        }
        Ok(())
    }

    fn delete(&self, name: &ReleaseName) -> Result<()> {
        // The record goes first: a directory without one is no release.
        self.dir.remove(&record_name(name))?;
        self.dir.remove_tree(name.as_str())
    }

    /// The release of `sha` that has this very `.env`, else the name that the next rendering gets.
    fn name_for(&self, sha: &Sha256, env: &[u8]) -> Result<(ReleaseName, bool)> {
        let mut next = 1;
        for name in self.list()?.into_iter().filter(|name| name.sha() == *sha) {
            if self.load(&name)?.is_some()
                && self
                    .directory(&name)?
                    .read(deploy_dir::ENV, ENV_CAP_BYTES)?
                    .as_deref()
                    == Some(env)
            {
                return Ok((name, true));
            }
            next = next.max(name.number() + 1);
        }
        Ok((ReleaseName::of(sha, next), false))
    }
}

impl Staging<'_> {
    /// Where everything stands for now.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Where the `.env` stands for now.
    pub fn env_path(&self) -> PathBuf {
        self.dir.path().join(deploy_dir::ENV)
    }

    /// Gives the release its name, durably. A rendering that is already there is used again.
    ///
    /// # Errors
    /// A failed file operation.
    pub fn commit(
        self,
        bundle: &VerifiedBundle,
        env: &Secret,
        details: Details,
    ) -> Result<Release> {
        let (name, exists) = self
            .releases
            .name_for(bundle.sha(), env.expose().as_bytes())?;
        let files = map_of(bundle.members().map(|(path, bytes, executable)| {
            let sha256 = Sha256::of(bytes);
            (path.clone(), FileRecord { sha256, executable })
        }));
        // What is kept for a rendering that ran before is still its own, also if it fails now.
        let images = match exists {
            true => self.releases.load(&name)?.map(|known| known.images),
            false => None,
        };
        let release = Release {
            name: name.clone(),
            compose_file: bundle.compose_file().clone(),
            files,
            overlay: details.overlay,
            services: details.services,
            generation: bundle.meta().generation,
            rendered_at: bundle.meta().rendered_at.clone(),
            secrets: details.secrets,
            images: images.unwrap_or_default(),
        };
        let record = encode(&release)?;
        let releases = &self.releases.dir;
        if exists {
            releases.remove_tree(STAGING)?;
            releases.write(&record_name(&name), &record, 0o600, Durability::Synced)?;
            return Ok(release);
        }
        self.dir.sync_filesystem()?;
        releases.write(&record_name(&name), &record, 0o600, Durability::Synced)?;
        // A directory that a killed tick left without a record is no release.
        releases.remove_tree(name.as_str())?;
        releases.rename(STAGING, name.as_str())?;
        Ok(release)
    }

    /// Drops what was staged.
    ///
    /// # Errors
    /// A failed file operation.
    pub fn abandon(self) -> Result<()> {
        self.releases.dir.remove_tree(STAGING)
    }
}

/// What is known of a release besides its files.
#[derive(Clone, Debug)]
pub struct Details {
    /// The further compose file; null when none is needed.
    pub overlay: Value,
    /// The services of the model.
    pub services: BTreeMap<String, Service>,
    /// The secrets that it was rendered with, by name.
    pub secrets: Vec<SecretRecord>,
}

fn encode(release: &Release) -> Result<Vec<u8>> {
    serde_json::to_vec(release)
        .map_err(|e| Error::Internal(format!("the release's record cannot be written: {e}")))
}

fn record_name(name: &ReleaseName) -> String {
    format!("{name}.json")
}
