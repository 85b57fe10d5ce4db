//! Random calls by keys, by members, by an admin who may lose the role, and by `ADMIN_API_KEY`: no
//! key ever has a scope, label, limit, expiry or owner beyond what its creator may grant. On PIN
//! and on ROUTER; AGENT is in [`super::privilege_escalation_agent`].

mod steps;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

pub(super) use self::steps::body;
use self::steps::{Caller, Coverage, KeyAction, step};
use super::handlers::users;
use super::*;
use rerouter_access::auth::{Credential, Key, RESERVED_SCOPES};
use rerouter_base::clock::rfc3339;
use rerouter_base::id::KeyId;
use rerouter_base::interface::Interface;
use rerouter_store::{KeyRow, Limits};

/// Two members, and one user who is an admin at the start.
const USERS: [&str; 3] = ["ann@example.com", "carl@example.com", "bob@example.com"];
/// The index of the admin in [`USERS`].
const BOB: usize = 2;

/// The keys of an interface.
#[derive(Clone, Copy)]
pub(super) struct KeySpace {
    pub(super) interface: Interface,
    pub(super) path: &'static str,
    pub(super) surface: Surface,
    /// Existing scopes, and one that does not exist.
    pub(super) scopes: &'static [&'static str],
    /// The names of numeric limits, as a pattern.
    pub(super) numbers: &'static str,
    /// The number of keys that each case starts with and that have a scope only an admin grants.
    reserved: u32,
}

const ROUTER: KeySpace = KeySpace {
    interface: Interface::Router,
    path: "/v1/router/keys",
    surface: Surface::RouterManagement,
    scopes: &[
        "inference",
        "replay",
        "keys",
        "keys",
        "replay:all",
        "evaluate",
        "config",
        "admin",
        "user",
        "none",
    ],
    numbers: "rpm|tpm|concurrency|keys_per_user",
    reserved: 3,
};
const PIN: KeySpace = KeySpace {
    interface: Interface::Pin,
    path: "/v1/apikeys",
    surface: Surface::Pin,
    scopes: &["user", "user", "admin", "inference"],
    numbers: "keys_per_user",
    reserved: 1,
};
pub(super) const AGENT: KeySpace = KeySpace {
    interface: Interface::Agent,
    path: "/v1/api-keys",
    surface: Surface::Agent,
    scopes: &["agents", "keys", "keys", "inference"],
    numbers: "keys_per_user",
    reserved: 0,
};

/// What the test knows about a key.
struct KnownKey {
    id: String,
    secret: String,
    scopes: Vec<String>,
    owner: UserId,
    /// The user who made the key.
    granter: UserId,
    by_admin: bool,
}

/// The state of one test case.
struct EscalationCase<'a> {
    world: &'a TestApi,
    on: KeySpace,
    tokens: &'a [String; 3],
    made: Vec<KnownKey>,
    /// Keys whose labels an admin set, at their creation or later.
    labelled: BTreeSet<String>,
    done: Coverage,
}

impl TestApi {
    pub(super) fn row_on(&self, on: KeySpace, id: &str) -> Arc<Key> {
        self.app.auth.key(on.interface, &KeyId::known(id)).unwrap()
    }

    fn has_admin(&self, id: &UserId) -> bool {
        self.app
            .auth
            .user(id)
            .is_some_and(|user| user.role == rerouter_store::Role::Admin && !user.disabled)
    }

    pub(super) async fn set_role(&self, id: &UserId, role: &str) {
        let mut request = request(&format!("/v1/users/{id}"), Some(json!({"role": role})));
        request.extensions_mut().insert(PathParams(vec![id.to_string()]));
        users::update(&self.app, &Principal::Admin, &request).await.unwrap();
    }
}

