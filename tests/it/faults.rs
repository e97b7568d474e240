//! Every request against everything that can go wrong with it: the defined exit code, in time, in words that help, with
//! the state and the old release as they were.

use crate::support::agent::Ran;
use crate::support::scene::{ENV, Scene, beside_each_other};
use control_plane::{Action, BodyLength, CertKind, Options, Peer, Response, Rule};
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
fn a_refused_connection_names_transport_host_port_cause_and_remedy() {
    for (peer, transport) in [
        (Peer::Tenancy, "system"),
        (Peer::Bao, "system"),
        (Peer::Tenancy, "proxy"),
        (Peer::Bao, "proxy"),
    ] {
        let mut scene = Scene::new();
        let (tenancy, bao) = (scene.plane.tenancy_addr(), scene.plane.bao_addr().unwrap());
        let mut place = if peer == Peer::Tenancy {
            tenancy.to_string()
        } else {
            bao.to_string()
        };
        if transport == "proxy" {
            scene
                .agent
                .set("transport", "proxy")
                .set("tenancy.proxy_addr", &tenancy.to_string())
                .set("bao.proxy_addr", &bao.to_string());
            scene
                .agent
                .set("tenancy.base_url", "http://tenancy.mesh:443")
                .set("bao.addr", "https://localhost:8200");
            place = (if peer == Peer::Tenancy {
                "tenancy.mesh:443"
            } else {
                "localhost:8200"
            })
            .into();
        }
        scene.plane.refuse_connections(peer);
        let ran = scene.agent.tick();
        ran.exits(75).says(&format!(
            "at {place} over transport {transport}: Connection refused"
        ));
        match (peer, transport) {
            (Peer::Tenancy, "system") => ran
                .says("#monky-deploy-agent")
                .says("ziti-edge-tunnel")
                .says("8081"),
            (Peer::Bao, "system") => ran
                .says("#openbao-client")
                .says("ziti-edge-tunnel")
                .says("bao.addr says"),
            (Peer::Tenancy, _) => ran
                .says(&format!("(by the forwarder {tenancy})"))
                .says("monky-deployd-proxy.service"),
            (Peer::Bao, _) => ran
                .says(&format!("(by the forwarder {bao})"))
                .says("#openbao-client"),
        };
        scene.plane.accept_connections(peer).unwrap();
        scene.agent.timer_tick().exits(0);
    }
}

#[test]
fn the_proxy_transport_keeps_the_original_names_and_proxy_variables_are_never_read() {
    let mut scene = Scene::with(Options {
        names: vec!["bao.mesh".into()],
        ..Options::new(ENV)
    });
    let (tenancy, bao) = (scene.plane.tenancy_addr(), scene.plane.bao_addr().unwrap());
    scene
        .agent
        .set("transport", "proxy")
        .set("tenancy.proxy_addr", &tenancy.to_string())
        .set("bao.proxy_addr", &bao.to_string());
    scene
        .agent
        .set("tenancy.base_url", "http://tenancy.mesh:443")
        .set("bao.addr", "https://bao.mesh:8200");
    for name in [
        "HTTP_PROXY",
        "http_proxy",
        "HTTPS_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "all_proxy",
    ] {
        scene.agent.setenv(name, "http://127.0.0.1:1");
    }
    scene.apply_ok();
    for logged in scene.log().requests() {
        let host = logged.request.header("host").unwrap();
        let wanted = if logged.peer == Peer::Tenancy {
            "tenancy.mesh:443"
        } else {
            "bao.mesh:8200"
        };
        assert_eq!(host, wanted, "{}", logged.request.target);
    }
}

#[test]
fn a_name_that_does_not_resolve_names_both_resolvers() {
    let mut scene = Scene::new();
    scene
        .agent
        .set("bao.addr", "https://no-such-name.invalid:8200");
    scene
        .agent
        .tick()
        .exits(75)
        .says("no-such-name.invalid")
        .says("getent")
        .says("/etc/hosts");
}

