//! Tars that no honest program writes: what could harm, and what two readers would read differently.

use super::super::super::testing::{Tar, header, put, record, seal};
use super::{only, read};
use std::time::{Duration, Instant};

#[test]
fn members_that_could_harm_are_named_with_the_reason() {
    for (kind, what) in [
        (b'1', "a hard link"),
        (b'2', "a symbolic link"),
        (b'3', "a device"),
        (b'4', "a device"),
        (b'6', "a fifo"),
        (b'S', "a sparse member"),
        (b'M', "a member of an unknown type"),
        (b'V', "a member of an unknown type"),
        (b'Z', "a member of an unknown type"),
        (0x80, "a member of an unknown type"),
    ] {
        let body = Tar::new().entry(kind, "a/x", 0o644, b"").end();
        assert_eq!(only(body), format!("BUNDLE_UNSAFE: \"a/x\" is {what}"));
    }
}

#[test]
fn names_that_could_harm_are_refused_in_every_place_that_holds_a_name() {
    let long = "x".repeat(256);
    let many = "x/".repeat(512) + "y";
    for (name, why) in [
        ("/etc/passwd", "is an absolute path"),
        ("a/../../b", "has a .. component"),
        ("./..", "has a .. component"),
        ("a//b", "has an empty path component"),
        ("a/./b", "has a . component"),
        ("a\nb", "has control characters in its name"),
        (".env", "claims the .env that the agent writes"),
        ("./.Env", "claims the .env that the agent writes"),
        (long.as_str(), "has a component over 255 bytes"),
        (many.as_str(), "is longer than 1,024 bytes"),
    ] {
        let gnu = Tar::new()
            .entry(b'L', "L", 0, format!("{name}\0").as_bytes())
            .file("a", b"");
        let pax = Tar::new().pax(&[("path", name.as_bytes())]).file("a", b"");
        for tar in [gnu, pax, Tar::new().file(name, b"")]
            .into_iter()
            .take(2 + usize::from(name.len() < 100))
        {
            let finding = only(tar.end());
            assert!(
                finding.starts_with("BUNDLE_UNSAFE: \"") && finding.ends_with(why),
                "{finding}"
            );
        }
    }
    let body = Tar::new()
        .file("a", b"")
        .file("b", b"")
        .pax(&[("path", b"b\xff")])
        .file("c", b"")
        .end();
    assert_eq!(only(body), "BUNDLE_UNSAFE: \"b\u{fffd}\" is not UTF-8");
}

#[test]
fn a_nul_in_a_name_is_seen_wherever_it_hides() {
    let ustar = header(b'0', b"good\0evil", 0o644, 0);
    let mut prefix = header(b'0', &[b'n'; 100], 0o644, 0);
    put(&mut prefix, 345, b"a\0b");
    seal(&mut prefix);
    for body in [
        Tar::new().block(&ustar),
        Tar::new().pax(&[("path", b"good\0evil")]).file("a", b""),
        Tar::new()
            .entry(b'L', "L", 0, b"good\0evil\0")
            .file("a", b""),
    ] {
        assert_eq!(
            only(body.end()),
            "BUNDLE_UNSAFE: \"good\\0evil\" has a NUL in its name"
        );
    }
    assert!(only(Tar::new().block(&prefix).end()).ends_with("has a NUL in its name"));
}

