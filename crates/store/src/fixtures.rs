//! One row of each kind, for the unit tests of all crates. A test overrides the fields that matter.

use std::collections::BTreeMap;

use super::sql::Transaction;
use super::*;
use rerouter_base::clock::fixtures::at;
use rerouter_base::id::{AgentId, KeyId, NodeId, Random, SessionId, UserId};
use rerouter_base::interface::Interface;

pub fn user(email: &str, random: &Random) -> UserRow {
    UserRow {
        id: UserId::new(at(0), random),
        email: email.into(),
        name: Some("A".into()),
        role: Role::User,
        password: "$argon2id$canary".into(),
        disabled: false,
        labels: BTreeMap::from([("team".into(), "core".into())]),
        limits: Limits { rpm: Some(9), ..Limits::default() },
        created_at: at(0),
    }
}

pub fn key(owner: &UserId, random: &Random) -> KeyRow {
    let mut digest = [0; 32];
    random.fill(&mut digest);
    KeyRow {
        id: KeyId::new(at(1), random),
        interface: Interface::Router,
        name: "ci".into(),
        redacted: "rtr_AbCd…iBxe".into(),
        digest,
        owner: owner.clone(),
        created_by: Actor { kind: "session".into(), id: "sess_1".into() }.into(),
        parent: None,
        scopes: vec!["inference".into()].into(),
        labels: Default::default(),
        limits: Limits { models: Some(vec!["auto".into()]), ..Limits::default() }.into(),
        status: KeyStatus::Active,
        created_at: at(1),
        expires_at: Some(at(1000)),
        revoked_at: None,
        rotated_at: None,
        generation: 1,
        previous: None,
        made_open: false,
        maker: None,
        last_used_at: None,
        metadata: BTreeMap::from([("a".into(), "b".into())]).into(),
    }
}

pub fn session(user: &UserId, second: i64, random: &Random) -> SessionRow {
    let (mut cookie_digest, mut token_digest) = ([0; 32], [0; 32]);
    random.fill(&mut cookie_digest);
    random.fill(&mut token_digest);
    let id = SessionId::new(at(second), random);
    SessionRow {
        id,
        user: user.clone(),
        cookie_digest,
        token_digest,
        created_at: at(second),
        expires_at: at(second + 100),
        last_seen: at(second),
    }
}

pub fn node(random: &Random) -> NodeRow {
    NodeRow {
        id: NodeId::new(at(0), random),
        name: "rack".into(),
        models: vec!["*".into()],
        endpoint: None,
        generation: 1,
        secret: vec![1],
        previous: None,
        created_at: at(0),
        rotated_at: None,
        registration: None,
    }
}

pub fn agent(name: &str, random: &Random) -> AgentRow {
    AgentRow {
        id: AgentId::new(at(1), random),
        name: name.into(),
        description: None,
        model: "auto".into(),
        instructions: Some("Be brief.".into()),
        defaults: serde_json::from_str(r#"{"temperature":0.2}"#).unwrap(),
        tools: vec![serde_json::json!({"type": "function", "function": {"name": "look"}})],
        trusted: true,
        metadata: BTreeMap::from([("a".into(), "b".into())]),
        created_at: at(1),
        updated_at: at(2),
    }
}

/// A follower that is called for mutations only.
struct Ear<F>(F);

impl<F: Fn(&Committed) + Send + Sync> Follower for Ear<F> {
    fn apply(&self, committed: &Committed) {
        (self.0)(committed);
    }

    fn reload(&self) -> Box<dyn Reload> {
        Box::new(Deaf)
    }
}

struct Deaf;

impl Reload for Deaf {
    fn row(&mut self, _: Change) {}

    fn finish(self: Box<Self>, _: u64) {}
}

pub fn follower(hear: impl Fn(&Committed) + Send + Sync + 'static) -> std::sync::Arc<dyn Follower> {
    std::sync::Arc::new(Ear(hear))
}

/// Counts the rows of a load, and keeps its revision.
#[derive(Clone, Default)]
pub struct Loaded(pub std::sync::Arc<std::sync::Mutex<(usize, u64)>>);

impl Follower for Loaded {
    fn apply(&self, _: &Committed) {}

    fn reload(&self) -> Box<dyn Reload> {
        Box::new(self.clone())
    }
}

impl Reload for Loaded {
    fn row(&mut self, _: Change) {
        self.0.lock().unwrap().0 += 1;
    }

    fn finish(self: Box<Self>, rev: u64) {
        self.0.lock().unwrap().1 = rev;
    }
}

/// All tables at one revision.
#[derive(Debug, Default)]
pub struct Snapshot {
    pub rev: u64,
    pub users: Vec<UserRow>,
    pub keys: Vec<KeyRow>,
    pub sessions: Vec<SessionRow>,
    pub agents: Vec<AgentRow>,
    pub nodes: Vec<NodeRow>,
}

impl Store {
    pub async fn load(&self) -> Result<Snapshot> {
        let load = |transaction: &Transaction<'_>| {
            let mut all = Snapshot::default();
            all.rev = load::each(transaction, |change| match change {
                Change::User(user) => all.users.push((*user).clone()),
                Change::Key(key) => all.keys.push((*key).clone()),
                Change::Session(session) => all.sessions.push(session),
                Change::Agent(agent) => all.agents.push((*agent).clone()),
                Change::Node(node) => all.nodes.push((*node).clone()),
                gone => unreachable!("{gone:?}"),
            })?;
            Ok(all)
        };
        self.databases.accounts.read_after_writes(load).await
    }
}
