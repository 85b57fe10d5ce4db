//! Identification as a table: each surface with each kind of credential.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderValue};

use super::key_table::KEY_LIST_STEP;
use super::*;
use rerouter_base::clock::fixtures::at;
use rerouter_base::error::Kind;
use rerouter_base::id::{Random, SessionId};
use rerouter_base::interface::{Interface, Surface};
use rerouter_base::secret::SecretBytes;
use rerouter_store::{AgentRow, KeyState, fixtures};
use rerouter_store::{Change, Committed, Faults, KeyRow, KeyStatus, Limits, SessionRow, Store};

type Headers = Vec<(&'static str, String)>;

const IDLE: Duration = Duration::from_secs(1800);

pub(super) struct World {
    pub(super) auth: Auth,
    pub(super) random: Random,
    pub(super) user: UserRow,
    rev: u64,
}

impl World {
    pub(super) fn new(agent_key: Option<&str>) -> World {
        World::of(Auth::new(
            &SecretBytes::new([1; 32]),
            Some(Secret::new("operator")),
            agent_key.map(Secret::new),
            IDLE,
        ))
    }

    pub(super) fn of(auth: Auth) -> World {
        let random = Random::seeded(7);
        let user = UserRow {
            limits: Limits::default(),
            labels: BTreeMap::new(),
            ..fixtures::user("ann@example.com", &random)
        };
        let mut world = World { auth, random, user: user.clone(), rev: 0 };
        world.commit(Change::User(user.into()));
        world
    }

    pub(super) fn commit(&mut self, change: Change) {
        self.rev += 1;
        self.auth.apply(&Committed { rev: self.rev, changes: vec![change] });
    }

    pub(super) fn row(&self, interface: Interface, secret: &Secret) -> KeyRow {
        KeyRow {
            interface,
            redacted: token::redact(secret.expose()).into(),
            digest: self.auth.digest(secret),
            limits: Arc::default(),
            expires_at: None,
            ..fixtures::key(&self.user.id, &self.random)
        }
    }

    fn key(&mut self, interface: Interface) -> (Secret, KeyRow) {
        let secret = token::mint(interface.key_prefix(), &self.random);
        let row = self.row(interface, &secret);
        self.commit(Change::Key(row.clone().into()));
        (secret, row)
    }

    fn session(&mut self, user: &UserId, expires: i64) -> (Secret, Secret, SessionRow) {
        let (cookie, bearer) = (token::mint("ses", &self.random), token::mint("ses", &self.random));
        let row = SessionRow {
            id: SessionId::new(at(0), &self.random),
            user: user.clone(),
            cookie_digest: self.auth.digest(&cookie),
            token_digest: self.auth.digest(&bearer),
            created_at: at(0),
            expires_at: at(expires),
            last_seen: at(0),
        };
        self.commit(Change::Session(row.clone()));
        (cookie, bearer, row)
    }

    /// The kind of the principal, or the reason of the refusal.
    pub(super) fn who(
        &self,
        surface: Surface,
        headers: &[(&'static str, String)],
        now: i64,
    ) -> &'static str {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| {
                (
                    http::HeaderName::from_static(name),
                    HeaderValue::from_bytes(value.as_bytes()).unwrap(),
                )
            })
            .collect();
        match self.auth.identify(&headers, surface, false, at(now)) {
            Ok(Principal::Admin) => "Admin",
            Ok(Principal::User { via: Credential::Key(_), .. }) => "Key",
            Ok(Principal::User { via: Credential::Session(_), .. }) => "Session",
            Ok(Principal::AgentTenant { via: AgentCredential::Key(_) }) => "AgentKey",
            Ok(Principal::AgentTenant { via: AgentCredential::CloudKey }) => "CloudKey",
            Ok(Principal::AgentTenant { via: AgentCredential::Open }) => "Open",
            Ok(Principal::Node { .. }) => "Node",
            Ok(Principal::Anonymous) => "Anonymous",
            Err(refused) if refused.reason == "duplicate" => {
                assert_eq!(refused.error.kind(), Kind::InvalidRequest);
                refused.reason
            }
            Err(refused) => {
                assert_eq!(refused.error.kind(), Kind::Unauthorized);
                // The message does not tell whether such a key exists.
                let told = match refused.reason {
                    "missing" | "admin_key" => refused.reason,
                    _ => "unknown",
                };
                assert_eq!(refused.error.detail(), unauthorized(surface, told).detail());
                refused.reason
            }
        }
    }
}

