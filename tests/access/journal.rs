//! `kill -9` right after acknowledgements. Clients create and end users, sessions, keys of each
//! interface, descendant keys and agents, and keep journals of the answers. Nothing that was
//! acknowledged is lost, nothing that ended comes back, and the audit has exactly one row for each
//! change.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::client::Answer;
use crate::support::documents::in_order;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::journal::{
    AGENT, Ask, CLOUD_KEY, Client, Fact, Journal, Left, PIN, ROUTER, changeable, check,
    check_all_made, check_audit, newest_row, rows_since,
};
use crate::support::provider::{self as scripted, Provider};
use crate::support::{count, until};

const PASSWORD: &str = "a long enough password";
/// Number of ended credentials that are checked again in each later round, of each of two kinds:
/// keys of ROUTER and AGENT, and sessions and keys of PIN.
const REMEMBERED: usize = 20;
/// Number of keys per client that were made while AGENT was open and are approved once it is
/// enforced.
const VOUCHED: usize = 3;

/// The clients of a round, by kind.
const KINDS: [&str; 9] =
    ["users", "users", "sessions", "sessions", "descent", "repeats", "pins", "routers", "tenants"];

async fn make_user(client: &mut Client, email: &str) -> Option<(String, Value)> {
    let body = json!({"email": email, "password": PASSWORD});
    let admin = client.admin.clone();
    let made = client.send(("POST", "/v1/users", &admin), Some(body), Vec::new()).await?.json();
    let id = made["id"].as_str().unwrap().to_owned();
    let record = changeable(&made);
    client.know(Fact::User(id.clone()), record.clone());
    client.know(Fact::Password(email.to_owned(), PASSWORD.to_owned()), json!(true));
    Some((id, record))
}

async fn log_in(client: &mut Client, email: &str, password: &str) -> Option<String> {
    let body = json!({"email": email, "password": password});
    let token =
        client.send(("POST", "/v1/auth/login", ""), Some(body), Vec::new()).await?.json()["token"]
            .as_str()
            .unwrap()
            .to_owned();
    client.know(Fact::Pin(token.clone()), json!(true));
    Some(token)
}

/// Changes a user with the admin's key.
async fn patch(
    client: &mut Client,
    (id, record): (&str, &mut Value),
    body: Value,
    mut facts: Vec<(Fact, Value)>,
) -> Option<()> {
    for (name, value) in body.as_object().unwrap() {
        record[name] = value.clone();
    }
    facts.push((Fact::User(id.to_owned()), record.clone()));
    let (admin, path) = (client.admin.clone(), format!("/v1/users/{id}"));
    let shown = client.send(("PATCH", &path, &admin), Some(body), facts).await?.json();
    assert_eq!(changeable(&shown), *record);
    Some(())
}

/// Users who are created, given a role and limits, disabled and enabled, with their sessions and
/// keys.
async fn users(client: &mut Client) -> Option<()> {
    for n in 0_u64.. {
        let email = format!("{}-{n}@example.com", client.name);
        let (id, mut record) = make_user(client, &email).await?;
        let token = log_in(client, &email, PASSWORD).await?;
        let pin = client.make(PIN, &token, json!({})).await?;
        let router = client.make(ROUTER, &token, json!({})).await?;
        let (of_pin, of_router) =
            (Fact::Pin(pin.secret.clone()), Fact::Router(router.secret.clone()));
        let keys =
            |good: bool| vec![(of_pin.clone(), json!(good)), (of_router.clone(), json!(good))];
        let password =
            |good: bool| (Fact::Password(email.clone(), PASSWORD.to_owned()), json!(good));
        let out = || {
            [keys(false), vec![(Fact::Pin(token.clone()), json!(false)), password(false)]].concat()
        };
        patch(
            client,
            (&id, &mut record),
            json!({"name": format!("n{n}"), "limits": {"rpm": 100 + n}}),
            Vec::new(),
        )
        .await?;
        match n % 3 {
            0 => patch(client, (&id, &mut record), json!({"disabled": true}), out()).await?,
            1 => {
                patch(client, (&id, &mut record), json!({"disabled": true}), out()).await?;
                let back = [keys(true), vec![password(true)]].concat();
                patch(client, (&id, &mut record), json!({"disabled": false}), back).await?;
            }
            _ => {
                for role in ["admin", "user"] {
                    patch(client, (&id, &mut record), json!({"role": role}), Vec::new()).await?;
                }
            }
        }
    }
    Some(())
}

