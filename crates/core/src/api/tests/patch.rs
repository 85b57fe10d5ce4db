//! Changes of keys, revocation with descendants, and the last use of keys, as plain calls.

mod permissions;

use super::identity::OPEN;
use super::*;
use rerouter_base::id::KeyId;
use rerouter_store::{KEYS_PER_OWNER, Seen};

impl TestApi {
    async fn patch_at(&self, path: &str, who: &Principal, id: &str, body: Value) -> Result<Value> {
        let mut request = request(&format!("{path}/{id}"), Some(body));
        *request.method_mut() = http::Method::PATCH;
        request
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/merge-patch+json"));
        request.extensions_mut().insert(PathParams(vec![id.to_owned()]));
        keys::patch(&self.app, who, &request).await.map(|answer| read(&answer))
    }

    async fn patch(&self, who: &Principal, id: &str, body: Value) -> Result<Value> {
        self.patch_at("/v1/router/keys", who, id, body).await
    }

    async fn revoke_all(&self, who: &Principal, id: &str) -> Result<StatusCode> {
        self.revoke(who, &format!("{id}?descendants=true")).await
    }

    /// Creates a key as `who`, which may create keys unless the body names other scopes. Returns
    /// its record and its principal.
    async fn key_of(&self, who: &Principal, mut body: Value) -> (Value, Principal) {
        if body.get("scopes").is_none() {
            body["scopes"] = json!(["inference", "keys"]);
        }
        let made = self.create(who, body).await.unwrap();
        let by = self.router(text(&made["key"]));
        (made, by)
    }
}

#[tokio::test]
async fn a_patch_changes_what_it_speaks_of_and_nothing_else() {
    let mut world = world().await;
    let (ann, bob) = (world.user("ann@example.com").await, world.user("bob@example.com").await);
    let body = json!({
        "name": "ci", "metadata": {"a": "1", "b": "2"}, "expires_at": "2025-11-26T00:00:00Z"
    });
    let made = world.create(&ann, body).await.unwrap();
    let id = text(&made["id"]);
    let mut expected = made.clone();
    expected.as_object_mut().unwrap().remove("key");
    for (patch, field, value) in [
        (json!({}), "name", json!("ci")),
        (json!({"name": "nightly"}), "name", json!("nightly")),
        (json!({"metadata": {"a": null, "c": "3"}}), "metadata", json!({"b": "2", "c": "3"})),
        (json!({"metadata": null}), "metadata", json!({})),
        (
            json!({"expires_at": "2025-11-25T12:00:00Z"}),
            "expires_at",
            json!("2025-11-25T12:00:00.000000Z"),
        ),
        (
            json!({"expires_at": "2025-11-25T12:00:00Z"}),
            "expires_at",
            json!("2025-11-25T12:00:00.000000Z"),
        ),
        (json!({"status": "inactive"}), "status", json!("inactive")),
        (
            json!({"limits": {"rpm": 5, "budget": {"usd": 1, "per": "day"}}}),
            "limits",
            json!({"rpm": 5, "budget": {"usd": 1.0, "per": "day"}}),
        ),
        (
            json!({"limits": {"rpm": null, "budget": {"usd": 2}}}),
            "limits",
            json!({"budget": {"usd": 2.0, "per": "day"}}),
        ),
        (json!({"limits": null}), "limits", json!({})),
    ] {
        expected[field] = value;
        // Limits are also widened here, which only an admin may do.
        let who = if field == "limits" { &Principal::Admin } else { &ann };
        assert_eq!(world.patch(who, id, patch.clone()).await.unwrap(), expected, "{patch}");
        assert_eq!(world.get(&ann, id).await.unwrap(), expected);
    }
    assert_eq!(world.why(&made["key"]), "inactive");
    world.start_again(None).await;
    assert_eq!(world.why(&made["key"]), "inactive", "so it is after a start");
    assert_eq!(world.get(&ann, id).await.unwrap(), expected);
    world.patch(&ann, id, json!({"status": "active"})).await.unwrap();
    world.start_again(None).await;
    assert_eq!(world.why(&made["key"]), "good");
    for (field, patch) in [
        ("name", json!({"name": null})),
        ("name", json!({"name": ""})),
        ("name", json!({"name": {"a": "b"}})),
        ("metadata", json!({"metadata": {"a": 1}})),
        ("metadata", json!({"metadata": {"a": {"b": "c"}}})),
        ("metadata", json!({"metadata": []})),
        ("status", json!({"status": "revoked"})),
        ("status", json!({"status": null})),
        ("status", json!({"status": true})),
        ("expires_at", json!({"expires_at": null})),
        ("expires_at", json!({"expires_at": "2025-11-25T12:00:01Z"})),
        ("expires_at", json!({"expires_at": "2025-11-24T16:00:00Z"})),
        ("expires_at", json!({"expires_at": "tomorrow"})),
        ("limits", json!({"limits": 5})),
        ("limits.rpm", json!({"limits": {"rpm": 0}})),
        ("limits.rps", json!({"limits": {"rps": 1}})),
        ("labels", json!({"labels": {"a": 1}})),
        ("scopes", json!({"scopes": ["inference"]})),
        ("owner", json!({"owner": "usr_admin"})),
        ("key", json!({"name": "x", "key": "rtr_x"})),
        ("revoked_at", json!({"revoked_at": null})),
    ] {
        assert_eq!(
            kind(world.patch(&ann, id, patch.clone()).await),
            (Kind::InvalidRequest, Some(field.to_owned())),
            "{patch}"
        );
    }
    assert_eq!(kind(world.patch(&bob, id, json!({"name": "mine"})).await).0, Kind::NotFound);
    assert_eq!(
        kind(world.patch(&bob, id, json!({"status": 5})).await).0,
        Kind::InvalidRequest,
        "what is wrong by itself comes first"
    );
    world.revoke(&ann, id).await.unwrap();
    assert_eq!(kind(world.patch(&ann, id, json!({"name": "x"})).await).0, Kind::KeyRevoked);
}

