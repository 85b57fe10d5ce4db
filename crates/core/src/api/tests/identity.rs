//! Rotation, the end of sessions, and AGENT's keys, as plain calls.

use super::*;
use rerouter_access::auth::{AgentCredential, Credential};
use rerouter_store::{Role, UserRow};

/// A request for the object `id` below `path`.
pub(super) fn of(path: &str, id: &str, body: Option<Value>) -> Request<Bytes> {
    let mut request = request(&format!("{path}/{id}"), body);
    request.extensions_mut().insert(PathParams(vec![id.to_owned()]));
    request
}

pub(super) const OPEN: Principal = Principal::AgentTenant { via: AgentCredential::Open };

impl TestApi {
    /// Checks that `who` can neither get a secret of the key nor end it, by any call.
    async fn neither_has_nor_ends(&self, who: &Principal, key: &Value, refused: Kind) {
        let (id, before) = (text(&key["id"]), self.get(&Principal::Admin, text(&key["id"])).await);
        assert_eq!(kind(self.rotate(who, id, json!({})).await).0, refused);
        assert_eq!(kind(self.revoke(who, id).await).0, refused);
        assert_eq!(kind(self.revoke(who, &format!("{id}?descendants=true")).await).0, refused);
        let now = self.app.clock.now() + Duration::from_secs(60);
        for (field, patch) in [
            ("status", json!({"status": "inactive"})),
            ("expires_at", json!({"expires_at": now.to_string()})),
        ] {
            let mut request = of("/v1/router/keys", id, Some(patch));
            *request.method_mut() = http::Method::PATCH;
            let told = kind(keys::patch(&self.app, who, &request).await);
            let field = (refused == Kind::Forbidden).then(|| field.to_owned());
            assert_eq!(told, (refused, field));
        }
        // Compared before the next check, which uses the key.
        assert_eq!(self.get(&Principal::Admin, id).await.unwrap(), before.unwrap());
        assert_eq!(self.why(&key["key"]), "good");
    }

    async fn rotate(&self, who: &Principal, id: &str, body: Value) -> Result<Value> {
        let answer = keys::rotate(&self.app, who, &of("/v1/router/keys", id, Some(body))).await?;
        assert_eq!(
            (answer.status(), &answer.headers()[CACHE_CONTROL]),
            (StatusCode::OK, &HeaderValue::from_static("no-store"))
        );
        Ok(read(&answer))
    }
}

#[tokio::test]
async fn a_rotation_ends_the_old_secret_at_once_or_after_its_grace() {
    let mut world = world().await;
    let (ann, bob) = (world.user("ann@example.com").await, world.user("bob@example.com").await);
    let made = world
        .create(&ann, json!({"name": "ci", "expires_at": "2025-11-25T00:00:00Z"}))
        .await
        .unwrap();
    let id = text(&made["id"]);
    let first = world.rotate(&ann, id, json!({})).await.unwrap();
    assert_eq!((world.why(&made["key"]), world.why(&first["key"])), ("unknown", "good"));
    let mut expected = made.clone();
    for name in ["key", "redacted"] {
        assert_ne!(first[name], made[name]);
        expected[name] = first[name].clone();
    }
    expected["rotated_at"] = json!("2025-11-24T16:00:00.000000Z");
    assert_eq!(first, expected);

    let second = world.rotate(&ann, id, json!({"grace_period_seconds": 604_800})).await.unwrap();
    assert_eq!(second["previous_secret_expires_at"], "2025-12-01T16:00:00.000000Z");
    assert_eq!((world.why(&first["key"]), world.why(&second["key"])), ("good", "good"));
    let third = world.rotate(&ann, id, json!({"grace_period_seconds": 60})).await.unwrap();
    assert_eq!(
        (world.why(&first["key"]), world.why(&second["key"]), world.why(&third["key"])),
        ("unknown", "good", "good")
    );
    world.start_again(None).await;
    world.app.clock.advance(Duration::from_secs(59));
    assert_eq!((world.why(&second["key"]), world.why(&third["key"])), ("good", "good"));
    world.app.clock.advance(Duration::from_secs(1));
    assert_eq!((world.why(&second["key"]), world.why(&third["key"])), ("expired", "good"));
    assert_eq!(world.get(&ann, id).await.unwrap()["previous_secret_expires_at"], Value::Null);

    for body in [
        json!({"grace_period_seconds": -1}),
        json!({"grace_period_seconds": 604_801}),
        json!({"grace_period_seconds": 1.5}),
        json!({"grace_period_seconds": "60"}),
        json!({"grace": 60}),
    ] {
        assert_eq!(kind(world.rotate(&ann, id, body).await).0, Kind::InvalidRequest);
    }
    assert_eq!(kind(world.rotate(&bob, id, json!({})).await).0, Kind::NotFound);
    world.app.clock.advance(Duration::from_secs(24 * 3600));
    assert_eq!(kind(world.rotate(&ann, id, json!({})).await), (Kind::Conflict, None));
    assert_eq!(world.why(&third["key"]), "expired");
}

