//! Hosts, ports, URLs, mounts and paths: what is good, and each refusal with its text.

use super::*;

fn shown<T: std::fmt::Debug>(checked: Checked<T>) -> String {
    match checked {
        Ok(value) => panic!("accepted: {value:?}"),
        Err(message) => message,
    }
}

#[test]
fn a_host_is_a_name_or_an_address() {
    for (text, name) in [
        ("localhost", "localhost"),
        ("Bao.CBS.tikali.net", "bao.cbs.tikali.net"),
        ("monky_1-a.b", "monky_1-a.b"),
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "::1"),
        ("[2001:DB8:0::1]", "2001:db8::1"),
        ("1password.example", "1password.example"),
    ] {
        assert_eq!(host(text), Ok(name.to_owned()), "{text}");
    }
    let names = "letters, digits, `-`, `_` and single dots";
    for text in [
        "",
        "a b",
        "a..b",
        ".a",
        "a.",
        "-a",
        "a-",
        "a/b",
        "10.0.0",
        "10.0.0.256",
        "1",
        "ä",
        "a%b",
        "[a]",
        &"a".repeat(64),
    ] {
        let shown = shown(host(text));
        assert_eq!(
            shown,
            format!(
                "must be a host name or an address, not `{}`: {names}",
                clip(text)
            ),
            "{text}"
        );
    }
    assert_eq!(
        shown(host("a:1")),
        "must be a host alone, not `a:1`: write the port under its own key"
    );
    assert_eq!(
        shown(host("fe80::1%eth0")),
        "must be a host alone, not `fe80::1%eth0`: write the port under its own key"
    );
    assert_eq!(
        shown(host("http://a")),
        "must be a host alone, not `http://a`: write it without scheme, port and path"
    );
}

#[test]
fn an_address_is_host_and_port() {
    for (text, back) in [
        ("A:1", "a:1"),
        ("127.0.0.1:65535", "127.0.0.1:65535"),
        ("[::1]:80", "[::1]:80"),
    ] {
        assert_eq!(host_port(text).unwrap().to_string(), back);
    }
    assert_eq!(
        host_port("[::1]:80").map(|a| (a.host().to_owned(), a.port())),
        Ok(("::1".to_owned(), 80))
    );
    for (text, problem) in [
        (
            "a",
            "must be `host:port`, not `a`: write the port too, for example `a:18443`",
        ),
        (
            "[::1]",
            "must be `host:port`, not `[::1]`: write the port too, for example `[::1]:18443`",
        ),
        (
            "a:",
            "has no good port in `a:`: write a number from 1 to 65535 behind the colon",
        ),
        (
            "a:0",
            "has no good port in `a:0`: write a number from 1 to 65535 behind the colon",
        ),
        (
            "a:+1",
            "has no good port in `a:+1`: write a number from 1 to 65535 behind the colon",
        ),
        (
            "a:080",
            "has no good port in `a:080`: write a number from 1 to 65535 behind the colon",
        ),
        (
            "a:65536",
            "has no good port in `a:65536`: write a number from 1 to 65535 behind the colon",
        ),
        (
            "::1:80",
            "holds an IPv6 address without brackets: write `[::1:80]`, and the port behind it",
        ),
        (
            "tcp://a:1",
            "must be `host:port`, not `tcp://a:1`: write it without the scheme",
        ),
        (
            ":1",
            "must be a host name or an address, not ``: letters, digits, `-`, `_` and single dots",
        ),
    ] {
        assert_eq!(shown(host_port(text)), problem, "{text}");
    }
    for text in ["[::1", "[::1]x", "[a]:1", "[]:1"] {
        assert!(host_port(text).is_err(), "{text}");
    }
}

#[test]
fn a_url_is_scheme_host_and_perhaps_a_port() {
    let row = |scheme, host: &str, port| {
        Ok(Url {
            scheme,
            host: host.to_owned(),
            port,
        })
    };
    assert_eq!(
        url("https://a.b:8200"),
        row(Scheme::Https, "a.b", Some(8200))
    );
    assert_eq!(url("HTTP://A/"), row(Scheme::Http, "a", None));
    assert_eq!(url("https://[::1]:1"), row(Scheme::Https, "::1", Some(1)));
    assert_eq!(url("https://[::1]"), row(Scheme::Https, "::1", None));
    assert_eq!(url("http://a").unwrap().effective_port(), 80);
    assert_eq!(url("https://a").unwrap().effective_port(), 443);
    for (text, problem) in [
        (
            "a.b:8200",
            "must be a URL, not `a.b:8200`: begin it with `https://` or `http://`",
        ),
        (
            "ftp://a",
            "must be a URL, not `ftp://a`: begin it with `https://` or `http://`",
        ),
        (
            "https:/a",
            "must be a URL, not `https:/a`: begin it with `https://` or `http://`",
        ),
        (
            "https://u:p@a",
            "must not hold a user name or a password: write `scheme://host:port`",
        ),
        (
            "https://a:1/v1",
            "must not hold a path or a query: write `https://a:1`",
        ),
        (
            "https://a?x",
            "must not hold a path or a query: write `https://a`",
        ),
        (
            "https://a#x",
            "must not hold a path or a query: write `https://a`",
        ),
        (
            "https://a//",
            "must not hold a path or a query: write `https://a`",
        ),
        (
            "https://",
            "must be a host name or an address, not ``: letters, digits, `-`, `_` and single dots",
        ),
        (
            "https://a:x",
            "has no good port in `a:x`: write a number from 1 to 65535 behind the colon",
        ),
        (
            "https://::1",
            "holds an IPv6 address without brackets: write `[::1]`, and the port behind it",
        ),
    ] {
        assert_eq!(shown(url(text)), problem, "{text}");
    }
    assert!(url("httpsé://a").is_err());
}

