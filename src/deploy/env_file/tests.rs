//! What is written into `.env`, and that Compose's rules read it back byte for byte.

use super::*;
use proptest::prelude::*;

fn secrets(pairs: &[(&str, &str)]) -> BTreeMap<VarName, Secret> {
    pairs
        .iter()
        .map(|(name, value)| {
            (
                VarName::new(name).unwrap(),
                Secret::new((*value).to_owned()),
            )
        })
        .collect()
}

fn rendered(template: &str, pairs: &[(&str, &str)]) -> Result<Rendered, Vec<String>> {
    let template = Template::parse(template.as_bytes()).unwrap();
    render(&template, &secrets(pairs))
        .map_err(|findings| findings.iter().map(ToString::to_string).collect())
}

/// A reader of what `render` writes, and of nothing else: a model of Compose's that shares no code with the template's.
fn read_back(text: &str) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    for line in text.lines() {
        let Some((key, written)) = line
            .split_once('=')
            .filter(|_| !line.trim_start().starts_with('#'))
        else {
            continue;
        };
        let value = match written.strip_prefix('"') {
            None => written.to_owned(),
            Some(quoted) => {
                let mut value = String::new();
                let mut chars = quoted.chars();
                loop {
                    match chars.next().expect("a closing quote") {
                        '"' => break,
                        '$' => panic!("a bare dollar"),
                        '\\' => match chars.next() {
                            Some('n') => value.push('\n'),
                            Some('r') => value.push('\r'),
                            Some(c @ ('\\' | '"' | '$')) => value.push(c),
                            other => panic!("an escape that is none: {other:?}"),
                        },
                        c => value.push(c),
                    }
                }
                let rest = chars.as_str().trim_start();
                assert!(rest.is_empty() || rest.starts_with('#'), "{rest}");
                value
            }
        };
        values.insert(key.to_owned(), value);
    }
    values
}

