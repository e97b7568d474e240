//! The folder as others see it: bytes → settings or every problem.

use super::keys::Fallback;
use super::*;
use proptest::prelude::*;

mod shipped;

const SMALLEST: &str = "env_id: env-qa-02\nsite: cbs\n";

/// As a version reads it that honours every key.
fn good(text: &str) -> Settings {
    Settings::read(Path::new("c.yaml"), text.as_bytes(), &[])
        .unwrap_or_else(|problems| panic!("{text}\n{problems:?}"))
}

fn problems(bytes: &[u8]) -> Vec<Problem> {
    match Settings::parse(Path::new("c.yaml"), bytes) {
        Err(Error::ConfigInvalid { problems, .. }) => problems,
        other => panic!("accepted or another error: {other:?}"),
    }
}

/// The one problem of a file that is good but for `line`, in the form `line:column message`, lines counted from it.
fn refused(lines: &str) -> String {
    let found = problems(format!("{SMALLEST}{lines}").as_bytes());
    let shown: Vec<String> = found
        .iter()
        .map(|p| match p.line {
            0 => p.message.clone(),
            line => format!("{}:{} {}", line - 2, p.column, p.message),
        })
        .collect();
    shown.join("\n")
}

fn effective(settings: &Settings) -> Vec<(String, String)> {
    settings
        .effective()
        .into_iter()
        .map(|(key, value, _)| (key, value))
        .collect()
}

#[test]
fn the_smallest_file_has_every_default() {
    let s = good(SMALLEST);
    assert_eq!((s.env_id.as_str(), s.site.as_str()), ("env-qa-02", "cbs"));
    assert_eq!(
        (s.transport, s.prod, s.laptop_mode),
        (TransportKind::System, false, false)
    );
    assert_eq!(s.tenancy.origin(), "http://monky.tenancy.deploy:443");
    assert_eq!(s.tenancy.proxy_addr.to_string(), "127.0.0.1:18443");
    assert_eq!(s.bao.origin(), "https://bao.cbs.tikali.net:8200");
    assert_eq!(s.bao.proxy_addr.to_string(), "127.0.0.1:18200");
    assert_eq!(s.deploy_dir, Path::new("/var/lib/monky-deployd/env-qa-02"));
    assert_eq!(s.compose_project.as_str(), "monky-env-qa-02");
    assert_eq!(s.registry_host.as_deref(), Some("harbor.tikali.net"));
    assert_eq!(
        (s.log_level, s.log_target),
        (log::LevelFilter::Info, LogTarget::Auto)
    );
    assert_eq!(s.sha256, Sha256::of(SMALLEST.as_bytes()));
    assert_eq!(s.warnings, [""; 0]);
    assert_eq!(s.path, Path::new("c.yaml"));
}

#[test]
fn derived_values_follow_what_they_derive_from() {
    let s = good(
        "env_id: env-prod-1\nsite: x\nstate_dir: /srv/a//b/\ntenancy:\n  service: Other.mesh\n",
    );
    assert!(s.prod);
    assert_eq!(s.deploy_dir, Path::new("/srv/a/b/env-prod-1"));
    assert_eq!(s.compose_project.as_str(), "monky-env-prod-1");
    assert_eq!(
        (s.tenancy.service.as_str(), s.tenancy.host.as_str()),
        ("Other.mesh", "other.mesh")
    );
    assert!(!good("env_id: env-prod-1\nsite: x\nprod: false\n").prod);
}

