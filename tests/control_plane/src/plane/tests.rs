//! Both servers over real sockets: keep-alive, faults, certificates, steering, the end.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use super::*;
use crate::{Action, BodyLength, Client, Response};

const ENV: &str = "env-qa-02";
const CHECKIN: &str = "/v1/agent/checkin";

fn plane() -> ControlPlane {
    ControlPlane::start(Options {
        steering: true,
        ..Options::new(ENV)
    })
    .unwrap()
}

fn send(url: &str, ca: &str, method: &str, target: &str, body: &str) -> io::Result<Response> {
    let headers = [("Content-Type".to_owned(), "application/json".to_owned())];
    Client::new(url, ca)?.send(method, target, &headers, body.as_bytes())
}

fn tenancy(plane: &ControlPlane, method: &str, target: &str) -> io::Result<Response> {
    send(&plane.tenancy_url(), "", method, target, "")
}

/// Everything that the peer sends on a raw connection until it ends.
fn raw(plane: &ControlPlane, request: &str) -> io::Result<Vec<u8>> {
    let mut socket = TcpStream::connect(plane.tenancy_addr())?;
    socket.write_all(request.as_bytes())?;
    let mut all = Vec::new();
    socket.read_to_end(&mut all).map(|_| all)
}

#[test]
fn the_way_of_an_agent_from_grant_to_report() {
    let plane = plane();
    plane
        .put_secret("env-qa-02/see/db", json!({"value": "s3cret"}))
        .unwrap();
    let bundle = Bundle::sample(ENV, "demo:1").build();
    plane.apply(&bundle);
    let login = json!({"role": "see-env", "jwt": plane.grant()}).to_string();
    let bao = |method: &str, target: &str, body: &str| {
        send(&plane.bao_url(), &plane.ca_pem(), method, target, body)
    };
    let token = bao("POST", "/v1/auth/jwt-tenancy/login", &login)
        .unwrap()
        .body_json()["auth"]["client_token"]
        .clone();
    let bearer = (
        "Authorization".to_owned(),
        format!("Bearer {}", token.as_str().unwrap()),
    );
    let json_body = ("Content-Type".to_owned(), "application/json".to_owned());
    let client = Client::new(&plane.tenancy_url(), "").unwrap();
    let body = json!({"env_id": ENV}).to_string();
    let answer = client
        .send(
            "POST",
            CHECKIN,
            &[bearer.clone(), json_body],
            body.as_bytes(),
        )
        .unwrap()
        .body_json();
    assert_eq!(
        answer["vault"]["addr"].as_str(),
        Some(plane.bao_url().as_str())
    );
    let fetched = client
        .send(
            "GET",
            answer["bundle_url"].as_str().unwrap(),
            &[bearer],
            b"",
        )
        .unwrap();
    assert_eq!(fetched.body, bundle.bytes());
    assert_eq!(plane.log().count(Peer::Tenancy, "/v1/agent/"), 2);
    assert_eq!(plane.log().connections(Peer::Bao), 1);
    assert!(plane.log().contains(token.as_str().unwrap()));
    assert_eq!(plane.log().requests()[0].status, Some(200));
}

#[test]
fn one_connection_carries_several_requests() {
    let plane = plane();
    let two = "GET /healthz HTTP/1.1\r\n\r\nGET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n";
    let text = String::from_utf8(raw(&plane, two).unwrap()).unwrap();
    assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 2);
    assert_eq!(
        (
            plane.log().connections(Peer::Tenancy),
            plane.log().requests().len()
        ),
        (1, 2)
    );
}

#[test]
fn answers_can_be_replaced_redirected_and_overlaid() {
    let plane = plane();
    let rule = |action| Rule::on(Peer::Tenancy, action).path("/healthz").once();
    let unavailable = Response::json(503, &json!({"detail": "x"})).with_header("Retry-After", "7");
    plane.fault(rule(Action::Respond(unavailable)));
    plane.fault(rule(Action::redirect(307, "http://elsewhere/")));
    plane.fault(rule(Action::Merge(json!({"status": "odd"}))));
    let answers: Vec<Response> = (0..4)
        .map(|_| tenancy(&plane, "GET", "/healthz").unwrap())
        .collect();
    assert_eq!(
        (answers[0].status, answers[0].header("retry-after")),
        (503, Some("7"))
    );
    assert_eq!(
        (answers[1].status, answers[1].header("location")),
        (307, Some("http://elsewhere/"))
    );
    assert_eq!(answers[2].body_json()["status"], "odd");
    assert_eq!(answers[3].body_json()["status"], "ok");
}

