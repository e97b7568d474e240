//! The JSON of tenancy and OpenBao in `tests/fixtures/json`, each read by the library as the answer of a real server. Every
//! shape stands there twice: as it is, and as `NAME.nulls.json` with the nulls that pydantic and OpenBao say; both must
//! give the one value that this table has.

use crate::support::agent::AgentBox;
use control_plane::{Action, ControlPlane, Options, Response, Rule};
use monky_deployd::host::interrupt::Interrupt;
use monky_deployd::names::{SecretPath, Sha256};
use monky_deployd::remote::openbao::{OpenBao, Reading, TokenInfo};
use monky_deployd::remote::tenancy::{Action as Wanted, Checkin, LeaseReason, Tenancy, Vault};
use monky_deployd::secret::Secret;
use monky_deployd::settings::Settings;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const SHA: &str = "7a107a107a107a107a107a107a107a107a107a107a107a107a107a107a107a10";
const GRANT: &str = "eyJhbGciOiJFUzI1NiJ9.eyJraW5kIjoiZGVwbG95LWdyYW50In0.c2lnbmF0dXJl";
const BAO: &str = "https://bao.cbs.tikali.net:8200";

/// The call that is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Checkin,
    Lease,
    Login,
    LookupSelf,
    RenewSelf,
    Read,
}

