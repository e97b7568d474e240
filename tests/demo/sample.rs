//! The sample environment as tenancy would render it: one good bundle (its files are in `bundle/`), one with another
//! page, and one that nobody should ever run.

use control_plane::{Bundle, BundleBuilder};
use saphyr::{LoadableYamlNode, Scalar, Yaml};
use serde_json::{Map, Value, json};

/// The environment of the demo's box.
pub const ENV_ID: &str = "env-demo";
/// The image that the bundles name.
pub const IMAGE: &str = "monky-deployd-demo/app:1";
/// The first line of the second bundle's page.
pub const SECOND_PAGE: &str = "Hello from the second bundle.";

/// The other secret.
pub const SESSION_KEY: &str = "a-session-key-of-the-demo";

const PAGE: &str = "page/index.html";
const COMPOSE: &str = include_str!("bundle/docker-compose.yml");
const MANIFEST: &str = "secrets.manifest.json";

/// How the compose file is written: a person writes YAML, and JSON is the part of it that the stand-in reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As it stands in `bundle/`.
    Yaml,
    /// The same as JSON.
    Json,
}

/// The environment as it begins.
pub fn first(form: Form) -> Result<Bundle, String> {
    Ok(files(1, COMPOSE, form)?.build())
}

/// The same with another page: a file that the service `web` mounts.
pub fn second(form: Form) -> Result<Bundle, String> {
    let page = format!("{SECOND_PAGE}\n");
    Ok(files(2, COMPOSE, form)?.file(PAGE, page).build())
}

/// Three mistakes at once: a variable that nothing provides, an image that is not pinned, and another environment's
/// secret.
pub fn broken(form: Form) -> Result<Bundle, String> {
    let compose = COMPOSE
        .replace("[/app, work]", "[/app, work, \"${SMTP_HOST}\"]")
        .replacen("${IMAGE}", "monky-deployd-demo/app:latest", 1);
    let manifest = json!({"version": 1, "entries": [
        {"var": "DB_PASSWORD", "path": "env-prod-01/see/database", "key": "password"},
        {"var": "SESSION_KEY", "path": "see/session"},
    ]});
    let files = files(3, &compose, form)?;
    Ok(files.file(MANIFEST, manifest.to_string()).build())
}

/// A password as awkward as they come: what careless tools do to `$`, `#`, quotes and backslashes, they do to this one.
pub fn awkward_password(n: u32) -> String {
    format!("p4$$w0rd${{HOME}} #{n} 'single' \"double\" back\\slash\\")
}

/// The data of the two secrets.
pub fn secrets(password: &str) -> [(String, Value); 2] {
    [
        (
            format!("{ENV_ID}/see/database"),
            json!({"username": "web", "password": password}),
        ),
        (
            format!("{ENV_ID}/see/session"),
            json!({"value": SESSION_KEY}),
        ),
    ]
}

fn files(generation: u32, compose: &str, form: Form) -> Result<BundleBuilder, String> {
    let compose = match form {
        Form::Yaml => compose.to_owned(),
        Form::Json => json_text(compose)?,
    };
    let meta = json!({
        "env_id": ENV_ID,
        "generation": generation,
        "rendered_at": format!("2026-09-08T14:0{generation}:00Z"),
        "secrets_provider": "openbao",
        "images_policy": "tag",
        "pull": "missing",
    });
    Ok(Bundle::builder()
        .compose(&compose)
        .template(include_str!("bundle/.env.template"))
        .file(MANIFEST, include_str!("bundle/secrets.manifest.json"))
        .file(PAGE, include_str!("bundle/page/index.html"))
        .meta(&meta))
}

fn json_text(yaml: &str) -> Result<String, String> {
    let documents = Yaml::load_from_str(yaml).map_err(|e| format!("the compose file: {e}"))?;
    let document = documents.first().ok_or("the compose file is empty")?;
    Ok(format!("{:#}", as_json(document)))
}

fn as_json(yaml: &Yaml<'_>) -> Value {
    match yaml {
        Yaml::Value(Scalar::String(text)) => text.as_ref().into(),
        Yaml::Value(Scalar::Boolean(value)) => (*value).into(),
        Yaml::Value(Scalar::Integer(value)) => (*value).into(),
        Yaml::Sequence(items) => items.iter().map(as_json).collect(),
        Yaml::Mapping(fields) => fields
            .iter()
            .filter_map(|(name, value)| Some((name.as_str()?.to_owned(), as_json(value))))
            .collect::<Map<_, _>>()
            .into(),
        // The sample holds nothing else.
        _ => Value::Null,
    }
}