/// Logins, logouts and password changes.
async fn sessions(client: &mut Client) -> Option<()> {
    for n in 0_u64.. {
        let email = format!("{}-{n}@example.com", client.name);
        make_user(client, &email).await?;
        let mut tokens = Vec::new();
        for _ in 0..3 {
            tokens.push(log_in(client, &email, PASSWORD).await?);
        }
        let over = |token: &String| (Fact::Pin(token.clone()), json!(false));
        client.send(("POST", "/v1/auth/logout", &tokens[0]), None, vec![over(&tokens[0])]).await?;
        let new = format!("another password {n}");
        let facts = vec![
            over(&tokens[1]),
            (Fact::Password(email.clone(), PASSWORD.to_owned()), json!(false)),
            (Fact::Password(email.clone(), new.clone()), json!(true)),
        ];
        let body = json!({"current_password": PASSWORD, "new_password": new});
        client.send(("POST", "/v1/auth/password", &tokens[2]), Some(body), facts).await?;
        log_in(client, &email, &new).await?;
    }
    Some(())
}

/// Keys made by keys. They are rotated with and without a grace period, deactivated, and ended
/// alone or with their descendants.
async fn descent(client: &mut Client) -> Option<()> {
    let admin = client.admin.clone();
    for n in 0_u64.. {
        let scopes = ["inference", "keys"];
        let wide = json!({"scopes": scopes, "limits": {"rpm": 1000}});
        let top = client.make(ROUTER, &admin, wide).await?;
        let child = client.make(ROUTER, &top.secret, json!({"scopes": scopes})).await?;
        let grandchild = client.make(ROUTER, &child.secret, json!({"limits": {"rpm": 10}})).await?;
        let whole = format!("{ROUTER}/{}?descendants=true", top.id);
        let below = format!("{ROUTER}/{}", child.id);
        let others = vec![child.id.clone(), grandchild.id.clone()];
        match n % 4 {
            0 => {
                client.end_key(ROUTER, &admin, &[&top]).await?;
                client.stay(ROUTER, &admin, &top, &[&child, &grandchild]).await?;
            }
            1 => {
                let second = rotate(client, ROUTER, &top.secret, &child, &[&child], None).await?;
                client.stay(ROUTER, &admin, &top, &[&top, &second, &grandchild]).await?;
            }
            2 => {
                let second = rotate(client, ROUTER, &top.secret, &child, &[], Some(600)).await?;
                // A key has at most two valid secrets, and without a grace period only one.
                let third =
                    rotate(client, ROUTER, &admin, &child, &[&child, &second], None).await?;
                let facts = client.ended(ROUTER, &[&top, &third, &grandchild]);
                client.ask(Ask { facts, others, ..Ask::new("DELETE", &whole, &admin) }).await?;
            }
            _ => {
                let off = client.secrets(ROUTER, &[&child], false);
                client
                    .send(("PATCH", &below, &top.secret), Some(json!({"status": "inactive"})), off)
                    .await?;
                let facts = client.ended(ROUTER, &[&top, &child, &grandchild]);
                client.ask(Ask { facts, others, ..Ask::new("DELETE", &whole, &admin) }).await?;
            }
        }
    }
    Some(())
}

/// Rotates a key. The secrets in `dead` end at once, or after `grace` seconds.
async fn rotate(
    client: &mut Client,
    path: &str,
    by: &str,
    key: &Key,
    dead: &[&Key],
    grace: Option<u64>,
) -> Option<Key> {
    let facts = client.secrets(path, dead, false);
    let body = grace.map(|seconds| json!({"grace_period_seconds": seconds}));
    let answer: Answer =
        client.send(("POST", &format!("{path}/{}/rotate", key.id), by), body, facts).await?;
    Some(client.take_key(path, &answer))
}