/// Whether `outer` allows everything that `inner` allows. Computed independently of the code under
/// test: by numbers, by the budget of a day and a month, and by model names.
pub(super) fn narrower(inner: &Limits, outer: &Limits) -> bool {
    let spent = |limits: &Limits| {
        let written = serde_json::to_value(limits).unwrap()["budget"].clone();
        let usd = written["usd"].as_f64().unwrap_or(f64::INFINITY);
        (usd, if written["per"] == "day" { usd * 31.0 } else { usd })
    };
    let numbers = |limits: &Limits| {
        let of = |limit: Option<u64>| limit.map_or(f64::INFINITY, |limit| limit as f64);
        let (day, month) = spent(limits);
        [
            of(limits.rpm),
            of(limits.tpm),
            of(limits.concurrency),
            of(limits.keys_per_user),
            day,
            month,
        ]
    };
    let names = ["a", "a/", "a/x", "a/x/y", "ab", "b", "bc", "auto", "c", ""];
    let allowed =
        names.into_iter().all(|name| outer.allows_model(name) || !inner.allows_model(name));
    allowed
        && numbers(inner)
            .into_iter()
            .zip(numbers(outer))
            .all(|(inner, outer)| inner <= outer + 1e-9)
}

/// The fields of a key that decide what it may do.
pub(super) fn holds(key: &Key) -> Value {
    let row = key.row();
    json!([row.limits, row.labels, row.status.as_str(), row.scopes, row.owner])
}

/// Whether a caller with the key `own` may do everything that the key in `row` may do.
fn has_as_much(who: &Principal, own: &KeyRow, row: &KeyRow) -> bool {
    row.scopes.iter().all(|scope| who.has_scope(scope))
        && narrower(&row.limits, &own.limits)
        && own.expires_at.is_none_or(|end| row.expires_at.is_some_and(|other| other <= end))
        && (who.is_admin() || row.labels == own.labels)
}

fn may_end(who: &Principal, row: &KeyRow) -> bool {
    let other = who.key().filter(|own| own.id != row.id);
    who.is_admin() || other.is_none_or(|own| has_as_much(who, own, row))
}

