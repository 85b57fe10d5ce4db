//! Changes of keys, the end of a descent, and when keys were last used, as plain calls.

use super::*;
use crate::auth::AgentCredential;
use crate::id::KeyId;
use crate::store::Seen;

const OPEN: Principal = Principal::AgentTenant { via: AgentCredential::Open };

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

    fn why_not(&self, secret: &Value) -> &'static str {
        self.bearer(Surface::DataPlane, text(secret)).err().unwrap_or("good")
    }

    /// A key by `who`, and who comes with it.
    async fn key_of(&self, who: &Principal, body: Value) -> (Value, Principal) {
        let made = self.create(who, body).await.unwrap();
        let by = self.router(text(&made["key"]));
        (made, by)
    }

    /// The tables of a process that starts now.
    async fn reload(&mut self, agent_key: Option<&str>) {
        let auth = Auth::new(
            &SecretBytes::new([1; 32]),
            None,
            agent_key.map(Secret::new),
            Duration::from_secs(1800),
        );
        auth.attach(&self.app.store).await.unwrap();
        self.app.auth = auth;
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
        // Limits are widened here too, which is an admin's to do.
        let who = if field == "limits" { &Principal::Admin } else { &ann };
        assert_eq!(world.patch(who, id, patch.clone()).await.unwrap(), expected, "{patch}");
        assert_eq!(world.get(&ann, id).await.unwrap(), expected);
    }
    assert_eq!(world.why_not(&made["key"]), "inactive");
    world.reload(None).await;
    assert_eq!(world.why_not(&made["key"]), "inactive", "so it is after a start");
    assert_eq!(world.get(&ann, id).await.unwrap(), expected);
    world.patch(&ann, id, json!({"status": "active"})).await.unwrap();
    world.reload(None).await;
    assert_eq!(world.why_not(&made["key"]), "good");
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
async fn limits_labels_and_status_are_not_the_held_key_s_to_change() {
    let world = world().await;
    let ann = world.user("ann@example.com").await;
    let (top, by_top) = world.key_of(&ann, json!({"limits": {"rpm": 10}})).await;
    let (child, by_child) = world.key_of(&by_top, json!({"limits": {"rpm": 5}})).await;
    let (grandchild, _) = world.key_of(&by_child, json!({})).await;
    let (other, by_other) = world.key_of(&ann, json!({})).await;
    let id = |key: &Value| text(&key["id"]).to_owned();
    for (by, key) in
        [(&top, &top), (&child, &top), (&grandchild, &top), (&grandchild, &child), (&child, &child)]
    {
        let who = world.router(text(&by["key"]));
        for (field, patch) in [
            ("limits", json!({"limits": {"rpm": 1}})),
            ("labels", json!({"labels": {}})),
            ("status", json!({"status": "active"})),
        ] {
            assert_eq!(
                kind(world.patch(&who, &id(key), patch).await),
                (Kind::Forbidden, Some(field.to_owned())),
                "{field}"
            );
        }
        world
            .patch(&who, &id(key), json!({"name": "held", "metadata": {"by": "me"}}))
            .await
            .unwrap();
        // Who acts by a key that was changed meanwhile comes again, as what it is now.
        let again =
            world.patch(&who, &id(key), json!({"name": "key"})).await.map_err(|error| error.kind());
        assert_eq!(again.err(), (by == key).then_some(Kind::Conflict));
    }
    let by_top = world.router(text(&top["key"]));
    assert_eq!(other["status"], "active");
    // The creator narrows and widens, up to what it has itself; neighbours and grandparents do not.
    assert_eq!(
        world
            .patch(&by_top, &id(&child), json!({"limits": {"rpm": 10, "tpm": 100}}))
            .await
            .unwrap()["limits"],
        json!({"rpm": 10, "tpm": 100})
    );
    let wide = world.patch(&by_top, &id(&child), json!({"limits": {"rpm": 11}})).await;
    assert_eq!(kind(wide), (Kind::Forbidden, Some("limits.rpm".to_owned())));
    assert_eq!(
        world.patch(&by_top, &id(&child), json!({"limits": null})).await.unwrap()["limits"],
        json!({"rpm": 10}),
        "as in its making"
    );
    for who in [&by_top, &by_other] {
        assert_eq!(
            kind(world.patch(who, &id(&grandchild), json!({"limits": {"tpm": 9}})).await),
            (Kind::Forbidden, Some("limits".to_owned()))
        );
    }
    assert_eq!(
        kind(world.patch(&ann, &id(&child), json!({"limits": {"tpm": 9}})).await).0,
        Kind::Forbidden,
        "a key made it"
    );
    // Also an admin keeps to what the creator has.
    assert_eq!(
        kind(world.patch(&Principal::Admin, &id(&child), json!({"limits": {"rpm": 11}})).await).0,
        Kind::Forbidden
    );
    world
        .patch(
            &Principal::Admin,
            &id(&top),
            json!({"limits": {"rpm": 20}, "labels": {"tier": "gold"}}),
        )
        .await
        .unwrap();
    world.patch(&Principal::Admin, &id(&child), json!({"limits": {"rpm": 11}})).await.unwrap();
    // Labels: the creator's own or none but those.
    let by_top = world.router(text(&top["key"]));
    assert_eq!(
        kind(world.patch(&by_top, &id(&child), json!({"labels": {"tier": "x"}})).await),
        (Kind::Forbidden, Some("labels".to_owned()))
    );
    let patched = world.patch(&by_top, &id(&child), json!({"labels": {"tier": "gold"}})).await;
    assert_eq!(patched.unwrap()["labels"], json!({"tier": "gold"}));
    assert_eq!(
        kind(world.patch(&by_top, &id(&child), json!({"labels": null})).await).0,
        Kind::Forbidden
    );
    // What an admin made for Ann is not hers to widen, by whatever session.
    let given = json!({"owner": ann.user_id(), "scopes": ["config"], "limits": {"rpm": 1}});
    let given = world.create(&Principal::Admin, given).await.unwrap();
    for patch in [json!({"limits": null}), json!({"labels": {}})] {
        assert_eq!(kind(world.patch(&ann, &id(&given), patch).await).0, Kind::Forbidden);
    }
    world.patch(&ann, &id(&given), json!({"status": "inactive"})).await.unwrap();
    // A key with less does not wake it; it may put to sleep whatever it may end.
    assert_eq!(
        kind(world.patch(&by_other, &id(&given), json!({"status": "active"})).await),
        (Kind::Forbidden, Some("status".to_owned()))
    );
    world.patch(&by_other, &id(&top), json!({"status": "inactive"})).await.unwrap();
    assert_eq!((world.why_not(&top["key"]), world.why_not(&child["key"])), ("inactive", "good"));
}

