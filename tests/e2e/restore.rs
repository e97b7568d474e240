//! What a box does about trouble, on real containers: the old release comes back with its old values, what a person made
//! by hand is taken over with its data, what somebody removed is started again, and old images go while those that may
//! be needed stay.

use crate::lab::{Lab, page_at};
use crate::support::agent::Ran;
use crate::support::real_docker::{Container, IMAGE};
use crate::support::real_process::{free_port, run};
use control_plane::BundleBuilder;
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A web server that runs only while its secret is not `bad`, with a volume, and a job before it.
fn compose(image: &str, port: u16, word: &str) -> String {
    format!(
        r#"
services:
  migrate:
    image: {image}
    restart: "no"
    command: ["true"]
  web:
    image: {image}
    restart: unless-stopped
    env_file: .env
    command: ["sh", "-c", "test \"$$WORD\" != sick && test \"$$DB\" != bad || {{ echo cannot work; exit 4; }}; trap 'exit 0' TERM; httpd -f -p 8080 -h /www & wait"]
    environment:
      WORD: {word}
    ports: ["127.0.0.1:{port}:8080"]
    volumes: ["data:/data"]
volumes:
  data: {{}}
"#
    )
}

fn bundle(lab: &Lab, generation: u64, port: u16, word: &str) -> BundleBuilder {
    lab.bundle(generation, &compose(IMAGE, port, word))
        .template("DB=${DB}\n")
        .secret("DB", "see/db")
}

/// A tick of the timer after its interval, also behind a failure.
fn due_tick(lab: &Lab) -> Ran {
    // None is there before the first tick.
    let _ = fs::remove_file(lab.agent.state_dir().join("heartbeat"));
    lab.agent.timer_tick()
}

fn write_data(lab: &Lab, text: &str) {
    let web = lab.service("web").id;
    lab.docker
        .exec(&web, &["sh", "-c", &format!("echo {text} > /data/file")]);
}

fn data(lab: &Lab) -> String {
    let web = lab.service("web").id;
    lab.docker
        .exec(&web, &["cat", "/data/file"])
        .trim()
        .to_owned()
}

fn made_from(lab: &Lab, container: &Container) -> String {
    let format = "{{index .Config.Labels \"com.docker.compose.project.working_dir\"}}";
    lab.docker.inspect(&container.id, format).trim().to_owned()
}

#[test]
fn the_old_release_comes_back_with_its_old_value_and_the_new_one_is_held() {
    let Some(mut lab) = Lab::open("env-restore") else {
        return;
    };
    lab.agent
        .set("on_unhealthy", "restore")
        .set("stable_for_s", "2");
    let port = free_port();
    lab.put_secret("db", &json!({"value": "the old value"}));
    let first = lab.applies(&bundle(&lab, 1, port, "well"));
    write_data(&lab, "precious");
    let leases = lab.plane.tenancy().leases_granted();

    lab.put_secret("db", &json!({"value": "the new value"}));
    let second = lab.want(&bundle(&lab, 2, port, "sick"));
    let ran = due_tick(&lab);
    ran.exits(1)
        .says("UNHEALTHY")
        .says("bringing an earlier release back")
        .says("the applied release is up again");

    let environ = lab.environ("web");
    assert_eq!(
        (&*environ["DB"], &*environ["WORD"]),
        ("the old value", "well")
    );
    assert_eq!(page_at(port), "hello from busybox\n");
    assert_eq!(data(&lab), "precious");
    assert_eq!(lab.agent.current(), Some(format!("{}-1", first.sha())));
    assert_eq!(lab.applied().as_deref(), Some(first.sha()));
    assert_eq!(lab.plane.tenancy().leases_granted(), leases);
    let report = lab.last_report_is("UNHEALTHY");
    assert_eq!(report["restored"], first.sha());
    let tail = report["log_tail"].as_str().unwrap();
    assert!(tail.contains("cannot work"), "{tail}");

    // Held: nothing is deployed again.
    let web = lab.service("web").id;
    for _ in 0..3 {
        due_tick(&lab).exits(1).says("is held since");
    }
    assert_eq!(lab.service("web").id, web);
    assert_eq!(lab.agent.state()["held"]["sha"], second.sha());

    // Another bundle ends it, and the newer value is used.
    lab.want(&bundle(&lab, 3, port, "fine"));
    due_tick(&lab).exits(0).says("applied");
    let environ = lab.environ("web");
    assert_eq!(
        (&*environ["DB"], &*environ["WORD"]),
        ("the new value", "fine")
    );

    // By hand, back once more, with the value of then.
    lab.agent.run(&["restore"]).exits(0).says("is up again");
    let environ = lab.environ("web");
    assert_eq!(
        (&*environ["DB"], &*environ["WORD"]),
        ("the old value", "well")
    );
    assert_eq!(data(&lab), "precious");
    due_tick(&lab).exits(1).says("is held since");
    assert_eq!(lab.reports().pop().unwrap()["detail"], "restored by hand");
    lab.agent.tick().exits(0).says("applied");
    assert_eq!(lab.environ("web")["WORD"], "fine");
}

