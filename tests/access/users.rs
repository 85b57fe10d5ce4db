//! User management by admins over sockets: create, list, change, disable and enable users, also
//! across a killed process.

use serde_json::{Value, json};

use crate::support::client::{self, Answer};
use crate::support::documents::{chat_body, in_order};
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider};
use crate::support::{envelope, full, until};

const JSON: (&str, &str) = ("content-type", "application/json");
const PASSWORD: &str = "correct horse";

async fn start() -> (Gateway, Provider) {
    let provider = Provider::always(scripted::completion("well")).await;
    (Setup::new(&in_order(&[("a", &provider.url())], "")).start().await, provider)
}

async fn log_in(gateway: &Gateway, email: &str) -> Answer {
    let body = json!({"email": email, "password": PASSWORD}).to_string();
    gateway.send("POST", "/v1/auth/login", &[JSON], Some(body.as_bytes())).await
}

/// Creates a user and logs in. Returns the id of the user and the token of the session.
async fn user(gateway: &Gateway, email: &str, role: &str) -> (String, String) {
    let body = json!({"email": email, "password": PASSWORD, "role": role});
    let made = gateway.answers(201, "POST", "/v1/users", &gateway.admin_key, Some(&body)).await;
    let id = made.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(made.header("location"), Some(format!("/v1/users/{id}").as_str()));
    let login = log_in(gateway, email).await;
    (id, login.json()["token"].as_str().unwrap().to_owned())
}

async fn patch(gateway: &Gateway, by: &str, id: &str, body: Value) -> Answer {
    gateway.manage("PATCH", &format!("/v1/users/{id}"), by, Some(&body)).await
}

async fn make(gateway: &Gateway, path: &str, by: &str, body: Value) -> Key {
    gateway.make_key(path, by, &body).await
}

async fn me(gateway: &Gateway, credential: &str) -> u16 {
    gateway.manage("GET", "/v1/auth/me", credential, None).await.status
}

#[tokio::test]
async fn users_are_made_listed_and_changed() {
    let (mut gateway, _provider) = start().await;
    let admin = gateway.admin_key.clone();
    let (ann, token) = user(&gateway, "ann@example.com", "user").await;
    let (bob, _) = user(&gateway, "bob@example.com", "admin").await;
    let record = gateway.manage("GET", &format!("/v1/users/{ann}"), &admin, None).await.json();
    let expected = json!({
        "object": "user", "id": ann, "email": "ann@example.com", "name": null, "role": "user",
        "created_at": record["created_at"],
        "disabled": false, "labels": {}, "limits": {},
    });
    assert_eq!(record, expected);
    let first = gateway.manage("GET", "/v1/users?limit=1", &admin, None).await.json();
    assert_eq!(
        (&first["data"][0]["id"], &first["has_more"], &first["next"]),
        (&json!(bob), &json!(true), &json!(bob))
    );
    let second =
        gateway.manage("GET", &format!("/v1/users?limit=1&after={bob}"), &admin, None).await.json();
    assert_eq!((&second["data"], &second["has_more"]), (&json!([expected]), &json!(false)));

    let changed = patch(
        &gateway,
        &admin,
        &ann,
        json!({"name": "Ann", "limits": {"rpm": 9, "budget": {"usd": 5, "per": "day"}}}),
    )
    .await;
    assert_eq!(changed.status, 200, "{}", changed.text());
    let changed =
        patch(&gateway, &admin, &ann, json!({"limits": {"rpm": null, "budget": {"usd": 6}}}))
            .await
            .json();
    assert_eq!(
        (&changed["name"], &changed["limits"]),
        (&json!("Ann"), &json!({"budget": {"usd": 6.0, "per": "day"}}))
    );
    gateway.kill_9();
    gateway.start_again().await;
    assert_eq!(
        gateway.manage("GET", &format!("/v1/users/{ann}"), &admin, None).await.json(),
        changed
    );
    let cleared = patch(&gateway, &admin, &ann, json!({"name": null, "limits": null})).await.json();
    assert_eq!(cleared, expected);

    for (body, field) in [
        (json!({"email": "c@example.com"}), "email"),
        (json!({"role": "root"}), "role"),
        (json!({"role": null}), "role"),
        (json!({"disabled": "yes"}), "disabled"),
        (json!({"disabled": null}), "disabled"),
        (json!({"name": ""}), "name"),
        (json!({"limits": {"rpm": 0}}), "limits.rpm"),
        (json!({"limits": {"budget": {"usd": 1}}}), "limits.budget.per"),
        (json!({"labels": {}}), "labels"),
    ] {
        let answer = patch(&gateway, &admin, &ann, body).await;
        envelope::management(&answer, 400, "invalid_request");
        assert_eq!(answer.json()["field"], field);
    }
    for (body, status, word) in [
        (json!({"email": "ANN@example.com", "password": PASSWORD}), 409, "conflict"),
        (json!({"email": "c@example.com", "password": "short"}), 400, "invalid_request"),
        (
            json!({"email": "c@example.com", "password": PASSWORD, "role": "root"}),
            400,
            "invalid_request",
        ),
        (
            json!({"email": "c@example.com", "password": PASSWORD, "disabled": true}),
            400,
            "invalid_request",
        ),
    ] {
        envelope::management(
            &gateway.manage("POST", "/v1/users", &admin, Some(&body)).await,
            status,
            word,
        );
    }
    envelope::management(
        &patch(&gateway, &admin, "usr_00000000000000000000000000", json!({})).await,
        404,
        "not_found",
    );
    envelope::management(
        &patch(&gateway, &admin, "usr_admin", json!({"disabled": true})).await,
        409,
        "conflict",
    );
    let built_in = gateway.manage("GET", "/v1/users/usr_admin", &admin, None).await.json();
    assert_eq!((&built_in["role"], &built_in["email"]), (&json!("admin"), &Value::Null));
    for (method, path) in [
        ("GET", "/v1/users".to_owned()),
        ("GET", format!("/v1/users/{ann}")),
        ("PATCH", format!("/v1/users/{ann}")),
    ] {
        envelope::management(&gateway.manage(method, &path, &token, None).await, 403, "forbidden");
    }
}