pub(super) fn bearer(secret: &str) -> (&'static str, String) {
    ("authorization", format!("Bearer {secret}"))
}

pub(super) fn cookie(secret: &Secret) -> (&'static str, String) {
    ("cookie", format!("rerouter_session={}", secret.expose()))
}

#[test]
fn each_surface_takes_its_own_credentials() {
    let mut world = World::new(Some("cloud"));
    let (pin, _) = world.key(Interface::Pin);
    let (agt, _) = world.key(Interface::Agent);
    let (rtr, _) = world.key(Interface::Router);
    let user = world.user.id.clone();
    let (crumb, session, _) = world.session(&user, 43_200);
    let x = |name: &'static str, secret: &Secret| (name, secret.expose().to_owned());
    // credential, then the answer on: Pin, NodeCallback, Agent, RouterManagement, Messages,
    // DataPlane
    #[rustfmt::skip]
    let table: [(&str, Headers, [&str; 6]); 17] = [
        ("none", vec![],
            ["missing", "unknown", "missing", "missing", "missing", "missing"]),
        ("pin key", vec![bearer(pin.expose())],
            ["Key", "unknown", "unknown", "unknown", "unknown", "unknown"]),
        ("agt key", vec![bearer(agt.expose())],
            ["unknown", "unknown", "AgentKey", "unknown", "unknown", "unknown"]),
        ("rtr key", vec![bearer(rtr.expose())],
            ["unknown", "unknown", "unknown", "Key", "Key", "Key"]),
        ("ADMIN_API_KEY", vec![bearer("operator")],
            ["Admin", "unknown", "unknown", "Admin", "admin_key", "admin_key"]),
        ("AGENT_CLOUD_API_KEY", vec![bearer("cloud")],
            ["unknown", "unknown", "CloudKey", "unknown", "unknown", "unknown"]),
        ("session token", vec![bearer(session.expose())],
            ["Session", "unknown", "unknown", "Session", "Session", "Session"]),
        ("session cookie", vec![cookie(&crumb)],
            ["Session", "unknown", "missing", "Session", "Session", "Session"]),
        ("token as cookie", vec![cookie(&session)],
            ["unknown", "unknown", "missing", "unknown", "unknown", "unknown"]),
        ("cookie as token", vec![bearer(crumb.expose())],
            ["unknown", "unknown", "unknown", "unknown", "unknown", "unknown"]),
        ("ApiKey", vec![("authorization", format!("apikey {}", agt.expose()))],
            ["malformed", "unknown", "AgentKey", "malformed", "malformed", "malformed"]),
        ("x-api-key", vec![x("x-api-key", &rtr)],
            ["missing", "unknown", "missing", "missing", "Key", "Key"]),
        ("api-key", vec![x("api-key", &session)],
            ["missing", "unknown", "missing", "missing", "Session", "Session"]),
        ("a bad one before a good cookie", vec![bearer("nonsense"), cookie(&crumb)],
            ["unknown", "unknown", "unknown", "unknown", "unknown", "unknown"]),
        ("a wrong scheme before a good cookie",
            vec![("authorization", "Basic YTpi".into()), cookie(&crumb)],
            ["malformed", "unknown", "malformed", "malformed", "malformed", "malformed"]),
        ("an empty one before a good x-api-key",
            vec![("authorization", String::new()), x("x-api-key", &rtr)],
            ["malformed", "unknown", "malformed", "malformed", "malformed", "malformed"]),
        ("twice", vec![bearer(rtr.expose()), bearer(rtr.expose())],
            ["duplicate", "unknown", "duplicate", "duplicate", "duplicate", "duplicate"]),
    ];
    let surfaces = [
        Surface::Pin,
        Surface::NodeCallback,
        Surface::Agent,
        Surface::RouterManagement,
        Surface::Messages,
        Surface::DataPlane,
    ];
    for (name, headers, answers) in table {
        for (surface, answer) in surfaces.into_iter().zip(answers) {
            assert_eq!(world.who(surface, &headers, 10), answer, "{name} on {surface:?}");
        }
    }
}