/// Keys with every field set. Each field is changed, then the key is deactivated, activated,
/// rotated and ended.
async fn shelf(
    client: &mut Client,
    path: &str,
    (scopes, wide, narrow): (Value, Value, Value),
) -> Option<()> {
    let admin = client.admin.clone();
    for n in 0_u64.. {
        let ends = "2091-01-01T00:00:00.000000Z";
        let body = json!({
            "name": format!("made {n}"), "scopes": scopes, "limits": wide, "labels": {"team": "a"},
            "expires_at": ends
        });
        let key = client.make(path, &admin, body).await?;
        let id = key.id.clone();
        let labels =
            json!({"labels": {"team": "b", "floor": "2"}, "metadata": {"n": n.to_string()}});
        client.patch_key(path, &id, &admin, labels, Vec::new()).await?;
        client
            .patch_key(
                path,
                &id,
                &admin,
                json!({"limits": narrow, "labels": {"floor": null}}),
                Vec::new(),
            )
            .await?;
        let sooner =
            json!({"expires_at": "2081-01-01T00:00:00.000000Z", "name": format!("changed {n}")});
        client.patch_key(path, &id, &admin, sooner, Vec::new()).await?;
        for (status, good) in [("inactive", false), ("active", true)] {
            let facts = client.secrets(path, &[&key], good);
            client.patch_key(path, &id, &admin, json!({"status": status}), facts).await?;
        }
        match n % 3 {
            0 => client.end_key(path, &admin, &[&key]).await?,
            1 => {
                let second = rotate(client, path, &admin, &key, &[&key], None).await?;
                client.stay(path, &admin, &second, &[&second]).await?;
            }
            _ => {
                let second = rotate(client, path, &admin, &key, &[], Some(600)).await?;
                client.end_key(path, &admin, &[&second, &key]).await?;
            }
        }
    }
    Some(())
}

/// Keys of AGENT. Anybody makes and changes them while AGENT is open, else they need a key. Keys
/// also end themselves.
async fn tenants(client: &mut Client) -> Option<()> {
    let tenant = client.tenant;
    for n in 0_u64.. {
        let key = client.make(AGENT, tenant, json!({"name": format!("made {n}")})).await?;
        let changed = json!({"name": format!("changed {n}"), "metadata": {"n": n.to_string()}});
        client.patch_key(AGENT, &key.id, tenant, changed, Vec::new()).await?;
        // The key acts for itself, unless AGENT is open and callers are anonymous.
        let own = |key: &Key| if tenant.is_empty() { String::new() } else { key.secret.clone() };
        match n % 4 {
            0 => {
                let second = rotate(client, AGENT, &own(&key), &key, &[&key], None).await?;
                if tenant.is_empty() {
                    client.left.opened.push((
                        format!("{AGENT}/{}", key.id),
                        second.secret.clone(),
                        key.secret.clone(),
                    ));
                } else {
                    client.stay(AGENT, tenant, &second, &[&second]).await?;
                }
            }
            1 => client.end_key(AGENT, &own(&key), &[&key]).await?,
            2 => {
                let second = rotate(client, AGENT, tenant, &key, &[], Some(600)).await?;
                client.end_key(AGENT, &own(&second), &[&second, &key]).await?;
            }
            _ => {
                let off = client.secrets(AGENT, &[&key], false);
                client
                    .patch_key(AGENT, &key.id, tenant, json!({"status": "inactive"}), off)
                    .await?;
                client.end_key(AGENT, tenant, &[&key]).await?;
            }
        }
    }
    Some(())
}