#[tokio::test]
async fn a_revocation_ends_both_secrets_and_a_failing_store_neither() {
    let world = world().await;
    let made = world.create(&Principal::Admin, json!({})).await.unwrap();
    let id = text(&made["id"]);
    world.faults.fail_every_write();
    let error = world.rotate(&Principal::Admin, id, json!({})).await.unwrap_err();
    assert_eq!((error.kind(), error.retry_after_s()), (Kind::Unavailable, Some(1)));
    assert_eq!(world.why(&made["key"]), "good");
    assert_eq!(world.get(&Principal::Admin, id).await.unwrap()["rotated_at"], Value::Null);
    world.faults.clear();
    let rotated =
        world.rotate(&Principal::Admin, id, json!({"grace_period_seconds": 60})).await.unwrap();
    assert_eq!((world.why(&made["key"]), world.why(&rotated["key"])), ("good", "good"));
    world.faults.fail_every_write();
    world.revoke(&Principal::Admin, id).await.unwrap_err();
    assert_eq!((world.why(&made["key"]), world.why(&rotated["key"])), ("revoked", "revoked"));
    world.faults.clear();
    // The key is revoked in memory, though the store may not know it yet.
    assert_eq!(kind(world.rotate(&Principal::Admin, id, json!({})).await).0, Kind::KeyRevoked);
    assert_eq!(world.revoke(&Principal::Admin, id).await.unwrap(), StatusCode::NO_CONTENT);
    assert_eq!(kind(world.rotate(&Principal::Admin, id, json!({})).await).0, Kind::KeyRevoked);
}