impl EscalationCase<'_> {
    fn row(&self, id: &str) -> Arc<Key> {
        self.world.row_on(self.on, id)
    }

    /// The principal that makes a step about the key at index `of`.
    fn who(&self, by: Caller, of: usize) -> Option<Principal> {
        match by {
            Caller::Maker => {
                let above = self.row(&self.made[of].id).row().parent.clone();
                let maker = self
                    .made
                    .iter()
                    .find(|key| above.as_ref().is_some_and(|above| above.as_str() == key.id));
                self.world.bearer(self.on.surface, &maker.unwrap_or(&self.made[0]).secret).ok()
            }
            Caller::Operator => Some(Principal::Admin),
            Caller::Session(user) => self.world.bearer(self.on.surface, &self.tokens[user]).ok(),
            Caller::Key(place) => {
                self.world.bearer(self.on.surface, &self.made[place % self.made.len()].secret).ok()
            }
        }
    }

    fn user(&self, place: usize) -> UserId {
        self.world.router(&self.tokens[place]).user_id().unwrap()
    }

    async fn create(&mut self, by: Caller, mut body: Value) {
        let Some(who) = self.who(by, 0) else { return };
        let named = body["owner"]
            .as_str()
            .and_then(|owner| owner.strip_prefix('@'))
            .map(|place| self.user(place.parse().unwrap()));
        if let Some(user) = named {
            body["owner"] = json!(user);
        }
        let Ok(key) =
            keys::create(&self.world.app, &who, &request(self.on.path, Some(body.clone()))).await
        else {
            return;
        };
        let key = read(&key);
        let row = self.row(text(&key["id"])).row().clone();
        let granter = who.user_id().unwrap();
        assert_eq!(row.parent, who.key().map(|own| own.id.clone()));
        assert!(row.owner == granter || who.is_admin(), "{body} by {by:?}");
        assert!(row.owner != UserId::admin() || granter == UserId::admin(), "{body} by {by:?}");
        let reserved = row.scopes.iter().any(|scope| RESERVED_SCOPES.contains(&scope.as_str()));
        self.done.made += u32::from(who.key().is_some());
        self.done.reserved += u32::from(reserved);
        if who.is_admin() && body.get("labels").is_some() {
            self.labelled.insert(row.id.to_string());
        }
        self.made.push(KnownKey {
            id: row.id.to_string(),
            secret: text(&key["key"]).to_owned(),
            scopes: row.scopes.to_vec(),
            owner: row.owner.clone(),
            granter,
            by_admin: who.is_admin(),
        });
    }

    async fn patch(&mut self, by: Caller, of: usize, body: &Value) {
        let place = of % self.made.len();
        let id = self.made[place].id.clone();
        let Some(who) = self.who(by, place) else { return };
        let before = self.row(&id);
        let mut asked = super::identity::of(self.on.path, &id, Some(body.clone()));
        *asked.method_mut() = http::Method::PATCH;
        let answer = keys::patch(&self.world.app, &who, &asked).await;
        let after = self.row(&id);
        let (old, new) = (before.row(), after.row());
        assert!(answer.is_err() || self.reaches(&who, &id), "{body} by {by:?}: out of its line");
        let ended = old.status != new.status && new.status == rerouter_store::KeyStatus::Inactive
            || old.expires_at != new.expires_at;
        assert!(!ended || may_end(&who, old), "{body} by {by:?}: ends one that may do more");
        self.done.changed += u32::from(new.generation != old.generation);
        let held = who
            .key()
            .is_some_and(|own| own.id == old.id || self.above(own.id.as_str()).contains(&id));
        assert!(
            !held || holds(&before) == holds(&after),
            "no key changes what holds it: {body} by {by:?}"
        );
        assert!(
            old.expires_at.is_none_or(|end| new.expires_at.is_some_and(|now| now <= end)),
            "{body}"
        );
        if who.is_admin() {
            if answer.is_ok() && body.get("labels").is_some() {
                self.labelled.insert(id);
            }
            return;
        }
        assert!(
            old.parent.is_some() || narrower(&new.limits, &old.limits),
            "{body} by {by:?} of what no key made"
        );
        if Some(&old.owner) != who.user_id().as_ref() {
            assert!(
                answer.is_err() && new.generation == old.generation,
                "{body} by {by:?} of somebody else's"
            );
        }
    }

    async fn rotate(&mut self, by: Caller, of: usize) {
        let place = of % self.made.len();
        let id = self.made[place].id.clone();
        let Some(who) = self.who(by, place) else { return };
        let before = self.row(&id).row().clone();
        let asked = keys::rotate(
            &self.world.app,
            &who,
            &super::identity::of(self.on.path, &id, Some(json!({}))),
        )
        .await;
        let row = self.row(&id).row().clone();
        let Ok(answer) = asked else { return assert_eq!(row.digest, before.digest) };
        assert!(self.reaches(&who, &id), "by {by:?}: out of its line");
        assert_eq!(
            (&row.limits, &row.labels, &row.scopes, row.expires_at),
            (&before.limits, &before.labels, &before.scopes, before.expires_at)
        );
        self.made[place].secret = text(&read(&answer)["key"]).to_owned();
        let user = who.user_id().unwrap();
        assert!(row.owner == user || who.is_admin(), "somebody else's by {by:?}");
        assert!(
            row.owner != UserId::admin() || user == UserId::admin(),
            "the operator's by {by:?}"
        );
        let reserved = row.scopes.iter().any(|scope| RESERVED_SCOPES.contains(&scope.as_str()));
        let may = user == UserId::admin() || row.owner == user || self.made[place].granter == user;
        assert!(
            !reserved || may,
            "whoever is an admin no more would have what another one granted"
        );
        if let Some(own) = who.key().filter(|own| own.id.as_str() != id) {
            self.done.rotated += 1;
            assert!(has_as_much(&who, own, &row), "{row:?} by {own:?}");
        }
    }

    async fn revoke(&mut self, by: Caller, of: usize) {
        let place = of % self.made.len();
        let id = self.made[place].id.clone();
        let Some(who) = self.who(by, place) else { return };
        let before = self.row(&id).row().clone();
        let asked = super::identity::of(self.on.path, &id, None);
        let ended = keys::revoke(&self.world.app, &who, &asked).await.is_ok();
        if ended {
            self.done.ended += u32::from(who.key().is_some_and(|own| own.id != before.id));
            assert!(self.reaches(&who, &id), "by {by:?}: out of its line");
            assert!(may_end(&who, &before), "{before:?} by {by:?}: it may do more");
        }
        let dead =
            self.row(&id).state(self.world.app.clock.now()) == rerouter_store::KeyState::Revoked;
        assert!(dead == (ended || before.revoked_at.is_some()), "by {by:?}");
    }

    /// Whether a caller reaches a key. A ROUTER key reaches itself and its descendants, unless it
    /// has wider rights.
    fn reaches(&self, who: &Principal, id: &str) -> bool {
        let own = who.key().filter(|own| own.interface == Interface::Router);
        let line = own.filter(|_| !who.is_admin() && !who.has_scope("replay:all"));
        line.is_none_or(|own| {
            let own = own.id.to_string();
            own == id || self.above(id).contains(&own)
        })
    }

    /// The ancestors of a key, without the key itself.
    fn above(&self, id: &str) -> Vec<String> {
        self.world
            .app
            .auth
            .ancestors(self.row(id).row())
            .iter()
            .map(|above| above.id.to_string())
            .collect()
    }

    /// Compares every key with its creator, and with the record of its creation.
    fn check(&mut self) {
        for key in &self.made {
            let row = self.row(&key.id).row().clone();
            assert_eq!(
                (&row.owner, &*row.scopes, row.interface),
                (&key.owner, &key.scopes, self.on.interface)
            );
            assert!(
                key.by_admin
                    || !row.scopes.iter().any(|scope| RESERVED_SCOPES.contains(&scope.as_str())),
                "{:?}",
                row.scopes
            );
            let above = row.parent.as_ref().map(|id| self.row(id.as_str()).row().clone());
            let named = self.labelled.contains(&key.id)
                || self.above(&key.id).iter().any(|id| self.labelled.contains(id));
            let inherited = above.as_ref().map(|above| above.labels.clone()).unwrap_or_default();
            assert!(named || row.labels == inherited, "{:?} of {inherited:?}", row.labels);
            if let Some(above) = above {
                let gives = |scope: &String| {
                    let all = above.scopes.iter().any(|own| own == "replay:all");
                    above.scopes.contains(scope) || scope == "replay" && all
                };
                assert!(
                    row.scopes.iter().all(gives) || key.by_admin,
                    "{:?} {:?}",
                    row.scopes,
                    above.scopes
                );
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
            let Ok(who) = self.world.bearer(self.on.surface, &key.secret) else { continue };
            assert!(!who.is_admin() || self.world.has_admin(&key.owner));
            if !self.world.has_admin(&key.granter) {
                self.done.lapsed += u32::from(
                    key.scopes.iter().any(|scope| RESERVED_SCOPES.contains(&scope.as_str())),
                );
                assert!(
                    RESERVED_SCOPES.iter().all(|scope| !who.has_scope(scope)),
                    "granted by one who is no admin: {:?}",
                    key.scopes
                );
            }
        }
    }

    async fn end(self) -> Coverage {
        for key in &self.made {
            self.world
                .app
                .auth
                .revoke_descent(
                    &self.world.app.store,
                    &KeyId::known(&key.id),
                    self.world.app.clock.now(),
                )
                .await
                .unwrap();
        }
        assert!(
            self.made.iter().all(|key| self.world.bearer(self.on.surface, &key.secret).is_err())
        );
        self.done
    }
}

