//! Registration, logins and sessions over sockets, as the documentation promises them: answers,
//! what strangers can learn, and limits.

use std::collections::BTreeMap;

use rerouter::internals::bounds;
use serde_json::{Value, json};

use crate::support::client::{self, Answer, pairs};
use crate::support::documents::in_order;
use crate::support::gateway::{Gateway, Setup};
use crate::support::provider::{self as scripted, Provider};
use crate::support::{envelope, until};

const JSON: (&str, &str) = ("content-type", "application/json");
const PASSWORD: &str = "correct horse";

async fn start(setup: impl FnOnce(Setup) -> Setup) -> (Gateway, Provider) {
    let provider = Provider::always(scripted::completion("well")).await;
    (setup(Setup::new(&in_order(&[("a", &provider.url())], ""))).start().await, provider)
}

async fn post(gateway: &Gateway, path: &str, body: &Value) -> Answer {
    gateway.send("POST", path, &[JSON], Some(body.to_string().as_bytes())).await
}

async fn log_in(gateway: &Gateway, email: &str, password: &str) -> Answer {
    post(gateway, "/v1/auth/login", &json!({"email": email, "password": password})).await
}

async fn register(gateway: &Gateway, email: &str) -> Answer {
    post(gateway, "/v1/auth/register", &json!({"email": email, "password": PASSWORD})).await
}

fn names(value: &Value) -> Vec<&str> {
    value.as_object().unwrap_or_else(|| panic!("{value}")).keys().map(String::as_str).collect()
}

/// An answer without its request id and date, which differ in every answer.
fn told(answer: &Answer) -> (u16, Vec<(String, String)>, String) {
    let own = ["x-request-id", "date"];
    let headers =
        answer.headers.iter().filter(|(name, _)| !own.contains(&name.as_str())).cloned().collect();
    (answer.status, headers, answer.text())
}

/// Creates a disabled Ann and an active Bob. Returns the emails of an unknown user, Bob and Ann.
async fn accounts(gateway: &Gateway) -> [&'static str; 3] {
    for email in ["ann@example.com", "bob@example.com"] {
        let made = register(gateway, email).await;
        assert_eq!(made.status, 201, "{}", made.text());
        if email.starts_with("ann") {
            let path = format!("/v1/users/{}", made.json()["user"]["id"].as_str().unwrap());
            gateway
                .answers(200, "PATCH", &path, &gateway.admin_key, Some(&json!({"disabled": true})))
                .await;
        }
    }
    ["nobody@example.com", "bob@example.com", "ann@example.com"]
}

#[tokio::test]
async fn whoever_is_not_let_in_is_told_the_same_to_the_last_header() {
    let (gateway, _provider) = start(|setup| setup).await;
    let emails = accounts(&gateway).await;
    let (long, longer) = ("x".repeat(bounds::PASSWORD_MAX), "x".repeat(bounds::PASSWORD_MAX + 1));
    let passwords = ["wrong", "", &long, &longer, "\u{0}\u{fffd} kein Passwort"];
    let all = async |password: &str| {
        let mut answers = Vec::new();
        for email in emails {
            answers.push(log_in(&gateway, email, password).await);
        }
        answers
    };
    let mut counted = 0;
    for password in passwords {
        let answers = all(password).await;
        assert!(
            answers.iter().all(|answer| told(answer) == told(&answers[0])),
            "{password:?}: {answers:?}"
        );
        if password.len() > bounds::PASSWORD_MAX {
            envelope::management(&answers[0], 400, "invalid_request");
            assert_eq!(answers[0].json()["field"], "password");
        } else {
            envelope::management(&answers[0], 401, "unauthorized");
            assert_eq!(answers[0].header_lines("www-authenticate"), ["Bearer realm=\"pin\""]);
            assert!(answers[0].header("set-cookie").is_none());
            counted += 1;
        }
    }
    // The right password of a disabled user gets the same refusal.
    let disabled = log_in(&gateway, emails[2], PASSWORD).await;
    assert_eq!(told(&disabled), told(&log_in(&gateway, emails[0], PASSWORD).await));
    let good = log_in(&gateway, emails[1], PASSWORD).await;
    assert_eq!(good.status, 200, "{}", good.text());
    for _ in counted + 1..bounds::LOGINS {
        assert!(all("wrong").await.iter().all(|answer| answer.status == 401));
    }
    // After ten attempts each, even the right password is refused. A password that is too long gets
    // its own error and does not count.
    for password in [PASSWORD, "wrong", "", &longer] {
        let answers = all(password).await;
        let plain = answers.iter().map(|answer| {
            let (status, mut headers, body) = told(answer);
            headers.retain(|(name, value)| {
                name != "retry-after" || !(840..=900).contains(&value.parse::<u32>().unwrap())
            });
            (status, headers, body)
        });
        let plain: Vec<_> = plain.collect();
        assert!(plain.iter().all(|one| *one == plain[0]), "{password:?}: {plain:?}");
        match password.len() > bounds::PASSWORD_MAX {
            true => envelope::management(&answers[0], 400, "invalid_request"),
            false => {
                envelope::management(&answers[0], 429, "rate_limited");
                assert!(
                    answers.iter().all(|answer| answer.header("retry-after").is_some()),
                    "{answers:?}"
                );
            }
        }
    }
    assert_eq!(log_in(&gateway, "carl@example.com", "wrong").await.status, 401, "somebody else's");
}