#[test]
fn a_rotated_secret_that_breaks_the_applied_bundle_is_undone() {
    let Some(mut lab) = Lab::open("env-rotated") else {
        return;
    };
    lab.agent
        .set("on_unhealthy", "restore")
        .set("stable_for_s", "2");
    let port = free_port();
    lab.put_secret("db", &json!({"value": "good"}));
    let only = lab.applies(&bundle(&lab, 1, port, "well"));
    lab.put_secret("db", &json!({"value": "bad"}));
    lab.plane
        .tenancy()
        .set(|settings| settings.force_apply = true);
    due_tick(&lab).exits(1).says("is up again");
    assert_eq!(lab.environ("web")["DB"], "good");
    assert_eq!(lab.agent.current(), Some(format!("{}-1", only.sha())));
    due_tick(&lab).exits(1).says("is held since");
    lab.put_secret("db", &json!({"value": "better"}));
    lab.agent.tick().exits(0).says("applied");
    assert_eq!(lab.environ("web")["DB"], "better");
}

/// `docker compose up` as a person types it.
fn up_by_hand(lab: &Lab, directory: &Path, compose: &str, env: &str) {
    fs::create_dir(directory).unwrap();
    fs::write(directory.join("docker-compose.yml"), compose).unwrap();
    fs::write(directory.join(".env"), env).unwrap();
    let mut by_hand = lab.docker.command(["compose", "-p", &lab.project(), "-f"]);
    by_hand.arg(directory.join("docker-compose.yml"));
    run(by_hand.args(["up", "-d"]));
}

#[test]
fn what_a_person_made_by_hand_is_refused_and_then_taken_over_with_its_data() {
    let Some(lab) = Lab::open("env-adopt") else {
        return;
    };
    let port = free_port();
    let theirs = lab.agent.path("theirs");
    up_by_hand(&lab, &theirs, &compose(IMAGE, port, "theirs"), "DB=typed\n");
    write_data(&lab, "grown");
    lab.put_secret("db", &json!({"value": "ours"}));
    lab.want(&bundle(&lab, 1, port, "well"));
    due_tick(&lab)
        .exits(1)
        .says("PROJECT_CONFLICT")
        .says(&theirs.display().to_string())
        .says("`monky-deployd tick --adopt`");
    assert_eq!(lab.environ("web")["WORD"], "theirs");

    lab.agent
        .run(&["tick", "--adopt"])
        .exits(0)
        .says("taking over a deployment that was made by hand")
        .says("applied");
    let environ = lab.environ("web");
    assert_eq!((&*environ["DB"], &*environ["WORD"]), ("ours", "well"));
    assert_eq!(data(&lab), "grown");
    let live = lab.agent.live("");
    let live = live.canonicalize().unwrap();
    assert_eq!(
        made_from(&lab, &lab.service("web")),
        live.display().to_string()
    );

    lab.want(&bundle(&lab, 2, port, "later"));
    due_tick(&lab).exits(0).says("applied");
    assert_eq!(lab.environ("web")["WORD"], "later");
    assert_eq!(data(&lab), "grown");
}

#[test]
fn an_adopted_container_that_compose_leaves_alone_is_no_stranger_later() {
    let Some(lab) = Lab::open("env-adopt-same") else {
        return;
    };
    let same = format!("services:\n  web:\n    image: {IMAGE}\n    restart: always\n");
    let theirs = lab.agent.path("theirs");
    up_by_hand(&lab, &theirs, &same, "");
    lab.want(&lab.bundle(1, &same));
    due_tick(&lab).exits(1).says("PROJECT_CONFLICT");
    // Compose makes nothing anew here, so the container goes on saying where it was made.
    lab.agent.run(&["tick", "--adopt"]).exits(0).says("applied");
    let more = format!("{same}  more:\n    image: {IMAGE}\n    restart: always\n");
    lab.want(&lab.bundle(2, &more));
    due_tick(&lab).exits(0).says("applied");
    assert_eq!(lab.service("more").state, "running");
}

