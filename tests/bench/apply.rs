//! An apply of ten secrets: what the agent itself takes, apart from docker's commands and from waiting for the disk.

use crate::estate::{ENV, Estate, bundle};
use crate::measure::{ROUNDS, median};
use crate::table::{Table, ms};
use crate::timeline::Timeline;
use serde_json::json;

const SECRETS: usize = 10;

/// Fills in the rows.
pub fn measure(table: &mut Table) {
    let estate = Estate::embedded();
    let put = |change: usize| {
        for n in 0..SECRETS {
            let value = json!({"value": format!("value-{n}-{change}")});
            estate
                .plane
                .put_secret(&format!("{ENV}/see/s{n:03}"), value)
                .unwrap();
        }
    };
    put(0);
    estate.plane.apply(&bundle(1, SECRETS).build());
    estate.settle();
    let mut seen = Vec::new();
    for round in 0..=ROUNDS {
        put(round + 1);
        let generation = u64::try_from(round).unwrap() + 2;
        estate.plane.apply(&bundle(generation, SECRETS).build());
        estate.make_it_log_in();
        let timeline = Timeline::of_tick(&estate.agent);
        if round > 0 {
            seen.push(timeline);
        }
    }
    let of = |value: fn(&crate::timeline::Spent) -> f64| {
        median(
            seen.iter()
                .map(|timeline| value(&timeline.whole()))
                .collect(),
        )
    };
    table.row(
        &format!("apply with a login and {SECRETS} secrets, the agent's own stages"),
        ms(of(crate::timeline::Spent::own)),
        "50 ms",
        format!(
            "the docker stand-in's commands {}, waiting for the disk {}",
            ms(of(|spent| spent.docker)),
            ms(of(|spent| spent.sync))
        ),
    );
    let last = seen.last().expect("a round");
    let mut parts: Vec<(&str, f64)> = last
        .names()
        .map(|(name, spent)| (name, spent.own()))
        .filter(|(_, own)| *own >= 0.5)
        .collect();
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let parts: Vec<String> = parts
        .iter()
        .map(|(name, own)| format!("{name} {}", ms(*own)))
        .collect();
    table.note(format!(
        "The own stages of one apply: {}.",
        parts.join(", ")
    ));
}
