//! The shapes that the real 2.7.2 was seen to answer with; `tests/e2e/fake_matches_real.rs` holds both servers against each other.

use super::*;
use crate::clock;

const OWN: &str = "/v1/monky/data/env-qa-02/see/a";

fn fake() -> FakeBao {
    FakeBao::new(Arc::new(Grants::new().unwrap()), BaoSettings::default())
}

fn call(bao: &FakeBao, method: &str, target: &str, token: &str, body: &Value) -> (u16, Value) {
    let request = Request {
        method: method.to_owned(),
        target: target.to_owned(),
        headers: vec![("X-Vault-Token".to_owned(), token.to_owned())],
        body: if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        },
    };
    let response = bao.handle(&request);
    (response.status, response.body_json())
}

fn get(bao: &FakeBao, target: &str, token: &str) -> (u16, Value) {
    call(bao, "GET", target, token, &Value::Null)
}

fn login(bao: &FakeBao, spec: &crate::GrantSpec) -> (u16, Value) {
    let body = json!({"role": "see-env", "jwt": bao.grants.sign(spec)});
    call(bao, "POST", "/v1/auth/jwt-tenancy/login", "", &body)
}

fn spec() -> crate::GrantSpec {
    crate::GrantSpec::new("env-qa-02")
}

fn token_of(bao: &FakeBao) -> String {
    let (status, body) = login(bao, &spec());
    assert_eq!(status, 200, "{body}");
    body["auth"]["client_token"].as_str().unwrap().to_owned()
}

#[test]
fn a_login_yields_a_token_that_can_be_looked_up() {
    let bao = fake();
    let (_, body) = login(&bao, &spec().claim("jti", "j1"));
    let auth = &body["auth"];
    assert_eq!(
        auth["metadata"],
        json!({"env_id": "env-qa-02", "grant_jti": "j1", "role": "see-env"})
    );
    assert_eq!(
        (&auth["lease_duration"], &auth["renewable"]),
        (&json!(86_400), &json!(true))
    );
    let token = auth["client_token"].as_str().unwrap();
    let (status, found) = get(&bao, "/v1/auth/token/lookup-self", token);
    assert_eq!(
        (status, &found["data"]["creation_ttl"]),
        (200, &json!(86_400))
    );
    let (_, seen) = call(
        &bao,
        "POST",
        "/v1/auth/token/lookup",
        bao.root_token(),
        &json!({"token": token}),
    );
    assert_eq!(seen["data"]["meta"]["grant_jti"], "j1");
}

#[test]
fn bad_grants_are_refused_in_the_real_words() {
    let bao = fake();
    let cases = [
        (spec().expires_in(-61), "token is expired"),
        (spec().claim("aud", "x"), "audience claim does not match"),
        (spec().claim("kind", "x"), "claim \"kind\" does not match"),
        (spec().without("kind"), "claim \"kind\" is missing"),
        (spec().without("sub"), "claim \"sub\" not found"),
        (
            spec().claim("nbf", clock::now().as_secs() + 3600),
            "token not yet valid",
        ),
    ];
    for (spec, words) in cases {
        let (status, body) = login(&bao, &spec);
        let text = body["errors"][0].as_str().unwrap();
        assert!(status == 400 && text.contains(words), "{status} {text}");
    }
    assert_eq!(
        login(&bao, &spec().expires_in(-50)).0,
        200,
        "60 s of skew are allowed"
    );
    let other = json!({"role": "nope", "jwt": "x"});
    let (status, body) = call(&bao, "POST", "/v1/auth/jwt-tenancy/login", "", &other);
    assert_eq!(
        (status, &body["errors"][0]),
        (400, &json!("role \"nope\" could not be found"))
    );
    assert_eq!(call(&bao, "POST", "/v1/auth/nope/login", "", &other).0, 403);
}