#[test]
fn what_somebody_removed_is_started_again_and_the_job_is_not() {
    let Some(mut lab) = Lab::open("env-drift") else {
        return;
    };
    lab.agent
        .set("on_drift", "repair")
        .set("facts_interval_s", "0");
    let port = free_port();
    lab.put_secret("db", &json!({"value": "the value"}));
    lab.applies(&bundle(&lab, 1, port, "well"));
    write_data(&lab, "precious");
    let job = lab.service("migrate");
    let started = |job: &Container| lab.docker.inspect(&job.id, "{{.State.StartedAt}}");
    let first_start = started(&job);
    let leases = lab.plane.tenancy().leases_granted();

    let before = lab.service("web").id;
    lab.docker.run(&["rm", "-f", &before]);
    due_tick(&lab)
        .exits(0)
        .says("web missing")
        .says("started again what had drifted");
    let web = lab.service("web");
    assert_ne!(web.id, before);
    assert_eq!(lab.environ("web")["DB"], "the value");
    assert_eq!(page_at(port), "hello from busybox\n");
    assert_eq!(data(&lab), "precious");
    assert_eq!(lab.service("migrate").id, job.id);
    assert_eq!(started(&job), first_start);
    assert_eq!(lab.plane.tenancy().leases_granted(), leases);
    let told = lab.plane.checkins().pop().unwrap()["drift"].clone();
    assert_eq!(told, json!([{"service": "web", "why": "missing"}]));
    due_tick(&lab)
        .exits(0)
        .says("everything runs again as it was applied");

    // Stopped, where a person's stop is respected.
    lab.agent.set("on_drift", "report");
    lab.docker.run(&["stop", "-t", "1", &web.id]);
    for _ in 0..2 {
        due_tick(&lab).exits(0);
    }
    assert_eq!(lab.service("web").state, "exited");
    lab.agent.set("on_drift", "repair");
    due_tick(&lab).exits(0).says("started again");
    let again = lab.service("web");
    assert_eq!((again.id, &*again.state), (web.id, "running"));
}

#[test]
fn old_images_go_and_those_of_kept_releases_and_of_strangers_stay() {
    let Some(mut lab) = Lab::open("env-prune") else {
        return;
    };
    lab.agent.set("keep_releases", "1");
    let name = |n: u64| format!("monky-deployd-test/prune:{n}");
    let ids: Vec<String> = (1..=5)
        .map(|n| lab.docker.make_image(&name(n), &format!("page {n}\n")))
        .collect();
    let is_there = |n: u64| {
        let inspected = lab.docker.try_run(&["image", "inspect", &name(n)]);
        inspected.status.success()
    };
    let port = free_port();
    lab.put_secret("db", &json!({"value": "x"}));
    let with_image = |n: u64| {
        lab.bundle(n, &compose(&name(n), port, "well"))
            .template("DB=${DB}\n")
            .secret("DB", "see/db")
    };
    // A stranger's container, which does not even run.
    let stranger = lab.docker.run(&["create", &name(2)]).trim().to_owned();
    for n in 1..=4 {
        lab.applies(&with_image(n));
        assert_eq!(page_at(port), format!("page {n}\n"));
    }
    assert_eq!(
        [1, 2, 3, 4, 5].map(is_there),
        [false, true, true, true, true],
        "{ids:?}"
    );
    // The one before has all that it needs.
    lab.agent.run(&["restore"]).exits(0);
    assert_eq!(page_at(port), "page 3\n");
    lab.agent.tick().exits(0);

    // `tick --prune` looks at all images. Here it is shown these alone: another test's may lie about unused.
    let shown = lab.agent.path("shown");
    fs::write(&shown, ids.join("\n")).unwrap();
    let shim = lab.agent.path("docker-shim");
    let text = format!(
        "#!/bin/sh\n[ \"$1 $2\" = \"image ls\" ] || exec docker \"$@\"\ndocker \"$@\" | grep -F -f {}\n",
        shown.display()
    );
    fs::write(&shim, text).unwrap();
    fs::set_permissions(&shim, fs::Permissions::from_mode(0o755)).unwrap();
    lab.agent.set("docker_bin", shim.to_str().unwrap());
    lab.agent
        .run(&["tick", "--prune"])
        .exits(0)
        .says("old image deleted");
    assert_eq!(
        [1, 2, 3, 4, 5].map(is_there),
        [false, true, true, true, false]
    );

    lab.docker.run(&["rm", "-f", &stranger]);
    lab.docker.cleanup(&lab.project());
    for n in 2..=4 {
        lab.docker.run(&["rmi", &name(n)]);
    }
}