/// Each login comes from its own network, so that no throttle applies.
#[tokio::test]
async fn of_more_logins_than_can_be_looked_at_the_rest_is_told_the_same_whoever_it_is() {
    let (gateway, _provider) = start(|setup| setup.server("trusted_proxies: [127.0.0.1/32]")).await;
    let emails = accounts(&gateway).await;
    let cores = std::thread::available_parallelism().unwrap().get();
    let count = bounds::PASSWORD_QUEUE + 2 * cores + 120;
    let mut ready = Vec::new();
    for n in 0..count {
        let body = json!({"email": emails[n % 3],
                "password": if n % 2 == 0 { PASSWORD } else { "wrong" }})
        .to_string();
        let network = format!("198.{}.{}.7", 18 + n / 250, n % 250);
        let headers = [JSON, ("x-forwarded-for", network.as_str())];
        let ask = client::request(
            "POST",
            "/v1/auth/login",
            &gateway.host(),
            &headers,
            Some(body.as_bytes()),
        );
        ready.push((gateway.connect().await, ask));
    }
    let answers = futures::future::join_all(
        ready.iter_mut().map(|(connection, ask)| connection.exchange(ask)),
    )
    .await;
    let mut shed = BTreeMap::new();
    for (n, answer) in answers.iter().enumerate() {
        match (answer.status, emails[n % 3], n % 2) {
            (503, email, _) => {
                envelope::management(answer, 503, "unavailable");
                assert_eq!(answer.header("retry-after"), Some("1"));
                shed.entry(email).or_insert_with(Vec::new).push(told(answer));
            }
            (200, "bob@example.com", 0) => {}
            (status, email, right) => {
                assert!(
                    status == 401 && (email, right) != ("bob@example.com", 0),
                    "{email} {right}: {status} {}",
                    answer.text()
                );
            }
        }
    }
    assert_eq!(shed.len(), 3, "of each some were refused");
    let first = &shed["bob@example.com"][0];
    assert!(shed.values().flatten().all(|one| one == first), "{shed:?}");
    assert!(
        answers.iter().filter(|answer| answer.status != 503).count() >= bounds::PASSWORD_QUEUE,
        "and the queue was worked off"
    );
    assert_eq!(log_in(&gateway, emails[1], PASSWORD).await.status, 200, "it is well again");
}

/// Behind a proxy that is not in `trusted_proxies`, all clients count as one.
#[tokio::test]
async fn a_gateway_that_may_be_behind_a_proxy_says_what_that_opens() {
    let warnings = [
        "registration is OPEN, also",
        "AGENT is OPEN also",
        "100 failed logins of one lock out all for 15 minutes",
    ];
    for (public, lines, said) in [
        (false, "", [false, false, false]),
        (false, "public_url: https://gw.example.com", [true, true, true]),
        (
            false,
            "public_url: https://gw.example.com\npin: { registration: closed }",
            [false, true, true],
        ),
        (
            false,
            "public_url: https://gw.example.com\ntrusted_proxies: [127.0.0.1]",
            [true, true, false],
        ),
        (true, "public_url: https://gw.example.com", [false, false, true]),
    ] {
        let (gateway, _provider) =
            start(|setup| if public { setup.public().server(lines) } else { setup.server(lines) })
                .await;
        let log = gateway.log();
        assert_eq!(warnings.map(|warning| log.contains(warning)), said, "{public} {lines}: {log}");
    }
}

