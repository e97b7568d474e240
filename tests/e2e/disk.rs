//! A full disk, on a real small file system: what does not fit is refused or put off in clear words, the old release stays
//! current and whole, and everything goes on when there is space again.

use crate::lab::Lab;
use crate::support::real_docker::IMAGE;
use crate::support::skip;
use control_plane::BundleBuilder;
use serde_json::json;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system in memory, of a size of its own; unmounted on drop.
struct Tmpfs {
    path: PathBuf,
}

impl Tmpfs {
    fn mount(path: &Path, options: &str) -> Result<Self, String> {
        fs::create_dir_all(path).unwrap();
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(path)
            .output()
            .map_err(|e| format!("no program mount: {e}"))?;
        if output.status.success() {
            Ok(Self {
                path: path.to_owned(),
            })
        } else {
            let words = String::from_utf8_lossy(&output.stderr);
            Err(format!("mounting a tmpfs needs root: {}", words.trim()))
        }
    }

    fn resize(&self, options: &str) {
        let status = Command::new("mount")
            .args(["-o", &format!("remount,{options}")])
            .arg(&self.path)
            .status();
        assert!(status.unwrap().success());
    }

    /// Leaves this many bytes free, and no more.
    fn leave_free(&self, bytes: u64) {
        let ballast = self.path.join("ballast");
        let _ = fs::remove_file(&ballast);
        let stat = rustix::fs::statvfs(&self.path).unwrap();
        let fill = (stat.f_bavail * stat.f_frsize).saturating_sub(bytes);
        let mut file = File::create(&ballast).unwrap();
        file.write_all(&vec![1; usize::try_from(fill).unwrap()])
            .unwrap();
    }