/// Keys that are created twice under one `Idempotency-Key`, and agents.
async fn repeats(client: &mut Client) -> Option<()> {
    let (admin, tenant) = (client.admin.clone(), client.tenant);
    for n in 0_u64.. {
        let name = format!("{}-{n}", client.name);
        let asked = || Ask {
            named: Some(&name),
            body: Some(json!({})),
            ..Ask::new("POST", ROUTER, &admin)
        };
        let first = client.ask(asked()).await?;
        let key = client.take_key(ROUTER, &first);
        let again = client.ask(Ask { noted: false, ..asked() }).await?;
        assert_eq!(again.text(), first.text(), "one key, told twice");
        match n % 2 {
            0 => client.end_key(ROUTER, &admin, &[&key]).await?,
            _ => client.stay(ROUTER, &admin, &key, &[&key]).await?,
        }
        let (agent, path) = (name.to_lowercase(), format!("/v1/agents/{}", name.to_lowercase()));
        let described = |text: &str| vec![(Fact::Agent(agent.clone()), json!(text))];
        let body = json!({"name": agent, "model": "auto", "description": "first"});
        client.know(Fact::Agent(agent.clone()), Value::Null);
        client.send(("POST", "/v1/agents", tenant), Some(body), described("first")).await?;
        client
            .send(
                ("PATCH", &path, tenant),
                Some(json!({"description": "second"})),
                described("second"),
            )
            .await?;
        if n % 2 == 1 {
            client
                .send(
                    ("DELETE", &path, tenant),
                    None,
                    vec![(Fact::Agent(agent.clone()), Value::Null)],
                )
                .await?;
        }
    }
    Some(())
}

/// Runs a client of this kind until the gateway is gone. Returns what it was told.
async fn work(kind: &'static str, client: Option<Client>) -> Option<Left> {
    let mut client = client?;
    let gone = match kind {
        "users" => users(&mut client).await,
        "sessions" => sessions(&mut client).await,
        "descent" => descent(&mut client).await,
        "repeats" => repeats(&mut client).await,
        "tenants" => tenants(&mut client).await,
        "pins" => {
            shelf(
                &mut client,
                PIN,
                (
                    json!(["user"]),
                    json!({"keys_per_user": 50}),
                    json!({"keys_per_user": 5, "models": ["auto"]}),
                ),
            )
            .await
        }
        _ => {
            let wide = json!({"rpm": 1000, "budget": {"usd": 5.0, "per": "day"}});
            shelf(
                &mut client,
                ROUTER,
                (
                    json!(["inference", "replay"]),
                    wide,
                    json!({"rpm": 10, "budget": null, "models": ["auto"]}),
                ),
            )
            .await
        }
    };
    assert!(gone.is_none(), "they go on until nobody answers");
    Some(client.left)
}

/// Ends agents, and the keys of the built-in user and of AGENT's tenant. All clients share these
/// two owners, who may have only a limited number of keys.
async fn end_all(gateway: &Gateway) {
    let agents = gateway.manage("GET", "/v1/agents?limit=100", CLOUD_KEY, None).await.json();
    for agent in agents["data"].as_array().unwrap() {
        let path = format!("/v1/agents/{}", agent["id"].as_str().unwrap());
        gateway.answers(204, "DELETE", &path, CLOUD_KEY, None).await;
    }
    for (path, by, whose) in [
        (PIN, gateway.admin_key.as_str(), "&owner=usr_admin"),
        (AGENT, CLOUD_KEY, ""),
        (ROUTER, gateway.admin_key.as_str(), "&owner=usr_admin"),
    ] {
        gateway.end_keys(path, by, whose).await;
    }
}

/// Keys made while AGENT was open become valid once somebody with a key activates them. Only their
/// last secret is then valid.
async fn vouch(gateway: &Gateway, all: &[Left]) -> usize {
    let opened: Vec<_> =
        all.iter().flat_map(|left| left.opened.iter().rev().take(VOUCHED)).collect();
    for (path, secret, before) in &opened {
        let good =
            async |secret: &str| gateway.manage("GET", "/v1/agents", secret, None).await.status;
        assert_eq!(
            (good(secret).await, good(before).await),
            (401, 401),
            "nobody in particular made it"
        );
        gateway.answers(200, "PATCH", path, CLOUD_KEY, Some(&json!({"status": "active"}))).await;
        assert_eq!((good(secret).await, good(before).await), (200, 401));
    }
    opened.len()
}

