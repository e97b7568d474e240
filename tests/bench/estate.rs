//! The boxes that are measured: on disk, as real ones are, with the docker stand-in, talking to a control plane in this
//! process and, where it matters, to a real OpenBao.

use crate::support::agent::AgentBox;
use crate::support::real_bao::RealBao;
use crate::support::stand_in::StandIn;
use control_plane::{Bundle, BundleBuilder, ControlPlane, Grants, Options};
use serde_json::{Value, json};
use std::fs;
use std::sync::Arc;

/// The environment of every box here.
pub const ENV: &str = "env-bench";

/// A box and the control plane that it talks to.
pub struct Estate {
    pub plane: ControlPlane,
    pub agent: AgentBox,
    /// Its directory outlives the box's runs.
    pub docker: StandIn,
}

impl Estate {
    /// With the embedded OpenBao.
    pub fn embedded() -> Self {
        let plane = ControlPlane::start(Options::new(ENV)).unwrap();
        let ca_pem = plane.ca_pem();
        Self::around(plane, &ca_pem)
    }

    /// With a real OpenBao.
    pub fn real(bao: &RealBao, grants: &Arc<Grants>) -> Self {
        let plane = ControlPlane::start_with_real_bao(
            Options::new(ENV),
            &bao.url(),
            bao.root_token(),
            &bao.ca_pem(),
            Arc::clone(grants),
        );
        Self::around(plane.unwrap(), &bao.ca_pem())
    }

    fn around(plane: ControlPlane, ca_pem: &str) -> Self {
        let mut agent = AgentBox::connected(
            ENV,
            &plane.tenancy_url(),
            &plane.bao_url(),
            ca_pem,
            &plane.grant(),
        );
        agent.set("log_level", "INFO");
        let docker = StandIn::of(&mut agent);
        plane.tenancy().set(|settings| {
            settings.force_apply = true;
            settings.lease_budget = 100_000;
        });
        Self {
            plane,
            agent,
            docker,
        }
    }

    /// Applies what is wanted now, once.
    pub fn settle(&self) {
        self.agent.tick().exits(0);
        self.docker.forget();
    }

    /// Makes the next apply log in: a token of the bootstrap grant is swapped for a leased one.
    pub fn make_it_log_in(&self) {
        let path = self.agent.state_dir().join("state.json");
        let mut state: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        state["token"]["source"] = "bootstrap".into();
        fs::write(path, state.to_string()).unwrap();
    }
}

/// A bundle of one service with so many secrets, `see/s000` and so on.
pub fn bundle(generation: u64, secrets: usize) -> BundleBuilder {
    let template: String = (0..secrets)
        .map(|n| format!("S{n:03}=${{S{n:03}}}\n"))
        .collect();
    // The stand-in reads JSON only, which is YAML, too.
    let compose = json!({"services": {"api": {
        "image": "harbor.example/monky/api:1", "restart": "unless-stopped", "env_file": ".env",
    }}});
    let bundle = Bundle::sample(ENV, "unused")
        .compose(&compose.to_string())
        .template(&template)
        .meta_with(&json!({"generation": generation, "agent": {"allow_rollback": true}}));
    (0..secrets).fold(bundle, |bundle, n| {
        bundle.secret(&format!("S{n:03}"), &format!("see/s{n:03}"))
    })
}
