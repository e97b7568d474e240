//! What the real Compose has to say about a bundle before anything is asked for, written or started: its own words when it
//! refuses the file, the variables that it finds, and what it reads back from a rendered `.env`. Tenancy and OpenBao are
//! the embedded ones; no image is there and no container comes to be.

use crate::support::agent::{AgentBox, Ran};
use crate::support::real_docker::{ProjectGuard, RealDocker};
use crate::support::skip;
use control_plane::{Bundle, BundleBuilder, ControlPlane, Options, Peer};
use serde_json::{Value, json};
use std::fs;

/// A box with the real docker and nothing else that is real. The guard goes first.
struct Desk {
    _guard: ProjectGuard,
    agent: AgentBox,
    plane: ControlPlane,
    env_id: String,
}

impl Desk {
    #[track_caller]
    fn open(env_id: &str) -> Option<Self> {
        let docker = skip::require("docker", RealDocker::get())?;
        let plane = ControlPlane::start(Options::new(env_id)).unwrap();
        let agent = AgentBox::connected(
            env_id,
            &plane.tenancy_url(),
            &plane.bao_url(),
            &plane.ca_pem(),
            &plane.grant(),
        );
        Some(Self {
            _guard: docker.guard(&format!("monky-{env_id}")),
            agent,
            plane,
            env_id: env_id.to_owned(),
        })
    }

    /// A bundle with this compose file; its images are on no engine, and nothing is pulled.
    fn bundle(&self, compose: &str) -> BundleBuilder {
        Bundle::sample(&self.env_id, "unused")
            .compose(compose)
            .template("DEFINED=1\n")
            .meta_with(&json!({"pull": "never"}))
    }

    /// The bundle is refused with `code`, before a lease; what is told behind the code.
    #[track_caller]
    fn refuses(&self, code: &str, bundle: &BundleBuilder) -> String {
        self.plane.log().clear();
        let ran = self.ticks(bundle, code);
        let log = self.plane.log();
        let leased = log.count(Peer::Tenancy, "/v1/agent/lease");
        assert_eq!((leased, log.count(Peer::Bao, "/v1/monky")), (0, 0));
        let report = self.plane.reports().pop().unwrap();
        assert_eq!(report["code"], code, "{}", ran.story());
        let detail = report["detail"].as_str().unwrap();
        let told = detail.strip_prefix(&format!("{code}: ")).unwrap();
        ran.says(&format!("the bundle is refused: {code}: {told}"));
        let deploy_dir = self.agent.deploy_dir();
        for place in [deploy_dir.display().to_string(), ".incoming".to_owned()] {
            assert!(!told.contains(&place), "a path of the box: {told}");
        }
        assert!(!deploy_dir.join(".incoming").exists());
        assert_eq!(
            fs::read_dir(deploy_dir.join("releases")).unwrap().count(),
            0
        );
        told.to_owned()
    }

    /// The bundle is not refused: its release is staged, and fails in `up`, for nothing that it needs is there.
    #[track_caller]
    fn takes(&self, bundle: &BundleBuilder) {
        let ran = self.ticks(bundle, "UP_FAILED");
        ran.says("release staged");
    }

    #[track_caller]
    fn ticks(&self, bundle: &BundleBuilder, code: &str) -> Ran {
        self.plane.apply(&bundle.build());
        let ran = self.agent.tick();
        ran.exits(1).says(&format!(" code={code} "));
        ran
    }
}

/// A file with one service and these lines in it.
fn service(lines: &str) -> String {
    format!("services:\n  app:\n    image: nowhere.invalid/app:1\n{lines}")
}

fn environment(text: &str) -> String {
    service(&format!("    environment:\n      X: {}\n", json!(text)))
}

#[test]
fn what_compose_refuses_is_told_in_its_own_words() {
    let Some(desk) = Desk::open("env-refuse-01") else {
        return;
    };
    for (compose, words) in [
        (service("    imgae: x\n"), "services.app.imgae"),
        (
            "servces: {}\n".to_owned(),
            "additional properties 'servces' not allowed",
        ),
        (
            "services:\n  app:\n\timage: x\n".to_owned(),
            "found character that cannot start any token",
        ),
        (
            service("    image: twice\n"),
            "mapping key \"image\" already defined",
        ),
        (
            environment("${1V}"),
            "a reference to a variable is none: ${} or ${1V}, or a ${ that is never closed; for a plain $ write $$",
        ),
        (environment("${V"), "a reference to a variable is none"),
        (
            service("    extends: {service: gone}\n"),
            "cannot extend service \"app\" in docker-compose.yml: service \"gone\" not found",
        ),
    ] {
        let told = desk.refuses("COMPOSE_INVALID", &desk.bundle(&compose));
        assert!(told.contains(words), "{told}");
    }
}

