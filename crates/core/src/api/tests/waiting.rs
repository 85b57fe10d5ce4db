//! Calls whose caller loses the right to make them while they wait.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::handlers::users;
use super::*;
use crate::api::routing;
use rerouter_store::{StoreError, UserRow};

/// Polls a future once, up to the point where it waits.
fn begin<F: Future>(future: std::pin::Pin<&mut F>) {
    assert!(
        matches!(future.poll(&mut Context::from_waker(Waker::noop())), Poll::Pending),
        "it waits"
    );
}

async fn an_admin(world: &TestApi) -> (Principal, UserId) {
    let id = world.user("bob@example.com").await.user_id().unwrap();
    world.set_role(&id, "admin").await;
    let body = json!({"email": "bob@example.com", "password": "correct horse"});
    let answer =
        pin::login(&world.app, &Principal::Anonymous, &request("/v1/auth/login", Some(body)))
            .await
            .unwrap();
    let bob = world.router(text(&read(&answer)["token"]));
    assert!(bob.is_admin());
    (bob, id)
}

#[tokio::test]
async fn a_document_of_who_is_an_admin_no_more_does_not_become_live() {
    let world = world_with("routing: { file: routing.yaml }").await;
    let (bob, id) = an_admin(&world).await;
    let before = world.app.revision();
    let turn = world.app.configuring.acquire().await.unwrap();
    let mut asked = request("/v1/router/config", None);
    *asked.body_mut() =
        Bytes::from(config::demo_routing().replace("latency: 20ms", "latency: 30ms"));
    let mut put = pin!(routing::put(&world.app, &bob, &asked));
    begin(put.as_mut());
    world.set_role(&id, "user").await;
    drop(turn);
    assert_eq!(kind(put.await), (Kind::Forbidden, None));
    assert_eq!(world.app.revision(), before);
}

#[tokio::test]
async fn a_user_of_who_is_an_admin_no_more_is_not_made() {
    for disabling in [false, true] {
        let world = world().await;
        let (bob, id) = an_admin(&world).await;
        let asked = request(
            "/v1/users",
            Some(json!({"email": "eve@example.com", "password": "correct horse", "role": "admin"})),
        );
        // The password is hashed on another thread; the call goes on only after the demotion is
        // answered.
        let mut create = pin!(users::create(&world.app, &bob, &asked));
        begin(create.as_mut());
        if disabling {
            let mut patch = request(&format!("/v1/users/{id}"), Some(json!({"disabled": true})));
            patch.extensions_mut().insert(PathParams(vec![id.to_string()]));
            users::update(&world.app, &Principal::Admin, &patch).await.unwrap();
        } else {
            world.set_role(&id, "user").await;
        }
        assert_eq!(kind(create.await), (Kind::Forbidden, None));
        assert!(world.app.auth.user_by_email("eve@example.com").is_none());
    }
}

#[tokio::test]
async fn a_login_without_a_slot_to_be_checked_is_no_try() {
    let world = world().await;
    let ann = world.user("ann@example.com").await;
    let asked = |password: &str| {
        request("/v1/auth/login", Some(json!({"email": "ann@example.com", "password": password})))
    };
    let mut slots = Vec::new();
    while let Ok(slot) = world.app.passwords.slot(None) {
        slots.push(slot);
    }
    for _ in 0..50 {
        let refused = pin::login(&world.app, &Principal::Anonymous, &asked("correct horse"))
            .await
            .unwrap_err();
        assert_eq!(refused.kind(), Kind::Unavailable);
    }
    let change = json!({"current_password": "correct horse", "new_password": "another horse"});
    for _ in 0..50 {
        let account = json!({"email": "eve@example.com", "password": "correct horse"});
        let refused = pin::register(
            &world.app,
            &Principal::Anonymous,
            &request("/v1/auth/register", Some(account)),
        )
        .await
        .unwrap_err();
        assert_eq!(refused.kind(), Kind::Unavailable);
        let refused =
            pin::password(&world.app, &ann, &request("/v1/auth/password", Some(change.clone())))
                .await
                .unwrap_err();
        assert_eq!(refused.kind(), Kind::Unavailable);
    }
    drop(slots);
    assert!(
        pin::login(&world.app, &Principal::Anonymous, &asked("correct horse")).await.is_ok(),
        "none of them counted"
    );
    world.user("eve@example.com").await;
    // A caller with too many attempts is told so, even if no hashing slot is free.
    while pin::login(&world.app, &Principal::Anonymous, &asked("wrong")).await.unwrap_err().kind()
        == Kind::Unauthorized
    {}
    let _slots: Vec<_> = std::iter::from_fn(|| world.app.passwords.slot(None).ok()).collect();
    let told =
        pin::login(&world.app, &Principal::Anonymous, &asked("correct horse")).await.unwrap_err();
    assert_eq!(told.kind(), Kind::RateLimited);
}

#[tokio::test]
async fn what_a_key_began_with_a_secret_that_is_gone_is_not_done() {
    let world = world().await;
    for grace in [0, 3_600] {
        let made = world.create(&Principal::Admin, json!({"scopes": ["config"]})).await.unwrap();
        let who = world.router(text(&made["key"]));
        assert!(world.app.auth.recheck(&who, world.app.clock.now()).is_ok());
        let asked = super::identity::of(
            "/v1/router/keys",
            text(&made["id"]),
            Some(json!({"grace_period_seconds": grace})),
        );
        keys::rotate(&world.app, &Principal::Admin, &asked).await.unwrap();
        assert_eq!(world.app.auth.recheck(&who, world.app.clock.now()).is_ok(), grace > 0);
    }
}

#[tokio::test]
async fn an_admin_of_before_makes_nobody_however_late_the_store_hears_of_it() {
    let world = world().await;
    let (_, id) = an_admin(&world).await;
    let eve = UserRow {
        id: UserId::new(world.app.clock.now(), &world.app.random),
        email: "eve@example.com".into(),
        ..(*world.app.auth.user(&id).unwrap()).clone()
    };
    for (role, made) in [("user", false), ("admin", true)] {
        world.set_role(&id, role).await;
        let created = world.app.store.create_user_by(eve.clone(), Some(id.clone())).await;
        assert!(
            if made { created.is_ok() } else { matches!(created, Err(StoreError::Stale)) },
            "{role}"
        );
    }
}
