//! Types, ranges and unknown keys: each refusal with line, column and text.

use super::*;
use crate::settings::yaml;

fn read(text: &str, key: Key) -> Result<Value<'_>, String> {
    let mut faults = Faults::new(text);
    let entries = yaml::parse(text, &mut faults);
    let raw = Raw::read(entries, &mut faults, &[]);
    let problems = faults.into_problems();
    match problems.as_slice() {
        [] => Ok(raw
            .get(key)
            .map_or(Value::Unset, |written| written.value.clone())),
        [problem] => Err(format!(
            "{}:{} {}",
            problem.line, problem.column, problem.message
        )),
        _ => panic!("{text}: {problems:#?}"),
    }
}

#[test]
fn a_value_is_read_as_its_keys_type() {
    for (text, key, value) in [
        ("prod: true", Key::Prod, Value::Bool(true)),
        ("prod: TRUE", Key::Prod, Value::Bool(true)),
        ("prod: False", Key::Prod, Value::Bool(false)),
        ("interval_s: 60", Key::IntervalS, Value::Int(60)),
        ("interval_s: +60", Key::IntervalS, Value::Int(60)),
        ("stable_for_s: 0", Key::StableForS, Value::Int(0)),
        ("stable_for_s: -0", Key::StableForS, Value::Int(0)),
        ("disk_factor: 1.25", Key::DiskFactor, Value::Number(1.25)),
        ("disk_factor: 10", Key::DiskFactor, Value::Number(10.0)),
        ("disk_factor: 0.2e1", Key::DiskFactor, Value::Number(2.0)),
        ("site: 12", Key::Site, Value::Text("12".into())),
        ("site: 'no'", Key::Site, Value::Text("no".into())),
        (
            "transport: 'proxy'",
            Key::Transport,
            Value::Text("proxy".into()),
        ),
        ("log_level: wArN", Key::LogLevel, Value::Text("WARN".into())),
        ("bao:\n  role: r", Key::BaoRole, Value::Text("r".into())),
        ("bao:", Key::BaoRole, Value::Unset),
        ("prod: ~", Key::Prod, Value::Unset),
    ] {
        assert_eq!(read(text, key), Ok(value), "{text}");
    }
}