#[test]
fn secrets_have_versions_that_can_be_deleted_and_destroyed() {
    let bao = fake();
    let token = token_of(&bao);
    for value in ["v1", "v2", "v3"] {
        bao.put_secret("env-qa-02/see/a", json!({"value": value}));
    }
    assert_eq!(get(&bao, OWN, &token).1["data"]["data"]["value"], "v3");
    assert_eq!(
        get(&bao, &format!("{OWN}?version=1"), &token).1["data"]["data"]["value"],
        "v1"
    );
    assert!(bao.delete_version("env-qa-02/see/a", 1) && bao.destroy_version("env-qa-02/see/a", 2));
    let (status, deleted) = get(&bao, &format!("{OWN}?version=1"), &token);
    assert_eq!((status, &deleted["data"]["data"]), (404, &Value::Null));
    assert!(
        deleted["data"]["metadata"]["deletion_time"]
            .as_str()
            .unwrap()
            .starts_with("20")
    );
    let (status, destroyed) = get(&bao, &format!("{OWN}?version=2"), &token);
    assert_eq!(
        (status, &destroyed["data"]["metadata"]["destroyed"]),
        (404, &json!(true))
    );
    for nowhere in [format!("{OWN}?version=9"), format!("{OWN}-missing")] {
        assert_eq!(get(&bao, &nowhere, &token), (404, json!({"errors": []})));
    }
}

#[test]
fn the_policy_covers_the_own_see_folder_and_no_more() {
    let bao = fake();
    let token = token_of(&bao);
    bao.put_secret("env-qa-02/see/a", json!({"value": "<&>"}));
    let outside = (
        403,
        json!({"errors": ["1 error occurred:\n\t* permission denied\n\n"]}),
    );
    let targets = [
        "/v1/monky/data/env-qa-03/see/a",
        "/v1/monky/data/env-qa-02/other",
        "/v1/nomount/data/x",
    ];
    for target in targets {
        assert_eq!(get(&bao, target, &token), outside, "{target}");
    }
    assert_eq!(
        call(
            &bao,
            "POST",
            "/v1/auth/token/revoke-self",
            &token,
            &Value::Null
        ),
        outside
    );
    assert_eq!(
        get(&bao, OWN, "s.unknown"),
        (403, json!({"errors": ["permission denied"]}))
    );
    let (status, body) = get(&bao, "/v1/nomount/data/x", bao.root_token());
    assert_eq!(
        (status, &body["errors"][0]),
        (
            404,
            &json!("no handler for route \"nomount/data/x\". route entry not found.")
        )
    );
    assert_eq!(
        get(&bao, "/v1/monky/metadata/env-qa-02/see?list=true", &token).1["data"]["keys"],
        json!(["a"])
    );
    bao.set(|settings| settings.denied.push("env-qa-02/see/a".to_owned()));
    assert_eq!(get(&bao, OWN, &token), outside);
}

#[test]
fn renewal_stops_at_the_maximum_age_and_at_what_is_not_renewable() {
    let bao = fake();
    let token = token_of(&bao);
    let renew = |token: &str| call(&bao, "POST", "/v1/auth/token/renew-self", token, &json!({}));
    bao.set(|settings| settings.token_max_ttl_s = 30 * 3600);
    bao.age_tokens(Duration::from_secs(20 * 3600));
    let (status, body) = renew(&token);
    assert_eq!(
        (status, &body["auth"]["lease_duration"]),
        (200, &json!(36_000))
    );
    assert_eq!(
        body["warnings"][0],
        "TTL of \"24h\" exceeded the effective max_ttl of \"10h\"; TTL value is capped accordingly"
    );
    let fixed = bao.mint_token("env-qa-02", "j", 60, false);
    assert_eq!(
        renew(&fixed.id),
        (400, json!({"errors": ["lease is not renewable"]}))
    );
    bao.age_tokens(Duration::from_secs(11 * 3600));
    assert_eq!(
        renew(&token),
        (403, json!({"errors": ["permission denied"]}))
    );
}

#[test]
fn a_server_that_does_not_serve_says_why() {
    let bao = fake();
    let token = token_of(&bao);
    bao.set_mode(Mode::Sealed);
    assert_eq!(
        get(&bao, OWN, &token),
        (503, json!({"errors": ["Vault is sealed"]}))
    );
    bao.set_mode(Mode::Standby("https://leader:8200/".to_owned()));
    let request = Request {
        method: "GET".into(),
        target: OWN.into(),
        ..Request::default()
    };
    let answer = bao.handle(&request);
    assert_eq!(
        (answer.status, answer.header("location")),
        (307, Some(format!("https://leader:8200{OWN}").as_str()))
    );
    bao.set_mode(Mode::LostLeader);
    assert_eq!(get(&bao, OWN, &token).0, 500);
}

#[test]
fn doubled_slashes_are_redirected_away() {
    assert_eq!(
        cleaned("/v1/monky/data//a"),
        Some("/v1/monky/data/a".to_owned())
    );
    assert_eq!(cleaned("/v1/a/../b/"), Some("/v1/b/".to_owned()));
    assert_eq!(cleaned("/v1/a/b"), None);
}
