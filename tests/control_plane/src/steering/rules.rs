//! Owns the JSON spelling of fault rules, for `/_control/fault`:
//!
//! `{"peer": "tenancy|bao", "connect": false, "method", "path", "skip", "times", "after_effect", "action": …}` with an action
//! `respond` (`status`, `json` or `text`, `headers`), `merge` (`json`), `delay`, `drip-head`, `drip-body` (`ms`), `close`, `reset`, `hang`,
//! `cut` (`keep`, `length`), `reset-in-body` (`keep`), `huge` (`bytes`, `length`), `garbage` (`text`), `redirect` (`status`, `location`).

use std::time::Duration;

use serde_json::Value;

use crate::Peer;
use crate::faults::{Action, BodyLength, Rule};
use crate::http::Response;

/// Reads a rule.
pub(super) fn parse(json: &Value) -> Result<Rule, String> {
    let action = action(json)?;
    let connect = json
        .get("connect")
        .and_then(Value::as_bool)
        .unwrap_or(false);
    let mut rule = match (text(json, "peer"), connect) {
        (None, false) => Rule::anywhere(action),
        (None, true) => return Err("connect needs a peer".to_owned()),
        (Some(peer), false) => Rule::on(self::peer(peer)?, action),
        (Some(peer), true) => Rule::on_connect(self::peer(peer)?, action),
    };
    if let Some(method) = text(json, "method") {
        rule = rule.method(method);
    }
    if let Some(path) = text(json, "path") {
        rule = rule.path(path);
    }
    if let Some(skip) = number(json, "skip") {
        rule = rule.skip(size(skip));
    }
    if let Some(times) = number(json, "times") {
        rule = rule.times(size(times));
    }
    if json.get("after_effect").and_then(Value::as_bool) == Some(true) {
        rule = rule.after_effect();
    }
    Ok(rule)
}

fn action(json: &Value) -> Result<Action, String> {
    let pause = || Duration::from_millis(number(json, "ms").unwrap_or(1000));
    let keep = || size(number(json, "keep").unwrap_or(0));
    Ok(match text(json, "action").ok_or("action is missing")? {
        "respond" => Action::Respond(response(json)?),
        "merge" => Action::Merge(json.get("json").cloned().ok_or("json is missing")?),
        "delay" => Action::Delay(pause()),
        "drip-head" => Action::DripHead(pause()),
        "drip-body" => Action::DripBody(pause()),
        "close" => Action::Close,
        "reset" => Action::Reset,
        "hang" => Action::Hang,
        "cut" => Action::Cut {
            keep: keep(),
            length: length(json)?,
        },
        "reset-in-body" => Action::ResetInBody { keep: keep() },
        "huge" => Action::Huge {
            bytes: number(json, "bytes").unwrap_or(100 << 20),
            length: length(json)?,
        },
        "garbage" => Action::Garbage(text(json, "text").unwrap_or("\0\x01garbage\r\n\r\n").into()),
        "redirect" => Action::redirect(
            status(json, 307)?,
            text(json, "location").ok_or("location is missing")?,
        ),
        other => return Err(format!("unknown action {other}")),
    })
}

fn response(json: &Value) -> Result<Response, String> {
    let status = status(json, 500)?;
    let mut response = match json.get("json") {
        Some(body) => Response::json(status, body),
        None => Response::bytes(status, "text/plain", text(json, "text").unwrap_or_default()),
    };
    for (name, value) in json
        .get("headers")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        response = response.with_header(name, value);
    }
    Ok(response)
}

fn peer(name: &str) -> Result<Peer, String> {
    [Peer::Tenancy, Peer::Bao]
        .into_iter()
        .find(|peer| peer.as_str() == name)
        .ok_or_else(|| format!("unknown peer {name}"))
}

fn length(json: &Value) -> Result<BodyLength, String> {
    match text(json, "length") {
        None | Some("declared") => Ok(BodyLength::Declared),
        Some("understated") => Ok(BodyLength::Understated),
        Some("absent") => Ok(BodyLength::Absent),
        Some(other) => Err(format!("unknown length {other}")),
    }
}

fn status(json: &Value, default: u16) -> Result<u16, String> {
    match number(json, "status") {
        None => Ok(default),
        Some(status) => u16::try_from(status).map_err(|_| format!("not a status: {status}")),
    }
}

fn text<'a>(json: &'a Value, name: &str) -> Option<&'a str> {
    json.get(name).and_then(Value::as_str)
}

fn number(json: &Value, name: &str) -> Option<u64> {
    json.get(name).and_then(Value::as_u64)
}

fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rules_are_read_and_faulty_ones_named() {
        assert!(
            parse(
                &json!({"peer": "bao", "action": "cut", "keep": 3, "length": "absent", "times": 1})
            )
            .is_ok()
        );
        let wrong = [
            (json!({}), "action is missing"),
            (json!({"action": "dance"}), "unknown action dance"),
            (json!({"action": "hang", "peer": "x"}), "unknown peer x"),
            (
                json!({"action": "hang", "connect": true}),
                "connect needs a peer",
            ),
            (json!({"action": "redirect"}), "location is missing"),
        ];
        for (rule, words) in wrong {
            assert_eq!(parse(&rule).unwrap_err(), words);
        }
    }
}
