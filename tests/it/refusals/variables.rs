//! What is wrong with `.env.template`, with the variables of the compose file, and with the values that come to both.

use super::case::{Case, PLAIN_VALUE, Seen, template};
use super::services;
use crate::support::scene::compose;
use serde_json::json;

#[test]
fn variables_that_nothing_provides() {
    let uses = |text: &str| services(&json!({"web": {"image": "a:1", "environment": {"X": text}}}));
    let case = Case::new();
    case.refuses(
        "ENV_INCOMPLETE",
        &[
            (uses("${A}"), &["unresolved: A"]),
            (uses("$A"), &["unresolved: A"]),
            (uses("${A:?say it}"), &["unresolved: A"]),
            (uses("${A?say it}"), &["unresolved: A"]),
            (uses("${B:-${A}}"), &["unresolved: A"]),
            (uses("${A:-} and $A"), &["unresolved: A"]),
            (template("X=${A}\n"), &["unresolved: A"]),
            (template("X='${A}'\n"), &["unresolved: A"]),
            (template("X=\"${A:?say it}\"\n"), &["unresolved: A"]),
            (template("X=${B:-${A}}\n"), &["unresolved: A"]),
            (template("X=${LATER}\nLATER=1\n"), &["unresolved: LATER"]),
            (
                template("A\n"),
                &[".env.template, line 4: A has no value: write A=… (a bare key is never taken from the agent's environment)"],
            ),
            (
                template("X=${C}${A}\n")
                    .compose(&compose(&json!({"web": {"image": "a:${B}"}})).to_string()),
                &["unresolved: A, B, C"],
            ),
        ],
    );
    for taken in [
        uses("${A:-}"),
        uses("${A-d} ${A:+x} ${A+x} $$A $${A}"),
        uses("${A:-${PLAIN}}"),
        template("# ${A} and $A\nX=1 # ${A}\n"),
        template("X=${A:-}${A-d}${A:+x}${A+x}\nY=$A\nZ=$${A}\n"),
    ] {
        case.takes(&taken.meta_with(&json!({"agent": {"allow_rollback": true}})));
    }
}

#[test]
fn keys_that_would_steer_docker() {
    let reserved = [
        "COMPOSE_FILE",
        "COMPOSE_ENV_FILES",
        "COMPOSE_DISABLE_ENV_FILE",
        "COMPOSE_PATH_SEPARATOR",
        "COMPOSE_REMOVE_ORPHANS",
        "COMPOSE_IGNORE_ORPHANS",
        "COMPOSE_CONVERT_WINDOWS_PATHS",
        "DOCKER_HOST",
        "DOCKER_CONTEXT",
        "DOCKER_CONFIG",
        "DOCKER_TLS",
        "DOCKER_TLS_VERIFY",
        "DOCKER_CERT_PATH",
    ];
    let define = |keys: &[&str]| -> String {
        let lines = keys.iter().map(|key| format!("{key}={PLAIN_VALUE}\n"));
        lines.collect()
    };
    let all = format!("the template defines {}", reserved.join(", "));
    let case = Case::new();
    case.refuses(
        "ENV_RESERVED",
        &[
            (
                template("A B=1\n'C'=1\n"),
                &[".env.template, line 4: a key that Compose's parser does not take: a key is made of letters, digits and _ . - [ ]", ".env.template, line 5: a key that Compose's parser does not take: a key is made of letters, digits and _ . - [ ]"],
            ),
            (template(&define(&["DOCKER_HOST"])), &["the template defines DOCKER_HOST"]),
            (template(&define(&reserved)), &[&all]),
        ],
    );
    let ordinary = [
        "COMPOSE_PROJECT_NAME",
        "COMPOSE_PROFILES",
        "COMPOSE_FILES",
        "DOCKER_IMAGE",
    ];
    case.takes(&template(&define(&ordinary)));
}

#[test]
fn values_that_cannot_be_carried() {
    let case = Case::new();
    let code = "ENV_ROUNDTRIP";
    // Docker's own process needs these two, and what it has goes before the file.
    let own = template("PATH=/opt/bin\nHOME=/srv\n").build();
    let told = case.refuses_one(Seen::WithSecrets, code, &own);
    told.is(
        code,
        &["Compose does not read back exactly: HOME (interpolation), PATH (interpolation)"],
    );
    case.waits_and_is_not_reported_again(code, own.sha(), &told);
    let secret = json!({"value": "s3cr3t-with\u{0}nul"});
    let plane = &case.scene.plane;
    plane.put_secret("env-qa-02/see/db", secret).unwrap();
    let told = case.refuses_one(
        Seen::WithSecrets,
        code,
        &template("URL=postgres://${DB}@db\n").build(),
    );
    told.is(
        code,
        &[
            "DB holds a NUL byte, which no environment can carry",
            "URL holds a NUL byte, which no environment can carry",
        ],
    );
    case.scene.agent.tick().exits(1).is_silent_on("s3cr3t-with");
}