#[tokio::test]
async fn no_key_gets_the_secret_of_one_that_may_do_more() {
    let world = world().await;
    let ann = world.user("ann@example.com").await;
    // These keys reach all keys of their owner.
    let owner = ann.user_id();
    let scopes = ["keys", "inference", "replay:all"];
    let all = json!({"owner": owner, "scopes": scopes});
    let all = world.create(&Principal::Admin, all).await.unwrap();
    let small = json!({
        "owner": owner, "scopes": scopes, "limits": {"models": ["auto"]},
        "expires_at": "2025-11-25T00:00:00Z"
    });
    let small = world.create(&Principal::Admin, small).await.unwrap();
    let by_small = world.router(text(&small["key"]));
    let child = world.create(&by_small, json!({"scopes": ["inference"]})).await.unwrap();
    for body in [
        json!({"scopes": ["keys"], "limits": {"models": ["auto"]}}),
        json!({
            "scopes": ["keys"], "limits": {"models": ["*"]}, "expires_at": "2025-11-25T00:00:00Z"
        }),
        json!({
            "scopes": ["evaluate"], "limits": {"models": ["auto"]},
            "expires_at": "2025-11-25T00:00:00Z"
        }),
    ] {
        let mut body = body;
        body["owner"] = json!(owner);
        let greater = world.create(&Principal::Admin, body).await.unwrap();
        world.neither_has_nor_ends(&by_small, &greater, Kind::Forbidden).await;
    }
    // A key with equal rights that is neither a descendant nor an ancestor is out of reach, too.
    let (plain, other) = (json!({"scopes": ["keys"]}), json!({"scopes": ["keys"]}));
    let plain = world.create(&ann, plain).await.unwrap();
    let other = world.create(&ann, other).await.unwrap();
    let by_plain = world.router(text(&plain["key"]));
    world.neither_has_nor_ends(&by_plain, &other, Kind::NotFound).await;
    assert_eq!(kind(world.get(&by_plain, text(&other["id"])).await).0, Kind::NotFound);
    let listed = world.list(&by_plain, "").await.unwrap();
    assert_eq!(listed["data"].as_array().unwrap().len(), 1);
    assert_eq!(listed["data"][0]["id"], plain["id"]);
    let labelled =
        json!({"owner": ann.user_id(), "labels": {"tier": "gold"}, "scopes": ["inference"]});
    let labelled = world.create(&Principal::Admin, labelled).await.unwrap();
    let by_all = world.router(text(&all["key"]));
    world.neither_has_nor_ends(&by_all, &labelled, Kind::Forbidden).await;
    assert_eq!(world.revoke(&by_all, text(&other["id"])).await.unwrap(), StatusCode::NO_CONTENT);
    // An admin may end every key, and a key may end itself.
    let (bob, _) = world.admin("bob@example.com").await;
    let operators = world.create(&Principal::Admin, json!({})).await.unwrap();
    assert_eq!(
        kind(world.rotate(&bob, text(&operators["id"]), json!({})).await).0,
        Kind::Forbidden
    );
    assert_eq!(world.revoke(&bob, text(&operators["id"])).await.unwrap(), StatusCode::NO_CONTENT);
    assert_eq!(world.revoke(&by_plain, text(&plain["id"])).await.unwrap(), StatusCode::NO_CONTENT);
    world.rotate(&by_small, text(&child["id"]), json!({})).await.unwrap();
    let own = world.rotate(&by_small, text(&small["id"]), json!({})).await.unwrap();
    assert_eq!((world.why(&small["key"]), world.why(&own["key"])), ("unknown", "good"));
    world.rotate(&ann, text(&labelled["id"]), json!({})).await.unwrap();
}

/// An admin could keep the new secret of a key of the built-in user after losing the role.
#[tokio::test]
async fn an_admin_takes_no_secret_that_would_outlive_the_role() {
    let world = world().await;
    let Principal::User { user, via } = world.user("ann@example.com").await else {
        panic!("a user")
    };
    let admin = Principal::User {
        user: std::sync::Arc::new(UserRow { role: Role::Admin, ..UserRow::clone(&user) }),
        via,
    };
    let made = world.create(&Principal::Admin, json!({"scopes": ["admin", "keys"]})).await.unwrap();
    let refused = kind(world.rotate(&admin, text(&made["id"]), json!({})).await);
    assert_eq!((refused.0, world.why(&made["key"])), (Kind::Forbidden, "good"));
    world.rotate(&Principal::Admin, text(&made["id"]), json!({})).await.unwrap();
}

/// Limits are counted per key: with the secret of an equally limited key, a key would have its
/// limits twice.
#[tokio::test]
async fn no_key_leaves_its_limits_behind_by_a_rotation() {
    let world = world().await;
    let ann = world.user("ann@example.com").await;
    let scopes = ["inference", "keys", "replay:all"];
    let limited = json!({
        "owner": ann.user_id(), "scopes": scopes,
        "limits": {"rpm": 10, "budget": {"usd": 5, "per": "day"}}
    });
    let own = world.create(&Principal::Admin, limited.clone()).await.unwrap();
    let twin = world.create(&Principal::Admin, limited).await.unwrap();
    let by_own = world.router(text(&own["key"]));
    let makes = || json!({"scopes": ["inference", "keys"]});
    let child = world.create(&by_own, makes()).await.unwrap();
    let by_child = world.router(text(&child["key"]));
    let grandchild = world.create(&by_child, makes()).await.unwrap();
    world.neither_has_nor_ends(&by_own, &twin, Kind::Forbidden).await;
    for other in [&own, &twin] {
        world.neither_has_nor_ends(&by_child, other, Kind::NotFound).await;
    }
    world.rotate(&by_own, text(&grandchild["id"]), json!({})).await.unwrap();
    world.rotate(&by_own, text(&child["id"]), json!({})).await.unwrap();
    world.rotate(&ann, text(&twin["id"]), json!({})).await.unwrap();
    // Keys without counted limits may rotate each other.
    let free = json!({"owner": ann.user_id(), "scopes": scopes});
    let (free, other) = (
        world.create(&Principal::Admin, free).await.unwrap(),
        world.create(&ann, json!({})).await.unwrap(),
    );
    world.rotate(&world.router(text(&free["key"])), text(&other["id"]), json!({})).await.unwrap();
}

