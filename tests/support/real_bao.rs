//! A real OpenBao for one test: a dev server over TLS on a free port of loopback, its CA in a file, set up as an estate
//! does it: the JWT mount that knows tenancy's key, the role and the templated policy of an environment, the KV mount.
//!
//! It is spoken to as root over its HTTP API. What the agent may do is decided by the token that a *grant* yields
//! (`login`), never by the root token.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use super::real_process::{BoundChild, find_program, free_port};

/// The JWT mount, the role and policy of an environment, and the KV mount: the estate's names, the config's defaults.
pub const AUTH_MOUNT: &str = "jwt-tenancy";
pub const ROLE: &str = "see-env";
pub const KV_MOUNT: &str = "monky";

const ROOT_TOKEN: &str = "root";
const START_DEADLINE: Duration = Duration::from_secs(30);

/// A running server; ends on drop.
pub struct RealBao {
    server: BoundChild,
    dir: tempfile::TempDir,
    port: u16,
    http: ureq::Agent,
    unseal_key: String,
}

impl RealBao {
    /// Starts and sets up a server that accepts grants signed by the key of this PEM. `Err` says that there is no `bao`.
    pub fn start(grant_public_key_pem: &str) -> Result<RealBao, String> {
        let program = find_program("bao")?;
        // Another process may take the free port between the look and the bind; a server that ends at once is retried.
        let bao = (0..3)
            .find_map(|_| RealBao::launch(&program))
            .expect("three dev servers in a row ended before they listened");
        bao.set_up(grant_public_key_pem);
        Ok(bao)
    }