    fn empty(&self) {
        let _ = fs::remove_file(self.path.join("ballast"));
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Lazily: a container that mounts something of it goes a moment later.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

/// A lab whose directory of this kind stands on a small file system; that one comes second, so that it is unmounted first.
fn lab_on(env_id: &str, place: Place, options: &str) -> Option<(Lab, Tmpfs)> {
    let mut lab = Lab::open(env_id)?;
    let path = match place {
        Place::State => lab.agent.state_dir(),
        Place::Deploy => {
            let path = lab.agent.path("deploy");
            lab.agent.set("deploy_dir", path.to_str().unwrap());
            path
        }
    };
    let tmpfs = skip::require(
        "tmpfs",
        Tmpfs::mount(&path, &format!("{options},mode=0700")),
    )?;
    Some((lab, tmpfs))
}

#[derive(Clone, Copy)]
enum Place {
    State,
    Deploy,
}

fn bundle(lab: &Lab, generation: u64) -> BundleBuilder {
    let compose = format!(
        "services:\n  web:\n    image: {IMAGE}\n    restart: unless-stopped\n    environment: {{GENERATION: \"{generation}\"}}\n"
    );
    lab.bundle(generation, &compose)
        .file("big.bin", big_file(generation))
}

/// Another content in every bundle, so that every apply has to write it.
fn big_file(generation: u64) -> Vec<u8> {
    format!("{generation:08}").repeat(25_000).into_bytes()
}

/// The release that is current is the one that runs, with every file in `live/`.
#[track_caller]
fn is_whole(lab: &Lab, generation: u64) {
    assert_eq!(lab.environ("web")["GENERATION"], generation.to_string());
    let big = fs::read(lab.agent.live("big.bin")).unwrap();
    assert!(big == big_file(generation), "live/ is not at {generation}");
    assert!(lab.agent.live(".env").exists());
    let release = lab.agent.current().unwrap();
    let release = lab.agent.deploy_dir().join("releases").join(release);
    let big = fs::read(release.join("big.bin")).unwrap();
    assert!(
        big == big_file(generation),
        "current is not at {generation}"
    );
}

#[test]
fn a_disk_without_enough_bytes_is_told_before_anything_is_fetched_for_it() {
    let Some((mut lab, _tmpfs)) = lab_on("env-bytes", Place::Deploy, "size=8m,nr_inodes=0") else {
        return;
    };
    let first = lab.applies(&bundle(&lab, 1));
    let place = lab.agent.deploy_dir().display().to_string();

    // What the bundle says that it needs, by the factor of the configuration.
    lab.agent.set("disk_factor", "2.0");
    let hungry = bundle(&lab, 2).meta_with(&json!({"agent": {"disk_need_bytes": 5_000_000}}));
    let hungry = lab.want(&hungry);
    lab.agent.tick().exits(1).says("DISK_SHORT").says(&place);
    lab.last_report_is("DISK_SHORT");
    assert_eq!(lab.applied().as_deref(), Some(first.sha()));
    is_whole(&lab, 1);

    // What the configuration keeps free.
    lab.agent
        .set("disk_factor", "1.0")
        .set("disk_headroom_bytes", "4000000");
    lab.agent.tick().exits(1).says("DISK_SHORT");
    lab.agent.set("disk_headroom_bytes", "0");
    lab.agent.timer_tick().exits(0);
    assert_eq!(lab.applied().as_deref(), Some(hungry.sha()));
    is_whole(&lab, 2);
}

#[test]
fn a_disk_without_enough_inodes_is_told() {
    let options = "size=64m,nr_inodes=900";
    let Some((lab, tmpfs)) = lab_on("env-inodes", Place::Deploy, options) else {
        return;
    };
    let wanted = lab.want(&bundle(&lab, 1));
    lab.agent.tick().exits(1).says("DISK_SHORT").says("inodes");
    lab.last_report_is("DISK_SHORT");
    tmpfs.resize("nr_inodes=4000");
    lab.agent.tick().exits(0);
    assert_eq!(lab.applied().as_deref(), Some(wanted.sha()));
}

/// Levels of fullness from nothing free to enough, in bytes.
const LEVELS: [u64; 9] = [
    0, 4_096, 16_384, 65_536, 131_072, 262_144, 393_216, 655_360, 1_048_576,
];

/// At every level the tick of a new bundle either succeeds or says that there is no space; the old release stays whole.
#[track_caller]
fn survives_every_level(lab: &Lab, tmpfs: &Tmpfs) {
    lab.applies(&bundle(lab, 1));
    let mut running = 1;
    let mut failures = 0;
    for (generation, free) in (2..).zip(LEVELS) {
        let wanted = lab.want(&bundle(lab, generation));
        tmpfs.leave_free(free);
        let ran = lab.agent.tick();
        match ran.code() {
            Some(0) => running = generation,
            Some(75) => {
                failures += 1;
                ran.says("NO_SPACE").says(tmpfs.path.to_str().unwrap());
            }
            _ => panic!("{free} bytes free\n{}", ran.story()),
        }
        is_whole(lab, running);
        tmpfs.empty();
        if running != generation {
            lab.agent.tick().exits(0);
            running = generation;
        }
        assert_eq!(lab.applied().as_deref(), Some(wanted.sha()));
        is_whole(lab, running);
    }
    assert!(failures >= 2, "no level was too full");
}

#[test]
fn a_full_deploy_directory_puts_the_apply_off() {
    let Some((lab, tmpfs)) = lab_on("env-full-deploy", Place::Deploy, "size=8m,nr_inodes=0") else {
        return;
    };
    survives_every_level(&lab, &tmpfs);
}

#[test]
fn a_full_state_directory_puts_the_tick_off() {
    let Some((mut lab, tmpfs)) = lab_on("env-full-state", Place::State, "size=8m,nr_inodes=0")
    else {
        return;
    };
    // Only the state is on the small one.
    let deploy = lab.agent.path("deploy");
    lab.agent.set("deploy_dir", deploy.to_str().unwrap());
    survives_every_level(&lab, &tmpfs);
}