#[test]
fn odd_spellings_decide_as_written() {
    let mut world = World::new(None);
    let (rtr, row) = world.key(Interface::Router);
    let secret = rtr.expose();
    let mistyped = format!("{}{}", &secret[..39], if secret.ends_with('0') { '1' } else { '0' });
    let stored: String = row.digest.iter().map(|byte| format!("{byte:02x}")).collect();
    for (value, answer) in [
        (format!("bEaReR {secret}"), "Key"),
        (format!("Bearer   {secret}"), "Key"),
        (format!("Bearer{secret}"), "malformed"),
        (secret.to_owned(), "malformed"),
        ("Bearer".to_owned(), "malformed"),
        (format!("Bearer {mistyped}"), "malformed"),
        (format!("Bearer {secret} x"), "unknown"),
        (format!("Bearer {stored}"), "unknown"),
        ("Bearer \u{e9}".to_owned(), "malformed"),
    ] {
        assert_eq!(
            world.who(Surface::DataPlane, &[("authorization", value.clone())], 1),
            answer,
            "{value}"
        );
    }
    let twice = [("x-api-key", secret.to_owned()), ("x-api-key", secret.to_owned())];
    assert_eq!(world.who(Surface::DataPlane, &twice, 1), "duplicate");
    // While AGENT is open no credential is looked at, not even one that is there twice.
    assert_eq!(world.who(Surface::Agent, &[bearer("x"), bearer("y")], 1), "Open");
    let empty =
        Auth::new(&SecretBytes::new([1; 32]), Some(Secret::new("")), Some(Secret::new("")), IDLE);
    assert!(!empty.agent_is_enforced());
    let headers =
        HeaderMap::from_iter([(http::header::AUTHORIZATION, HeaderValue::from_static("Bearer "))]);
    assert_eq!(
        empty.identify(&headers, Surface::Pin, false, at(0)).unwrap_err().reason,
        "malformed"
    );
}

#[test]
fn a_key_is_looked_at_on_every_request() {
    let mut world = World::new(None);
    let (secret, row) = world.key(Interface::Router);
    let shown = [bearer(secret.expose())];
    assert_eq!(world.who(Surface::DataPlane, &shown, 1), "Key");
    world.commit(Change::Key(KeyRow { expires_at: Some(at(5)), ..row.clone() }.into()));
    assert_eq!(world.who(Surface::DataPlane, &shown, 4), "Key");
    assert_eq!(world.who(Surface::DataPlane, &shown, 5), "expired");
    world.commit(Change::Key(KeyRow { status: KeyStatus::Inactive, ..row.clone() }.into()));
    assert_eq!(world.who(Surface::DataPlane, &shown, 5), "inactive");
    let rotated = token::mint("rtr", &world.random);
    world.commit(Change::Key(KeyRow { digest: world.auth.digest(&rotated), ..row.clone() }.into()));
    assert_eq!(world.who(Surface::DataPlane, &shown, 5), "unknown");
    assert_eq!(world.who(Surface::DataPlane, &[bearer(rotated.expose())], 5), "Key");
    world.commit(Change::User(UserRow { disabled: true, ..world.user.clone() }.into()));
    assert_eq!(world.who(Surface::DataPlane, &[bearer(rotated.expose())], 5), "disabled");
}