    fn launch(program: &Path) -> Option<RealBao> {
        let dir = tempfile::tempdir().expect("a directory for the dev server");
        let port = free_port();
        let log = fs::File::create(dir.path().join("log")).expect("the dev server's log");
        let mut command = BoundChild::command(program.to_owned());
        command
            .args(["server", "-dev", "-dev-tls", "-dev-no-store-token"])
            .arg(format!("-dev-root-token-id={ROOT_TOKEN}"))
            .arg(format!("-dev-listen-address=127.0.0.1:{port}"))
            .arg(format!("-dev-tls-cert-dir={}", dir.path().display()))
            .env_clear()
            .env("HOME", dir.path())
            .stdout(log.try_clone().expect("the log, twice"))
            .stderr(Stdio::from(log));
        let mut server = BoundChild::spawn(command);
        let deadline = Instant::now() + START_DEADLINE;
        loop {
            let ended = server.ended();
            let log = fs::read_to_string(dir.path().join("log")).unwrap_or_default();
            if ended.is_some() && log.contains("address already in use") {
                return None;
            }
            if let Some(status) = ended {
                panic!("the OpenBao dev server ended ({status}):\n{log}");
            }
            // The last thing that the server prints, after it is unsealed and its listener is up.
            if let (Some(unseal_key), true) = (
                after(&log, "Unseal Key: "),
                log.contains("Development mode should NOT"),
            ) {
                let http = client(&dir.path().join(ca_file_name(dir.path())));
                return Some(RealBao {
                    server,
                    dir,
                    port,
                    http,
                    unseal_key,
                });
            }
            assert!(
                Instant::now() < deadline,
                "OpenBao not ready in time:\n{log}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn set_up(&self, grant_public_key_pem: &str) {
        self.write(
            &format!("sys/mounts/{KV_MOUNT}"),
            &json!({"type": "kv", "options": {"version": "2"}}),
        );
        self.write(
            &format!("sys/auth/{AUTH_MOUNT}"),
            &json!({"type": "jwt", "description": "deploy grants signed by tenancy"}),
        );
        self.write(
            &format!("auth/{AUTH_MOUNT}/config"),
            &json!({"jwt_validation_pubkeys": [grant_public_key_pem], "jwt_supported_algs": ["ES256"]}),
        );
        let accessor = self.read("sys/auth")["data"][format!("{AUTH_MOUNT}/")]["accessor"]
            .as_str()
            .expect("the JWT mount has an accessor")
            .to_owned();
        self.write(
            &format!("sys/policies/acl/{ROLE}"),
            &json!({"policy": policy(&accessor)}),
        );
        self.set_role(&json!({}));
        // A fresh KV v2 mount answers 400 "upgrading" for a moment.
        let deadline = Instant::now() + START_DEADLINE;
        while self
            .request("GET", &format!("{KV_MOUNT}/config"), ROOT_TOKEN, None)
            .0
            != 200
        {
            assert!(Instant::now() < deadline, "the KV mount never got ready");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// `https://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The port on 127.0.0.1; the certificate is also good for `localhost`.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The file with the CA that signed the server's certificate.
    pub fn ca_file(&self) -> PathBuf {
        self.dir.path().join(ca_file_name(self.dir.path()))
    }

    /// Its content.
    pub fn ca_pem(&self) -> String {
        fs::read_to_string(self.ca_file()).expect("the dev server's CA")
    }

    /// The token that may do everything.
    pub fn root_token(&self) -> &'static str {
        ROOT_TOKEN
    }

    /// What the server logged so far, for a failing test.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Writes a new version of a secret (path below the KV mount, say `env-qa-02/see/db`) and gives its number.
    pub fn put_secret(&self, path: &str, data: &Value) -> u64 {
        let answer = self.write(&format!("{KV_MOUNT}/data/{path}"), &json!({"data": data}));
        answer["data"]["version"]
            .as_u64()
            .expect("a version number")
    }

    /// Soft-deletes one version.
    pub fn delete_version(&self, path: &str, version: u64) {
        self.write(
            &format!("{KV_MOUNT}/delete/{path}"),
            &json!({"versions": [version]}),
        );
    }

    /// Destroys one version for good.
    pub fn destroy_version(&self, path: &str, version: u64) {
        self.write(
            &format!("{KV_MOUNT}/destroy/{path}"),
            &json!({"versions": [version]}),
        );
    }

    /// Writes the role anew: the estate's form with these fields replaced, `{"token_ttl": "3s"}` for one.
    pub fn set_role(&self, overrides: &Value) {
        let mut role = json!({
            "role_type": "jwt",
            "bound_audiences": ["openbao-see-env"],
            "bound_claims": {"kind": "deploy-grant"},
            // One entity per environment, whichever grant it comes with.
            "user_claim": "env_id",
            "claim_mappings": {"env_id": "env_id", "jti": "grant_jti"},
            "token_policies": [ROLE],
            "token_no_default_policy": true,
            "token_ttl": "24h",
            "token_max_ttl": "720h",
        });
        for (name, value) in overrides.as_object().expect("overrides are an object") {
            role[name] = value.clone();
        }
        self.write(&format!("auth/{AUTH_MOUNT}/role/{ROLE}"), &role);
    }

    /// Logs in with a grant: status, and the whole answer (`auth.client_token`, or `errors`).
    pub fn login(&self, grant: &str) -> (u16, Value) {
        let body = json!({"role": ROLE, "jwt": grant});
        self.request("POST", &format!("auth/{AUTH_MOUNT}/login"), "", Some(&body))
    }

    /// Revokes a token, as an operator would.
    pub fn revoke_token(&self, token: &str) {
        self.write("auth/token/revoke", &json!({"token": token}));
    }

    /// Seals the server: every other call answers 503 until [`RealBao::unseal`].
    pub fn seal(&self) {
        self.write("sys/seal", &json!({}));
    }

    /// Unseals it, and waits until it serves again.
    pub fn unseal(&self) {
        self.write("sys/unseal", &json!({"key": self.unseal_key}));
        let deadline = Instant::now() + START_DEADLINE;
        while self.request("GET", "sys/health", "", None).0 != 200 {
            assert!(Instant::now() < deadline, "OpenBao stays sealed");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A write as root that must succeed; the answer, null when it is empty.
    #[track_caller]
    pub fn write(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.request("POST", path, ROOT_TOKEN, Some(body));
        assert!(status < 300, "write {path}: {status} {answer}");
        answer
    }

    /// A read as root that must succeed. A list is a path with `?list=true`.
    #[track_caller]
    pub fn read(&self, path: &str) -> Value {
        let (status, answer) = self.request("GET", path, ROOT_TOKEN, None);
        assert!(status < 300, "read {path}: {status} {answer}");
        answer
    }

    /// Any call with any token (empty = none): status and body.
    #[track_caller]
    pub fn request(
        &self,
        method: &str,
        path: &str,
        token: &str,
        body: Option<&Value>,
    ) -> (u16, Value) {
        let mut request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("{}/v1/{path}", self.url()));
        if !token.is_empty() {
            request = request.header("X-Vault-Token", token);
        }
        let request = request
            .body(body.map(Value::to_string).unwrap_or_default())
            .expect("a well-formed request");
        let mut answer = self
            .http
            .run(request)
            .unwrap_or_else(|e| panic!("{method} {path}: {e}\n{}", self.log()));
        let text = answer
            .body_mut()
            .read_to_string()
            .unwrap_or_else(|e| panic!("{method} {path}: {e}"));
        let value = serde_json::from_str(&text).unwrap_or(Value::Null);
        (answer.status().as_u16(), value)
    }
}

/// The word after `label` in the server's banner.
fn after(log: &str, label: &str) -> Option<String> {
    let rest = log.split(label).nth(1)?;
    rest.split_once('\n')
        .map(|(word, _)| word.trim().to_owned())
}

/// The dev server's CA is the one `*-ca.pem` of its directory.
fn ca_file_name(dir: &Path) -> String {
    fs::read_dir(dir)
        .expect("the dev server's directory")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .find(|name| name.ends_with("-ca.pem"))
        .expect("the dev server wrote its CA")
}

fn client(ca_file: &Path) -> ureq::Agent {
    let pem = fs::read(ca_file).expect("the dev server's CA");
    let ca = Certificate::from_pem(&pem).expect("a certificate in PEM");
    ureq::Agent::config_builder()
        .tls_config(
            TlsConfig::builder()
                .root_certs(RootCerts::new_with_certs(&[ca]))
                .unversioned_rustls_crypto_provider(Arc::new(
                    rustls::crypto::ring::default_provider(),
                ))
                .build(),
        )
        .http_status_as_error(false)
        .allow_non_standard_methods(true)
        .proxy(None)
        .timeout_global(Some(Duration::from_secs(20)))
        .build()
        .new_agent()
}

/// The policy of an environment: its own secrets, by the `env_id` that the login put on the entity's alias, and its token.
fn policy(accessor: &str) -> String {
    let env_id = format!("{{{{identity.entity.aliases.{accessor}.metadata.env_id}}}}");
    format!(
        r#"
path "{KV_MOUNT}/data/{env_id}/see/*" {{ capabilities = ["read"] }}
path "{KV_MOUNT}/metadata/{env_id}/see/*" {{ capabilities = ["list"] }}
path "auth/token/lookup-self" {{ capabilities = ["read"] }}
path "auth/token/renew-self" {{ capabilities = ["update"] }}
"#
    )
}
