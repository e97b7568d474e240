//! Owns the shapes of the request bodies and what FastAPI and pydantic say about a wrong one: 422 with `detail` entries.
//!
//! Unknown fields are ignored, as by a pydantic model without `extra`; a field that is absent may also be null.

use serde_json::{Map, Value, json};

use crate::http::{Request, Response};

/// One field of a model.
pub(super) struct Field {
    name: &'static str,
    required: bool,
    kind: Kind,
}

/// What a value must be.
enum Kind {
    Any,
    Text,
    LongText(usize),
    Integer,
    Number,
    OneOf(&'static [&'static str]),
    Texts,
    Model(&'static [Field]),
    Models(&'static [Field]),
}

const fn required(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        required: true,
        kind,
    }
}

const fn optional(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        required: false,
        kind,
    }
}

/// `POST /v1/agent/checkin`.
pub(super) const CHECKIN: &[Field] = &[
    required("env_id", Kind::Text),
    optional("site", Kind::Text),
    optional(
        "agent",
        Kind::Model(&[
            optional("version", Kind::Text),
            optional("transport", Kind::Text),
        ]),
    ),
    optional("applied_sha", Kind::Text),
    optional("last_result", Kind::Text),
    optional("last_error", Kind::Text),
    optional(
        "facts",
        Kind::Model(&[
            optional("docker", Kind::Text),
            optional("compose", Kind::Text),
            optional("disk_free_bytes", Kind::Integer),
            optional("hostname", Kind::Text),
            optional("boot_id", Kind::Text),
            optional("uptime_s", Kind::Number),
        ]),
    ),
    optional("failing_since", Kind::Any),
    optional("held", Kind::Any),
    optional("paused", Kind::Model(&[])),
    optional("drift", Kind::Any),
];

/// `POST /v1/agent/lease`.
pub(super) const LEASE: &[Field] = &[
    required("env_id", Kind::Text),
    optional("reason", Kind::OneOf(&["apply", "renew"])),
];

/// `POST /v1/agent/report`.
pub(super) const REPORT: &[Field] = &[
    required("env_id", Kind::Text),
    optional("tick_id", Kind::Text),
    optional("sha", Kind::Text),
    required("result", Kind::OneOf(&["applied", "failed", "down"])),
    optional("code", Kind::Text),
    optional("detail", Kind::Text),
    optional("log_tail", Kind::LongText(64 * 1024)),
    optional(
        "containers",
        Kind::Models(&[
            optional("service", Kind::Text),
            optional("name", Kind::Text),
            optional("image", Kind::Text),
            optional("state", Kind::Text),
            optional("health", Kind::Text),
            optional("exit_code", Kind::Integer),
        ]),
    ),
    optional("duration_s", Kind::Number),
    optional("secrets", Kind::Texts),
    optional("agent_version", Kind::Text),
    optional("restored", Kind::Text),
];

/// The body as JSON, or FastAPI's refusal of one that is none.
pub(super) fn read(request: &Request) -> Result<Value, Response> {
    if request.body.is_empty() {
        return Err(refuse(vec![
            json!({"type": "missing", "loc": ["body"], "msg": "Field required", "input": null}),
        ]));
    }
    let kind = request.header("content-type").unwrap_or_default();
    if !kind.starts_with("application/json") {
        // FastAPI hands such a body to the model as text.
        return Ok(Value::String(
            String::from_utf8_lossy(&request.body).into_owned(),
        ));
    }
    request.json().map_err(|error| {
        refuse(vec![json!({"type": "json_invalid", "loc": ["body", error.column()], "msg": "JSON decode error",
            "input": {}, "ctx": {"error": error.to_string()}})])
    })
}

/// The body as an object that fits `fields`, or pydantic's list of everything that does not.
pub(super) fn check<'a>(
    body: &'a Value,
    fields: &[Field],
    reject: &[String],
) -> Result<&'a Map<String, Value>, Response> {
    let mut findings = Vec::new();
    let loc = vec![json!("body")];
    check_model(body, fields, &loc, &mut findings);
    let object = body.as_object();
    for (name, value) in object
        .into_iter()
        .flatten()
        .filter(|(name, _)| reject.contains(name))
    {
        findings.push(finding(
            "extra_forbidden",
            &under(&loc, name),
            "Extra inputs are not permitted",
            value,
        ));
    }
    match object {
        Some(object) if findings.is_empty() => Ok(object),
        _ => Err(refuse(findings)),
    }
}

fn check_model(value: &Value, fields: &[Field], loc: &[Value], findings: &mut Vec<Value>) {
    let Value::Object(object) = value else {
        let words = "Input should be a valid dictionary or object to extract fields from";
        findings.push(finding("model_attributes_type", loc, words, value));
        return;
    };
    for field in fields {
        let loc = under(loc, field.name);
        match object.get(field.name) {
            None if field.required => {
                findings.push(finding("missing", &loc, "Field required", value))
            }
            None => {}
            Some(Value::Null) if !field.required => {}
            Some(inner) => check_value(inner, &field.kind, &loc, findings),
        }
    }
}

