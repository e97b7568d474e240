//! Bundles as their makers really write them: Python's `tarfile` in every form that a service may use, GNU tar in each
//! of its formats, `git archive`. Each is taken or refused as the specification says, and what is taken lies on disk
//! with the modes that containers need. The programs run with a fixed umask and without the caller's environment.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "the helpers of a test may panic like the test itself"
)]

use monky_deployd::bundle::unpack::unpack;
use monky_deployd::bundle::{VerifiedBundle, verify};
use monky_deployd::names::{EnvId, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// What every Python case starts from: a directory `src` with a bundle in it, and the helpers that the cases use.
const PRELUDE: &str = r#"
import io, json, os, sys, tarfile
src, outdir = sys.argv[1], sys.argv[2]
names = sorted(os.listdir(src))
def add_bytes(tar, name, data=b"x", **fields):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    tar.addfile(info, io.BytesIO(data))
def add_special(tar, name, kind, **fields):
    info = tarfile.TarInfo(name)
    info.type = kind
    for key, value in fields.items():
        setattr(info, key, value)
    tar.addfile(info)
def required(tar, prefix=""):
    for name in names:
        if os.path.isfile(os.path.join(src, name)):
            add_bytes(tar, prefix + name, open(os.path.join(src, name), "rb").read())
for number, script in enumerate(sys.argv[3:]):
    exec(script, {**globals(), "out": os.path.join(outdir, "%d.tar" % number)})
"#;

/// A directory with a whole bundle: plain files, an executable, a file that only its owner may read, a setgid
/// directory, an empty one, a long path.
fn source() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let src = dir.path().join("src");
    let long = format!("{}/{}", "long".repeat(20), "name".repeat(30));
    for (path, data, mode) in [
        ("docker-compose.yml", "services: {}\n", 0o644),
        (".env.template", "A=1\n", 0o600),
        ("secrets.manifest.json", "{\"entries\": []}\n", 0o640),
        ("meta.json", "{\"env_id\": \"env-qa-02\"}\n", 0o444),
        ("conf/app.yml", "a: 1\n", 0o600),
        ("conf/empty", "", 0o644),
        ("bin/run.sh", "#!/bin/sh\n", 0o750),
        (long.as_str(), "long\n", 0o644),
        ("ünïcode/ß", "x\n", 0o644),
    ] {
        let path = src.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, data).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::create_dir(src.join("data")).unwrap();
    for (path, mode) in [("conf", 0o2775), ("data", 0o1777), ("bin", 0o700)] {
        fs::set_permissions(src.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    dir
}

/// Takes the member out that only some formats have room for.
fn remove_long_name(dir: &TempDir) {
    for entry in fs::read_dir(dir.path().join("src")).unwrap() {
        let path = entry.unwrap().path();
        if path.to_str().unwrap().contains("longlong") {
            fs::remove_dir_all(path).unwrap();
        }
    }
}

fn run(command: &mut Command) {
    let output = command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("LC_ALL", "C.UTF-8")
        .env("HOME", "/nonexistent")
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The tars that Python scripts make of the source, all in one process: it takes long to start.
fn python(dir: &TempDir, scripts: &[String]) -> Vec<Vec<u8>> {
    let out = tempfile::tempdir().unwrap();
    run(Command::new("python3")
        .args(["-c", PRELUDE])
        .args([&dir.path().join("src"), out.path()])
        .args(scripts));
    (0..scripts.len())
        .map(|number| fs::read(out.path().join(format!("{number}.tar"))).unwrap())
        .collect()
}

fn judge(body: Vec<u8>) -> Result<VerifiedBundle, Vec<String>> {
    let sha = Sha256::of(&body);
    verify(body, &sha, &EnvId::new("env-qa-02").unwrap())
        .map_err(|findings| findings.iter().map(ToString::to_string).collect())
}

/// Path, mode, and content of everything below a directory.
fn tree(root: &Path) -> BTreeMap<String, (u32, Option<Vec<u8>>)> {
    fn walk(root: &Path, at: &Path, into: &mut BTreeMap<String, (u32, Option<Vec<u8>>)>) {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let name = path
                .strip_prefix(root)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            let data = meta.is_file().then(|| fs::read(&path).unwrap());
            into.insert(name, (meta.permissions().mode() & 0o7777, data));
            if meta.is_dir() {
                walk(root, &path, into);
            }
        }
    }
    let mut into = BTreeMap::new();
    walk(root, root, &mut into);
    into
}

/// What the source must look like once it went through a bundle.
fn expected(dir: &TempDir) -> BTreeMap<String, (u32, Option<Vec<u8>>)> {
    let mut tree = tree(&dir.path().join("src"));
    for (mode, data) in tree.values_mut() {
        let executable = data.is_none() || *mode & 0o111 != 0;
        *mode = if executable { 0o755 } else { 0o644 };
    }
    tree
}

/// Takes the tar as a bundle and unpacks it; it must be the source again.
fn takes_all(dir: &TempDir, body: Vec<u8>, how: &str) {
    let bundle = judge(body).unwrap_or_else(|findings| panic!("{how}: {findings:?}"));
    let root = tempfile::tempdir().unwrap();
    unpack(&bundle, root.path()).unwrap();
    assert_eq!(tree(root.path()), expected(dir), "{how}");
}

#[test]
fn every_natural_way_of_tarfile_is_taken() {
    let dir = source();
    let mut scripts = Vec::new();
    for format in ["PAX", "GNU"] {
        for script in [
            "tar.add(src, arcname='')",
            "tar.add(src, arcname='.')",
            "tar.add(src, arcname='/')",
            "[tar.add(os.path.join(src, n), arcname=n) for n in names]",
            "[tar.add(os.path.join(src, n), arcname='./' + n) for n in names]",
            "os.chdir(src); tar.add('.')",
            "tar.add(src, arcname='.', filter=lambda i: (setattr(i, 'uid', 2**40), i)[1])",
        ] {
            scripts.push(format!(
                "with tarfile.open(out, 'w', format=tarfile.{format}_FORMAT) as tar:\n    {script}"
            ));
        }
    }
    for (body, script) in python(&dir, &scripts).into_iter().zip(&scripts) {
        takes_all(&dir, body, script);
    }
    // ustar has no room for the long name, and Python says so; without it, it is as good.
    remove_long_name(&dir);
    let script = "with tarfile.open(out, 'w', format=tarfile.USTAR_FORMAT) as tar:\n    tar.add(src, arcname='.')";
    takes_all(&dir, python(&dir, &[script.into()]).remove(0), "USTAR");
}

#[test]
fn members_made_in_memory_are_taken() {
    let dir = source();
    let mut scripts = Vec::new();
    for script in [
        "required(tar)",
        "required(tar, './')",
        "required(tar); add_special(tar, 'd', tarfile.DIRTYPE, mode=0o2755); add_bytes(tar, 'd/run', mode=0o4711)",
        "required(tar); add_special(tar, 'd/', tarfile.DIRTYPE); add_bytes(tar, 'd/x')",
        "required(tar); add_special(tar, './', tarfile.DIRTYPE); add_special(tar, '/', tarfile.DIRTYPE)",
        "required(tar); add_bytes(tar, 'a/b/c', mtime=1.123456789, uname='jürgen', uid=4000000)",
        "required(tar); add_bytes(tar, 'x' * 200 + '/' + 'y' * 200)",
        "required(tar); add_bytes(tar, 'a', pax_headers={'comment': 'made by a test', 'atime': '1.5'})",
        "required(tar); tar.pax_headers = {'comment': 'late'}; add_bytes(tar, 'b')",
        "required(tar); add_bytes(tar, 'old', type=tarfile.AREGTYPE); add_bytes(tar, 'c', type=tarfile.CONTTYPE)",
        "required(tar); add_bytes(tar, 'empty', b'')",
    ] {
        for open in [
            "tarfile.open(out, 'w', format=tarfile.PAX_FORMAT)",
            "tarfile.open(out, 'w', format=tarfile.GNU_FORMAT)",
            "tarfile.open(out, 'w|')",
            "tarfile.open(out, 'w', pax_headers={'comment': 'all'})",
        ] {
            scripts.push(format!("with {open} as tar:\n    {script}"));
        }
    }
    for (body, script) in python(&dir, &scripts).into_iter().zip(&scripts) {
        let bundle = judge(body).unwrap_or_else(|findings| panic!("{script}: {findings:?}"));
        let root = tempfile::tempdir().unwrap();
        unpack(&bundle, root.path()).unwrap();
        for (name, (mode, data)) in tree(root.path()) {
            let executable = data.is_none() || name == "d/run";
            assert_eq!(
                mode,
                if executable { 0o755 } else { 0o644 },
                "{script} {name}"
            );
        }
    }
}

#[test]
fn what_could_harm_is_refused_however_python_writes_it() {
    let dir = source();
    let twice = "is there twice (upper and lower case count as the same)";
    let mut scripts = Vec::new();
    let mut endings = Vec::new();
    for (script, ending) in [
        (
            "add_bytes(tar, '/etc/cron.d/x')",
            "\"/etc/cron.d/x\" is an absolute path",
        ),
        ("add_bytes(tar, '../x')", "\"../x\" has a .. component"),
        ("add_bytes(tar, 'a/./x')", "\"a/./x\" has a . component"),
        (
            "add_bytes(tar, 'a//x')",
            "\"a//x\" has an empty path component",
        ),
        (
            "add_bytes(tar, 'a\\nb')",
            "\"a\\nb\" has control characters in its name",
        ),
        (
            "add_bytes(tar, 'z' * 256)",
            "has a component over 255 bytes",
        ),
        (
            "add_bytes(tar, 'z/' * 512 + 'z')",
            "is longer than 1,024 bytes",
        ),
        (
            "add_bytes(tar, '.env')",
            "\".env\" claims the .env that the agent writes",
        ),
        ("add_bytes(tar, 'META.json')", twice),
        ("add_bytes(tar, 'a'); add_bytes(tar, 'a')", twice),
        (
            "add_bytes(tar, 'a'); add_bytes(tar, 'a/b')",
            "\"a\" is a file and a directory",
        ),
        (
            "add_special(tar, 'l', tarfile.SYMTYPE, linkname='/etc/passwd')",
            "\"l\" is a symbolic link",
        ),
        (
            "add_special(tar, 'l', tarfile.LNKTYPE, linkname='meta.json')",
            "\"l\" is a hard link",
        ),
        (
            "add_special(tar, 'l' * 150, tarfile.SYMTYPE, linkname='m' * 150)",
            "is a symbolic link",
        ),
        (
            "add_special(tar, 'c', tarfile.CHRTYPE)",
            "\"c\" is a device",
        ),
        (
            "add_special(tar, 'b', tarfile.BLKTYPE)",
            "\"b\" is a device",
        ),
        ("add_special(tar, 'f', tarfile.FIFOTYPE)", "\"f\" is a fifo"),
        (
            "add_special(tar, 's', tarfile.GNUTYPE_SPARSE)",
            "\"s\" is a sparse member",
        ),
    ] {
        for format in ["PAX", "GNU"] {
            scripts.push(format!(
                "with tarfile.open(out, 'w', format=tarfile.{format}_FORMAT) as tar:\n    {script}\n    required(tar)"
            ));
            endings.push(ending);
        }
    }
    for ((body, script), ending) in python(&dir, &scripts)
        .into_iter()
        .zip(&scripts)
        .zip(endings)
    {
        let findings = judge(body).unwrap_err();
        assert_eq!(findings.len(), 1, "{script}: {findings:?}");
        assert!(
            findings[0].starts_with("BUNDLE_UNSAFE: "),
            "{script}: {findings:?}"
        );
        assert!(findings[0].ends_with(ending), "{script}: {findings:?}");
    }
}

#[test]
fn what_is_no_whole_plain_tar_is_refused_with_the_reason() {
    let dir = source();
    let cases = [
        (
            "with tarfile.open(out, 'w:gz') as tar: required(tar)",
            "not a tar but looks like gzip: send the tar uncompressed",
        ),
        (
            "with tarfile.open(out, 'w:xz') as tar: required(tar)",
            "not a tar but looks like xz: send the tar uncompressed",
        ),
        (
            "with tarfile.open(out, 'w:bz2') as tar: required(tar)",
            "not a tar but looks like bzip2: send the tar uncompressed",
        ),
        (
            "tar = tarfile.open(out, 'w'); required(tar); tar.fileobj.close()",
            "truncated: it ends without the end of a tar",
        ),
    ];
    let scripts = cases.map(|(script, _)| script.to_owned());
    for (body, (_, ending)) in python(&dir, &scripts).into_iter().zip(cases) {
        assert_eq!(
            judge(body).unwrap_err(),
            [format!("BUNDLE_INVALID: the bundle is {ending}")]
        );
    }
    let script = "with tarfile.open(out, 'w', pax_headers={'path': 'x'}) as tar: required(tar)";
    let findings = judge(python(&dir, &[script.into()]).remove(0)).unwrap_err();
    assert!(
        findings[0].ends_with("is a global header that names or sizes members"),
        "{findings:?}"
    );
}

#[test]
fn every_format_of_gnu_tar_is_taken() {
    let dir = source();
    let out = dir.path().join("out.tar");
    let make = |format: &str, more: &[&str]| {
        run(Command::new("tar")
            .arg(format!("--format={format}"))
            .args(more)
            .arg("-cf")
            .arg(&out)
            .arg("-C")
            .arg(dir.path().join("src"))
            .arg("."));
        fs::read(&out).unwrap()
    };
    for format in ["gnu", "oldgnu", "pax"] {
        takes_all(&dir, make(format, &[]), format);
    }
    takes_all(
        &dir,
        make("pax", &["--pax-option=exthdr.name=%d/x,atime:=1.5"]),
        "pax with options",
    );
    takes_all(
        &dir,
        make(
            "gnu",
            &["--sort=name", "--owner=0", "--group=0", "--mtime=@0", "-b1"],
        ),
        "gnu, reproducible",
    );
    // ustar and v7 have no room for the long name.
    remove_long_name(&dir);
    for format in ["ustar", "v7"] {
        takes_all(&dir, make(format, &[]), format);
    }
    // Things that GNU tar also writes and that a bundle never holds.
    for format in ["gnu", "pax"] {
        let file = fs::File::create(dir.path().join("src/holes")).unwrap();
        file.set_len(1 << 20).unwrap();
        let findings = judge(make(format, &["--sparse"])).unwrap_err();
        assert_eq!(findings.len(), 1, "{format}: {findings:?}");
        assert!(
            findings[0].starts_with("BUNDLE_UNSAFE: ")
                && findings[0].ends_with("holes\" is a sparse member"),
            "{format}: {findings:?}"
        );
        fs::remove_file(dir.path().join("src/holes")).unwrap();
        let findings = judge(make(format, &["--label=bundle"])).unwrap_err();
        assert!(!findings.is_empty(), "{format}");
    }
    std::os::unix::fs::symlink("/etc", dir.path().join("src/etc")).unwrap();
    for format in ["v7", "ustar", "gnu", "oldgnu", "pax"] {
        assert_eq!(
            judge(make(format, &[])).unwrap_err(),
            ["BUNDLE_UNSAFE: \"./etc\" is a symbolic link"],
            "{format}"
        );
    }
}

#[test]
fn git_archive_is_taken() {
    let dir = source();
    let src = dir.path().join("src");
    // Git keeps no empty directory.
    fs::remove_dir(src.join("data")).unwrap();
    let git = |args: &[&str]| {
        run(Command::new("git")
            .args([
                "-c",
                "user.name=t",
                "-c",
                "user.email=t@example.org",
                "-c",
                "commit.gpgsign=false",
                "-c",
                "safe.directory=*",
                "-C",
            ])
            .arg(&src)
            .args(args));
    };
    git(&["init", "-q", "."]);
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "bundle"]);
    let out = dir.path().join("out.tar");
    git(&[
        "archive",
        "--format=tar",
        "-o",
        out.to_str().unwrap(),
        "HEAD",
    ]);
    fs::remove_dir_all(src.join(".git")).unwrap();
    takes_all(&dir, fs::read(&out).unwrap(), "git archive");
}