#[test]
fn connections_can_be_closed_reset_and_cut() {
    let plane = plane();
    let cut = |keep, length| Action::Cut { keep, length };
    let outcome = |action| {
        let id = plane.fault(Rule::on(Peer::Tenancy, action));
        let outcome = tenancy(&plane, "GET", "/healthz").map(|answer| answer.body.len());
        assert_eq!(plane.faults().hits(id), 1);
        plane.faults().remove(id);
        outcome.map_err(|error| error.kind())
    };
    assert_eq!(outcome(Action::Close), Err(ErrorKind::UnexpectedEof));
    assert_eq!(outcome(Action::Reset), Err(ErrorKind::ConnectionReset));
    assert_eq!(
        outcome(cut(3, BodyLength::Declared)),
        Err(ErrorKind::UnexpectedEof)
    );
    assert_eq!(outcome(cut(3, BodyLength::Absent)), Ok(3), "looks complete");
    assert!(outcome(Action::ResetInBody { keep: 3 }).is_err());
    assert!(outcome(Action::Garbage(b"\0\0".to_vec())).is_err());
    assert_eq!(
        outcome(Action::Huge {
            bytes: 1 << 20,
            length: BodyLength::Absent
        }),
        Ok(1 << 20)
    );
    assert_eq!(
        outcome(Action::Huge {
            bytes: 1 << 20,
            length: BodyLength::Understated
        }),
        Ok(10)
    );
    assert_eq!(outcome(Action::DripHead(Duration::from_micros(1))), Ok(15));
    assert_eq!(outcome(Action::DripBody(Duration::from_micros(1))), Ok(15));
    assert_eq!(outcome(Action::Delay(Duration::from_millis(1))), Ok(15));
}

#[test]
fn a_body_cut_inside_tls_is_seen_or_looks_complete() {
    let plane = plane();
    let get = || {
        send(
            &plane.bao_url(),
            &plane.ca_pem(),
            "GET",
            "/v1/sys/health",
            "",
        )
        .map(|answer| answer.body.len())
    };
    let cut = |length| Rule::on(Peer::Bao, Action::Cut { keep: 5, length }).once();
    plane.fault(cut(BodyLength::Declared));
    assert_eq!(
        get().map_err(|error| error.kind()),
        Err(ErrorKind::UnexpectedEof)
    );
    plane.fault(cut(BodyLength::Absent));
    assert_eq!(get().unwrap(), 5);
}

#[test]
fn a_lost_answer_may_have_taken_effect() {
    let plane = plane();
    let bao = plane.fake_bao().unwrap();
    let token = bao.mint_token(ENV, "j", 3600, true).id;
    let lease = || {
        let headers = [
            ("Authorization".to_owned(), format!("Bearer {token}")),
            ("Content-Type".to_owned(), "application/json".to_owned()),
        ];
        let body = json!({"env_id": ENV}).to_string();
        let client = Client::new(&plane.tenancy_url(), "").unwrap();
        client.send("POST", "/v1/agent/lease", &headers, body.as_bytes())
    };
    plane.fault(Rule::on(Peer::Tenancy, Action::Close).once());
    assert!(lease().is_err());
    assert_eq!(plane.tenancy().leases_granted(), 0);
    plane.fault(Rule::on(Peer::Tenancy, Action::Close).after_effect().once());
    assert!(lease().is_err());
    assert_eq!(plane.tenancy().leases_granted(), 1);
}

