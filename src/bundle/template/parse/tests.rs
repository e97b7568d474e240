//! What a line of the template means, and what is refused, by line and text.

use crate::bundle::template::reference::{self, Part};
use crate::bundle::template::{Line, Template};
use proptest::prelude::*;

/// The assignments as `key → value`, every reference shown as `<NAME>`.
fn read(bytes: &[u8]) -> Result<Vec<(String, String)>, Vec<String>> {
    let template = Template::parse(bytes)
        .map_err(|findings| findings.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    Ok(template
        .assignments()
        .map(|assignment| {
            let value = assignment.value.iter().map(|part| match part {
                Part::Text(text) => text.clone(),
                Part::Reference(reference) => format!("<{}>", reference.name),
            });
            (assignment.key.to_string(), value.collect())
        })
        .collect())
}

fn one(text: &str) -> Result<(String, String), Vec<String>> {
    read(text.as_bytes()).map(|mut all| {
        assert_eq!(all.len(), 1, "{text:?}");
        all.remove(0)
    })
}

/// Rows whose value has no `$` were read by Compose itself (5.6.1); the others differ as 04 says.
#[test]
fn a_value_is_what_its_author_means() {
    for (text, value) in [
        ("V=1", "1"),
        ("V=", ""),
        ("V=   ", ""),
        ("V = x", "x"),
        ("V: x", "x"),
        ("V:x", "x"),
        ("V=:x", ":x"),
        ("V==x", "=x"),
        ("export V=x", "x"),
        ("export\tV = x", "x"),
        ("  V=x", "x"),
        ("V=x y  ", "x y"),
        ("V=a#b", "a#b"),
        ("V=#b", "#b"),
        ("V=\t#b", "#b"),
        ("V=a\t#b", "a\t#b"),
        ("V=a #b", "a"),
        ("V=a#b #c #d", "a#b"),
        ("V= # c", ""),
        ("V=a\r\n", "a"),
        ("V=a\rb\r\n", "a\rb"),
        ("\u{feff}V=1", "1"),
        ("V=\u{a0}x\u{a0}", "x"),
        ("V=\u{3000}x\u{3000}", "\u{3000}x"),
        ("V=a\"b'c", "a\"b'c"),
        (r"V=a\nb", r"a\nb"),
        ("V=''", ""),
        ("V='a b '", "a b "),
        ("V=  'a'  ", "a"),
        ("V='a' # c", "a"),
        ("V='a'#c", "a"),
        ("V='a #b'", "a #b"),
        (r"V='a\nb\\c'", r"a\nb\\c"),
        (r"V='a\'b'", "a'b"),
        ("V='a\nb'", "a\nb"),
        ("V=\"a\r\nb\"", "a\r\nb"),
        ("V=\"a\nb\n\"", "a\nb\n"),
        (r#"V="a\nb\tc\\d\"e""#, "a\nb\tc\\d\"e"),
        (r#"V="a\q\x41""#, r"a\q\x41"),
        (r#"V="a\$b\${X}""#, "a$b${X}"),
        ("V=a$b", "a$b"),
        ("V=a$$b", "a$b"),
        ("V='a$b'", "a$b"),
        ("V='a$$b'", "a$b"),
        ("V=$2y$10$abc", "$2y$10$abc"),
        (r"V=a\$b", r"a\$b"),
        (r"V=a\${X}", r"a\<X>"),
        (r#"V="\\${X}""#, r"\<X>"),
        (r#"V="\0044{X}""#, "<X>"),
        ("V=${X}", "<X>"),
        ("V='${X}'", "<X>"),
        ("V='$${X}'", "${X}"),
        ("V=\"a${X}b\"", "a<X>b"),
        ("V=${X} # ${Y}", "<X>"),
        ("V='${X'", "${X"),
        ("V=\"${Z:-a\nb}\"", "<Z>"),
    ] {
        assert_eq!(one(text), Ok(("V".into(), value.into())), "{text:?}");
    }
}

#[test]
fn a_key_is_what_compose_takes() {
    for (text, key) in [
        ("A.B=1", "A.B"),
        ("A-B=1", "A-B"),
        ("A[0]=1", "A[0]"),
        ("1A=1", "1A"),
        ("ä=1", "ä"),
        ("export=1", "export"),
        ("exportA=1", "exportA"),
        ("A\u{a0}=1", "A"),
    ] {
        assert_eq!(one(text), Ok((key.into(), "1".into())), "{text:?}");
    }
}

#[test]
fn what_compose_would_refuse_or_misread_is_a_finding_with_its_line() {
    for (text, expected) in [
        ("A B=1", "ENV_RESERVED: .env.template, line 1: a key that"),
        ("A\tB=1", "ENV_RESERVED: .env.template, line 1: a key that"),
        ("=1", "ENV_RESERVED: .env.template, line 1: a key that"),
        (
            "export =1",
            "ENV_RESERVED: .env.template, line 1: a key that",
        ),
        (
            "A=1\nB/C=1",
            "ENV_RESERVED: .env.template, line 2: a key that",
        ),
        (
            "some text",
            "ENV_RESERVED: .env.template, line 1: a key that",
        ),
        (
            "\n\nV",
            "ENV_INCOMPLETE: .env.template, line 3: V has no value",
        ),
        (
            "export V\n",
            "ENV_INCOMPLETE: .env.template, line 1: V has no value",
        ),
        (
            "K=-----BEGIN\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7",
            "ENV_INCOMPLETE: .env.template, line 2: neither",
        ),
        (
            "A='1\n2'\nV=\"a",
            "BUNDLE_INVALID: .env.template, line 3: V: the quote",
        ),
        (
            "V='a\\'",
            "BUNDLE_INVALID: .env.template, line 1: V: the quote",
        ),
        (
            "V='a'b",
            "BUNDLE_INVALID: .env.template, line 1: V: text behind",
        ),
        (
            "V=\"a\" b",
            "BUNDLE_INVALID: .env.template, line 1: V: text behind",
        ),
        (
            "V=\"a\"B=1",
            "BUNDLE_INVALID: .env.template, line 1: V: text behind",
        ),
        (
            "V=${X",
            "BUNDLE_INVALID: .env.template, line 1: V: a ${ is never closed",
        ),
        (
            "V=\"${}\"",
            "BUNDLE_INVALID: .env.template, line 1: V: a ${ is not followed",
        ),
        (
            "V=${Z:-a #b}",
            "BUNDLE_INVALID: .env.template, line 1: V: a ${ is never closed",
        ),
        (
            "A=1\nB=\0",
            "BUNDLE_INVALID: .env.template, line 2: a NUL byte",
        ),
    ] {
        let findings = one(text).unwrap_err();
        assert_eq!(findings.len(), 1, "{text:?}");
        assert!(findings[0].starts_with(expected), "{text:?}: {findings:?}");
    }
    let findings = read(b"A=1\nB=\xff").unwrap_err();
    assert_eq!(
        findings,
        ["BUNDLE_INVALID: .env.template, line 2: bytes that are not UTF-8"]
    );
}

#[test]
fn every_finding_is_told_at_once_and_no_value() {
    let findings = read(b"A\nB C=hunter2\nD='hunter2'x\nE=${hunter2\nF=1").unwrap_err();
    let lines: Vec<_> = findings
        .iter()
        .map(|finding| finding.split(": ").nth(1).unwrap_or_default())
        .collect();
    assert_eq!(
        lines,
        [1, 2, 3, 4].map(|n| format!(".env.template, line {n}"))
    );
    assert!(!findings.concat().contains("hunter2"));
}

#[test]
fn a_hostile_template_costs_little() {
    let large = read(&vec![b'\n'; 1024 * 1024 + 1]).unwrap_err();
    assert_eq!(
        large,
        ["BUNDLE_INVALID: .env.template is larger than 1 MiB"]
    );
    assert_eq!(
        read("/\n".repeat(100_000).as_bytes()).unwrap_err().len(),
        50
    );
    let many: String = (0..50_000).map(|n| format!("A=${{X{n}}}\n")).collect();
    let template = Template::parse(many.as_bytes()).unwrap();
    assert_eq!(template.unresolved(&|_| false).len(), 50_000);
}

#[test]
fn lines_keep_their_order_and_comments() {
    let text = "# head ${X}\r\n\r\n  # in\nA=1 # a ${Y}\nB='x\ny'#b\nC= # c\n\t \nD=2";
    let template = Template::parse(text.as_bytes()).unwrap();
    let shown: Vec<_> = template
        .lines()
        .iter()
        .map(|line| match line {
            Line::Blank => String::new(),
            Line::Comment(comment) => comment.clone(),
            Line::Assignment(assignment) => {
                format!(
                    "{}@{}{}",
                    assignment.key, assignment.line, assignment.comment
                )
            }
        })
        .collect();
    assert_eq!(
        shown,
        [
            "# head ${X}",
            "",
            "  # in",
            "A@4 # a ${Y}",
            "B@5#b",
            "C@7 # c",
            "",
            "D@9"
        ]
    );
    assert!(template.references().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_it_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        text in "[A-C =:'\"\\\\${}#\\n\\r\\t\\-0-9ä]*",
    ) {
        for bytes in [bytes, text.into_bytes()] {
            if let Ok(template) = Template::parse(&bytes) {
                let _ = (template.warnings(), template.unresolved(&|_| false));
                for assignment in template.assignments() {
                    let _ = reference::evaluate(&assignment.value, &|_| Some("x"));
                }
            }
        }
    }
}
