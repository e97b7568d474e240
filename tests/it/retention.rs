//! Which releases stay on the disk, which of them keep their values, and what counts as a step back: over random lives of
//! a box, the agent's own parts (`State`, `Releases`, the rule against rollbacks) against a model that says what should
//! come out and not how. Nothing runs here; the files are real.

use monky_deployd::bundle::rollback::{self, Age};
use monky_deployd::deploy::release::{Release, Releases};
use monky_deployd::host::clock::Timestamp;
use monky_deployd::host::disk::Dir;
use monky_deployd::names::{BundlePath, EnvId, ReleaseName, Sha256};
use monky_deployd::state::{Applied, Down, HISTORY_LEN, Held, State};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use serde_json::Value;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

/// So many lives, if `PROPTEST_CASES` does not say otherwise.
const LIVES: u32 = 2_000;

#[derive(Clone, Copy, Debug)]
struct Bundle {
    number: u16,
    rendering: u8,
    /// `meta.agent.allow_rollback`.
    may_go_back: bool,
}

/// How an apply ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Good,
    /// The pull fails.
    BeforeUp,
    /// It is up, is not healthy, and stays (`on_unhealthy: keep`).
    UpAndStays,
    /// It is up, is not healthy, and the applied one comes back.
    UpAndRestored,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Apply(Bundle, End),
    /// So many bundles that were never seen, each good.
    Many(u16),
    /// Tenancy says `none`.
    GoBack,
    /// `restore`, and `restore SHA`.
    RestoreBefore,
    Restore(u16),
    Down,
}

fn event() -> impl Strategy<Value = Event> {
    let bundle = (0..6_u16, 0..3_u8, prop::bool::weighted(0.3)).prop_map(
        |(number, rendering, may_go_back)| Bundle {
            number,
            rendering,
            may_go_back,
        },
    );
    let end = prop_oneof![
        4 => Just(End::Good),
        1 => Just(End::BeforeUp),
        2 => Just(End::UpAndStays),
        2 => Just(End::UpAndRestored),
    ];
    prop_oneof![
        240 => (bundle, end).prop_map(|(bundle, end)| Event::Apply(bundle, end)),
        32 => Just(Event::GoBack),
        48 => Just(Event::RestoreBefore),
        48 => (0..6_u16).prop_map(Event::Restore),
        16 => Just(Event::Down),
        1 => (40..60_u16).prop_map(Event::Many),
    ]
}

fn sha(number: u16) -> Sha256 {
    Sha256::new(&format!("{number:064x}")).unwrap()
}

/// The agent's side.
struct Agent {
    _dir: TempDir,
    root: PathBuf,
    releases: Releases,
    state: State,
    current: Option<ReleaseName>,
    keep: usize,
}

/// A bundle that was the applied one and is no more.
struct Departure {
    number: u16,
    release: ReleaseName,
    by_hand: bool,
}

/// A directory of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    number: u16,
    rendering: u8,
    has_values: bool,
    touched: u64,
}

/// What should be.
#[derive(Default)]
struct Model {
    applied: Option<(u16, ReleaseName)>,
    /// Since the last `down`.
    departures: Vec<Departure>,
    current: Option<ReleaseName>,
    directories: BTreeMap<ReleaseName, Kept>,
    /// Nothing has been deleted since everything was taken down.
    is_untidy: bool,
    /// There was more history than is remembered: from then on only the later part of it is known.
    has_forgotten: bool,
    now: u64,
    next_unseen: u16,
}

impl Model {
    /// Of every bundle that was once applied and is not now, in the order of their last leaving: those that another apply
    /// took the place of; what a person put aside by hand may come back.
    fn history(&self) -> Vec<Sha256> {
        let applied = self.applied.as_ref().map(|(number, _)| *number);
        let is_last = |at: usize| {
            let number = self.departures[at].number;
            self.departures[at + 1..]
                .iter()
                .all(|later| later.number != number)
        };
        (0..self.departures.len())
            .filter(|at| is_last(*at) && !self.departures[*at].by_hand)
            .map(|at| self.departures[at].number)
            .filter(|number| Some(*number) != applied)
            .map(sha)
            .collect()
    }

