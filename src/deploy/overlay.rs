//! The further compose file that the agent makes: a label with the digest of the bundle files that a service mounts.
//! When such a file changes, the label changes, Compose recreates exactly that service, and the service sees the new
//! content; without it the container would keep the file that was renamed away. All other services keep running.

use crate::bundle::VerifiedBundle;
use crate::names::Sha256;
use crate::ordered::map_of;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The label that carries the digest.
pub const LABEL: &str = "monky-deployd.files";

/// The overlay for a compose model (before interpolation, paths as written); null when no service mounts a bundle file.
/// `resolve` fills in what is known of the variables in a path; a path that stays unknown may name any file, so it
/// counts as naming all.
pub fn overlay(
    bundle: &VerifiedBundle,
    model: &Value,
    resolve: &dyn Fn(&str) -> Option<String>,
) -> Value {
    let digests = map_of(
        bundle
            .members()
            .map(|(path, bytes, _)| (path.as_str(), Sha256::of(bytes))),
    );
    let empty = Map::new();
    let services = model
        .get("services")
        .and_then(Value::as_object)
        .unwrap_or(&empty);
    let mut labelled = Map::new();
    for (name, service) in services {
        let mut mounted: BTreeMap<&str, &Sha256> = BTreeMap::new();
        for source in sources(model, service) {
            match resolve(source).as_deref().map(relative) {
                Some(Some(path)) => mounted.extend(
                    digests
                        .iter()
                        .filter(|(member, _)| is_at_or_below(member, &path))
                        .map(|(m, d)| (*m, d)),
                ),
                Some(None) => {}
                None => mounted.extend(digests.iter().map(|(m, d)| (*m, d))),
            }
        }
        if !mounted.is_empty() {
            let list: String = mounted
                .iter()
                .map(|(path, digest)| format!("{digest} {path}\n"))
                .collect();
            labelled.insert(
                name.clone(),
                json!({"labels": {LABEL: Sha256::of(list.as_bytes())}}),
            );
        }
    }
    if labelled.is_empty() {
        Value::Null
    } else {
        json!({"services": labelled})
    }
}

/// The paths of the host that a service mounts: its volumes, and the files behind its configs and secrets.
fn sources<'a>(model: &'a Value, service: &'a Value) -> Vec<&'a str> {
    let mut found = Vec::new();
    for volume in service
        .get("volumes")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let source = volume.get("source").and_then(Value::as_str);
        let is_bind = volume.get("type").and_then(Value::as_str) == Some("bind");
        // A source with a variable in it is taken for a volume's name as long as nobody filled it in.
        found.extend(source.filter(|source| is_bind || source.contains('$')));
    }
    for kind in ["configs", "secrets"] {
        for used in service
            .get(kind)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let name = used.get("source").or(Some(used)).and_then(Value::as_str);
            let defined = name.and_then(|name| model.get(kind)?.get(name)?.get("file")?.as_str());
            found.extend(defined);
        }
    }
    found
}

/// A path inside the project directory, normalised; `None` for one that lies elsewhere.
fn relative(source: &str) -> Option<String> {
    if source.starts_with(['/', '~']) {
        return None;
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in source.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn is_at_or_below(member: &str, path: &str) -> bool {
    path.is_empty()
        || member == path
        || member
            .strip_prefix(path)
            .is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_relative_to_the_project_or_elsewhere() {
        assert_eq!(relative("./conf/../a.conf").as_deref(), Some("a.conf"));
        assert_eq!(relative("conf/").as_deref(), Some("conf"));
        assert_eq!(relative(".").as_deref(), Some(""));
        for elsewhere in ["/etc/hosts", "~/x", "../x", "a/../../x"] {
            assert_eq!(relative(elsewhere), None, "{elsewhere}");
        }
        assert!(
            is_at_or_below("conf/a", "conf")
                && is_at_or_below("a", "")
                && !is_at_or_below("config", "conf")
        );
    }

    #[test]
    fn sources_are_bind_mounts_and_the_files_of_configs_and_secrets() {
        let model = json!({"configs": {"c": {"file": "./c.cfg"}, "inline": {"content": "x"}}, "secrets": {"s": {"file": "s"}}});
        let service = json!({
            "volumes": [{"type": "bind", "source": "./a"}, {"type": "volume", "source": "named"}, {"type": "volume", "source": "${D}"}],
            "configs": [{"source": "c"}, {"source": "inline"}],
            "secrets": [{"source": "s"}],
        });
        assert_eq!(sources(&model, &service), ["./a", "${D}", "./c.cfg", "s"]);
    }
}
