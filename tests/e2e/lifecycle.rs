//! The life of an environment on real parts: it is bootstrapped, converges, gets another bundle, another secret, a broken
//! bundle, and goes down with its data kept and at last deleted.

use crate::lab::{Lab, page_at, traced};
use crate::support::real_docker::IMAGE;
use crate::support::real_process::{find_program, free_port};
use crate::support::skip;
use control_plane::{BundleBuilder, Peer};
use serde_json::json;

/// A web server with a volume; its greeting is a secret in a sentence.
fn compose(port: u16) -> String {
    format!(
        r#"
services:
  web:
    image: {IMAGE}
    restart: unless-stopped
    env_file: .env
    environment:
      INTERPOLATED: "${{GREETING}}"
    ports: ["127.0.0.1:{port}:8080"]
    volumes: ["data:/data"]
volumes:
  data: {{}}
"#
    )
}

fn bundle(lab: &Lab, generation: u64, port: u16, greeting: &str) -> BundleBuilder {
    lab.bundle(generation, &compose(port))
        .template(&format!("# greets\nGREETING={greeting} ${{DB}}\n"))
        .secret("DB", "see/db")
}

#[test]
fn an_environment_lives_from_bootstrap_to_purge() {
    let Some(mut lab) = Lab::open("env-life") else {
        return;
    };
    // Nothing is due by itself after a failure.
    lab.agent.set("interval_s", "600");
    let port = free_port();
    lab.put_secret("db", &json!({"value": "pa$$ 'word' #1"}));

    // Bootstrap and the first apply.
    let first = lab.want(&bundle(&lab, 1, port, "hello"));
    let ran = lab.agent.timer_tick();
    ran.exits(0)
        .says("logged in with the bootstrap grant")
        .says("applied");
    ran.is_silent_on("pa$$ 'word'");
    assert_eq!(page_at(port), "hello from busybox\n");
    let environ = lab.environ("web");
    assert_eq!(environ["GREETING"], "hello pa$$ 'word' #1");
    assert_eq!(environ["INTERPOLATED"], "hello pa$$ 'word' #1");
    let reports = lab.reports();
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert_eq!(
        (&reports[0]["result"], &reports[0]["sha"]),
        (&json!("applied"), &json!(first.sha()))
    );
    assert_eq!(reports[0]["secrets"], json!(["DB"]));
    assert_eq!(reports[0]["containers"][0]["state"], "running");
    assert_eq!(lab.agent.state()["token"]["source"], "lease");
    assert_eq!(lab.plane.tenancy().lease_reasons(), ["apply"]);

    // The tick after it looks at docker once more, because something was changed; nothing is done.
    let web = lab.service("web").id;
    lab.agent.timer_tick().exits(0).says("converged");
    assert_eq!(lab.service("web").id, web);
    assert_eq!(lab.reports().len(), 1);

    // Another bundle: the container is replaced, the lease's token is used again.
    let second = lab.want(&bundle(&lab, 2, port, "bonjour"));
    lab.agent.timer_tick().exits(0);
    assert_eq!(lab.environ("web")["GREETING"], "bonjour pa$$ 'word' #1");
    assert_eq!(page_at(port), "hello from busybox\n");
    assert_eq!(lab.applied().as_deref(), Some(second.sha()));
    assert_eq!(lab.plane.tenancy().leases_granted(), 1);

    // Another version of the secret: the same bundle gives another release, and the container sees it.
    lab.put_secret("db", &json!({"value": "two"}));
    lab.plane.tenancy().set(|s| s.force_apply = true);
    lab.agent.timer_tick().exits(0);
    assert_eq!(lab.environ("web")["INTERPOLATED"], "bonjour two");
    assert_eq!(lab.agent.current(), Some(format!("{}-2", second.sha())));
    assert_eq!(lab.agent.state()["applied"]["secrets"][0]["version"], 2);

    // The same once more changes nothing: the same release, the same container.
    let web = lab.service("web").id;
    lab.agent.timer_tick().exits(0);
    assert_eq!(lab.service("web").id, web);
    assert_eq!(lab.agent.current(), Some(format!("{}-2", second.sha())));
    lab.plane.tenancy().set(|s| s.force_apply = false);

    // A bundle whose bytes are not what they should be: the old one keeps running, tenancy is told once.
    let told = lab.reports().len();
    let third = bundle(&lab, 3, port, "salut").build();
    lab.plane.apply(&third);
    lab.plane
        .tenancy()
        .add_bundle_as(third.sha(), second.bytes());
    lab.agent.tick().exits(1).says("BUNDLE_SHA_MISMATCH");
    lab.agent.timer_tick().exits(0).says("not_due");
    lab.agent.tick().exits(1).says("BUNDLE_SHA_MISMATCH");
    lab.last_report_is("BUNDLE_SHA_MISMATCH");
    assert_eq!(lab.reports().len(), told + 1);
    assert_eq!(lab.service("web").id, web);
    assert_eq!(page_at(port), "hello from busybox\n");
    assert_eq!(lab.applied().as_deref(), Some(second.sha()));

    // Down: the data stays, the values go.
    lab.docker
        .exec(&web, &["sh", "-c", "echo precious > /data/file"]);
    lab.plane.down(false);
    lab.agent.tick().exits(0).says("volumes kept");
    assert!(lab.docker.ps(&lab.project()).is_empty());
    assert_eq!(
        lab.docker.volumes(&lab.project()),
        [format!("{}_data", lab.project())]
    );
    assert_eq!(lab.rendered_files(), [""; 0]);
    assert_eq!(lab.agent.current(), None);
    let reports = lab.reports();
    assert_eq!(reports[told + 1]["result"], "down");
    lab.agent.timer_tick().exits(0);
    assert_eq!(lab.reports().len(), told + 2, "a second down is no news");

    // Up again, and the data is still there.
    lab.want(&bundle(&lab, 1, port, "again"));
    lab.agent.timer_tick().exits(0);
    let web = lab.service("web").id;
    assert_eq!(lab.docker.exec(&web, &["cat", "/data/file"]), "precious");

    // Purged: not before this box allows it, and then although everything is down already.
    lab.plane.down(true);
    lab.agent
        .timer_tick()
        .exits(0)
        .says("volumes kept though tenancy asked");
    let report = lab.reports().pop().unwrap();
    assert!(
        report["detail"]
            .as_str()
            .unwrap()
            .contains("tick --purge-volumes"),
        "{report}"
    );
    assert_eq!(lab.docker.volumes(&lab.project()).len(), 1);
    lab.agent
        .run(&["tick", "--purge-volumes"])
        .exits(0)
        .says("volumes deleted");
    assert_eq!(lab.docker.volumes(&lab.project()), [""; 0]);
}

