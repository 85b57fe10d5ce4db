//! Keys that are made once however often they are asked for, and whatever is asked for never more than their creator.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::auth::{AgentCredential, Key};
use crate::id::KeyId;
use crate::interface::Interface;

const OPEN: Principal = Principal::AgentTenant { via: AgentCredential::Open };

/// A creation under a name, from an address.
fn named(path: &str, key: &str, address: &str, body: &str) -> Request<Bytes> {
    let mut request = Request::builder().method("POST").uri(path).header("idempotency-key", key).header(CONTENT_TYPE, "application/json");
    request = request.extension(Client { address: Some(address.parse().unwrap()), proven: true, secure: false });
    request.body(Bytes::copy_from_slice(body.as_bytes())).unwrap()
}

#[tokio::test]
async fn a_creation_that_comes_again_makes_no_other_key() {
    let world = world().await;
    let (ann, bob) = (world.user("ann@example.com").await, world.user("bob@example.com").await);
    let send = async |who: &Principal, path: &str, key: &str, body: &str| {
        keys::create(&world.app, who, &named(path, key, "192.0.2.1", body)).await
    };
    let (router, pin, body) = ("/v1/router/keys", "/v1/apikeys", r#"{"name": "ci"}"#);
    let first = send(&ann, router, "one", body).await.unwrap();
    let again = send(&ann, router, "one", body).await.unwrap();
    assert_eq!((first.status(), first.headers(), first.body()), (again.status(), again.headers(), again.body()));
    assert_eq!((again.status(), &again.headers()[CACHE_CONTROL]), (StatusCode::CREATED, &HeaderValue::from_static("no-store")));
    assert!(world.bearer(Surface::DataPlane, text(&read(&again)["key"])).is_ok());
    for (path, body) in [(router, r#"{"name": "other"}"#), (router, ""), (pin, body)] {
        assert_eq!(kind(send(&ann, path, "one", body).await), (Kind::Conflict, Some("Idempotency-Key".to_owned())));
    }
    let others = [send(&bob, router, "one", body).await.unwrap(), send(&ann, router, "two", body).await.unwrap()];
    assert!(others.iter().all(|other| read(other)["id"] != read(&first)["id"]));
    assert_eq!(kind(send(&ann, router, "a b", body).await), (Kind::InvalidRequest, Some("Idempotency-Key".to_owned())));
    // What failed is no answer: it may come again.
    world.faults.fail_writes(1);
    assert_eq!(kind(send(&ann, router, "three", body).await).0, Kind::Unavailable);
    assert_eq!(kind(send(&ann, router, "four", r#"{"x": 1}"#).await).0, Kind::InvalidRequest);
    assert_eq!(send(&ann, router, "three", body).await.unwrap().status(), StatusCode::CREATED);
    assert_eq!(send(&ann, router, "four", body).await.unwrap().status(), StatusCode::CREATED);
    let listed = world.list(&ann, "").await.unwrap()["data"].as_array().unwrap().len();
    assert_eq!(listed, 4);
    // At once: one is made, and told to whoever comes late enough.
    let many = futures::future::join_all((0..8).map(|_| send(&bob, router, "many", body))).await;
    let made: Vec<_> = many.iter().filter_map(|answer| answer.as_ref().ok()).map(read).collect();
    assert!(!made.is_empty() && made.iter().all(|key| key == &made[0]));
    assert!(many.into_iter().filter_map(|answer| answer.err()).all(|error| error.kind() == Kind::Conflict));
    assert_eq!(world.list(&bob, "").await.unwrap()["data"].as_array().unwrap().len(), 2);
    world.app.clock.advance(bounds::REPEATS_AGE);
    assert_ne!(read(&send(&ann, router, "one", body).await.unwrap())["id"], read(&first)["id"]);
}

#[tokio::test]
async fn nobody_who_is_nobody_gets_the_secret_of_another() {
    let world = world().await;
    let send = async |address: &str| keys::create(&world.app, &OPEN, &named("/v1/api-keys", "one", address, "{}")).await.unwrap();
    let first = read(&send("192.0.2.1").await);
    // Whoever shares an address may be anybody.
    for address in ["192.0.2.1", "192.0.2.2"] {
        let other = read(&send(address).await);
        assert!(other["id"] != first["id"] && other["key"] != first["key"]);
    }
}

/// Who does a step, to which key; places beyond those that there are count from the beginning again.
#[derive(Clone, Debug)]
enum Step {
    Create { by: usize, body: Value },
    Patch { by: usize, of: usize, body: Value },
    Admin { of: usize, body: Value },
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2i64..200).prop_map(Value::from),
        (-1f64..200.0).prop_map(Value::from),
        proptest::sample::select(vec!["", "a", "active", "inactive", "revoked", "usr_admin", "auto", "*"]).prop_map(Value::from),
        (0i64..400).prop_map(|hours| Value::from(crate::clock::rfc3339(Timestamp::from_second(1_764_000_000 + hours * 3600).unwrap()))),
    ]
}

/// Any JSON of little depth.
fn anything() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::hash_map("[a-c]|rpm|tpm|budget|usd|per|models", inner, 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect()))
        ]
    })
}