#[test]
fn values_are_quoted_where_they_need_it() {
    for (value, written) in [
        ("simple-1.2_3/x:y@z%+,=", "simple-1.2_3/x:y@z%+,="),
        ("", r#""""#),
        ("a b", r#""a b""#),
        ("a$b", r#""a\$b""#),
        ("${S}", r#""\${S}""#),
        ("#", r##""#""##),
        ("'", r#""'""#),
        ("\"", r#""\"""#),
        ("a\\", r#""a\\""#),
        ("a\nb\r\n", r#""a\nb\r\n""#),
        ("\tä\u{1}", "\"\tä\u{1}\""),
    ] {
        let rendered = rendered("V=${S}", &[("S", value)]).unwrap();
        assert_eq!(
            rendered.text().expose(),
            format!("V={written}\n"),
            "{value:?}"
        );
        assert_eq!(rendered.values()["V"].expose(), value);
    }
}

#[test]
fn comments_and_order_are_kept() {
    let template = "\u{feff}# uses ${S}\r\n\r\nexport B = '${S}' # b ${S}\r\nA: plain\nE= # later\nF='x'#f\nB=2";
    let rendered = rendered(template, &[("S", "s s")]).unwrap();
    assert_eq!(
        rendered.text().expose(),
        "# uses ${S}\n\nB=\"s s\" # b ${S}\nA=plain\nE=\"\" # later\nF=\"x\"#f\nB=2\n"
    );
    assert_eq!(rendered.values()["B"].expose(), "2");
}

#[test]
fn an_empty_template_gives_an_empty_file() {
    assert_eq!(rendered("", &[]).unwrap().text().expose(), "");
    assert_eq!(rendered("# c", &[]).unwrap().text().expose(), "# c\n");
}

#[test]
fn a_reference_goes_to_the_manifest_first_and_then_to_the_key_above() {
    let template = "A=1\nB=${A}\nA=2\nC=${A}\nS=own\nD=${S}\nE=${C}${S:+!}";
    let rendered = rendered(template, &[("S", "secret")]).unwrap();
    let shown: Vec<_> = rendered
        .values()
        .iter()
        .map(|(key, value)| format!("{key}={}", value.expose()))
        .collect();
    assert_eq!(shown, ["A=2", "B=1", "C=2", "D=secret", "E=2!", "S=own"]);
}

#[test]
fn a_secret_is_never_read_as_a_reference() {
    let rendered = rendered("A=${S}\nB=${A}", &[("S", "$$ ${S} $S ${"), ("X", "x")]).unwrap();
    assert_eq!(rendered.values()["B"].expose(), "$$ ${S} $S ${");
}

#[test]
fn what_cannot_be_rendered_is_told_by_name() {
    for (template, expected) in [
        ("A=${X}\nB=${Y:?m}${X}", "ENV_INCOMPLETE: unresolved: X, Y"),
        ("A=${E:?m}", "ENV_INCOMPLETE: unresolved: E (empty)"),
        (
            "A=${N}",
            "ENV_ROUNDTRIP: A holds a NUL byte, which no environment can carry",
        ),
        (
            "A=\"\\0000\"",
            "ENV_ROUNDTRIP: A holds a NUL byte, which no environment can carry",
        ),
    ] {
        let findings = rendered(template, &[("E", ""), ("N", "hunter\0two")]).unwrap_err();
        assert_eq!(findings, [expected], "{template}");
    }
}

#[test]
fn a_bare_dollar_in_the_written_text_is_found() {
    let template = Template::parse(b"A=1\nB=2 # $c\nC=3").unwrap();
    for (text, expected) in [
        ("A=\"\\$\"\nB=\"\\\\\\$x\" # $c\nC=3\n", ""),
        ("A=$X\nB=2 # $c\nC=\"\\\\$X\"\n", "AC"),
        ("A=1\nB=\"${X}\" # $c\nC=3\n", "B"),
    ] {
        let found: String = left_over(text, &template)
            .iter()
            .filter_map(|finding| finding.detail.strip_prefix("a reference is left over in "))
            .collect();
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn neither_findings_nor_debug_output_show_a_value() {
    let rendered = rendered("A=${S}", &[("S", "hunter2")]).unwrap();
    assert!(!format!("{rendered:?}").contains("hunter2"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_value_comes_back(value in proptest::collection::vec(any::<char>(), 0..60), nasty in "[$\\\\\"'#\\n\\r {}a]*") {
        let value: String = value.into_iter().filter(|c| *c != '\0').collect();
        for value in [value, nasty] {
            let rendered = rendered("# c\nA='${S}'\nB=\"x${S}\" # $c\nC=${S:-d}", &[("S", &value)]).unwrap();
            // The buffer was large enough, and not by much.
            let text = rendered.text().expose();
            let read = read_back(text);
            prop_assert_eq!(&read["A"], &value);
            prop_assert_eq!(&read["B"], &format!("x{value}"));
            for (key, intended) in rendered.values() {
                prop_assert_eq!(&read[key.as_str()], intended.expose());
            }
            let again = rendered_again(text);
            prop_assert_eq!(again, text);
        }
    }

    #[test]
    fn the_buffer_never_grows(values in proptest::collection::vec("[$\\\\\"a \\n#]{0,40}", 0..10)) {
        let keys: Vec<Key> = (0..values.len()).map(|n| Key::new(&format!("K{n}")).unwrap()).collect();
        let lines: Vec<Resolved<'_>> = values
            .iter()
            .zip(&keys)
            .map(|(value, key)| Resolved::Assignment { key, value: Zeroizing::new(value.clone()), comment: " # c" })
            .chain([Resolved::Verbatim("# v")])
            .collect();
        let size: usize = lines.iter().map(Resolved::size).sum();
        prop_assert!(write(&lines).len() <= size);
    }
}

/// What is rendered is itself a template, without references, that renders to itself.
fn rendered_again(text: &str) -> String {
    rendered(text, &[]).unwrap().text().expose().to_owned()
}
