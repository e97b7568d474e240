//! Secret values on their whole way: written into OpenBao, read by the agent, rendered, read by Compose as `env_file:` and
//! as `${KEY}`, put into a container by docker, and back, byte for byte, out of the kernel's record of its first process.

use crate::lab::Lab;
use crate::support::nasty::{nasty_values, random_values, seed};
use crate::support::real_docker::IMAGE;
use serde_json::json;

const RANDOM_VALUES: usize = 1000;

#[test]
fn twelve_hundred_secrets_come_back_from_a_container_byte_for_byte() {
    let Some(lab) = Lab::open("env-roundtrip") else {
        return;
    };
    let seed = seed();
    println!("seed {seed}");
    let mut values = nasty_values();
    assert!(values.len() >= 200, "{}", values.len());
    values.extend(random_values(seed, RANDOM_VALUES));

    let mut entries = Vec::new();
    let (mut template, mut questions) = (String::new(), String::new());
    for (n, value) in values.iter().enumerate() {
        let data = json!({"text": value, "other": n});
        lab.put_secret(&format!("v{n}"), &data);
        entries.push(json!({"var": format!("S{n}"), "path": format!("see/v{n}"), "key": "text"}));
        template.push_str(&format!("K{n}=${{S{n}}}\n"));
        questions.push_str(&format!("      E{n}: \"${{K{n}}}\"\n"));
    }
    let compose = format!(
        "services:\n  all:\n    image: {IMAGE}\n    env_file: .env\n    environment:\n{questions}"
    );
    let bundle = lab
        .bundle(1, &compose)
        .template(&template)
        .manifest(&json!({"entries": entries}));
    lab.applies(&bundle);

    let environ = lab.environ("all");
    let mut damaged = Vec::new();
    for (n, value) in values.iter().enumerate() {
        for name in [format!("K{n}"), format!("E{n}")] {
            if environ.get(&name) != Some(value) {
                damaged.push(format!("{name}: {:?} for {value:?}", environ.get(&name)));
            }
        }
    }
    assert!(
        damaged.is_empty(),
        "{} damaged:\n{}",
        damaged.len(),
        damaged.join("\n")
    );
    // Nothing came with them: a value with a line end makes no second variable.
    let ours = |name: &&String| !["PATH", "HOME", "HOSTNAME"].contains(&name.as_str());
    assert_eq!(environ.keys().filter(ours).count(), 2 * values.len());
}
