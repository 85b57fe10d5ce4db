//! The endpoints as plain calls, on a real store.

mod audit_of_documents;
mod creation;
mod grants;
mod identity;
mod patch;
mod presets;
mod privilege_escalation;
mod privilege_escalation_agent;
mod users;
mod waiting;
mod watching;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, LOCATION, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use serde_json::{Value, json};

use super::{ClientOrigin, PathParams, ProgressStep, agents, audit, evaluate, keys, pin};
use crate::app::{App, AppParts};
use crate::archive::Archive;
use crate::auth::{Auth, Principal};
use crate::bounds;
use crate::capture::queue::CaptureQueue;
use crate::clock::Clock;
use crate::clock::tests::at;
use crate::config;
use crate::error::{Kind, Result};
use crate::id::{Random, RequestId, UserId};
use crate::interface::Surface;
use crate::log::AccessLog;
use crate::metrics::Metrics;
use crate::nodes::Nodes;
use crate::secret::{Secret, SecretBytes};
use crate::store::{Action, Faults, Store};
use crate::telemetry::Telemetry;

struct TestApi {
    app: App,
    faults: Faults,
    _dir: tempfile::TempDir,
}

async fn world() -> TestApi {
    world_with("").await
}

/// With this server document.
async fn world_with(server: &str) -> TestApi {
    let dir = tempfile::tempdir().unwrap();
    let faults = Faults::default();
    let store = Store::open(dir.path()).await.unwrap().with_faults(faults.clone());
    let auth = Auth::new(
        &SecretBytes::new([1; 32]),
        Some(Secret::new("operator")),
        None,
        Duration::from_secs(1800),
    );
    let nodes = Nodes::new(&SecretBytes::new([1; 32]));
    let following = nodes.clone();
    nodes.load(
        auth.attach_with(&store, Box::new(move |committed| following.apply(committed)))
            .await
            .unwrap(),
    );
    let random = Random::seeded(11);
    let server = config::read_server("test", server, &|_| None).unwrap();
    let routing =
        config::read_routing("demo", config::demo_routing(), &server, &|_| None, None).unwrap();
    let metrics = Arc::new(Metrics::new().unwrap());
    let (captures, _) = CaptureQueue::new(metrics.clone());
    let app = App::new(AppParts {
        archive: Archive::new(store.clone(), &SecretBytes::new([1; 32]), random.clone(), true),
        server,
        store,
        auth,
        nodes,
        access_log: AccessLog::off(),
        telemetry: Telemetry::off(),
        metrics,
        clock: Clock::manual(at(0)),
        random,
        routing,
        captures,
        mock: None,
        variables: Arc::new(|_| None),
    });
    TestApi { app, faults, _dir: dir }
}

fn request(uri: &str, body: Option<Value>) -> Request<Bytes> {
    let mut request = Request::builder().uri(uri);
    if body.is_some() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    request = request.extension(ClientOrigin {
        address: Some("192.0.2.1".parse().unwrap()),
        proven: true,
        secure: false,
    });
    if let Some(id) = uri.strip_prefix("/v1/router/keys/") {
        request = request.extension(PathParams(vec![id.split('?').next().unwrap().to_owned()]));
    }
    request.body(body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()))).unwrap()
}

