//! The largest bundle that is allowed, 2,000 members in 4 MiB: verified, judged and staged durably, beside what a shell
//! would do with it.

use crate::estate::{Estate, bundle};
use crate::measure::{ROUNDS, in_turn, wall_ms};
use crate::table::{Table, ms, times};
use crate::timeline::Timeline;
use control_plane::Bundle;
use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::process::Command;

const MEMBERS: usize = 2_000;
/// With its header and padding a member takes 2 KiB of the tar.
const MEMBER_BYTES: usize = 1_500;
const STAGES: [&str; 3] = [
    "verifying the bundle",
    "judging the bundle",
    "staging the release",
];

/// Fills in the rows.
pub fn measure(table: &mut Table) {
    let estate = Estate::embedded();
    estate.plane.apply(&bundle(1, 0).build());
    estate.settle();
    let shell = estate.agent.path("shell");
    fs::create_dir(&shell).unwrap();

    let generation = Cell::new(1);
    let next = || {
        generation.set(generation.get() + 1);
        large(generation.get())
    };
    let tar = shell.join("bundle.tar");
    fs::write(&tar, next().bytes()).unwrap();
    let members = Command::new("tar").arg("tf").arg(&tar).output().unwrap();
    let members = members.stdout.iter().filter(|byte| **byte == b'\n').count();
    let mib = fs::metadata(&tar).unwrap().len() as f64 / f64::from(1 << 20);

    let [ours, theirs] = in_turn(
        ROUNDS,
        [
            &mut || {
                estate.plane.apply(&next());
                let spent = Timeline::of_tick(&estate.agent).sum(&STAGES);
                spent.wall - spent.docker
            },
            &mut || {
                let into = shell.join("tree");
                if into.exists() {
                    fs::remove_dir_all(&into).unwrap();
                }
                fs::create_dir(&into).unwrap();
                wall_ms(&mut by_shell(&tar, &into))
            },
        ],
    );
    table.row(
        &format!("bundle of {members} members, {mib:.1} MiB: verify, judge and stage, durable"),
        format!("{}, {}", ms(ours), times(ours, theirs)),
        "4 ×",
        format!("`sha256sum`, `tar x`, `sync -f`: {}", ms(theirs)),
    );
}

fn by_shell(tar: &Path, into: &Path) -> Command {
    let mut command = Command::new("sh");
    command
        .args([
            "-ec",
            "sha256sum \"$1\" && tar xf \"$1\" -C \"$2\" && sync -f \"$2\"",
            "sh",
        ])
        .args([tar, into]);
    command
}

fn large(generation: u64) -> Bundle {
    let small = bundle(generation, 0);
    // The four files of the bundle itself are members, too.
    let full = (0..MEMBERS - 4).fold(small, |bundle, n| {
        let text = format!("{generation} {n} ").repeat(MEMBER_BYTES / 4);
        bundle.file(
            &format!("config/{:02}/{n:04}.conf", n % 40),
            &text.as_bytes()[..MEMBER_BYTES],
        )
    });
    full.build()
}