#[test]
fn the_box_may_allow_a_purge_by_its_configuration_unless_it_is_prod() {
    for (env_id, prod, volumes) in [("env-purge", "false", 0), ("env-keep", "true", 1)] {
        let Some(mut lab) = Lab::open(env_id) else {
            return;
        };
        lab.agent
            .set("volumes_on_absent", "purge")
            .set("prod", prod);
        lab.put_secret("db", &json!({"value": "x"}));
        lab.applies(&bundle(&lab, 1, free_port(), "hello"));
        assert_eq!(lab.docker.volumes(&lab.project()).len(), 1);
        lab.plane.down(true);
        let ran = lab.agent.timer_tick();
        ran.exits(0);
        assert_eq!(lab.docker.volumes(&lab.project()).len(), volumes);
        ran.says(if volumes == 0 {
            "volumes deleted"
        } else {
            "this box is prod"
        });
    }
}

#[test]
fn a_converged_tick_is_one_request_and_nothing_else() {
    let Some(lab) = Lab::open("env-calm") else {
        return;
    };
    if skip::require("strace", find_program("strace")).is_none() {
        return;
    }
    lab.put_secret("db", &json!({"value": "x"}));
    lab.applies(&bundle(&lab, 1, free_port(), "hello"));
    // This one looks at docker; the facts are fresh then.
    lab.agent.timer_tick().exits(0);
    let before = lab.agent.state();
    lab.plane.log().clear();

    let calls = "execve,connect,fsync,fdatasync,syncfs";
    let (ran, trace) = traced(&lab.agent, calls, &["tick"]);
    ran.exits(0);
    let log = lab.plane.log();
    let asked: Vec<String> = log
        .requests()
        .iter()
        .map(|entry| format!("{} {}", entry.request.method, entry.request.target))
        .collect();
    assert_eq!(asked, ["POST /v1/agent/checkin"]);
    assert_eq!(log.connections(Peer::Tenancy), 1);
    let count = |call: &str| trace.iter().filter(|line| line.contains(call)).count();
    // The agent itself, and tenancy: no process, no OpenBao, nothing forced to the disk.
    assert_eq!(count("execve("), 1, "{trace:#?}");
    assert_eq!(count("connect("), 1, "{trace:#?}");
    assert_eq!(count("sync"), 0, "{trace:#?}");
    assert_eq!(lab.agent.state(), before);
}