impl EscalationCase<'_> {
    /// Creates the first keys: one of the operator's and one of the admin's for other owners, one
    /// with all the admin's rights, and a member's.
    async fn begin(&mut self) {
        let end = "2025-12-09T00:00:00Z";
        let (wide, given, whole, usual, small, member) = match self.on.interface {
            Interface::Pin => (
                vec!["user"],
                vec!["user"],
                vec!["user", "admin"],
                vec!["user"],
                json!({"keys_per_user": 80}),
                json!({"keys_per_user": 90}),
            ),
            _ => (
                vec!["inference", "keys", "config"],
                vec!["inference", "keys", "evaluate", "replay:all"],
                vec!["inference", "keys", "config", "admin"],
                vec!["inference", "replay", "keys"],
                json!({"rpm": 9, "budget": {"usd": 5, "per": "day"}}),
                json!({"rpm": 20, "budget": {"usd": 70, "per": "month"}}),
            ),
        };
        let mut limits = small;
        limits["models"] = json!(["a/*", "b*"]);
        self.create(
            Caller::Operator,
            json!({"scopes": wide, "labels": {"a": "b"}, "expires_at": end, "limits": limits}),
        )
        .await;
        let labels = json!({"capture": "heads"});
        self.create(
            Caller::Session(BOB),
            json!({"owner": "@0", "scopes": given, "labels": labels, "limits": limits}),
        )
        .await;
        self.create(Caller::Session(BOB), json!({ "scopes": whole })).await;
        self.create(Caller::Session(0), json!({ "scopes": usual, "limits": member })).await;
        assert_eq!((self.made.len(), self.done.reserved), (4, self.on.reserved));
    }
}

