//! The table of what is a step back, and of what is a time.

use super::*;

fn age(name: &str, generation: Option<u64>, rendered_at: Option<&str>) -> Age {
    Age {
        sha: Sha256::of(name.as_bytes()),
        generation,
        rendered_at: rendered_at.map(str::to_owned),
    }
}

#[test]
fn the_same_instant_has_many_spellings() {
    let same = instant("2026-09-08T14:02:11Z").unwrap();
    assert_eq!(same / NS, 1_788_876_131);
    for text in [
        "2026-09-08T14:02:11",
        "2026-09-08 14:02:11",
        "2026-09-08t14:02:11z",
        "2026-09-08T14:02:11+00:00",
        "2026-09-08T16:02:11+02:00",
        "2026-09-08T16:02:11+0200",
        "2026-09-08T16:02:11+02",
        "2026-09-08T08:32:11-05:30",
        "2026-09-08T14:02:11.000000+00:00",
        "2026-09-08T14:02:11,0Z",
        "20260908T140211Z",
        " 2026-09-08T14:02:11Z\n",
    ] {
        assert_eq!(instant(text), Some(same), "{text}");
    }
    assert_eq!(instant("2026-09-08T14:02:11.5Z"), Some(same + NS / 2));
    assert_eq!(
        instant("2026-09-08T14:02:11.1234567891Z"),
        Some(same + 123_456_789)
    );
    assert_eq!(instant("2026-09-08T14:02Z"), Some(same - 11 * NS));
    assert_eq!(instant("2026-09-08"), instant("2026-09-07T24:00:00Z"));
    assert_eq!(instant("1970-01-01T00:00:00Z"), Some(0));
    assert_eq!(instant("2024-02-29"), Some(19_782 * 86_400 * NS));
    assert_eq!(instant("2016-12-31T23:59:60Z"), instant("2017-01-01"));
}

#[test]
fn what_is_no_time_is_nothing() {
    for text in [
        "",
        "yesterday",
        "1788789731",
        "2026-13-01",
        "2026-00-01",
        "2026-02-29",
        "2026-04-31",
        "2026-09-08T",
        "2026-09-08T24:01",
        "2026-09-08T14",
        "2026-09-08T14:60",
        "2026-09-08T14:02:61",
        "2026-09-08T14:02:11.Z",
        "2026-09-08T14:02:11+25:00",
        "2026-09-08T14:02:11 UTC",
        "2026-09-08X14:02",
        "2026-0908",
        "２０２６-09-08",
        "2026-09-08T14:02:11Zjunk",
    ] {
        assert_eq!(instant(text), None, "{text}");
    }
}

#[test]
fn a_step_back_is_refused_by_generation_then_time_then_history() {
    let at = "2026-09-08T14:05:00Z";
    let applied = age("applied", Some(5), Some(at));
    let unnumbered = age("applied", None, Some(at));
    let is_refused = |bundle: &Age, applied: &Age| judge(bundle, Some(applied), &[]).0.is_some();
    for (bundle, against, refused) in [
        (age("new", Some(6), None), &applied, false),
        (age("new", Some(5), Some("2020-01-01")), &applied, false),
        (age("new", Some(4), Some("2030-01-01")), &applied, true),
        (
            age("new", None, Some("2026-09-08T14:00:00Z")),
            &applied,
            true,
        ),
        (
            age("new", None, Some("2026-09-08T14:00:01Z")),
            &applied,
            false,
        ),
        (
            age("new", Some(4), Some("2026-09-08T15:59:59.9+02:00")),
            &unnumbered,
            true,
        ),
        (age("new", None, Some(at)), &unnumbered, false),
        (age("new", None, None), &unnumbered, false),
        (age("applied", Some(1), Some("2020-01-01")), &applied, false),
    ] {
        assert_eq!(is_refused(&bundle, against), refused, "{bundle:?}");
    }
    let old = age("old", Some(9), None);
    assert!(
        judge(&old, Some(&applied), std::slice::from_ref(&old.sha))
            .0
            .is_some()
    );
    assert!(
        judge(&old, None, std::slice::from_ref(&old.sha))
            .0
            .is_some()
    );
    assert!(judge(&old, None, &[]).0.is_none());
    assert!(
        judge(&applied, Some(&applied), std::slice::from_ref(&applied.sha))
            .0
            .is_none()
    );
}

#[test]
fn the_refusal_says_by_how_much() {
    let text = |bundle: &Age, applied: &Age| {
        judge(bundle, Some(applied), &[])
            .0
            .map(|finding| finding.to_string())
    };
    let short = Sha256::of(b"applied").short().to_owned();
    assert_eq!(
        text(&age("new", Some(4), None), &age("applied", Some(5), None)).unwrap(),
        format!(
            "ROLLBACK_REFUSED: generation 4 is older than 5 of the applied {short}; meta.agent.allow_rollback is not true"
        )
    );
    assert_eq!(
        text(
            &age("new", None, Some("2026-01-01")),
            &age("applied", None, Some("2026-01-02"))
        )
        .unwrap(),
        format!(
            "ROLLBACK_REFUSED: it was rendered 86400 s before the applied {short}; meta.agent.allow_rollback is not true"
        )
    );
}

#[test]
fn an_unreadable_time_is_a_warning_and_no_evidence() {
    let good = age("a", None, Some("2026-01-01"));
    let bad = age("b", None, Some("last week"));
    let (finding, warning) = judge(&bad, Some(&good), &[]);
    assert!(finding.is_none());
    assert!(
        warning
            .unwrap()
            .starts_with("the bundle's meta.rendered_at is no RFC 3339")
    );
    let (finding, warning) = judge(&good, Some(&bad), &[]);
    assert!(finding.is_none());
    assert!(warning.unwrap().starts_with("the applied bundle's"));
}

proptest::proptest! {
    #[test]
    fn any_text_is_a_time_or_nothing(text in proptest::collection::vec(0..16usize, 0..24)) {
        let text: String = text.iter().map(|n| char::from(b"0129-:TZ+. 3546,"[*n])).collect();
        let _ = instant(&text);
    }
}
