//! Every request against everything that can go wrong with it: the defined exit code, in time, in words that help, with
//! the state and the old release as they were.

use crate::support::agent::Ran;
use crate::support::scene::{ENV, Scene, beside_each_other};
use control_plane::{Action, BodyLength, Peer, Response};
use serde_json::json;
use std::time::{Duration, Instant};

/// A request of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Checkin,
    Bundle,
    Lease,
    Report,
    Login,
    LookupSelf,
    RenewSelf,
    Read,
}

use Request::*;

impl Request {
    fn peer(self) -> Peer {
        match self {
            Checkin | Bundle | Lease | Report => Peer::Tenancy,
            Login | LookupSelf | RenewSelf | Read => Peer::Bao,
        }
    }

    fn path(self) -> &'static str {
        match self {
            Checkin => "/v1/agent/checkin",
            Bundle => "/v1/agent/bundle/",
            Lease => "/v1/agent/lease",
            Report => "/v1/agent/report",
            Login => "/v1/auth/jwt-tenancy/login",
            LookupSelf => "/v1/auth/token/lookup-self",
            RenewSelf => "/v1/auth/token/renew-self",
            Read => "/v1/monky/data/",
        }
    }

    /// The host's attribute that a dial error names.
    fn attribute(self) -> &'static str {
        match self.peer() {
            Peer::Tenancy => "#monky-deploy-agent",
            Peer::Bao => "#openbao-client",
        }
    }

    /// Sees to it that the next tick makes this request.
    fn prepare(self, scene: &Scene) {
        match self {
            Checkin | Bundle | Read => {}
            // What nobody knows is reported at every tick, and touches no container.
            Report => scene.plane.tenancy().set(|settings| {
                settings
                    .checkin_extra
                    .insert("action".into(), "dance".into());
            }),
            Lease => scene.edit_state(|state| state["token"]["source"] = "bootstrap".into()),
            Login => scene.lose_token(),
            LookupSelf => scene.edit_state(|state| state["token"]["source"] = "lease".into()),
            RenewSelf => scene.token_ends_in(3_600),
        }
    }
}

/// What a cell of the table comes to.
struct Expected {
    exit: i32,
    words: Vec<String>,
}