/// Compose checks these only with the variables filled in, so the pull is the first to say it; nothing is promoted then.
#[test]
fn what_compose_finds_only_with_the_values_is_refused_before_anything_is_staged() {
    let Some(desk) = Desk::open("env-refuse-12") else {
        return;
    };
    for (compose, words) in [
        (
            "services:\n  app: {}\n".to_owned(),
            "has neither an image nor a build context",
        ),
        (
            service("    depends_on: [gone]\n"),
            "depends on undefined service \"gone\"",
        ),
        (
            service("    networks: [gone]\n"),
            "refers to undefined network gone",
        ),
        (
            service("    volumes: ['gone:/x']\n"),
            "refers to undefined volume gone",
        ),
        (
            service("    ports: ['http:80']\n"),
            "invalid hostPort: http",
        ),
        (service("    mem_limit: lots\n"), "invalid size: 'lots'"),
    ] {
        let told = desk.refuses("COMPOSE_INVALID", &desk.bundle(&compose));
        assert!(told.contains(words), "{told}");
    }
}

#[test]
fn what_the_agent_keeps_secret_is_not_in_composes_words() {
    let Some(desk) = Desk::open("env-refuse-02") else {
        return;
    };
    desk.agent.tick().exits(0);
    let token = fs::read_to_string(desk.agent.state_dir().join("token")).unwrap();
    let bundle = desk.bundle(&service(&format!("    {}: 1\n", token.trim())));
    let told = desk.refuses("COMPOSE_INVALID", &bundle);
    assert!(told.contains("services.app.[redacted:TOKEN]"), "{told}");
}

#[test]
fn files_that_the_compose_file_names_must_be_in_the_bundle() {
    let Some(desk) = Desk::open("env-refuse-03") else {
        return;
    };
    let include = format!("include: [parts/web.yml]\n{}", service(""));
    let extends = "services:\n  app:\n    extends: {file: parts/web.yml, service: web}\n";
    let part =
        "services:\n  web:\n    image: nowhere.invalid/web:1\n    environment: {Y: '${WEB}'}\n";
    for compose in [&include[..], extends] {
        let told = desk.refuses("COMPOSE_INVALID", &desk.bundle(compose));
        assert!(
            told.contains("parts/web.yml") && told.contains("no such file"),
            "{told}"
        );
        let whole = desk.bundle(compose).file("parts/web.yml", part);
        assert_eq!(
            desk.refuses("ENV_INCOMPLETE", &whole),
            "unresolved: WEB",
            "{compose}"
        );
    }
    let fresh = Desk::open("env-refuse-04").unwrap();
    for compose in [&include[..], extends] {
        fresh.takes(
            &fresh
                .bundle(compose)
                .file("parts/web.yml", part)
                .template("WEB=1\n"),
        );
    }
}

#[test]
fn every_variable_that_compose_finds_must_be_provided() {
    let Some(desk) = Desk::open("env-refuse-05") else {
        return;
    };
    for (compose, names) in [
        (environment("${A}"), "A"),
        (environment("$A"), "A"),
        (environment("${A:?say it}"), "A"),
        (environment("${A?say it}"), "A"),
        (environment("${B:-${A}}"), "A"),
        (environment("${B-${C:-${A}}}"), "A"),
        (environment("${D:-x} $D"), "D"),
        (environment("${DEFINED}${A}"), "A"),
        (
            service("    ports: ['${A}:80']\n    command: ['sh', '-c', '$B']\n"),
            "A, B",
        ),
        (
            service("    deploy:\n      replicas: ${A}\n    mem_limit: ${B}\n"),
            "A, B",
        ),
        (
            service("    env_file: ['${A}.env']\n    labels: ['x=${B}']\n"),
            "A, B",
        ),
        (
            service("    profiles: [debug]\n    environment: {X: '${A}'}\n"),
            "A",
        ),
        (
            format!(
                "{}networks: {{n: {{name: '${{A}}'}}}}\n",
                service("    networks: [n]\n")
            ),
            "A",
        ),
    ] {
        let told = desk.refuses("ENV_INCOMPLETE", &desk.bundle(&compose));
        assert_eq!(told, format!("unresolved: {names}"), "{compose}");
    }
}

