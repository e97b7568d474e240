//! `live/` follows the release and touches nothing of anybody else's.

use super::*;
use crate::deploy::release::FileRecord;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

struct Bench {
    temp: tempfile::TempDir,
    deploy: Dir,
    releases: Releases,
}

fn bench() -> Bench {
    let temp = tempfile::tempdir().unwrap();
    let deploy = Dir::open(temp.path()).unwrap();
    let releases = Releases::open(&deploy).unwrap();
    Bench {
        temp,
        deploy,
        releases,
    }
}

impl Bench {
    /// Puts a release on the disk as staging does.
    fn release(&self, n: u32, files: &[(&str, &str)], env: &str) -> Release {
        let name = ReleaseName::of(&Sha256::of(b"bundle"), n);
        let root = self.temp.path().join("releases").join(name.as_str());
        let mut records = BTreeMap::new();
        for (path, content) in files {
            let full = root.join(path);
            std::fs::create_dir_all(full.parent().unwrap()).unwrap();
            std::fs::write(&full, content).unwrap();
            let record = FileRecord {
                sha256: Sha256::of(content.as_bytes()),
                executable: false,
            };
            records.insert(BundlePath::new(path).unwrap(), record);
        }
        std::fs::write(root.join(".env"), env).unwrap();
        Release {
            name,
            compose_file: BundlePath::new("compose.yaml").unwrap(),
            files: records,
            overlay: Value::Null,
            services: BTreeMap::new(),
            generation: None,
            rendered_at: None,
            secrets: Vec::new(),
            images: Vec::new(),
        }
    }

    fn promote(&self, release: &Release) -> Result<()> {
        let live = Live::open(&self.deploy)?;
        live.check(release)?;
        live.promote(&self.releases, release)
    }

