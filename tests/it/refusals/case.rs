//! A box that runs its first bundle, and everything that must hold when the next one is refused: what a person sees, what
//! tenancy is told, and that nothing else happened. The word of a test is the whole detail, so a changed text is a
//! changed test.

use crate::support::scene::{DB_VALUE, Scene, bundle, files_below};
use control_plane::{Bundle, BundleBuilder, Want};
use monky_deployd::code::Code;
use monky_deployd::host::clock::Timestamp;
use serde_json::{Value, json};
use std::path::PathBuf;

/// A value of every template here: reports and logs name variables, and never show what is in them.
pub const PLAIN_VALUE: &str = "told-to-nobody-at-all";

/// What a refusal may cost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Before a lease is asked for: neither a lease nor OpenBao.
    BeforeSecrets,
    /// With the secrets read, and before anything is staged.
    WithSecrets,
}

/// The box before the refusal: none of this may change.
#[derive(PartialEq)]
struct Untouched {
    current: Option<String>,
    applied: Option<String>,
    tree: Vec<String>,
    files: Vec<(PathBuf, Vec<u8>)>,
    engine: Value,
    token: Option<String>,
}

/// What was told of a refusal.
pub struct Told {
    /// In the log: every finding with its code in front.
    pub line: String,
    /// In the report, the state and the next checkin.
    pub detail: String,
}

impl Told {
    /// Both texts beside those that were expected, if they differ.
    pub fn differs_from(&self, code: &str, findings: &[&str]) -> Option<String> {
        let has_code = |finding: &str| {
            let head = finding.split(": ").next().unwrap_or_default();
            Code::parse(head).is_some()
        };
        let lines: Vec<String> = findings
            .iter()
            .map(|finding| match has_code(finding) {
                true => (*finding).to_owned(),
                false => format!("{code}: {finding}"),
            })
            .collect();
        let line = lines.join("; ");
        let detail = format!("{code}: {}", findings.join("; "));
        (self.line != line || self.detail != detail).then(|| {
            format!(
                "expected {line}\n    told {}\nexpected {detail}\n    told {}",
                self.line, self.detail
            )
        })
    }

    /// Asserts both texts.
    #[track_caller]
    pub fn is(&self, code: &str, findings: &[&str]) -> &Self {
        if let Some(wrong) = self.differs_from(code, findings) {
            panic!("{wrong}");
        }
        self
    }
}

/// The box.
pub struct Case {
    pub scene: Scene,
}

/// A second bundle whose template has these lines too.
pub fn template(lines: &str) -> BundleBuilder {
    let text = format!("APP_MODE=demo\nDB=${{DB}}\nPLAIN={PLAIN_VALUE}\n{lines}");
    bundle(2).template(&text)
}

/// A second bundle, to be spoiled.
pub fn second() -> BundleBuilder {
    template("")
}

impl Case {
    /// A box that runs `bundle(1)`.
    pub fn new() -> Self {
        Self {
            scene: Scene::applied(),
        }
    }

