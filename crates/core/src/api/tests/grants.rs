//! Scopes that only an admin grants are valid as long as the granter is an admin: in memory before
//! the change is answered, and after a restart.

use super::handlers::users;
use super::identity::of;
use super::*;
use rerouter_access::auth::RESERVED_SCOPES;

const KEYS: &str = "/v1/router/keys";

impl TestApi {
    async fn change_of(&self, id: &UserId, body: Value) -> Result<Response<Bytes>> {
        let mut request = request(&format!("/v1/users/{id}"), Some(body));
        request.extensions_mut().insert(PathParams(vec![id.to_string()]));
        users::update(&self.app, &Principal::Admin, &request).await
    }

    /// The key's scopes that only an admin grants.
    fn reserved(&self, key: &Value) -> Vec<&'static str> {
        let who = self.router(text(&key["key"]));
        RESERVED_SCOPES.into_iter().filter(|scope| who.has_scope(scope)).collect()
    }

    async fn reload_tables(&mut self) {
        let auth = Auth::new(&SecretBytes::new([1; 32]), None, None, Duration::from_secs(1800));
        auth.attach(&self.app.store).await.unwrap();
        self.app.auth = auth;
    }

    /// Makes an admin. Returns the principal of a session, and the user's id.
    pub(super) async fn admin(&self, email: &str) -> (Principal, UserId) {
        let id = self.user(email).await.user_id().unwrap();
        self.set_role(&id, "admin").await;
        let body = json!({"email": email, "password": "correct horse"});
        let answer =
            pin::login(&self.app, &Principal::Anonymous, &request("/v1/auth/login", Some(body)))
                .await
                .unwrap();
        (self.router(text(&read(&answer)["token"])), id)
    }
}

#[tokio::test]
async fn what_an_admin_granted_ends_with_the_admin() {
    let mut world = world().await;
    let ann = world.user("ann@example.com").await.user_id().unwrap();
    let (session, bob) = world.admin("bob@example.com").await;
    let whole = json!(["inference", "keys", "evaluate", "config", "admin", "replay:all"]);
    let own = world.create(&session, json!({"scopes": whole})).await.unwrap();
    let child = world
        .create(&world.router(text(&own["key"])), json!({"scopes": ["inference", "config"]}))
        .await
        .unwrap();
    let anns = world
        .create(&session, json!({"owner": ann, "scopes": ["inference", "evaluate", "replay:all"]}))
        .await
        .unwrap();
    let by_key = world.router(text(&own["key"]));
    let through = world
        .create(&by_key, json!({"owner": ann, "scopes": ["inference", "config"]}))
        .await
        .unwrap();
    let operators = json!({"owner": ann, "scopes": ["inference", "config"]});
    let operators = world.create(&Principal::Admin, operators).await.unwrap();
    let lent = json!({"owner": bob, "scopes": ["inference", "config", "admin"]});
    let lent = world.create(&Principal::Admin, lent).await.unwrap();
    let all = [&own, &child, &anns, &through, &operators, &lent];
    let granted = |world: &TestApi| all.map(|key| world.reserved(key));
    let before: [Vec<&str>; 6] = [
        vec!["replay:all", "evaluate", "config", "admin"],
        // A key that makes its holder an admin has every scope. A child key without `admin` has the
        // scopes that it was given.
        vec!["config"],
        vec!["replay:all", "evaluate"],
        vec!["config"],
        vec!["config"],
        vec!["replay:all", "evaluate", "config", "admin"],
    ];
    let none: Vec<&str> = Vec::new();
    // Scopes that `ADMIN_API_KEY` granted stay, but a key makes no one an admin who is not an admin
    // anyway.
    let after =
        [none.clone(), none.clone(), none.clone(), none.clone(), vec!["config"], vec!["config"]];
    assert_eq!(granted(&world), before);
    world.change_of(&bob, json!({"role": "user"})).await.unwrap();
    assert_eq!(granted(&world), after);
    let by_lapsed = world.router(text(&own["key"]));
    for body in
        [json!({"scopes": ["config"]}), json!({"owner": ann}), json!({"labels": {"a": "b"}})]
    {
        assert_eq!(kind(world.create(&by_lapsed, body).await).0, Kind::Forbidden);
    }
    world.change_of(&bob, json!({"role": "admin"})).await.unwrap();
    assert_eq!(granted(&world), before, "for as long as it is one");
    world.change_of(&bob, json!({"disabled": true})).await.unwrap();
    let of_others = [&anns, &through, &operators].map(|key| world.reserved(key));
    assert_eq!(of_others, [none.clone(), none.clone(), vec!["config"]]);
    assert!(
        [&own, &child, &lent]
            .iter()
            .all(|key| world.bearer(Surface::DataPlane, text(&key["key"])).is_err())
    );
    world.change_of(&bob, json!({"role": "user", "disabled": false})).await.unwrap();
    for _ in 0..2 {
        assert_eq!(granted(&world), after);
        assert!(
            all.iter().all(|key| world.router(text(&key["key"])).has_scope("inference")),
            "what anybody may grant stays"
        );
        world.reload_tables().await;
    }
}

#[tokio::test]
async fn a_demotion_that_is_not_durable_takes_nothing_and_a_disabling_takes_all_the_same() {
    let world = world().await;
    let ann = world.user("ann@example.com").await.user_id().unwrap();
    let (session, bob) = world.admin("bob@example.com").await;
    let anns = world
        .create(&session, json!({"owner": ann, "scopes": ["inference", "config"]}))
        .await
        .unwrap();
    world.faults.fail_every_write();
    assert_eq!(kind(world.change_of(&bob, json!({"role": "user"})).await).0, Kind::Unavailable);
    assert_eq!(world.reserved(&anns), ["config"], "nothing has changed");
    assert_eq!(kind(world.change_of(&bob, json!({"disabled": true})).await).0, Kind::Unavailable);
    assert!(world.reserved(&anns).is_empty(), "out in memory first, and what was granted with it");
    world.faults.clear();
}

#[tokio::test]
async fn an_admin_gets_no_secret_by_which_it_would_stay_one() {
    let world = world().await;
    let ann = world.user("ann@example.com").await;
    let (session, bob) = world.admin("bob@example.com").await;
    let (other, _) = world.admin("eve@example.com").await;
    let made = async |who: &Principal, scopes: &[&str]| {
        let body = json!({"owner": ann.user_id().unwrap(), "scopes": scopes});
        world.create(who, body).await.unwrap()
    };
    let rotate = async |who: &Principal, key: &Value| {
        keys::rotate(&world.app, who, &of(KEYS, text(&key["id"]), Some(json!({})))).await
    };
    for granter in [&Principal::Admin, &other] {
        let key = made(granter, &["inference", "config"]).await;
        assert_eq!(kind(rotate(&session, &key).await).0, Kind::Forbidden);
        rotate(&Principal::Admin, &key).await.unwrap();
        rotate(&ann, &key).await.unwrap();
    }
    let key = made(&session, &["inference", "config"]).await;
    let rotated = read(&rotate(&session, &key).await.unwrap());
    assert_eq!(world.reserved(&rotated), ["config"]);
    world.set_role(&bob, "user").await;
    assert!(world.reserved(&rotated).is_empty(), "what it granted itself ends with it");
    world.set_role(&bob, "admin").await;
    let plain = made(&Principal::Admin, &["inference"]).await;
    rotate(&session, &plain).await.unwrap();
}
