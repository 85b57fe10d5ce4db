//! What clients write down of what they were told, until the gateway is killed: held against what
//! is there after the next start, and against the rows of the audit.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rerouter::internals::api::NOTED;
use serde_json::{Map, Value, json};

use super::client::{self, Answer, Connection};
use super::gateway::{Gateway, Key};

pub const PIN: &str = "/v1/apikeys";
pub const AGENT: &str = "/v1/api-keys";
pub const ROUTER: &str = "/v1/router/keys";
/// AGENT is enforced with this when facts are looked up.
pub const CLOUD_KEY: &str = "agent-cloud-canary-0123456789abcdef";
/// Descents, or keys, of one client that stay: all of them have one owner, who has only so many.
const STAY: usize = 6;

/// Something that can be looked up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fact {
    /// Whether this token of a session, or key of PIN, is good.
    Pin(String),
    /// Whether this key of ROUTER is.
    Router(String),
    /// Whether this key of AGENT is, where AGENT is enforced.
    AgentKey(String),
    /// Whether somebody logs in with this e-mail and this password.
    Password(String, String),
    /// What can be changed of the key at this path.
    Key(String),
    /// What admins change of the user of this id.
    User(String),
    /// What the agent of this name is described as; null where there is none.
    Agent(String),
}

impl Fact {
    pub async fn look(&self, gateway: &Gateway) -> Value {
        let good = |answer: Answer| {
            assert!(matches!(answer.status, 200 | 401), "{self:?}: {}", answer.text());
            json!(answer.status == 200)
        };
        let get = async |path: &str, by: &str| gateway.manage("GET", path, by, None).await;
        match self {
            Fact::Pin(secret) => good(get("/v1/auth/me", secret).await),
            Fact::Router(secret) => good(get("/v1/models", secret).await),
            Fact::AgentKey(secret) => good(get("/v1/agents", secret).await),
            Fact::Password(email, password) => {
                let body = json!({"email": email, "password": password}).to_string();
                good(
                    gateway
                        .send(
                            "POST",
                            "/v1/auth/login",
                            &[("content-type", "application/json")],
                            Some(body.as_bytes()),
                        )
                        .await,
                )
            }
            Fact::Key(path) => {
                let answer = get(path, by(path, gateway)).await;
                assert_eq!(answer.status, 200, "a key that was acknowledged: {}", answer.text());
                held(&answer.json())
            }
            Fact::User(id) => {
                let answer = get(&format!("/v1/users/{id}"), &gateway.admin_key).await;
                assert_eq!(answer.status, 200, "a user who was acknowledged: {}", answer.text());
                changeable(&answer.json())
            }
            Fact::Agent(name) => {
                let answer = get(&format!("/v1/agents/{name}"), CLOUD_KEY).await;
                assert!(matches!(answer.status, 200 | 404), "{}", answer.text());
                answer.json()["description"].clone()
            }
        }
    }
}

/// Who sees everything below this path.
fn by<'a>(path: &str, gateway: &'a Gateway) -> &'a str {
    if path.starts_with(AGENT) || path.starts_with("/v1/agents") {
        CLOUD_KEY
    } else {
        &gateway.admin_key
    }
}

/// What admins change of a user.
pub fn changeable(record: &Value) -> Value {
    json!({
        "name": record["name"], "role": record["role"], "disabled": record["disabled"],
        "limits": record["limits"]
    })
}

/// What stays of a key, or is changed by calls. Keys that nobody in particular made are not active
/// while AGENT is enforced.
pub fn held(record: &Value) -> Value {
    const NAMES: [&str; 6] = ["name", "scopes", "labels", "limits", "expires_at", "metadata"];
    let mut held: Map<String, Value> =
        NAMES.map(|name| (name.to_owned(), record[name].clone())).into_iter().collect();
    held.insert("ended".to_owned(), json!(record["status"] == "revoked"));
    Value::Object(held)
}

/// A merge patch (RFC 7396), as keys are changed by it; what is held of a key has no status.
fn patched(record: &Value, patch: &Value) -> Value {
    let (Some(before), Some(patch)) = (record.as_object(), patch.as_object()) else {
        return patch.clone();
    };
    let mut record = before.clone();
    for (name, value) in patch.iter().filter(|(name, _)| *name != "status") {
        if value.is_null() {
            record.remove(name);
        } else {
            let merged = patched(record.get(name).unwrap_or(&Value::Null), value);
            record.insert(name.clone(), merged);
        }
    }
    Value::Object(record)
}