#[test]
fn a_killed_key_stays_dead_whatever_is_applied() {
    let mut world = World::new(None);
    let (secret, row) = world.key(Interface::Router);
    let (other, _) = world.key(Interface::Router);
    world.auth.kill(&row.id);
    let shown = [bearer(secret.expose())];
    assert_eq!(world.who(Surface::DataPlane, &shown, 1), "revoked");
    world.commit(Change::Key(KeyRow { name: "renamed".into(), ..row.clone() }.into()));
    assert_eq!(world.who(Surface::DataPlane, &shown, 1), "revoked");
    world.auth.0.keys.apply(row.clone().into());
    assert_eq!(world.who(Surface::DataPlane, &shown, 1), "revoked");
    world.commit(Change::Key(KeyRow { revoked_at: Some(at(1)), ..row }.into()));
    assert_eq!(world.who(Surface::DataPlane, &shown, 1), "revoked");
    assert_eq!(world.who(Surface::DataPlane, &[bearer(other.expose())], 1), "Key");
}

#[test]
fn a_session_ends_by_silence_by_age_and_by_the_store() {
    let mut world = World::new(None);
    let user = world.user.id.clone();
    let (crumb, _, row) = world.session(&user, 5000);
    let shown = [cookie(&crumb)];
    assert_eq!(world.who(Surface::Pin, &shown, 1799), "Session");
    assert_eq!(world.who(Surface::Pin, &shown, 1799 + 1799), "Session");
    assert_eq!(
        world.auth.0.sessions.take_unsaved(IDLE, at(3600)),
        (vec![(row.id.clone(), at(3598))], vec![])
    );
    assert_eq!(world.auth.0.sessions.take_unsaved(IDLE, at(3600)), (vec![], vec![]));
    assert_eq!(world.who(Surface::Pin, &shown, 4999), "Session");
    assert_eq!(world.who(Surface::Pin, &shown, 5000), "expired");
    let (crumb, _, row) = world.session(&user, 50_000);
    assert_eq!(world.who(Surface::Pin, &[cookie(&crumb)], 1800), "expired");
    assert!(world.auth.0.sessions.take_unsaved(IDLE, at(1800)).1.contains(&row.id));
    let (crumb, token, row) = world.session(&user, 50_000);
    world.commit(Change::SessionEnded(row.id));
    assert_eq!(world.who(Surface::Pin, &[cookie(&crumb)], 1), "unknown");
    assert_eq!(world.who(Surface::Pin, &[bearer(token.expose())], 1), "unknown");
}

#[test]
fn scopes_and_admin_go_by_role_and_key() {
    let world = World::new(None);
    let admin = Arc::new(UserRow { role: Role::Admin, ..world.user.clone() });
    let row = world.row(Interface::Router, &Secret::new("x"));
    let key = |scope: &str| {
        Credential::Key(Arc::new(KeyRow { scopes: vec![scope.into()].into(), ..row.clone() }))
    };
    let by = |user: &Arc<UserRow>, via: Credential| Principal::User { user: Arc::clone(user), via };
    let plain = Arc::new(world.user.clone());
    let login = || Credential::Session(SessionId::known("sess_1"));
    for (who, is_admin, inference, config) in [
        (Principal::Admin, true, true, true),
        (by(&plain, login()), false, true, false),
        (by(&admin, login()), true, true, true),
        (by(&plain, key("inference")), false, true, false),
        (by(&admin, key("inference")), false, true, false),
        (by(&admin, key("admin")), true, true, true),
        (by(&plain, key("admin")), false, false, false),
        (Principal::Anonymous, false, false, false),
    ] {
        assert_eq!(
            (who.is_admin(), who.has_scope("inference"), who.has_scope("config")),
            (is_admin, inference, config),
            "{who:?}"
        );
    }
}

#[tokio::test]
async fn a_revocation_acts_at_once_and_reaches_the_store_in_the_end() {
    for fail in [Faults::fail_every_write, Faults::fill_accounts] {
        a_revocation_meets(fail).await;
    }
}