/// The default is open if all listeners are on loopback, else closed.
#[tokio::test]
async fn who_may_register_goes_by_the_listeners_unless_it_is_said() {
    for (public, lines, status) in [
        (false, "", 201),
        (true, "", 403),
        (true, "pin: { registration: open }", 201),
        (false, "pin: { registration: closed }", 403),
    ] {
        let (gateway, _provider) =
            start(|setup| if public { setup.public().server(lines) } else { setup.server(lines) })
                .await;
        let answer = register(&gateway, "ann@example.com").await;
        assert_eq!(answer.status, status, "{public} {lines}: {}", answer.text());
        if status == 403 {
            envelope::management(&answer, 403, "registration_closed");
        }
        // ADMIN_API_KEY can create the first admin in every case.
        let admin = json!({"email": "root@example.com", "password": PASSWORD, "role": "admin"});
        let made = gateway.manage("POST", "/v1/users", &gateway.admin_key, Some(&admin)).await;
        assert_eq!((made.status, &made.json()["role"]), (201, &json!("admin")), "{}", made.text());
        assert_eq!(
            log_in(&gateway, "root@example.com", PASSWORD).await.json()["user"]["role"],
            "admin"
        );
    }
}

#[tokio::test]
async fn a_registration_says_what_it_made_and_what_is_wrong_and_there_are_twenty_an_hour() {
    let (gateway, _provider) = start(|setup| setup).await;
    let body = json!({"email": "Ann@Example.com", "password": PASSWORD, "name": "Ann"});
    let made = post(&gateway, "/v1/auth/register", &body).await;
    assert_eq!((made.status, names(&made.json())), (201, vec!["user"]), "{}", made.text());
    let user = made.json()["user"].clone();
    let fields = [&user["email"], &user["name"], &user["role"]];
    assert_eq!(fields, [&json!("ann@example.com"), &json!("Ann"), &json!("user")]);
    assert!(made.header("set-cookie").is_none(), "to register is not to log in");
    envelope::management(&register(&gateway, "ANN@example.COM").await, 409, "conflict");
    let long = "x".repeat(bounds::PASSWORD_MAX + 1);
    for (email, password, field) in [
        ("", PASSWORD, "email"),
        ("ann", PASSWORD, "email"),
        ("a@b@c", PASSWORD, "email"),
        ("usr_admin", PASSWORD, "email"),
        ("a b@example.com", PASSWORD, "email"),
        ("b@example.com", "", "password"),
        ("b@example.com", "seven c", "password"),
        ("b@example.com", &long, "password"),
    ] {
        let refused =
            post(&gateway, "/v1/auth/register", &json!({"email": email, "password": password}))
                .await;
        envelope::management(&refused, 400, "invalid_request");
        assert_eq!(refused.json()["field"], field, "{email} {password}");
    }
    for field in ["role", "disabled", "limits", "labels", "id", "created_at"] {
        let mut body = json!({"email": "eve@example.com", "password": PASSWORD});
        body[field] = json!("admin");
        let refused = post(&gateway, "/v1/auth/register", &body).await;
        envelope::management(&refused, 400, "invalid_request");
        assert_eq!(refused.json()["field"], field);
    }
    // Two registrations already count: one that succeeded, and one for an existing user.
    for n in 2..bounds::REGISTRATIONS {
        assert_eq!(register(&gateway, &format!("{n}@example.com")).await.status, 201);
    }
    let refused = register(&gateway, "late@example.com").await;
    envelope::management(&refused, 429, "rate_limited");
    assert!(
        refused
            .header("retry-after")
            .is_some_and(|seconds| (3000..=3600).contains(&seconds.parse::<u32>().unwrap()))
    );
    assert_eq!(log_in(&gateway, "late@example.com", PASSWORD).await.status, 401, "nobody was made");
    // The built-in user cannot log in.
    for email in ["usr_admin", "admin", ""] {
        let answer = log_in(&gateway, email, &gateway.admin_key).await;
        assert_eq!(
            (answer.status, &answer.json()["field"]),
            (400, &json!("email")),
            "{}",
            answer.text()
        );
    }
}