/// Every certificate, and the words for what is wrong with it.
const CERTIFICATES: [(CertKind, i32, &[&str]); 9] = [
    (CertKind::Good, 0, &[]),
    (CertKind::WithIntermediate, 0, &[]),
    (
        CertKind::OtherCa,
        75,
        &["issued by nobody in", "ca.pem (1 roots)"],
    ),
    (
        CertKind::MissingIntermediate,
        75,
        &[
            "issued by nobody in",
            "send its intermediate certificates too",
        ],
    ),
    (
        CertKind::WrongName,
        75,
        &[
            "the server's certificate is for",
            "elsewhere.example",
            "not for 127.0.0.1",
            "check the configured host",
        ],
    ),
    (
        CertKind::Expired,
        75,
        &[
            "the server's certificate expired on 2020-02-03",
            "our clock says",
        ],
    ),
    (
        CertKind::NotYetValid,
        75,
        &["valid only from 2090-01-02", "set this box's clock"],
    ),
    (
        CertKind::SelfSigned,
        75,
        &["presents a CA certificate as its own"],
    ),
    (
        CertKind::CnOnly,
        75,
        &[
            "names no host in its subject alternative names",
            "issue one with a subjectAltName",
        ],
    ),
];

fn walk_certificates(scene: &Scene, peer: Peer) {
    for (kind, exit, words) in CERTIFICATES {
        std::fs::write(
            scene.agent.path("ca.pem"),
            scene.plane.tls().ca_pem_for(kind),
        )
        .unwrap();
        scene.plane.set_tls(peer, Some(kind)).unwrap();
        scene.lose_token();
        let ran = scene.agent.tick();
        assert_eq!(ran.code(), Some(exit), "{kind:?}\n{}", ran.story());
        ran.exits(exit);
        for words in words {
            ran.says(words);
        }
        if exit != 0 {
            let addr = if peer == Peer::Bao {
                scene.plane.bao_addr().unwrap()
            } else {
                scene.plane.tenancy_addr()
            };
            ran.says("TLS_FAILED")
                .says(&format!("{addr} over transport system"));
        }
    }
    // What a server that speaks plain HTTP says to a TLS greeting.
    let plain = Action::Garbage(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec());
    scene.plane.fault(Rule::on_connect(peer, plain));
    scene.lose_token();
    scene
        .agent
        .tick()
        .exits(75)
        .says("does not speak TLS there")
        .says("whether the service speaks plain HTTP");
}

#[test]
fn a_wrong_certificate_of_openbao_is_named_for_what_it_is() {
    let scene = Scene::new();
    walk_certificates(&scene, Peer::Bao);
}

#[test]
fn a_wrong_certificate_of_tenancy_is_named_for_what_it_is() {
    let mut scene = Scene::with(Options {
        bao_tls: None,
        tenancy_tls: Some(CertKind::Good),
        ..Options::new(ENV)
    });
    let url = format!("https://{}", scene.plane.tenancy_addr());
    let ca = scene.agent.path("ca.pem").display().to_string();
    scene
        .agent
        .set("tenancy.base_url", &url)
        .unset("bao.ca_file")
        .setenv("SSL_CERT_FILE", &ca);
    walk_certificates(&scene, Peer::Tenancy);
}

#[test]
fn a_ca_file_that_is_missing_or_empty_is_a_configuration_fault() {
    let scene = Scene::new();
    for (text, words) in [
        (None, "there is no such file"),
        (Some("no certificate"), "it holds no PEM certificate"),
    ] {
        std::fs::remove_file(scene.agent.path("ca.pem")).ok();
        if let Some(text) = text {
            std::fs::write(scene.agent.path("ca.pem"), text).unwrap();
        }
        scene
            .agent
            .tick()
            .exits(78)
            .says("the CA file")
            .says("ca.pem cannot be used")
            .says(words);
    }
}

#[test]
fn a_clock_that_is_off_is_named_when_a_grant_seems_expired() {
    let scene = Scene::new();
    scene.plane.set_date_offset(Peer::Bao, -7_200);
    let expired = control_plane::GrantSpec::new(ENV).expires_in(-300);
    scene
        .agent
        .stage_grant(&scene.plane.grants().sign(&expired));
    scene
        .agent
        .tick()
        .exits(1)
        .says("token is expired")
        .says("this box's clock is")
        .says("ahead of OpenBao's: set it");
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
