//! What `rerouter serve` says about bad documents: every problem at once, each with its place, and
//! exit code 1.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::client::{self, Connection};
use crate::support::gateway::{Gateway, command};
use crate::support::{PATIENCE, free_port, until};

const GOOD_ROUTING: &str = "providers:\n  demo: { protocol: mock }\nrecipes:\n  main:\n    \
    rules: [ { name: default, targets: [ { target: demo/echo } ] } ]\naliases: { auto: main }\n";

/// Waits for the process to end by itself, bounded.
fn ended(mut child: Child) -> Output {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("it serves instead of refusing:\n{:?}", child.wait_with_output().unwrap());
        }
        std::thread::sleep(Duration::from_millis(15));
    }
    child.wait_with_output().unwrap()
}

/// Runs `serve` over these documents; gives the exit code and all that was written.
fn serve(dir: &Path, server: &str, routing: &str) -> (Option<i32>, String) {
    let quoted = |name: &str| serde_json::to_string(dir.join(name).to_str().unwrap()).unwrap();
    let usual = format!(
        "listeners: [ {{ address: 127.0.0.1:{} }} ]\nmetrics: {{ address: 127.0.0.1:{} }}\n\
         data_dir: {}\nrouting: {{ file: {} }}\n",
        free_port(),
        free_port(),
        quoted("data"),
        quoted("routing.yaml"),
    );
    let config = dir.join("rerouter.yaml");
    std::fs::write(&config, format!("{usual}{server}")).unwrap();
    std::fs::write(dir.join("routing.yaml"), routing).unwrap();
    let child = command(&config, &[])
        .current_dir(dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = ended(child);
    let text = [output.stdout, output.stderr]
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .concat();
    (output.status.code(), text)
}

/// Whether a line of `text` tells of `file:line:<a column>:` and has `word`.
fn tells(text: &str, file: &str, line: usize, word: &str) -> bool {
    text.lines().any(|told| {
        let place = told.split_once(&format!("{file}:{line}:")).map(|(_, rest)| rest);
        let column = place
            .and_then(|rest| rest.split(':').next())
            .and_then(|digits| digits.parse::<u32>().ok());
        column.is_some_and(|column| column > 0) && told.contains(word)
    })
}

#[test]
fn every_problem_of_the_server_document_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let (code, text) = serve(
        dir.path(),
        "treads: 2\nsession: { idle: soon }\nlimits:\n  request_body: -1\n",
        GOOD_ROUTING,
    );
    assert_eq!(code, Some(1), "{text}");
    for (line, word) in [(5, "treads"), (6, "idle"), (8, "request_body")] {
        assert!(tells(&text, "rerouter.yaml", line, word), "line {line}: {text}");
    }
    assert!(text.contains("threads"), "a hint at what was meant: {text}");
}

#[test]
fn every_problem_of_the_routing_document_with_its_place() {
    let routing = "providers:\n  demo: { protocol: mock, latencie: 20ms }\nrecipes:\n  main:\n    \
        rules:\n      - name: default\n        when: \"tokens > 3\"\n        \
        strategy: fastest\n        targets: [ { target: missing/model } ]\naliases:\n  \
        auto: unknown\n";
    let dir = tempfile::tempdir().unwrap();
    let (code, text) = serve(dir.path(), "", routing);
    assert_eq!(code, Some(1), "{text}");
    for (line, word) in
        [(2, "latencie"), (7, "when"), (8, "strategy"), (9, "missing"), (11, "unknown")]
    {
        assert!(tells(&text, "routing.yaml", line, word), "line {line}, {word}: {text}");
    }
}

#[test]
fn a_document_that_is_no_yaml_or_uses_yaml_aliases_is_refused() {
    for (routing, line) in [
        ("providers: [\n", 1..4),
        ("providers: &p {}\nrecipes: *p\n", 1..3),
        ("providers: {}\nproviders: {}\n", 2..3),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (code, text) = serve(dir.path(), "", routing);
        assert_eq!(code, Some(1), "{routing}: {text}");
        assert!(
            line.clone().any(|line| tells(&text, "routing.yaml", line, "")),
            "{routing}: {text}"
        );
    }
}

