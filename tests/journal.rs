//! `kill -9` right after acknowledgements, against the journals of clients that make and end users, sessions, keys that
//! descend from keys, and agents: nothing that was acknowledged is lost, and nothing that ended comes back.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::client::{self, Answer, Connection};
use crate::support::documents::in_order;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider};
use crate::support::{full, until};

const PIN: &str = "/v1/apikeys";
const ROUTER: &str = "/v1/router/keys";
const PASSWORD: &str = "a long enough password";
/// Keys of ROUTER, and sessions and keys of PIN, that ended in earlier rounds and are looked at again in each later one.
const REMEMBERED: usize = 20;
/// Descents, or keys, of one client that stay: all of them have one owner, who has only so many.
const STAY: usize = 6;

/// The clients of a round, by what they do.
const KINDS: [&str; 6] = ["users", "users", "sessions", "sessions", "descent", "repeats"];

/// Something that can be looked up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fact {
    /// Whether this token of a session, or key of PIN, is good.
    Pin(String),
    /// Whether this key of ROUTER is.
    Router(String),
    /// Whether somebody logs in with this e-mail and this password.
    Password(String, String),
    /// What admins change of the user of this id.
    User(String),
    /// What the agent of this name is described as; null where there is none.
    Agent(String),
}

impl Fact {
    async fn look(&self, gateway: &Gateway) -> Value {
        let good = |answer: Answer| {
            assert!(matches!(answer.status, 200 | 401), "{self:?}: {}", answer.text());
            json!(answer.status == 200)
        };
        match self {
            Fact::Pin(secret) => good(gateway.manage("GET", "/v1/auth/me", secret, None).await),
            Fact::Router(secret) => good(gateway.manage("GET", "/v1/models", secret, None).await),
            Fact::Password(email, password) => {
                let body = json!({"email": email, "password": password}).to_string();
                good(gateway.send("POST", "/v1/auth/login", &[("content-type", "application/json")], Some(body.as_bytes())).await)
            }
            Fact::User(id) => {
                let answer = gateway.manage("GET", &format!("/v1/users/{id}"), &gateway.admin_key, None).await;
                assert_eq!(answer.status, 200, "a user who was acknowledged: {}", answer.text());
                changeable(&answer.json())
            }
            Fact::Agent(name) => {
                let answer = gateway.send("GET", &format!("/v1/agents/{name}"), &[], None).await;
                assert!(matches!(answer.status, 200 | 404), "{}", answer.text());
                answer.json()["description"].clone()
            }
        }
    }
}

/// What admins change of a user.
fn changeable(record: &Value) -> Value {
    json!({"name": record["name"], "role": record["role"], "disabled": record["disabled"], "limits": record["limits"]})
}

/// What a client may find: one thing where it was answered, several where an answer is still to come.
type Journal = BTreeMap<Fact, Vec<Value>>;

/// One client on a connection of its own, until the gateway is gone.
struct Client {
    name: String,
    admin: String,
    host: String,
    connection: Connection,
    journal: Journal,
    /// Keys from which others descend, with what does, in the order of their making.
    stay: VecDeque<(String, Vec<(Fact, Value)>)>,
    acknowledged: Arc<AtomicUsize>,
}

impl Client {
    /// Sends something and writes down what that makes of `facts`: either before the answer, the new after it. `None` when no
    /// whole answer came.
    async fn send(
        &mut self,
        (method, target, credential): (&str, &str, &str),
        body: Option<Value>,
        facts: Vec<(Fact, Value)>,
    ) -> Option<Answer> {
        self.send_named((method, target, credential), None, body, facts).await
    }

    /// The same with an `Idempotency-Key`.
    async fn send_named(
        &mut self,
        (method, target, credential): (&str, &str, &str),
        name: Option<&str>,
        body: Option<Value>,
        facts: Vec<(Fact, Value)>,
    ) -> Option<Answer> {
        for (fact, new) in &facts {
            // A password that nobody had is wrong until it is one.
            self.journal.entry(fact.clone()).or_insert_with(|| vec![json!(false)]).push(new.clone());
        }
        let bearer = format!("Bearer {credential}");
        let mut headers = vec![("content-type", "application/json")];
        headers.extend((!credential.is_empty()).then_some(("authorization", bearer.as_str())));
        headers.extend(name.map(|name| ("idempotency-key", name)));
        let body = body.map(|body| body.to_string());
        let request = client::request(method, target, &self.host, &headers, body.as_deref().map(str::as_bytes));
        let answer = self.connection.try_exchange(&request).await.filter(|answer| answer.whole)?;
        assert!((200..300).contains(&answer.status), "{method} {target}: {}", answer.text());
        for (fact, new) in facts {
            self.know(fact, new);
        }
        self.acknowledged.fetch_add(1, Ordering::SeqCst);
        Some(answer)
    }