#[test]
fn a_wrong_type_or_range_is_refused_with_what_to_write() {
    let int = "must be a whole number from 10 to 86400, not";
    let number = "must be a number from 1.0 to 10.0, not";
    for (text, problem) in [
        ("prod: yes", "1:7 `prod` must be `true` or `false`, not `yes`: write `true`".to_owned()),
        ("prod: OFF", "1:7 `prod` must be `true` or `false`, not `OFF`: write `false`".to_owned()),
        ("prod: tRUE", "1:7 `prod` must be `true` or `false`, not `tRUE`: write `true`".to_owned()),
        ("prod: 'true'", "1:7 `prod` must be `true` or `false`, not the text \"true\": write `true`".to_owned()),
        ("prod: 1", "1:7 `prod` must be `true` or `false`, not `1`: write one of the two".to_owned()),
        ("interval_s: 010", format!("1:13 `interval_s` {int} `010`: write it without the leading zero")),
        ("interval_s: 0x10", format!("1:13 `interval_s` {int} `0x10`: write digits only")),
        ("interval_s: 0o17", format!("1:13 `interval_s` {int} `0o17`: write digits only")),
        ("interval_s: 60s", format!("1:13 `interval_s` {int} `60s`: write digits only")),
        ("interval_s: 1_000", format!("1:13 `interval_s` {int} `1_000`: write digits only")),
        ("interval_s: 6e1", format!("1:13 `interval_s` {int} `6e1`: write digits only")),
        ("interval_s: 60.0", format!("1:13 `interval_s` {int} `60.0`: write digits only")),
        ("interval_s: true", format!("1:13 `interval_s` {int} `true`: write digits only")),
        ("interval_s: -", "1:13 a list item stands on a line of its own: write `- item` below the key".to_owned()),
        ("interval_s: '60'", format!("1:13 `interval_s` {int} the text \"60\": write it without quotes")),
        ("interval_s: ''", format!("1:13 `interval_s` {int} the text \"\": write digits only")),
        ("interval_s: 9", format!("1:13 `interval_s` {int} `9`")),
        ("interval_s: 86401", format!("1:13 `interval_s` {int} `86401`")),
        ("interval_s: -60", format!("1:13 `interval_s` {int} `-60`")),
        ("interval_s: 99999999999999999999999", format!("1:13 `interval_s` {int} `99999999999999999999999`")),
        ("disk_factor: 0.9", format!("1:14 `disk_factor` {number} `0.9`")),
        ("disk_factor: 10.01", format!("1:14 `disk_factor` {number} `10.01`")),
        ("disk_factor: -2", format!("1:14 `disk_factor` {number} `-2`")),
        ("disk_factor: 1e999", format!("1:14 `disk_factor` {number} `1e999`")),
        ("disk_factor: 01.5", format!("1:14 `disk_factor` {number} `01.5`: write it in decimal and without a leading zero")),
        ("disk_factor: 1,5", format!("1:14 `disk_factor` {number} `1,5`: write digits and a point, for example `1.5`")),
        ("disk_factor: .nan", format!("1:14 `disk_factor` {number} `.nan`: write digits and a point, for example `1.5`")),
        ("disk_factor: inf", format!("1:14 `disk_factor` {number} `inf`: write digits and a point, for example `1.5`")),
        ("disk_factor: '2'", format!("1:14 `disk_factor` {number} the text \"2\": write it without quotes")),
        ("transport: Proxy", "1:12 `transport` must be `system` or `proxy`, not `Proxy`: did you mean `proxy`?".to_owned()),
        ("transport: tunnel", "1:12 `transport` must be `system` or `proxy`, not `tunnel`".to_owned()),
        ("transport: sdk", "1:12 this build has no embedded mesh SDK: run ziti-edge-tunnel and use `system`, or `proxy`".to_owned()),
        ("transport: \"sdk\"", "1:12 this build has no embedded mesh SDK: run ziti-edge-tunnel and use `system`, or `proxy`".to_owned()),
        ("log_level: warning", "1:12 `log_level` must be `ERROR`, `WARN`, `INFO`, `DEBUG` or `TRACE`, not `warning`".to_owned()),
        ("log_target: journal", "1:13 `log_target` must be `auto`, `stderr` or `syslog`, not `journal`".to_owned()),
        ("site: \"a\\nb\"", "1:7 `site` holds the control character U+000A: write it without".to_owned()),
        ("site: ' a'", "1:7 `site` begins or ends with a blank: write it without".to_owned()),
        ("site:\n  a: b", "2:3 `site` takes one value, not keys of its own: write `site: …` on one line".to_owned()),
        ("bao:\n  role:\n  - r", "3:3 `bao.role` takes one value, not a list: write `role: …` on one line".to_owned()),
        ("bao: x", "1:6 `bao` takes keys of its own: write them below `bao:`, indented".to_owned()),
        ("bao:\n- x", "2:1 `bao` takes keys of its own: write them below `bao:`, indented".to_owned()),
    ] {
        assert_eq!(read(text, Key::Site), Err(problem), "{text}");
    }
    let long = format!("site: {}", "x".repeat(1025));
    assert_eq!(
        read(&long, Key::Site),
        Err("1:7 `site` is longer than 1024 bytes".to_owned())
    );
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_known_one() {
    for (text, problem) in [
        (
            "env-id: a",
            "1:1 unknown key `env-id`: did you mean `env_id`?",
        ),
        ("Site: a", "1:1 unknown key `Site`: did you mean `site`?"),
        (
            "tenacy:\n  port: 1",
            "1:1 unknown key `tenacy`: did you mean `tenancy`?",
        ),
        (
            "bao:\n  kvmount: x",
            "2:3 unknown key `kvmount` in `bao`: did you mean `kv_mount`?",
        ),
        (
            "bao:\n  address: x",
            "2:3 unknown key `address` in `bao`: did you mean `addr`?",
        ),
        (
            "ca_file: /x",
            "1:1 unknown key `ca_file`: the key is `bao.ca_file`",
        ),
        (
            "timeout_s: 1",
            "1:1 unknown key `timeout_s`: the key is `tenancy.timeout_s` or `bao.timeout_s`",
        ),
        (
            "bao:\n  env_id: x",
            "2:3 unknown key `env_id` in `bao`: the key is `env_id`",
        ),
        (
            "tenancy.port: 443",
            "1:1 unknown key `tenancy.port`: write `port:` below `tenancy:`, indented",
        ),
        (
            "tenancy:\n  tenancy.port: 443",
            "2:3 unknown key `tenancy.port` in `tenancy`: write `port:` below `tenancy:`, indented",
        ),
        (
            "xyzzyxyzzyxyzzy: 1",
            "1:1 unknown key `xyzzyxyzzyxyzzy`: remove it",
        ),
        ("'': 1", "1:1 unknown key ``: remove it"),
        (
            "bao:\n  bao:\n    role: r",
            "2:3 unknown key `bao` in `bao`: remove it",
        ),
    ] {
        assert_eq!(read(text, Key::Site), Err(problem.to_owned()), "{text}");
    }
}

#[test]
fn null_bool_and_numbers_are_those_of_the_core_schema() {
    use saphyr::Scalar as Full;
    for text in [
        "~", "null", "Null", "NULL", "nULL", "true", "True", "TRUE", "tRUE", "false", "False",
        "FALSE", "no", "off", "y", "10", "+10", "-10", "010", "0x1A", "0o17", "1e3", "1.5", "10.",
        ".5", "1.5e0", "+.5", ".inf", "-.inf", ".nan", "inf", "nan", "-", "+", ".", "1_0", "1.5.5",
        "--1", "1e", "e1", "12e03",
    ] {
        let full = Full::parse_from_cow(text.into());
        let scalar = || Scalar {
            text: text.into(),
            is_quoted: false,
        };
        assert_eq!(is_null(&scalar()), full == Full::Null, "{text}");
        if let Ok(Value::Bool(value)) = boolean("k", &scalar()) {
            assert_eq!(full, Full::Boolean(value), "{text}");
        } else {
            assert!(!matches!(full, Full::Boolean(_)), "{text}");
        }
        // What we take has the full parser's value; hexadecimal and leading zeros we do not take.
        if let Ok(Value::Int(value)) = integer("k", &scalar(), 0, u64::MAX) {
            assert_eq!(full, Full::Integer(value.try_into().unwrap()), "{text}");
        }
        if let Ok(Value::Number(value)) = number("k", &scalar(), -1e9, 1e9) {
            let same = match full {
                Full::Integer(full) => value == full as f64,
                Full::FloatingPoint(full) => value == full.into_inner(),
                _ => false,
            };
            assert!(same, "{text}: {value} and {full:?}");
        }
    }
}