#[test]
fn what_two_readers_would_read_differently_is_refused() {
    let long = || Tar::new().entry(b'L', "L", 0, b"long\0");
    for (tar, why) in [
        (
            long().entry(b'L', "L", 0, b"other\0").file("a", b""),
            "\"L\" is a header too many for one member",
        ),
        (
            long().pax(&[("path", b"p")]).file("a", b""),
            "\"pax\" gives a member a second long name",
        ),
        (
            Tar::new()
                .pax(&[("path", b"p")])
                .pax(&[("mtime", b"1")])
                .file("a", b""),
            "\"pax\" is a header too many for one member",
        ),
        (
            Tar::new()
                .pax(&[("path", b"p")])
                .pax_of(b'g', &[("comment", b"c")])
                .file("a", b""),
            "\"pax\" is a header too many for one member",
        ),
        (
            Tar::new().pax_of(b'g', &[("path", b"p")]).file("a", b""),
            "\"pax\" is a global header that names or sizes members",
        ),
        (
            Tar::new().pax_of(b'g', &[("size", b"0")]).file("a", b""),
            "\"pax\" is a global header that names or sizes members",
        ),
        (
            Tar::new()
                .pax(&[("path", b"p"), ("path", b"q")])
                .file("a", b""),
            "\"pax\" has two PAX paths",
        ),
        (
            Tar::new().pax(&[("path", b"")]).file("a", b""),
            "\"pax\" has an empty PAX path",
        ),
        (
            Tar::new().pax(&[("size", b"1")]).file("a", b"abc"),
            "\"a\" has two different sizes",
        ),
        (
            Tar::new().pax(&[("size", b"+3")]).file("a", b"abc"),
            "\"pax\" has a PAX size that is no number",
        ),
        (
            Tar::new()
                .pax(&[("size", b"3"), ("size", b"3")])
                .file("a", b"abc"),
            "\"pax\" has two PAX sizes",
        ),
        (
            Tar::new().pax(&[("GNU.dumpdir", b"Ya\0\0")]).file("a", b""),
            "\"a\" has PAX records of GNU tar's own",
        ),
        (
            Tar::new().entry(b'5', "d/", 0o755, b"data"),
            "the directory \"d/\" has content",
        ),
        (
            Tar::new().entry(b'L', "L", 0, b"endless").file("a", b""),
            "\"L\" is a long name without an end",
        ),
        (
            long(),
            "the last header of the tar describes a member that is not there",
        ),
        (
            Tar::new().pax(&[("path", b"p")]),
            "the last header of the tar describes a member that is not there",
        ),
    ] {
        assert_eq!(only(tar.end()), format!("BUNDLE_INVALID: {why}"));
    }
    let body = Tar::new()
        .pax(&[("GNU.sparse.major", b"1"), ("GNU.sparse.name", b"x")])
        .file("a", b"")
        .end();
    assert_eq!(only(body), "BUNDLE_UNSAFE: \"a\" is a sparse member");
}

#[test]
fn a_pax_record_cannot_hide_behind_an_empty_line() {
    let mut data = record("comment", b"\n\n");
    data.extend(record("path", b"../../etc/passwd"));
    let body = Tar::new()
        .entry(b'x', "pax", 0, &data)
        .file("good", b"")
        .end();
    assert!(only(body).ends_with("has a .. component"));
    for broken in [
        &b"x"[..],
        b"5 a=b",
        b"6 a=bXX",
        b"99 path=x\n",
        b"0 a=b\n",
        b"3 \n",
        b"-6 a=b\n",
        b"+6 a=b\n",
        b"6 aab\n",
        b"6  a=\n6",
        b"99999999999999999999 a=b\n",
        b"6 a=b\n\0\0\0",
    ] {
        let body = Tar::new()
            .entry(b'x', "pax", 0, broken)
            .file("a", b"")
            .end();
        let finding = only(body);
        assert_eq!(
            finding, "BUNDLE_INVALID: \"pax\" has a PAX record that cannot be read",
            "{broken:?}"
        );
    }
}

