//! `rerouter check` reports everything at which `serve` would stop, with its place, warns of likely
//! mistakes, and changes nothing.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::json;

use crate::support::client::Tls;
use crate::support::gateway::{Gateway, Setup};
use crate::support::{PATIENCE, free_port};

const ROUTING: &str = "\
providers: { demo: { protocol: mock } }
recipes: { main: { rules: [{ name: default, targets: [{ target: demo/echo }] }] } }
aliases: { auto: main }
";

/// A server and a routing document in a directory of their own.
struct Documents(tempfile::TempDir);

impl Documents {
    /// Writes both documents. `server` is followed by the entry for the routing document, and
    /// `@DIR@` becomes the directory.
    fn new(server: &str, routing: &str) -> Documents {
        let documents = Documents(tempfile::tempdir().unwrap());
        documents.write("r.yaml", routing);
        documents.write("s.yaml", &format!("{server}\nrouting: {{ file: r.yaml }}\n"));
        documents
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text.replace("@DIR@", self.0.path().to_str().unwrap()))
            .unwrap();
    }

    /// Runs the binary. Returns the exit code, standard output and standard error.
    fn run(
        &self,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> (Option<i32>, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rerouter"));
        command
            .args(arguments)
            .current_dir(self.0.path())
            .env_clear()
            .envs(environment.iter().copied());
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let began = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if began.elapsed() > PATIENCE {
                child.kill().unwrap();
                panic!("it does not end: {:?}", child.wait_with_output().unwrap());
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let output = child.wait_with_output().unwrap();
        let [out, err] = [output.stdout, output.stderr]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (output.status.code(), out, err)
    }

    fn check(&self, more: &[&str]) -> (Option<i32>, String, String) {
        self.run(&[&["check", "--config", "s.yaml"], more].concat(), &[])
    }

    /// Every file and directory below the directory.
    fn files(&self) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        let mut left = vec![self.0.path().to_owned()];
        while let Some(dir) = left.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    left.push(path.clone());
                }
                found.insert(path);
            }
        }
        found
    }
}

/// A free address and a data directory, so that a document has no other problem.
fn usual() -> String {
    format!("metrics: {{ address: 127.0.0.1:{} }}\ndata_dir: @DIR@/data\n", free_port())
}

fn listener(more: &str) -> String {
    format!("{}listeners:\n  - address: 127.0.0.1:{}\n{more}", usual(), free_port())
}

/// Server documents with which a start fails on this machine. Each has the place that `check`
/// reports, and words of the reason that both commands report.
fn lacking() -> Vec<(String, &'static str, &'static str)> {
    let tls = |cert: &str, key: &str| {
        listener(&format!("    tls:\n      cert: {cert}\n      key: {key}\n"))
    };
    let own = "listeners: [{ address: 127.0.0.1:0 }]\n";
    let none = "metrics: { address: 127.0.0.1:0 }\n";
    vec![
        (
            tls("@DIR@/none.pem", "@DIR@/key.pem"),
            "s.yaml:6:13: listeners[0].tls.cert: ",
            "none.pem: No such file",
        ),
        (tls("@DIR@", "@DIR@/key.pem"), "s.yaml:6:13: listeners[0].tls.cert: ", "Is a directory"),
        (
            tls("@DIR@/r.yaml", "@DIR@/key.pem"),
            "s.yaml:6:13: listeners[0].tls.cert: ",
            "r.yaml: holds no certificate",
        ),
        (
            tls("@DIR@/cert.pem", "@DIR@/none.pem"),
            "s.yaml:7:12: listeners[0].tls.key: ",
            "none.pem: No such file",
        ),
        (
            tls("@DIR@/cert.pem", "@DIR@/cert.pem"),
            "s.yaml:7:12: listeners[0].tls.key: ",
            "cert.pem: holds no private key",
        ),
        (
            tls("@DIR@/cert.pem", "@DIR@/ca.key"),
            "s.yaml:7:12: listeners[0].tls.key: ",
            "ca.key: is not the key of the certificate in",
        ),
        (
            format!("{none}{own}data_dir: /proc/rerouter\n"),
            "s.yaml:3:11: data_dir: ",
            "cannot write to /proc/rerouter: No such file",
        ),
        (
            format!("{none}{own}data_dir: @DIR@/r.yaml\n"),
            "s.yaml:3:11: data_dir: ",
            "r.yaml: Not a directory",
        ),
        (
            format!("{none}{own}data_dir: @DIR@/r.yaml/data\n"),
            "s.yaml:3:11: data_dir: ",
            "Not a directory",
        ),
        (
            format!("{}listeners: [{{ address: 192.0.2.1:8443 }}]\n", usual()),
            "s.yaml:3:24: listeners[0].address: ",
            "cannot listen on 192.0.2.1:8443",
        ),
        (
            format!("{own}data_dir: @DIR@/data\nmetrics: {{ address: 192.0.2.1:9090 }}\n"),
            "s.yaml:3:21: metrics.address: ",
            "cannot listen on 192.0.2.1:9090",
        ),
        (
            format!("{}{own}nodes: {{ ca: none.pem }}\n", usual()),
            "s.yaml:4:14: nodes.ca: ",
            "the file cannot be read: No such file",
        ),
    ]
}

