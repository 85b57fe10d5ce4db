//! The gateway as operators run it: the real binary, two documents, a data directory, an
//! environment.

use std::fs::File;
use std::future::ready;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::{self, Answer, Connection, Tls};
use super::postgres::Cluster;
use super::{PATIENCE, free_port, openapi, until};

/// Numbers of signals.
const HUP: u32 = 1;
const TERM: u32 = 15;

/// A ROUTER key as the API gave it out.
pub struct Key {
    pub id: String,
    pub secret: String,
}

impl Key {
    /// Of the answer to a creation or a rotation.
    pub fn of(answer: &Answer) -> Key {
        assert!([200, 201].contains(&answer.status), "{}", answer.text());
        let record = answer.json();
        let text = |field: &str| {
            record[field].as_str().unwrap_or_else(|| panic!("no {field} in {record}")).to_owned()
        };
        Key { id: text("id"), secret: text("key") }
    }
}

/// What a gateway is started with.
pub struct Setup {
    routing: String,
    server: String,
    document: Option<PathBuf>,
    routing_keys: String,
    label: Option<&'static str>,
    stored: bool,
    threads: usize,
    environment: Vec<(String, String)>,
    tls: bool,
    public: bool,
    ipv6: bool,
    descriptors: Option<&'static str>,
}

/// A running gateway; ends with the value.
pub struct Gateway {
    dir: TempDir,
    config: PathBuf,
    child: Option<Child>,
    /// Processes that another one took over from.
    before: Option<Child>,
    port: u16,
    metrics_port: u16,
    tls: Option<(u16, Tls)>,
    ipv6_port: Option<u16>,
    descriptors: Option<&'static str>,
    environment: Vec<(String, String)>,
    pub admin_key: String,
}

impl Setup {
    /// Only this for a routing document; the rest as usual.
    pub fn new(routing: &str) -> Self {
        Setup {
            routing: routing.to_owned(),
            server: String::new(),
            document: None,
            routing_keys: String::new(),
            label: None,
            stored: false,
            threads: 1,
            environment: Vec::new(),
            tls: false,
            public: false,
            ipv6: false,
            descriptors: None,
        }
    }

    /// More lines of the server document (keys other than listeners, metrics, threads, data_dir,
    /// routing).
    pub fn server(mut self, lines: &str) -> Self {
        self.server.push_str(lines);
        self.server.push('\n');
        self
    }

    /// This server document as it stands, with its addresses and paths by the environment: with
    /// [`Setup::tls`] `LISTEN` is the listener with TLS and `PRIVATE_LISTEN` the plain one, else
    /// `LISTEN` is that.
    pub fn document(mut self, path: &str) -> Self {
        self.document = Some(Path::new(env!("CARGO_MANIFEST_DIR")).join(path));
        self
    }

    /// More keys of the server document's `routing`.
    pub fn routing(mut self, keys: &str) -> Self {
        self.routing_keys = format!(", {keys}");
        self
    }

    /// `metrics.label`.
    pub fn label(mut self, name: &'static str) -> Self {
        self.label = Some(name);
        self
    }

    /// The routing document in the store instead of a file.
    pub fn stored(mut self) -> Self {
        self.stored = true;
        self
    }

    /// So many workers instead of one.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// A variable of the gateway's environment.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A second listener with TLS.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// A listener that is not on loopback only, for ROUTER.
    pub fn public(mut self) -> Self {
        self.public = true;
        self
    }

    /// A listener on the IPv6 loopback address.
    pub fn ipv6(mut self) -> Self {
        self.ipv6 = true;
        self
    }

    /// So many descriptors, in the words of `prlimit`: `256` for both limits, `256:` for the soft
    /// one.
    pub fn descriptors(mut self, limit: &'static str) -> Self {
        self.descriptors = Some(limit);
        self
    }