#[test]
fn header_fields_that_are_read_in_several_ways_are_refused() {
    let with = |at: usize, bytes: &[u8]| {
        let mut block = header(b'0', b"a", 0o644, 0);
        put(&mut block, at, bytes);
        seal(&mut block);
        only(Tar::new().file("first", b"").block(&block).end())
    };
    for (at, bytes, why) in [
        (124, &b"+0000000000\0"[..], "has a size that is no number"),
        (124, b"0x000000000\0", "has a size that is no number"),
        (
            124,
            b"\0\0\0\0\0\0\0\0\0\0\0\0",
            "has a size that is no number",
        ),
        (124, b"\x000000000000\0", "has a size that is no number"),
        (124, b"0000 000000\0", "has a size that is no number"),
        (124, b"0\x000000000000", "has a size that is no number"),
        (
            124,
            b"\x80\x01\0\0\0\0\0\0\0\0\0\0",
            "has a size that is no number",
        ),
        (
            124,
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            "has a size that is no number",
        ),
        (100, b"rwxr-xr\0", "has a mode that is no number"),
        (257, b"ustar\x0001", "is of an unknown tar format"),
        (257, b"junk!\0\0\0", "is of an unknown tar format"),
    ] {
        assert_eq!(
            with(at, bytes),
            format!("BUNDLE_INVALID: the header at byte 512 {why}")
        );
    }
    let mut old = header(b'0', b"a", 0o644, 0);
    put(&mut old, 257, b"ustar  \0");
    put(&mut old, 345, b"prefix");
    seal(&mut old);
    let finding = only(Tar::new().file("first", b"").block(&old).end());
    assert!(
        finding.ends_with("has a name prefix that its format does not know"),
        "{finding}"
    );
    let mut block = header(b'0', b"a", 0o644, 0);
    block[0] = b'b';
    let finding = only(Tar::new().file("first", b"").block(&block).end());
    assert!(finding.ends_with("has a wrong checksum"), "{finding}");
}

#[test]
fn giant_claims_cost_nothing() {
    let mut sizes = vec![header(b'0', b"big", 0o644, 0o77_777_777_777)];
    for bytes in [
        &b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff"[..],
        b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff",
    ] {
        let mut block = header(b'0', b"big", 0o644, 0);
        put(&mut block, 124, bytes);
        seal(&mut block);
        sizes.push(block);
    }
    let start = Instant::now();
    for block in sizes {
        for kind in [b'0', b'5', b'L', b'x', b'S', b'2'] {
            let mut block = block;
            block[156] = kind;
            seal(&mut block);
            let finding = only(block.to_vec());
            assert!(
                finding.starts_with("BUNDLE_INVALID: the bundle is truncated: \"big\" claims "),
                "{finding}"
            );
            assert!(finding.ends_with(" bytes, and 0 are left"), "{finding}");
        }
    }
    assert!(start.elapsed() < Duration::from_secs(1));
    // The sparse map may go on for ever, too.
    let mut sparse = header(b'S', b"s", 0o644, 0);
    put(&mut sparse, 257, b"ustar  \0");
    sparse[482] = 1;
    seal(&mut sparse);
    let findings = read([sparse.as_slice(), &[1; 5120]].concat()).unwrap_err();
    assert_eq!(
        findings[1],
        "BUNDLE_INVALID: the bundle is truncated in a sparse member"
    );
    let claims = Tar::new()
        .pax(&[("GNU.sparse.realsize", b"999999999999999")])
        .file("a", b"")
        .end();
    assert!(only(claims).ends_with("is a sparse member"));
}

#[test]
fn several_faults_are_told_together_and_a_flood_is_counted() {
    let body = Tar::new()
        .entry(b'2', "link", 0o777, b"")
        .file("../up", b"")
        .file("a", b"1")
        .file("A", b"2")
        .file(".env", b"")
        .end();
    assert_eq!(
        read(body).unwrap_err(),
        [
            "BUNDLE_UNSAFE: \"link\" is a symbolic link",
            "BUNDLE_UNSAFE: \"../up\" has a .. component",
            "BUNDLE_UNSAFE: \"A\" is there twice (upper and lower case count as the same)",
            "BUNDLE_UNSAFE: \".env\" claims the .env that the agent writes",
        ]
    );
    let flood = (0..1000).fold(Tar::new(), |tar, n| tar.file(&format!("../{n}"), b""));
    let findings = read(flood.end()).unwrap_err();
    assert_eq!(findings.len(), 21);
    assert_eq!(findings[20], "BUNDLE_UNSAFE: and 980 more");
}

#[test]
fn a_link_with_content_ends_the_walk() {
    let body = Tar::new()
        .entry(b'1', "link", 0o644, b"data")
        .file("../x", b"")
        .end();
    assert_eq!(
        read(body).unwrap_err(),
        [
            "BUNDLE_UNSAFE: \"link\" is a hard link",
            "BUNDLE_INVALID: \"link\" has content, so the rest was not read",
        ]
    );
}
