//! Disabling a user while the store fails, and refused logins, as plain calls.

use super::handlers::users;
use super::*;
use crate::api::pin::{PASSWORD_MAX, SESSIONS_PER_USER};
use rerouter_store::AuditFilter;

impl TestApi {
    async fn change_user(&self, id: &str, body: Value) -> Result<Value> {
        let mut asked = request(&format!("/v1/users/{id}"), Some(body));
        asked.extensions_mut().insert(PathParams(vec![id.to_owned()]));
        users::update(&self.app, &Principal::Admin, &asked).await.map(|answer| read(&answer))
    }

    async fn actions(&self) -> Vec<String> {
        let rows = self.app.store.audit(AuditFilter::default(), 100, None).await.unwrap().unwrap();
        rows.into_iter().map(|row| row.action).collect()
    }
}

#[tokio::test]
async fn with_the_store_down_who_is_disabled_is_out_and_stays_out_once_it_is_well() {
    let world = world().await;
    let ann = world.user("ann@example.com").await;
    let id = ann.user_id().unwrap();
    let key = world.create(&ann, json!({})).await.unwrap();
    let why = || world.bearer(Surface::DataPlane, text(&key["key"])).err();
    world.faults.fail_every_write();
    let disable = || world.change_user(id.as_str(), json!({"disabled": true}));
    assert_eq!(kind(disable().await).0, Kind::Unavailable);
    assert_eq!(why(), Some("disabled"));
    assert_eq!(kind(disable().await).0, Kind::Unavailable, "said again");
    // Neither another change of the row nor an attempt to enable the user again lets the user in.
    assert_eq!(
        kind(world.change_user(id.as_str(), json!({"disabled": false})).await).0,
        Kind::Unavailable
    );
    world.faults.clear();
    let outcome = tokio::time::timeout(Duration::from_secs(20), async {
        while world.app.auth.is_being_disabled(&id) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    outcome.await.unwrap();
    assert_eq!(why(), Some("disabled"));
    let stored = world.app.store.load().await.unwrap();
    assert!(stored.users[0].disabled && stored.sessions.is_empty());
    assert_eq!(world.actions().await.iter().filter(|action| *action == "user.disable").count(), 1);
    assert_eq!(
        world.change_user(id.as_str(), json!({"disabled": false})).await.unwrap()["disabled"],
        false
    );
    assert_eq!(why(), None);
    // A repeat succeeds at once when the store works again. A later change stays, though the task
    // of the first call still runs.
    world.faults.fail_writes(1);
    assert_eq!(kind(disable().await).0, Kind::Unavailable);
    assert_eq!(disable().await.unwrap()["disabled"], true);
    world.change_user(id.as_str(), json!({"disabled": false})).await.unwrap();
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(15)).await;
        assert_eq!(why(), None);
    }
    let told: Vec<String> =
        world.actions().await.into_iter().filter(|action| action.starts_with("user.")).collect();
    assert_eq!(told, ["user.update", "user.disable", "user.update", "user.disable", "user.create"]);
}