    /// Writes down what an answer said.
    fn know(&mut self, fact: Fact, value: Value) {
        self.journal.insert(fact, vec![value]);
    }

    async fn make(&mut self, path: &str, by: &str, body: Value) -> Option<Key> {
        let made = self.send(("POST", path, by), Some(body), Vec::new()).await?;
        Some(self.take_key(path, &made))
    }

    /// The key of an answer, which is good from now on.
    fn take_key(&mut self, path: &str, answer: &Answer) -> Key {
        let record = answer.json();
        let text = |name: &str| record[name].as_str().unwrap().to_owned();
        let key = Key { id: text("id"), secret: text("key") };
        self.know(of(path, &key), json!(true));
        key
    }

    async fn make_user(&mut self, email: &str) -> Option<(String, Value)> {
        let body = json!({"email": email, "password": PASSWORD});
        let admin = self.admin.clone();
        let made = self.send(("POST", "/v1/users", &admin), Some(body), Vec::new()).await?.json();
        let id = made["id"].as_str().unwrap().to_owned();
        let record = changeable(&made);
        self.know(Fact::User(id.clone()), record.clone());
        self.know(Fact::Password(email.to_owned(), PASSWORD.to_owned()), json!(true));
        Some((id, record))
    }

    async fn log_in(&mut self, email: &str, password: &str) -> Option<String> {
        let body = json!({"email": email, "password": password});
        let token = self.send(("POST", "/v1/auth/login", ""), Some(body), Vec::new()).await?.json()["token"].as_str().unwrap().to_owned();
        self.know(Fact::Pin(token.clone()), json!(true));
        Some(token)
    }

    /// Keeps a key and what descends from it until there are too many, and ends the oldest then.
    async fn stay(&mut self, key: &Key, keys: &[&Key]) -> Option<()> {
        self.stay.push_back((key.id.clone(), dead(ROUTER, keys)));
        if self.stay.len() > STAY
            && let Some((id, facts)) = self.stay.pop_front()
        {
            let admin = self.admin.clone();
            self.send(("DELETE", &format!("{ROUTER}/{id}?descendants=true"), &admin), None, facts).await?;
        }
        Some(())
    }

    /// Changes a user as an admin does.
    async fn patch(&mut self, (id, record): (&str, &mut Value), body: Value, mut facts: Vec<(Fact, Value)>) -> Option<()> {
        for (name, value) in body.as_object().unwrap() {
            record[name] = value.clone();
        }
        facts.push((Fact::User(id.to_owned()), record.clone()));
        let (admin, path) = (self.admin.clone(), format!("/v1/users/{id}"));
        let shown = self.send(("PATCH", &path, &admin), Some(body), facts).await?.json();
        assert_eq!(changeable(&shown), *record);
        Some(())
    }
}

fn of(path: &str, key: &Key) -> Fact {
    let secret = key.secret.clone();
    if path == PIN { Fact::Pin(secret) } else { Fact::Router(secret) }
}

fn dead(path: &str, keys: &[&Key]) -> Vec<(Fact, Value)> {
    keys.iter().map(|key| (of(path, key), json!(false))).collect()
}

/// Users who are made, given a role and limits, shut out and let in again, with what they have.
async fn users(client: &mut Client) -> Option<()> {
    for n in 0_u64.. {
        let email = format!("{}-{n}@example.com", client.name);
        let (id, mut record) = client.make_user(&email).await?;
        let token = client.log_in(&email, PASSWORD).await?;
        let pin = client.make(PIN, &token, json!({})).await?;
        let router = client.make(ROUTER, &token, json!({})).await?;
        let keys = |good: bool| vec![(of(PIN, &pin), json!(good)), (of(ROUTER, &router), json!(good))];
        let password = |good: bool| (Fact::Password(email.clone(), PASSWORD.to_owned()), json!(good));
        let out = || [keys(false), vec![(Fact::Pin(token.clone()), json!(false)), password(false)]].concat();
        client.patch((&id, &mut record), json!({"name": format!("n{n}"), "limits": {"rpm": 100 + n}}), Vec::new()).await?;
        match n % 3 {
            0 => client.patch((&id, &mut record), json!({"disabled": true}), out()).await?,
            1 => {
                client.patch((&id, &mut record), json!({"disabled": true}), out()).await?;
                let back = [keys(true), vec![password(true)]].concat();
                client.patch((&id, &mut record), json!({"disabled": false}), back).await?;
            }
            _ => {
                for role in ["admin", "user"] {
                    client.patch((&id, &mut record), json!({"role": role}), Vec::new()).await?;
                }
            }
        }
    }
    Some(())
}

