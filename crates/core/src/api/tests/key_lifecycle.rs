//! Keys, from creation to revocation.

use super::*;
use crate::api::keys::KEY_DESCENT;

#[tokio::test]
async fn a_key_lives_from_creation_to_revocation() {
    let world = world().await;
    let ann = world.user("ann@example.com").await;
    let body = json!({"scopes": ["keys", "inference"]});
    let asked = request("/v1/router/keys", Some(body));
    let answer = keys::create(&world.app, &ann, &asked).await.unwrap();
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
        "scopes": ["inference", "keys"], "labels": {}, "limits": {},
        "status": "active", "created_at": "2025-11-24T16:00:00.000000Z", "expires_at": null,
        "last_used_at": null, "revoked_at": null,
        "rotated_at": null, "previous_secret_expires_at": null, "metadata": {},
    });
    assert_eq!(made, expected);
    let by_key = world.router(text(&secret));
    let me = read(&pin::me(&world.app, &by_key, &request("/v1/auth/me", None)).await.unwrap());
    assert_eq!(me["auth"], json!({"type": "api_key", "key_id": made["id"]}));
    assert!(world.bearer(Surface::Pin, text(&secret)).is_err());

    // A key may revoke itself. A repeat gets the same answer. The key is no longer in the default
    // list, but still exists.
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
    assert_eq!(child["scopes"], json!(["inference"]), "the least is the default");
    assert_eq!(world.create(&ann, json!({})).await.unwrap()["scopes"], json!(["inference"]));
    // A key without the default scope has to name the scopes that it grants.
    let bare = world.create(&ann, json!({"scopes": ["keys"]})).await.unwrap();
    let by_bare = world.router(text(&bare["key"]));
    let unnamed = world.create(&by_bare, json!({"name": "a"})).await;
    assert_eq!(kind(unnamed), (Kind::InvalidRequest, Some("scopes".to_owned())));
    let named = world.create(&by_bare, json!({"scopes": ["keys"]})).await.unwrap();
    assert_eq!(named["scopes"], json!(["keys"]));
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
        (json!({"scopes": ["replay:all"]}), "scopes"),
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
    for scope in ["config", "replay:all"] {
        let body = json!({ "scopes": [scope] });
        assert_eq!(kind(world.create(&ann, body).await).0, Kind::Forbidden);
    }
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
    let maker = json!({"scopes": ["inference", "keys"], "limits": {"keys_per_user": 2, "rpm": 5}});
    let few = world.create(&ann, maker).await.unwrap();
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
    for _ in 0..KEY_DESCENT {
        let body = json!({"scopes": ["inference", "keys"]});
        let key = world.create(&maker, body).await.unwrap();
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
