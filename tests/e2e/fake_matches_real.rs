//! Holds the embedded OpenBao of the control plane against a real one: the same calls to both must give the same
//! statuses, the same words and JSON of the same shape, so that what the other tests show with the fake is true.

use crate::lab::Estate;
use crate::support::skip;
use control_plane::{Client, ControlPlane, GrantSpec, Grants, Options, RealBao, Response};
use serde_json::{Value, json};
use std::sync::Arc;

const ENV: &str = "env-qa-02";
const LOGIN: &str = "auth/jwt-tenancy/login";

/// Leaves keys, types and words; takes away what differs from call to call.
fn shape(value: &Value, key: &str) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), shape(value, key)))
            .collect(),
        Value::Array(items) => items.iter().map(|item| shape(item, key)).collect(),
        Value::String(text) if key.ends_with("_time") && text.is_empty() => json!("empty"),
        Value::String(_)
            if key.ends_with("_time") || key.ends_with("_id") || key == "last_renewal" =>
        {
            json!("varies")
        }
        Value::String(_) if ["client_token", "accessor", "id"].contains(&key) => json!("varies"),
        Value::Number(_) if key.ends_with("_time") || key == "ttl" => json!(0),
        other => other.clone(),
    }
}

fn outcome(response: &Response) -> (u16, Value) {
    (response.status, shape(&response.body_json(), ""))
}

/// One server with an agent's token.
struct Side {
    bao: RealBao,
    token: String,
}

impl Side {
    fn new(bao: RealBao, jwt: &str) -> Self {
        let login = json!({"role": "see-env", "jwt": jwt});
        let answer = bao.call_as("", "POST", LOGIN, &login).unwrap().body_json();
        let token = answer["auth"]["client_token"]
            .as_str()
            .expect("a token")
            .to_owned();
        Self { bao, token }
    }

    fn ask(&self, call: &Call) -> (u16, Value) {
        let answer = match call.who {
            "root" => self.bao.call(call.method, call.path, &call.body),
            "agent" => self
                .bao
                .call_as(&self.token, call.method, call.path, &call.body),
            token => self.bao.call_as(token, call.method, call.path, &call.body),
        };
        outcome(&answer.unwrap())
    }
}

/// A call; `who` is `root`, `agent` or a token, which may be empty.
struct Call {
    who: &'static str,
    method: &'static str,
    path: &'static str,
    body: Value,
}