    fn before(&self) -> Option<&ReleaseName> {
        self.departures.last().map(|departure| &departure.release)
    }

    /// The applied one, the applied one before, the current one.
    fn needed(&self) -> Vec<ReleaseName> {
        let applied = self.applied.as_ref().map(|(_, release)| release);
        let mut needed: Vec<ReleaseName> = [applied, self.before(), self.current.as_ref()]
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        needed.sort();
        needed.dedup();
        needed
    }

    /// The release of a bundle's rendering: the one that is there with its values, or a new one.
    fn stage(&mut self, bundle: Bundle) -> ReleaseName {
        let sha = sha(bundle.number);
        let own = || {
            self.directories
                .iter()
                .filter(|(name, _)| name.sha() == sha)
        };
        let same = own().find(|(_, kept)| kept.has_values && kept.rendering == bundle.rendering);
        let name = same.map_or_else(
            || {
                let last = own().map(|(name, _)| name.number()).max().unwrap_or(0);
                ReleaseName::of(&sha, last + 1)
            },
            |(name, _)| name.clone(),
        );
        self.now += 1;
        let kept = Kept {
            number: bundle.number,
            rendering: bundle.rendering,
            has_values: true,
            touched: self.now,
        };
        self.directories.insert(name.clone(), kept);
        name
    }

    fn apply_is_done(&mut self, number: u16, release: &ReleaseName, by_hand: bool) {
        let before = self.applied.replace((number, release.clone()));
        if let Some((before, its_release)) = before.filter(|(before, _)| *before != number) {
            self.departures.push(Departure {
                number: before,
                release: its_release,
                by_hand,
            });
        }
        self.current = Some(release.clone());
    }

    /// The oldest that nobody needs go, until there are no more than may be kept.
    fn tidy(&mut self, keep: usize) {
        self.is_untidy = false;
        let needed = self.needed();
        let mut others: Vec<(u64, ReleaseName)> = self
            .directories
            .iter()
            .filter(|(name, _)| !needed.contains(name))
            .map(|(name, kept)| (kept.touched, name.clone()))
            .collect();
        others.sort();
        while !others.is_empty() && others.len() + needed.len() > keep {
            self.directories.remove(&others.remove(0).1);
        }
        for (_, name) in others {
            self.directories.get_mut(&name).unwrap().has_values = false;
        }
    }
}

impl Agent {
    fn new(keep: usize) -> Self {
        let memory = PathBuf::from("/dev/shm");
        let dir = tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir());
        let dir = dir.unwrap();
        let root = dir.path().to_owned();
        let deploy = Dir::open_or_create(&root).unwrap();
        Self {
            _dir: dir,
            releases: Releases::open(&deploy).unwrap(),
            root: root.join("releases"),
            state: State::new(&EnvId::new("env-a").unwrap()),
            current: None,
            keep,
        }
    }

    /// Writes what staging writes, at a time that leaves no doubt about the order.
    fn stage(&self, name: &ReleaseName, kept: &Kept) {
        let directory = self.root.join(name.as_str());
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(".env"), [kept.rendering]).unwrap();
        let release = Release {
            name: name.clone(),
            compose_file: BundlePath::new("docker-compose.yml").unwrap(),
            files: BTreeMap::new(),
            overlay: Value::Null,
            services: BTreeMap::new(),
            generation: None,
            rendered_at: None,
            secrets: Vec::new(),
            images: Vec::new(),
        };
        let record = self.root.join(format!("{name}.json"));
        fs::write(&record, serde_json::to_vec(&release).unwrap()).unwrap();
        let file = fs::File::options().write(true).open(record).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(kept.touched))
            .unwrap();
    }

    fn is_refused(&self, bundle: Bundle) -> bool {
        let age = |sha: &Sha256| Age {
            sha: sha.clone(),
            generation: None,
            rendered_at: None,
        };
        let applied = self.state.applied_sha().map(age);
        let (finding, _) = rollback::judge(
            &age(&sha(bundle.number)),
            applied.as_ref(),
            &self.state.history,
        );
        finding.is_some() && !bundle.may_go_back
    }

    fn tidy(&self) -> Vec<Release> {
        let kept = self.state.kept_releases(self.current.clone());
        self.releases.prune(&kept, self.keep).unwrap()
    }
}