    fn live(&self, path: &str) -> std::path::PathBuf {
        self.temp.path().join("live").join(path)
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn live_follows_the_release_and_leaves_what_is_not_ours() {
    let bench = bench();
    let one = bench.release(
        1,
        &[("compose.yaml", "one"), ("conf/a", "a"), ("conf/b", "b")],
        "X=1\n",
    );
    bench.promote(&one).unwrap();
    std::fs::create_dir(bench.live("data")).unwrap();
    std::fs::write(bench.live("data/db"), "rows").unwrap();
    std::fs::write(bench.live("conf/local"), "theirs").unwrap();
    let inode = std::fs::metadata(bench.live("conf/a")).unwrap().ino();

    let two = bench.release(2, &[("compose.yaml", "two"), ("conf/a", "a")], "X=2\n");
    bench.promote(&two).unwrap();
    assert_eq!(read(&bench.live("compose.yaml")), "two");
    assert_eq!(read(&bench.live(".env")), "X=2\n");
    assert!(!bench.live("conf/b").exists());
    assert_eq!(
        (
            read(&bench.live("data/db")),
            read(&bench.live("conf/local"))
        ),
        ("rows".into(), "theirs".into())
    );
    assert_eq!(
        std::fs::metadata(bench.live("conf/a")).unwrap().ino(),
        inode,
        "an unchanged file keeps its inode"
    );
    assert_eq!(current(&bench.deploy).unwrap(), Some(two.name));
    assert_eq!(
        std::fs::metadata(bench.live(".env")).unwrap().mode() & 0o777,
        0o600
    );
}

#[test]
fn a_file_of_somebody_else_is_never_replaced() {
    let bench = bench();
    bench
        .promote(&bench.release(1, &[("compose.yaml", "one")], ""))
        .unwrap();
    std::fs::write(bench.live("conf"), "theirs").unwrap();
    let two = bench.release(2, &[("compose.yaml", "two"), ("conf/a", "a")], "");
    let error = bench.promote(&two).unwrap_err().to_string();
    assert!(
        error.contains("live/conf") && error.contains("move it away"),
        "{error}"
    );
    assert_eq!(
        (read(&bench.live("conf")), read(&bench.live("compose.yaml"))),
        ("theirs".into(), "one".into())
    );
}

#[test]
fn a_file_may_become_a_directory_and_back() {
    let bench = bench();
    bench
        .promote(&bench.release(1, &[("compose.yaml", "x"), ("a", "file")], ""))
        .unwrap();
    bench
        .promote(&bench.release(2, &[("compose.yaml", "x"), ("a/b/c", "deep")], ""))
        .unwrap();
    assert_eq!(read(&bench.live("a/b/c")), "deep");
    bench
        .promote(&bench.release(3, &[("compose.yaml", "x"), ("a", "file")], ""))
        .unwrap();
    assert_eq!(read(&bench.live("a")), "file");
}

#[test]
fn a_projection_that_was_cut_off_is_finished() {
    let bench = bench();
    bench
        .promote(&bench.release(1, &[("compose.yaml", "one"), ("old", "old")], ""))
        .unwrap();
    let two = bench.release(2, &[("compose.yaml", "two"), ("new", "new")], "");
    // As after a kill between `current` and the first file: the record already lists both releases' files.
    bench
        .deploy
        .link("current", &format!("releases/{}", two.name))
        .unwrap();
    let live = Live::open(&bench.deploy).unwrap();
    let mut record = live.record().unwrap();
    record.release = None;
    record.files.extend(two.files.keys().cloned());
    live.write_record(&record).unwrap();
    std::fs::write(bench.live("new"), "ne").unwrap();

    bench.promote(&two).unwrap();
    assert_eq!(
        (read(&bench.live("compose.yaml")), read(&bench.live("new"))),
        ("two".into(), "new".into())
    );
    assert!(!bench.live("old").exists());
}

#[test]
fn a_link_in_live_leads_no_write_elsewhere() {
    let bench = bench();
    bench
        .promote(&bench.release(1, &[("compose.yaml", "one")], ""))
        .unwrap();
    let outside = bench.temp.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, bench.live("conf")).unwrap();
    let two = bench.release(2, &[("compose.yaml", "two"), ("conf/a", "a")], "");
    assert!(bench.promote(&two).is_err());
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
}

/// The names in the deploy directory and in `live/`.
fn names(bench: &Bench) -> (Vec<String>, Vec<String>) {
    let live = bench.deploy.subdir("live").unwrap().unwrap();
    (bench.deploy.names().unwrap(), live.names().unwrap())
}

#[test]
fn what_a_killed_projection_left_is_cleaned_outside_live() {
    let bench = bench();
    let one = bench.release(1, &[("compose.yaml", "one")], "X=1\n");
    bench.promote(&one).unwrap();
    let leave = || {
        std::fs::create_dir_all(bench.temp.path().join(".tmp")).unwrap();
        std::fs::write(bench.temp.path().join(".tmp/next"), "S=secret").unwrap();
        std::fs::write(bench.live("..env.tmp"), "S=secret").unwrap();
    };
    leave();
    bench.promote(&one).unwrap();
    let (deploy, live) = names(&bench);
    assert!(!deploy.contains(&".tmp".to_owned()), "{deploy:?}");
    assert_eq!(live, [".env", "compose.yaml"]);
    leave();
    Live::open(&bench.deploy).unwrap().forget_values().unwrap();
    let (deploy, live) = names(&bench);
    assert!(!deploy.contains(&".tmp".to_owned()), "{deploy:?}");
    assert_eq!(live, ["compose.yaml"]);
}

#[test]
fn every_name_that_a_bundle_may_have_fits_and_is_apart_from_temporaries() {
    let bench = bench();
    let long = "n".repeat(255);
    let files = [
        (".a.tmp", "its own"),
        ("..env.tmp", "not the variables"),
        ("a", "a"),
        ("compose.yaml", "x"),
        (long.as_str(), "long"),
    ];
    let one = bench.release(1, &files, "X=1\n");
    bench.promote(&one).unwrap();
    bench.promote(&one).unwrap();
    for (path, content) in files {
        assert_eq!(read(&bench.live(path)), content, "{path}");
    }
    assert_eq!(read(&bench.live(".env")), "X=1\n");
    let live = Live::open(&bench.deploy).unwrap();
    live.forget_values().unwrap();
    assert_eq!(read(&bench.live("..env.tmp")), "not the variables");
}

#[test]
fn a_staged_release_keeps_a_member_named_like_a_temporary() {
    let bench = bench();
    let long = "n".repeat(255);
    let mut tar = tar::Builder::new(Vec::new());
    for (name, content) in [
        ("docker-compose.yml", "services: {}\n"),
        (".env.template", "X=1\n"),
        ("secrets.manifest.json", "{\"entries\": []}"),
        ("meta.json", "{}"),
        ("..env.tmp", "member"),
        (long.as_str(), "long"),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        tar.append_data(&mut header, name, content.as_bytes())
            .unwrap();
    }
    let body = tar.into_inner().unwrap();
    let sha = Sha256::of(&body);
    let env_id = crate::names::EnvId::new("env-qa-02").unwrap();
    let bundle = crate::bundle::verify(body, &sha, &env_id).unwrap();
    let env = crate::secret::Secret::new("X=1\n".to_owned());
    let staging = bench.releases.begin(&bundle, &env).unwrap();
    assert_eq!(read(&staging.path().join("..env.tmp")), "member");
    assert_eq!(read(&staging.env_path()), "X=1\n");
    let mode = std::fs::metadata(staging.env_path()).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_services_own_file_named_like_a_temporary_is_kept() {
    let bench = bench();
    let one = bench.release(1, &[("compose.yaml", "one"), ("conf/a", "a")], "");
    bench.promote(&one).unwrap();
    std::fs::write(bench.live(".compose.yaml.tmp"), "theirs").unwrap();
    std::fs::write(bench.live("conf/.a.tmp"), "theirs").unwrap();
    let two = bench.release(2, &[("compose.yaml", "two"), ("conf/a", "b")], "");
    bench.promote(&two).unwrap();
    assert_eq!(read(&bench.live(".compose.yaml.tmp")), "theirs");
    assert_eq!(read(&bench.live("conf/.a.tmp")), "theirs");
    assert_eq!(read(&bench.live("conf/a")), "b");
}

#[test]
fn an_empty_directory_makes_room_for_a_file() {
    let bench = bench();
    let one = bench.release(1, &[("compose.yaml", "x"), ("gone", "x")], "");
    bench.promote(&one).unwrap();
    for path in ["conf/a", "gone", ".env"] {
        let _ = std::fs::remove_file(bench.live(path));
        std::fs::create_dir_all(bench.live(path)).unwrap();
    }
    let two = bench.release(2, &[("compose.yaml", "x"), ("conf/a", "a")], "X=2\n");
    bench.promote(&two).unwrap();
    assert_eq!(read(&bench.live("conf/a")), "a");
    assert_eq!(read(&bench.live(".env")), "X=2\n");
    assert!(!bench.live("gone").exists());
}

#[test]
fn what_replaced_our_file_gives_way_unless_something_is_in_it() {
    let bench = bench();
    let files = [("compose.yaml", "one"), ("conf/a", "a"), ("conf/b", "b")];
    let one = bench.release(1, &files, "X=1\n");
    bench.promote(&one).unwrap();
    std::fs::write(bench.temp.path().join("outside"), "theirs").unwrap();
    for path in ["conf/a", ".env"] {
        std::fs::remove_file(bench.live(path)).unwrap();
        std::os::unix::fs::symlink(bench.temp.path().join("outside"), bench.live(path)).unwrap();
    }
    std::fs::remove_file(bench.live("conf/b")).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(bench.live("conf/b")).unwrap();
    bench.promote(&one).unwrap();
    drop(socket);
    assert_eq!(read(&bench.live("conf/a")), "a");
    assert_eq!(read(&bench.live("conf/b")), "b");
    assert_eq!(read(&bench.live(".env")), "X=1\n");
    assert_eq!(read(&bench.temp.path().join("outside")), "theirs");

    let two = bench.release(2, &files, "X=2\n");
    for path in ["conf/a", ".env"] {
        std::fs::remove_file(bench.live(path)).unwrap();
        std::fs::create_dir(bench.live(path)).unwrap();
        std::fs::write(bench.live(path).join("theirs"), "theirs").unwrap();
        let live = Live::open(&bench.deploy).unwrap();
        for error in [
            live.check(&two).unwrap_err(),
            live.promote(&bench.releases, &two).unwrap_err(),
        ] {
            let text = error.to_string();
            assert!(
                text.contains(path) && text.contains("move it away"),
                "{text}"
            );
        }
        assert_eq!(current(&bench.deploy).unwrap(), Some(one.name.clone()));
        assert_eq!(read(&bench.live(path).join("theirs")), "theirs");
        std::fs::remove_dir_all(bench.live(path)).unwrap();
        std::fs::write(bench.live(path), "").unwrap();
    }
    bench.promote(&two).unwrap();
}

#[test]
fn a_removal_that_was_cut_off_leaves_no_directories() {
    let bench = bench();
    let one = bench.release(1, &[("compose.yaml", "x"), ("a/b/c/d", "d")], "");
    bench.promote(&one).unwrap();
    // As after a kill between two of the directories.
    std::fs::remove_file(bench.live("a/b/c/d")).unwrap();
    std::fs::remove_dir(bench.live("a/b/c")).unwrap();
    let two = bench.release(2, &[("compose.yaml", "x"), ("a", "file")], "");
    bench.promote(&two).unwrap();
    assert_eq!(read(&bench.live("a")), "file");
    // An empty directory of somebody else inside is no remainder of ours.
    std::fs::remove_file(bench.live("a")).unwrap();
    std::fs::create_dir_all(bench.live("a/data")).unwrap();
    assert!(bench.promote(&two).is_err());
    assert!(bench.live("a/data").is_dir());
}

#[test]
fn a_file_that_grew_past_the_limit_is_different() {
    let bench = bench();
    let one = bench.release(1, &[("compose.yaml", "one"), ("log", "log")], "");
    bench.promote(&one).unwrap();
    let grow = |path: &str| {
        let file = std::fs::File::create(bench.live(path)).unwrap();
        file.set_len(FILE_CAP_BYTES + 1).unwrap();
    };
    grow("log");
    bench.promote(&one).unwrap();
    assert_eq!(read(&bench.live("log")), "log");
    grow("other");
    let two = bench.release(2, &[("compose.yaml", "one"), ("other", "x")], "");
    let error = bench.promote(&two).unwrap_err().to_string();
    assert!(error.contains("move it away"), "{error}");
}