#[test]
fn the_fake_openbao_answers_as_the_real_one() {
    let fake_plane = ControlPlane::start(Options::new(ENV)).unwrap();
    let estate = Estate::knowing(Arc::clone(fake_plane.grants()));
    let Some(estate) = skip::require("openbao", estate) else {
        return;
    };
    // The fake names an entity by the grant's subject, not by its environment; there is one of each.
    estate.bao.set_role(&json!({"user_claim": "sub"}));
    let real = RealBao::new(
        &estate.bao.url(),
        estate.bao.root_token(),
        &estate.bao.ca_pem(),
    );
    let fake = RealBao::new(
        &fake_plane.bao_url(),
        fake_plane.fake_bao().unwrap().root_token(),
        &fake_plane.ca_pem(),
    );
    for value in ["v1", "v2", "v3"] {
        let data = json!({"value": value, "odd": "<&\u{2028}é", "n": 7, "b": true});
        estate.bao.put_secret("env-qa-02/see/a", &data);
        fake_plane.put_secret("env-qa-02/see/a", data).unwrap();
    }
    let jwt = estate.grants.sign(&GrantSpec::new(ENV).claim("jti", "j1"));
    let sides = [real, fake].map(|side| Side::new(side.unwrap(), &jwt));
    let calls = calls(&estate.grants);
    assert!(calls.len() >= 50, "{}", calls.len());
    let mut differing = Vec::new();
    for call in &calls {
        let [real, fake] = [&sides[0], &sides[1]].map(|side| side.ask(call));
        if real != fake {
            differing.push(format!(
                "{} {} {}\n  real {} {}\n  fake {} {}",
                call.who, call.method, call.path, real.0, real.1, fake.0, fake.1
            ));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

fn calls(grants: &Grants) -> Vec<Call> {
    let spec = || GrantSpec::new(ENV);
    let login = |spec: GrantSpec| json!({"role": "see-env", "jwt": grants.sign(&spec)});
    let stranger = Grants::new().unwrap().deploy_grant(ENV);
    let logins = [
        login(spec().claim("jti", "j2")),
        login(spec().without("exp")),
        login(spec().expires_in(-30)),
        login(spec().expires_in(-90)),
        login(spec().claim("aud", "x")),
        login(spec().without("aud")),
        login(spec().claim("aud", json!(["x", "openbao-see-env"]))),
        login(spec().claim("kind", "x")),
        login(spec().without("kind")),
        login(spec().without("sub")),
        login(
            spec()
                .claim("nbf", 4_000_000_000_u64)
                .claim("exp", 4_000_003_600_u64),
        ),
        json!({"role": "see-env", "jwt": stranger}),
        json!({"role": "nope", "jwt": "x"}),
        json!({"role": "", "jwt": "x"}),
        json!({"role": "see-env", "jwt": ""}),
        json!({"role": "see-env", "jwt": "garbage"}),
    ];
    let call = |who, method, path, body| Call {
        who,
        method,
        path,
        body,
    };
    let bare = |(who, method, path)| call(who, method, path, Value::Null);
    let own = "monky/data/env-qa-02/see/a";
    let mut calls: Vec<Call> = logins
        .map(|body| call("", "POST", LOGIN, body))
        .into_iter()
        .collect();
    let no_mount = json!({"role": "see-env", "jwt": "x"});
    calls.push(call("", "POST", "auth/nope/login", no_mount));
    calls.extend(
        [
            ("", "GET", LOGIN),
            ("agent", "GET", "auth/token/lookup-self"),
            ("agent", "POST", "auth/token/lookup-self"),
            ("agent", "POST", "auth/token/renew-self"),
            ("agent", "GET", "auth/token/lookup-self"),
            ("agent", "POST", "auth/token/revoke-self"),
            ("agent", "POST", "auth/token/lookup"),
            ("root", "POST", "auth/token/renew-self"),
            ("s.unknown", "GET", "auth/token/lookup-self"),
            ("", "GET", own),
            ("s.unknown", "GET", own),
            ("agent", "GET", own),
            ("agent", "GET", "monky/data/env-qa-02/see/a?version=2"),
            ("agent", "GET", "monky/data/env-qa-02/see/a?version=0"),
            ("agent", "GET", "monky/data/env-qa-02/see/a?version=9"),
            ("agent", "GET", "monky/data/env-qa-02/see/a?version=x"),
            ("agent", "GET", "monky/data/env-qa-02/see/%61"),
            ("agent", "GET", "monky/data/env-qa-02/see//a"),
            ("agent", "GET", "monky/data/env-qa-02/see/missing"),
            ("agent", "GET", "monky/data/env-qa-02/other"),
            ("agent", "GET", "monky/data/env-qa-03/see/a"),
            ("agent", "GET", "nomount/data/env-qa-02/see/a"),
            ("root", "GET", "nomount/data/env-qa-02/see/a"),
            ("agent", "DELETE", own),
            ("agent", "GET", "monky/metadata/env-qa-02/see?list=true"),
            ("agent", "LIST", "monky/metadata/env-qa-02/see/"),
            ("agent", "GET", "monky/metadata/env-qa-02/see/a"),
        ]
        .map(bare),
    );
    for (method, path, body) in [
        ("POST", "auth/token/lookup", json!({"token": "s.unknown"})),
        (
            "POST",
            "monky/delete/env-qa-02/see/a",
            json!({"versions": [1]}),
        ),
        (
            "PUT",
            "monky/destroy/env-qa-02/see/a",
            json!({"versions": [2]}),
        ),
    ] {
        calls.push(call("root", method, path, body));
    }
    calls.extend(
        [
            ("root", "DELETE", own),
            ("agent", "GET", "monky/data/env-qa-02/see/a?version=1"),
            ("agent", "GET", "monky/data/env-qa-02/see/a?version=2"),
            ("agent", "GET", own),
        ]
        .map(bare),
    );
    calls
}

#[test]
fn tenancy_pins_bearers_of_a_real_server() {
    let Some(estate) = skip::require("openbao", Estate::start()) else {
        return;
    };
    let plane = ControlPlane::start_with_real_bao(
        Options::new(ENV),
        &estate.bao.url(),
        estate.bao.root_token(),
        &estate.bao.ca_pem(),
        Arc::clone(&estate.grants),
    )
    .unwrap();
    let (_, login) = estate.bao.login(&plane.grant());
    let token = login["auth"]["client_token"].as_str().unwrap().to_owned();
    let client = Client::new(&plane.tenancy_url(), "").unwrap();
    let checkin = || {
        let headers = [
            ("Authorization".to_owned(), format!("Bearer {token}")),
            ("Content-Type".to_owned(), "application/json".to_owned()),
        ];
        let body = json!({"env_id": ENV}).to_string();
        client
            .send("POST", "/v1/agent/checkin", &headers, body.as_bytes())
            .unwrap()
            .status
    };
    assert_eq!(checkin(), 200);
    estate.bao.revoke_token(&token);
    assert_eq!(checkin(), 401);
    drop(estate);
    assert_eq!(checkin(), 503);
}
