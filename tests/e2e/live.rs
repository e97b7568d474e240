//! The stable project directory: what changed is recreated, and nothing else; files come and go with the bundle; what a
//! service or a person put there stays.

use crate::lab::Lab;
use crate::support::real_docker::IMAGE;
use control_plane::BundleBuilder;
use std::fs;
use std::path::Path;

/// `reader` mounts a file, a folder and a config of the bundle; `keeper` keeps data beside the compose file; `job` runs once
/// for each start; `other` has nothing to do with any of it.
fn compose() -> String {
    format!(
        r#"
services:
  reader:
    image: {IMAGE}
    restart: unless-stopped
    volumes: ["./conf/app.conf:/app.conf:ro", "./pages:/www:ro"]
    configs: [{{source: motd, target: /motd}}]
  keeper:
    image: {IMAGE}
    restart: unless-stopped
    volumes: ["./data:/data"]
  job:
    image: {IMAGE}
    restart: "no"
    command: ["true"]
  other:
    image: {IMAGE}
    restart: unless-stopped
configs:
  motd: {{file: ./motd.txt}}
"#
    )
}

fn bundle(lab: &Lab, generation: u64) -> BundleBuilder {
    lab.bundle(generation, &compose())
        .file("conf/app.conf", "one\n")
        .file("pages/index.html", "page one\n")
        .file("motd.txt", "motd one\n")
}

fn ids(lab: &Lab) -> [String; 4] {
    ["reader", "keeper", "job", "other"].map(|service| lab.service(service).id)
}

#[test]
fn only_a_service_whose_mounted_file_changed_is_recreated() {
    let Some(lab) = Lab::open("env-mounts") else {
        return;
    };
    lab.applies(&bundle(&lab, 1));
    let before = ids(&lab);
    let read = |path: &str| lab.docker.exec(&lab.service("reader").id, &["cat", path]);
    assert_eq!(read("/app.conf"), "one");

    let mut last = before[0].clone();
    let changes = [
        ("conf/app.conf", "two", "/app.conf"),
        ("pages/index.html", "page two", "/www/index.html"),
        ("motd.txt", "motd two", "/motd"),
    ];
    for (generation, (file, text, inside)) in (2..).zip(changes) {
        lab.applies(&bundle(&lab, generation).file(file, text));
        assert_eq!(read(inside), text);
        let now = ids(&lab);
        assert_ne!(now[0], last, "{file} changed, the reader is the same");
        assert_eq!(now[1..], before[1..], "{file}");
        last.clone_from(&now[0]);
    }
}

#[test]
fn an_untouched_service_keeps_its_container_over_ten_bundles() {
    let Some(lab) = Lab::open("env-ten") else {
        return;
    };
    lab.applies(&bundle(&lab, 1));
    let before = ids(&lab);
    let keeper = &before[1];
    lab.docker
        .exec(keeper, &["sh", "-c", "echo kept > /data/file"]);
    let started = |id: &str| lab.docker.inspect(id, "{{.State.StartedAt}}");
    let since = [0, 1, 3].map(|index: usize| started(&before[index]));
    for generation in 2..=11 {
        let changed = bundle(&lab, generation)
            .file("notes.txt", format!("nobody mounts this: {generation}"))
            .template(&format!("UNUSED={generation}\n"));
        lab.applies(&changed);
        assert_eq!(ids(&lab), before, "bundle {generation}");
    }
    assert_eq!([0, 1, 3].map(|index: usize| started(&before[index])), since);
    assert_eq!(lab.docker.exec(keeper, &["cat", "/data/file"]), "kept");
    assert_eq!(read(&lab.agent.live("data/file")), "kept\n");
    // Three releases are kept, each whole.
    let releases = fs::read_dir(lab.agent.deploy_dir().join("releases")).unwrap();
    let directories = releases.filter(|entry| entry.as_ref().unwrap().path().is_dir());
    assert_eq!(directories.count(), 3);
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn files_go_with_the_bundle_and_those_of_others_stay() {
    let Some(lab) = Lab::open("env-files") else {
        return;
    };
    let extra = bundle(&lab, 1)
        .file("old/deep/file.txt", "goes")
        .executable("bin/run", "#!/bin/sh\n");
    lab.applies(&extra);
    let live = |path: &str| lab.agent.live(path);
    assert_eq!(read(&live("old/deep/file.txt")), "goes");
    fs::write(live("note-of-the-operator"), "stays").unwrap();
    fs::write(live("conf/hand-made.conf"), "stays").unwrap();
    lab.docker.exec(
        &lab.service("keeper").id,
        &["sh", "-c", "mkdir /data/x && echo data > /data/x/y"],
    );

    lab.applies(&bundle(&lab, 2));
    assert!(!live("old").exists() && !live("bin").exists());
    for (path, text) in [
        ("note-of-the-operator", "stays"),
        ("conf/hand-made.conf", "stays"),
        ("data/x/y", "data\n"),
        ("conf/app.conf", "one\n"),
    ] {
        assert_eq!(read(&live(path)), text);
    }

    // A bundle that would write over somebody else's file is refused before anything that runs is touched.
    let current = lab.agent.current();
    let before = ids(&lab);
    lab.want(&bundle(&lab, 3).file("note-of-the-operator", "overwritten"));
    lab.agent.tick().exits(1).says("note-of-the-operator");
    lab.last_report_is("FILE_FAILED");
    assert_eq!(read(&live("note-of-the-operator")), "stays");
    assert_eq!((lab.agent.current(), ids(&lab)), (current, before));

    // Down leaves all of it but the values.
    lab.plane.down(false);
    lab.agent.tick().exits(0);
    assert_eq!(read(&live("data/x/y")), "data\n");
    assert_eq!(read(&live("note-of-the-operator")), "stays");
}

#[test]
fn a_job_is_no_reason_to_recreate_another_container() {
    let Some(lab) = Lab::open("env-job-live") else {
        return;
    };
    lab.applies(&bundle(&lab, 1));
    let before = ids(&lab);
    let changed = compose().replace("command: [\"true\"]", "command: [\"echo\", \"changed\"]");
    lab.applies(&bundle(&lab, 2).compose(&changed));
    let after = ids(&lab);
    assert_ne!(after[2], before[2]);
    assert_eq!(lab.docker.run(&["logs", &after[2]]), "changed");
    assert_eq!(
        [&after[0], &after[1], &after[3]],
        [&before[0], &before[1], &before[3]]
    );
}