fn read(response: &Response<Bytes>) -> Value {
    serde_json::from_slice(response.body()).unwrap()
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> (Kind, Option<String>) {
    let error = result.unwrap_err();
    (error.kind(), error.field().map(str::to_owned))
}

impl TestApi {
    fn bearer(&self, surface: Surface, secret: &str) -> Result<Principal, &'static str> {
        let headers = HeaderMap::from_iter([(
            AUTHORIZATION,
            HeaderValue::from_str(&format!("Bearer {secret}")).unwrap(),
        )]);
        self.app
            .auth
            .identify(&headers, surface, false, self.app.clock.now())
            .map_err(|refused| refused.reason)
    }

    fn router(&self, secret: &str) -> Principal {
        self.bearer(Surface::RouterManagement, secret).unwrap()
    }

    /// Registers and logs in; the session token.
    async fn user(&self, email: &str) -> Principal {
        let body = json!({"email": email, "password": "correct horse"});
        pin::register(
            &self.app,
            &Principal::Anonymous,
            &request("/v1/auth/register", Some(body.clone())),
        )
        .await
        .unwrap();
        let answer =
            pin::login(&self.app, &Principal::Anonymous, &request("/v1/auth/login", Some(body)))
                .await
                .unwrap();
        self.router(read(&answer)["token"].as_str().unwrap())
    }

    async fn create(&self, who: &Principal, body: Value) -> Result<Value> {
        keys::create(&self.app, who, &request("/v1/router/keys", Some(body)))
            .await
            .map(|answer| read(&answer))
    }

    async fn list(&self, who: &Principal, query: &str) -> Result<Value> {
        keys::list(&self.app, who, &request(&format!("/v1/router/keys{query}"), None))
            .await
            .map(|answer| read(&answer))
    }

    /// The record as every answer has it: without what is left of the limits.
    async fn get(&self, who: &Principal, id: &str) -> Result<Value> {
        let answer =
            keys::get(&self.app, who, &request(&format!("/v1/router/keys/{id}"), None)).await?;
        let mut record = read(&answer);
        record.as_object_mut().unwrap().remove("usage").unwrap();
        Ok(record)
    }

    async fn revoke(&self, who: &Principal, id: &str) -> Result<StatusCode> {
        keys::revoke(&self.app, who, &request(&format!("/v1/router/keys/{id}"), None))
            .await
            .map(|answer| answer.status())
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[tokio::test]
async fn one_registers_logs_in_and_asks_who_one_is() {
    let mut world = world().await;
    let send = |body: Value| request("/v1/auth/register", Some(body));
    let nobody = Principal::Anonymous;
    let good = json!({"email": "Ann@Example.com", "password": "correct horse", "name": "Ann"});
    let answer = pin::register(&world.app, &nobody, &send(good.clone())).await.unwrap();
    assert_eq!(answer.status(), StatusCode::CREATED);
    let user = read(&answer)["user"].clone();
    assert_eq!((&user["email"], &user["role"]), (&json!("ann@example.com"), &json!("user")));
    assert_eq!(user.as_object().unwrap().len(), 5);

    assert_eq!(
        kind(pin::register(&world.app, &nobody, &send(good.clone())).await),
        (Kind::Conflict, None)
    );
    for (field, value) in [
        ("email", json!("ann")),
        ("email", json!("a@b@c")),
        ("password", json!("short")),
        ("role", json!("admin")),
        ("name", json!("")),
    ] {
        let mut body = json!({"email": "bob@example.com", "password": "correct horse"});
        body[field] = value;
        assert_eq!(
            kind(pin::register(&world.app, &nobody, &send(body)).await),
            (Kind::InvalidRequest, Some(field.to_owned()))
        );
    }
    let log_in = json!({"email": "ann@example.com", "password": "correct horse"});
    let answer =
        pin::login(&world.app, &nobody, &request("/v1/auth/login", Some(log_in))).await.unwrap();
    assert_eq!(answer.headers()[CACHE_CONTROL], "no-store");
    let body = read(&answer);
    assert_eq!(
        (&body["user"], &body["token_type"], &body["expires_at"]),
        (&user, &json!("Bearer"), &json!("2025-11-25T04:00:00.000000Z"))
    );
    let set = answer.headers()[SET_COOKIE].to_str().unwrap();
    assert!(
        set.starts_with("rerouter_session=ses_") && !set.contains(text(&body["token"])),
        "{set}"
    );
    let cookie = HeaderMap::from_iter([(
        http::header::COOKIE,
        HeaderValue::from_str(set.split(';').next().unwrap()).unwrap(),
    )]);
    let who = world.app.auth.identify(&cookie, Surface::Pin, false, world.app.clock.now()).unwrap();
    let me = read(&pin::me(&world.app, &who, &request("/v1/auth/me", None)).await.unwrap());
    assert_eq!((&me["id"], &me["auth"]), (&user["id"], &json!({"type": "session"})));
    let me =
        read(&pin::me(&world.app, &Principal::Admin, &request("/v1/auth/me", None)).await.unwrap());
    assert_eq!(
        (&me["id"], &me["email"], &me["name"], &me["role"]),
        (&json!("usr_admin"), &Value::Null, &json!("admin"), &json!("admin"))
    );
    world.app.server.registration_open = false;
    assert_eq!(
        kind(pin::register(&world.app, &nobody, &send(json!({}))).await).0,
        Kind::RegistrationClosed
    );
}

#[tokio::test]
async fn a_failed_login_says_nothing_and_is_throttled() {
    let world = world().await;
    world.user("ann@example.com").await;
    let attempt = async |email: &str, password: &str| {
        let body = json!({"email": email, "password": password});
        pin::login(&world.app, &Principal::Anonymous, &request("/v1/auth/login", Some(body))).await
    };
    let (unknown, wrong) = (
        attempt("bob@example.com", "correct horse").await.unwrap_err(),
        attempt("ann@example.com", "wrong").await.unwrap_err(),
    );
    assert_eq!((unknown.kind(), unknown.detail()), (Kind::Unauthorized, wrong.detail()));
    assert_eq!((wrong.kind(), wrong.field()), (Kind::Unauthorized, None));
    for _ in 0..8 {
        attempt("ann@example.com", "correct horse").await.unwrap();
    }
    let error = attempt("ann@example.com", "correct horse").await.unwrap_err();
    assert_eq!((error.kind(), error.retry_after_s()), (Kind::RateLimited, Some(15 * 60)));
    world.app.clock.advance(Duration::from_secs(15 * 60));
    attempt("ann@example.com", "correct horse").await.unwrap();
}

#[tokio::test]
async fn a_key_lives_from_creation_to_revocation() {
    let world = world().await;
    let ann = world.user("ann@example.com").await;
    let answer = keys::create(&world.app, &ann, &request("/v1/router/keys", None)).await.unwrap();
    assert_eq!(
        (answer.status(), &answer.headers()[CACHE_CONTROL]),
        (StatusCode::CREATED, &HeaderValue::from_static("no-store"))
    );
    let mut made = read(&answer);
    assert_eq!(answer.headers()[LOCATION], format!("/v1/router/keys/{}", text(&made["id"])));
    let secret = made.as_object_mut().unwrap().remove("key").unwrap();
    assert_eq!(world.get(&ann, text(&made["id"])).await.unwrap(), made);
    let expected = json!({
        "object": "api_key", "id": made["id"], "interface": "router", "name": "key",
        "redacted": made["redacted"],
        "owner": ann.user_id(), "created_by": ann.actor(),
        "scopes": ["inference", "replay", "keys"], "labels": {}, "limits": {},
        "status": "active", "created_at": "2025-11-24T16:00:00.000000Z", "expires_at": null,
        "last_used_at": null, "revoked_at": null,
        "rotated_at": null, "previous_secret_expires_at": null, "metadata": {},
    });
    assert_eq!(made, expected);
    let by_key = world.router(text(&secret));
    let me = read(&pin::me(&world.app, &by_key, &request("/v1/auth/me", None)).await.unwrap());
    assert_eq!(me["auth"], json!({"type": "api_key", "key_id": made["id"]}));
    assert!(world.bearer(Surface::Pin, text(&secret)).is_err());

    // A key may end itself; again is the same answer; it is no longer listed but still there.
    assert_eq!(world.revoke(&by_key, text(&made["id"])).await.unwrap(), StatusCode::NO_CONTENT);
    assert_eq!(world.bearer(Surface::DataPlane, text(&secret)).unwrap_err(), "revoked");
    assert_eq!(world.revoke(&ann, text(&made["id"])).await.unwrap(), StatusCode::NO_CONTENT);
    assert_eq!(world.list(&ann, "").await.unwrap()["data"], json!([]));
    let revoked = &world.list(&ann, "?status=revoked").await.unwrap()["data"][0];
    assert_eq!(
        (&revoked["id"], &revoked["revoked_at"]),
        (&made["id"], &json!("2025-11-24T16:00:00.000000Z"))
    );
}

#[tokio::test]
async fn keys_of_others_are_not_there() {
    let world = world().await;
    let (ann, bob) = (world.user("ann@example.com").await, world.user("bob@example.com").await);
    let key = world.create(&ann, json!({})).await.unwrap();
    let id = text(&key["id"]);
    let missing = world.get(&bob, "key_00000000000000000000000000").await.unwrap_err();
    assert_eq!(world.get(&bob, id).await.unwrap_err().to_string(), missing.to_string());
    assert_eq!(kind(world.revoke(&bob, id).await).0, Kind::NotFound);
    assert_eq!(kind(world.get(&bob, "nonsense").await).0, Kind::NotFound);
    assert!(world.bearer(Surface::DataPlane, text(&key["key"])).is_ok());
    assert_eq!(world.list(&bob, "").await.unwrap()["data"], json!([]));
    let owner = ann.user_id().unwrap();
    assert_eq!(kind(world.list(&bob, &format!("?owner={owner}")).await).0, Kind::Forbidden);
    assert_eq!(
        world.list(&Principal::Admin, &format!("?owner={owner}")).await.unwrap()["data"][0]["id"],
        key["id"]
    );
    assert_eq!(world.revoke(&Principal::Admin, id).await.unwrap(), StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn a_list_goes_by_pages_from_the_newest() {
    let world = world().await;
    let ann = world.user("ann@example.com").await;
    let mut made = vec![];
    for _ in 0..5 {
        world.app.clock.advance(Duration::from_millis(2));
        made.insert(0, world.create(&ann, json!({})).await.unwrap()["id"].clone());
    }
    let (mut seen, mut query) = (vec![], "?limit=2".to_owned());
    loop {
        let page = world.list(&ann, &query).await.unwrap();
        seen.extend(page["data"].as_array().unwrap().iter().map(|key| key["id"].clone()));
        assert_eq!(page["has_more"], json!(!page["next"].is_null()));
        let Some(next) = page["next"].as_str() else { break };
        query = format!("?limit=2&after={next}");
    }
    assert_eq!(seen, made);
    for (query, field) in [
        ("?limit=0", "limit"),
        ("?after=x", "after"),
        ("?status=odd", "status"),
        ("?page=2", "page"),
    ] {
        assert_eq!(
            kind(world.list(&ann, query).await),
            (Kind::InvalidRequest, Some(field.to_owned()))
        );
    }
    let answer = agents::list(&world.app, &Principal::Anonymous, &request("/v1/agents", None))
        .await
        .unwrap();
    assert_eq!(
        read(&answer),
        json!({"object": "list", "data": [], "has_more": false, "next": null})
    );
}

#[tokio::test]
async fn no_key_grants_more_than_its_maker_has() {
    let world = world().await;
    let ann = world.user("ann@example.com").await;
    let parent = json!({
        "scopes": ["keys", "inference"], "limits": {"models": ["auto", "openai/*"]},
        "expires_at": "2025-11-25T00:00:00Z"
    });
    let parent = world.create(&ann, parent).await.unwrap();
    let by_key = world.router(text(&parent["key"]));
    let child = world.create(&by_key, json!({})).await.unwrap();
    assert_eq!(child["scopes"], json!(["inference", "keys"]));
    assert_eq!(
        (&child["limits"], &child["expires_at"]),
        (&parent["limits"], &parent["expires_at"])
    );
    assert_eq!(child["created_by"], json!({"type": "api_key", "id": parent["id"]}));
    let narrow = json!({
        "scopes": ["inference"], "limits": {"models": ["openai/gpt-5"]},
        "expires_at": "2025-11-24T20:00:00Z"
    });
    let narrow = world.create(&by_key, narrow).await.unwrap();

    for (body, field) in [
        (json!({"scopes": ["replay"]}), "scopes"),
        (json!({"scopes": ["admin"]}), "scopes"),
        (json!({"limits": {"models": ["*"]}}), "limits.models"),
        (json!({"expires_at": "2025-11-25T00:00:01Z"}), "expires_at"),
        (json!({"owner": "usr_admin"}), "owner"),
        (json!({"labels": {"tier": "gold"}}), "labels"),
    ] {
        assert_eq!(
            kind(world.create(&by_key, body).await),
            (Kind::Forbidden, Some(field.to_owned()))
        );
    }
    assert_eq!(kind(world.create(&ann, json!({"scopes": ["config"]})).await).0, Kind::Forbidden);
    let asked =
        keys::create(&world.app, &ann, &request("/v1/router/keys?dry_run=true", Some(json!({}))))
            .await;
    assert_eq!(kind(asked), (Kind::InvalidRequest, Some("dry_run".to_owned())));
    let without = world.router(text(&narrow["key"]));
    assert_eq!(kind(world.create(&without, json!({})).await).0, Kind::InsufficientScope);
    assert_eq!(kind(world.list(&without, "").await).0, Kind::InsufficientScope);
    for (body, field) in [
        (json!({"scopes": ["other"]}), "scopes"),
        (json!({"scopes": []}), "scopes"),
        (json!({"expires_at": "2025-11-24T16:00:00Z"}), "expires_at"),
        (json!({"expires_at": "tomorrow"}), "expires_at"),
        (json!({"expires_at": "2026-11-24T16:00:00Z[UTC]"}), "expires_at"),
        (json!({"limits": {"rpm": 0}}), "limits.rpm"),
        (json!({"limits": {"models": ["a*b"]}}), "limits.models"),
        (json!({"name": "a\u{0}"}), "name"),
        (json!({"metadata": {"a": 1}}), "metadata"),
        (json!({"status": "inactive"}), "status"),
    ] {
        assert_eq!(
            kind(world.create(&ann, body).await),
            (Kind::InvalidRequest, Some(field.to_owned()))
        );
    }
}

#[tokio::test]
async fn keys_descend_so_deep_and_are_so_many() {
    let world = world().await;
    let ann = world.user("ann@example.com").await;
    let few = world.create(&ann, json!({"limits": {"keys_per_user": 2, "rpm": 5}})).await.unwrap();
    let by_few = world.router(text(&few["key"]));
    let child = world.create(&by_few, json!({"limits": {"rpm": 4}})).await.unwrap();
    assert_eq!(child["limits"], json!({"rpm": 4, "keys_per_user": 2}));
    assert_eq!(kind(world.create(&by_few, json!({})).await).0, Kind::KeyLimitReached);
    assert_eq!(
        kind(world.create(&by_few, json!({"limits": {"keys_per_user": 3}})).await).1,
        Some("limits.keys_per_user".to_owned())
    );
    world.create(&ann, json!({})).await.unwrap();

    let mut maker = ann.clone();
    for _ in 0..crate::bounds::KEY_DESCENT {
        let key = world.create(&maker, json!({})).await.unwrap();
        maker = world.router(text(&key["key"]));
    }
    assert_eq!(kind(world.create(&maker, json!({})).await).0, Kind::KeyLimitReached);
}

#[tokio::test]
async fn an_admin_grants_and_gives_away() {
    let world = world().await;
    let ann = world.user("ann@example.com").await;
    let owner = ann.user_id().unwrap();
    let body = json!({"owner": owner, "labels": {"tier": "gold"}, "scopes": ["inference", "keys"]});
    let given = world.create(&Principal::Admin, body).await.unwrap();
    assert_eq!(
        (&given["owner"], &given["labels"], &given["created_by"]["type"]),
        (&json!(owner), &json!({"tier": "gold"}), &json!("admin_key"))
    );
    let child = world.create(&world.router(text(&given["key"])), json!({})).await.unwrap();
    assert_eq!(child["labels"], given["labels"]);
    let unknown =
        world.create(&Principal::Admin, json!({"owner": "usr_00000000000000000000000000"})).await;
    assert_eq!(kind(unknown), (Kind::InvalidRequest, Some("owner".to_owned())));

    let own = world.create(&Principal::Admin, json!({"scopes": ["admin"]})).await.unwrap();
    assert_eq!(own["owner"], json!(UserId::admin()));
    let by_key = world.router(text(&own["key"]));
    assert!(by_key.is_admin());
    assert_eq!(world.list(&by_key, "").await.unwrap()["data"].as_array().unwrap().len(), 3);
    let plain = world.create(&by_key, json!({})).await.unwrap();
    assert!(!world.router(text(&plain["key"])).is_admin());
}

#[tokio::test]
async fn the_hundredth_key_is_the_last() {
    let world = world().await;
    let made =
        futures::future::join_all((0..105).map(|_| world.create(&Principal::Admin, json!({}))))
            .await;
    assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 100);
    assert_eq!(kind(world.create(&Principal::Admin, json!({})).await).0, Kind::KeyLimitReached);
    let id = made.iter().flatten().next().unwrap()["id"].clone();
    world.revoke(&Principal::Admin, text(&id)).await.unwrap();
    world.create(&Principal::Admin, json!({})).await.unwrap();
}

#[tokio::test]
async fn with_the_store_down_a_revoked_key_is_dead_and_a_new_one_is_not_born() {
    let world = world().await;
    let key = world.create(&Principal::Admin, json!({})).await.unwrap();
    let health = async || {
        pin::health(&world.app, &Principal::Anonymous, &request("/health", None)).await.unwrap()
    };
    assert_eq!(
        read(&health().await),
        json!({"status": "ok", "store": "ok", "revision": world.app.revision()})
    );
    world.faults.fail_every_write();
    assert_eq!(kind(world.create(&Principal::Admin, json!({})).await).0, Kind::Unavailable);
    assert_eq!(
        world.list(&Principal::Admin, "").await.unwrap()["data"].as_array().unwrap().len(),
        1
    );
    let error = world.revoke(&Principal::Admin, text(&key["id"])).await.unwrap_err();
    assert_eq!((error.kind(), error.retry_after_s()), (Kind::Unavailable, Some(1)));
    assert_eq!(world.bearer(Surface::DataPlane, text(&key["key"])).unwrap_err(), "revoked");
    assert_eq!(world.get(&Principal::Admin, text(&key["id"])).await.unwrap()["status"], "revoked");
    assert_eq!(health().await.status(), StatusCode::SERVICE_UNAVAILABLE);
    world.faults.clear();
    assert_eq!(
        world.revoke(&Principal::Admin, text(&key["id"])).await.unwrap(),
        StatusCode::NO_CONTENT
    );
    assert_eq!(world.bearer(Surface::DataPlane, text(&key["key"])).unwrap_err(), "revoked");
}

#[tokio::test]
async fn without_the_row_nothing_of_others_is_shown() {
    let world = world().await;
    let (capture, ann) = (RequestId::known("req_1"), UserId::known("usr_ann"));
    let look = async |who: &Principal, owner: &UserId| {
        audit::foreign(&world.app, who, Action::CaptureRead, (&capture, owner), (None, None))
            .await
            .map_err(|error| error.kind())
    };
    world.faults.fail_every_write();
    assert_eq!(look(&Principal::Admin, &ann).await, Err(Kind::Unavailable));
    assert_eq!(look(&Principal::Admin, &UserId::admin()).await, Ok(()), "its own");
    world.faults.clear();
    assert_eq!(look(&Principal::Admin, &ann).await, Ok(()));
    let listed = read(
        &audit::list(&world.app, &Principal::Admin, &request("/v1/audit", None)).await.unwrap(),
    );
    assert_eq!(listed["data"].as_array().unwrap().len(), 1, "{listed}");
}

#[test]
fn rows_are_found_by_whole_segments() {
    match super::find(&http::Method::DELETE, "/v1/router/keys/key_1") {
        super::RouteMatch::Route(route, params) => {
            assert_eq!(route.path, "/v1/router/keys/{id}");
            assert_eq!(params.first(), "key_1");
        }
        _ => panic!("not found"),
    }
    for path in
        ["/v1/router/keys/", "/v1/router/keys/a/b", "/v1/router", "/v1/router/replay/x/rerout"]
    {
        assert!(
            matches!(super::find(&http::Method::GET, path), super::RouteMatch::Unknown),
            "{path}"
        );
    }
    match super::find(&http::Method::PUT, "/v1/router/keys") {
        super::RouteMatch::WrongMethod(error) => assert_eq!(error.allow(), Some("POST, GET")),
        _ => panic!("not refused"),
    }
}

#[test]
fn no_row_stands_twice() {
    for (at, row) in super::ROUTES.iter().enumerate() {
        assert!(
            !super::ROUTES
                .iter()
                .skip(at + 1)
                .any(|other| other.path == row.path && other.method == row.method),
            "{}",
            row.path
        );
    }
}

#[tokio::test]
async fn of_three_evaluations_at_once_the_third_waits_until_another_ends() {
    let world = world().await;
    let asked = request("/v1/router/replay/evaluate", None);
    let mut under_way = Vec::new();
    for caller in 0..bounds::EVALUATIONS {
        under_way.push(world.app.evaluations.take(&format!("caller {caller}")).await.unwrap());
    }
    let mut third = Box::pin(evaluate::post(&world.app, &Principal::Admin, &asked));
    assert!((&mut third).now_or_never().is_none(), "it waits for its turn");
    under_way.pop();
    let mut slow = third.await.unwrap();
    loop {
        match slow.steps.recv().await.unwrap() {
            ProgressStep::Line(_) => {}
            ProgressStep::Answer(answer) => {
                break assert_eq!(read(&answer.unwrap())["evaluated"], 0);
            }
        }
    }
}