async fn a_revocation_meets(fail: fn(&Faults)) {
    let dir = tempfile::tempdir().unwrap();
    let faults = Faults::default();
    let mut world = World::new(None);
    let secret = token::mint("rtr", &world.random);
    let row = KeyRow { owner: UserId::admin(), ..world.row(Interface::Router, &secret) };
    let store = Store::open(dir.path()).await.unwrap().with_faults(faults.clone());
    world.auth = Auth::new(&SecretBytes::new([1; 32]), None, None, IDLE);
    world.auth.attach(&store).await.unwrap();
    store.create_key(row.clone()).await.unwrap();
    assert_eq!(world.who(Surface::DataPlane, &[bearer(secret.expose())], 1), "Key");

    fail(&faults);
    world.auth.revoke(&store, &row.id, at(2)).await.unwrap_err();
    world.auth.revoke(&store, &row.id, at(2)).await.unwrap_err();
    assert_eq!(world.auth.unsaved_revocations(), 1);
    assert_eq!(world.who(Surface::DataPlane, &[bearer(secret.expose())], 3), "revoked");
    assert_eq!(store.load().await.unwrap().keys[0].revoked_at, None);
    faults.clear();
    let saved = async {
        while world.auth.unsaved_revocations() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), saved).await.unwrap();
    assert_eq!(store.load().await.unwrap().keys[0].revoked_at, Some(at(2)));
    assert_eq!(world.auth.revoke(&store, &row.id, at(9)).await.unwrap().changes, []);

    let restarted = Auth::new(&SecretBytes::new([1; 32]), None, None, IDLE);
    restarted.attach(&store).await.unwrap();
    world.auth = restarted;
    assert_eq!(world.who(Surface::DataPlane, &[bearer(secret.expose())], 3), "revoked");
}

#[tokio::test]
async fn lists_reach_past_the_keys_that_are_not_shown_and_forgotten_ones_are_nobody_s() {
    let mut world = World::new(None);
    let (secret, first) = world.key(Interface::Router);
    let ended: Vec<KeyRow> = (0..KEY_LIST_STEP * 2 + 9)
        .map(|_| {
            let (_, row) = world.key(Interface::Router);
            world.commit(Change::Key(KeyRow { revoked_at: Some(at(1)), ..row.clone() }.into()));
            row
        })
        .collect();
    let (_, last) = world.key(Interface::Router);
    let live = |key: &Key| key.state(at(2)) == KeyState::Active;
    let ids =
        |found: Vec<Arc<Key>>| found.iter().map(|key| key.row().id.clone()).collect::<Vec<_>>();
    let mut expected = vec![first.id.clone(), last.id.clone()];
    expected.sort();
    expected.reverse();
    for owner in [None, Some(&world.user.id)] {
        let found = ids(world.auth.keys(Interface::Router, owner, None, 5, live).await);
        assert_eq!(found, expected);
        assert_eq!(
            ids(world.auth.keys(Interface::Router, owner, Some(&found[0]), 5, live).await),
            expected[1..]
        );
        assert_eq!(world.auth.keys(Interface::Router, owner, None, 200, |_| true).await.len(), 200);
        assert_eq!(
            world.auth.keys(Interface::Router, owner, None, 1_000, |_| true).await.len(),
            ended.len() + 2
        );
    }
    // The list takes three steps, and other tasks have their turn after each.
    let mut turns = 0;
    {
        let mut walk = std::pin::pin!(world.auth.keys(Interface::Router, None, None, 5, |_| false));
        while futures::poll!(walk.as_mut()).is_pending() {
            turns += 1;
        }
    }
    assert_eq!(turns, 3);
    world.commit(Change::KeyForgotten(first.id.clone()));
    world.commit(Change::KeyForgotten(ended[0].id.clone()));
    let bearer = [("authorization", format!("Bearer {}", secret.expose()))];
    assert_eq!(world.who(Surface::DataPlane, &bearer, 2), "unknown");
    assert!(world.auth.key(Interface::Router, &first.id).is_none());
    assert_eq!(
        world.auth.keys(Interface::Router, None, None, 1_000, |_| true).await.len(),
        ended.len()
    );
    assert_eq!(world.auth.count_keys(Interface::Router, KeyState::Revoked, at(2)), ended.len() - 1);
}