#[tokio::test]
async fn pin_keys_are_of_users_and_only_admins_make_admin_keys() {
    let world = world().await;
    let ann = world.user("ann@example.com").await;
    let create = async |who: &Principal, body: Value| {
        keys::create(&world.app, who, &request("/v1/apikeys", Some(body)))
            .await
            .map(|answer| read(&answer))
    };
    let made = create(&ann, json!({})).await.unwrap();
    assert_eq!(
        (&made["interface"], &made["scopes"], &made["owner"]),
        (&json!("pin"), &json!(["user"]), &json!(ann.user_id()))
    );
    assert!(text(&made["key"]).starts_with("pin_"));
    let by_key = world.bearer(Surface::Pin, text(&made["key"])).unwrap();
    assert!(by_key.has_scope("user") && !by_key.is_admin() && !by_key.has_scope("keys"));
    assert!(world.bearer(Surface::RouterManagement, text(&made["key"])).is_err());
    for who in [&ann, &by_key] {
        assert_eq!(
            kind(create(who, json!({"scopes": ["admin"]})).await),
            (Kind::Forbidden, Some("scopes".to_owned()))
        );
    }
    assert_eq!(kind(create(&ann, json!({"scopes": ["inference"]})).await).0, Kind::InvalidRequest);
    let admin = create(&Principal::Admin, json!({"scopes": ["admin"]})).await.unwrap();
    assert!(world.bearer(Surface::Pin, text(&admin["key"])).unwrap().is_admin());
    // A key with the scope `admin` makes no one an admin who is not an admin anyway.
    let given = create(&Principal::Admin, json!({"scopes": ["admin"], "owner": ann.user_id()}))
        .await
        .unwrap();
    assert!(!world.bearer(Surface::Pin, text(&given["key"])).unwrap().is_admin());
}

/// An admin may lose the role later, but keys given to others would keep it.
#[tokio::test]
async fn only_the_admin_key_itself_makes_admins_of_others() {
    let world = world().await;
    let (ann, bob) = (world.user("ann@example.com").await, world.user("bob@example.com").await);
    let id = ann.user_id().unwrap();
    let promote: rerouter_store::ChangeUser =
        std::sync::Arc::new(|user: &mut rerouter_store::UserRow| {
            user.role = rerouter_store::Role::Admin;
            Ok(())
        });
    world.app.store.update_user(&id, false, promote).await.unwrap();
    let Principal::User { via, .. } = ann else { panic!("a session is of a user") };
    let ann = Principal::User { user: world.app.auth.user(&id).unwrap(), via };
    let own = world.create(&ann, json!({"scopes": ["admin", "keys"]})).await.unwrap();
    let by_key = world.router(text(&own["key"]));
    assert!(ann.is_admin() && by_key.is_admin());
    for who in [&ann, &by_key] {
        let (forbidden, body) = (Kind::Forbidden, json!({"owner": "usr_admin"}));
        assert_eq!(kind(world.create(who, body).await), (forbidden, Some("owner".to_owned())));
        let body = json!({"owner": bob.user_id(), "scopes": ["admin"]});
        assert_eq!(kind(world.create(who, body).await), (forbidden, Some("scopes".to_owned())));
        world
            .create(who, json!({"owner": bob.user_id(), "scopes": ["inference", "config"]}))
            .await
            .unwrap();
        world.create(who, json!({"owner": id, "scopes": ["admin"]})).await.unwrap();
    }
    world
        .create(&Principal::Admin, json!({"owner": "usr_admin", "scopes": ["admin"]}))
        .await
        .unwrap();
    world
        .create(&Principal::Admin, json!({"owner": bob.user_id(), "scopes": ["admin"]}))
        .await
        .unwrap();
}

