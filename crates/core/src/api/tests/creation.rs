//! Repeated creations of a key with one `Idempotency-Key` make only one key.

use super::*;
use rerouter_access::auth::AgentCredential;

const OPEN: Principal = Principal::AgentTenant { via: AgentCredential::Open };

/// A creation with an `Idempotency-Key`, from an address.
fn named(path: &str, key: &str, address: &str, body: &str) -> Request<Bytes> {
    let mut request = Request::builder()
        .method("POST")
        .uri(path)
        .header("idempotency-key", key)
        .header(CONTENT_TYPE, "application/json");
    request = request.extension(ClientOrigin {
        address: Some(address.parse().unwrap()),
        proven: true,
        secure: false,
        ..ClientOrigin::default()
    });
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
    assert_eq!(
        (first.status(), first.headers(), first.body()),
        (again.status(), again.headers(), again.body())
    );
    assert_eq!(
        (again.status(), &again.headers()[CACHE_CONTROL]),
        (StatusCode::CREATED, &HeaderValue::from_static("no-store"))
    );
    assert!(world.bearer(Surface::DataPlane, text(&read(&again)["key"])).is_ok());
    for (path, body) in [(router, r#"{"name": "other"}"#), (router, ""), (pin, body)] {
        assert_eq!(
            kind(send(&ann, path, "one", body).await),
            (Kind::Conflict, Some("Idempotency-Key".to_owned()))
        );
    }
    let others = [
        send(&bob, router, "one", body).await.unwrap(),
        send(&ann, router, "two", body).await.unwrap(),
    ];
    assert!(others.iter().all(|other| read(other)["id"] != read(&first)["id"]));
    assert_eq!(
        kind(send(&ann, router, "a b", body).await),
        (Kind::InvalidRequest, Some("Idempotency-Key".to_owned()))
    );
    // A failed call has no answer to repeat, so it may be tried again.
    world.faults.fail_writes(1);
    assert_eq!(kind(send(&ann, router, "three", body).await).0, Kind::Unavailable);
    assert_eq!(kind(send(&ann, router, "four", r#"{"x": 1}"#).await).0, Kind::InvalidRequest);
    assert_eq!(send(&ann, router, "three", body).await.unwrap().status(), StatusCode::CREATED);
    assert_eq!(send(&ann, router, "four", body).await.unwrap().status(), StatusCode::CREATED);
    let listed = world.list(&ann, "").await.unwrap()["data"].as_array().unwrap().len();
    assert_eq!(listed, 4);
    // Of concurrent calls only one creates a key, and all get its answer.
    let many = futures::future::join_all((0..8).map(|_| send(&bob, router, "many", body))).await;
    let made: Vec<_> = many.into_iter().map(|answer| read(&answer.unwrap())).collect();
    assert!(made.iter().all(|key| key == &made[0]));
    assert_eq!(world.list(&bob, "").await.unwrap()["data"].as_array().unwrap().len(), 2);
    world.app.clock.advance(Duration::from_secs(600));
    assert_ne!(read(&send(&ann, router, "one", body).await.unwrap())["id"], read(&first)["id"]);
}

#[tokio::test]
async fn nobody_who_is_nobody_gets_the_secret_of_another() {
    let world = world().await;
    let send = async |address: &str| {
        keys::create(&world.app, &OPEN, &named("/v1/api-keys", "one", address, "{}")).await.unwrap()
    };
    let first = read(&send("192.0.2.1").await);
    // Strangers may share an address, so the same address gets no earlier answer either.
    for address in ["192.0.2.1", "192.0.2.2"] {
        let other = read(&send(address).await);
        assert!(other["id"] != first["id"] && other["key"] != first["key"]);
    }
}

/// A repeat gets the secret again only if the caller could create the key now, and only while the
/// secret is valid.
#[tokio::test]
async fn a_creation_that_comes_again_gives_no_more_than_a_first_one() {
    let world = world().await;
    let ann = world.user("ann@example.com").await.user_id().unwrap();
    let (session, bob) = world.admin("bob@example.com").await;
    let path = "/v1/router/keys";
    let send = async |key: &str, body: &str| {
        // The principal of a new request in this session: with the user's current row.
        let Principal::User { via, .. } = &session else { panic!("a session") };
        let who = Principal::User { user: world.app.auth.user(&bob).unwrap(), via: via.clone() };
        keys::create(&world.app, &who, &named(path, key, "192.0.2.1", body)).await
    };
    let body = json!({ "owner": ann }).to_string();
    let first = read(&send("one", &body).await.unwrap());
    world.set_role(&bob, "user").await;
    assert_eq!(kind(send("one", &body).await), (Kind::Forbidden, Some("owner".to_owned())));
    world.set_role(&bob, "admin").await;
    assert_eq!(read(&send("one", &body).await.unwrap()), first);

    let conflict = (Kind::Conflict, Some("Idempotency-Key".to_owned()));
    let of = |key: &Value| rerouter_base::id::KeyId::parse(text(&key["id"])).unwrap();
    world.app.auth.revoke(&world.app.store, &of(&first), world.app.clock.now()).await.unwrap();
    assert_eq!(kind(send("one", &body).await), conflict);
    let rotated = read(&send("two", "{}").await.unwrap());
    let ask =
        super::identity::of(path, text(&rotated["id"]), Some(json!({"grace_period_seconds": 60})));
    keys::rotate(&world.app, &Principal::Admin, &ask).await.unwrap();
    assert_eq!(kind(send("two", "{}").await), conflict);
    let now = world.app.clock.now();
    let body =
        json!({ "expires_at": rerouter_base::clock::rfc3339(now + Duration::from_secs(60)) })
            .to_string();
    let short = read(&send("three", &body).await.unwrap());
    assert_eq!(read(&send("three", &body).await.unwrap()), short);
    world.app.clock.advance(Duration::from_secs(60));
    assert_eq!(kind(send("three", &body).await), conflict);
}

/// If a call shows the secret of another user's key, the audit row names that user.
#[tokio::test]
async fn a_secret_of_another_s_is_noted_with_that_other() {
    let world = world().await;
    let ann = world.user("ann@example.com").await;
    let id = ann.user_id().unwrap();
    let (session, _) = world.admin("bob@example.com").await;
    let rotate = async |who: &Principal, key: &Value| {
        keys::rotate(
            &world.app,
            who,
            &super::identity::of("/v1/router/keys", text(&key["id"]), Some(json!({}))),
        )
        .await
        .unwrap();
    };
    let own = world.create(&ann, json!({})).await.unwrap();
    rotate(&ann, &own).await;
    rotate(&Principal::Admin, &own).await;
    world.create(&Principal::Admin, json!({"owner": id})).await.unwrap();
    let about = async || {
        let filter =
            rerouter_store::AuditFilter { target: Some(id.to_string()), ..Default::default() };
        let rows = world.app.store.audit(filter, 100, None).await.unwrap().unwrap();
        let keys = rows.into_iter().filter(|row| row.action.starts_with("key."));
        keys.map(|row| (row.action, row.actor_type, row.target_type)).collect::<Vec<_>>()
    };
    assert_eq!(about().await, []);
    rotate(&session, &own).await;
    world.create(&session, json!({"owner": id})).await.unwrap();
    let row = |action: &str| (action.to_owned(), "session".to_owned(), "user".to_owned());
    assert_eq!(about().await, [row("key.create"), row("key.rotate")]);
    let filter = rerouter_store::AuditFilter {
        target: Some(text(&own["id"]).to_owned()),
        ..Default::default()
    };
    assert_eq!(
        world.app.store.audit(filter, 100, None).await.unwrap().unwrap().len(),
        4,
        "and the key has its rows as ever"
    );
}