#[test]
fn a_document_that_is_not_there_is_named() {
    let missing = Path::new("no-such-dir/rerouter.yaml");
    let child =
        command(missing, &[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let output = ended(child);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no-such-dir/rerouter.yaml"));
}

#[test]
fn a_taken_port_is_said() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("rerouter.yaml");
    let address = taken.local_addr().unwrap();
    let routing = serde_json::to_string(dir.path().join("routing.yaml").to_str().unwrap()).unwrap();
    let document = format!(
        "listeners: [ {{ address: {address} }} ]\nmetrics: {{ address: 127.0.0.1:{} }}\n\
         routing: {{ file: {routing} }}\n",
        free_port()
    );
    std::fs::write(&config, document).unwrap();
    std::fs::write(dir.path().join("routing.yaml"), GOOD_ROUTING).unwrap();
    let child = command(&config, &[])
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = ended(child);
    assert!(!output.status.success());
    let text = [output.stdout, output.stderr]
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .concat();
    assert!(text.contains(&address.to_string()), "{text}");
}

#[test]
fn version_and_help_are_told() {
    let run = |argument: &str| {
        Command::new(env!("CARGO_BIN_EXE_rerouter")).arg(argument).output().unwrap()
    };
    let version = run("--version");
    assert_eq!(
        String::from_utf8_lossy(&version.stdout).trim(),
        format!("rerouter {}", env!("CARGO_PKG_VERSION"))
    );
    assert!(String::from_utf8_lossy(&run("--help").stdout).contains("serve"));
    assert_eq!(run("--nonsense").status.code(), Some(2));
}

#[test]
fn check_tells_of_both_documents_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let check = |server: &str, routing: &str| {
        std::fs::write(dir.path().join("s.yaml"), server).unwrap();
        std::fs::write(dir.path().join("r.yaml"), routing).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_rerouter"));
        let output = command
            .args(["check", "--config", "s.yaml", "--routing", "r.yaml"])
            .current_dir(dir.path())
            .output()
            .unwrap();
        (
            output.status.code(),
            [output.stdout, output.stderr]
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                .concat(),
        )
    };
    let (code, text) = check(
        "treads: 2\nsession: { idle: soon }\n",
        &GOOD_ROUTING.replace("demo/echo", "dmo/echo"),
    );
    assert_eq!(code, Some(1), "{text}");
    for (file, line, word) in [
        ("s.yaml", 1, "did you mean `threads`"),
        ("s.yaml", 2, "session.idle"),
        ("r.yaml", 5, "did you mean `demo`"),
    ] {
        assert!(tells(&text, file, line, word), "{file}:{line} {word}: {text}");
    }
    assert!(text.contains("3 problem(s)"), "{text}");
    let (code, text) = check("threads: 2\n", GOOD_ROUTING);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("s.yaml: good") && text.contains("r.yaml: good, revision "), "{text}");
}

const BAD_SERVER: &str = "\
listeners:
  - { address: localhost:8080, interfaces: [pin, rooter] }
  - { address: 127.0.0.1:9090 }
  - address: 0.0.0.0:443
    tls: { cert: /etc/rerouter/tls.crt }
