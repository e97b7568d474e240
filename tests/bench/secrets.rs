//! A login, a hundred secrets and their `.env`, with a real OpenBao over TLS: beside `bao agent`, OpenBao's own program for
//! this, with the same grant, the same secrets and one template. And the same over a line with 50 ms of round trip.

use crate::delay;
use crate::estate::{ENV, Estate, bundle};
use crate::measure::{ROUNDS, cpu_ms, in_turn, wall_ms};
use crate::support::real_bao::{AUTH_MOUNT, KV_MOUNT, ROLE, RealBao};
use crate::support::real_process::find_program;
use crate::table::{Table, ms, times};
use crate::timeline::Timeline;
use control_plane::Grants;
use serde_json::json;
use std::cell::Cell;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const SECRETS: usize = 100;
const ROUND_TRIP: Duration = Duration::from_millis(50);
/// Waiting is what takes the time here, and it varies little.
const FAR_ROUNDS: usize = 7;
/// The stages from the lease to the synced `.env`.
const STAGES: [&str; 4] = [
    "token for the apply",
    "OpenBao login",
    "reading secrets",
    "staging the release",
];

/// Fills in the rows.
pub fn measure(table: &mut Table) {
    let figure = format!("login, {SECRETS} secrets and `.env`, OpenBao over TLS");
    let grants = Arc::new(Grants::new().unwrap());
    let bao = match RealBao::start(&grants.public_key_pem()) {
        Ok(bao) => bao,
        Err(why) => {
            return table.row(
                &figure,
                format!("not measured: {why}"),
                "1/3 ×",
                "bao agent",
            );
        }
    };
    for n in 0..SECRETS {
        put(&bao, n, 0);
    }
    let mut estate = Estate::real(&bao, &grants);
    let other = BaoAgent::new(&estate, &bao);
    let with = bundle(1, SECRETS).build();
    let without = bundle(1, 0).build();
    estate.plane.apply(&with);
    estate.settle();

    // A secret that changed makes a new `.env`, which is rendered, staged and synced like the first.
    let change = Cell::new(0);
    let renew = || {
        change.set(change.get() + 1);
        put(&bao, 0, change.get());
        estate.make_it_log_in();
    };
    let stages = |estate: &Estate| Timeline::of_tick(&estate.agent).sum(&STAGES);
    let scratch = estate.agent.path("");
    let [ours, theirs] = in_turn(
        ROUNDS,
        [
            &mut || {
                renew();
                stages(&estate).wall
            },
            &mut || wall_ms(&mut other.command()),
        ],
    );
    table.row(
        &format!("{figure}, wall"),
        format!("{}, {}", ms(ours), times(ours, theirs)),
        "1/3 ×",
        format!("`bao agent`, the same: {}", ms(theirs)),
    );

    let tick = || estate.agent.command(&["tick", "--force"]);
    let [all, base, theirs] = in_turn(
        ROUNDS,
        [
            &mut || {
                estate.plane.apply(&with);
                renew();
                cpu_ms(&tick(), &scratch)
            },
            &mut || {
                estate.plane.apply(&without);
                cpu_ms(&tick(), &scratch)
            },
            &mut || cpu_ms(&other.command(), &scratch),
        ],
    );
    table.row(
        &format!("{figure}, processor time"),
        format!("{}, {}", ms(all - base), times(all - base, theirs)),
        "1/20 ×",
        format!("`bao agent`, the same: {}", ms(theirs)),
    );

    estate.plane.apply(&with);
    let near_url = estate.plane.bao_url();
    let far_url = format!("https://127.0.0.1:{}", delay::start(bao.port(), ROUND_TRIP));
    let mut waited = |url: &str| {
        estate.agent.set("bao.addr", url);
        // Tenancy names OpenBao's address, too.
        estate
            .plane
            .tenancy()
            .set(|settings| settings.point_to(url, KV_MOUNT, AUTH_MOUNT, ROLE));
        change.set(change.get() + 1);
        put(&bao, 0, change.get());
        estate.make_it_log_in();
        let spent = stages(&estate);
        spent.wall - spent.sync
    };
    let seen: Vec<(f64, f64)> = (0..=FAR_ROUNDS)
        .map(|_| (waited(&near_url), waited(&far_url)))
        .collect();
    let near = crate::measure::median(seen.iter().skip(1).map(|(near, _)| *near).collect());
    let far = crate::measure::median(seen.iter().skip(1).map(|(_, far)| *far).collect());
    let round_trips = (far - near) / (ROUND_TRIP.as_secs_f64() * 1_000.0);
    table.row(
        &format!("the same, {} ms of round trip", ROUND_TRIP.as_millis()),
        format!("{}, {round_trips:.1} round trips", ms(far)),
        format!("{} round trips", SECRETS as f64 / 8.0 + 6.0),
        format!("one after the other: at least {} round trips", SECRETS + 3),
    );
}

fn put(bao: &RealBao, n: usize, change: u64) {
    let value = format!("value-{n:03}-{change:06}-0123456789abcdef");
    bao.put_secret(&format!("{ENV}/see/s{n:03}"), &json!({"value": value}));
}

/// `bao agent`, which logs in with a grant, renders one template and ends.
struct BaoAgent {
    program: PathBuf,
    config: PathBuf,
}

impl BaoAgent {
    fn new(estate: &Estate, bao: &RealBao) -> Self {
        let path = |name: &str| estate.agent.path(name);
        let template: String = (0..SECRETS)
            .map(|n| {
                format!(
                    "S{n:03}={{{{ with secret \"{KV_MOUNT}/data/{ENV}/see/s{n:03}\" }}}}{{{{ .Data.data.value }}}}{{{{ end }}}}\n"
                )
            })
            .collect();
        fs::write(path("env.ctmpl"), template).unwrap();
        fs::write(path("grant.jwt"), estate.plane.grant()).unwrap();
        let config = path("bao-agent.hcl");
        let shown = |name: &str| path(name).display().to_string();
        fs::write(
            &config,
            format!(
                r#"
exit_after_auth = true
vault {{
  address = "{}"
  ca_cert = "{}"
}}
auto_auth {{
  method "jwt" {{
    mount_path = "auth/{AUTH_MOUNT}"
    config = {{
      path = "{}"
      role = "{ROLE}"
      remove_jwt_after_reading = false
    }}
  }}
}}
template_config {{
  exit_on_retry_failure = true
}}
template {{
  source = "{}"
  destination = "{}"
}}
"#,
                bao.url(),
                bao.ca_file().display(),
                shown("grant.jwt"),
                shown("env.ctmpl"),
                shown("rendered.env"),
            ),
        )
        .unwrap();
        Self {
            program: find_program("bao").unwrap(),
            config,
        }
    }

    fn command(&self) -> Command {
        // What it has rendered already it would not render again.
        let _ = fs::remove_file(self.config.with_file_name("rendered.env"));
        let mut command = Command::new(&self.program);
        command
            .arg("agent")
            .arg(format!("-config={}", self.config.display()));
        command
    }
}