#[test]
fn what_this_machine_lacks_is_told_by_check_and_by_serve() {
    for (server, place, why) in lacking() {
        let documents = Documents::new(&server, ROUTING);
        let _tls = Tls::make(documents.0.path());
        let before = documents.files();
        let (code, out, told) = documents.check(&[]);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{server}: {told}");
        let line = told.lines().find(|line| line.starts_with(place) && line.contains(why));
        assert!(line.is_some_and(|line| line.ends_with(')')), "{place}{why}: {told}");
        assert!(told.ends_with("\n1 problem(s)\n"), "{told}");
        assert_eq!(documents.files(), before, "a check leaves nothing behind");
        let (code, _, of_serve) = documents.run(&["serve", "--config", "s.yaml"], &[]);
        assert_eq!(code, Some(1), "{server}: {of_serve}");
        assert!(of_serve.contains(line.unwrap()), "{of_serve}");
        assert_eq!(documents.files(), before, "a start that cannot be leaves nothing behind");
        // With `--no-env`, documents for another machine are checked.
        let (code, out, told) = documents.check(&["--no-env"]);
        assert!(
            code == Some(0) && out.contains("s.yaml: good\nr.yaml: good, revision "),
            "{server}: {out}{told}"
        );
        assert!(
            told.contains(&format!("{}warning: ", place.split_inclusive(": ").next().unwrap()))
                && told.contains(why),
            "{told}"
        );
    }
}

#[test]
fn a_provider_s_authorities_have_to_be_there() {
    let routing = |ca: &str| {
        format!("{ROUTING}models: {{}}\n").replace(
            "demo: {",
            &format!("other: {{ protocol: openai, base_url: 'https://x', ca: {ca} }}, demo: {{"),
        )
    };
    let documents = Documents::new(&usual(), &routing("none.pem"));
    let place = "r.yaml:1:68: providers.other.ca: the file cannot be read: No such file";
    let (code, _, told) = documents.check(&[]);
    assert!(code == Some(1) && told.contains(place), "{told}");
    let (code, _, told) = documents.check(&["--no-env"]);
    assert!(
        code == Some(0) && told.contains(&place.replace(": providers", ": warning: providers")),
        "{told}"
    );
    documents.write("r.yaml", &routing("'${OTHER_BASE_URL}'"));
    let (code, _, told) = documents.check(&["--no-env"]);
    assert_eq!((code, told.as_str()), (Some(0), ""));
}

#[test]
fn the_authorities_of_the_system_have_to_be_there() {
    let documents = Documents::new(&usual(), ROUTING);
    documents.write("bad.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    for file in ["none.pem", "bad.pem"] {
        for command in ["check", "serve"] {
            let environment = [("SSL_CERT_FILE", file)];
            let (code, _, told) = documents.run(&[command, "--config", "s.yaml"], &environment);
            let place = "s.yaml:1:1: the certificate authorities of this system cannot be read";
            assert!(code == Some(1) && told.contains(place), "{command} {file}: {told}");
            assert!(told.contains("SSL_CERT_FILE") && !told.contains("panicked"), "{told}");
        }
    }
}

