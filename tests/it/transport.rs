//! Connections: what a refused one says, the two transports, names that do not resolve, and every certificate that is wrong
//! in its own way.

use crate::support::scene::{ENV, Scene};
use control_plane::{Action, CertKind, Options, Peer, Rule};

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