#[test]
fn a_variable_with_a_default_need_not_be_provided() {
    let Some(desk) = Desk::open("env-refuse-06") else {
        return;
    };
    let text = "${A:-d} ${A-d} ${A:-} ${A-} ${A:+x} ${A+x} ${A:-${B:-}} $$A $${A} ${DEFINED}";
    desk.takes(&desk.bundle(&environment(text)));
    let typed = "    deploy:\n      replicas: ${A:-1}\n    mem_limit: ${A:-64m}\n    privileged: ${A:-false}\n    healthcheck:\n      test: [CMD, x]\n      retries: ${A:-3}\n      interval: ${B:-5s}\n";
    desk.takes(&desk.bundle(&service(typed)));
}

#[test]
fn the_model_needs_no_variables_and_no_mounted_file() {
    let Some(desk) = Desk::open("env-refuse-07") else {
        return;
    };
    let lines = "    env_file: .env\n    volumes: ['./conf:/etc/app:ro', 'data:/data']\n    secrets: [key]\n    environment: {X: '${DEFINED:?}'}\n";
    let compose = format!(
        "{}volumes: {{data: {{}}}}\nsecrets: {{key: {{file: ./keys/key.pem}}}}\n",
        service(lines)
    );
    desk.takes(&desk.bundle(&compose));
}

#[test]
fn services_behind_a_profile_are_judged_like_the_others() {
    let Some(desk) = Desk::open("env-refuse-08") else {
        return;
    };
    let off = |what: &str| service(&format!("  off:\n    profiles: [debug]\n    {what}\n"));
    let told = desk.refuses("BUILD_UNSUPPORTED", &desk.bundle(&off("build: .")));
    assert_eq!(
        told,
        "nothing is built on the box: give service \"off\" an image:"
    );
    let pinned = desk
        .bundle(&off("image: a/off:latest"))
        .meta_with(&json!({"images_policy": "tag"}));
    let told = desk.refuses("IMAGE_NOT_PINNED", &pinned);
    assert!(
        told.contains("service \"off\" has the tag latest"),
        "{told}"
    );
}

#[test]
fn what_would_be_built_here_is_refused_and_what_was_built_elsewhere_is_not() {
    let Some(desk) = Desk::open("env-refuse-09") else {
        return;
    };
    for build in [
        "build: .",
        "build: {context: ./src, dockerfile: D}",
        "build: {dockerfile_inline: 'FROM x'}",
    ] {
        let compose = format!("services:\n  app:\n    {build}\n");
        let told = desk.refuses("BUILD_UNSUPPORTED", &desk.bundle(&compose));
        assert_eq!(
            told,
            "nothing is built on the box: give service \"app\" an image:"
        );
    }
    desk.takes(&desk.bundle(&service("    build: .\n")));
}

#[test]
fn a_name_that_docker_itself_needs_does_not_come_back() {
    let Some(desk) = Desk::open("env-refuse-10") else {
        return;
    };
    let bundle = desk
        .bundle(&service(""))
        .template("PATH=/opt/bin\nHOME=/srv\nFINE=1\n");
    let told = desk.refuses("ENV_ROUNDTRIP", &bundle);
    assert_eq!(
        told,
        "Compose does not read back exactly: HOME (interpolation), PATH (interpolation)"
    );
}

#[test]
fn several_findings_come_with_composes_own() {
    let Some(desk) = Desk::open("env-refuse-11") else {
        return;
    };
    let bundle = desk
        .bundle("services:\n  app: {imgae: x}\n")
        .template("X=${NOWHERE}\nDOCKER_HOST=x\n")
        .meta_with(&json!({"agent": {"min_version": "99.0.0"}}));
    let told = desk.refuses_first("ENV_INCOMPLETE", &bundle);
    let codes: Vec<&str> = told
        .split("; ")
        .filter_map(|finding| finding.split_once(": "))
        .map(|(code, _)| code)
        .filter(|code| code.contains('_'))
        .collect();
    assert_eq!(
        codes,
        ["ENV_RESERVED", "AGENT_TOO_OLD", "COMPOSE_INVALID"],
        "{told}"
    );
    let reports: Vec<Value> = desk.plane.reports();
    assert_eq!(reports.len(), 1);
}

impl Desk {
    /// As `refuses`, for several findings, of which only the others carry their codes in a report.
    #[track_caller]
    fn refuses_first(&self, code: &str, bundle: &BundleBuilder) -> String {
        self.ticks(bundle, code);
        let report = self.plane.reports().pop().unwrap();
        assert_eq!(report["code"], code);
        let detail = report["detail"].as_str().unwrap();
        detail
            .strip_prefix(&format!("{code}: "))
            .unwrap()
            .to_owned()
    }
}