fn applied(release: &ReleaseName) -> Applied {
    Applied {
        sha: release.sha(),
        release: Some(release.clone()),
        at: Timestamp::from_unix(0),
        generation: None,
        rendered_at: None,
        secrets: Vec::new(),
        duration_s: 0,
        running: Vec::new(),
    }
}

fn apply(
    agent: &mut Agent,
    model: &mut Model,
    bundle: Bundle,
    end: End,
) -> Result<(), TestCaseError> {
    let history = model.history();
    let known = &history[history.len() - agent.state.history.len()..];
    let is_old = known.contains(&sha(bundle.number)) && !bundle.may_go_back;
    prop_assert_eq!(agent.is_refused(bundle), is_old);
    if is_old {
        return Ok(());
    }
    let release = model.stage(bundle);
    agent.stage(&release, &model.directories[&release]);
    match end {
        End::Good => {
            model.apply_is_done(bundle.number, &release, false);
            agent.current = Some(release.clone());
            agent.state.note_applied(applied(&release));
        }
        End::BeforeUp => {}
        End::UpAndStays => {
            model.current = Some(release.clone());
            agent.current = Some(release);
        }
        End::UpAndRestored => {
            let before = model.applied.as_ref().map(|(_, release)| release.clone());
            model.current = before.clone().or(Some(release.clone()));
            let before = agent.state.applied.as_ref().and_then(|a| a.release.clone());
            agent.current = before.or(Some(release));
        }
    }
    model.tidy(agent.keep);
    let deleted = agent.tidy();
    prop_assert!(
        deleted
            .iter()
            .all(|release| !model.directories.contains_key(&release.name))
    );
    Ok(())
}

/// A person brings a release back: as `restore` chooses it, which must find the one before whenever there is one.
fn restore(agent: &mut Agent, model: &mut Model, wanted: Option<u16>) -> Result<(), TestCaseError> {
    let chosen = match wanted {
        None => agent
            .state
            .previous
            .as_ref()
            .and_then(|a| a.release.clone()),
        Some(number) => model
            .directories
            .iter()
            .filter(|(name, kept)| name.sha() == sha(number) && kept.has_values)
            .max_by_key(|(name, _)| name.number())
            .map(|(name, _)| name.clone()),
    };
    let Some(release) = chosen else { return Ok(()) };
    prop_assert!(agent.releases.load(&release).unwrap().is_some());
    prop_assert!(agent.root.join(release.as_str()).join(".env").exists());
    let number = model.directories[&release].number;
    let present = agent.current.replace(release.clone());
    let held = present
        .map(|present| present.sha())
        .filter(|present| *present != release.sha())
        .map(|sha| Held {
            sha,
            since: Timestamp::from_unix(0),
            why: String::new(),
        });
    let put_aside = agent.state.applied_sha().cloned();
    agent.state.note_restored(applied(&release), held.clone());
    model.apply_is_done(number, &release, true);
    model.tidy(agent.keep);
    agent.tidy();
    // What was put aside by hand is no step back when it comes again.
    if let Some(held) = held.filter(|held| Some(&held.sha) == put_aside.as_ref()) {
        prop_assert!(!agent.state.history.contains(&held.sha));
    }
    Ok(())
}