#[tokio::test]
async fn keys_made_while_agent_was_open_sleep_while_it_is_enforced() {
    let mut world = world().await;
    let create = async |world: &TestApi, who: &Principal, body: Value| {
        keys::create(&world.app, who, &request("/v1/api-keys", Some(body)))
            .await
            .map(|answer| read(&answer))
    };
    let made = create(&world, &OPEN, json!({})).await.unwrap();
    assert_eq!((&made["status"], &made["scopes"]), (&json!("active"), &json!(["agents", "keys"])));
    assert_eq!(
        (&made["owner"], &made["created_by"]["type"]),
        (&json!("usr_agent"), &json!("anonymous"))
    );
    assert_eq!(kind(create(&world, &OPEN, json!({"owner": "usr_admin"})).await).0, Kind::Forbidden);

    world.start_again(Some("cloud")).await;
    assert_eq!(world.bearer(Surface::Agent, text(&made["key"])).unwrap_err(), "inactive");
    let cloud = world.bearer(Surface::Agent, "cloud").unwrap();
    let own = create(&world, &cloud, json!({"scopes": ["keys"]})).await.unwrap();
    assert_eq!(
        (&own["status"], &own["created_by"]["type"]),
        (&json!("active"), &json!("cloud_key"))
    );
    world.start_again(Some("cloud")).await;
    let listed =
        read(&keys::list(&world.app, &cloud, &request("/v1/api-keys", None)).await.unwrap());
    let statuses: Vec<&str> =
        listed["data"].as_array().unwrap().iter().map(|key| text(&key["status"])).collect();
    assert_eq!(statuses.len(), 2, "AGENT_CLOUD_API_KEY is not listed: {listed}");
    assert!(statuses.contains(&"inactive"));
    let by_key = world.bearer(Surface::Agent, text(&own["key"])).unwrap();
    assert!(
        by_key.has_scope("keys") && !by_key.has_scope("agents") && !by_key.has_scope("inference")
    );
    assert_eq!(
        kind(create(&world, &by_key, json!({"scopes": ["agents"]})).await).0,
        Kind::Forbidden
    );

    // A rotation does not activate a key.
    let rotated = keys::rotate(&world.app, &cloud, &of("/v1/api-keys", text(&made["id"]), None))
        .await
        .unwrap();
    world.start_again(Some("cloud")).await;
    let theirs = text(&read(&rotated)["key"]).to_owned();
    assert_eq!(world.bearer(Surface::Agent, &theirs).unwrap_err(), "inactive");
    // A key with fewer rights does not activate it either. A caller with a credential who activates
    // it vouches for it permanently.
    let patch = async |world: &TestApi, who: &Principal, key: &Value, body: Value| {
        let mut request = of("/v1/api-keys", text(&key["id"]), Some(body));
        *request.method_mut() = http::Method::PATCH;
        keys::patch(&world.app, who, &request).await.map(|answer| read(&answer))
    };
    let active = json!({"status": "active"});
    assert_eq!(kind(patch(&world, &by_key, &made, active.clone()).await).0, Kind::Forbidden);
    for asleep in [json!({"name": "kept"}), json!({}), json!({"status": "inactive"})] {
        let patched = patch(&world, &cloud, &made, asleep.clone()).await.unwrap();
        assert_eq!(patched["status"], "inactive", "{asleep}");
        world.start_again(Some("cloud")).await;
        assert_eq!(world.bearer(Surface::Agent, &theirs).unwrap_err(), "inactive", "{asleep}");
    }
    patch(&world, &cloud, &made, active).await.unwrap();
    for _ in 0..2 {
        world.start_again(Some("cloud")).await;
        assert!(world.bearer(Surface::Agent, &theirs).is_ok());
    }
    patch(&world, &cloud, &own, json!({"limits": {"models": ["auto"]}})).await.unwrap();
    let labelled = patch(&world, &cloud, &own, json!({"labels": {"a": "b"}})).await;
    assert_eq!(kind(labelled).0, Kind::Forbidden, "AGENT has no admin");
    world.start_again(Some("cloud")).await;
    let wider = patch(&world, &cloud, &own, json!({"limits": null})).await;
    assert_eq!(kind(wider), (Kind::Forbidden, Some("limits.models".to_owned())));
    world.start_again(None).await;
    assert_eq!(
        kind(patch(&world, &OPEN, &made, json!({"status": "inactive"})).await).0,
        Kind::Forbidden,
        "it is no stranger's any more"
    );
    assert_eq!(kind(patch(&world, &OPEN, &own, json!({"name": "taken"})).await).0, Kind::Forbidden);
    assert_eq!(
        read(
            &keys::get(&world.app, &OPEN, &of("/v1/api-keys", text(&made["id"]), None))
                .await
                .unwrap()
        )["status"],
        "active"
    );
}