#[tokio::test]
async fn the_last_admin_stays_whatever_is_still_on_its_way_to_the_store() {
    let world = world().await;
    let mut ids = Vec::new();
    for email in ["ann@example.com", "bob@example.com"] {
        ids.push(world.user(email).await.user_id().unwrap());
    }
    let session = async |email: &str| {
        let body = json!({"email": email, "password": "correct horse"});
        let answer =
            pin::login(&world.app, &Principal::Anonymous, &request("/v1/auth/login", Some(body)))
                .await
                .unwrap();
        world.router(text(&read(&answer)["token"]))
    };
    let change = async |who: &Principal, id: &UserId, body: Value| {
        users::update(&world.app, who, &super::identity::of("/v1/users", id.as_str(), Some(body)))
            .await
            .map(|_| ())
    };
    for (round, (first, second)) in
        [("disabled", "disabled"), ("role", "role"), ("disabled", "role")].into_iter().enumerate()
    {
        let body = |word: &str| {
            if word == "role" { json!({"role": "user"}) } else { json!({"disabled": true}) }
        };
        for id in &ids {
            world
                .change_user(id.as_str(), json!({"role": "admin", "disabled": false}))
                .await
                .unwrap();
        }
        let (ann, bob) = (session("ann@example.com").await, session("bob@example.com").await);
        let done =
            tokio::join!(change(&ann, &ids[1], body(first)), change(&bob, &ids[0], body(second)));
        let done = [done.0, done.1];
        assert_eq!(done.iter().filter(|done| done.is_ok()).count(), 1, "{done:?}");
        assert!(
            done.into_iter().filter_map(Result::err).all(|error| error.kind() == Kind::Conflict)
        );
        let left = world
            .app
            .auth
            .users_with(|user| user.role == rerouter_store::Role::Admin && !user.disabled)
            .len();
        assert_eq!((round, left), (round, 1));
    }
    // Bob is disabled in memory, which the store does not know yet: Ann is already the last admin.
    for id in &ids {
        world.change_user(id.as_str(), json!({"role": "admin", "disabled": false})).await.unwrap();
    }
    let ann = session("ann@example.com").await;
    world.faults.fail_every_write();
    assert_eq!(kind(change(&ann, &ids[1], json!({"disabled": true})).await).0, Kind::Unavailable);
    for body in [json!({"disabled": true}), json!({"role": "user"})] {
        assert_eq!(kind(change(&ann, &ids[0], body).await).0, Kind::Conflict);
    }
    assert!(!world.app.auth.user(&ids[0]).unwrap().disabled);
    world.faults.clear();
}

#[tokio::test]
async fn a_patch_that_says_nothing_new_leaves_no_row() {
    let world = world().await;
    let id = world.user("ann@example.com").await.user_id().unwrap();
    let before = world.actions().await;
    for body in [
        json!({}),
        json!({"name": null}),
        json!({"disabled": false, "role": "user"}),
        json!({"limits": {"rpm": null}}),
    ] {
        world.change_user(id.as_str(), body).await.unwrap();
    }
    assert_eq!(world.actions().await, before);
    world.change_user(id.as_str(), json!({"name": "Ann"})).await.unwrap();
    assert_eq!(world.actions().await.len(), before.len() + 1);
}

#[tokio::test]
async fn who_is_not_let_in_costs_the_same_whatever_the_reason() {
    let world = world().await;
    let ann = world.user("ann@example.com").await.user_id().unwrap();
    world.user("bob@example.com").await;
    world.change_user(ann.as_str(), json!({"disabled": true})).await.unwrap();
    let (long, longer) = ("x".repeat(PASSWORD_MAX), "x".repeat(PASSWORD_MAX + 1));
    let attempt = async |email: &str, password: &str, runs: u64| {
        let before = world.app.passwords.runs();
        let body = json!({"email": email, "password": password});
        let error =
            pin::login(&world.app, &Principal::Anonymous, &request("/v1/auth/login", Some(body)))
                .await
                .unwrap_err();
        assert_eq!(world.app.passwords.runs() - before, runs, "{email} {password:.20}");
        error.kind()
    };
    let emails = ["nobody@example.com", "bob@example.com", "ann@example.com"];
    assert_eq!(attempt(emails[0], "correct horse", 1).await, Kind::Unauthorized);
    // Bob and Ann have already logged in once. Ann is disabled, so even her right password is
    // refused.
    for password in ["wrong", "", &long, "wrong", "wrong", "wrong", "wrong", "wrong", "wrong"] {
        for email in emails {
            let right = email == emails[2] && password == "wrong";
            let password = if right { "correct horse" } else { password };
            assert_eq!(attempt(email, password, 1).await, Kind::Unauthorized);
        }
    }
    // Neither a throttled login nor an impossible password costs a hash.
    for (password, refused) in [
        ("correct horse", Kind::RateLimited),
        ("wrong", Kind::RateLimited),
        ("", Kind::RateLimited),
        (&longer, Kind::InvalidRequest),
    ] {
        for email in emails {
            assert_eq!(attempt(email, password, 0).await, refused);
        }
    }
}