fn limit() -> impl Strategy<Value = (String, Value)> {
    let number = || prop_oneof![4 => (1u64..12).prop_map(Value::from), 1 => scalar()];
    let name = || proptest::sample::select(vec!["a", "a/x", "a/*", "b*", "*", "auto"]);
    prop_oneof![
        ("rpm|tpm|concurrency|keys_per_user", number()),
        (1u64..9, proptest::sample::select(vec!["day", "month"]))
            .prop_map(|(usd, per)| ("budget".to_owned(), json!({"usd": usd, "per": per}))),
        proptest::collection::vec(name(), 0..4).prop_map(|names| ("models".to_owned(), json!(names))),
        ("rpm|tpm|concurrency|budget|models|rps", anything()),
    ]
}

/// A member of a body: mostly one that there is, with a value that mostly fits.
fn member() -> impl Strategy<Value = (String, Value)> {
    let limits = || proptest::collection::vec(limit(), 0..4).prop_map(|limits| Value::Object(limits.into_iter().collect()));
    let scope = || proptest::sample::select(vec!["inference", "replay", "keys", "evaluate", "config", "admin", "user", "none"]);
    let pairs = || proptest::collection::hash_map("[a-b]", "[a-b]", 0..2).prop_map(|pairs| json!(pairs));
    let record = "object|id|interface|redacted|owner|created_by|scopes|labels|limits|status|created_at|expires_at|last_used_at|revoked_at\
                  |rotated_at|previous_secret_expires_at|metadata|name|key|parent|maker|generation|made_open";
    prop_oneof![
        6 => limits().prop_map(|limits| ("limits".to_owned(), limits)),
        3 => proptest::collection::vec(scope(), 0..4).prop_map(|scopes| ("scopes".to_owned(), json!(scopes))),
        3 => (1i64..400).prop_map(|hours| {
            ("expires_at".to_owned(), json!(crate::clock::rfc3339(Timestamp::from_second(1_764_000_000 + hours * 3600).unwrap())))
        }),
        1 => pairs().prop_map(|pairs| ("labels".to_owned(), pairs)),
        1 => pairs().prop_map(|pairs| ("metadata".to_owned(), pairs)),
        1 => proptest::sample::select(vec!["active", "inactive"]).prop_map(|status| ("status".to_owned(), json!(status))),
        1 => proptest::sample::select(vec!["usr_admin", "usr_agent", "usr_00000000000000000000000000"]).prop_map(|user| ("owner".to_owned(), json!(user))),
        1 => (record, anything()),
    ]
}

fn body() -> impl Strategy<Value = Value> {
    proptest::collection::vec(member(), 0..3).prop_map(|members| Value::Object(members.into_iter().collect()))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0usize..8, body()).prop_map(|(by, body)| Step::Create { by, body }),
        3 => (0usize..8, 0usize..8, body()).prop_map(|(by, of, body)| Step::Patch { by, of, body }),
        1 => (0usize..8, body()).prop_map(|(of, body)| Step::Admin { of, body }),
    ]
}

/// How much of what was asked for was done.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    /// Keys that keys made.
    made: u32,
    /// Patches by keys that were taken, also those that changed nothing.
    taken: u32,
    /// Patches, an admin's too, that changed something.
    changed: u32,
}

/// What of a key holds it.
fn holds(key: &Key) -> Value {
    let row = key.row();
    json!([row.limits, row.labels, row.status.as_str(), row.scopes, row.owner])
}

impl World {
    fn row(&self, id: &str) -> std::sync::Arc<Key> {
        self.app.auth.key(Interface::Router, &KeyId::known(id)).unwrap()
    }

