//! Tars as they should be, cut, over their caps and damaged at random; the hostile ones are in `hostile`.

mod hostile;

use super::super::testing::{Tar, header, put, seal};
use super::*;
use proptest::prelude::*;

fn read(body: Vec<u8>) -> Result<Archive, Vec<String>> {
    Archive::read(body, Limits::default())
        .map_err(|findings| findings.iter().map(ToString::to_string).collect())
}

/// The only finding of a tar that is refused.
fn only(body: Vec<u8>) -> String {
    let mut findings = read(body).unwrap_err();
    assert_eq!(findings.len(), 1, "{findings:?}");
    findings.remove(0)
}

fn names(archive: &Archive) -> Vec<&str> {
    archive.members().map(|(path, _)| path.as_str()).collect()
}

#[test]
fn an_ordinary_tar_gives_its_members_and_directories() {
    let body = Tar::new()
        .entry(b'5', "./", 0o755, b"")
        .file("./b/c", b"see")
        .file_with_mode("a", 0o100_755, b"")
        .entry(b'5', "d/", 0o2775, b"")
        .entry(b'7', "contiguous", 0o644, &[7; 513])
        .entry(0, "old", 0o4600, b"old")
        .end();
    let archive = read(body).unwrap();
    assert_eq!(names(&archive), ["a", "b/c", "contiguous", "old"]);
    let directories: Vec<&str> = archive.directories().map(BundlePath::as_str).collect();
    assert_eq!(directories, ["b", "d"]);
    assert_eq!(archive.inodes(), 6);
    let member = archive.get("contiguous").unwrap();
    assert_eq!(archive.bytes(member), [7; 513]);
    assert_eq!(archive.bytes(archive.get("b/c").unwrap()), b"see");
    let executable: Vec<bool> = archive.members().map(|(_, m)| m.is_executable()).collect();
    assert_eq!(executable, [true, false, false, false]);
}

#[test]
fn root_entries_are_dropped_in_every_spelling() {
    for root in [".", "./", "/"] {
        let body = Tar::new()
            .entry(b'5', root, 0o2755, b"")
            .file("a", b"1")
            .end();
        assert_eq!(names(&read(body).unwrap()), ["a"], "{root}");
    }
    // Twice is no duplicate: they are dropped.
    let body = Tar::new()
        .entry(b'5', "./", 0o755, b"")
        .entry(b'5', ".", 0o755, b"")
        .end();
    assert!(read(body).is_ok());
    let body = Tar::new().file(".", b"").end();
    assert_eq!(only(body), "BUNDLE_UNSAFE: \".\" is the root, as a file");
}

#[test]
fn old_tars_mark_a_directory_by_its_slash() {
    let body = Tar::new()
        .entry(0, "a/", 0o755, b"")
        .file("a/b", b"1")
        .end();
    let archive = read(body).unwrap();
    assert_eq!(names(&archive), ["a/b"]);
    assert_eq!(archive.directories().count(), 1);
    let body = Tar::new().file("a/", b"content").end();
    assert_eq!(
        only(body),
        "BUNDLE_INVALID: the directory \"a/\" has content"
    );
}

#[test]
fn long_names_come_in_three_ways() {
    let long = format!("{}/{}", "d".repeat(120), "f".repeat(200));
    let gnu = Tar::new()
        .entry(b'L', "././@LongLink", 0, format!("{long}\0").as_bytes())
        .file("ddd", b"1")
        .end();
    let pax = Tar::new()
        .pax(&[("mtime", b"1.5"), ("path", long.as_bytes())])
        .file("ddd", b"1")
        .end();
    let mut split = header(b'0', b"name", 0o644, 0);
    put(&mut split, 345, b"some/prefix");
    seal(&mut split);
    for body in [gnu, pax] {
        assert_eq!(names(&read(body).unwrap()), [long.as_str()]);
    }
    assert_eq!(
        names(&read(Tar::new().block(&split).end()).unwrap()),
        ["some/prefix/name"]
    );
}