#[tokio::test]
async fn who_is_disabled_is_out_at_once_and_for_as_long() {
    let (mut gateway, provider) = start().await;
    let admin = gateway.admin_key.clone();
    let (ann, token) = user(&gateway, "ann@example.com", "user").await;
    let (pin, router) = (
        make(&gateway, "/v1/apikeys", &token, json!({})).await,
        make(&gateway, "/v1/router/keys", &token, json!({})).await,
    );
    let mut connection = gateway.connect().await;
    let body = chat_body("auto", false);
    let ask = gateway.chat_request(&router, body.as_bytes());
    assert_eq!(connection.exchange(&ask).await.status, 200);
    let out = patch(&gateway, &admin, &ann, json!({"disabled": true})).await;
    assert_eq!((out.status, &out.json()["disabled"]), (200, &json!(true)), "{}", out.text());
    assert_eq!(connection.exchange(&ask).await.status, 401, "on the open connection");
    let wrong = log_in(&gateway, "nobody@example.com").await;
    for _ in 0..2 {
        assert_eq!([me(&gateway, &token).await, me(&gateway, &pin.secret).await], [401, 401]);
        assert_eq!(gateway.chat(&router, body.as_bytes()).await.status, 401);
        let login = log_in(&gateway, "ann@example.com").await;
        assert_eq!(
            (login.status, login.text()),
            (401, wrong.text()),
            "no other than for a user whom nobody knows"
        );
        gateway.kill_9();
        gateway.start_again().await;
    }
    assert_eq!(patch(&gateway, &admin, &ann, json!({"disabled": false})).await.status, 200);
    assert_eq!(
        [me(&gateway, &token).await, me(&gateway, &pin.secret).await],
        [401, 200],
        "the session is over, the key lives again"
    );
    assert_eq!(gateway.chat(&router, body.as_bytes()).await.status, 200);
    assert_eq!(log_in(&gateway, "ann@example.com").await.status, 200);
    assert_eq!(provider.count(), 2);
    let rows = gateway
        .manage("GET", &format!("/v1/audit?target={ann}&limit=100"), &admin, None)
        .await
        .json();
    let actions: Vec<&str> = rows["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["action"].as_str().unwrap())
        .collect();
    let told: Vec<&str> =
        actions.into_iter().filter(|action| action.starts_with("user.")).collect();
    assert_eq!(told, ["user.update", "user.disable", "user.create"]);
}

#[tokio::test]
async fn a_password_that_an_admin_sets_ends_the_sessions() {
    let (mut gateway, _provider) = start().await;
    let operator = gateway.admin_key.clone();
    let (ann, hers) = user(&gateway, "ann@example.com", "user").await;
    let (bob, his) = user(&gateway, "bob@example.com", "admin").await;
    let log_in_with = async |gateway: &Gateway, email: &str, password: &str| {
        let body = json!({"email": email, "password": password}).to_string();
        gateway.send("POST", "/v1/auth/login", &[JSON], Some(body.as_bytes())).await.status
    };
    let new = json!({"password": "another good one"});
    for bad in [json!("short"), json!(null), json!(7)] {
        let refused = patch(&gateway, &his, &ann, json!({"password": bad})).await;
        assert_eq!((refused.status, &refused.json()["field"]), (400, &json!("password")));
    }
    // Only ADMIN_API_KEY may set an admin's password, so nobody can take over an admin.
    for (by, whom) in [(&hers, &ann), (&hers, &bob), (&his, &bob)] {
        let refused = patch(&gateway, by, whom, new.clone()).await;
        assert_eq!(refused.status, 403, "{}", refused.text());
    }
    let own = patch(&gateway, &his, &ann, json!({"password": "no", "role": "admin"})).await;
    assert_eq!((own.status, me(&gateway, &hers).await), (400, 200));
    let changed = patch(&gateway, &his, &ann, new.clone()).await;
    assert_eq!(changed.status, 200, "{}", changed.text());
    assert!(!changed.text().contains("password"), "{}", changed.text());
    assert_eq!(me(&gateway, &hers).await, 401);
    assert_eq!(patch(&gateway, &operator, &bob, new).await.status, 200);
    assert_eq!(me(&gateway, &his).await, 401);
    let path = format!("/v1/audit?action=password.change&target={ann}");
    let rows = gateway.manage("GET", &path, &operator, None).await.json();
    assert_eq!(rows["data"].as_array().unwrap().len(), 1, "{rows}");
    let more = json!({"password": "another good one", "role": "user", "disabled": false});
    assert_eq!(patch(&gateway, &operator, &bob, more).await.status, 200);
    let path = format!("/v1/audit?target={bob}&limit=2");
    let rows = gateway.manage("GET", &path, &operator, None).await.json();
    let mut actions = [0, 1].map(|at| rows["data"][at]["action"].as_str().unwrap());
    actions.sort_unstable();
    assert_eq!(actions, ["password.change", "user.update"], "{rows}");
    gateway.restart().await;
    for email in ["ann@example.com", "bob@example.com"] {
        assert_eq!(log_in_with(&gateway, email, PASSWORD).await, 401);
        assert_eq!(log_in_with(&gateway, email, "another good one").await, 200);
    }
}

#[tokio::test]
async fn who_is_no_admin_any_more_acts_as_none_and_the_last_one_stays() {
    let (gateway, _provider) = start().await;
    let admin = gateway.admin_key.clone();
    let (bob, token) = user(&gateway, "bob@example.com", "admin").await;
    let key = make(&gateway, "/v1/apikeys", &token, json!({"scopes": ["user", "admin"]})).await;
    let router =
        make(&gateway, "/v1/router/keys", &token, json!({"scopes": ["keys", "admin"]})).await;
    let users =
        async |credential: &str| gateway.manage("GET", "/v1/users", credential, None).await.status;
    let config = async |credential: &str| {
        gateway.manage("GET", "/v1/router/config", credential, None).await.status
    };
    assert_eq!(
        [users(&token).await, users(&key.secret).await, config(&router.secret).await],
        [200, 200, 200]
    );
    for body in [json!({"role": "user"}), json!({"disabled": true})] {
        for by in [&token, &key.secret] {
            envelope::management(&patch(&gateway, by, &bob, body.clone()).await, 409, "conflict");
        }
    }
    assert_eq!(me(&gateway, &token).await, 200, "nothing has happened");
    let (eve, eves) = user(&gateway, "eve@example.com", "admin").await;
    assert_eq!(patch(&gateway, &eves, &bob, json!({"role": "user"})).await.status, 200);
    assert_eq!(
        [users(&token).await, users(&key.secret).await, config(&router.secret).await],
        [403, 403, 403]
    );
    envelope::management(
        &patch(&gateway, &key.secret, &bob, json!({"role": "admin"})).await,
        403,
        "forbidden",
    );
    assert_eq!(me(&gateway, &key.secret).await, 200, "a key of a user all the same");
    envelope::management(
        &patch(&gateway, &eves, &eve, json!({"role": "user"})).await,
        409,
        "conflict",
    );
    assert_eq!(
        patch(&gateway, &admin, &eve, json!({"disabled": true})).await.status,
        200,
        "whoever holds ADMIN_API_KEY gets in"
    );
}

#[tokio::test]
async fn two_admins_who_end_each_other_at_once_are_one_then() {
    let provider = Provider::always(scripted::completion("well")).await;
    let gateway = Setup::new(&in_order(&[("a", &provider.url())], "")).threads(2).start().await;
    let admin = gateway.admin_key.clone();
    let mut users = Vec::new();
    for email in ["bob@example.com", "eve@example.com"] {
        users.push(user(&gateway, email, "admin").await.0);
    }
    let (out, demoted) = (json!({"disabled": true}), json!({"role": "user"}));
    let ways = [(&demoted, &demoted), (&out, &out), (&out, &demoted), (&demoted, &out)];
    for (of_bob, of_eve) in ways.repeat(if full() { 100 } else { 4 }) {
        let mut keys = Vec::new();
        for id in &users {
            let back =
                patch(&gateway, &admin, id, json!({"role": "admin", "disabled": false})).await;
            assert_eq!(back.status, 200, "{}", back.text());
            // Uses keys, because logins are throttled. Keys that `ADMIN_API_KEY` made act as admins
            // as long as their owner is an admin.
            keys.push(
                make(
                    &gateway,
                    "/v1/apikeys",
                    &admin,
                    json!({"scopes": ["user", "admin"], "owner": id}),
                )
                .await,
            );
        }
        let (eve, bob) = tokio::join!(
            patch(&gateway, &keys[0].secret, &users[1], of_eve.clone()),
            patch(&gateway, &keys[1].secret, &users[0], of_bob.clone())
        );
        let statuses = [eve.status, bob.status];
        assert_eq!(
            statuses.iter().filter(|status| **status == 200).count(),
            1,
            "{statuses:?}: one wins"
        );
        assert!(
            statuses.iter().all(|status| matches!(status, 200 | 401 | 403 | 409)),
            "{statuses:?}"
        );
        let left = gateway.manage("GET", "/v1/users", &admin, None).await.json();
        let left = left["data"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|user| user["role"] == "admin" && user["disabled"] == false)
            .count();
        assert_eq!(left, 1);
        for key in keys {
            gateway.answers(204, "DELETE", &format!("/v1/apikeys/{}", key.id), &admin, None).await;
        }
    }
}

#[tokio::test]
async fn who_is_demoted_while_a_body_comes_does_no_more_as_an_admin() {
    let (gateway, _provider) = start().await;
    let admin = gateway.admin_key.clone();
    let (bob, token) = user(&gateway, "bob@example.com", "admin").await;
    let body =
        json!({"email": "eve@example.com", "password": PASSWORD, "role": "admin"}).to_string();
    let (bearer, length) = (format!("Bearer {token}"), body.len().to_string());
    let headers = [
        ("authorization", bearer.as_str()),
        JSON,
        ("expect", "100-continue"),
        ("content-length", length.as_str()),
    ];
    let mut connection = gateway.connect().await;
    connection.send(&client::request("POST", "/v1/users", &gateway.host(), &headers, None)).await;
    assert_eq!(connection.head().await.unwrap().status, 100, "let in as an admin");
    let (begun, half) = (std::time::Instant::now(), body.len() / 2);
    connection.send(&body.as_bytes()[..half]).await;
    assert_eq!(patch(&gateway, &admin, &bob, json!({"role": "user"})).await.status, 200);
    until("the body to be long in coming", async || {
        (begun.elapsed() > std::time::Duration::from_millis(50)).then_some(())
    })
    .await;
    connection.send(&body.as_bytes()[half..]).await;
    envelope::management(&connection.answer().await.unwrap(), 403, "forbidden");
    assert_eq!(log_in(&gateway, "eve@example.com").await.status, 401, "nobody was made");
    assert_eq!(me(&gateway, &token).await, 200, "a user all the same");
}

#[tokio::test]
async fn limits_of_a_user_count_from_the_next_request_on() {
    let (gateway, _provider) = start().await;
    let admin = gateway.admin_key.clone();
    let (ann, token) = user(&gateway, "ann@example.com", "user").await;
    let key = make(&gateway, "/v1/router/keys", &token, json!({})).await;
    let ask = async || gateway.chat(&key, chat_body("auto", false).as_bytes()).await.status;
    let limit = async |limits: Value| {
        assert_eq!(patch(&gateway, &admin, &ann, json!({"limits": limits})).await.status, 200)
    };
    assert_eq!(ask().await, 200);
    limit(json!({"rpm": 1})).await;
    assert_eq!([ask().await, ask().await], [200, 429]);
    limit(json!({"rpm": 100})).await;
    assert_eq!(ask().await, 200);
    limit(json!({"rpm": null, "models": ["other"]})).await;
    assert_eq!(ask().await, 404);
    limit(json!({"models": null, "keys_per_user": 1})).await;
    assert_eq!(ask().await, 200);
    envelope::management(
        &gateway.manage("POST", "/v1/router/keys", &token, None).await,
        409,
        "key_limit_reached",
    );
    limit(json!({"keys_per_user": 2})).await;
    make(&gateway, "/v1/router/keys", &token, json!({})).await;
}

/// Hashing a password is expensive on purpose. Requests beyond a queue are refused at once, and
/// have no effect.
#[tokio::test]
async fn more_passwords_than_can_be_hashed_are_refused_for_now() {
    let (gateway, _provider) = start().await;
    let cores = std::thread::available_parallelism().unwrap().get();
    let bearer = format!("Bearer {}", gateway.admin_key);
    let count = 64 + 2 * cores + 80;
    let mut ready = Vec::new();
    for n in 0..count {
        let body = json!({"email": format!("{n}@example.com"), "password": PASSWORD}).to_string();
        let headers = [("authorization", bearer.as_str()), JSON];
        ready.push((
            gateway.connect().await,
            client::request("POST", "/v1/users", &gateway.host(), &headers, Some(body.as_bytes())),
        ));
    }
    let answers = futures::future::join_all(
        ready.iter_mut().map(|(connection, ask)| connection.exchange(ask)),
    )
    .await;
    let shed: Vec<&Answer> = answers.iter().filter(|answer| answer.status == 503).collect();
    let made = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(made + shed.len(), count);
    assert!(!shed.is_empty() && made >= 64, "{made} were made, {} refused", shed.len());
    for answer in shed {
        envelope::management(answer, 503, "unavailable");
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    // An answer may arrive before its request is counted.
    until("each to be counted", async || {
        let rows = gateway
            .metric("rerouter_requests_total", &["route=\"/v1/users\"", "code=\"201\""])
            .await;
        assert!(rows as usize <= made);
        (rows as usize == made).then_some(())
    })
    .await;
    assert_eq!(log_in(&gateway, "nobody@example.com").await.status, 401, "it is well again");
}

#[tokio::test]
async fn the_first_admin_is_made_by_the_admin_key_and_a_start_without_both_says_so() {
    let (mut gateway, _provider) = start().await;
    let key = std::mem::take(&mut gateway.admin_key);
    let told = |gateway: &Gateway| {
        gateway.log().matches("there is no admin: start with ADMIN_API_KEY").count()
    };
    assert_eq!(told(&gateway), 0);
    gateway.restart().await;
    assert_eq!(
        (told(&gateway), gateway.manage("GET", "/v1/users", &key, None).await.status),
        (1, 401)
    );
    gateway.admin_key = key;
    gateway.restart().await;
    let (_, token) = user(&gateway, "bob@example.com", "admin").await;
    gateway.admin_key.clear();
    gateway.restart().await;
    assert_eq!(
        (told(&gateway), gateway.manage("GET", "/v1/users", &token, None).await.status),
        (1, 200)
    );
}