#[tokio::test]
async fn what_an_admin_put_on_a_key_its_user_does_not_take_off() {
    let world = world().await;
    let ann = world.user("ann@example.com").await;
    let made = world.create(&ann, json!({})).await.unwrap();
    let id = text(&made["id"]);
    let put = json!({
        "limits": {"rpm": 5, "budget": {"usd": 1, "per": "day"}}, "labels": {"tier": "bronze"}
    });
    world.patch(&Principal::Admin, id, put.clone()).await.unwrap();
    for (patch, field) in [
        (json!({"limits": null}), "limits.rpm"),
        (json!({"limits": {"rpm": 6}}), "limits.rpm"),
        (json!({"limits": {"rpm": 4, "budget": null}}), "limits.budget"),
        (json!({"limits": {"budget": {"usd": 2}}}), "limits.budget"),
        (json!({"limits": {"budget": {"per": "month"}}}), "limits.budget"),
        (json!({"limits": {"budget": {"usd": 0.01, "per": "month"}}}), "limits.budget"),
        (json!({"limits": {"budget": {"usd": 31, "per": "month"}}}), "limits.budget"),
        (json!({"labels": null}), "labels"),
        (json!({"labels": {}}), "labels"),
        (json!({"labels": {"tier": "gold"}}), "labels"),
    ] {
        assert_eq!(
            kind(world.patch(&ann, id, patch.clone()).await),
            (Kind::Forbidden, Some(field.to_owned())),
            "{patch}"
        );
    }
    let shown = world.get(&ann, id).await.unwrap();
    assert_eq!((&shown["limits"]["rpm"], &shown["labels"]), (&json!(5), &put["labels"]));
    let narrowed = world.patch(&ann, id, json!({"limits": {"rpm": 4, "tpm": 100}})).await.unwrap();
    assert_eq!((&narrowed["limits"]["rpm"], &narrowed["limits"]["tpm"]), (&json!(4), &json!(100)));
    assert_eq!(
        kind(world.patch(&ann, id, json!({"limits": {"rpm": 5}})).await).0,
        Kind::Forbidden,
        "nor back again"
    );
    world
        .patch(&Principal::Admin, id, json!({"limits": {"budget": {"usd": 10, "per": "month"}}}))
        .await
        .unwrap();
    for budget in [json!({"usd": 10, "per": "day"}), json!({"usd": 0.1, "per": "day"})] {
        let patched = world.patch(&ann, id, json!({"limits": {"budget": budget}})).await;
        assert_eq!(kind(patched), (Kind::Forbidden, Some("limits.budget".to_owned())), "{budget}");
    }
    let (_, by_key) =
        world.key_of(&ann, json!({"limits": {"budget": {"usd": 10, "per": "month"}}})).await;
    for (budget, fits) in
        [(json!({"usd": 10, "per": "day"}), false), (json!({"usd": 0.3, "per": "day"}), true)]
    {
        assert_eq!(
            world.create(&by_key, json!({"limits": {"budget": budget}})).await.is_ok(),
            fits,
            "{budget}"
        );
    }
}