#[test]
fn every_value_can_be_set() {
    let s = good(&format!(
        "\u{feff}{SMALLEST}transport: proxy\r\nidentity: /etc/ziti/id.json\ntenancy:\n  host: '[::1]'\n  port: 8443\n  \
         scheme: https\n  timeout_s: 1\nbao:\n  addr: HTTP://[2001:DB8::1]\n  ca_file: /ca.pem\n  kv_mount: team/kv\n\
         laptop_mode: True\nvolumes_on_absent: purge\ndisk_factor: 2\non_drift: repair\non_unhealthy: restore\n\
         prune_images: none\nregistry_host: \"\"\nlog_level: debug\nlog_target: stderr\nkeep_releases: 50\n\
         healthy_timeout_s: 100\npull_timeout_s: 2000\nmetrics_textfile: /m.prom\ndocker_bin: /usr/bin/docker\n"
    ));
    assert_eq!(s.transport, TransportKind::Proxy);
    assert_eq!(s.identity.as_deref(), Some(Path::new("/etc/ziti/id.json")));
    assert_eq!(
        (s.tenancy.host.as_str(), s.tenancy.origin()),
        ("::1", "https://[::1]:8443".to_owned())
    );
    assert_eq!(
        (s.bao.scheme, s.bao.host.as_str(), s.bao.port),
        (Scheme::Http, "2001:db8::1", 80)
    );
    assert_eq!(s.bao.ca_file.as_deref(), Some(Path::new("/ca.pem")));
    assert_eq!(s.bao.kv_mount, "team/kv");
    assert!(s.laptop_mode && s.disk_factor == 2.0 && s.keep_releases == 50);
    assert_eq!(s.volumes_on_absent, VolumesOnAbsent::Purge);
    assert_eq!(
        (s.on_drift, s.on_unhealthy),
        (OnDrift::Repair, OnUnhealthy::Restore)
    );
    assert_eq!((s.prune_images, s.registry_host), (PruneImages::None, None));
    assert_eq!(
        (s.log_level, s.log_target),
        (log::LevelFilter::Debug, LogTarget::Stderr)
    );
    assert_eq!(s.metrics_textfile.as_deref(), Some(Path::new("/m.prom")));
}

#[test]
fn null_in_each_of_its_forms_is_the_default() {
    for null in ["", " ~", " null", " Null", " NULL", " # comment"] {
        let s = good(&format!(
            "{SMALLEST}registry_host:{null}\nprod:{null}\nidentity:{null}\nbao:{null}\n"
        ));
        assert_eq!(effective(&s), effective(&good(SMALLEST)), "{null:?}");
        assert!(
            s.effective()
                .iter()
                .filter(|(_, _, origin)| *origin == Origin::File)
                .count()
                == 2
        );
    }
}

#[test]
fn plain_text_keeps_its_text_in_a_text_field() {
    for (written, site) in [
        ("12", "12"),
        ("true", "true"),
        ("1e3", "1e3"),
        ("no", "no"),
        ("010", "010"),
        ("'null'", "null"),
    ] {
        assert_eq!(good(&format!("env_id: a\nsite: {written}\n")).site, site);
    }
}

#[test]
fn the_base_url_sets_scheme_host_and_port() {
    let with = |lines: &str| good(&format!("{SMALLEST}tenancy:\n{lines}"));
    let s = with("  base_url: https://T.example:8443/\n");
    assert_eq!(s.tenancy.origin(), "https://t.example:8443");
    let file: Vec<_> = s
        .effective()
        .into_iter()
        .filter(|(key, _, origin)| key.starts_with("tenancy.") && *origin == Origin::File)
        .map(|(key, value, _)| format!("{key} = {value}"))
        .collect();
    assert_eq!(
        file,
        [
            "tenancy.host = t.example",
            "tenancy.port = 8443",
            "tenancy.scheme = https",
            "tenancy.base_url = https://t.example:8443"
        ]
    );
    assert_eq!(with("  base_url: https://t\n").tenancy.port, 443);
    assert_eq!(
        with("  base_url: http://t\n  port: 444\n").tenancy.port,
        444
    );
    let same = with("  base_url: http://t:444\n  port: 444\n  host: T\n  scheme: http\n");
    assert_eq!(
        (same.tenancy.origin(), same.warnings.len()),
        ("http://t:444".to_owned(), 0)
    );
    let s = with("  base_url: http://t\n");
    assert_eq!(
        (s.tenancy.port, s.warnings),
        (80, vec!["`tenancy.base_url` names no port, so 80 is used; the intercept's usually is 443: write `http://t:443`".to_owned()])
    );
    let s = with("  base_url: http://[::1]\n");
    assert!(
        s.warnings[0].ends_with("write `http://[::1]:443`"),
        "{:?}",
        s.warnings
    );
}