/// What a client may find: one thing where it was answered, several where an answer is still to
/// come.
pub type Journal = BTreeMap<Fact, Vec<Value>>;

/// Something that is asked for.
pub struct Ask<'a> {
    pub method: &'a str,
    pub target: &'a str,
    pub by: &'a str,
    /// An `Idempotency-Key`.
    pub named: Option<&'a str>,
    pub body: Option<Value>,
    /// What it makes of what can be looked up.
    pub facts: Vec<(Fact, Value)>,
    /// What else has a row for it.
    pub others: Vec<String>,
    /// Whether it changes anything.
    pub noted: bool,
}

impl<'a> Ask<'a> {
    pub fn new(method: &'a str, target: &'a str, by: &'a str) -> Ask<'a> {
        Ask {
            method,
            target,
            by,
            named: None,
            body: None,
            facts: Vec::new(),
            others: Vec::new(),
            noted: true,
        }
    }

    /// The word of the audit for it, and what it is done to where its path says that by id.
    fn noted_as(&self) -> (String, Option<String>) {
        let path = self.target.split('?').next().unwrap();
        let fits = |pattern: &str| {
            let (mut these, mut those) = (pattern.split('/'), path.split('/'));
            let same = these
                .by_ref()
                .zip(those.by_ref())
                .all(|(this, that)| this == that || this == "{id}");
            same && pattern.split('/').count() == path.split('/').count()
        };
        let (_, pattern, action) = NOTED
            .iter()
            .find(|(method, pattern, _)| *method == self.method && fits(pattern))
            .expect("it is noted");
        let at = pattern.split('/').position(|part| part == "{id}");
        let id = at
            .and_then(|at| path.split('/').nth(at))
            .filter(|_| !pattern.starts_with("/v1/agents"));
        let disables = self.body.as_ref().is_some_and(|body| body["disabled"] == true);
        (
            if disables { "user.disable".to_owned() } else { action.as_str().to_owned() },
            id.map(str::to_owned),
        )
    }
}

/// A change that was acknowledged, as the audit has to have it.
struct Acknowledged {
    request: String,
    action: String,
    target: Option<String>,
    others: Vec<String>,
    noted: bool,
}

/// A change whose answer did not come: with what was before of what it changes.
struct Pending {
    action: String,
    target: Option<String>,
    others: Vec<String>,
    facts: Vec<(Fact, Value, Value)>,
}

impl Pending {
    /// Whether these are what it is done to; what is made has no name yet.
    fn has(&self, targets: &BTreeSet<String>) -> bool {
        self.target.as_ref().is_none_or(|id| {
            self.others.iter().chain([id]).cloned().collect::<BTreeSet<_>>() == *targets
        })
    }

    /// Whether all that it changes is as it is to be, or as it was.
    async fn is(&self, gateway: &Gateway, done: bool) -> bool {
        for (fact, old, new) in self.facts.iter().filter(|(_, old, new)| old != new) {
            if fact.look(gateway).await != *(if done { new } else { old }) {
                return false;
            }
        }
        true
    }
}

/// What a client leaves.
pub struct Left {
    pub journal: Journal,
    /// Keys of AGENT that were made while it was open: their paths, the secret that each has, and
    /// the one before.
    pub opened: Vec<(String, String, String)>,
    acknowledged: Vec<Acknowledged>,
    pending: Option<Pending>,
}

/// One client on a connection of its own, until the gateway is gone.
pub struct Client {
    pub name: String,
    pub admin: String,
    pub left: Left,
    /// By whom AGENT is asked: by nobody while it is open.
    pub tenant: &'static str,
    host: String,
    connection: Connection,
    /// Keys that are kept, with what descends from them: their paths, who ends them, what else ends
    /// then.
    stay: VecDeque<Staying>,
    count: Arc<AtomicUsize>,
}

struct Staying {
    path: String,
    by: String,
    others: Vec<String>,
    facts: Vec<(Fact, Value)>,
}

impl Client {
    pub async fn connect(
        name: String,
        host: SocketAddr,
        admin: String,
        tenant: &'static str,
        count: Arc<AtomicUsize>,
    ) -> Option<Client> {
        let connection = Connection::try_open(host).await?;
        let left = Left {
            journal: Journal::new(),
            opened: Vec::new(),
            acknowledged: Vec::new(),
            pending: None,
        };
        Some(Client {
            name,
            admin,
            left,
            tenant,
            host: host.to_string(),
            connection,
            stay: VecDeque::new(),
            count,
        })
    }