#[tokio::test]
async fn labels_of_a_key_are_those_of_what_it_makes_also_when_they_change() {
    let mut world = world().await;
    let ann = world.user("ann@example.com").await;
    let (top, by_top) = world.key_of(&ann, json!({})).await;
    let (child, by_child) = world.key_of(&by_top, json!({})).await;
    let (grandchild, _) = world.key_of(&by_child, json!({})).await;
    let (other, by_other) = world.key_of(&by_top, json!({})).await;
    let (of_other, _) = world.key_of(&by_other, json!({})).await;
    world
        .patch(&Principal::Admin, text(&other["id"]), json!({"labels": {"own": "yes"}}))
        .await
        .unwrap();
    world
        .patch(&Principal::Admin, text(&top["id"]), json!({"labels": {"capture": "off"}}))
        .await
        .unwrap();
    for _ in 0..2 {
        for (key, labels) in [
            (&top, json!({"capture": "off"})),
            (&child, json!({"capture": "off"})),
            (&grandchild, json!({"capture": "off"})),
            (&other, json!({"own": "yes"})),
            (&of_other, json!({"own": "yes"})),
        ] {
            assert_eq!(world.get(&ann, text(&key["id"])).await.unwrap()["labels"], labels);
        }
        world.reload(None).await;
    }
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
    for _ in 1..bounds::KEYS_PER_OWNER {
        create(&world, &OPEN).await.unwrap();
    }
    assert_eq!(kind(create(&world, &OPEN).await).0, Kind::KeyLimitReached);
    world.reload(Some("cloud")).await;
    let cloud = world.bearer(Surface::Agent, "cloud").unwrap();
    let own = create(&world, &cloud).await.unwrap();
    for _ in 1..bounds::KEYS_PER_OWNER {
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
    world.reload(None).await;
    assert_eq!(kind(create(&world, &OPEN).await).0, Kind::KeyLimitReached);
    for query in ["", "?descendants=true"] {
        let mut request = request(&format!("/v1/api-keys/{}{query}", text(&own["id"])), None);
        request.extensions_mut().insert(PathParams(vec![text(&own["id"]).to_owned()]));
        assert_eq!(kind(keys::revoke(&world.app, &OPEN, &request).await).0, Kind::Forbidden);
    }
    world.reload(Some("cloud")).await;
    assert!(world.bearer(Surface::Agent, text(&own["key"])).is_ok());
}

#[tokio::test]
async fn what_a_key_may_no_more_none_that_descends_from_it_may() {
    let mut world = world().await;
    let ann = world.user("ann@example.com").await;
    let (top, by_top) = world.key_of(&ann, json!({"limits": {"models": ["a*", "b"]}})).await;
    let (child, by_child) =
        world.key_of(&by_top, json!({"limits": {"models": ["a-1", "b"], "rpm": 5}})).await;
    let (grandchild, _) = world
        .key_of(
            &by_child,
            json!({"limits": {"models": ["b"]}, "expires_at": "2025-11-26T00:00:00Z"}),
        )
        .await;
    let (ended, _) = world.key_of(&by_child, json!({})).await;
    world.revoke(&ann, text(&ended["id"])).await.unwrap();
    let patch =
        json!({"limits": {"rpm": 9, "models": ["a*"]}, "expires_at": "2025-11-25T00:00:00Z"});
    world.patch(&ann, text(&top["id"]), patch).await.unwrap();
    for _ in 0..2 {
        for (key, models, rpm) in
            [(&top, json!(["a*"]), 9), (&child, json!(["a-1"]), 5), (&grandchild, json!([]), 5)]
        {
            let shown = world.get(&ann, text(&key["id"])).await.unwrap();
            assert_eq!(
                (&shown["limits"]["models"], &shown["limits"]["rpm"]),
                (&models, &json!(rpm))
            );
            assert_eq!(shown["expires_at"], "2025-11-25T00:00:00.000000Z");
        }
        world.reload(None).await;
    }
    // One who acts as the key was before gives nothing on that it had.
    for stale in [&by_top, &by_child] {
        assert_eq!(kind(world.create(stale, json!({})).await).0, Kind::Conflict);
    }
    let later = world
        .patch(&ann, text(&grandchild["id"]), json!({"expires_at": "2025-11-25T00:00:01Z"}))
        .await;
    assert_eq!(kind(later).0, Kind::InvalidRequest);
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
        (world.get(&Principal::Admin, id).await.unwrap(), world.why_not(&made["key"])),
        (before, "good")
    );
    world.faults.clear();
    // Decided on what is no more: the store says so, and a rotation that was decided before it as
    // well.
    let seen = Seen { generation: 6, ..Seen::default() };
    let patch = crate::store::KeyPatch { name: Some("late".into()), ..Default::default() };
    let late = world.app.store.patch_key(&KeyId::known(id), patch, seen).await;
    assert!(matches!(late, Err(crate::store::StoreError::Conflict)), "{late:?}");
}