metrics: { address: 127.0.0.1:9090 }
treads: 4
data_dir: ''
store: { url: mysql://db.example.com/rerouter, lease: 1h }
routing: { signal_headers: [x-tier, cookie], env_allow: '*' }
capture: { retention: { age: a week, size: 10GB }, redact: ['([0-9]{16}'] }
pin: { registration: opened }
session: { idle: 13h }
limits: { header_timeout: 0s, connections: 0 }
egress: { deny: [10.0.0.0/33] }
access_log: { format: '${LOG_FORMAT}' }
";

const BAD_SERVER_TOLD: &str = "\
s.yaml:2:16: listeners[0].address: must be an address and a port (for example `127.0.0.1:8080` or \
    `[::]:8080`)
s.yaml:2:50: listeners[0].interfaces[1]: must be one of `pin`, `agent`, \
    `router` (did you mean `router`?)
s.yaml:5:10: listeners[2].tls: `key` is missing (add `key: …` here)
s.yaml:6:21: metrics.address: a listener has the address of metrics (give each its own port)
s.yaml:7:1: treads: unknown key (did you mean `threads`?)
s.yaml:8:11: data_dir: must be the path of a file or directory (for example `./data`)
s.yaml:9:15: store.url: must be `sqlite` or `postgres://user:password@host/database` (see \
    docs/reference/server-document.md)
s.yaml:9:55: store.lease: must be from 500ms to 600s (for example `10s`)
s.yaml:10:37: routing.signal_headers[1]: holds credentials: conditions must not see it (name a \
    header that holds no secret)
s.yaml:10:57: routing.env_allow: must be a list, not text (for example `[one, two]`)
s.yaml:11:30: capture.retention.age: must be a duration (for example `20ms`, `30s`, `5m`, \
    `12h` or `7d`)
s.yaml:11:44: capture.retention.size: must be a size (for example `8KiB`, `64MiB`, \
    `1GiB` or a number of bytes)
s.yaml:11:61: capture.redact[0]: invalid pattern: unclosed group (for example `\\b\\d{16}\\b`)
s.yaml:12:22: pin.registration: must be one of `open`, `closed` (did you mean `open`?)
s.yaml:13:18: session.idle: longer than `absolute` (shorten it, or lengthen `absolute`)
s.yaml:14:27: limits.header_timeout: must be positive (for example `30s`)
s.yaml:14:44: limits.connections: must be from 1 to 1000000 (leave it out for the default)
s.yaml:15:18: egress.deny[0]: must be a network (for example `10.0.0.0/8`)
s.yaml:16:23: access_log.format: the variable `LOG_FORMAT` is not set and has no default \
    (`${NAME}` must be set and allowed; `${NAME:-default}` may be unset)
";

const BAD_ROUTING: &str = "\
timezone: Zurich
providers:
  openai: { protocol: openai, base_url: api.openai.com/v1, api_key: '${ADMIN_API_KEY}' }
  local: { protocol: openai, base_url: http://10.0.0.20:8000/v1, timeouts: { connect: 5 }, \
    headers: { host: x } }
  agent: { protocol: mock }
models:
  openai/gpt-5: { input_per_mtok: -1, capabilities: [vison] }
  opnai/gpt-5-mini: {}
recipes:
  main:
    rules:
      - { name: long, when: 'prompt_token > 1000', targets: [{ target: openai/gpt-5, weight: 2 }] }
      - { name: long, when: 'stream &&', stratgy: weighted, targets: [{ target: local }] }
      - { name: last, when: stream, targets: [] }
    retry: { attempts: 0, on: [503] }
aliases: { auto: mian }
";

const BAD_ROUTING_TOLD: &str = "\
r.yaml:1:11: timezone: unknown time zone (an IANA name such as UTC or Europe/Berlin)
r.yaml:3:41: providers.openai.base_url: the URL is not a URL (for example \
    `https://api.example.com/v1`)
r.yaml:3:69: providers.openai.api_key: a routing document must not use the variable \
    `ADMIN_API_KEY` (`${NAME}` must be set and allowed; `${NAME:-default}` may be unset)
r.yaml:4:87: providers.local.timeouts.connect: must be a duration (for example `20ms`, `30s`, \
    `5m`, `12h` or `7d`)
r.yaml:4:103: providers.local.headers.host: is set by the gateway (remove it)
r.yaml:5:3: providers.agent: `agent` is a reserved name (choose another)
r.yaml:7:35: models[\"openai/gpt-5\"].input_per_mtok: a price cannot be negative (leave out a \
    price that is unknown)
r.yaml:7:54: models[\"openai/gpt-5\"].capabilities[0]: must be one of `tools`, `vision`, `json`, \
    `audio` (did you mean `vision`?)
r.yaml:8:3: models[\"opnai/gpt-5-mini\"]: unknown provider `opnai` (did you mean `openai`?)
r.yaml:12:29: recipes.main.rules[0].when: unknown signal `prompt_token` (did you mean \
    `prompt_tokens`?)
r.yaml:12:94: recipes.main.rules[0].targets[0].weight: `priority` does not use weights \
    (strategy: weighted)
r.yaml:13:17: recipes.main.rules[1].name: duplicate rule name `long` (choose another name)
r.yaml:13:29: recipes.main.rules[1].when: not an expression, \
    at character 10: unexpected end (CEL over the signals, for example `prompt_tokens > 1000 && \
    !stream`)
r.yaml:13:42: recipes.main.rules[1].stratgy: unknown key (did you mean `strategy`?)
r.yaml:13:81: recipes.main.rules[1].targets[0].target: a target is `provider/model` (for example \
    `openai/gpt-5-mini`)
r.yaml:14:17: recipes.main.rules[2].name: the last rule must have no `when` (add a last rule \
    without `when`, for what no other rule matches)
r.yaml:14:17: recipes.main.rules[2].name: a rule needs at least one target (for example \
    `targets: [{ target: openai/gpt-5-mini }]`)
r.yaml:15:24: recipes.main.retry.attempts: must be from 1 to 16 (leave it out for the default)
r.yaml:15:32: recipes.main.retry.on[0]: must be text, not a whole number (put it in quotes)
r.yaml:16:18: aliases.auto: unknown recipe `mian` (did you mean `main`?)
";

#[test]
fn check_tells_of_every_mistake_with_its_place_and_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("s.yaml"), BAD_SERVER).unwrap();
    std::fs::write(dir.path().join("r.yaml"), BAD_ROUTING).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_rerouter"));
    let output = command
        .args(["check", "--config", "s.yaml", "--routing", "r.yaml"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{told}");
    let (messages, last) = told.trim_end().rsplit_once('\n').unwrap();
    let count = messages.lines().count();
    assert_eq!(format!("{messages}\n"), format!("{BAD_SERVER_TOLD}{BAD_ROUTING_TOLD}"), "\n{told}");
    assert_eq!(last, format!("{count} problem(s)"));
    for (file, least) in [("s.yaml", 8), ("r.yaml", 8)] {
        let of_file: Vec<&str> =
            messages.lines().filter(|message| message.starts_with(file)).collect();
        assert!(of_file.len() >= least, "{file}: {of_file:?}");
        for message in of_file {
            let line = message.split(':').nth(1).and_then(|digits| digits.parse().ok()).unwrap();
            assert!(
                tells(message, file, line, "") && message.ends_with(')') && message.contains(" ("),
                "no place or no hint: {message}"
            );
        }
    }
}

/// The environment variables of a gateway in `dir` on the documents for a laptop, with ports of the
/// system's choice.
fn laptop(dir: &Path) -> Vec<(String, String)> {
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    std::fs::write(dir.join("routing.yaml"), GOOD_ROUTING).unwrap();
    let any = "127.0.0.1:0".to_owned();
    let pairs = [
        ("LISTEN", any.clone()),
        ("METRICS_LISTEN", any),
        ("DATA_DIR", path("data")),
        ("ROUTING_FILE", path("routing.yaml")),
    ];
    pairs.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

/// A `serve` whose output goes to a file.
struct Serving(Child, std::path::PathBuf);

impl Serving {
    fn start(dir: &Path, name: &str, config: &Path) -> Self {
        let log = dir.join(name);
        let output = std::fs::File::create(&log).unwrap();
        let mut command = command(config, &laptop(dir));
        Serving(
            command
                .current_dir(dir)
                .stdout(output.try_clone().unwrap())
                .stderr(output)
                .spawn()
                .unwrap(),
            log,
        )
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.1).unwrap()
    }

    /// What stands in the log after `word`, up to the next blank or slash, once it is there.
    async fn told(&self, word: &str) -> String {
        until(word, async || {
            let log = self.log();
            let rest = log.split(word).nth(1)?;
            rest.split_once([' ', '/', '\n']).map(|(value, _)| value.to_owned())
        })
        .await
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

#[tokio::test]
async fn a_port_of_the_systems_choice_is_told_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("rerouter.yaml");
    let listeners = "listeners:\n  - { address: 127.0.0.1:0, interfaces: [pin] }\n  \
        - { address: 127.0.0.1:0, interfaces: [router] }\n";
    let rest = "metrics: { address: '${METRICS_LISTEN}' }\ndata_dir: ${DATA_DIR}\n\
        routing: { file: '${ROUTING_FILE}' }\n";
    std::fs::write(&config, format!("{listeners}{rest}")).unwrap();
    let serving = Serving::start(dir.path(), "log", &config);
    let metrics = serving.told("metrics on http://").await;
    let log = serving.log();
    let told: Vec<&str> = log
        .split("listening on http://")
        .skip(1)
        .map(|rest| rest.split(' ').next().unwrap())
        .collect();
    assert_eq!(told.len(), 2, "{log}");
    // Each has the interfaces of its line: by the port, which is known.
    for (address, path, status) in [
        (told[0], "/v1/auth/me", 401),
        (told[0], "/v1/apikeys", 401),
        (told[1], "/health", 200),
        (told[1], "/openapi.json", 404),
        (metrics.as_str(), "/livez", 200),
    ] {
        let address: std::net::SocketAddr = address.parse().unwrap();
        assert_ne!(address.port(), 0, "{log}");
        let answer = until("an answer", async || {
            let mut connection = Connection::try_open(address).await?;
            connection
                .try_exchange(&client::request("GET", path, &address.to_string(), &[], None))
                .await
        })
        .await;
        assert_eq!(answer.status, status, "{address} {path}: {}", answer.text());
    }
}

#[tokio::test]
async fn of_two_that_start_at_once_one_makes_the_master_key_and_the_other_leaves() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf/rerouter.yaml");
    for _ in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        let mut both = ["one", "two"].map(|name| Serving::start(dir.path(), name, &config));
        let left = until("one of two to leave", || {
            let left = both.iter_mut().position(|serving| serving.0.try_wait().unwrap().is_some());
            async move { left }
        })
        .await;
        let [one, two] = &both;
        let (left, stays) = if left == 0 { (one, two) } else { (two, one) };
        assert!(left.log().contains("another process uses the data directory"), "{}", left.log());
        stays.told("metrics on http://").await;
        let key = std::fs::read(dir.path().join("data/master.key")).unwrap();
        drop(both);
        // The key in the file is the one that the store was made with.
        let again = Serving::start(dir.path(), "again", &config);
        again.told("metrics on http://").await;
        assert_eq!(std::fs::read(dir.path().join("data/master.key")).unwrap(), key);
    }
}

#[tokio::test]
async fn the_version_names_the_commit_that_was_built() {
    let gateway = Gateway::start(GOOD_ROUTING).await;
    let version = gateway.send("GET", "/version", &[], None).await.json();
    // The scripts set the same variable for the binary and for this test.
    let commit =
        option_env!("REROUTER_COMMIT").filter(|commit| !commit.is_empty()).unwrap_or("unknown");
    assert_eq!(
        (&version["commit"], &version["version"]),
        (&commit.into(), &env!("CARGO_PKG_VERSION").into()),
        "{version}"
    );
    assert!(
        commit == "unknown" || commit.bytes().take(7).all(|byte| byte.is_ascii_hexdigit()),
        "{commit}"
    );
}