#[test]
fn harmless_pax_records_are_ignored() {
    let body = Tar::new()
        .pax_of(b'g', &[("comment", b"0123456789abcdef")])
        .pax(&[
            ("mtime", b"1.25"),
            ("uid", b"99999999"),
            ("size", b"3"),
            ("hdrcharset", b"BINARY"),
            ("SCHILY.xattr.user.x", b"a\n\nb"),
        ])
        .file("a", b"abc")
        .end();
    assert_eq!(names(&read(body).unwrap()), ["a"]);
}

#[test]
fn duplicates_and_files_that_are_directories_are_refused() {
    let twice = "is there twice (upper and lower case count as the same)";
    for (first, second, why) in [
        ("a", "a", twice),
        ("a", "./a", twice),
        ("Conf/App.yml", "conf/app.yml", twice),
        ("Ä", "ä", twice),
        ("a", "a/b", "is a file and a directory"),
        ("a/b", "a", "is a file and a directory"),
        ("A/b", "a", "is a file and a directory"),
    ] {
        let finding = only(Tar::new().file(first, b"").file(second, b"").end());
        assert!(
            finding.starts_with("BUNDLE_UNSAFE: ") && finding.ends_with(why),
            "{finding}"
        );
    }
    let body = Tar::new()
        .entry(b'5', "a/", 0o755, b"")
        .file("a", b"")
        .end();
    assert_eq!(only(body), "BUNDLE_UNSAFE: \"a\" is a file and a directory");
    let body = Tar::new()
        .entry(b'5', "a/", 0o755, b"")
        .entry(b'5', "a", 0o755, b"")
        .end();
    assert!(only(body).ends_with(twice));
}

#[test]
fn numbers_in_gnus_binary_form_and_with_blanks_are_read() {
    let mut binary = header(b'0', b"a", 0o644, 0);
    put(&mut binary, 124, b"\x80\0\0\0\0\0\0\0\0\0\0\x03");
    seal(&mut binary);
    let mut blank = header(b'0', b"b", 0o644, 0);
    put(&mut blank, 124, b"         3  ");
    put(&mut blank, 100, b"   644 \0");
    seal(&mut blank);
    let body = Tar::new()
        .block(&binary)
        .data(b"abc")
        .block(&blank)
        .data(b"def")
        .end();
    let archive = read(body).unwrap();
    assert_eq!(archive.bytes(archive.get("a").unwrap()), b"abc");
    assert_eq!(archive.bytes(archive.get("b").unwrap()), b"def");
}

#[test]
fn every_cut_of_a_tar_is_noticed() {
    let whole = Tar::new()
        .entry(b'L', "L", 0, format!("{}\0", "n".repeat(150)).as_bytes())
        .file("nnn", b"content")
        .pax(&[("mtime", b"1.5")])
        .file("b", &[1; 600])
        .entry(b'5', "c/", 0o755, b"")
        .end();
    assert!(read(whole.clone()).is_ok());
    for length in 0..whole.len() {
        let findings = read(whole[..length].to_vec()).unwrap_err();
        assert!(
            findings[0].starts_with("BUNDLE_INVALID: "),
            "{length}: {findings:?}"
        );
        let told = ["truncated", "is empty", "shorter than one header"];
        assert!(
            told.iter().any(|text| findings[0].contains(text)),
            "{length}: {findings:?}"
        );
    }
    // GNU tar fills up to a record; nothing else may stand there.
    let mut padded = whole.clone();
    padded.resize(10_240, 0);
    assert!(read(padded.clone()).is_ok());
    padded[10_000] = 1;
    assert_eq!(
        only(padded),
        "BUNDLE_INVALID: the tar goes on behind its end"
    );
    let concatenated = [whole.clone(), whole].concat();
    assert_eq!(
        only(concatenated),
        "BUNDLE_INVALID: the tar goes on behind its end"
    );
}