#[tokio::test]
async fn keys_of_the_open_days_are_woken_by_who_switches_them_on() {
    let mut world = world().await;
    let create = async |world: &TestApi, who: &Principal| {
        keys::create(&world.app, who, &request("/v1/api-keys", Some(json!({}))))
            .await
            .map(|answer| read(&answer))
            .unwrap()
    };
    let early = create(&world, &OPEN).await;
    let patch = async |world: &TestApi, who: &Principal, key: &Value, body: Value| {
        world.patch_at("/v1/api-keys", who, text(&key["id"]), body).await
    };
    patch(&world, &OPEN, &early, json!({"limits": {"keys_per_user": 5}, "name": "early"}))
        .await
        .unwrap();
    world.reload(Some("cloud")).await;
    let cloud = world.bearer(Surface::Agent, "cloud").unwrap();
    let late = create(&world, &cloud).await;
    world.reload(Some("cloud")).await;
    for asleep in [json!({"name": "kept"}), json!({}), json!({"status": "inactive"})] {
        assert_eq!(
            patch(&world, &cloud, &early, asleep.clone()).await.unwrap()["status"],
            "inactive",
            "{asleep}"
        );
        world.reload(Some("cloud")).await;
        assert_eq!(
            world.bearer(Surface::Agent, text(&early["key"])).unwrap_err(),
            "inactive",
            "{asleep}"
        );
    }
    patch(&world, &cloud, &early, json!({"status": "active"})).await.unwrap();
    world.reload(Some("cloud")).await;
    assert!(world.bearer(Surface::Agent, text(&early["key"])).is_ok());
    patch(&world, &cloud, &late, json!({"limits": {"models": ["auto"]}})).await.unwrap();
    assert_eq!(
        kind(patch(&world, &cloud, &late, json!({"labels": {"a": "b"}})).await).0,
        Kind::Forbidden,
        "AGENT has no admin"
    );
    world.reload(Some("cloud")).await;
    let wider = patch(&world, &cloud, &late, json!({"limits": null})).await;
    assert_eq!(kind(wider), (Kind::Forbidden, Some("limits.models".to_owned())));
    world.reload(None).await;
    assert_eq!(
        kind(patch(&world, &OPEN, &late, json!({"name": "taken"})).await).0,
        Kind::Forbidden
    );
}

#[tokio::test]
async fn a_descent_ends_whole_whosever_it_is() {
    let mut world = world().await;
    let (ann, bob) = (world.user("ann@example.com").await, world.user("bob@example.com").await);
    // A key of an admin makes keys for others.
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
            world.why_not(&key["key"]),
            "revoked",
            "dead here, though the store has not heard of it"
        );
    }
    assert_eq!(world.why_not(&beside["key"]), "good");
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
    world.reload(None).await;
    for key in [&top, &child, &grandchild] {
        assert_eq!(world.why_not(&key["key"]), "revoked");
    }
    assert_eq!(world.why_not(&beside["key"]), "good");
    // The maker of the whole: also what it made for others.
    world.revoke_all(&Principal::Admin, root.key().unwrap().id.as_str()).await.unwrap();
    assert_eq!(world.why_not(&beside["key"]), "revoked");
}

