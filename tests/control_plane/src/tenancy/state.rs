//! Owns what tenancy wants and remembers: settings, bundles, the lease budget, and the answers that follow from them.
//!
//! Pure data and decisions; never reads a request.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::GrantSpec;

/// The desired state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Want {
    /// Nothing rendered yet: `none` without a sha.
    #[default]
    Nothing,
    /// This bundle; `none` once it is the applied one.
    Apply(String),
    /// Nothing may run.
    Down {
        /// Whether volumes are to go as well.
        purge_volumes: bool,
    },
}

/// What tests may set at any time.
#[derive(Clone, Debug)]
pub struct TenancySettings {
    /// The environment that is served; others are a mismatch.
    pub env_id: String,
    /// The desired state.
    pub want: Want,
    /// Says `apply` although the desired bundle is the applied one.
    pub force_apply: bool,
    /// Says `none` although it is not.
    pub hold_none: bool,
    /// `checkin_interval_s`.
    pub checkin_interval_s: u64,
    /// The `vault` block of a check-in; null leaves it out.
    pub vault: Value,
    /// `addr` of a lease; null leaves it out.
    pub lease_addr: Value,
    /// Adds the nulls that pydantic writes for fields without a value.
    pub explicit_nulls: bool,
    /// Laid over every check-in answer.
    pub checkin_extra: Map<String, Value>,
    /// Taken out of every check-in answer.
    pub checkin_without: Vec<String>,
    /// Laid over every lease.
    pub lease_extra: Map<String, Value>,
    /// Taken out of every lease.
    pub lease_without: Vec<String>,
    /// The grant in a lease; None makes a good one each time.
    pub lease_grant: Option<GrantSpec>,
    /// `ttl_s` of a lease.
    pub lease_ttl_s: u64,
    /// Leases per window.
    pub lease_budget: usize,
    /// The window.
    pub lease_window: Duration,
    /// Grants whose tokens are refused.
    pub superseded: BTreeSet<String>,
    /// Refuses every token: the environment was retired.
    pub retired: bool,
    /// Top-level request fields that get a 422, as under an older or stricter model.
    pub reject_fields: Vec<String>,
    /// `X-Bundle-Sha256`; None tells the truth.
    pub bundle_header: Option<String>,
}

impl TenancySettings {
    /// The estate's defaults for one environment.
    pub fn new(env_id: &str) -> Self {
        Self {
            env_id: env_id.to_owned(),
            want: Want::Nothing,
            force_apply: false,
            hold_none: false,
            checkin_interval_s: 60,
            vault: Value::Null,
            lease_addr: Value::Null,
            explicit_nulls: false,
            checkin_extra: Map::new(),
            checkin_without: Vec::new(),
            lease_extra: Map::new(),
            lease_without: Vec::new(),
            lease_grant: None,
            lease_ttl_s: 3600,
            lease_budget: 5,
            lease_window: Duration::from_secs(3600),
            superseded: BTreeSet::new(),
            retired: false,
            reject_fields: Vec::new(),
            bundle_header: None,
        }
    }

    /// Fills `vault` and `lease_addr` in for an OpenBao at `addr`.
    pub fn point_to(&mut self, addr: &str, kv_mount: &str, auth_mount: &str, role: &str) {
        self.vault = json!({"addr": addr, "mount": kv_mount, "prefix": format!("{}/see", self.env_id),
            "auth_mount": auth_mount, "auth_role": role});
        self.lease_addr = addr.into();
    }

    /// The body of a check-in's answer.
    pub(super) fn checkin_answer(&self, applied: Option<&str>) -> Value {
        let (action, sha, purge) = match &self.want {
            Want::Nothing => ("none", None, false),
            Want::Apply(sha) => {
                let converged = applied == Some(sha) && !self.force_apply;
                (
                    if converged || self.hold_none {
                        "none"
                    } else {
                        "apply"
                    },
                    Some(sha),
                    false,
                )
            }
            Want::Down { purge_volumes } => ("down", None, *purge_volumes),
        };
        let url = sha.map(|sha| format!("/v1/agent/bundle/{}/{sha}", self.env_id));
        let mut answer = Map::new();
        let mut put = |name: &str, value: Value| {
            if !value.is_null() || self.explicit_nulls {
                answer.insert(name.to_owned(), value);
            }
        };
        put("env_id", self.env_id.clone().into());
        put("desired_sha", sha.cloned().into());
        put("action", action.into());
        put("purge_volumes", purge.into());
        put("bundle_url", url.into());
        put("checkin_interval_s", self.checkin_interval_s.into());
        put("vault", self.vault.clone());
        put("message", Value::Null);
        overlay(answer, &self.checkin_extra, &self.checkin_without)
    }