#[test]
fn what_is_no_tar_says_what_it_looks_like() {
    for (start, what) in [
        (
            &b"\x1f\x8b\x08\0"[..],
            "not a tar but looks like gzip: send the tar uncompressed",
        ),
        (
            b"BZh9",
            "not a tar but looks like bzip2: send the tar uncompressed",
        ),
        (
            b"\xfd7zXZ\0",
            "not a tar but looks like xz: send the tar uncompressed",
        ),
        (
            b"\x28\xb5\x2f\xfd",
            "not a tar but looks like zstd: send the tar uncompressed",
        ),
        (b"PK\x03\x04", "not a tar but looks like a zip archive"),
        (b"{\"detail\": 1}", "not a tar but looks like JSON"),
        (b"<!DOCTYPE html>", "not a tar but looks like HTML or XML"),
        (b"hello", "not a tar: it is shorter than one header"),
    ] {
        assert_eq!(
            only(start.to_vec()),
            format!("BUNDLE_INVALID: the bundle is {what}")
        );
        let mut long = start.to_vec();
        long.resize(4096, b'x');
        assert!(only(long).starts_with("BUNDLE_INVALID: the bundle is not a tar"));
    }
    assert_eq!(only(Vec::new()), "BUNDLE_INVALID: the bundle is empty");
    assert!(read(vec![0; 1024]).is_ok_and(|archive| archive.inodes() == 0));
}

#[test]
fn the_caps_hold_to_the_one() {
    let many = |count: usize| {
        (0..count).fold(Tar::new().entry(b'5', "./", 0o755, b""), |tar, n| {
            tar.file(&format!("f{n}"), b"")
        })
    };
    assert!(read(many(2_000).end()).is_ok());
    assert_eq!(
        only(many(2_001).end()),
        "BUNDLE_INVALID: the bundle has 2001 members, at most 2000 are taken"
    );
    let fill = 4 * 1024 * 1024 - 512 - 1024;
    assert!(read(Tar::new().file("f", &vec![0; fill]).end()).is_ok());
    assert_eq!(
        only(Tar::new().file("f", &vec![0; fill + 1]).end()),
        "BUNDLE_INVALID: the bundle has 4194816 bytes, at most 4194304 are taken"
    );
    let deep = (0..20).fold(Tar::new(), |tar, n| {
        let path = format!("{n}/{}x", "d/".repeat(400));
        tar.pax(&[("path", path.as_bytes())]).file("x", b"")
    });
    assert_eq!(
        only(deep.end()),
        "BUNDLE_INVALID: the bundle has more than 4000 directories"
    );
}

/// A good tar with every kind of header in it.
fn rich() -> Vec<u8> {
    Tar::new()
        .pax_of(b'g', &[("comment", b"c")])
        .entry(b'5', "./", 0o755, b"")
        .entry(b'L', "L", 0, b"a/long/name\0")
        .file("a", b"content")
        .pax(&[("mtime", b"1.5"), ("path", b"b/pax")])
        .file("b", &[1; 600])
        .file("c", b"")
        .end()
}

proptest! {
    #[test]
    fn damage_to_a_good_tar_is_survived_and_nothing_escapes(
        edits in proptest::collection::vec((0..6000usize, any::<u8>(), any::<bool>()), 1..12),
        cut in 0..8000usize,
    ) {
        let mut body = rich();
        for (at, byte, reseal) in edits {
            let at = at % body.len();
            body[at] = byte;
            if reseal {
                let start = at / 512 * 512;
                let mut block: [u8; 512] = body[start..start + 512].try_into().unwrap();
                seal(&mut block);
                body[start..start + 512].copy_from_slice(&block);
            }
        }
        body.truncate(cut.max(512));
        if let Ok(archive) = read(body) {
            for (path, member) in archive.members() {
                prop_assert!(!path.as_str().starts_with('/') && !path.as_str().contains(".."));
                prop_assert_eq!(archive.bytes(member).len(), member.len());
            }
        }
    }

    #[test]
    fn random_bytes_are_never_a_panic(body in proptest::collection::vec(any::<u8>(), 0..4096)) {
        let _ = read(body);
    }

    #[test]
    fn any_pax_data_is_read_or_refused(data in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(Tar::new().entry(b'x', "pax", 0, &data).file("a", b"").end());
    }

    #[test]
    fn any_name_gives_a_harmless_path_or_a_refusal(name in proptest::collection::vec(any::<u8>(), 1..60)) {
        let body = Tar::new().pax(&[("path", &name)]).file("a", b"").end();
        if let Ok(archive) = read(body) {
            for (path, _) in archive.members() {
                prop_assert!(path.as_str().split('/').all(|part| !matches!(part, "" | "." | "..")));
            }
        }
    }
}