async fn run_case(
    world: &TestApi,
    on: KeySpace,
    tokens: &[String; 3],
    steps: &[KeyAction],
) -> Coverage {
    let mut case = EscalationCase {
        world,
        on,
        tokens,
        made: Vec::new(),
        labelled: BTreeSet::new(),
        done: Coverage::default(),
    };
    let bob = case.user(BOB);
    world.set_role(&bob, "admin").await;
    case.begin().await;
    for step in steps {
        match step {
            KeyAction::Create { by, body } => case.create(*by, body.clone()).await,
            KeyAction::Patch { by, of, body } => case.patch(*by, *of, body).await,
            KeyAction::Rotate { by, of } => case.rotate(*by, *of).await,
            KeyAction::Revoke { by, of } => case.revoke(*by, *of).await,
            KeyAction::Role(admin) => {
                world.set_role(&bob, if *admin { "admin" } else { "user" }).await
            }
        }
        case.check();
    }
    case.end().await
}

fn run_many(on: KeySpace) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let world = runtime.block_on(world_with("session: { idle: 12h }"));
    let mut tokens = BTreeMap::new();
    for email in USERS {
        runtime.block_on(world.user(email));
        let body = json!({"email": email, "password": "correct horse"});
        let answer = runtime
            .block_on(pin::login(
                &world.app,
                &Principal::Anonymous,
                &request("/v1/auth/login", Some(body)),
            ))
            .unwrap();
        tokens.insert(email, text(&read(&answer)["token"]).to_owned());
    }
    let tokens = USERS.map(|email| tokens[email].clone());
    assert!(tokens.iter().all(|token| matches!(
        world.router(token),
        Principal::User { via: Credential::Session(_), .. }
    )));
    let cases = Config::default().cases.div_ceil(4);
    let mut runner =
        TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let sum = Cell::new(Coverage::default());
    runner
        .run(&proptest::collection::vec(step(on), 1..32), |steps| {
            let done = runtime.block_on(run_case(&world, on, &tokens, &steps));
            sum.set(sum.get().and(done));
            Ok(())
        })
        .unwrap();
    // Far below the average counts. If every call were refused, the test would prove nothing.
    let sum = sum.get();
    let enough =
        [sum.made, sum.changed, sum.rotated, sum.ended, sum.lapsed].iter().all(|count| *count > 0);
    assert!(enough && sum.reserved >= on.reserved * cases, "{sum:?} in {cases} cases");
}

#[test]
fn whatever_is_asked_for_no_key_has_more_than_the_one_that_made_it() {
    run_many(ROUTER);
}

#[test]
fn nor_has_a_pin_key() {
    run_many(PIN);
}