#[tokio::test]
async fn a_gateway_that_runs_does_not_fail_the_check_of_its_own_documents() {
    let gateway = Setup::new(ROUTING).tls().start().await;
    let key = gateway.create_key().await;
    let config = gateway.dir().join("rerouter.yaml");
    let before: BTreeSet<_> = std::fs::read_dir(gateway.dir().join("data"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_rerouter"));
    command.args(["check", "--config"]).arg(&config).env_clear();
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(
        told.contains("warning: listeners[0].address: cannot listen on ")
            && told.contains("warning: metrics.address: "),
        "{told}"
    );
    assert!(told.ends_with("\n3 warning(s)\n"), "{told}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("rerouter.yaml: good\n"));
    let after: BTreeSet<_> = std::fs::read_dir(gateway.dir().join("data"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(after, before);
    let answer =
        gateway.chat(&key, crate::support::documents::chat_body("auto", false).as_bytes()).await;
    assert_eq!(answer.status, 200, "it goes on: {}", answer.text());
    // A start finds the addresses in use.
    let config = config.to_str().unwrap().to_owned();
    let refused = tokio::task::spawn_blocking(move || {
        Documents::new("", "").run(&["serve", "--config", &config], &[])
    })
    .await
    .unwrap();
    assert!(
        refused.0 == Some(1) && refused.2.contains("listeners[0].address: cannot listen on "),
        "{refused:?}"
    );
}

#[test]
fn two_listeners_on_one_address_are_told() {
    for (one, other, clash) in [
        ("127.0.0.1", "127.0.0.1", true),
        ("0.0.0.0", "127.0.0.1", true),
        ("127.0.0.1", "'[::]'", true),
        ("'[::]'", "'[::1]'", true),
        ("127.0.0.1", "'[::ffff:127.0.0.1]'", true),
        ("127.0.0.1", "127.0.0.2", false),
        ("0.0.0.0", "'[::1]'", false),
    ] {
        let port = free_port();
        let at = |address: &str| match address.strip_suffix('\'') {
            Some(quoted) => format!("{quoted}:{port}'"),
            None => format!("{address}:{port}"),
        };
        let (one, other) = (at(one), at(other));
        let both =
            format!("{}listeners: [{{ address: {one} }}, {{ address: {other} }}]\n", usual());
        let (_, _, told) = Documents::new(&both, ROUTING).check(&[]);
        assert_eq!(told.contains("another listener has this address"), clash, "{both}: {told}");
        let metrics = format!(
            "data_dir: @DIR@/data\nlisteners: [{{ address: {one} }}]\n\
             metrics: {{ address: {other} }}\n"
        );
        let (_, _, told) = Documents::new(&metrics, ROUTING).check(&[]);
        assert_eq!(
            told.contains("a listener has the address of metrics"),
            clash,
            "{metrics}: {told}"
        );
    }
    for default in
        ["metrics: { address: 127.0.0.1:8080 }", "listeners: [{ address: 127.0.0.1:9090 }]"]
    {
        let (_, _, told) = Documents::new(default, ROUTING).check(&[]);
        assert!(told.contains("a listener has the address of metrics"), "{default}: {told}");
    }
}

#[test]
fn a_master_key_that_does_not_open_the_store_is_told() {
    let key = |byte: u8| base64(&[byte; 32]);
    let documents = Documents::new(
        "listeners: [{ address: 127.0.0.1:0 }]\ndata_dir: data\nmetrics: { address: 127.0.0.1:0 }",
        ROUTING,
    );
    let check =
        |environment: &[(&str, &str)]| documents.run(&["check", "--config", "s.yaml"], environment);
    let (code, _, told) = check(&[("REROUTER_MASTER_KEY", "short")]);
    assert!(
        code == Some(1)
            && told
                .contains("s.yaml:2:11: data_dir: REROUTER_MASTER_KEY is not 32 bytes in base64"),
        "{told}"
    );
    assert_eq!(check(&[("REROUTER_MASTER_KEY", &key(1))]).0, Some(0));
    std::fs::create_dir(documents.path("data")).unwrap();
    std::fs::write(documents.path("data/master.key"), "nothing like it").unwrap();
    let (code, _, told) = check(&[]);
    assert!(
        code == Some(1) && told.contains("master.key does not hold 32 bytes in base64"),
        "{told}"
    );
    assert_eq!(documents.check(&["--no-env"]).0, Some(0), "the variable may be set elsewhere");
    std::fs::remove_file(documents.path("data/master.key")).unwrap();

    // Makes a store with the first key. Its gateway is killed once the store knows the key.
    let mut command = Command::new(env!("CARGO_BIN_EXE_rerouter"));
    command
        .args(["serve", "--config", "s.yaml"])
        .current_dir(documents.0.path())
        .env_clear()
        .env("REROUTER_MASTER_KEY", key(1));
    let mut serving =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    while check(&[("REROUTER_MASTER_KEY", &key(2))]).0 == Some(0) {
        assert!(began.elapsed() < PATIENCE, "the store of another key is taken");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    serving.kill().unwrap();
    serving.wait().unwrap();
    let (code, _, told) = check(&[("REROUTER_MASTER_KEY", &key(2))]);
    assert!(code == Some(1) && told.contains("another master key"), "after a crash: {told}");
    // A gateway that stopped in order leaves no journal files, and a check makes none.
    let mut command = Command::new(env!("CARGO_BIN_EXE_rerouter"));
    command
        .args(["serve", "--config", "s.yaml"])
        .current_dir(documents.0.path())
        .env_clear()
        .env("REROUTER_MASTER_KEY", key(1));
    let mut serving = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(documents.path("log")).unwrap())
        .spawn()
        .unwrap();
    let began = Instant::now();
    let serves = || {
        let log = std::fs::read_to_string(documents.path("log")).unwrap();
        let at = log.split("metrics on http://").nth(1).and_then(|rest| rest.split('/').next());
        at.is_some_and(answers)
    };
    while !serves() {
        assert!(began.elapsed() < PATIENCE, "it does not start");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let ended = Command::new("sh")
        .args(["-c", &format!("kill -s TERM {}", serving.id())])
        .status()
        .unwrap();
    assert!(ended.success() && serving.wait().unwrap().success());
    let before = documents.files();
    let (code, _, told) = check(&[("REROUTER_MASTER_KEY", &key(2))]);
    assert_eq!(documents.files(), before, "a look leaves no journal");
    assert!(
        code == Some(1) && told.contains("data_dir: ") && told.contains("another master key"),
        "{told}"
    );
    let (_, _, of_serve) =
        documents.run(&["serve", "--config", "s.yaml"], &[("REROUTER_MASTER_KEY", &key(2))]);
    let why =
        told.split("data_dir: ").nth(1).unwrap().split(" (use the master key").next().unwrap();
    assert!(of_serve.contains(why), "{why}: {of_serve}");
    assert_eq!(check(&[("REROUTER_MASTER_KEY", &key(1))]).0, Some(0));
    let gone_over = [("REROUTER_MASTER_KEY", key(2)), ("REROUTER_MASTER_KEY_OLD", key(1))];
    let gone_over: Vec<(&str, &str)> =
        gone_over.iter().map(|(name, key)| (*name, key.as_str())).collect();
    assert_eq!(check(&gone_over).0, Some(0), "a start would change the master key");
    assert_eq!(check(&[("REROUTER_MASTER_KEY", &key(1))]).0, Some(0), "the check has not");
}

/// Whether something at this address answers HTTP. The kernel accepts connections before anything
/// serves.
fn answers(address: &str) -> bool {
    let Ok(mut connection) = TcpStream::connect(address) else { return false };
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    let asked = connection.write_all(b"GET /metrics HTTP/1.1\r\nhost: metrics\r\n\r\n");
    asked.is_ok() && connection.read(&mut [0; 64]).is_ok_and(|read| read > 0)
}

fn base64(bytes: &[u8]) -> String {
    let mut child = Command::new("base64")
        .args(["-w0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

#[test]
fn without_an_environment_variables_may_hold_anything() {
    let server = "\
listeners: [{ address: '${LISTEN}', tls: { cert: '${TLS_CERT}', key: '${TLS_DIR}/key.pem' } }]
metrics: { address: '127.0.0.1:${METRICS_PORT}' }
data_dir: '${DATA_DIR}'
threads: ${THREADS}
hosts: ['${HOST}', 'gw.example.com:${PORT}']
limits: { connections: '${CONNECTIONS:-many}' }
";
    let routing = "\
providers:
  a: { protocol: openai, base_url: '${A_BASE_URL}/v1', api_key: '${A_API_KEY}', \
    headers: { x-team: '${TEAM_API_KEY}' } }
  b: { protocol: openai, base_url: 'https://${B_BASE_URL:-b.example.com/v1/embeddings}', \
    api_keys: ['${B_API_KEY}', '${C_API_KEY}'] }
  c: { protocol: openai, base_url: 'https://c', api_key: '${HOME}' }
models: { a/m: { input_per_mtok: 1, output_per_mtok: 1 } }
recipes: { main: { rules: [{ name: default, targets: [{ target: a/m }] }] } }
aliases: { auto: main }
";
    let documents = Documents::new(server, routing);
    let (code, _, told) = documents.check(&["--no-env"]);
    let wanted = "\
s.yaml:6:24: limits.connections: must be a whole number, \
    not text (digits without quotes and without a unit)
r.yaml:4:58: providers.c.api_key: the variable `HOME` matches no pattern of `routing.env_allow` in \
    the server document (`${NAME}` must be set and allowed; `${NAME:-default}` may be unset)
r.yaml:3:36: warning: providers.b.base_url: the URL ends in `/embeddings`, \
    which the gateway appends itself (leave `/embeddings` out)
2 problem(s), 1 warning(s)
";
    assert_eq!((code, told.as_str()), (Some(1), wanted));
    // Without `--no-env`, each variable is missing.
    let (_, _, told) = documents.check(&[]);
    for variable in [
        "LISTEN",
        "TLS_CERT",
        "TLS_DIR",
        "METRICS_PORT",
        "DATA_DIR",
        "THREADS",
        "HOST",
        "PORT",
        "A_BASE_URL",
        "A_API_KEY",
        "C_API_KEY",
    ] {
        assert!(
            told.contains(&format!("the variable `{variable}` is not set")),
            "{variable}: {told}"
        );
    }
    // With `--no-env`, the environment changes nothing.
    let set = documents.run(
        &["check", "--config", "s.yaml", "--no-env"],
        &[("THREADS", "none"), ("A_BASE_URL", "ftp://x")],
    );
    assert_eq!((set.0, set.2.as_str()), (code, wanted));

    documents.write("s.yaml", "routing: { file: '${ROUTING}' }\n");
    let (code, out, told) = documents.check(&["--no-env"]);
    assert_eq!((code, out.as_str()), (Some(0), "s.yaml: good\n"), "{told}");
    assert_eq!(
        told,
        "the routing document was not checked: s.yaml names it by a variable; \
         check it with `--routing FILE`\n"
    );
}

#[test]
fn the_documents_for_production_are_good_without_their_secrets() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let documents = Documents::new("", ROUTING);
    let conf = |name: &str| root.join("conf/production").join(name).to_str().unwrap().to_owned();
    let (server, routing) = (conf("rerouter.yaml"), conf("routing.yaml"));
    let (code, out, told) =
        documents.run(&["check", "--no-env", "--config", &server, "--routing", &routing], &[]);
    assert_eq!(code, Some(0), "{told}");
    assert!(
        out.contains("rerouter.yaml: good\n") && out.contains("routing.yaml: good, revision "),
        "{out}"
    );
    assert!(!told.contains("routing.yaml:"), "{told}");
    assert_eq!(
        documents.run(&["check", "--config", &server, "--routing", &routing], &[]).0,
        Some(1)
    );
}

#[test]
fn a_server_document_with_problems_never_has_another_routing_document_checked() {
    for (server, checked) in [
        // The document does not say for certain which file it names.
        ("treads: 2\n", None),
        ("threads: [\n", None),
        ("roting: { file: r.yaml }\n", None),
        ("routing: { file: r.yaml }\nrouting: { file: other.yaml }\n", None),
        ("routing: { file: [r.yaml] }\n", None),
        ("routing: { file: '${NOT_SET}' }\n", None),
        ("routing: { file: r.yaml, signal_headers: [cookie] }\n", None),
        ("treads: 2\nrouting: { store: true }\n", None),
        // The document says which file it names.
        ("treads: 2\nrouting: { file: r.yaml }\n", Some("r.yaml")),
        ("threads: 2\nthreads: 3\nrouting: { file: r.yaml }\n", Some("r.yaml")),
    ] {
        let documents = Documents::new("", &ROUTING.replace("demo/echo", "dmo/echo"));
        std::fs::create_dir(documents.path("conf")).unwrap();
        documents.write("conf/routing.yaml", "recipes: { other: 1 }\n");
        documents.write("s.yaml", server);
        let (code, out, told) = documents.check(&[]);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{server}: {told}");
        assert!(
            told.contains("s.yaml:") && !told.contains("conf/routing.yaml"),
            "{server}: {told}"
        );
        assert_eq!(told.contains("r.yaml:2:"), checked.is_some(), "{server}: {told}");
        let why = "the routing document was not checked: s.yaml has problems, \
            so its name is uncertain; check it with `--routing FILE`\n";
        assert_eq!(told.contains(why), checked.is_none(), "{server}: {told}");
        let (code, _, told) = documents.check(&["--routing", "r.yaml"]);
        assert!(
            code == Some(1)
                && told.contains("s.yaml:")
                && told.contains("r.yaml:2:65: recipes.main")
                && !told.contains(why),
            "{told}"
        );
    }
    let documents = Documents::new("", ROUTING);
    let (code, _, told) = documents.run(&["check", "--config", "none.yaml"], &[]);
    assert!(
        code == Some(1)
            && told.contains("none.yaml:1:1: cannot be read")
            && told.contains("not checked: none.yaml has problems"),
        "{told}"
    );
}

#[test]
fn a_key_that_is_there_twice_hides_nothing() {
    let server = "threads: 2\nthreads: many\ndata_dir: /proc/rerouter\n\
        session: { idle: soon, idle: never }\nlisteners: [{ address: 127.0.0.1:0 }]\n\
        metrics: { address: 127.0.0.1:0 }";
    let routing = "\
providers: { demo: { protocol: mock } }
recipes:
  main: { rules: [{ name: default, targets: [{ target: dmo/echo }] }] }
  main: { rules: [] }
aliases: { auto: main, auto: mian, best: mian }
";
    let wanted = "\
s.yaml:2:1: threads: duplicate key `threads` (keep one of them)
s.yaml:4:18: session.idle: must be a duration (for example `20ms`, `30s`, `5m`, `12h` or `7d`)
s.yaml:4:24: session.idle: duplicate key `idle` (keep one of them)
s.yaml:3:11: data_dir: cannot write to /proc/rerouter: No such file or directory (os error 2) (a \
    directory that this user may create and write to)
r.yaml:3:56: recipes.main.rules[0].targets[0].target: unknown provider `dmo` (did you mean `demo`?)
r.yaml:4:3: recipes.main: duplicate key `main` (keep one of them)
r.yaml:5:24: aliases.auto: duplicate key `auto` (keep one of them)
r.yaml:5:42: aliases.best: unknown recipe `mian` (did you mean `main`?)
8 problem(s)
";
    let documents = Documents::new(server, routing);
    let (code, _, told) = documents.check(&[]);
    assert_eq!((code, told.as_str()), (Some(1), wanted));
    // A start reports the same problems of each document.
    let good = Documents::new(&usual(), routing);
    for (documents, of) in [(documents, "s.yaml:"), (good, "r.yaml:")] {
        let (code, _, told) = documents.run(&["serve", "--config", "s.yaml"], &[]);
        let lines: Vec<&str> = wanted.lines().filter(|line| line.starts_with(of)).collect();
        let is_told = |line: &&str| told.contains(*line) || line.contains(": data_dir: ");
        assert!(code == Some(1) && lines.len() == 4 && lines.iter().all(is_told), "{told}");
    }
}

const ODD: &str = "\
providers:
  a: { protocol: openai, base_url: 'https://a.example/v1/chat/completions', api_key: sk-canary, \
    headers: { x-api-key: '${X_API_KEY:-sk-canary}' } }
  b: { protocol: anthropic, base_url: 'https://b.example/v1/messages/', api_keys: [sk-canary-b, \
    '${X_API_KEY}'] }
  demo: { protocol: mock }
models:
  a/free: { input_per_mtok: 0, output_per_mtok: 0 }
  a/context-only: { context: 1000 }
recipes:
  main:
    rules:
      - { name: late, when: 'hour > 25', targets: [{ target: a/free }] }
      - { name: chats, when: \"endpoint == 'chat' && language in ['de', 'xx1']\", \
    targets: [{ target: a/unpriced }] }
      - { name: default, targets: [{ target: demo/echo }, { target: nodes/qwen }, \
    { target: a/unpriced }] }
  shares:
    rules:
      - { name: default, strategy: weighted, targets: [{ target: a/free, weight: 9 }, \
    { target: demo/echo }] }
aliases: { auto: main, shares: shares }
";

const ODD_TOLD: [&str; 7] = [
    "2:36|providers.a.base_url: the URL ends in `/chat/completions`, \
     which the gateway appends itself (leave `/chat/completions` out)",
    "2:86|providers.a.api_key: the document holds a credential in plain text (set a variable in \
     the environment of the gateway and name it, for example `${OPENAI_API_KEY}`)",
    "2:119|providers.a.headers.x-api-key: the document holds a credential in plain text (set a \
     variable in the environment of the gateway and name it, for example `${OPENAI_API_KEY}`)",
    "3:39|providers.b.base_url: the URL ends in `/messages`, \
     which the gateway appends itself (leave `/messages` out)",
    "3:84|providers.b.api_keys[0]: the document holds a credential in plain text (set a variable \
     in the environment of the gateway and name it, for example `${OPENAI_API_KEY}`)",
    "7:3|models[\"a/context-only\"]: no price is known for `a/context-only`: its cost stays \
     unknown, and keys with a budget are refused (models: { a/context-only: \
     { input_per_mtok: …, output_per_mtok: … } }; 0 where it costs nothing)",
    "12:101|recipes.main.rules[1].targets[0].target: no price is known for `a/unpriced`: its cost \
     stays unknown, and keys with a budget are refused (models: { a/unpriced: \
     { input_per_mtok: …, output_per_mtok: … } }; 0 where it costs nothing)",
];

#[tokio::test]
async fn what_is_hardly_meant_is_warned_of_everywhere() {
    let documents = Documents::new(&usual(), ODD);
    let run = |documents: &Documents| {
        documents
            .run(&["check", "--config", "s.yaml"], &[("X_API_KEY", "sk-canary-of-the-environment")])
    };
    let (code, out, told) = run(&documents);
    assert_eq!(code, Some(0), "{told}");
    let lines: Vec<&str> = told.lines().collect();
    let nodes = "13:69|recipes.main.rules[2].targets[1].target: no price is known for \
        `nodes/qwen`: its cost stays unknown";
    let weight = "16:97|recipes.shares.rules[0].targets[1].target: has no weight and counts as 1, \
        while others of this rule have one (weight: 1)";
    let all: Vec<String> = ODD_TOLD
        .iter()
        .chain([&nodes, &weight])
        .map(|told| format!("r.yaml:{}", told.replacen('|', ": warning: ", 1)))
        .collect();
    for (line, wanted) in lines.iter().zip(&all) {
        assert!(line.starts_with(wanted), "{wanted} in:\n{told}");
    }
    assert_eq!((lines.len(), *lines.last().unwrap()), (all.len() + 1, "9 warning(s)"), "{told}");
    assert!(out.contains("r.yaml: good, revision ") && !told.contains("canary"), "{out}{told}");
    // Warnings are also reported next to problems.
    documents.write("r.yaml", &ODD.replace("auto: main,", "auto: mian,"));
    let (code, _, told) = run(&documents);
    assert!(code == Some(1) && told.ends_with("\n1 problem(s), 9 warning(s)\n"), "{told}");

    // Without the literal keys, which the API does not accept.
    let given = ODD
        .replace("api_key: sk-canary,", "api_key: '${A_API_KEY}',")
        .replace("${X_API_KEY:-sk-canary}", "${H_API_KEY}");
    let given = given.replace("[sk-canary-b, '${X_API_KEY}']", "['${X_API_KEY}']");
    let environment = [("A_API_KEY", "sk-a"), ("H_API_KEY", "sk-h"), ("X_API_KEY", "sk-x")];
    let setup =
        environment.iter().fold(Setup::new(ROUTING), |setup, (name, value)| setup.env(name, value));
    let gateway = setup.start().await;
    let send = async |method: &str, path: &str, text: &str| {
        let bearer = format!("Bearer {}", gateway.admin_key);
        gateway
            .send(
                method,
                path,
                &[("authorization", &bearer), ("content-type", "application/yaml")],
                Some(text.as_bytes()),
            )
            .await
            .json()
    };
    let looked = send("POST", "/v1/router/config/validate", &given).await;
    assert_eq!((&looked["valid"], &looked["problems"]), (&json!(true), &json!([])), "{looked}");
    let named: Vec<&str> = looked["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|warning| warning["path"].as_str().unwrap())
        .collect();
    assert_eq!(named.len(), 6, "{looked}");
    assert_eq!(
        looked["warnings"][0]["message"],
        "the URL ends in `/chat/completions`, which the gateway appends itself"
    );
    let broken =
        send("POST", "/v1/router/config/validate", &given.replace("auto: main,", "auto: mian,"))
            .await;
    assert_eq!(
        (&broken["valid"], &broken["warnings"]),
        (&json!(false), &looked["warnings"]),
        "{broken}"
    );
    let taken = send("PUT", "/v1/router/config", &given).await;
    let warnings: Vec<&str> = taken["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|warning| warning.as_str().unwrap())
        .collect();
    assert!(
        warnings.contains(
            &"line 16, column 97: recipes.shares.rules[0].targets[1].target: has no weight and \
            counts as 1, while others of this rule have one (weight: 1)"
        ),
        "{taken}"
    );
    assert_eq!(warnings.len(), 6, "{taken}");
    // The log has warnings of a file that becomes live.
    gateway.write_routing(&given.replace("hour > 25", "hour > 20")).await;
    let log = gateway.log();
    assert!(
        log.contains(
            "routing.yaml:16:97: warning: recipes.shares.rules[0].targets[1].target: has no weight"
        ),
        "{log}"
    );
}

/// A recipe with a rule for each expression, and a last rule without one.
fn with_rules(expressions: &[&str]) -> String {
    let quoted = |text: &str| serde_json::to_string(text).unwrap();
    let rule = |(at, text): (usize, &&str)| {
        format!(
            "      - {{ name: r{at}, when: {}, targets: [{{ target: demo/echo }}] }}\n",
            quoted(text)
        )
    };
    let rules: String = expressions.iter().enumerate().map(rule).collect();
    format!(
        "providers: {{ demo: {{ protocol: mock }} }}\nkeywords: {{ code: [refactor] }}\n\
         recipes:\n  main:\n    rules:\n\
         {rules}      - {{ name: default, targets: [{{ target: demo/echo }}] }}\n\
         aliases: {{ auto: main }}\n"
    )
}

#[tokio::test]
async fn wrong_conditions_are_told_everywhere() {
    let wrong = ["model + 1 == 'a'", "stream and json_output", "(stream"];
    let text = with_rules(&wrong);
    let (code, _, told) = Documents::new(&usual(), &text).check(&[]);
    assert_eq!(code, Some(1));
    for at in 0..wrong.len() {
        let (place, of_it) = (format!("r.yaml:{}:", at + 6), format!("main.rules[{at}].when: "));
        let is_of_it = |line: &str| line.starts_with(&place) && line.contains(&of_it);
        assert!(told.lines().any(is_of_it), "{at}: {told}");
    }
    let gateway = Gateway::start(ROUTING).await;
    let bearer = format!("Bearer {}", gateway.admin_key);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/yaml")];
    let send = async |method: &str, path: &str| {
        gateway.send(method, path, &headers, Some(text.as_bytes())).await
    };
    let looked = send("POST", "/v1/router/config/validate").await.json();
    assert_eq!(looked["problems"].as_array().unwrap().len(), wrong.len(), "{looked}");
    let refused = send("PUT", "/v1/router/config").await;
    assert_eq!(refused.status, 400);
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("3 problem(s). line 6, column "), "{detail}");
}

#[tokio::test]
async fn what_goes_wrong_with_a_request_is_traced() {
    let failing = [
        ("key.labels.none == 'a'", "there is no `none`"),
        ("100 / max_tokens > 1", "a division by zero"),
        ("int(model) > 1", "`int` does not take this value"),
    ];
    let gateway = Gateway::start(&with_rules(&failing.map(|(expression, _)| expression))).await;
    let key = gateway.create_key().await;
    let body = crate::support::documents::chat_body("auto", false);
    let asked = serde_json::from_str(&body).unwrap();
    let decided =
        gateway.manage("POST", "/v1/router/decide", &key.secret, Some(&asked)).await.json();
    assert_eq!(decided["rule"], "default", "{decided}");
    let trace = decided["trace"].as_array().unwrap();
    let traced: Vec<&str> = trace.iter().map(|step| step["error"].as_str().unwrap()).collect();
    assert_eq!(traced, failing.map(|(_, error)| error));
    let id = gateway.chat(&key, body.as_bytes()).await.request_id();
    assert_eq!(gateway.capture(&id).await["decision"]["trace"], decided["trace"]);
}
