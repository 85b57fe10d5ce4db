//! The same test on AGENT, which has a single tenant: random calls by its keys, by
//! `AGENT_CLOUD_API_KEY`, and by anybody while AGENT is open. No key has more rights than the key
//! that created it, or changes its own restrictions. Keys that strangers created while AGENT was
//! open are invalid once AGENT is enforced, until a caller with a credential vouches for them.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::agents as presets;
use super::identity::of;
use super::privilege_escalation::{AGENT, body, holds, narrower};
use super::*;
use rerouter_access::auth::AgentCredential;
use rerouter_store::KeyRow;

const CLOUD: &str = "cloud";

/// The caller of a step while AGENT is enforced. While AGENT is open every caller is anonymous.
#[derive(Clone, Copy, Debug)]
enum AgentCaller {
    Cloud,
    Key(usize),
}

#[derive(Clone, Debug)]
enum AgentAction {
    Create(AgentCaller, Value),
    Patch(AgentCaller, usize, Value),
    Rotate(AgentCaller, usize),
    End(AgentCaller, usize),
    /// A restart, with or without `AGENT_CLOUD_API_KEY`.
    Enforce(bool),
    /// Writes the agent with the name at this index.
    Write(AgentCaller, usize),
}

fn step() -> impl Strategy<Value = AgentAction> {
    let by =
        || prop_oneof![3 => (0usize..10).prop_map(AgentCaller::Key), 2 => Just(AgentCaller::Cloud)];
    prop_oneof![
        7 => (by(), body(AGENT)).prop_map(|(by, body)| AgentAction::Create(by, body)),
        7 => (by(), 0usize..10, body(AGENT)).prop_map(
            |(by, of, body)| AgentAction::Patch(by, of, body)
        ),
        3 => (by(), 0usize..10).prop_map(
            |(by, of)| AgentAction::Patch(by, of, json!({"status": "active"}))
        ),
        2 => (by(), 0usize..10, 20u64..80).prop_map(
            |(by, of, most)| AgentAction::Patch(by, of, json!({"limits": {"keys_per_user": most}}))
        ),
        3 => (by(), 0usize..10).prop_map(|(by, of)| AgentAction::Rotate(by, of)),
        1 => (by(), 0usize..10).prop_map(|(by, of)| AgentAction::End(by, of)),
        2 => any::<bool>().prop_map(AgentAction::Enforce),
        2 => (by(), 0usize..3).prop_map(|(by, name)| AgentAction::Write(by, name)),
    ]
}

/// Counts of steps that succeeded.
#[derive(Clone, Copy, Debug, Default)]
struct AgentCoverage {
    /// Keys created by keys.
    by_keys: u32,
    /// Keys created by strangers.
    by_strangers: u32,
    changed: u32,
    rotated: u32,
    /// Keys of strangers that were vouched for.
    vouched: u32,
    /// Calls of strangers that were refused because the key was not a stranger's.
    kept_out: u32,
    /// Checked agents that strangers wrote.
    untrusted: u32,
}

/// What the test knows about a key.
struct KnownAgentKey {
    id: String,
    secret: String,
    scopes: Vec<String>,
    parent: Option<String>,
    /// A stranger created the key, and nobody has vouched for it since.
    strangers: bool,
}

struct AgentEscalationCase {
    world: TestApi,
    enforced: bool,
    made: Vec<KnownAgentKey>,
    /// Whether the last writer of an agent had a credential, by the agent's name.
    written: std::collections::BTreeMap<String, bool>,
    done: AgentCoverage,
}

impl AgentEscalationCase {
    async fn begin() -> AgentEscalationCase {
        let mut world = world().await;
        world.start_again(Some(CLOUD)).await;
        let mut case = AgentEscalationCase {
            world,
            enforced: true,
            made: Vec::new(),
            written: Default::default(),
            done: AgentCoverage::default(),
        };
        let limits = json!({"keys_per_user": 80, "models": ["a/*", "b*"]});
        case.create(
            AgentCaller::Cloud,
            json!({"scopes": ["keys"], "expires_at": "2025-12-09T00:00:00Z", "limits": limits}),
        )
        .await;
        case.create(AgentCaller::Cloud, json!({})).await;
        case.create(AgentCaller::Key(1), json!({"expires_at": "2025-12-01T00:00:00Z"})).await;
        case.enforce(false).await;
        case.create(AgentCaller::Cloud, json!({})).await;
        case.enforce(true).await;
        assert_eq!(case.made.len(), 4);
        case
    }

    async fn enforce(&mut self, on: bool) {
        self.enforced = on;
        self.follow().await;
    }

    /// Loads the tables as a start does. They must be the same after every change.
    async fn follow(&mut self) {
        let enforced = self.enforced;
        self.world.start_again(enforced.then_some(CLOUD)).await;
    }