#[tokio::test]
async fn while_agent_is_open_older_keys_stay_and_keys_made_open_take_no_room() {
    let mut world = world().await;
    let create = async |world: &TestApi, who: &Principal| {
        keys::create(&world.app, who, &request("/v1/api-keys", Some(json!({}))))
            .await
            .map(|answer| read(&answer))
    };
    let theirs = create(&world, &OPEN).await.unwrap();
    for _ in 1..KEYS_PER_OWNER {
        create(&world, &OPEN).await.unwrap();
    }
    assert_eq!(kind(create(&world, &OPEN).await).0, Kind::KeyLimitReached);
    world.start_again(Some("cloud")).await;
    let cloud = world.bearer(Surface::Agent, "cloud").unwrap();
    let own = create(&world, &cloud).await.unwrap();
    for _ in 1..KEYS_PER_OWNER {
        create(&world, &cloud).await.unwrap();
    }
    let on = || {
        super::identity::of("/v1/api-keys", text(&theirs["id"]), Some(json!({"status": "active"})))
    };
    assert_eq!(
        kind(keys::patch(&world.app, &cloud, &on()).await).0,
        Kind::KeyLimitReached,
        "vouched for, it takes room"
    );
    world.start_again(None).await;
    assert_eq!(kind(create(&world, &OPEN).await).0, Kind::KeyLimitReached);
    for query in ["", "?descendants=true"] {
        let mut request = request(&format!("/v1/api-keys/{}{query}", text(&own["id"])), None);
        request.extensions_mut().insert(PathParams(vec![text(&own["id"]).to_owned()]));
        assert_eq!(kind(keys::revoke(&world.app, &OPEN, &request).await).0, Kind::Forbidden);
    }
    world.start_again(Some("cloud")).await;
    assert!(world.bearer(Surface::Agent, text(&own["key"])).is_ok());
}

#[tokio::test]
async fn patches_at_once_lose_nothing_and_a_failing_store_changes_nothing() {
    let world = world().await;
    let made = world.create(&Principal::Admin, json!({})).await.unwrap();
    let id = text(&made["id"]);
    let all = (0..6)
        .map(|n| world.patch(&Principal::Admin, id, json!({"metadata": {format!("m{n}"): "x"}})));
    for patched in futures::future::join_all(all).await {
        patched.unwrap();
    }
    assert_eq!(
        world.get(&Principal::Admin, id).await.unwrap()["metadata"].as_object().unwrap().len(),
        6
    );
    let before = world.get(&Principal::Admin, id).await.unwrap();
    world.faults.fail_every_write();
    let error = world
        .patch(&Principal::Admin, id, json!({"status": "inactive", "limits": {"rpm": 1}}))
        .await
        .unwrap_err();
    assert_eq!((error.kind(), error.retry_after_s()), (Kind::Unavailable, Some(1)));
    assert_eq!(
        (world.get(&Principal::Admin, id).await.unwrap(), world.why(&made["key"])),
        (before, "good")
    );
    world.faults.clear();
    // A patch that was decided on an outdated state is refused by the store, and so is an earlier
    // rotation.
    let seen = Seen { generation: 6, ..Seen::default() };
    let patch = rerouter_store::KeyChange { name: Some("late".into()), ..Default::default() };
    let late = world.app.store.patch_key(&KeyId::known(id), patch, seen).await;
    assert!(matches!(late, Err(rerouter_store::StoreError::Conflict)), "{late:?}");
}