    /// Starts it and waits until it answers.
    pub async fn start(mut self) -> Gateway {
        let dir = tempfile::Builder::new().prefix("rerouter-test-").tempdir().unwrap();
        let (port, metrics_port) = (free_port(), free_port());
        let tls = self.tls.then(|| (free_port(), Tls::make(dir.path())));
        let path =
            |name: &str| serde_json::to_string(dir.path().join(name).to_str().unwrap()).unwrap();
        let mut server = format!("listeners:\n  - address: 127.0.0.1:{port}\n");
        if let Some((port, _)) = &tls {
            let (cert, key) = (path("cert.pem"), path("key.pem"));
            server.push_str(&format!(
                "  - address: 127.0.0.1:{port}\n    tls: {{ cert: {cert}, key: {key} }}\n"
            ));
        }
        if self.public {
            server.push_str(&format!(
                "  - address: 0.0.0.0:{}\n    interfaces: [router]\n",
                free_port()
            ));
        }
        let ipv6_port = self.ipv6.then(free_port);
        if let Some(port) = ipv6_port {
            server.push_str(&format!("  - address: \"[::1]:{port}\"\n"));
        }
        let label = self.label.map_or_else(String::new, |name| format!(", label: {name}"));
        server.push_str(&format!(
            "metrics: {{ address: 127.0.0.1:{metrics_port}, hosts: [metrics.test]{label} }}\n\
             threads: {}\ndata_dir: {}\n",
            self.threads,
            path("data")
        ));
        let place = if self.stored {
            "store: true".to_owned()
        } else {
            format!("file: {}", path("routing.yaml"))
        };
        server.push_str(&format!("routing: {{ {place}{} }}\n{}", self.routing_keys, self.server));
        // See tests/store/postgres.rs. A start after a kill waits for the lease from before it.
        if std::env::var_os("REROUTER_TEST_STORE").is_some() && !self.server.contains("store:") {
            let url = Cluster::shared().database().await;
            server.push_str(&format!("store: {{ url: '{url}', lease: 4s }}\n"));
        }
        let own = dir.path().join("rerouter.yaml");
        std::fs::write(&own, server).unwrap();
        std::fs::write(dir.path().join("routing.yaml"), &self.routing).unwrap();
        if self.document.is_some() {
            let tls_port = tls.as_ref().map(|(port, _)| *port);
            self.environment.extend(substitutes(dir.path(), port, tls_port, metrics_port));
        }
        let config = self.document.unwrap_or(own);
        let descriptors = self.descriptors;
        let admin_key = format!("admin-canary-{port}-{}-0123456789abcdef", std::process::id());
        let mut gateway = Gateway {
            dir,
            config,
            child: None,
            before: None,
            port,
            metrics_port,
            tls,
            ipv6_port,
            descriptors,
            environment: self.environment,
            admin_key,
        };
        gateway.launch().await;
        gateway
    }
}

