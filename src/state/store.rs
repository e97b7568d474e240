//! `state.json` on the disk: loaded under the lock, saved whole and durably, and only when it changed. A state that
//! cannot be read is moved aside, never deleted and never guessed at; one of a newer agent or of another environment is
//! refused.

use crate::code::Code;
use crate::error::{Error, Result};
use crate::host::clock::Timestamp;
use crate::host::disk::{Dir, Durability};
use crate::host::lock::Lock;
use crate::host::paths::state_dir;
use crate::names::EnvId;
use crate::outcome::ResultWord;
use crate::state::{Last, SCHEMA, State, legacy};
use serde_json::Value;
use std::io::ErrorKind;

/// The most that `state.json` may have, in bytes: the report spool alone may hold 1 MiB.
const STATE_CAP_BYTES: u64 = 8 * 1024 * 1024;

/// The state on the disk, as it was last read or written.
#[derive(Debug)]
pub struct Store {
    written: Vec<u8>,
}

/// Where a loaded state came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `state.json` of this agent.
    Own,
    /// There was none.
    New,
    /// It was written by 0.1.x.
    Imported,
    /// It could not be read and stands aside under this name.
    SetAside(String),
}

impl Store {
    /// Loads the state of `env_id` from `dir`.
    ///
    /// # Errors
    /// [`Error::StateNewer`], [`Error::StateForeign`], [`Error::FileUnsafe`], or a failed file operation.
    pub fn load(
        dir: &Dir,
        _: &Lock,
        env_id: &EnvId,
        warn: &mut dyn FnMut(String),
    ) -> Result<(Self, State, Origin)> {
        let fresh = |origin| {
            (
                Self {
                    written: Vec::new(),
                },
                State::new(env_id),
                origin,
            )
        };
        let bytes = match dir.read_ours(state_dir::STATE, STATE_CAP_BYTES, warn) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(fresh(Origin::New)),
            // It would be as large at the next tick: refusing it would stop the agent for ever.
            Err(Error::File { source, .. }) if source.kind() == ErrorKind::FileTooLarge => {
                return Ok(fresh(Origin::SetAside(set_aside(dir)?)));
            }
            Err(e) => return Err(e),
        };
        let path = dir.path().join(state_dir::STATE);
        let document: Option<Value> = serde_json::from_slice(&bytes).ok().filter(Value::is_object);
        let Some(document) = document else {
            return Ok(fresh(Origin::SetAside(set_aside(dir)?)));
        };
        let schema = document.get("schema").and_then(Value::as_u64);
        let owner = document.get("env_id").and_then(Value::as_str);
        if let Some(owner) = owner.filter(|owner| *owner != env_id.as_str()) {
            return Err(Error::StateForeign {
                path,
                env_id: owner.to_owned(),
            });
        }
        match schema {
            None => match legacy::import(&document, env_id) {
                Some(state) => Ok((
                    Self {
                        written: Vec::new(),
                    },
                    state,
                    Origin::Imported,
                )),
                None => Ok(fresh(Origin::SetAside(set_aside(dir)?))),
            },
            Some(schema) if schema > SCHEMA => Err(Error::StateNewer { path, schema }),
            Some(_) => match serde_json::from_value::<State>(document) {
                Ok(state) => Ok((Self { written: bytes }, state, Origin::Own)),
                Err(_) => Ok(fresh(Origin::SetAside(set_aside(dir)?))),
            },
        }
    }

    /// Loads the state for showing it, without the lock and without changing anything; `None` when there is none that
    /// can be read.
    pub fn peek(dir: &Dir) -> Option<State> {
        let bytes = dir.read(state_dir::STATE, STATE_CAP_BYTES).ok()??;
        serde_json::from_slice(&bytes).ok()
    }

    /// Adds to the state on the disk that this process panicked with `text`. The caller's process holds the lock, and is
    /// about to end.
    ///
    /// # Errors
    /// A failed file operation.
    pub fn note_panic(dir: &Dir, text: &str) -> Result<()> {
        let Some(mut state) = Self::peek(dir) else {
            return Ok(());
        };
        let detail: String = format!("{}: {text}", Code::Internal)
            .chars()
            .take(900)
            .collect();
        let code = Some(Code::Internal.as_str().to_owned());
        let at = Timestamp::now();
        state.last = Some(Last {
            result: ResultWord::Failed,
            code,
            detail: Some(detail),
            at,
        });
        state.failing_since.get_or_insert(at);
        let bytes = serde_json::to_vec_pretty(&state).unwrap_or_default();
        dir.write(state_dir::STATE, &bytes, 0o600, Durability::Synced)
    }

    /// Writes `state` durably unless it is what the disk already has.
    ///
    /// # Errors
    /// A failed file operation.
    pub fn save(&mut self, dir: &Dir, _: &Lock, state: &State) -> Result<()> {
        let mut bytes = Vec::with_capacity(self.written.len());
        serde_json::to_writer_pretty(&mut bytes, state)
            .map_err(|e| Error::Internal(format!("the state cannot be written: {e}")))?;
        bytes.push(b'\n');
        if bytes != self.written {
            dir.write(state_dir::STATE, &bytes, 0o600, Durability::Synced)?;
            self.written = bytes;
        }
        Ok(())
    }
}