fn happen(agent: &mut Agent, model: &mut Model, event: Event) -> Result<(), TestCaseError> {
    match event {
        Event::Apply(bundle, end) => apply(agent, model, bundle, end)?,
        Event::Many(count) => {
            for _ in 0..count {
                model.next_unseen = model.next_unseen.max(1_000) + 1;
                let bundle = Bundle {
                    number: model.next_unseen,
                    rendering: 0,
                    may_go_back: false,
                };
                apply(agent, model, bundle, End::Good)?;
            }
        }
        Event::GoBack => {
            let applied = agent.state.applied.as_ref().and_then(|a| a.release.clone());
            if let Some(release) = applied {
                agent.current = Some(release);
                agent.tidy();
                model.current = model.applied.as_ref().map(|(_, release)| release.clone());
                model.tidy(agent.keep);
            }
        }
        Event::RestoreBefore => restore(agent, model, None)?,
        Event::Restore(number) => restore(agent, model, Some(number))?,
        Event::Down => {
            agent.current = None;
            agent.releases.forget_values().unwrap();
            agent.state.note_down(Down {
                at: Timestamp::from_unix(0),
                purged: false,
            });
            model.applied = None;
            model.departures.clear();
            model.has_forgotten = false;
            model.is_untidy = true;
            model.current = None;
            for kept in model.directories.values_mut() {
                kept.has_values = false;
            }
        }
    }
    compare(agent, model)
}

fn compare(agent: &Agent, model: &mut Model) -> Result<(), TestCaseError> {
    let state = &agent.state;
    let applied = state.applied.as_ref().and_then(|a| a.release.clone());
    let before = state.previous.as_ref().and_then(|a| a.release.clone());
    prop_assert_eq!(
        &applied,
        &model.applied.as_ref().map(|(_, release)| release.clone())
    );
    prop_assert_eq!(before.as_ref(), model.before());
    let history = model.history();
    model.has_forgotten |= history.len() > HISTORY_LEN;
    prop_assert!(history.ends_with(&state.history));
    prop_assert!(state.history.len() <= HISTORY_LEN);
    // Each restore may take one out of what is remembered, and brings none back.
    let fewest = if model.has_forgotten {
        HISTORY_LEN - 18
    } else {
        history.len()
    };
    prop_assert!(state.history.len() >= fewest);
    prop_assert!(
        state
            .applied_sha()
            .is_none_or(|sha| !state.history.contains(sha))
    );

    let on_disk: BTreeMap<ReleaseName, bool> = agent
        .releases
        .list()
        .unwrap()
        .into_iter()
        .map(|name| {
            let has_values = agent.root.join(name.as_str()).join(".env").exists();
            (name, has_values)
        })
        .collect();
    let expected: BTreeMap<ReleaseName, bool> = model
        .directories
        .iter()
        .map(|(name, kept)| (name.clone(), kept.has_values))
        .collect();
    prop_assert_eq!(&on_disk, &expected);

    let needed = model.needed();
    prop_assert!(model.is_untidy || on_disk.len() <= agent.keep.max(needed.len()));
    for name in &needed {
        prop_assert_eq!(on_disk.get(name), Some(&true), "{} is needed", name);
    }
    let with_values = on_disk.iter().filter(|(_, has_values)| **has_values);
    prop_assert!(
        with_values
            .into_iter()
            .all(|(name, _)| needed.contains(name))
    );
    // A record for each, and none without its release.
    prop_assert_eq!(
        fs::read_dir(&agent.root).unwrap().count(),
        2 * on_disk.len()
    );
    Ok(())
}

#[test]
fn whatever_happens_what_may_run_again_stays_whole_and_nothing_else_keeps_values() {
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(LIVES);
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    });
    let (lives, events) = (Cell::new(0_u32), Cell::new(0_usize));
    let strategy = (1..6_usize, prop::collection::vec(event(), 1..18));
    let outcome = runner.run(&strategy, |(keep, life)| {
        let (mut agent, mut model) = (Agent::new(keep), Model::default());
        for event in &life {
            happen(&mut agent, &mut model, *event)?;
        }
        lives.set(lives.get() + 1);
        events.set(events.get() + life.len());
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    println!("{} lives with {} events", lives.get(), events.get());
}
