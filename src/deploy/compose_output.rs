//! Reading what docker prints: containers, and the services of a compose model. Other programs' output is read by field
//! names, in both shapes that occur (one array, or one object a line); what is missing is unknown, never a panic.

use crate::ordered::map_of;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// One JSON object a container, of named fields only. Never `.Config.Env`: that is where the secrets are. `.State` goes
/// whole, because a container without a health check has no `.State.Health` to name.
pub const INSPECT_FORMAT: &str = concat!(
    r#"{"id":{{json .Id}},"name":{{json .Name}},"image":{{json .Config.Image}},"image_id":{{json .Image}},"#,
    r#""state":{{json .State}},"restarts":{{json .RestartCount}},"policy":{{json .HostConfig.RestartPolicy.Name}},"#,
    r#""service":{{json (index .Config.Labels "com.docker.compose.service")}},"#,
    r#""oneoff":{{json (index .Config.Labels "com.docker.compose.oneoff")}},"#,
    r#""working_dir":{{json (index .Config.Labels "com.docker.compose.project.working_dir")}},"#,
    r#""replaces":{{json (index .Config.Labels "com.docker.compose.replace")}}}"#,
);

/// A container of our project.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container {
    /// Its whole id.
    pub id: String,
    /// Its name, without docker's slash.
    pub name: String,
    /// The compose service.
    pub service: String,
    /// The image's name.
    pub image: String,
    /// The image's id.
    pub image_id: String,
    /// `created`, `running`, `restarting`, `exited`, `paused`, `dead`, `removing`.
    pub state: String,
    /// `healthy`, `unhealthy`, `starting`, or empty without a health check.
    pub health: String,
    /// The exit code of the last run.
    pub exit_code: i64,
    /// Docker's own words when it could not start it.
    pub error: String,
    /// When the last run started.
    pub started_at: String,
    /// How often docker restarted it.
    pub restarts: u64,
    /// The restart policy: empty, `no`, `always`, `unless-stopped`, `on-failure`.
    pub policy: String,
    /// The project directory that it was made from.
    pub working_dir: String,
    /// What Compose made it in place of, without the project's name: `web-1`; empty for a first container.
    pub replaces: String,
}

impl Container {
    /// The name that Compose meant for it, where it has a makeshift one: while Compose replaces a container, the new one is
    /// called `<the old one's id>_<name>` (older versions rename the old one to `<its own id>_<name>`). `None` for a
    /// container that has its final name.
    pub fn meant_name(&self) -> Option<&str> {
        let (prefix, name) = self.name.split_once('_')?;
        let is_id = prefix.len() == 12 && prefix.bytes().all(|b| b.is_ascii_hexdigit());
        let is_new = name.strip_suffix(&self.replaces).is_some_and(|rest| {
            !self.replaces.is_empty() && (rest.is_empty() || rest.ends_with('-'))
        });
        (is_id && (is_new || self.id.starts_with(prefix))).then_some(name)
    }
}

/// What the compose model says of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// An exit with 0 is its good end.
    pub is_job: bool,
    /// It runs only with a profile or not at all, so that no container is expected of it.
    pub is_optional: bool,
}

/// Objects in either shape: one array, or one object a line.
fn objects(bytes: &[u8]) -> Result<Vec<Value>, serde_json::Error> {
    let mut objects = Vec::new();
    for value in serde_json::Deserializer::from_slice(bytes).into_iter::<Value>() {
        match value? {
            Value::Array(items) => objects.extend(items),
            value => objects.push(value),
        }
    }
    Ok(objects)
}