#[test]
fn what_is_most_likely_a_mistake_is_a_warning() {
    let rows = [
        (
            "tenancy:\n  port: 8081\n",
            "`tenancy.port` is 8081, the pod's own port, which is no intercept of the mesh: set it to 443",
        ),
        (
            "tenancy:\n  base_url: http://t:8081\n",
            "`tenancy.port` is 8081, the pod's own port, which is no intercept of the mesh: set it to 443",
        ),
        (
            "bao:\n  addr: http://bao:8200\n",
            "`bao.addr` begins with `http://`: the token and the secrets leave this machine without TLS; use `https://`",
        ),
        (
            "transport: proxy\ntenancy:\n  proxy_addr: 10.0.0.1:1\n",
            "`tenancy.proxy_addr` is 10.0.0.1:1, which is not this machine: the token leaves it without TLS; use a local forwarder",
        ),
        (
            "prod: true\nvolumes_on_absent: purge\n",
            "`volumes_on_absent: purge` has no effect on a production box: only `tick --purge-volumes` deletes volumes there",
        ),
        (
            "metrics_textfile: /m.txt\n",
            "`metrics_textfile` is /m.txt, and node_exporter reads only files whose names end in `.prom`: rename it",
        ),
    ];
    for (lines, warning) in rows {
        assert_eq!(
            good(&format!("{SMALLEST}{lines}")).warnings,
            [warning],
            "{lines}"
        );
    }
    for lines in [
        "bao:\n  addr: http://127.0.0.1:8200\n",
        "tenancy:\n  proxy_addr: 10.0.0.1:1\n",
        "transport: proxy\ntenancy:\n  proxy_addr: '[::1]:1'\nbao:\n  proxy_addr: localhost:1\n",
        "transport: proxy\nbao:\n  proxy_addr: 10.0.0.1:1\n",
    ] {
        assert_eq!(
            good(&format!("{SMALLEST}{lines}")).warnings,
            [""; 0],
            "{lines}"
        );
    }
}

#[test]
fn keys_are_held_against_each_other() {
    for (lines, problem) in [
        (
            "tenancy:\n  base_url: http://t:443\n  port: 444\n",
            "3:9 `tenancy.port` says `444`, `tenancy.base_url` says `443`: remove one of the two",
        ),
        (
            "tenancy:\n  host: u\n  base_url: http://t:443\n",
            "2:9 `tenancy.host` says `u`, `tenancy.base_url` says `t`: remove one of the two",
        ),
        (
            "tenancy:\n  base_url: http://t:443\n  scheme: https\n",
            "3:11 `tenancy.scheme` says `https`, `tenancy.base_url` says `http`: remove one of the two",
        ),
        (
            "healthy_timeout_s: 301\n",
            "1:20 `healthy_timeout_s` is too long: `healthy_timeout_s` (301) and `pull_timeout_s` (1800) together may be at most 2100",
        ),
        (
            "pull_timeout_s: 2100\n",
            "1:17 `pull_timeout_s` is too long: `healthy_timeout_s` (300) and `pull_timeout_s` (2100) together may be at most 2100",
        ),
        (
            "pull_timeout_s: 1000\nhealthy_timeout_s: 1101\n",
            "1:17 `pull_timeout_s` is too long: `healthy_timeout_s` (1101) and `pull_timeout_s` (1000) together may be at most 2100",
        ),
        (
            "transport: proxy\ntenancy:\n  host: h\nbao:\n  addr: http://h:443\n",
            "5:9 `bao.addr` is tenancy's host and port too, so `transport: proxy` cannot tell which forwarder to use: give one of them another host or port",
        ),
        (
            "tenancy:\n  service: two words\n",
            "2:12 `tenancy.service` must be a host name or an address, not `two words`: letters, digits, `-`, `_` and single dots",
        ),
    ] {
        assert_eq!(refused(lines), problem, "{lines}");
    }
    assert_eq!(
        good(&format!(
            "{SMALLEST}tenancy:\n  service: two words\n  host: t\n"
        ))
        .tenancy
        .service,
        "two words"
    );
    good(&format!(
        "{SMALLEST}transport: proxy\ntenancy:\n  host: h\n  proxy_addr: 'h:1'\nbao:\n  addr: http://h:443\n  proxy_addr: h:1\n"
    ));
    good(&format!(
        "{SMALLEST}tenancy:\n  host: h\nbao:\n  addr: http://h:443\n"
    ));
}

#[test]
fn what_is_required_is_asked_for() {
    let shown: Vec<_> = problems(b"").into_iter().map(|p| p.to_string()).collect();
    assert_eq!(
        shown,
        [
            "`env_id` is required (the environment that this box runs: `[a-z0-9][a-z0-9-]{0,62}`): write it, for example `env_id: env-qa-02`",
            "`site` is required (where the box stands, for example `cbs`): write it, for example `site: cbs`"
        ]
    );
    assert_eq!(problems(b"env_id:\nsite: ''\n").len(), 2);
    // A key whose line was refused is not missing.
    assert_eq!(problems(b"env_id: [x]\nsite: cbs\n").len(), 1);
    assert_eq!(problems(b"env_id = x\n").len(), 1);
}