    fn row(&self, id: &str) -> KeyRow {
        KeyRow::clone(self.world.row_on(AGENT, id).row())
    }

    fn who(&self, by: AgentCaller) -> Option<Principal> {
        let secret = match by {
            AgentCaller::Cloud => CLOUD,
            AgentCaller::Key(place) => &self.made[place % self.made.len()].secret,
        };
        let who = self.world.bearer(Surface::Agent, secret).ok()?;
        let open = matches!(who, Principal::AgentTenant { via: AgentCredential::Open });
        assert_eq!(open, !self.enforced, "whoever shows what, while it is open");
        Some(who)
    }

    async fn create(&mut self, by: AgentCaller, body: Value) {
        let Some(who) = self.who(by) else { return };
        let answer =
            keys::create(&self.world.app, &who, &request(AGENT.path, Some(body.clone()))).await;
        let Ok(key) = answer.map(|answer| read(&answer)) else { return };
        self.follow().await;
        let row = self.row(text(&key["id"]));
        assert_eq!(
            (row.parent.as_ref(), row.made_open),
            (who.key().map(|own| &own.id), !self.enforced),
            "{body} by {by:?}"
        );
        self.done.by_keys += u32::from(who.key().is_some());
        self.done.by_strangers += u32::from(!self.enforced);
        self.made.push(KnownAgentKey {
            id: row.id.to_string(),
            secret: text(&key["key"]).to_owned(),
            scopes: row.scopes.to_vec(),
            parent: row.parent.map(|id| id.to_string()),
            strangers: !self.enforced,
        });
    }

    async fn patch(&mut self, by: AgentCaller, place: usize, body: &Value) {
        let place = place % self.made.len();
        let (id, Some(who)) = (self.made[place].id.clone(), self.who(by)) else { return };
        let before = self.world.row_on(AGENT, &id);
        let mut asked = of(AGENT.path, &id, Some(body.clone()));
        *asked.method_mut() = http::Method::PATCH;
        let answer = keys::patch(&self.world.app, &who, &asked).await;
        self.follow().await;
        let after = self.world.row_on(AGENT, &id);
        let (old, new) = (before.row(), after.row());
        let changed = new.generation != old.generation;
        self.done.changed += u32::from(changed);
        self.keeps_out(place, changed, answer.is_ok());
        assert!(
            old.expires_at.is_none_or(|end| new.expires_at.is_some_and(|now| now <= end)),
            "{body} by {by:?}"
        );
        if let Some(own) = who.key() {
            let held = own.id == old.id || self.above(own.id.as_str()).contains(&id);
            assert!(
                !held || holds(&before) == holds(&after),
                "no key changes what holds it: {body} by {by:?}"
            );
            assert!(
                old.parent.as_ref() == Some(&own.id) || new.limits == old.limits,
                "{body} by {by:?}, who did not make it"
            );
        }
        assert!(
            old.parent.is_some() || narrower(&new.limits, &old.limits),
            "{body} by {by:?} of what no key made"
        );
        if answer.is_ok()
            && self.enforced
            && self.made[place].strangers
            && body["status"] == "active"
        {
            self.made[place].strangers = false;
            self.done.vouched += 1;
        }
    }

    async fn rotate(&mut self, by: AgentCaller, place: usize) {
        let place = place % self.made.len();
        let (id, Some(who)) = (self.made[place].id.clone(), self.who(by)) else { return };
        let before = self.row(&id);
        let answer =
            keys::rotate(&self.world.app, &who, &of(AGENT.path, &id, Some(json!({})))).await;
        self.follow().await;
        let after = self.row(&id);
        self.keeps_out(place, after.digest != before.digest, answer.is_ok());
        let same = (
            after.scopes == before.scopes,
            after.limits == before.limits,
            after.expires_at == before.expires_at,
        );
        assert_eq!(same, (true, true, true));
        let Ok(answer) = answer else { return assert_eq!(after.digest, before.digest) };
        self.made[place].secret = text(&read(&answer)["key"]).to_owned();
        if let Some(own) = who.key().filter(|own| own.id != after.id) {
            self.done.rotated += 1;
            assert!(
                after.scopes.iter().all(|scope| own.scopes.contains(scope))
                    && narrower(&after.limits, &own.limits)
            );
            assert!(
                own.expires_at.is_none_or(|end| after.expires_at.is_some_and(|other| other <= end))
            );
        }
    }

    async fn end(&mut self, by: AgentCaller, place: usize) {
        let place = place % self.made.len();
        let (id, Some(who)) = (self.made[place].id.clone(), self.who(by)) else { return };
        let answer = keys::revoke(&self.world.app, &who, &of(AGENT.path, &id, None)).await;
        let was_live = self.row(&id).revoked_at.is_none();
        self.follow().await;
        self.keeps_out(place, was_live && self.row(&id).revoked_at.is_some(), answer.is_ok());
    }