/// Facts that can never change again: credentials that ended.
fn over(journal: Journal) -> impl Iterator<Item = (Fact, Vec<Value>)> {
    let ended = |(fact, seen): &(Fact, Vec<Value>)| {
        // Checking passwords is slow and throttled.
        matches!(fact, Fact::Pin(_) | Fact::Router(_) | Fact::AgentKey(_))
            && *seen == [json!(false)]
    };
    journal.into_iter().filter(ended)
}

/// Lets clients work until enough is acknowledged, then kills the gateway.
async fn until_killed(gateway: &mut Gateway, round: usize, tenant: &'static str) -> Vec<Left> {
    let counts: Vec<Arc<AtomicUsize>> = KINDS.iter().map(|_| Arc::default()).collect();
    let (address, admin): (SocketAddr, String) = (gateway.address(), gateway.admin_key.clone());
    let mut clients = Vec::new();
    for (n, kind) in KINDS.into_iter().enumerate() {
        let client = Client::connect(
            format!("{kind}{n}-{round}"),
            address,
            admin.clone(),
            tenant,
            Arc::clone(&counts[n]),
        )
        .await;
        clients.push(tokio::spawn(work(kind, client)));
    }
    // The number of acknowledgements before the kill differs in each round.
    let enough = |n: usize| 5 + (round * 7 + n * 5) % 11;
    let all =
        || counts.iter().enumerate().all(|(n, count)| count.load(Ordering::SeqCst) >= enough(n));
    until("acknowledgements", async || all().then_some(())).await;
    gateway.kill_9();
    let mut left = Vec::new();
    for client in clients {
        left.push(client.await.unwrap().expect("it was connected"));
    }
    left
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_after_a_kill_as_it_was_acknowledged_and_as_the_audit_says() {
    let provider = Provider::always(scripted::completion("well")).await;
    let mut gateway = Setup::new(&in_order(&[("a", &provider.url())], "")).threads(2).start().await;
    let mut ended: [Vec<(Fact, Vec<Value>)>; 2] = Default::default();
    let (mut mark, mut vouched, mut known) = (None, 0, BTreeSet::new());
    for round in 0..usize::try_from(count("REROUTER_ROUNDS", 3).min(100)).unwrap() {
        // AGENT is open in the first and in each third round.
        let tenant = if round % 3 == 0 { "" } else { CLOUD_KEY };
        if tenant.is_empty() && round > 0 {
            gateway.set_env("AGENT_CLOUD_API_KEY", "");
            gateway.restart().await;
        }
        let all = until_killed(&mut gateway, round, tenant).await;
        gateway.set_env("AGENT_CLOUD_API_KEY", CLOUD_KEY);
        gateway.start_again().await;
        let rows = rows_since(&gateway, mark.as_deref()).await;
        check_audit(&gateway, &rows, &all).await;
        check_all_made(&gateway, &rows, &mut known).await;
        let journal: Journal = all.iter().flat_map(|left| left.journal.clone()).collect();
        check(&gateway, &journal).await;
        for kind in &mut ended {
            check(&gateway, &kind.iter().cloned().collect()).await;
        }
        vouched += vouch(&gateway, &all).await;
        for fact in over(journal) {
            ended[usize::from(matches!(fact.0, Fact::Pin(_)))].push(fact);
        }
        for kind in &mut ended {
            assert!(!kind.is_empty(), "keys of ROUTER or AGENT ended, and sessions or keys of PIN");
            kind.drain(..kind.len().saturating_sub(REMEMBERED));
        }
        end_all(&gateway).await;
        mark = Some(newest_row(&gateway).await);
    }
    assert!(vouched > 0, "keys that were made while AGENT was open");
}