#[tokio::test]
async fn uses_reach_the_store_in_batches() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(None);
    let store = Store::open(dir.path()).await.unwrap();
    world.auth = Auth::new(&SecretBytes::new([1; 32]), None, None, IDLE);
    world.auth.attach(&store).await.unwrap();
    let mut shown = Vec::new();
    for owner in 0..2 {
        for _ in 0..90 {
            let secret = token::mint("rtr", &world.random);
            let owner = if owner == 0 { UserId::admin() } else { UserId::tenant() };
            store
                .create_key(KeyRow { owner, ..world.row(Interface::Router, &secret) })
                .await
                .unwrap();
            shown.push(secret);
        }
    }
    for secret in &shown {
        // The tenant is no user of ROUTER, so its keys are refused. A refused key does not count as
        // used.
        world.who(Surface::DataPlane, &[bearer(secret.expose())], 7);
    }
    assert_eq!(world.auth.0.keys.unsaved_uses(), 90);
    let first = world.auth.0.keys.take_unsaved(40);
    assert_eq!((first.len(), first[0].1, world.auth.0.keys.unsaved_uses()), (40, at(7), 50));
    world.auth.0.keys.put_back_unsaved(&first);
    world.auth.sweep_uses(&store).await.unwrap();
    assert_eq!(world.auth.0.keys.unsaved_uses(), 0);
    let written = store
        .load()
        .await
        .unwrap()
        .keys
        .into_iter()
        .filter(|key| key.last_used_at == Some(at(7)))
        .count();
    assert_eq!(written, 90);
    world.who(Surface::DataPlane, &[bearer(shown[0].expose())], 6);
    assert_eq!(world.auth.0.keys.unsaved_uses(), 0, "a clock that goes back is no use");
}

#[test]
fn what_a_felled_key_is_just_making_is_dead_as_well() {
    let mut world = World::new(None);
    let (_, top) = world.key(Interface::Router);
    let secrets: Vec<Secret> = (0..3).map(|_| token::mint("rtr", &world.random)).collect();
    let child =
        KeyRow { parent: Some(top.id.clone()), ..world.row(Interface::Router, &secrets[0]) };
    world.commit(Change::Key(child.clone().into()));
    world.auth.0.keys.kill_descent(&top.id);
    // The rows of these keys arrive after the revocation.
    let late =
        KeyRow { parent: Some(child.id.clone()), ..world.row(Interface::Router, &secrets[1]) };
    let later =
        KeyRow { parent: Some(late.id.clone()), ..world.row(Interface::Router, &secrets[2]) };
    world.commit(Change::Key(late.into()));
    world.commit(Change::Key(later.into()));
    for secret in &secrets {
        assert_eq!(world.who(Surface::DataPlane, &[bearer(secret.expose())], 1), "revoked");
    }
    assert_eq!(world.auth.count_keys(Interface::Router, KeyState::Revoked, at(1)), 4);
}

/// The latest rows of agents may be applied in another order than the changes.
#[test]
fn an_agent_keeps_a_name_that_another_one_gave_up() {
    let mut world = World::new(None);
    let [one, two] = ["one", "two"].map(|name| fixtures::agent(name, &world.random));
    for agent in [&one, &two] {
        world.commit(Change::Agent(agent.clone().into()));
    }
    world.commit(Change::Agent(AgentRow { name: "one".into(), ..two.clone() }.into()));
    world.commit(Change::Agent(AgentRow { name: "three".into(), ..one.clone() }.into()));
    let named = |name: &str| world.auth.agents().named(name).map(|agent| agent.id.clone());
    let (first, second) = (Some(one.id.clone()), Some(two.id.clone()));
    assert_eq!(["one", "two", "three"].map(named), [second, None, first]);
    world.commit(Change::AgentDeleted(one.id));
    let named = |name: &str| world.auth.agents().named(name).map(|agent| agent.id.clone());
    assert_eq!(["one", "three"].map(named), [Some(two.id), None]);
}