fn check_value(value: &Value, kind: &Kind, loc: &[Value], findings: &mut Vec<Value>) {
    let mut add = |kind: &str, words: &str| findings.push(finding(kind, loc, words, value));
    match (kind, value) {
        (Kind::Any, _) | (Kind::Text, Value::String(_)) => {}
        (Kind::Text | Kind::LongText(_), other) if !other.is_string() => {
            add("string_type", "Input should be a valid string")
        }
        (Kind::LongText(most), Value::String(text)) if text.chars().count() > *most => {
            add(
                "string_too_long",
                &format!("String should have at most {most} characters"),
            );
        }
        (Kind::Integer, Value::Number(n)) if n.as_f64().is_some_and(|n| n.fract() != 0.0) => add(
            "int_from_float",
            "Input should be a valid integer, got a number with a fractional part",
        ),
        (Kind::Integer, Value::String(text)) if text.trim().parse::<i64>().is_err() => {
            add(
                "int_parsing",
                "Input should be a valid integer, unable to parse string as an integer",
            );
        }
        (Kind::Integer, Value::Array(_) | Value::Object(_) | Value::Null) => {
            add("int_type", "Input should be a valid integer")
        }
        (Kind::Number, Value::String(text)) if text.trim().parse::<f64>().is_err() => {
            add(
                "float_parsing",
                "Input should be a valid number, unable to parse string as a number",
            );
        }
        (Kind::Number, Value::Array(_) | Value::Object(_) | Value::Null) => {
            add("float_type", "Input should be a valid number")
        }
        (Kind::OneOf(words), other)
            if !other.as_str().is_some_and(|text| words.contains(&text)) =>
        {
            add(
                "literal_error",
                &format!("Input should be {}", alternatives(words)),
            );
        }
        (Kind::Model(fields), _) => check_model(value, fields, loc, findings),
        (Kind::Texts | Kind::Models(_), Value::Array(items)) => {
            let item_kind = match kind {
                Kind::Models(fields) => Kind::Model(fields),
                _ => Kind::Text,
            };
            for (index, item) in items.iter().enumerate() {
                let mut loc = loc.to_vec();
                loc.push(index.into());
                check_value(item, &item_kind, &loc, findings);
            }
        }
        (Kind::Texts | Kind::Models(_), _) => add("list_type", "Input should be a valid list"),
        _ => {}
    }
}

fn finding(kind: &str, loc: &[Value], words: &str, input: &Value) -> Value {
    json!({"type": kind, "loc": loc, "msg": words, "input": input})
}

fn under(loc: &[Value], name: &str) -> Vec<Value> {
    let mut loc = loc.to_vec();
    loc.push(name.into());
    loc
}

/// `'apply' or 'renew'`, `'a', 'b' or 'c'`.
fn alternatives(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

fn refuse(findings: Vec<Value>) -> Response {
    Response::json(422, &json!({"detail": findings}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn details(body: &Value, fields: &[Field], reject: &[&str]) -> Vec<(String, Value)> {
        let reject: Vec<String> = reject.iter().map(|name| (*name).to_owned()).collect();
        let Err(response) = check(body, fields, &reject) else {
            return Vec::new();
        };
        assert_eq!(response.status, 422);
        let list = response.body_json()["detail"].as_array().unwrap().clone();
        list.iter()
            .map(|d| (d["type"].as_str().unwrap().to_owned(), d["loc"].clone()))
            .collect()
    }

    #[test]
    fn every_fault_is_listed_with_its_place() {
        let body =
            json!({"site": 7, "facts": {"disk_free_bytes": "many"}, "drift": null, "other": 1});
        let seen = details(&body, CHECKIN, &["other"]);
        let wanted = [
            ("missing", json!(["body", "env_id"])),
            ("string_type", json!(["body", "site"])),
            ("int_parsing", json!(["body", "facts", "disk_free_bytes"])),
            ("extra_forbidden", json!(["body", "other"])),
        ];
        assert_eq!(seen, wanted.map(|(kind, loc)| (kind.to_owned(), loc)));
    }

    #[test]
    fn lists_and_literals_are_checked() {
        let report = json!({"env_id": "e", "result": "odd", "containers": [{"exit_code": 1.5}], "secrets": ["A", 1]});
        let kinds: Vec<String> = details(&report, REPORT, &[])
            .into_iter()
            .map(|(kind, _)| kind)
            .collect();
        assert_eq!(kinds, ["literal_error", "int_from_float", "string_type"]);
        assert!(details(&json!({"env_id": "e"}), LEASE, &[]).is_empty());
        assert_eq!(
            details(&json!([]), LEASE, &[])[0].0,
            "model_attributes_type"
        );
        assert_eq!(alternatives(&["a", "b", "c"]), "'a', 'b' or 'c'");
    }
}