#[tokio::test]
async fn a_login_gives_a_cookie_and_a_token_of_one_session_and_says_who_one_is() {
    let (gateway, _provider) = start(Setup::tls).await;
    assert_eq!(register(&gateway, "ann@example.com").await.status, 201);
    let login = log_in(&gateway, "ann@example.com", PASSWORD).await;
    let body = login.json();
    assert_eq!(names(&body).len(), 4, "{body}");
    assert_eq!(
        (&body["token_type"], login.header("cache-control")),
        (&json!("Bearer"), Some("no-store"))
    );
    let [token, cookie] = [body["token"].as_str().unwrap(), login.header("set-cookie").unwrap()];
    let (pair, flags) = cookie.split_once("; ").unwrap();
    assert_eq!(
        (pair.split('=').next(), flags),
        (Some("rerouter_session"), "Path=/; Max-Age=43200; HttpOnly; SameSite=Lax")
    );
    assert!(token.starts_with("ses_") && !pair.contains(token));
    let ends: jiff::Timestamp = body["expires_at"].as_str().unwrap().parse().unwrap();
    let left = ends.duration_since(jiff::Timestamp::now()).as_secs();
    assert!((43_000..=43_200).contains(&left), "twelve hours: {left}");
    // Over HTTPS the cookie has the `__Host-` name and `Secure`, and no other cookie is read.
    let mut secure =
        until("a connection", async || client::H2::try_open(gateway.tls()).await).await;
    let account = json!({"email": "ann@example.com", "password": PASSWORD}).to_string();
    let by_https = secure.send("POST", "/v1/auth/login", &[JSON], account.as_bytes(), false).await;
    let locked = by_https.header("set-cookie").unwrap();
    let (locked, flags) = locked.split_once("; ").unwrap();
    assert!(locked.starts_with("__Host-rerouter_session=ses_"), "{locked}");
    assert_eq!(flags, "Path=/; Max-Age=43200; HttpOnly; SameSite=Lax; Secure");
    for (cookie, status) in [(locked, 200), (pair, 401)] {
        assert_eq!(
            secure.send("GET", "/v1/auth/me", &[("cookie", cookie)], b"", false).await.status,
            status,
            "{cookie}"
        );
        let plain = gateway.send("GET", "/v1/auth/me", &[("cookie", cookie)], None).await.status;
        assert_eq!(plain, if status == 200 { 401 } else { 200 }, "{cookie}");
    }
    let key = gateway.manage("POST", "/v1/apikeys", token, None).await.json();
    let bearer = |secret: &Value| format!("Bearer {}", secret.as_str().unwrap());
    let me = async |headers: &[(&str, &str)]| {
        gateway.send("GET", "/v1/auth/me", headers, None).await.json()
    };
    let mut expected = body["user"].clone();
    for (headers, auth) in [
        ([("authorization", bearer(&key["key"]))], json!({"type": "api_key", "key_id": key["id"]})),
        ([("authorization", bearer(&body["token"]))], json!({"type": "session"})),
        ([("cookie", pair.to_owned())], json!({"type": "session"})),
    ] {
        let headers = pairs(&headers);
        expected["auth"] = auth;
        assert_eq!(me(&headers).await, expected);
    }
    let admin = gateway.manage("GET", "/v1/auth/me", &gateway.admin_key, None).await.json();
    assert_eq!(
        (&admin["id"], &admin["auth"]),
        (&json!("usr_admin"), &json!({"type": "admin_key"}))
    );
    // The cookie and the token are one session, so they end together.
    let out = gateway.send("POST", "/v1/auth/logout", &[("cookie", pair)], None).await;
    assert_eq!(out.status, 204, "{}", out.text());
    gateway.answers(401, "GET", "/v1/auth/me", token, None).await;
    assert_eq!(
        secure.send("GET", "/v1/auth/me", &[("cookie", locked)], b"", false).await.status,
        200,
        "another session"
    );
}
