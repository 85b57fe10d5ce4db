//! However a credential ends, no request that begins after that answer succeeds. Clients use the
//! credential in a loop meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::client::{self, Connection, H2};
use crate::support::documents::{chat_body, in_order};
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider};
use crate::support::{count, until};

const ROUTER: &str = "/v1/router/keys";
/// A path that shows whether a key is valid, without asking a provider.
const PROBE: &str = "/v1/models";
const CHAT: &str = "/v1/chat/completions";
const ME: &str = "/v1/auth/me";
const CLOUD_KEY: &str = "cloud-0123456789abcdef0123456789abcdef";
const PASSWORD: &str = "correct horse";
const JSON: (&str, &str) = ("content-type", "application/json");

async fn make(gateway: &Gateway, path: &str, maker: &str) -> Key {
    gateway.make_key(path, maker, &json!({})).await
}

/// One client that uses a key in a loop. Requests that begin after `dead` was set must be refused.
async fn hammer(
    mut connection: Connection,
    ask: Vec<u8>,
    dead: Arc<AtomicBool>,
    good: Arc<AtomicUsize>,
) -> Connection {
    let mut after = 0;
    while after < 2 {
        let begun_after = dead.load(Ordering::SeqCst);
        let answer = connection.exchange(&ask).await;
        if begun_after {
            assert_eq!(answer.status, 401, "a request that began after the 204");
            after += 1;
        } else {
            assert!(matches!(answer.status, 200 | 401), "{}", answer.text());
            good.fetch_add(usize::from(answer.status == 200), Ordering::SeqCst);
        }
    }
    connection
}

/// As [`hammer`], on a stream of an HTTP/2 connection.
async fn hammer_h2(
    mut connection: H2,
    bearer: String,
    dead: Arc<AtomicBool>,
    good: Arc<AtomicUsize>,
) {
    let mut after = 0;
    while after < 2 {
        let begun_after = dead.load(Ordering::SeqCst);
        let answer = connection.send("GET", PROBE, &[("authorization", &bearer)], b"", false).await;
        if begun_after {
            assert_eq!(answer.status, 401, "a stream that began after the 204");
            after += 1;
        } else {
            assert!(matches!(answer.status, 200 | 401), "{}", answer.text());
            good.fetch_add(usize::from(answer.status == 200), Ordering::SeqCst);
        }
    }
}

#[tokio::test]
async fn no_request_that_begins_after_a_revocation_succeeds() {
    const CLIENTS: usize = 64;
    // HTTP/2 connections, and concurrent streams on each.
    const CONNECTIONS: usize = 4;
    const STREAMS: usize = 4;
    let a = Provider::always(scripted::completion("a word")).await;
    let gateway = Setup::new(&in_order(&[("a", &a.url())], "")).threads(2).tls().start().await;
    let admin = gateway.admin_key.clone();
    let (mut connections, mut multiplexed) = (Vec::new(), Vec::new());
    for _ in 0..CLIENTS {
        connections.push(gateway.connect().await);
    }
    for _ in 0..CONNECTIONS {
        multiplexed.push(H2::open(gateway.tls()).await);
    }
    for round in 0..count("REROUTER_ROUNDS", 4) {
        let key = make(&gateway, ROUTER, &admin).await;
        let bearer = format!("Bearer {}", key.secret);
        let ask =
            client::request("GET", PROBE, &gateway.host(), &[("authorization", &bearer)], None);
        let (dead, good) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let clients: Vec<_> = connections
            .drain(..)
            .map(|connection| {
                tokio::spawn(hammer(connection, ask.clone(), Arc::clone(&dead), Arc::clone(&good)))
            })
            .collect();
        let streams: Vec<_> = multiplexed
            .iter()
            .flat_map(|connection| std::iter::repeat_n(connection, STREAMS))
            .map(|connection| {
                tokio::spawn(hammer_h2(
                    connection.clone(),
                    bearer.clone(),
                    Arc::clone(&dead),
                    Arc::clone(&good),
                ))
            })
            .collect();
        until("the clients to be served", async || {
            (good.load(Ordering::SeqCst) >= CLIENTS + CONNECTIONS * STREAMS).then_some(())
        })
        .await;
        // Every other round also ends the key's descendants, with the same guarantee.
        let target =
            format!("{ROUTER}/{}{}", key.id, if round % 2 == 0 { "" } else { "?descendants=true" });
        gateway.answers(204, "DELETE", &target, &admin, None).await;
        dead.store(true, Ordering::SeqCst);
        for client in clients {
            connections.push(client.await.expect("no client saw it alive"));
        }
        for stream in streams {
            stream.await.expect("no stream saw it alive");
        }
    }
}