    /// Every key of the tree against the one that made it.
    fn check_tree(&self, made: &[Value], labels_by_admin: bool) {
        for key in made.iter().map(|key| self.row(text(&key["id"]))) {
            let row = key.row();
            assert_eq!((row.owner.as_str(), row.interface, &row.revoked_at), ("usr_admin", Interface::Router, &None));
            let Some(above) = row.parent.as_ref().map(|id| self.row(id.as_str())) else { continue };
            let above = above.row();
            assert!(row.scopes.iter().all(|scope| above.scopes.contains(scope)), "{:?} {:?}", row.scopes, above.scopes);
            assert!(row.limits.within(&above.limits), "{:?} {:?}", row.limits, above.limits);
            assert!(above.expires_at.is_none_or(|end| row.expires_at.is_some_and(|own| own <= end)));
            assert!(labels_by_admin || row.labels == above.labels, "{:?} {:?}", row.labels, above.labels);
        }
    }

    async fn send_patch(&self, who: &Principal, id: &str, body: &Value) -> Result<Response<Bytes>> {
        let mut request = request(&format!("/v1/router/keys/{id}"), Some(body.clone()));
        *request.method_mut() = http::Method::PATCH;
        keys::patch(&self.app, who, &request).await
    }

    async fn climb(&self, steps: &[Step]) -> Done {
        let root = json!({"scopes": ["inference", "keys", "config"], "labels": {"a": "b"}, "expires_at": "2025-12-09T00:00:00Z",
            "limits": {"rpm": 9, "budget": {"usd": 5, "per": "day"}, "models": ["a/*", "b*"]}});
        let mut made = vec![self.create(&Principal::Admin, root).await.unwrap()];
        let mut labels_by_admin = false;
        let mut done = Done::default();
        for step in steps {
            let at = |place: usize| &made[place % made.len()];
            match step {
                Step::Create { by, body } => {
                    let by = at(*by);
                    let Ok(who) = self.bearer(Surface::RouterManagement, text(&by["key"])) else { continue };
                    if let Ok(key) = self.create(&who, body.clone()).await {
                        made.push(key);
                        done.made += 1;
                    }
                }
                Step::Patch { by, of, body } => {
                    let (by, of) = (at(*by), at(*of));
                    let Ok(who) = self.bearer(Surface::RouterManagement, text(&by["key"])) else { continue };
                    let (own, id) = (self.row(text(&by["id"])), text(&of["id"]));
                    let held =
                        own.row().id.as_str() == id || self.app.auth.ancestors(own.row()).iter().any(|above| above.id.as_str() == id);
                    let (before, generation) = (holds(&self.row(id)), self.row(id).row().generation);
                    let refused_or_not = self.send_patch(&who, id, body).await;
                    done.taken += u32::from(refused_or_not.is_ok());
                    done.changed += u32::from(self.row(id).row().generation != generation);
                    assert!(!held || holds(&self.row(id)) == before, "no key changes what holds it: {body}");
                }
                Step::Admin { of, body } => {
                    let id = text(&at(*of)["id"]);
                    let generation = self.row(id).row().generation;
                    let patched = self.send_patch(&Principal::Admin, id, body).await;
                    done.changed += u32::from(self.row(id).row().generation != generation);
                    labels_by_admin |= patched.is_ok() && body.get("labels").is_some();
                }
            }
            self.check_tree(&made, labels_by_admin);
        }
        let root = KeyId::known(text(&made[0]["id"]));
        self.app.auth.revoke_descent(&self.app.store, &root, self.app.clock.now()).await.unwrap();
        assert!(made.iter().all(|key| self.bearer(Surface::DataPlane, text(&key["key"])).is_err()));
        done
    }
}

#[test]
fn whatever_is_asked_for_no_key_has_more_than_the_one_that_made_it() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let world = runtime.block_on(world());
    let cases = Config::default().cases.div_ceil(8);
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let sum = Cell::new(Done::default());
    runner
        .run(&proptest::collection::vec(step(), 1..24), |steps| {
            let (done, all) = (runtime.block_on(world.climb(&steps)), sum.get());
            sum.set(Done { made: all.made + done.made, taken: all.taken + done.taken, changed: all.changed + done.changed });
            Ok(())
        })
        .unwrap();
    // Much less than there is by chance: where next to nothing is taken, nothing is shown either.
    let sum = sum.get();
    assert!(sum.made >= cases / 4 && sum.taken >= cases / 4 && sum.changed >= cases / 16, "{sum:?} in {cases} cases");
}