    /// Sends something and writes down what that makes of its facts: either before the answer, the
    /// new after it. `None` when no whole answer came.
    pub async fn ask(&mut self, ask: Ask<'_>) -> Option<Answer> {
        let (action, target) = ask.noted_as();
        let mut before = Vec::new();
        for (fact, new) in &ask.facts {
            // A password that nobody had is wrong until it is one.
            let known = self.left.journal.entry(fact.clone()).or_insert_with(|| vec![json!(false)]);
            if let [old] = &known[..] {
                before.push((fact.clone(), old.clone(), new.clone()));
            }
            known.push(new.clone());
        }
        let others = ask.others.clone();
        self.left.pending = ask.noted.then(|| Pending {
            action: action.clone(),
            target: target.clone(),
            others,
            facts: before,
        });
        let bearer = format!("Bearer {}", ask.by);
        let mut headers = vec![("content-type", "application/json")];
        headers.extend((!ask.by.is_empty()).then_some(("authorization", bearer.as_str())));
        headers.extend(ask.named.map(|name| ("idempotency-key", name)));
        let body = ask.body.map(|body| body.to_string());
        let request = client::request(
            ask.method,
            ask.target,
            &self.host,
            &headers,
            body.as_deref().map(str::as_bytes),
        );
        let answer = self.connection.try_exchange(&request).await.filter(|answer| answer.whole)?;
        assert!(
            (200..300).contains(&answer.status),
            "{} {}: {}",
            ask.method,
            ask.target,
            answer.text()
        );
        self.left.pending = None;
        let made = || {
            (answer.status == 201)
                .then(|| answer.json()["id"].as_str().map(str::to_owned))
                .flatten()
        };
        let target = target.or_else(made);
        let request = answer.request_id();
        self.left.acknowledged.push(Acknowledged {
            request,
            action,
            target,
            others: ask.others,
            noted: ask.noted,
        });
        for (fact, new) in ask.facts {
            self.know(fact, new);
        }
        self.count.fetch_add(1, Ordering::SeqCst);
        Some(answer)
    }

    /// The same for what has nothing special.
    pub async fn send(
        &mut self,
        (method, target, by): (&str, &str, &str),
        body: Option<Value>,
        facts: Vec<(Fact, Value)>,
    ) -> Option<Answer> {
        self.ask(Ask { body, facts, ..Ask::new(method, target, by) }).await
    }

    /// Writes down what an answer said.
    pub fn know(&mut self, fact: Fact, value: Value) {
        self.left.journal.insert(fact, vec![value]);
    }

    pub async fn make(&mut self, path: &str, by: &str, body: Value) -> Option<Key> {
        let made = self.send(("POST", path, by), Some(body), Vec::new()).await?;
        Some(self.take_key(path, &made))
    }

    /// The key of an answer, which is good from now on where it is asked for.
    pub fn take_key(&mut self, path: &str, answer: &Answer) -> Key {
        let record = answer.json();
        let text = |name: &str| record[name].as_str().unwrap().to_owned();
        let key = Key { id: text("id"), secret: text("key") };
        if let Some(fact) = self.of(path, &key) {
            self.know(fact, json!(true));
        }
        self.know(Fact::Key(format!("{path}/{}", key.id)), held(&record));
        key
    }

    /// Whether this secret is good; what was made while AGENT is open is not, once it is enforced.
    pub fn of(&self, path: &str, key: &Key) -> Option<Fact> {
        let secret = key.secret.clone();
        match path {
            PIN => Some(Fact::Pin(secret)),
            AGENT => (!self.tenant.is_empty()).then_some(Fact::AgentKey(secret)),
            _ => Some(Fact::Router(secret)),
        }
    }