/// The ids in the output of `docker ps`.
///
/// # Errors
/// The output is not JSON.
pub fn read_ids(bytes: &[u8]) -> Result<Vec<String>, serde_json::Error> {
    let id = |object: &Value| {
        object
            .get("ID")
            .or_else(|| object.get("Id"))
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    Ok(objects(bytes)?
        .iter()
        .filter_map(id)
        .filter(|id| !id.is_empty())
        .collect())
}

/// The containers in the output of `docker inspect` with [`INSPECT_FORMAT`]; one-off ones are left out.
///
/// # Errors
/// The output is not JSON.
pub fn read_containers(bytes: &[u8]) -> Result<Vec<Container>, serde_json::Error> {
    let mut containers: Vec<Container> =
        objects(bytes)?.iter().filter_map(read_container).collect();
    containers.sort_by(|a, b| (&a.service, &a.name).cmp(&(&b.service, &b.name)));
    Ok(containers)
}

/// One container; `None` for a one-off `run` container.
fn read_container(object: &Value) -> Option<Container> {
    let text = |way: &str| {
        object
            .pointer(way)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    if text("/oneoff").eq_ignore_ascii_case("true") {
        return None;
    }
    Some(Container {
        id: text("/id"),
        name: text("/name").trim_start_matches('/').to_owned(),
        service: text("/service"),
        image: text("/image"),
        image_id: text("/image_id"),
        state: text("/state/Status"),
        health: text("/state/Health/Status"),
        exit_code: object
            .pointer("/state/ExitCode")
            .and_then(Value::as_i64)
            .unwrap_or(0),
        error: text("/state/Error"),
        started_at: text("/state/StartedAt"),
        restarts: object
            .pointer("/restarts")
            .and_then(Value::as_u64)
            .unwrap_or(0),
        policy: text("/policy"),
        working_dir: text("/working_dir"),
        replaces: text("/replaces"),
    })
}

/// The services of a compose model, as `config --no-interpolate --format json` prints it.
pub fn read_services(model: &Value) -> BTreeMap<String, Service> {
    let empty = serde_json::Map::new();
    let services = model
        .get("services")
        .and_then(Value::as_object)
        .unwrap_or(&empty);
    let mut awaited = BTreeSet::new();
    for service in services.values() {
        for (name, condition) in service
            .get("depends_on")
            .and_then(Value::as_object)
            .unwrap_or(&empty)
        {
            if condition.get("condition").and_then(Value::as_str)
                == Some("service_completed_successfully")
            {
                awaited.insert(name.as_str());
            }
        }
    }
    let described = |(name, service): (&String, &Value)| {
        let policy = service
            .pointer("/deploy/restart_policy/condition")
            .or_else(|| service.get("restart"))
            .and_then(Value::as_str)
            .unwrap_or("no");
        let policy = policy.split(':').next().unwrap_or(policy);
        let replicas = service
            .pointer("/deploy/replicas")
            .or_else(|| service.get("scale"))
            .and_then(Value::as_u64);
        let profiles = service
            .get("profiles")
            .and_then(Value::as_array)
            .is_some_and(|list| !list.is_empty());
        let is_job =
            awaited.contains(name.as_str()) || matches!(policy, "no" | "none" | "on-failure" | "");
        (
            name.clone(),
            Service {
                is_job,
                is_optional: profiles || replicas == Some(0),
            },
        )
    };
    map_of(services.iter().map(described))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn containers_come_in_both_shapes_and_one_off_ones_do_not_count() {
        let api = r#"{"id":"1","name":"/p-api-1","service":"api","state":{"Status":"running","Health":{"Status":"healthy"}},"oneoff":"False","restarts":2}"#;
        let run = r#"{"id":"2","name":"/p-api-run-1","service":"api","state":{"Status":"exited"},"oneoff":"True"}"#;
        for text in [format!("{api}\n{run}\n"), format!("[{run},{api}]")] {
            let containers = read_containers(text.as_bytes()).unwrap();
            assert_eq!(containers.len(), 1);
            assert_eq!(
                (containers[0].name.as_str(), containers[0].restarts),
                ("p-api-1", 2)
            );
        }
        assert_eq!(read_containers(b"").unwrap(), []);
        assert!(read_containers(b"garbage").is_err());
        assert_eq!(
            read_ids(b"{\"ID\":\"a\"}\n{\"ID\":\"b\"}\n").unwrap(),
            ["a", "b"]
        );
    }

    #[test]
    fn a_makeshift_name_is_told_from_a_final_one() {
        let rows = [
            ("0123456789ab_p-web-1", "ffff", "web-1", Some("p-web-1")),
            ("0123456789ab_mine", "ffff", "mine", Some("mine")),
            (
                "0123456789ab_p-web-1",
                "0123456789abcd",
                "",
                Some("p-web-1"),
            ),
            ("p-web-1", "ffff", "web-1", None),
            ("my_web", "ffff", "my_web", None),
            // A name that somebody chose in the compose file.
            ("0123456789ab_mine", "ffff", "", None),
            ("0123456789ab_mine", "ffff", "0123456789ab_mine", None),
        ];
        for (name, id, replaces, meant) in rows {
            let container = Container {
                name: name.into(),
                id: id.into(),
                replaces: replaces.into(),
                ..Container::default()
            };
            assert_eq!(container.meant_name(), meant, "{name} {replaces}");
        }
    }

    #[test]
    fn a_job_is_what_may_end() {
        let model = json!({"services": {
            "api": {"restart": "always", "depends_on": {"migrate": {"condition": "service_completed_successfully"}}},
            "migrate": {"restart": "unless-stopped"},
            "plain": {},
            "retry": {"restart": "on-failure:3"},
            "swarm": {"deploy": {"restart_policy": {"condition": "any"}}},
            "off": {"scale": 0},
            "debug": {"profiles": ["debug"]},
        }});
        let services = read_services(&model);
        let jobs: Vec<_> = services
            .iter()
            .filter(|(_, s)| s.is_job)
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(jobs, ["debug", "migrate", "off", "plain", "retry"]);
        let optional: Vec<_> = services
            .iter()
            .filter(|(_, s)| s.is_optional)
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(optional, ["debug", "off"]);
        assert!(read_services(&json!({"services": []})).is_empty());
    }
}