#[test]
fn connections_can_be_refused_for_a_while() {
    let plane = plane();
    plane.refuse_connections(Peer::Tenancy);
    assert_eq!(
        tenancy(&plane, "GET", "/healthz").unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
    plane.accept_connections(Peer::Tenancy).unwrap();
    assert_eq!(tenancy(&plane, "GET", "/healthz").unwrap().status, 200);
    plane.fault(Rule::on_connect(Peer::Tenancy, Action::Garbage(b"SSH-2.0\r\n".to_vec())).once());
    assert!(tenancy(&plane, "GET", "/healthz").is_err());
    assert_eq!(tenancy(&plane, "GET", "/healthz").unwrap().status, 200);
}

#[test]
fn every_bad_certificate_fails_in_its_own_way() {
    let plane = plane();
    let words = [
        (CertKind::OtherCa, "UnknownIssuer"),
        (CertKind::WrongName, "not valid for name"),
        (CertKind::Expired, "expired"),
        (CertKind::NotYetValid, "not valid yet"),
        (CertKind::SelfSigned, "CaUsedAsEndEntity"),
        (CertKind::CnOnly, "not valid for name"),
        (CertKind::MissingIntermediate, "UnknownIssuer"),
    ];
    let health = |kind| {
        plane.set_tls(Peer::Bao, Some(kind)).unwrap();
        send(
            &plane.bao_url(),
            &plane.tls().ca_pem_for(kind),
            "GET",
            "/v1/sys/health",
            "",
        )
    };
    for (kind, wanted) in words {
        let error = health(kind).unwrap_err().to_string();
        assert!(error.contains(wanted), "{kind:?}: {error}");
    }
    for kind in [CertKind::Good, CertKind::WithIntermediate] {
        assert_eq!(health(kind).unwrap().status, 200, "{kind:?}");
    }
    assert_eq!(plane.log().count(Peer::Bao, "/"), 2);
}

#[test]
fn the_clock_of_a_peer_can_be_wrong() {
    let plane = plane();
    plane.set_date_offset(Peer::Tenancy, -86_400 * 365 * 20);
    let date = tenancy(&plane, "GET", "/healthz")
        .unwrap()
        .header("date")
        .unwrap()
        .to_owned();
    assert!(date.contains(" 20") && date.ends_with(" GMT"), "{date}");
    assert!(!date.contains(" 202"), "{date}");
}

#[test]
fn a_shell_can_steer() {
    let plane = plane();
    let put = |method: &str, target: &str, body: &str| {
        send(&plane.tenancy_url(), "", method, target, body).unwrap()
    };
    let sha = put("PUT", "/_control/apply", "not a tar").body_json()["sha"].clone();
    assert_eq!(
        plane.tenancy().settings().want,
        Want::Apply(sha.as_str().unwrap().to_owned())
    );
    put(
        "POST",
        "/_control/desired",
        r#"{"action": "down", "purge_volumes": true}"#,
    );
    assert_eq!(
        plane.tenancy().settings().want,
        Want::Down {
            purge_volumes: true
        }
    );
    assert_eq!(
        put("PUT", "/_control/secret/e/see/a", r#"{"value": "1"}"#).body_json()["version"],
        1
    );
    let fault = put(
        "POST",
        "/_control/fault",
        r#"{"peer": "tenancy", "action": "respond", "status": 418, "times": 1}"#,
    );
    assert_eq!(fault.body_json()["id"], 1);
    assert_eq!(tenancy(&plane, "GET", "/healthz").unwrap().status, 418);
    assert_eq!(put("GET", "/_control/fault/1", "").body_json()["hits"], 1);
    assert_eq!(
        put("POST", "/_control/desired", r#"{"action": "dance"}"#).status,
        400
    );
    let jwt = String::from_utf8(put("POST", "/_control/grant", "").body).unwrap();
    assert!(plane.grants().verify(&jwt).is_ok());
    assert_eq!(
        put("GET", "/_control/requests", "")
            .body_json()
            .as_array()
            .unwrap()
            .len(),
        1,
        "steering is not logged"
    );
}

#[test]
fn hanging_and_dripping_connections_end_with_the_plane() {
    let plane = plane();
    plane.fault(Rule::on(Peer::Tenancy, Action::Hang).path("/hang"));
    plane.fault(Rule::on(Peer::Tenancy, Action::DripHead(Duration::from_secs(60))).path("/drip"));
    plane.fault(Rule::on_connect(Peer::Bao, Action::Hang));
    let mut open = Vec::new();
    for target in ["/hang", "/drip"] {
        let mut socket = TcpStream::connect(plane.tenancy_addr()).unwrap();
        socket
            .write_all(format!("GET {target} HTTP/1.1\r\n\r\n").as_bytes())
            .unwrap();
        open.push(socket);
    }
    open.push(TcpStream::connect(plane.bao_addr().unwrap()).unwrap());
    assert!(
        plane
            .log()
            .wait_for(Peer::Tenancy, "/", 2, Duration::from_secs(5))
    );
    let began = Instant::now();
    drop(plane);
    assert!(began.elapsed() < Duration::from_secs(5));
    for mut socket in open {
        let mut rest = Vec::new();
        let _ = socket.read_to_end(&mut rest);
        assert!(rest.len() < 4);
    }
}