fn set_aside(dir: &Dir) -> Result<String> {
    let stamp: String = Timestamp::now()
        .to_string()
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect();
    let name = format!("{}.corrupt-{stamp}", state_dir::STATE);
    dir.rename(state_dir::STATE, &name)?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::interrupt::Interrupt;
    use crate::host::lock::Contended;

    struct Bench {
        _temp: tempfile::TempDir,
        dir: Dir,
        lock: Lock,
        env: EnvId,
    }

    fn bench() -> Bench {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        let lock = Lock::acquire(
            &dir,
            Contended::Fail,
            &Interrupt::never().unwrap(),
            &mut |_| {},
        )
        .unwrap();
        Bench {
            _temp: temp,
            dir,
            lock,
            env: EnvId::new("env-a").unwrap(),
        }
    }

    impl Bench {
        fn put(&self, text: &str) {
            self.dir
                .write("state.json", text.as_bytes(), 0o600, Durability::Renamed)
                .unwrap();
        }

        fn load(&self) -> Result<(Store, State, Origin)> {
            Store::load(&self.dir, &self.lock, &self.env, &mut |_| {})
        }
    }

    #[test]
    fn a_state_survives_and_is_written_only_when_it_changed() {
        let bench = bench();
        let (mut store, mut state, origin) = bench.load().unwrap();
        assert_eq!(origin, Origin::New);
        state.spend(crate::names::Sha256::of(b"g"));
        store.save(&bench.dir, &bench.lock, &state).unwrap();
        let (mut store, again, origin) = bench.load().unwrap();
        assert_eq!((origin, &again), (Origin::Own, &state));
        std::fs::remove_file(bench.dir.path().join("state.json")).unwrap();
        store.save(&bench.dir, &bench.lock, &again).unwrap();
        assert!(
            !bench.dir.path().join("state.json").exists(),
            "an unchanged state is not written"
        );
    }

    #[test]
    fn a_torn_state_is_set_aside() {
        let bench = bench();
        for text in [
            "",
            "{\"schema\": 1",
            "\0\0\0\0",
            "[]",
            "{\"schema\": 1, \"env_id\": \"env-a\", \"history\": 7}",
            "{\"x\": 1}",
        ] {
            bench.put(text);
            let (_, state, origin) = bench.load().unwrap();
            let Origin::SetAside(name) = origin else {
                panic!("{text:?}: {origin:?}")
            };
            assert_eq!(
                std::fs::read_to_string(bench.dir.path().join(name)).unwrap(),
                text
            );
            assert_eq!(state, State::new(&bench.env));
        }
    }

    #[test]
    fn a_state_above_the_cap_is_set_aside_unless_others_may_write_it() {
        use std::os::unix::fs::PermissionsExt;
        let bench = bench();
        bench.put("{}");
        let path = bench.dir.path().join("state.json");
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(STATE_CAP_BYTES + 1).unwrap();
        let set_mode = |mode| {
            file.set_permissions(PermissionsExt::from_mode(mode))
                .unwrap()
        };
        set_mode(0o666);
        assert!(matches!(bench.load(), Err(Error::FileUnsafe { .. })));
        assert!(path.exists());
        set_mode(0o600);
        let (_, state, origin) = bench.load().unwrap();
        let Origin::SetAside(name) = origin else {
            panic!("{origin:?}")
        };
        assert_eq!(state, State::new(&bench.env));
        assert!(bench.dir.path().join(name).exists() && !path.exists());
    }

    #[test]
    fn a_newer_or_foreign_state_is_refused() {
        let bench = bench();
        bench.put("{\"schema\": 2, \"env_id\": \"env-a\"}");
        assert_eq!(bench.load().unwrap_err().exit().number(), 78);
        bench.put("{\"schema\": 1, \"env_id\": \"env-b\"}");
        assert!(bench.load().unwrap_err().to_string().contains("env-b"));
        assert!(bench.dir.path().join("state.json").exists());
    }
}