#[tokio::test]
async fn when_a_key_was_last_used_is_told_at_once_and_written_later() {
    let mut world = world().await;
    let ann = world.user("ann@example.com").await;
    let made = world.create(&ann, json!({})).await.unwrap();
    let id = text(&made["id"]).to_owned();
    let last = async |world: &TestApi| world.get(&ann, &id).await.unwrap()["last_used_at"].clone();
    assert_eq!(last(&world).await, Value::Null);
    assert_eq!(world.why_not(&made["key"]), "good");
    assert_eq!(last(&world).await, "2025-11-24T16:00:00.000000Z");
    world.app.clock.advance(Duration::from_millis(1500));
    world.why_not(&made["key"]);
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
    // Refused, it is not used; changed, it keeps when it was.
    world.patch(&ann, &id, json!({"status": "inactive"})).await.unwrap();
    world.app.clock.advance(Duration::from_secs(5));
    assert_eq!(world.why_not(&made["key"]), "inactive");
    assert_eq!(last(&world).await, "2025-11-24T16:00:01.500000Z");
    world.reload(None).await;
    assert_eq!(last(&world).await, "2025-11-24T16:00:01.500000Z", "and so it is after a start");
}

#[tokio::test]
async fn every_mutation_says_503_while_the_store_fails_and_changes_nothing_but_what_it_ends() {
    let world = world().await;
    let ann = world.user("ann@example.com").await;
    let app = &world.app;
    let (kept, ended, felled) = (
        world.create(&ann, json!({})).await.unwrap(),
        world.create(&ann, json!({})).await.unwrap(),
        world.create(&ann, json!({})).await.unwrap(),
    );
    let agent = json!({"name": "a", "model": "auto"});
    let made = agents::create(app, &OPEN, &request("/v1/agents", Some(agent))).await.unwrap();
    let mut of_agent = request("/v1/agents/a", None);
    of_agent.extensions_mut().insert(PathParams(vec!["a".to_owned()]));
    let account = |email: &str| json!({"email": email, "password": "correct horse"});
    let passwords = json!({"current_password": "correct horse", "new_password": "battery staple"});
    let at = |body: Value| request(&format!("/v1/router/keys/{}", text(&kept["id"])), Some(body));
    world.faults.fail_every_write();
    let nobody = &Principal::Anonymous;
    let answers = [
        ("create", keys::create(app, &ann, &request("/v1/router/keys", Some(json!({})))).await),
        ("create pin", keys::create(app, &ann, &request("/v1/apikeys", Some(json!({})))).await),
        (
            "create agent's",
            keys::create(app, &OPEN, &request("/v1/api-keys", Some(json!({})))).await,
        ),
        ("patch", keys::patch(app, &ann, &at(json!({"name": "x", "status": "inactive"}))).await),
        ("rotate", keys::rotate(app, &ann, &at(json!({}))).await),
        (
            "revoke",
            keys::revoke(
                app,
                &ann,
                &request(&format!("/v1/router/keys/{}", text(&ended["id"])), None),
            )
            .await,
        ),
        (
            "end",
            keys::revoke(
                app,
                &ann,
                &request(
                    &format!("/v1/router/keys/{}?descendants=true", text(&felled["id"])),
                    None,
                ),
            )
            .await,
        ),
        (
            "register",
            pin::register(
                app,
                nobody,
                &request("/v1/auth/register", Some(account("bob@example.com"))),
            )
            .await,
        ),
        (
            "login",
            pin::login(app, nobody, &request("/v1/auth/login", Some(account("ann@example.com"))))
                .await,
        ),
        ("logout", pin::logout(app, &ann, &request("/v1/auth/logout", None)).await),
        (
            "password",
            pin::password(app, &ann, &request("/v1/auth/password", Some(passwords))).await,
        ),
        (
            "agent",
            agents::create(
                app,
                &OPEN,
                &request("/v1/agents", Some(json!({"name": "b", "model": "auto"}))),
            )
            .await,
        ),
        ("delete agent", agents::delete(app, &OPEN, &of_agent).await),
    ];
    for (what, answer) in answers {
        let error = answer.err().unwrap_or_else(|| panic!("{what} was acknowledged"));
        assert_eq!((error.kind(), error.retry_after_s()), (Kind::Unavailable, Some(1)), "{what}");
    }
    world.faults.clear();
    assert_eq!(
        [&kept, &ended, &felled].map(|key| world.why_not(&key["key"])),
        ["good", "revoked", "revoked"]
    );
    let shown = world.get(&ann, text(&kept["id"])).await.unwrap();
    assert_eq!(
        (&shown["name"], &shown["rotated_at"], &shown["status"]),
        (&json!("key"), &Value::Null, &json!("active"))
    );
    assert_eq!(read(&agents::get(app, &OPEN, &of_agent).await.unwrap()), read(&made));
    let again =
        pin::login(app, nobody, &request("/v1/auth/login", Some(account("ann@example.com")))).await;
    assert_eq!(again.unwrap().status(), StatusCode::OK, "with the old password");
    pin::register(app, nobody, &request("/v1/auth/register", Some(account("bob@example.com"))))
        .await
        .unwrap();
}