#[test]
fn every_problem_is_found_in_one_run_and_shown_with_its_line() {
    let text = "env_id: Env\ntenancy:\n  prt: 1\n  port: 0\nkeep_releases: 'x'\nstate_dir: var\n";
    let Err(error) = Settings::parse(Path::new("/etc/c.yaml"), text.as_bytes()) else {
        panic!("accepted")
    };
    assert_eq!(error.exit(), crate::exit::Exit::Config);
    assert_eq!(
        error.to_string(),
        "the configuration /etc/c.yaml is wrong:
line 1, column 9: `env_id` must be 1 to 63 characters a-z, 0-9 or -, beginning with a letter or digit, not `Env`
    env_id: Env
            ^
line 3, column 3: unknown key `prt` in `tenancy`: did you mean `port`?
      prt:
      ^
line 4, column 9: `tenancy.port` must be a whole number from 1 to 65535, not `0`
      port: 0
            ^
line 5, column 16: `keep_releases` must be a whole number from 1 to 50, not the text \"x\": write digits only
    keep_releases: 'x'
                   ^
line 6, column 12: `state_dir` must be an absolute path, not `var`: begin it with `/`
    state_dir: var
               ^
`site` is required (where the box stands, for example `cbs`): write it, for example `site: cbs`"
    );
}

#[test]
fn bytes_that_are_no_text_and_files_that_are_too_long_are_refused() {
    let shown = |bytes: &[u8]| {
        let found = problems(bytes);
        assert_eq!(found.len(), 1);
        (found[0].line, found[0].column, found[0].message.clone())
    };
    assert_eq!(
        shown(b"a: 1\nb: x\xff\n"),
        (
            2,
            5,
            "the byte 0xFF is no UTF-8: save the file as UTF-8".to_owned()
        )
    );
    assert_eq!(
        shown(b"\xed\xa0\x80").2,
        "the byte 0xED is no UTF-8: save the file as UTF-8"
    );
    let filler =
        |length: usize| [SMALLEST.as_bytes(), &vec![b'#'; length - SMALLEST.len()]].concat();
    assert!(Settings::parse(Path::new("c"), &filler(MAX_BYTES)).is_ok());
    let too_long = (
        3,
        MAX_BYTES - SMALLEST.len() + 1,
        "the file is longer than 65536 bytes: shorten it".to_owned(),
    );
    assert_eq!(shown(&filler(MAX_BYTES + 1)), too_long);
}

#[test]
fn a_secret_that_has_no_place_here_is_not_shown() {
    for lines in [
        "bao:\n  approle:\n    role_id: r\n    secret_id: hunter2\n",
        "bao:\n  approle: {role_id: r, secret_id: hunter2}\n",
        "bao:\n  approle: \"hunter2\n",
        "bao:\n  approle:\n    secret_id: \"hunter2\\q\"\n  role: see-env\n",
        "bao:\n  approle:\n",
        "bao:\n  approle: hunter2\n",
    ] {
        let found = problems(format!("{SMALLEST}{lines}").as_bytes());
        assert_eq!(found.len(), 1, "{lines}: {found:?}");
        assert_eq!((found[0].line, found[0].column), (4, 3));
        assert_eq!(
            found[0].message,
            "AppRole was removed: the agent logs in with a deploy grant"
        );
        assert_eq!(found[0].excerpt, "  approle:");
    }
    for lines in [
        "token: hunter2\n",
        "bao:\n  addr: https://u:hunter2@bao:8200\n",
        "tenancy:\n  base_url: https://hunter2@t\n",
    ] {
        let found = problems(format!("{SMALLEST}{lines}").as_bytes());
        assert_eq!(found.len(), 1);
        assert!(!found[0].to_string().contains("hunter2"), "{}", found[0]);
    }
}