/// What the library makes of the answer.
#[derive(Debug, PartialEq, Eq)]
enum Read {
    Checkin(Checkin),
    /// Grant, `ttl_s`, mount, role, address.
    Lease(String, u64, [Option<String>; 3]),
    /// Token, `ttl_s`, renewable, environment.
    Login(String, Option<u64>, bool, Option<String>),
    Token(Option<TokenInfo>),
    Left(Option<u64>),
    Secret(Reading),
    /// Code and message.
    Failed(&'static str, String),
}

fn text(words: &str) -> Option<String> {
    Some(words.to_owned())
}

fn checkin(action: Wanted) -> Checkin {
    Checkin {
        action,
        env_id: text("env-qa-02"),
        bundle_url: None,
        interval_s: Some(60),
        vault: Vault::default(),
    }
}

fn failed(code: &'static str, message: &str) -> Read {
    Read::Failed(code, message.to_owned())
}

fn apply() -> Wanted {
    Wanted::Apply(Sha256::new(SHA).unwrap())
}

/// Fixture, status, call, and what it must be read as.
type Row = (&'static str, u16, Call, Read);

fn checkins() -> Vec<Row> {
    let row = |name, checkin| (name, 200, Call::Checkin, Read::Checkin(checkin));
    let nobody = Checkin {
        env_id: None,
        interval_s: None,
        ..checkin(Wanted::None)
    };
    vec![
        row("checkin-none", checkin(Wanted::None)),
        row(
            "checkin-apply",
            Checkin {
                bundle_url: Some(format!("/v1/agent/bundle/env-qa-02/{SHA}")),
                vault: Vault {
                    addr: text(BAO),
                    mount: text("monky"),
                    prefix: text("env-qa-02/see"),
                    auth_mount: text("jwt-tenancy"),
                    auth_role: text("see-env"),
                },
                ..checkin(apply())
            },
        ),
        row(
            "checkin-apply-least",
            Checkin {
                action: apply(),
                ..nobody.clone()
            },
        ),
        row("checkin-empty-texts", nobody),
        row(
            "checkin-loose-numbers",
            Checkin {
                interval_s: Some(90),
                ..checkin(Wanted::None)
            },
        ),
        row(
            "checkin-number-as-text",
            Checkin {
                interval_s: Some(90),
                ..checkin(Wanted::None)
            },
        ),
        row(
            "checkin-down",
            checkin(Wanted::Down {
                purge_volumes: true,
            }),
        ),
        row(
            "checkin-down-kept",
            Checkin {
                interval_s: None,
                ..checkin(Wanted::Down {
                    purge_volumes: false,
                })
            },
        ),
        (
            "checkin-without-action",
            200,
            Call::Checkin,
            failed(
                "ANSWER_MALFORMED",
                "action must be a string, and it is missing",
            ),
        ),
        (
            "checkin-without-sha",
            200,
            Call::Checkin,
            failed(
                "ANSWER_MALFORMED",
                "desired_sha must be a string, and it is missing",
            ),
        ),
    ]
}

fn leases() -> Vec<Row> {
    let row = |name, read| (name, 200, Call::Lease, read);
    let mount_and_role = [text("jwt-tenancy"), text("see-env"), text(BAO)];
    let retired = "it is an AppRole lease; those were retired on 2026-09-05";
    vec![
        row("lease", Read::Lease(GRANT.into(), 1_800, mount_and_role)),
        row(
            "lease-least",
            Read::Lease(GRANT.into(), 3_600, [None, None, None]),
        ),
        row(
            "lease-older",
            Read::Lease(GRANT.into(), 3_600, [None, None, text(BAO)]),
        ),
        row("lease-approle", failed("LEASE_SHAPE", retired)),
        row(
            "lease-without-grant",
            failed("LEASE_SHAPE", "it has no login_jwt"),
        ),
        (
            "error-rate-limited",
            429,
            Call::Lease,
            failed(
                "PEER_TEMPORARY",
                "429 to POST /v1/agent/lease with LEASE_RATE_LIMITED: five leases an hour",
            ),
        ),
    ]
}

fn tokens() -> Vec<Row> {
    let token = "s.CONTRACT".to_owned();
    let info = |ttl_s, creation_ttl_s, renewable| {
        Read::Token(Some(TokenInfo {
            ttl_s,
            creation_ttl_s,
            renewable,
        }))
    };
    vec![
        (
            "login",
            200,
            Call::Login,
            Read::Login(token.clone(), Some(86_400), true, text("env-qa-02")),
        ),
        (
            "login-least",
            200,
            Call::Login,
            Read::Login(token, None, false, None),
        ),
        (
            "login-without-token",
            200,
            Call::Login,
            failed(
                "ANSWER_MALFORMED",
                "auth.client_token must be a string, and it is missing",
            ),
        ),
        (
            "login-expired",
            400,
            Call::Login,
            failed("LOGIN_REFUSED", "token is expired"),
        ),
        (
            "lookup-self",
            200,
            Call::LookupSelf,
            info(Some(43_200), 86_400, true),
        ),
        (
            "lookup-self-root",
            200,
            Call::LookupSelf,
            info(None, 0, false),
        ),
        ("kv-forbidden", 403, Call::LookupSelf, Read::Token(None)),
        ("kv-forbidden", 403, Call::RenewSelf, Read::Left(None)),
        ("renew-self", 200, Call::RenewSelf, Read::Left(Some(86_400))),
        (
            "error-sealed",
            503,
            Call::LookupSelf,
            failed("PEER_TEMPORARY", "Vault is sealed"),
        ),
    ]
}

fn secrets() -> Vec<Row> {
    let row = |name, status, reading| (name, status, Call::Read, Read::Secret(reading));
    let no_mount = "no handler for route \"monkey/data/env-qa-02/see/db\". route entry not found.";
    let deleted = Reading::Deleted {
        at: "2026-11-02T10:00:00.5Z".into(),
    };
    let data = Reading::Data {
        data: json!({"value": "p4$$ word\n", "port": 5432}),
        version: Some(3),
    };
    vec![
        row("kv", 200, data),
        row("kv-deleted", 404, deleted),
        row("kv-destroyed", 404, Reading::Destroyed),
        row("kv-missing", 404, Reading::Missing),
        row("kv-no-mount", 404, Reading::NoMount(no_mount.into())),
        row("kv-forbidden", 403, Reading::Forbidden),
    ]
}

fn errors() -> Vec<Row> {
    let row = |name, status: u16, words: &str| {
        let message = format!("tenancy answered {status} to POST /v1/agent/checkin{words}");
        (
            name,
            status,
            Call::Checkin,
            Read::Failed("PEER_REFUSED", message),
        )
    };
    let blocked = " with AGENT_BLOCKED: ask the desk";
    vec![
        row("error-code", 403, blocked),
        row("error-in-error", 403, blocked),
        row("error-in-detail", 403, blocked),
        row("error-words-elsewhere", 403, blocked),
        row("error-bare-error", 403, blocked),
        row("error-bare-detail", 403, " with AGENT_BLOCKED"),
        row("error-plain-words", 404, ": Not Found"),
        row(
            "error-422",
            422,
            ": body.facts.docker: Field required; body.drift.0: Extra inputs are not permitted",
        ),
    ]
}

fn rows() -> Vec<Row> {
    [checkins(), leases(), tokens(), secrets(), errors()]
        .into_iter()
        .flatten()
        .collect()
}

/// The library's two clients in front of servers that answer with fixtures.
struct Clients {
    plane: ControlPlane,
    tenancy: Tenancy,
    openbao: OpenBao,
    _agent: AgentBox,
}

impl Clients {
    fn new() -> Self {
        let plane = ControlPlane::start(Options::new("env-qa-02")).unwrap();
        let agent = AgentBox::connected(
            "env-qa-02",
            &plane.tenancy_url(),
            &plane.bao_url(),
            &plane.ca_pem(),
            &plane.grant(),
        );
        let settings = Settings::load(&agent.config_file()).unwrap();
        let interrupt = Interrupt::never().unwrap();
        Self {
            tenancy: Tenancy::new(&settings, &interrupt).unwrap(),
            openbao: OpenBao::new(&settings, &interrupt).unwrap(),
            plane,
            _agent: agent,
        }
    }

    /// Makes `call`, answers it with a file, and gives what was read.
    fn read(&self, call: Call, status: u16, file: &Path) -> Read {
        let answer = Response::bytes(status, "application/json", fs::read(file).unwrap());
        let rule = self.plane.fault(Rule::anywhere(Action::Respond(answer)));
        let (some, kv_path) = (
            Secret::new("s.OURS".into()),
            SecretPath::new("env-qa-02/see/db").unwrap(),
        );
        let bao = &self.openbao;
        let read = match call {
            Call::Checkin => self.tenancy.checkin(&some, &json!({})).map(Read::Checkin),
            Call::Lease => self.tenancy.lease(&some, LeaseReason::Apply).map(|lease| {
                let places = [lease.mount, lease.role, lease.addr];
                Read::Lease(lease.grant.expose().into(), lease.ttl_s, places)
            }),
            Call::Login => bao.login("jwt-tenancy", "see-env", &some).map(|login| {
                let token = login.token.expose().to_owned();
                Read::Login(token, login.ttl_s, login.renewable, login.env_id)
            }),
            Call::LookupSelf => bao.lookup_self(&some).map(Read::Token),
            Call::RenewSelf => bao.renew_self(&some).map(Read::Left),
            Call::Read => bao.read(&some, "monky", &kv_path, None).map(Read::Secret),
        };
        self.plane.faults().remove(rule);
        read.unwrap_or_else(|e| Read::Failed(e.code().as_str(), e.to_string()))
    }
}

/// A failure must say the words; everything else must be the same.
fn is_as_expected(read: &Read, expected: &Read) -> bool {
    match (read, expected) {
        (Read::Failed(code, message), Read::Failed(expected_code, words)) => {
            code == expected_code && message.contains(words)
        }
        _ => read == expected,
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/json")
}

#[test]
fn every_shape_is_read_as_it_should_be_with_and_without_nulls() {
    let clients = Clients::new();
    for (name, status, call, expected) in rows() {
        let mut readings = Vec::new();
        for ending in ["json", "nulls.json"] {
            let file = directory().join(format!("{name}.{ending}"));
            let read = clients.read(call, status, &file);
            assert!(
                is_as_expected(&read, &expected),
                "{name}.{ending}\n{read:?}\nis not\n{expected:?}"
            );
            readings.push(read);
        }
        assert_eq!(readings[0], readings[1], "{name}");
    }
}

#[test]
fn the_two_forms_of_a_shape_differ_in_nulls_only() {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(directory()).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let Some(name) = file.strip_suffix(".nulls.json") else {
            let nulls = file.replace(".json", ".nulls.json");
            assert!(directory().join(nulls).exists(), "{file} stands alone");
            continue;
        };
        let parse = |ending: &str| -> Value {
            let path = directory().join(format!("{name}.{ending}"));
            serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
        };
        let (plain, nulls) = (parse("json"), parse("nulls.json"));
        assert_ne!(plain, nulls, "{name}: there are no nulls");
        assert_eq!(strip(&plain), plain, "{name}.json has nulls");
        assert_eq!(strip(&nulls), strip(&plain), "{name}");
        found.insert(name.to_owned());
    }
    let named: BTreeSet<String> = rows().iter().map(|row| row.0.to_owned()).collect();
    assert_eq!(found, named, "every fixture has a row, and every row one");
}

/// Without nulls, and without what has nothing but nulls.
fn strip(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, value)| !is_void(value))
            .map(|(name, value)| (name.clone(), strip(value)))
            .collect(),
        Value::Array(items) => items.iter().map(strip).collect(),
        other => other.clone(),
    }
}

fn is_void(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => !fields.is_empty() && fields.values().all(is_void),
        _ => false,
    }
}