/// Logins, logouts and new passwords.
async fn sessions(client: &mut Client) -> Option<()> {
    for n in 0_u64.. {
        let email = format!("{}-{n}@example.com", client.name);
        client.make_user(&email).await?;
        let mut tokens = Vec::new();
        for _ in 0..3 {
            tokens.push(client.log_in(&email, PASSWORD).await?);
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
        client.log_in(&email, &new).await?;
    }
    Some(())
}

/// Keys that keys made, rotated with a grace and without, switched off, and ended alone or with their descent.
async fn descent(client: &mut Client) -> Option<()> {
    let admin = client.admin.clone();
    for n in 0_u64.. {
        let top = client.make(ROUTER, &admin, json!({"limits": {"rpm": 1000}})).await?;
        let child = client.make(ROUTER, &top.secret, json!({})).await?;
        let grandchild = client.make(ROUTER, &child.secret, json!({"limits": {"rpm": 10}})).await?;
        let (one, whole) = (format!("{ROUTER}/{}", top.id), format!("{ROUTER}/{}?descendants=true", top.id));
        let below = format!("{ROUTER}/{}", child.id);
        match n % 4 {
            0 => {
                client.send(("DELETE", &one, &admin), None, dead(ROUTER, &[&top])).await?;
                client.stay(&top, &[&child, &grandchild]).await?;
            }
            1 => {
                let rotated = client.send(("POST", &format!("{below}/rotate"), &top.secret), None, dead(ROUTER, &[&child])).await?;
                let second = client.take_key(ROUTER, &rotated);
                client.stay(&top, &[&top, &second, &grandchild]).await?;
            }
            2 => {
                let grace = Some(json!({"grace_period_seconds": 600}));
                let first = client.send(("POST", &format!("{below}/rotate"), &top.secret), grace, Vec::new()).await?;
                let second = client.take_key(ROUTER, &first);
                // Two secrets at most, and with no grace one.
                let again = client.send(("POST", &format!("{below}/rotate"), &admin), None, dead(ROUTER, &[&child, &second])).await?;
                let third = client.take_key(ROUTER, &again);
                client.send(("DELETE", &whole, &admin), None, dead(ROUTER, &[&top, &third, &grandchild])).await?;
            }
            _ => {
                client.send(("PATCH", &below, &top.secret), Some(json!({"status": "inactive"})), dead(ROUTER, &[&child])).await?;
                client.send(("DELETE", &whole, &admin), None, dead(ROUTER, &[&top, &child, &grandchild])).await?;
            }
        }
    }
    Some(())
}

/// Keys that are asked for twice under a name, and agents.
async fn repeats(client: &mut Client) -> Option<()> {
    let admin = client.admin.clone();
    for n in 0_u64.. {
        let name = format!("{}-{n}", client.name);
        let first = client.send_named(("POST", ROUTER, &admin), Some(&name), Some(json!({})), Vec::new()).await?;
        let key = client.take_key(ROUTER, &first);
        let again = client.send_named(("POST", ROUTER, &admin), Some(&name), Some(json!({})), Vec::new()).await?;
        assert_eq!(again.text(), first.text(), "one key, told twice");
        match n % 2 {
            0 => drop(client.send(("DELETE", &format!("{ROUTER}/{}", key.id), &admin), None, dead(ROUTER, &[&key])).await?),
            _ => client.stay(&key, &[&key]).await?,
        }
        let (agent, path) = (name.to_lowercase(), format!("/v1/agents/{}", name.to_lowercase()));
        let described = |text: &str| vec![(Fact::Agent(agent.clone()), json!(text))];
        let body = json!({"name": agent, "model": "auto", "description": "first"});
        client.journal.insert(Fact::Agent(agent.clone()), vec![Value::Null]);
        client.send(("POST", "/v1/agents", ""), Some(body), described("first")).await?;
        client.send(("PATCH", &path, ""), Some(json!({"description": "second"})), described("second")).await?;
        if n % 2 == 1 {
            client.send(("DELETE", &path, ""), None, vec![(Fact::Agent(agent.clone()), Value::Null)]).await?;
        }
    }
    Some(())
}

/// What a client of this kind was told until the gateway was gone.
async fn work(kind: &'static str, (name, host, admin): (String, SocketAddr, String), acknowledged: Arc<AtomicUsize>) -> Journal {
    let Some(connection) = Connection::try_open(host).await else { return Journal::new() };
    let mut client =
        Client { name, admin, host: host.to_string(), connection, journal: Journal::new(), stay: VecDeque::new(), acknowledged };
    let gone = match kind {
        "users" => users(&mut client).await,
        "sessions" => sessions(&mut client).await,
        "descent" => descent(&mut client).await,
        _ => repeats(&mut client).await,
    };
    assert!(gone.is_none(), "they go on until nobody answers");
    client.journal
}

async fn check(gateway: &Gateway, journal: &Journal) {
    for (fact, expected) in journal {
        let found = fact.look(gateway).await;
        assert!(expected.contains(&found), "{fact:?} was {expected:?}, and now {found}");
    }
}

/// Ends agents, and the keys of the built-in user, of whom all clients have theirs: there may be only so many.
async fn end_all(gateway: &Gateway) {
    let agents = gateway.send("GET", "/v1/agents?limit=100", &[], None).await.json();
    for agent in agents["data"].as_array().unwrap() {
        let path = format!("/v1/agents/{}", agent["id"].as_str().unwrap());
        assert_eq!(gateway.send("DELETE", &path, &[], None).await.status, 204);
    }
    loop {
        let path = format!("{ROUTER}?limit=100&owner=usr_admin");
        let listed = gateway.manage("GET", &path, &gateway.admin_key, None).await.json();
        let ids: Vec<&str> = listed["data"].as_array().unwrap().iter().filter_map(|key| key["id"].as_str()).collect();
        if ids.is_empty() {
            return;
        }
        for id in ids {
            assert_eq!(gateway.manage("DELETE", &format!("{ROUTER}/{id}"), &gateway.admin_key, None).await.status, 204);
        }
    }
}

/// What stays as it is from now on: what ended.
fn over(journal: Journal) -> impl Iterator<Item = (Fact, Vec<Value>)> {
    let ended = |(fact, seen): &(Fact, Vec<Value>)| {
        // Looking a password up takes long, and only so many may be looked up at all.
        matches!(fact, Fact::Pin(_) | Fact::Router(_)) && *seen == [json!(false)]
    };
    journal.into_iter().filter(ended)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_sessions_and_descents_are_after_a_kill_as_they_were_acknowledged() {
    let provider = Provider::always(scripted::completion("well")).await;
    let mut gateway = Setup::new(&in_order(&[("a", &provider.url())], "")).threads(2).start().await;
    let mut ended: [Vec<(Fact, Vec<Value>)>; 2] = Default::default();
    for round in 0..if full() { 100 } else { 3 } {
        let counts: Vec<Arc<AtomicUsize>> = KINDS.iter().map(|_| Arc::default()).collect();
        let whose = |n: usize| (format!("{}{n}-{round}", KINDS[n]), gateway.address(), gateway.admin_key.clone());
        let clients = (0..KINDS.len()).map(|n| tokio::spawn(work(KINDS[n], whose(n), Arc::clone(&counts[n]))));
        let clients: Vec<_> = clients.collect();
        // Each time after other numbers of acknowledgements, and at once.
        let enough = |n: usize| 5 + (round * 7 + n * 5) % 11;
        let all = || counts.iter().enumerate().all(|(n, count)| count.load(Ordering::SeqCst) >= enough(n));
        until("acknowledgements", async || all().then_some(())).await;
        gateway.kill_9();
        let mut journal = Journal::new();
        for client in clients {
            journal.extend(client.await.unwrap());
        }
        gateway.start_again().await;
        check(&gateway, &journal).await;
        for kind in &mut ended {
            check(&gateway, &kind.iter().cloned().collect()).await;
        }
        for fact in over(journal) {
            ended[usize::from(matches!(fact.0, Fact::Pin(_)))].push(fact);
        }
        for kind in &mut ended {
            assert!(!kind.is_empty(), "keys of ROUTER ended, and sessions or keys of PIN");
            kind.drain(..kind.len().saturating_sub(REMEMBERED));
        }
        end_all(&gateway).await;
    }
}