#[test]
fn a_key_that_is_not_honoured_yet_is_refused_and_never_ignored() {
    let read = |lines: &str| {
        let text = format!("{SMALLEST}{lines}");
        let not_yet = ["on_drift", "metrics_textfile", "bao.ca_file"];
        Settings::read(Path::new("c"), text.as_bytes(), &not_yet)
            .map_err(|p| format!("{}:{} {}", p[0].line, p[0].column, p[0].message))
            .map(|_| ())
    };
    assert_eq!(
        read("on_drift: repair\n"),
        Err("3:11 `on_drift` is not supported by this version yet: remove the line (the default is `report`)".to_owned())
    );
    assert_eq!(
        read("metrics_textfile: /m.prom\n"),
        Err(
            "3:19 `metrics_textfile` is not supported by this version yet: remove the line"
                .to_owned()
        )
    );
    assert!(read("bao:\n  ca_file: /x\n").is_err());
    assert_eq!(
        read("on_drift: report\nmetrics_textfile:\nbao:\n  ca_file: null\n"),
        Ok(())
    );
    assert!(
        raw::NOT_YET
            .iter()
            .all(|name| Key::ALL.iter().any(|key| key.name() == *name))
    );
}

#[test]
fn every_line_of_config_check_is_a_known_key_with_its_origin() {
    let s = good(&format!("{SMALLEST}registry_host: ''\nbao:\n  role: r\n"));
    let lines: Vec<_> = s
        .effective()
        .iter()
        .map(|(key, value, origin)| format!("{key} = {value}  # {origin}"))
        .collect();
    assert_eq!(lines.len(), Key::COUNT);
    for line in [
        "env_id = env-qa-02  # file",
        "identity = null  # default",
        "tenancy.host = monky.tenancy.deploy  # default",
        "tenancy.base_url = null  # default",
        "bao.role = r  # file",
        "deploy_dir = /var/lib/monky-deployd/env-qa-02  # default",
        "disk_factor = 1.5  # default",
        "registry_host = \"\"  # file",
        "log_level = INFO  # default",
    ] {
        assert!(
            lines.iter().any(|l| l == line),
            "{line} is not in {lines:#?}"
        );
    }
}

#[test]
fn every_default_is_a_value_of_its_key() {
    for key in Key::ALL {
        let value = raw::default_value(*key);
        assert_ne!(value, raw::Value::Broken, "{}", key.name());
        let is_fixed = matches!(key.spec().fallback, Fallback::Fixed(_));
        assert_eq!(value != raw::Value::Unset, is_fixed, "{}", key.name());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_of_any_kind_end_in_settings_or_problems(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = Settings::parse(Path::new("c"), &bytes);
    }

    #[test]
    fn every_problem_has_a_message_and_a_place_inside_the_text(
        lines in prop::collection::vec(("[ \t]{0,4}", "[a-z_.]{0,12}|bao|tenancy|port|site", "[:=]? ?", "\\PC{0,12}"), 0..12)
    ) {
        let text: String = lines.into_iter().map(|(indent, key, colon, value)| format!("{indent}{key}{colon}{value}\n")).collect();
        if let Err(Error::ConfigInvalid { problems, .. }) = Settings::parse(Path::new("c"), text.as_bytes()) {
            prop_assert!(!problems.is_empty() && problems.len() <= 21);
            for problem in problems {
                prop_assert!(!problem.message.is_empty());
                prop_assert!(problem.line <= text.lines().count() + 1);
                let width = text.lines().nth(problem.line.saturating_sub(1)).map_or(0, |line| line.chars().count());
                prop_assert!(problem.column <= width + 1, "{problem:?}");
            }
        }
    }

    #[test]
    fn any_value_of_any_key_ends_in_settings_or_problems(key in prop::sample::select(Key::ALL), value in "\\PC{0,30}|[0-9:/.@\\[\\]-]{0,20}") {
        let line = match key.section() {
            "" => format!("{}: \"{}\"\n", key.short_name(), value.replace('\\', "\\\\").replace('"', "\\\"")),
            section => format!("{section}:\n  {}: {value}\n", key.short_name()),
        };
        let _ = Settings::parse(Path::new("c"), format!("{SMALLEST}{line}").as_bytes());
    }
}

/// The worst that 64 KiB can be for the parser; a quadratic step would show as minutes.
#[test]
fn large_nonsense_ends_soon() {
    for unit in [
        "a", "a: 1\n", "a:\n", "- ", "\t", "[", "\"\\x", "'", "' ", "# ", ": ", "\n", " ", "a:\n ",
        "é", "\r", "a.b: x\n",
    ] {
        let text = unit.repeat(MAX_BYTES / unit.len());
        let _ = problems(text.as_bytes());
    }
    let keys: String = (0..6000).map(|n| format!("k{n}: 1\n")).collect();
    assert_eq!(problems(keys.as_bytes()).len(), 21);
}