    /// A stranger may not change keys that were created, or vouched for, while AGENT was enforced.
    fn keeps_out(&mut self, place: usize, changed: bool, done: bool) {
        if !self.enforced && !self.row(&self.made[place].id).made_open {
            assert!(!changed && !done);
            self.done.kept_out += 1;
        }
    }

    async fn write(&mut self, by: AgentCaller, place: usize) {
        let (Some(who), name) = (self.who(by), ["a", "b", "c"][place]) else { return };
        let Principal::AgentTenant { .. } = &who else { panic!("AGENT has one tenant") };
        if !who.has_scope("agents") {
            return;
        }
        let done = match self.written.contains_key(name) {
            false => {
                presets::create(
                    &self.world.app,
                    &who,
                    &request("/v1/agents", Some(json!({"name": name, "model": "auto"}))),
                )
                .await
            }
            true => {
                presets::patch(
                    &self.world.app,
                    &who,
                    &of("/v1/agents", name, Some(json!({"description": format!("{by:?}")}))),
                )
                .await
            }
        };
        done.unwrap();
        self.follow().await;
        self.written.insert(name.to_owned(), self.enforced);
    }

    fn above(&self, id: &str) -> Vec<String> {
        self.world
            .app
            .auth
            .ancestors(&self.row(id))
            .iter()
            .map(|above| above.id.to_string())
            .collect()
    }

    fn check(&mut self) {
        for key in &self.made {
            let row = self.row(&key.id);
            assert_eq!(
                (row.owner, row.interface, row.labels.len()),
                (UserId::tenant(), AGENT.interface, 0)
            );
            assert_eq!(
                (&*row.scopes, row.parent.as_ref().map(|id| id.to_string())),
                (&key.scopes, key.parent.clone())
            );
            assert!(
                row.scopes
                    .iter()
                    .all(|scope| rerouter_access::auth::AGENT_SCOPES.contains(&scope.as_str()))
            );
            if let Some(above) = &key.parent {
                let above = self.row(above);
                assert!(row.scopes.iter().all(|scope| above.scopes.contains(scope)));
                assert!(
                    narrower(&row.limits, &above.limits),
                    "{:?} {:?}",
                    row.limits,
                    above.limits
                );
                assert!(
                    above.expires_at.is_none_or(|end| row.expires_at.is_some_and(|own| own <= end))
                );
            }
            if self.enforced && key.strangers {
                assert!(
                    self.world.bearer(Surface::Agent, &key.secret).is_err(),
                    "nobody vouched for it"
                );
            }
        }
        for (name, trusted) in &self.written {
            assert_eq!(
                self.world.app.auth.agents().find(name).unwrap().trusted,
                *trusted,
                "{name}"
            );
            self.done.untrusted += u32::from(!trusted);
        }
    }
}

async fn run_case(steps: &[AgentAction]) -> AgentCoverage {
    let mut case = AgentEscalationCase::begin().await;
    for step in steps {
        match step {
            AgentAction::Create(by, body) => case.create(*by, body.clone()).await,
            AgentAction::Patch(by, of, body) => case.patch(*by, *of, body).await,
            AgentAction::Rotate(by, of) => case.rotate(*by, *of).await,
            AgentAction::End(by, of) => case.end(*by, *of).await,
            AgentAction::Enforce(on) => case.enforce(*on).await,
            AgentAction::Write(by, name) => case.write(*by, *name).await,
        }
        case.check();
    }
    case.done
}

#[test]
fn whatever_is_asked_for_on_agent_no_key_has_more_than_its_maker_and_strangers_have_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let cases = Config::default().cases.div_ceil(8);
    let mut runner =
        TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let sum = Cell::new(AgentCoverage::default());
    runner
        .run(&proptest::collection::vec(step(), 1..64), |steps| {
            let (done, before) = (runtime.block_on(run_case(&steps)), sum.get());
            sum.set(AgentCoverage {
                by_keys: before.by_keys + done.by_keys,
                by_strangers: before.by_strangers + done.by_strangers,
                changed: before.changed + done.changed,
                rotated: before.rotated + done.rotated,
                vouched: before.vouched + done.vouched,
                kept_out: before.kept_out + done.kept_out,
                untrusted: before.untrusted + done.untrusted,
            });
            Ok(())
        })
        .unwrap();
    // Far below the average counts. If every call were refused, the test would prove nothing.
    let sum = sum.get();
    let counts = [
        sum.by_keys,
        sum.by_strangers,
        sum.kept_out,
        sum.untrusted,
        sum.changed,
        sum.rotated,
        sum.vouched,
    ];
    assert!(counts.iter().all(|count| *count > 0), "{sum:?} in {cases} cases");
}