    /// Each bundle is refused with `code` and exactly these findings; the last one is tried again by the timer and by a
    /// person. A finding of another code has that code in front.
    #[track_caller]
    pub fn refuses(&self, code: &str, rows: &[(BundleBuilder, &[&str])]) {
        let mut last = None;
        let mut wrong = Vec::new();
        for (builder, findings) in rows {
            let bundle = builder.build();
            let told = self.refuses_one(Seen::BeforeSecrets, code, &bundle);
            wrong.extend(told.differs_from(code, findings));
            last = Some((bundle, told));
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
        if let Some((bundle, told)) = last {
            self.waits_and_is_not_reported_again(code, bundle.sha(), &told);
        }
    }

    /// This bundle is refused with `code`.
    #[track_caller]
    pub fn refuses_one(&self, seen: Seen, code: &str, bundle: &Bundle) -> Told {
        self.scene.want(bundle);
        self.refuses_what_is_wanted(seen, code, bundle.sha())
    }

    /// What tenancy wants by now is refused with `code`.
    #[track_caller]
    pub fn refuses_what_is_wanted(&self, seen: Seen, code: &str, sha: &str) -> Told {
        let scene = &self.scene;
        let before = self.untouched();
        let reports = scene.plane.reports().len();
        scene.forget();
        scene.make_due();
        let ran = scene.agent.timer_tick();
        let said = ran.stderr(1);

        let report = scene.last_report();
        assert_eq!(
            scene.plane.reports().len(),
            reports + 1,
            "one report\n{said}"
        );
        assert_eq!(
            (&report["result"], &report["code"], &report["sha"]),
            (&json!("failed"), &json!(code), &json!(sha)),
            "{said}"
        );
        let detail = report["detail"].as_str().unwrap().to_owned();
        assert!(detail.starts_with(&format!("{code}: ")), "{detail}");
        assert!(detail.chars().count() <= 900, "{detail}");
        for value in [PLAIN_VALUE, DB_VALUE] {
            ran.is_silent_on(value);
            assert!(!report.to_string().contains(value), "{report}");
            assert!(!scene.agent.state().to_string().contains(value));
        }

        let way: &[&str] = match seen {
            Seen::BeforeSecrets => &["checkin", "bundle", "report"],
            Seen::WithSecrets => &["checkin", "bundle", "lookup-self", "read", "report"],
        };
        assert_eq!(scene.requests(), way, "{said}");
        let changing = ["compose pull", "compose up", "compose down"];
        let verbs = scene.docker.verbs();
        assert!(
            !verbs.iter().any(|verb| changing.contains(&verb.as_str())),
            "{verbs:?}"
        );
        assert!(self.untouched() == before, "{}", ran.story());

        let state = scene.agent.state();
        assert_eq!(
            (&state["last"]["code"], &state["last"]["detail"]),
            (&json!(code), &json!(detail))
        );
        assert_eq!(self.back_off(sha), (1, 10));
        let line = said
            .lines()
            .find_map(|line| line.strip_prefix("error: the bundle is refused: "));
        let (line, _) = line
            .and_then(|line| line.split_once(&format!(" code={code} tick=")))
            .unwrap_or_else(|| panic!("{}", ran.story()));
        Told {
            line: line.to_owned(),
            detail,
        }
    }

    /// The timer's next tick waits, a person's refuses in the same words; neither reports, and the pause doubles.
    #[track_caller]
    pub fn waits_and_is_not_reported_again(&self, code: &str, sha: &str, told: &Told) {
        let scene = &self.scene;
        let before = self.untouched();
        let reports = scene.plane.reports().len();
        scene.forget();
        scene.make_due();
        let next = scene.agent.state()["failure"]["next_try_at"].clone();
        scene.agent.timer_tick().exits(1).says(&format!(
            "{} failed with {code}, next try at {}",
            &sha[..12],
            next.as_str().unwrap()
        ));
        assert_eq!(scene.requests(), ["checkin"]);
        let checkin = scene.plane.checkins().pop().unwrap();
        assert_eq!(
            (&checkin["last_result"], &checkin["last_error"]),
            (&json!("failed"), &scene.agent.state()["last"]["detail"])
        );

        scene.forget();
        scene
            .agent
            .tick()
            .exits(1)
            .says(&format!("the bundle is refused: {} code=", told.line));
        assert!(!scene.requests().contains(&"report".to_owned()));
        assert_eq!(scene.plane.reports().len(), reports);
        assert_eq!(self.back_off(sha), (2, 20));
        assert!(self.untouched() == before, "{}", scene.agent.tree());
    }

    /// The bundle is not refused: it is applied.
    #[track_caller]
    pub fn takes(&self, bundle: &BundleBuilder) {
        let bundle = bundle.build();
        self.scene.want(&bundle);
        self.scene.make_due();
        self.scene.agent.timer_tick().exits(0).says("applied");
        assert_eq!(self.scene.applied_sha().as_deref(), Some(bundle.sha()));
    }

    /// Makes tenancy want `sha` and serve these bytes for it.
    pub fn serves_for(&self, sha: &str, bytes: &[u8]) {
        let tenancy = self.scene.plane.tenancy();
        tenancy.add_bundle_as(sha, bytes);
        tenancy.set(|settings| settings.want = Want::Apply(sha.to_owned()));
    }

    /// How often the bundle failed, and the seconds between the last failure and the next try.
    fn back_off(&self, sha: &str) -> (i64, i64) {
        let failure = self.scene.agent.state()["failure"].clone();
        assert_eq!(failure["sha"], sha);
        let at = |name: &str| Timestamp::parse(failure[name].as_str().unwrap()).unwrap();
        let pause_s = at("next_try_at").since_s(at("failed_at"));
        (failure["tries"].as_i64().unwrap(), pause_s)
    }

    fn untouched(&self) -> Untouched {
        let agent = &self.scene.agent;
        let deploy_dir = agent.deploy_dir();
        let name = format!("{}/", deploy_dir.file_name().unwrap().display());
        let tree = agent.tree();
        Untouched {
            current: agent.current(),
            applied: self.scene.applied_sha(),
            tree: tree
                .lines()
                .filter(|line| line.contains(&name))
                .map(str::to_owned)
                .collect(),
            files: files_below(&deploy_dir),
            engine: self.scene.docker.engine(),
            token: self.scene.token(),
        }
    }
}