    /// Those secrets are as `good` says.
    pub fn secrets(&self, path: &str, keys: &[&Key], good: bool) -> Vec<(Fact, Value)> {
        keys.iter().filter_map(|key| Some((self.of(path, key)?, json!(good)))).collect()
    }

    /// Those secrets are dead, and their keys over.
    pub fn ended(&self, path: &str, keys: &[&Key]) -> Vec<(Fact, Value)> {
        let ids: BTreeSet<&str> = keys.iter().map(|key| key.id.as_str()).collect();
        let records = ids.into_iter().filter_map(|id| {
            let fact = Fact::Key(format!("{path}/{id}"));
            let mut record = self.left.journal.get(&fact)?.first()?.clone();
            record["ended"] = json!(true);
            Some((fact, record))
        });
        self.secrets(path, keys, false).into_iter().chain(records).collect()
    }

    /// Changes a key; `secrets` are what that makes of its secrets.
    pub async fn patch_key(
        &mut self,
        path: &str,
        id: &str,
        by: &str,
        body: Value,
        mut facts: Vec<(Fact, Value)>,
    ) -> Option<()> {
        let target = format!("{path}/{id}");
        let fact = Fact::Key(target.clone());
        let record = patched(&self.left.journal[&fact][0], &body);
        facts.push((fact, record.clone()));
        let shown = self.send(("PATCH", &target, by), Some(body), facts).await?.json();
        assert_eq!(held(&shown), record);
        Some(())
    }

    /// Ends a key, with these secrets.
    pub async fn end_key(&mut self, path: &str, by: &str, keys: &[&Key]) -> Option<()> {
        let facts = self.ended(path, keys);
        self.send(("DELETE", &format!("{path}/{}", keys[0].id), by), None, facts).await.map(|_| ())
    }