#[test]
fn a_mount_and_a_role_need_no_escaping_in_a_url() {
    for text in ["jwt-tenancy", "a/b.c/d_e", "..."] {
        assert_eq!(mount(text), Ok(text.to_owned()));
    }
    for (text, problem) in [
        (
            "monky/",
            "must be a mount's name, not `monky/`: write `monky`",
        ),
        ("/a/b", "must be a mount's name, not `/a/b`: write `a/b`"),
        (
            "a//b",
            "must be a mount's name, not `a//b`: use letters, digits, `-`, `_`, `.` and single `/` between",
        ),
        (
            "a/../b",
            "must be a mount's name, not `a/../b`: use letters, digits, `-`, `_`, `.` and single `/` between",
        ),
        (
            "a?b",
            "must be a mount's name, not `a?b`: use letters, digits, `-`, `_`, `.` and single `/` between",
        ),
        (
            "a%2fb",
            "must be a mount's name, not `a%2fb`: use letters, digits, `-`, `_`, `.` and single `/` between",
        ),
        (
            "/",
            "must be a mount's name, not `/`: use letters, digits, `-`, `_`, `.` and single `/` between",
        ),
    ] {
        assert_eq!(shown(mount(text)), problem, "{text}");
    }
    assert_eq!(role("see-env"), Ok("see-env".to_owned()));
    for text in ["a/b", "a b", "..", "ä"] {
        assert_eq!(
            shown(role(text)),
            format!("must be a role's name, not `{text}`: use letters, digits, `-`, `_` and `.`")
        );
    }
}

#[test]
fn a_path_is_absolute_and_plain() {
    assert_eq!(path("/a//b/./c/"), Ok(PathBuf::from("/a/b/c")));
    assert_eq!(path("/with blank/é").unwrap().as_os_str(), "/with blank/é");
    assert_eq!(path("//a").unwrap().as_os_str(), "/a");
    for (text, problem) in [
        (
            "a/b",
            "must be an absolute path, not `a/b`: begin it with `/`",
        ),
        (
            "~/x",
            "must be an absolute path, not `~/x`: begin it with `/`",
        ),
        ("/a/../b", "must not hold `..`: write where `/a/../b` leads"),
    ] {
        assert_eq!(shown(path(text)), problem);
    }
    assert_eq!(directory("/a"), Ok(PathBuf::from("/a")));
    for root in ["/", "//", "/./"] {
        assert_eq!(
            shown(directory(root)),
            "must not be the root directory: write a directory of its own"
        );
    }
}

#[test]
fn a_program_is_a_name_or_an_absolute_path() {
    for text in ["docker", "/usr/bin/docker", "podman-4.2"] {
        assert_eq!(program(text), Ok(text.to_owned()));
    }
    assert_eq!(
        shown(program("sudo docker")),
        "must be one program, not `sudo docker`: write it without arguments"
    );
    assert_eq!(
        shown(program("-x")),
        "must be one program, not `-x`: write it without arguments"
    );
    assert_eq!(
        shown(program("./docker")),
        "must be an absolute path, not `./docker`: begin it with `/`"
    );
}

#[test]
fn a_registry_is_a_host_a_port_at_most_or_explicitly_none() {
    for (text, value) in [
        ("", None),
        ("Harbor.tikali.net", Some("harbor.tikali.net")),
        ("localhost:5000", Some("localhost:5000")),
        ("[::1]:5000", Some("[::1]:5000")),
        ("[::1]", Some("[::1]")),
    ] {
        assert_eq!(registry(text), Ok(value.map(str::to_owned)), "{text}");
    }
    assert_eq!(
        shown(registry("https://h/v2")),
        "must be a host, not a URL: write `h`"
    );
    assert_eq!(
        shown(registry("h:1/monky")),
        "must be a host without a path: write `h:1`"
    );
    assert!(registry("a b").is_err());
}

#[test]
fn loopback_is_this_machine() {
    for (text, expected) in [
        ("localhost", true),
        ("127.0.0.9", true),
        ("::1", true),
        ("a.localhost", true),
        ("10.0.0.1", false),
        ("bao", false),
    ] {
        assert_eq!(is_loopback(text), expected, "{text}");
    }
}