    /// The body of a lease.
    pub(super) fn lease_answer(&self, jwt: &str) -> Value {
        let vault = |name: &str, default: &str| {
            self.vault
                .get(name)
                .cloned()
                .unwrap_or_else(|| default.into())
        };
        let answer = json!({
            "env_id": self.env_id, "login_jwt": jwt, "ttl_s": self.lease_ttl_s,
            "mount": vault("auth_mount", "jwt-tenancy"), "role": vault("auth_role", "see-env"), "addr": self.lease_addr,
            "wrapping_token": null, "role_id": null, "vault": null,
        });
        let mut answer = answer.as_object().cloned().unwrap_or_default();
        answer.retain(|_, value| !value.is_null() || self.explicit_nulls);
        overlay(answer, &self.lease_extra, &self.lease_without)
    }
}

fn overlay(
    mut answer: Map<String, Value>,
    extra: &Map<String, Value>,
    without: &[String],
) -> Value {
    answer.extend(extra.clone());
    answer.retain(|name, _| !without.contains(name));
    Value::Object(answer)
}

/// The lease budget.
#[derive(Default)]
pub(super) struct Leases {
    times: VecDeque<(Instant, Duration)>,
    pub reasons: Vec<String>,
}

impl Leases {
    /// Takes a lease; Some(seconds to wait) when the budget is used up.
    pub fn take(&mut self, budget: usize, window: Duration) -> Option<u64> {
        self.times.retain(|time| age(time) < window);
        if self.times.len() >= budget {
            let left = self
                .times
                .front()
                .map_or(window, |oldest| window.saturating_sub(age(oldest)));
            return Some(left.as_secs().max(1));
        }
        self.times.push_back((Instant::now(), Duration::ZERO));
        None
    }

    /// An `Instant` cannot go back beyond boot, so the shift is kept beside it.
    pub fn age(&mut self, by: Duration) {
        for (_, shift) in &mut self.times {
            *shift += by;
        }
    }
}

fn age((taken, shift): &(Instant, Duration)) -> Duration {
    taken.elapsed() + *shift
}

/// Everything behind tenancy's lock.
pub(super) struct Inner {
    pub settings: TenancySettings,
    pub bundles: BTreeMap<String, Vec<u8>>,
    pub leases: Leases,
    pub checkins: Vec<Value>,
    pub reports: Vec<Value>,
}

impl Inner {
    pub fn new(settings: TenancySettings) -> Self {
        Self {
            settings,
            bundles: BTreeMap::new(),
            leases: Leases::default(),
            checkins: Vec::new(),
            reports: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_refills_as_leases_grow_old() {
        let mut leases = Leases::default();
        let hour = Duration::from_secs(3600);
        let taken: Vec<bool> = (0..6).map(|_| leases.take(5, hour).is_none()).collect();
        assert_eq!(taken, [true, true, true, true, true, false]);
        leases.age(Duration::from_secs(3000));
        assert!(
            leases
                .take(5, hour)
                .is_some_and(|wait| (590..=600).contains(&wait))
        );
        leases.age(Duration::from_secs(601));
        assert_eq!(leases.take(5, hour), None);
    }

    #[test]
    fn applied_equal_to_desired_is_none_unless_forced() {
        let mut settings = TenancySettings::new("e");
        settings.want = Want::Apply("aa".into());
        let action = |settings: &TenancySettings, applied| {
            settings.checkin_answer(applied)["action"].clone()
        };
        assert_eq!(action(&settings, None), "apply");
        assert_eq!(action(&settings, Some("aa")), "none");
        settings.force_apply = true;
        assert_eq!(action(&settings, Some("aa")), "apply");
    }

    #[test]
    fn nulls_are_explicit_only_on_request() {
        let mut settings = TenancySettings::new("e");
        assert!(settings.checkin_answer(None).get("desired_sha").is_none());
        settings.explicit_nulls = true;
        assert_eq!(
            settings.checkin_answer(None).get("desired_sha"),
            Some(&Value::Null)
        );
        assert_eq!(
            settings.lease_answer("j").get("wrapping_token"),
            Some(&Value::Null)
        );
    }
}