#[tokio::test]
async fn a_descent_ends_whole_whosever_it_is() {
    let mut world = world().await;
    let (ann, bob) = (world.user("ann@example.com").await, world.user("bob@example.com").await);
    // An admin's key creates keys for others.
    let (_, root) =
        world.key_of(&Principal::Admin, json!({"scopes": ["admin", "inference"]})).await;
    let (top, by_top) =
        world.key_of(&root, json!({"owner": ann.user_id(), "scopes": ["keys", "inference"]})).await;
    let (child, by_child) = world.key_of(&by_top, json!({})).await;
    let (grandchild, _) = world.key_of(&by_child, json!({})).await;
    let beside = world
        .create(&root, json!({"owner": bob.user_id(), "scopes": ["inference"]}))
        .await
        .unwrap();
    assert_eq!(
        kind(world.revoke(&ann, &format!("{}?descendants=yes", text(&top["id"]))).await),
        (Kind::InvalidRequest, Some("descendants".to_owned()))
    );
    assert_eq!(kind(world.revoke_all(&bob, text(&top["id"])).await).0, Kind::NotFound);

    world.faults.fail_every_write();
    assert_eq!(kind(world.revoke_all(&ann, text(&top["id"])).await).0, Kind::Unavailable);
    for key in [&top, &child, &grandchild] {
        assert_eq!(
            world.why(&key["key"]),
            "revoked",
            "dead here, though the store has not heard of it"
        );
    }
    assert_eq!(world.why(&beside["key"]), "good");
    assert_eq!(world.app.auth.unsaved_revocations(), 1);
    world.faults.clear();
    let saved = async {
        while world.app.auth.unsaved_revocations() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), saved).await.unwrap();
    for _ in 0..2 {
        assert_eq!(world.revoke_all(&ann, text(&top["id"])).await.unwrap(), StatusCode::NO_CONTENT);
    }
    assert_eq!(kind(world.create(&by_child, json!({})).await).0, Kind::KeyRevoked);
    world.start_again(None).await;
    for key in [&top, &child, &grandchild] {
        assert_eq!(world.why(&key["key"]), "revoked");
    }
    assert_eq!(world.why(&beside["key"]), "good");
    // The top key's creator revokes all of them, including keys that it created for others.
    world.revoke_all(&Principal::Admin, root.key().unwrap().id.as_str()).await.unwrap();
    assert_eq!(world.why(&beside["key"]), "revoked");
}

#[tokio::test]
async fn when_a_key_was_last_used_is_told_at_once_and_written_later() {
    let mut world = world().await;
    let ann = world.user("ann@example.com").await;
    let made = world.create(&ann, json!({})).await.unwrap();
    let id = text(&made["id"]).to_owned();
    let last = async |world: &TestApi| world.get(&ann, &id).await.unwrap()["last_used_at"].clone();
    assert_eq!(last(&world).await, Value::Null);
    assert_eq!(world.why(&made["key"]), "good");
    assert_eq!(last(&world).await, "2025-11-24T16:00:00.000000Z");
    world.app.clock.advance(Duration::from_millis(1500));
    world.why(&made["key"]);
    assert_eq!(last(&world).await, "2025-11-24T16:00:01.500000Z");
    world.faults.fail_every_write();
    assert!(world.app.auth.sweep_uses(&world.app.store).await.is_err());
    world.faults.clear();
    assert_eq!(world.app.store.load().await.unwrap().keys[0].last_used_at, None);
    let rev = world.app.store.load().await.unwrap().rev;
    world.app.auth.sweep_uses(&world.app.store).await.unwrap();
    assert_eq!(
        world.app.store.load().await.unwrap().rev,
        rev,
        "it is no change that others follow"
    );
    // A refused use does not count as a use, and a change keeps the time of the last use.
    world.patch(&ann, &id, json!({"status": "inactive"})).await.unwrap();
    world.app.clock.advance(Duration::from_secs(5));
    assert_eq!(world.why(&made["key"]), "inactive");
    assert_eq!(last(&world).await, "2025-11-24T16:00:01.500000Z");
    world.start_again(None).await;
    assert_eq!(last(&world).await, "2025-11-24T16:00:01.500000Z", "and so it is after a start");
}