/// What the documents in `conf/` take from the environment.
fn substitutes(
    dir: &Path,
    port: u16,
    tls_port: Option<u16>,
    metrics_port: u16,
) -> Vec<(String, String)> {
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let at = |port: u16| format!("127.0.0.1:{port}");
    let public = tls_port.unwrap_or(port);
    let pairs = [
        ("LISTEN", at(public)),
        ("PRIVATE_LISTEN", at(port)),
        ("METRICS_LISTEN", at(metrics_port)),
        ("TLS_CERT", path("cert.pem")),
        ("TLS_KEY", path("key.pem")),
        ("DATA_DIR", path("data")),
        ("ROUTING_FILE", path("routing.yaml")),
    ];
    pairs.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

/// The binary with exactly these variables; its output goes to `log`.
pub fn command(config: &Path, environment: &[(String, String)]) -> Command {
    serving(Command::new(env!("CARGO_BIN_EXE_rerouter")), config, environment)
}

/// The same with limits of the process: `limit` in the words of `prlimit --nofile`.
fn limited(limit: &str, config: &Path, environment: &[(String, String)]) -> Command {
    let mut command = Command::new("prlimit");
    command.arg(format!("--nofile={limit}")).arg(env!("CARGO_BIN_EXE_rerouter"));
    serving(command, config, environment)
}

fn serving(mut command: Command, config: &Path, environment: &[(String, String)]) -> Command {
    command.arg("serve").arg("--config").arg(config).env_clear();
    command
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("RUST_LOG", "info")
        .env("RUST_BACKTRACE", "1");
    command.envs(environment.iter().map(|(name, value)| (name, value))).stdin(Stdio::null());
    command
}

impl Gateway {
    /// A gateway with this routing document and nothing special.
    pub async fn start(routing: &str) -> Gateway {
        Setup::new(routing).start().await
    }

    async fn launch(&mut self) {
        if let Err(status) = self.try_launch().await {
            panic!("the gateway left with {status} instead of serving:\n{}", self.log());
        }
    }

    fn spawn(&self, more: &[&str]) -> Child {
        let log = File::options().create(true).append(true).open(self.log_path()).unwrap();
        let mut command = match self.descriptors {
            None => command(&self.config, &self.environment),
            Some(limit) => limited(limit, &self.config, &self.environment),
        };
        command.args(more).env("ADMIN_API_KEY", &self.admin_key).current_dir(self.dir.path());
        command.stdout(log.try_clone().unwrap()).stderr(log).spawn().expect("the binary starts")
    }

    /// Until it answers, or has left.
    async fn try_launch(&mut self) -> Result<(), ExitStatus> {
        self.child = Some(self.spawn(&[]));
        let start = Instant::now();
        while !self.is_healthy().await {
            if let Some(status) = self.child.as_mut().unwrap().try_wait().unwrap() {
                self.child = None;
                return Err(status);
            }
            assert!(
                start.elapsed() < PATIENCE,
                "the gateway does not answer /health:\n{}",
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
        Ok(())
    }

    /// Whether it answers, and each of its listeners accepts: the services of a process come up one
    /// after another.
    async fn is_healthy(&self) -> bool {
        for port in [Some(self.metrics_port), self.tls.as_ref().map(|(port, _)| *port)]
            .into_iter()
            .flatten()
        {
            if tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                return false;
            }
        }
        if let Some(port) = self.ipv6_port
            && tokio::net::TcpStream::connect(("::1", port)).await.is_err()
        {
            return false;
        }
        let head = client::request("GET", "/health", &self.host(), &[], None);
        match Connection::try_open(self.address()).await {
            Some(mut connection) => {
                connection.try_exchange(&head).await.is_some_and(|answer| answer.status == 200)
            }
            None => false,
        }
    }

    /// The id of its process.
    pub fn process(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// Where it listens for plain HTTP.
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// The `Host` of that.
    pub fn host(&self) -> String {
        self.address().to_string()
    }

    /// Where it listens with TLS, and whom to trust there.
    pub fn tls(&self) -> (SocketAddr, &Tls) {
        let (port, tls) = self.tls.as_ref().expect("started with TLS");
        (([127, 0, 0, 1], *port).into(), tls)
    }

    /// Where it listens on the IPv6 loopback address.
    pub fn ipv6(&self) -> SocketAddr {
        (std::net::Ipv6Addr::LOCALHOST, self.ipv6_port.expect("started with it")).into()
    }

    /// One more listener, from the next start on.
    pub fn add_listener(&self, address: &str) {
        let document = std::fs::read_to_string(&self.config).unwrap();
        let more = format!("listeners:\n  - address: {address}\n");
        std::fs::write(&self.config, document.replacen("listeners:\n", &more, 1)).unwrap();
    }

    /// More lines of the server document, from the next start on.
    pub fn add_to_server(&self, lines: &str) {
        let document = std::fs::read_to_string(&self.config).unwrap();
        std::fs::write(&self.config, format!("{document}{lines}\n")).unwrap();
    }

    /// The directory of its documents, data and log.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("gateway.log")
    }

    /// All that it wrote on standard output and standard error so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.log_path()).unwrap_or_default()).into_owned()
    }

    /// A new connection to the plain listener.
    pub async fn connect(&self) -> Connection {
        Connection::try_open(self.address()).await.expect("the gateway accepts")
    }

    /// One request on a connection of its own.
    pub async fn send(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> Answer {
        let answer = self
            .connect()
            .await
            .exchange(&client::request(method, target, &self.host(), headers, body))
            .await;
        openapi::hold(method, target, &answer);
        answer
    }

    /// One management request with a Bearer credential.
    pub async fn manage(
        &self,
        method: &str,
        target: &str,
        credential: &str,
        body: Option<&Value>,
    ) -> Answer {
        let text = body.map(|value| serde_json::to_vec(value).unwrap());
        let bearer = format!("Bearer {credential}");
        let mut headers = vec![("authorization", bearer.as_str())];
        if text.is_some() {
            headers.push(("content-type", "application/json"));
        }
        self.send(method, target, &headers, text.as_deref()).await
    }

    /// [`Gateway::manage`], answered with this status.
    pub async fn answers(
        &self,
        status: u16,
        method: &str,
        target: &str,
        credential: &str,
        body: Option<&Value>,
    ) -> Answer {
        let answer = self.manage(method, target, credential, body).await;
        assert_eq!(answer.status, status, "{method} {target}: {}", answer.text());
        answer
    }

    /// Asks for a replay of a capture.
    pub async fn reroute(&self, id: &str, credential: &str) -> Answer {
        self.manage("POST", &format!("/v1/router/replay/{id}/reroute"), credential, None).await
    }

    /// One chat completion with a ROUTER key.
    pub async fn chat(&self, key: &Key, body: &[u8]) -> Answer {
        let answer = self.connect().await.exchange(&self.chat_request(key, body)).await;
        openapi::hold("POST", "/v1/chat/completions", &answer);
        answer
    }

    /// The request of [`Gateway::chat`], for a connection that the test holds.
    pub fn chat_request(&self, key: &Key, body: &[u8]) -> Vec<u8> {
        let bearer = format!("Bearer {}", key.secret);
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        client::request("POST", "/v1/chat/completions", &self.host(), &headers, Some(body))
    }

    /// A ROUTER key made by the API.
    pub async fn create_key(&self) -> Key {
        self.make_key("/v1/router/keys", &self.admin_key, &json!({ "name": "test" })).await
    }

    /// A ROUTER key of the operator's with these limits.
    pub async fn limited_key(&self, limits: Value) -> Key {
        self.make_key("/v1/router/keys", &self.admin_key, &json!({ "limits": limits })).await
    }

    /// A key that this credential makes. One of ROUTER has what a session has, unless its scopes
    /// are named.
    pub async fn make_key(&self, path: &str, by: &str, wanted: &Value) -> Key {
        let mut wanted = wanted.clone();
        if path == "/v1/router/keys" && wanted.get("scopes").is_none() {
            wanted["scopes"] = json!(["inference", "replay", "keys"]);
        }
        Key::of(&self.manage("POST", path, by, Some(&wanted)).await)
    }

    /// Registers a user, if there is none of this address, and logs in; the session's token.
    pub async fn session(&self, email: &str) -> String {
        let account = json!({"email": email, "password": "a long enough password"}).to_string();
        let headers = [("content-type", "application/json")];
        let send =
            async |path: &str| self.send("POST", path, &headers, Some(account.as_bytes())).await;
        let registered = send("/v1/auth/register").await;
        assert!([201, 409].contains(&registered.status), "{}", registered.text());
        let login = send("/v1/auth/login").await;
        assert_eq!(login.status, 200, "{}", login.text());
        login.json()["token"].as_str().expect("a token").to_owned()
    }

    /// Ends all keys that this list has.
    pub async fn end_keys(&self, path: &str, by: &str, filter: &str) {
        loop {
            let listed =
                self.manage("GET", &format!("{path}?limit=100{filter}"), by, None).await.json();
            let keys = listed["data"].as_array().unwrap();
            if keys.is_empty() {
                return;
            }
            for key in keys {
                let path = format!("{path}/{}", key["id"].as_str().unwrap());
                assert_eq!(self.manage("DELETE", &path, by, None).await.status, 204);
            }
        }
    }

    /// The whole capture of a request, once it is durable (an answer may be faster than its
    /// capture).
    pub async fn capture(&self, id: &str) -> Value {
        until(&format!("capture {id}"), async || {
            let answer =
                self.manage("GET", &format!("/v1/router/replay/{id}"), &self.admin_key, None).await;
            (answer.status == 200).then(|| answer.json())
        })
        .await
    }

    /// Ends the process with SIGTERM, waits, and starts it again on the same ports and data.
    pub async fn restart(&mut self) {
        self.stop().await;
        self.launch().await;
    }

    /// Ends the process with SIGTERM, and waits.
    pub async fn stop(&mut self) {
        self.signal("TERM");
        self.ended().await;
    }

    /// Waits until the process has ended after a SIGTERM.
    pub async fn ended(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("it runs");
        let start = Instant::now();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
            if start.elapsed() > PATIENCE {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("SIGTERM did not end the gateway:\n{}", self.log());
            }
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
    }

    /// Has a new process take over from the one that runs, with `serve --upgrade`.
    pub async fn upgrade(&mut self) {
        let took_over = |log: &str| log.matches("took over from the running gateway").count();
        let before = took_over(&self.log());
        let mut next = self.spawn(&["--upgrade"]);
        until("the upgrade", || {
            let left = next.try_wait().unwrap();
            assert!(left.is_none(), "no upgrade: {left:?}\n{}", self.log());
            ready((took_over(&self.log()) > before).then_some(()))
        })
        .await;
        self.before = self.child.replace(next);
    }

    /// The same where the new process leaves instead: what it says.
    pub async fn fail_to_upgrade(&self) -> String {
        self.fail_to(&["--upgrade"]).await
    }

    /// Starts a second process on the same data directory, which leaves: what it says.
    pub async fn fail_to_start(&self) -> String {
        self.fail_to(&[]).await
    }

    async fn fail_to(&self, arguments: &[&str]) -> String {
        let before = self.log().len();
        let mut next = self.spawn(arguments);
        let status = until("the new process to leave", || ready(next.try_wait().unwrap())).await;
        assert_eq!(status.code(), Some(1), "{}", self.log());
        self.log().split_off(before)
    }

    /// Whether the process before an upgrade still runs.
    pub fn predecessor_runs(&mut self) -> bool {
        self.before.as_mut().is_some_and(|child| child.try_wait().unwrap().is_none())
    }

    /// Waits until the process before an upgrade has ended in order.
    pub async fn predecessor_ends(&mut self) {
        let mut child = self.before.take().expect("an upgrade");
        let status = until("the process before", || ready(child.try_wait().unwrap())).await;
        assert!(status.success(), "{status}:\n{}", self.log());
    }

    /// Ends the process before an upgrade with SIGKILL.
    pub fn kill_9_predecessor(&mut self) {
        let mut child = self.before.take().expect("an upgrade");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// A variable of the environment of the processes to come.
    pub fn set_env(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// Ends the process with SIGKILL.
    pub fn kill_9(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Starts it again after [`Gateway::kill_9`] or [`Gateway::stop`].
    pub async fn start_again(&mut self) {
        assert!(self.child.is_none(), "it still runs");
        self.launch().await;
    }

    /// Starts it, and waits until it can be stopped in order or has written something.
    pub async fn begin_again(&mut self) {
        assert!(self.child.is_none(), "it still runs");
        let before = self.log().len();
        self.child = Some(self.spawn(&[]));
        until("a begun start", async || {
            (self.catches(TERM) || self.log().len() > before).then_some(())
        })
        .await;
    }

    /// The same where it may leave instead of serving: then what it says.
    pub async fn try_start_again(&mut self) -> Result<(), String> {
        assert!(self.child.is_none(), "it still runs");
        let before = self.log().len();
        self.try_launch().await.map_err(|_| self.log().split_off(before))
    }

    /// Sends SIGHUP, once the process listens for it: before that it would be the end of it.
    pub async fn hup(&self) {
        until("SIGHUP to be caught", async || self.catches(HUP).then_some(())).await;
        self.signal("HUP");
    }

    /// Whether the process has a handler of this signal.
    fn catches(&self, signal: u32) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.expect("on Linux").trim(), 16).unwrap();
        caught >> (signal - 1) & 1 == 1
    }

    /// Sends a signal to the process.
    pub fn signal(&self, name: &str) {
        let id = self.child.as_ref().expect("it runs").id().to_string();
        let sent =
            Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", name, &id]).status().unwrap();
        assert!(sent.success());
    }

    /// Replaces the routing document's file in one step, as editors and mounts do, and waits for
    /// nothing.
    pub fn replace_routing(&self, text: &str) {
        let next = self.dir.path().join("routing.yaml.next");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(next, self.dir.path().join("routing.yaml")).unwrap();
    }

    /// Replaces the routing document, has it read, and waits until its revision is live; gives that
    /// revision.
    pub async fn write_routing(&self, text: &str) -> String {
        let before = self.revision().await;
        self.replace_routing(text);
        self.hup().await;
        until("the new revision", async || Some(self.revision().await).filter(|now| *now != before))
            .await
    }

    /// The live revision, by the metrics listener.
    pub async fn revision(&self) -> String {
        let metrics = self.metrics().await;
        let mut live = metrics.lines().filter(|line| line.starts_with("rerouter_routing_info{"));
        let line = live.next().unwrap_or_else(|| panic!("no rerouter_routing_info in {metrics}"));
        assert_eq!(live.next(), None, "one live revision");
        line.split("revision=\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next())
            .expect("a revision")
            .to_owned()
    }

    /// Where it listens for those who ask for metrics.
    pub fn metrics_address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.metrics_port).into()
    }

    /// `GET /metrics`.
    pub async fn metrics(&self) -> String {
        let address = self.metrics_address();
        let mut connection =
            Connection::try_open(address).await.expect("the metrics listener accepts");
        let answer = connection
            .exchange(&client::request("GET", "/metrics", &address.to_string(), &[], None))
            .await;
        assert_eq!(answer.status, 200);
        answer.text()
    }

    /// The sum of a metric's series whose labels contain all of `labels` (as text, `name="value"`).
    pub async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let metrics = self.metrics().await;
        let values = metrics.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let (found, with) = series.split_once('{').unwrap_or((series, ""));
            (found == name && labels.iter().all(|label| with.contains(label)))
                .then(|| value.parse::<f64>().unwrap())
        });
        values.sum()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.kill_9();
        if let Some(mut child) = self.before.take() {
            let _gone = child.kill();
            child.wait().unwrap();
        }
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!(
                "--- the gateway's last lines ---\n{}\n---",
                lines[lines.len().saturating_sub(120)..].join("\n")
            );
        }
    }
}