/// A credential and its end: the header that sends it, the path to ask, and the request that ends
/// it with the credential for that request.
struct Ending {
    shown: (&'static str, String),
    asked: &'static str,
    by: (&'static str, String, String, Value),
}

fn bearer(secret: &str) -> (&'static str, String) {
    ("authorization", format!("Bearer {secret}"))
}

fn network(number: usize) -> String {
    format!("198.{}.{}.7", 18 + number / 250, number % 250)
}

/// A user of one round, with a network of its own because logins are throttled by network.
struct Somebody {
    id: String,
    email: String,
    network: String,
}

impl Somebody {
    async fn new(gateway: &Gateway, number: usize) -> Self {
        let email = format!("user{number}@example.com");
        let made = gateway
            .answers(
                201,
                "POST",
                "/v1/users",
                &gateway.admin_key,
                Some(&json!({"email": email, "password": PASSWORD})),
            )
            .await;
        let id = made.json()["id"].as_str().unwrap().to_owned();
        Somebody { id, email, network: network(number) }
    }

    /// Logs in. Returns the token and the cookie of the new session.
    async fn log_in(&self, gateway: &Gateway) -> (String, String) {
        let body = json!({"email": self.email, "password": PASSWORD}).to_string();
        let headers = [JSON, ("x-forwarded-for", self.network.as_str())];
        let login = gateway.send("POST", "/v1/auth/login", &headers, Some(body.as_bytes())).await;
        let cookie = login
            .header("set-cookie")
            .unwrap_or_default()
            .split(';')
            .next()
            .unwrap_or_default()
            .to_owned();
        (
            login.json()["token"].as_str().unwrap_or_else(|| panic!("{}", login.text())).to_owned(),
            cookie,
        )
    }
}

/// Keys of each interface, each with one of the ways in which a key ends.
async fn of_keys(gateway: &Gateway) -> Vec<Ending> {
    let mut ends = Vec::new();
    for (path, asked, maker) in [
        (ROUTER, CHAT, &*gateway.admin_key),
        ("/v1/apikeys", ME, &gateway.admin_key),
        ("/v1/api-keys", "/v1/agents", CLOUD_KEY),
    ] {
        let inactive = json!({"status": "inactive"});
        for (method, rest, body) in
            [("DELETE", "", json!({})), ("POST", "/rotate", json!({})), ("PATCH", "", inactive)]
        {
            let key = make(gateway, path, maker).await;
            ends.push(Ending {
                shown: bearer(&key.secret),
                asked,
                by: (method, format!("{path}/{}{rest}", key.id), maker.to_owned(), body),
            });
        }
    }
    ends
}

/// Sessions that end by logout or a new password, and all credentials of users who are disabled.
async fn of_users(gateway: &Gateway, round: usize) -> Vec<Ending> {
    let mut ends = Vec::new();
    // A session's cookie and token end together.
    let somebody = Somebody::new(gateway, round * 6).await;
    for shows_cookie in [false, true] {
        let (token, cookie) = somebody.log_in(gateway).await;
        let shown = if shows_cookie { ("cookie", cookie) } else { bearer(&token) };
        ends.push(Ending {
            shown,
            asked: ME,
            by: ("POST", "/v1/auth/logout".to_owned(), token, json!({})),
        });
    }
    let somebody = Somebody::new(gateway, round * 6 + 1).await;
    let ((other, _), (own, _)) = (somebody.log_in(gateway).await, somebody.log_in(gateway).await);
    let change = json!({"current_password": PASSWORD, "new_password": "another horse"});
    ends.push(Ending {
        shown: bearer(&other),
        asked: ME,
        by: ("POST", "/v1/auth/password".to_owned(), own, change),
    });
    for (place, path) in [None, None, Some(ROUTER), Some("/v1/apikeys")].into_iter().enumerate() {
        let somebody = Somebody::new(gateway, round * 6 + 2 + place).await;
        let (token, cookie) = somebody.log_in(gateway).await;
        let (shown, asked) = match path {
            Some(path) => (
                bearer(&make(gateway, path, &token).await.secret),
                if path == ROUTER { CHAT } else { ME },
            ),
            None if place == 0 => (("cookie", cookie), ME),
            None => (bearer(&token), ME),
        };
        let by = (
            "PATCH",
            format!("/v1/users/{}", somebody.id),
            gateway.admin_key.clone(),
            json!({"disabled": true}),
        );
        ends.push(Ending { shown, asked, by });
    }
    ends
}

/// The same guarantee for all other ends of credentials, with a provider behind the gateway.
#[tokio::test]
async fn nor_does_one_after_any_other_end_of_a_key_or_a_session() {
    const CLIENTS: usize = 24;
    let a = Provider::always(scripted::completion("a word")).await;
    let setup =
        Setup::new(&in_order(&[("a", &a.url())], "")).server("trusted_proxies: [127.0.0.1/32]");
    let gateway = setup.env("AGENT_CLOUD_API_KEY", CLOUD_KEY).threads(2).start().await;
    let chat = chat_body("auto", false);
    let mut connections = Vec::new();
    for _ in 0..CLIENTS {
        connections.push(gateway.connect().await);
    }
    let rounds = usize::try_from(count("REROUTER_ROUNDS", 4)).expect("so many rounds").div_ceil(4);
    for round in 0..rounds {
        let mut ends = of_keys(&gateway).await;
        ends.extend(of_users(&gateway, round).await);
        for Ending { shown: (name, value), asked, by: (method, target, by, with) } in ends {
            let (verb, body) =
                if asked == CHAT { ("POST", Some(chat.as_bytes())) } else { ("GET", None) };
            let ask = client::request(verb, asked, &gateway.host(), &[(name, &value), JSON], body);
            let (dead, good) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
            let clients: Vec<_> = connections
                .drain(..)
                .map(|connection| {
                    tokio::spawn(hammer(
                        connection,
                        ask.clone(),
                        Arc::clone(&dead),
                        Arc::clone(&good),
                    ))
                })
                .collect();
            until("the clients to be served", async || {
                (good.load(Ordering::SeqCst) >= CLIENTS).then_some(())
            })
            .await;
            let ((name, value), with, network) = (bearer(&by), with.to_string(), network(round));
            // Each password is sent from a network of this round.
            let headers = [(name, value.as_str()), JSON, ("x-forwarded-for", &network)];
            let ended = gateway.send(method, &target, &headers, Some(with.as_bytes())).await;
            assert!(matches!(ended.status, 200 | 204), "{method} {target}: {}", ended.text());
            dead.store(true, Ordering::SeqCst);
            for client in clients {
                connections.push(client.await.expect("no client saw it alive"));
            }
            // An owner may have only a hundred live keys.
            if method != "DELETE" && target.contains("keys/") {
                let key = target.trim_end_matches("/rotate");
                assert_eq!(gateway.manage("DELETE", key, &by, None).await.status, 204, "{key}");
            }
        }
    }
}
