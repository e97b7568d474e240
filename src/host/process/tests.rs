//! Children that end, hang, flood and leave others behind.

use super::*;

fn shell(script: &str) -> Task {
    Task {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        directory: None,
        input: None,
        limit: Duration::from_secs(20),
        cap_bytes: 64 * 1024,
        name: "test step",
    }
}

fn run(task: &Task) -> Result<Finished> {
    Runner::new(None, &Interrupt::never().unwrap(), None).run(task, &mut |_| {})
}

#[test]
fn status_and_both_streams_come_back() {
    let finished = run(&shell("echo out; echo err >&2; exit 3")).unwrap();
    assert_eq!(
        (finished.stdout.as_slice(), finished.stderr.as_slice()),
        (&b"out\n"[..], &b"err\n"[..])
    );
    assert_eq!(finished.how(), "exit status 3");
}

#[test]
fn the_environment_is_only_what_was_given() {
    let finished = run(&shell("env | grep -v -e ^PWD -e ^_ -e ^SHLVL")).unwrap();
    assert_eq!(
        String::from_utf8(finished.stdout).unwrap(),
        "PATH=/usr/bin:/bin\n"
    );
}

#[test]
fn input_larger_than_a_pipe_goes_through() {
    let mut task = shell("wc -c");
    task.input = Some(vec![b'x'; 1_000_000].into());
    assert_eq!(
        String::from_utf8(run(&task).unwrap().stdout)
            .unwrap()
            .trim(),
        "1000000"
    );
}

#[test]
fn a_flood_is_cut_in_the_middle_and_does_not_block_the_child() {
    let mut task = shell("echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last");
    task.cap_bytes = 1_000;
    let text = String::from_utf8(run(&task).unwrap().stdout).unwrap();
    assert!(
        text.starts_with("first\n") && text.ends_with("last\n") && text.contains("bytes dropped"),
        "{text}"
    );
    assert!(text.len() < 1_100);
}

#[test]
fn a_child_past_its_deadline_is_ended_with_its_children() {
    let mut task = shell("sleep 600 & sleep 600");
    task.limit = Duration::from_millis(100);
    let error = run(&task).unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
}

#[test]
fn a_grandchild_that_keeps_the_pipe_open_hangs_nothing() {
    let started = Instant::now();
    let finished = run(&shell("sleep 600 & echo done")).unwrap();
    assert_eq!(finished.stdout, b"done\n");
    assert!(started.elapsed() < Duration::from_secs(15));
}

#[test]
fn lines_of_standard_error_are_seen_as_they_come() {
    let mut lines = Vec::new();
    let task = shell("echo one >&2; printf two >&2");
    Runner::new(None, &Interrupt::never().unwrap(), None)
        .run(&task, &mut |line| lines.push(line.to_owned()))
        .unwrap();
    assert_eq!(lines, ["one", "two"]);
}

#[test]
fn a_flood_of_short_lines_does_not_outlast_the_deadline() {
    let mut task = shell("exec yes >&2");
    task.limit = Duration::from_millis(300);
    let started = Instant::now();
    let error = run(&task).unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn lines_are_put_together_from_pieces_and_no_part_of_an_overlong_one_is_seen() {
    let mut seen = Vec::new();
    let mut lines = Lines::default();
    let long = vec![b'x'; LINE_CAP_BYTES];
    for piece in [b"a", &b"b\n\nc\r\nd"[..], &long, b"e", b"f\ng", b"h"] {
        lines.push(piece, &mut |line| seen.push(line.to_owned()));
    }
    lines.end(&mut |line| seen.push(line.to_owned()));
    assert_eq!(seen, ["ab", "", "c", "gh"]);
}

#[test]
fn a_missing_program_says_its_name() {
    let mut task = shell("");
    task.program = "/nonexistent/docker".into();
    assert!(
        run(&task)
            .unwrap_err()
            .to_string()
            .contains("/nonexistent/docker")
    );
}