    /// Keeps a key and what descends from it until there are too many, and ends the oldest then.
    /// All but the key are `others`.
    pub async fn stay(&mut self, path: &str, by: &str, key: &Key, keys: &[&Key]) -> Option<()> {
        let others: BTreeSet<String> =
            keys.iter().map(|key| key.id.clone()).filter(|id| *id != key.id).collect();
        let staying = Staying {
            path: format!("{path}/{}?descendants=true", key.id),
            by: by.to_owned(),
            others: others.into_iter().collect(),
            facts: self.ended(path, keys),
        };
        self.stay.push_back(staying);
        if self.stay.len() > STAY
            && let Some(Staying { path, by, others, facts }) = self.stay.pop_front()
        {
            self.ask(Ask { facts, others, ..Ask::new("DELETE", &path, &by) }).await?;
        }
        Some(())
    }
}

pub async fn check(gateway: &Gateway, journal: &Journal) {
    for (fact, expected) in journal {
        let found = fact.look(gateway).await;
        assert!(expected.contains(&found), "{fact:?} was {expected:?}, and now {found}");
    }
}

/// The id of the row that was written last.
pub async fn newest_row(gateway: &Gateway) -> String {
    let page = gateway.manage("GET", "/v1/audit?limit=1", &gateway.admin_key, None).await.json();
    page["data"][0]["id"].as_str().unwrap().to_owned()
}

/// Rows of the audit, the last first, up to the one of this id.
pub async fn rows_since(gateway: &Gateway, mark: Option<&str>) -> Vec<Value> {
    let (mut rows, mut after) = (Vec::new(), String::new());
    loop {
        let page = gateway
            .manage("GET", &format!("/v1/audit?limit=100{after}"), &gateway.admin_key, None)
            .await;
        assert_eq!(page.status, 200, "{}", page.text());
        let page = page.json();
        for row in page["data"].as_array().unwrap() {
            if row["id"].as_str() == mark {
                return rows;
            }
            rows.push(row.clone());
        }
        let Some(next) = page["next"].as_str() else { return rows };
        after = format!("&after={next}");
    }
}

/// What is listed of what has a row when it is made.
const MADE: [(&str, &str); 5] = [
    (PIN, "key.create"),
    (AGENT, "key.create"),
    (ROUTER, "key.create"),
    ("/v1/users", "user.create"),
    ("/v1/agents", "agent.create"),
];

/// Whatever is there has the row that it was made by: in `rows`, or it is among `known` from an
/// earlier look. All of it is known then.
pub async fn check_all_made(gateway: &Gateway, rows: &[Value], known: &mut BTreeSet<String>) {
    let row_of = |row: &Value| {
        Some((row["action"].as_str()?.to_owned(), row["target"]["id"].as_str()?.to_owned()))
    };
    let made: BTreeSet<(String, String)> = rows.iter().filter_map(row_of).collect();
    for (path, action) in MADE {
        let mut after = String::new();
        loop {
            let page = gateway
                .manage("GET", &format!("{path}?limit=100{after}"), by(path, gateway), None)
                .await;
            assert_eq!(page.status, 200, "{path}: {}", page.text());
            let page = page.json();
            for record in page["data"].as_array().unwrap() {
                let id = record["id"].as_str().unwrap().to_owned();
                // Nobody makes the built-in user.
                if id != "usr_admin" && known.insert(id.clone()) {
                    assert!(
                        made.contains(&(action.to_owned(), id)),
                        "it is there, and no row says that it was made: {record}"
                    );
                }
            }
            let Some(next) = page["next"].as_str() else { break };
            after = format!("&after={next}");
        }
    }
}

/// Each change that was acknowledged has its row, one a thing that it changed; each other row is of
/// a change whose answer was still to come, and there when that change is; and only then, as far as
/// what it changes can be looked up: what was made without an answer is for [`check_all_made`], and
/// of a session or a secret beside another nobody knows.
pub async fn check_audit(gateway: &Gateway, rows: &[Value], all: &[Left]) {
    let mut of_requests: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    // What nobody is told of is noted beside its answer.
    for row in rows.iter().filter(|row| row["action"] != "session.refused") {
        of_requests.entry(row["request_id"].as_str().expect("by a request")).or_default().push(row);
    }
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    for change in all.iter().flat_map(|left| &left.acknowledged) {
        let found = of_requests.remove(change.request.as_str()).unwrap_or_default();
        let words: Vec<String> = found.iter().map(|row| text(&row["action"])).collect();
        let expected = if change.noted { 1 + change.others.len() } else { 0 };
        assert_eq!(
            words,
            vec![change.action.clone(); expected],
            "{} {:?}",
            change.request,
            change.target
        );
        if let Some(target) = change.target.as_ref().filter(|_| change.noted) {
            let targets: BTreeSet<String> =
                found.iter().map(|row| text(&row["target"]["id"])).collect();
            assert_eq!(
                targets,
                change.others.iter().chain([target]).cloned().collect(),
                "{}",
                change.request
            );
        }
    }
    let mut pending: Vec<&Pending> = all.iter().filter_map(|left| left.pending.as_ref()).collect();
    for (request, rows) in of_requests {
        let action = text(&rows[0]["action"]);
        let targets: BTreeSet<String> = rows.iter().map(|row| text(&row["target"]["id"])).collect();
        let mut found = None;
        for (at, change) in pending.iter().enumerate() {
            // Of two who asked for the same it is the one for whom it was done.
            let fits = change.action == action && change.has(&targets);
            if fits && change.is(gateway, true).await {
                found = Some(at);
                break;
            }
        }
        let Some(at) = found else {
            panic!("a row by {request} of what nobody asked for, or of what is not so: {rows:?}")
        };
        pending.remove(at);
        check_made(gateway, rows[0]).await;
    }
    for change in pending {
        assert!(
            change.is(gateway, false).await,
            "{} has no row, and is done: {:?}",
            change.action,
            change.facts
        );
    }
}

/// What was made by a row is there.
async fn check_made(gateway: &Gateway, row: &Value) {
    let id = row["target"]["id"].as_str().unwrap();
    let paths: &[&str] = match row["action"].as_str().unwrap() {
        "key.create" => &[PIN, AGENT, ROUTER],
        "user.create" => &["/v1/users"],
        "agent.create" => &["/v1/agents"],
        _ => return,
    };
    for path in paths {
        if gateway.manage("GET", &format!("{path}/{id}"), by(path, gateway), None).await.status
            == 200
        {
            return;
        }
    }
    panic!("made, by its row, and not there: {row}");
}