/// One column of the table.
struct Fault {
    name: &'static str,
    action: Action,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// No connection, or a broken one; these words tell how.
    Unreachable(&'static str),
    /// An answer that cannot be understood; these words tell why.
    Malformed(&'static str),
    /// A 200 with something else in it.
    Strange(&'static str),
    /// A status with its peer's words.
    Status(u16),
}

/// The cause of an answer that ends too early.
const BROKEN: &str = "the connection was closed in the middle of the answer";

fn faults() -> Vec<Fault> {
    let fault = |name, action, kind| Fault { name, action, kind };
    let status = |status, body| {
        fault(
            "a status",
            Action::json(status, &body),
            Kind::Status(status),
        )
    };
    let retry =
        Response::json(429, &json!({"detail": "slow down"})).with_header("Retry-After", "77");
    vec![
        fault(
            "reset",
            Action::Reset,
            Kind::Unreachable("Connection reset by peer"),
        ),
        fault(
            "closed without an answer",
            Action::Close,
            Kind::Unreachable(BROKEN),
        ),
        fault(
            "cut",
            Action::Cut {
                keep: 5,
                length: BodyLength::Declared,
            },
            Kind::Unreachable(BROKEN),
        ),
        // The reset overtakes the bytes or not.
        fault(
            "reset in the body",
            Action::ResetInBody { keep: 5 },
            Kind::Unreachable(""),
        ),
        fault(
            "cut without a length",
            Action::Cut {
                keep: 5,
                length: BodyLength::Absent,
            },
            Kind::Strange("not JSON"),
        ),
        fault(
            "huge",
            Action::Huge {
                bytes: 100 << 20,
                length: BodyLength::Declared,
            },
            Kind::Malformed("longer than 1048576 bytes"),
        ),
        fault(
            "huge without a length",
            Action::Huge {
                bytes: 100 << 20,
                length: BodyLength::Absent,
            },
            Kind::Malformed("longer than 1048576 bytes"),
        ),
        fault(
            "garbage",
            Action::Garbage(b"\x00\x01garbage\r\n\r\n".to_vec()),
            Kind::Malformed("not HTTP"),
        ),
        fault(
            "a page",
            Action::text(200, "<html>a portal</html>"),
            Kind::Strange("not JSON"),
        ),
        fault(
            "a list",
            Action::json(200, &json!([1])),
            Kind::Strange("must be a"),
        ),
        status(401, json!({"detail": "who are you"})),
        status(403, json!({"detail": "go away"})),
        status(404, json!({"detail": "Not Found"})),
        fault("a rate limit", Action::Respond(retry), Kind::Status(429)),
        status(500, json!({"detail": "boom"})),
        status(503, json!({"errors": ["Vault is sealed"]})),
        fault(
            "a redirect",
            Action::redirect(307, "https://leader.example:8200/v1/x"),
            Kind::Status(307),
        ),
    ]
}

fn expected(request: Request, kind: Kind) -> Expected {
    let expected = |exit, words: &[&str]| Expected {
        exit,
        words: words.iter().map(|word| (*word).to_owned()).collect(),
    };
    let temporary = |words: &[&str]| match request {
        Lease => expected(
            0,
            &[
                &["no lease for now, the apply goes on with the present token"],
                words,
            ]
            .concat(),
        ),
        RenewSelf => expected(
            0,
            &[
                &["the token could not be prolonged, going on with it"],
                words,
            ]
            .concat(),
        ),
        Report => expected(1, &[&["a report is kept for a later tick"], words].concat()),
        _ => expected(75, words),
    };
    let line = format!(
        "{} {}",
        if matches!(request, Bundle | LookupSelf | Read) {
            "GET"
        } else {
            "POST"
        },
        request.path()
    );
    match (kind, request) {
        (Kind::Unreachable(how), _) => temporary(&[
            "no connection to",
            "over transport system: ",
            how,
            request.attribute(),
        ]),
        (Kind::Malformed(why), Bundle) if why.starts_with("longer") => {
            expected(1, &["BUNDLE_INVALID: it is larger than 4 MiB"])
        }
        (Kind::Malformed(why), _) => temporary(&["gave an unusable answer to", &line, why]),
        // Whatever comes as a bundle is judged by its digest; the answer to a report has nothing that is needed.
        (Kind::Strange(_), Bundle) => expected(1, &["BUNDLE_SHA_MISMATCH"]),
        (Kind::Strange(_), Report) => expected(1, &["report delivered"]),
        (Kind::Strange(why), _) => temporary(&["gave an unusable answer to", &line, why]),
        (Kind::Status(429), _) => {
            temporary(&["answered 429 to", &line, "slow down", "(retry after 77 s)"])
        }
        (Kind::Status(500), _) => temporary(&["answered 500 to", &line, "boom"]),
        (Kind::Status(503), _) => temporary(&["answered 503 to", &line, "Vault is sealed"]),
        (Kind::Status(307), Report) => expected(1, &["points to https://leader.example:8200/v1/x"]),
        (Kind::Status(307), _) if request.peer() == Peer::Tenancy => expected(
            1,
            &[
                "answered 307",
                "points to https://leader.example:8200/v1/x",
                "redirects are never followed",
            ],
        ),
        (Kind::Status(307), _) => {
            temporary(&["answered 307", "points to https://leader.example:8200/v1/x"])
        }
        (Kind::Status(404), Bundle) => expected(75, &["the desired state moved on"]),
        (Kind::Status(404), Report) => expected(
            1,
            &["tenancy refuses a report, it is dropped", "answered 404"],
        ),
        (Kind::Status(404), Read) => expected(
            1,
            &["DB: env-qa-02/see/db: there is no secret", "Not Found"],
        ),
        (Kind::Status(401 | 403), Report) => expected(1, &["a report is kept for a later tick"]),
        (Kind::Status(403), LookupSelf) => {
            expected(0, &["OpenBao does not know the token any more"])
        }
        (Kind::Status(403), RenewSelf) => expected(0, &["the checkin decides"]),
        (Kind::Status(403), Read) => expected(
            1,
            &["OpenBao's policy lets us read none of them at the mount monky: DB"],
        ),
        (Kind::Status(status), _) => expected(1, &[&format!("answered {status} to {line}")]),
    }
}

/// A box that runs its first bundle and is told to apply it again at every checkin.
fn busy_scene() -> Scene {
    let mut scene = Scene::new();
    // What tenancy waits for must not depend on how busy this machine is.
    scene
        .agent
        .set("tenancy.timeout_s", "20")
        .set("bao.timeout_s", "20");
    scene.apply_ok();
    scene.want_again();
    scene
}

/// What must be the same after every fault.
fn holdings(scene: &Scene) -> (Option<String>, Option<String>, Vec<u8>, Option<String>) {
    let env = std::fs::read(scene.agent.live(".env")).unwrap();
    (
        scene.applied_sha(),
        scene.agent.current(),
        env,
        scene.docker.container("api"),
    )
}

#[track_caller]
fn check(what: &str, ran: &Ran, expected: &Expected) {
    assert_eq!(ran.code(), Some(expected.exit), "{what}\n{}", ran.story());
    ran.exits(expected.exit);
    for words in &expected.words {
        ran.says(words);
    }
}

/// Every quick fault of one request, one after the other on one box.
fn walk(request: Request) {
    let scene = busy_scene();
    // A token is renewed whether or not there is something to apply.
    scene
        .plane
        .tenancy()
        .set(|settings| settings.force_apply = request != RenewSelf);
    let before = holdings(&scene);
    for fault in faults() {
        let what = format!(
            "{request:?} × {} ({:?})",
            fault.name,
            expected(request, fault.kind).words
        );
        request.prepare(&scene);
        scene.log().clear();
        scene.fault(request.peer(), request.path(), fault.action);
        let ran = scene.agent.tick();
        assert!(
            scene.log().count(request.peer(), request.path()) > 0,
            "{what}: the request was not made\n{}",
            ran.story()
        );
        let mut expected = expected(request, fault.kind);
        // The words of a missing secret are its peer's only where it has some of its own.
        if request == Read && fault.kind == Kind::Status(404) {
            expected.words = vec!["secrets cannot be read: DB: ".into()];
        }
        check(&what, &ran, &expected);
        assert_eq!(holdings(&scene), before, "{what}");
        let spool = scene.agent.state()["reports"].as_array().unwrap().len();
        let is_kept = ran.story().contains("a report is kept");
        assert_eq!(spool > 0, is_kept, "{what}\n{}", ran.story());
        scene.plane.faults().clear();
        scene.edit_state(|state| state["reports"] = json!([]));
    }
    request.prepare(&scene);
    scene.agent.tick().exits(i32::from(request == Report));
}

#[test]
fn a_checkin_that_goes_wrong() {
    walk(Checkin);
}

#[test]
fn a_bundle_fetch_that_goes_wrong() {
    walk(Bundle);
}

#[test]
fn a_lease_that_goes_wrong() {
    walk(Lease);
}

#[test]
fn a_report_that_goes_wrong() {
    walk(Report);
}

#[test]
fn a_login_that_goes_wrong() {
    walk(Login);
}

#[test]
fn a_lookup_that_goes_wrong() {
    walk(LookupSelf);
}

#[test]
fn a_renewal_that_goes_wrong() {
    walk(RenewSelf);
}

#[test]
fn a_secret_read_that_goes_wrong() {
    walk(Read);
}

#[test]
fn a_peer_that_dawdles_costs_its_time_out_and_no_more() {
    let requests = [
        Checkin, Bundle, Lease, Report, Login, LookupSelf, RenewSelf, Read,
    ];
    beside_each_other(&requests, |&request| {
        let mut scene = busy_scene();
        scene
            .plane
            .tenancy()
            .set(|settings| settings.force_apply = request != RenewSelf);
        let before = holdings(&scene);
        let group = if request.peer() == Peer::Tenancy {
            "tenancy"
        } else {
            "bao"
        };
        scene.agent.set(&format!("{group}.timeout_s"), "1");
        for (name, action) in [
            ("silence", Action::Hang),
            (
                "a byte at a time",
                Action::DripHead(Duration::from_millis(100)),
            ),
            (
                "a body a byte at a time",
                Action::DripBody(Duration::from_millis(100)),
            ),
        ] {
            request.prepare(&scene);
            scene.fault(request.peer(), request.path(), action);
            let started = Instant::now();
            let ran = scene.agent.tick();
            let what = format!("{request:?} × {name}");
            check(
                &what,
                &ran,
                &expected(request, Kind::Unreachable("did not end within 1 s")),
            );
            assert!(
                started.elapsed() < Duration::from_secs(10),
                "{what}: {:?}",
                started.elapsed()
            );
            assert_eq!(holdings(&scene), before, "{what}");
            scene.plane.faults().clear();
            scene.edit_state(|state| state["reports"] = json!([]));
        }
    });
}

#[test]
fn retry_after_is_honoured_by_the_timer() {
    let scene = Scene::new();
    let limited =
        Response::json(429, &json!({"detail": "slow down"})).with_header("Retry-After", "77");
    let id = scene.fault(Peer::Tenancy, "/v1/agent/checkin", Action::Respond(limited));
    scene
        .agent
        .timer_tick()
        .exits(75)
        .says("(retry after 77 s)");
    assert!(scene.plane.faults().remove(id));
    scene.log().clear();
    scene.agent.timer_tick().exits(0).says("not_due");
    assert!(scene.requests().is_empty());
    let pulse: serde_json::Value =
        serde_json::from_slice(&std::fs::read(scene.state_file("heartbeat")).unwrap()).unwrap();
    let at = |name: &str| {
        monky_deployd::host::clock::Timestamp::parse(pulse[name].as_str().unwrap()).unwrap()
    };
    assert_eq!(at("not_before").since_s(at("started_at")), 77);
}

#[test]
fn an_endless_retry_after_is_capped_at_an_hour() {
    let scene = Scene::new();
    let limited = Response::json(503, &json!({})).with_header("Retry-After", "999999999");
    scene.fault(Peer::Tenancy, "/v1/agent/checkin", Action::Respond(limited));
    scene.agent.timer_tick().exits(75).says("answered 503");
    let pulse: serde_json::Value =
        serde_json::from_slice(&std::fs::read(scene.state_file("heartbeat")).unwrap()).unwrap();
    let at = |name: &str| {
        monky_deployd::host::clock::Timestamp::parse(pulse[name].as_str().unwrap()).unwrap()
    };
    assert_eq!(at("not_before").since_s(at("started_at")), 3_600);
}

#[test]
fn openbao_that_does_not_serve_is_temporary_in_each_of_its_ways() {
    use control_plane::Mode;
    let scene = Scene::new();
    for (mode, words) in [
        (Mode::Sealed, "answered 503"),
        (Mode::NotInitialised, "answered 503"),
        (Mode::LostLeader, "answered 500"),
        (
            Mode::Standby("https://leader.example:8200".into()),
            "points to https://leader.example:8200/v1/auth/jwt-tenancy/login",
        ),
    ] {
        scene.bao().set_mode(mode);
        scene.agent.tick().exits(75).says(words);
    }
    for status in [472, 473, 501] {
        scene.bao().set_mode(Mode::Active);
        scene.plane.faults().clear();
        scene.fault(
            Peer::Bao,
            "/v1/auth/",
            Action::json(status, &json!({"errors": ["standby"]})),
        );
        scene
            .agent
            .tick()
            .exits(75)
            .says(&format!("answered {status}"))
            .says("standby");
    }
}

#[test]
fn a_bundle_url_on_another_host_gets_no_token() {
    let scene = Scene::new();
    scene.plane.apply(&crate::support::scene::bundle(1).build());
    for (url, words) in [
        (
            "http://elsewhere.example/x",
            "is on another host than tenancy",
        ),
        ("//elsewhere.example/x", "is not a path on tenancy"),
        ("relative", "is not a path on tenancy"),
    ] {
        scene.plane.tenancy().set(|settings| {
            drop(
                settings
                    .checkin_extra
                    .insert("bundle_url".into(), url.into()),
            )
        });
        scene.agent.tick().exits(75).says(words);
    }
    let own = format!(
        "{}/v1/agent/bundle/{ENV}/{}",
        scene.plane.tenancy_url(),
        crate::support::scene::bundle(1).build().sha()
    );
    scene.plane.tenancy().set(|settings| {
        drop(
            settings
                .checkin_extra
                .insert("bundle_url".into(), own.into()),
        )
    });
    scene.agent.tick().exits(0).says("applied");
}