async fn log_in(world: &TestApi, password: &str) -> Result<(Principal, String)> {
    let body = json!({"email": "ann@example.com", "password": password});
    let answer =
        pin::login(&world.app, &Principal::Anonymous, &request("/v1/auth/login", Some(body)))
            .await?;
    let token = text(&read(&answer)["token"]).to_owned();
    Ok((world.router(&token), token))
}

#[tokio::test]
async fn a_logout_ends_the_session_and_its_token_for_good() {
    let mut world = world().await;
    world.user("ann@example.com").await;
    let (ann, token) = log_in(&world, "correct horse").await.unwrap();
    let (_, other) = log_in(&world, "correct horse").await.unwrap();
    let send = || request("/v1/auth/logout", None);
    world.faults.fail_every_write();
    assert_eq!(kind(pin::logout(&world.app, &ann, &send()).await).0, Kind::Unavailable);
    assert!(world.bearer(Surface::Pin, &token).is_ok(), "not ended, so that it can be said again");
    world.faults.clear();
    let answer = pin::logout(&world.app, &ann, &send()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::NO_CONTENT);
    assert_eq!(
        answer.headers()[SET_COOKIE],
        "rerouter_session=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax"
    );
    for _ in 0..2 {
        assert_eq!(world.bearer(Surface::Pin, &token).unwrap_err(), "unknown");
        assert!(world.bearer(Surface::Pin, &other).is_ok());
        world.start_again(None).await;
    }
    assert_eq!(kind(pin::logout(&world.app, &Principal::Admin, &send()).await).0, Kind::Forbidden);
}

#[tokio::test]
async fn a_new_password_ends_every_other_session() {
    let world = world().await;
    world.user("ann@example.com").await;
    let (ann, token) = log_in(&world, "correct horse").await.unwrap();
    let (_, other) = log_in(&world, "correct horse").await.unwrap();
    assert!(matches!(ann, Principal::User { via: Credential::Session(_), .. }));
    let change = async |who: &Principal, current: &str, new: &str| {
        let body = json!({"current_password": current, "new_password": new});
        pin::password(&world.app, who, &request("/v1/auth/password", Some(body)))
            .await
            .map(|answer| answer.status())
    };
    assert_eq!(kind(change(&ann, "wrong", "battery staple").await), (Kind::Unauthorized, None));
    assert_eq!(
        kind(change(&ann, "correct horse", "short").await),
        (Kind::InvalidRequest, Some("new_password".to_owned()))
    );
    assert_eq!(kind(change(&Principal::Admin, "a", "battery staple").await).0, Kind::Forbidden);
    assert_eq!(
        change(&ann, "correct horse", "battery staple").await.unwrap(),
        StatusCode::NO_CONTENT
    );
    assert!(world.bearer(Surface::Pin, &token).is_ok());
    assert_eq!(world.bearer(Surface::Pin, &other).unwrap_err(), "unknown");
    assert_eq!(kind(log_in(&world, "correct horse").await.map(|_| ())).0, Kind::Unauthorized);
    log_in(&world, "battery staple").await.unwrap();
    // `ann` is the principal from before the change, whose row holds the old hash.
    assert_eq!(kind(change(&ann, "correct horse", "another one").await).0, Kind::Conflict);
    for _ in 0..2 {
        assert_eq!(kind(change(&ann, "wrong", "battery staple").await).0, Kind::Unauthorized);
    }
    assert_eq!(
        kind(change(&ann, "correct horse", "battery staple").await).0,
        Kind::RateLimited,
        "counted with the logins"
    );
}
