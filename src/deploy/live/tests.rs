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