/// Of many concurrent logins from several networks, the last twenty that the store took keep their
/// sessions.
#[tokio::test]
async fn of_many_logins_at_once_twenty_sessions_stay() {
    let mut world = world().await;
    world.user("ann@example.com").await;
    let body = || json!({"email": "ann@example.com", "password": "correct horse"}).to_string();
    let asked = |network: usize| {
        let from = ClientOrigin {
            address: Some(std::net::Ipv4Addr::new(198, 18, network as u8, 1).into()),
            proven: true,
            secure: false,
            ..ClientOrigin::default()
        };
        let request = Request::builder()
            .uri("/v1/auth/login")
            .header(CONTENT_TYPE, "application/json")
            .extension(from);
        request.body(Bytes::from(body())).unwrap()
    };
    let asked: Vec<_> = (0..5 * SESSIONS_PER_USER / 2).map(|n| asked(n % 5)).collect();
    let made = futures::future::join_all(
        asked.iter().map(|asked| pin::login(&world.app, &Principal::Anonymous, asked)),
    )
    .await;
    let tokens: Vec<String> =
        made.into_iter().map(|answer| text(&read(&answer.unwrap())["token"]).to_owned()).collect();
    assert_eq!(tokens.len(), 50);
    for _ in 0..2 {
        let good = tokens.iter().filter(|token| world.bearer(Surface::Pin, token).is_ok()).count();
        assert_eq!(good, SESSIONS_PER_USER);
        world.start_again(None).await;
    }
}

#[tokio::test]
async fn sessions_end_by_silence_by_age_and_by_number() {
    let mut world = world().await;
    let ann = world.user("ann@example.com").await;
    let advance = |minutes: u64| world.app.clock.advance(Duration::from_secs(60 * minutes));
    let body = || Some(json!({"email": "ann@example.com", "password": "correct horse"}));
    let log_in = async || {
        let answer =
            pin::login(&world.app, &Principal::Anonymous, &request("/v1/auth/login", body()))
                .await
                .unwrap();
        text(&read(&answer)["token"]).to_owned()
    };
    let why = |token: &str| world.bearer(Surface::Pin, token).err().unwrap_or("good");
    let (silent, used) = (log_in().await, log_in().await);
    for _ in 0..24 {
        advance(29);
        assert_eq!(why(&used), "good");
    }
    advance(23);
    assert_eq!((why(&silent), why(&used)), ("expired", "good"));
    advance(1);
    assert_eq!(why(&used), "expired", "twelve hours, though it was in use");
    world.app.auth.sweep_sessions(&world.app.store, world.app.clock.now()).await.unwrap();
    assert!(world.app.store.load().await.unwrap().sessions.is_empty());
    let mut tokens = Vec::new();
    for _ in 0..SESSIONS_PER_USER + 2 {
        tokens.push(log_in().await);
        advance(2);
        tokens
            .iter()
            .rev()
            .take(SESSIONS_PER_USER)
            .for_each(|token| assert_eq!(why(token), "good"));
    }
    for _ in 0..2 {
        let good = tokens.iter().filter(|token| world.bearer(Surface::Pin, token).is_ok()).count();
        assert_eq!(
            (good, world.bearer(Surface::Pin, &tokens[1]).err()),
            (SESSIONS_PER_USER, Some("unknown"))
        );
        let auth = Auth::new(&SecretBytes::new([1; 32]), None, None, Duration::from_secs(1800));
        world.app.auth.sweep_sessions(&world.app.store, world.app.clock.now()).await.unwrap();
        auth.attach(&world.app.store).await.unwrap();
        world.app.auth = auth;
    }
    assert!(ann.user_id().is_some());
}
