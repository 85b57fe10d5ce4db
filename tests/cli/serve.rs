//! Messages of `rerouter serve` when it starts, and when it cannot. That it reports the same
//! problems of documents as `check` is tested in `check`.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::client::{self, Connection};
use crate::support::gateway::{Gateway, command};
use crate::support::{PATIENCE, free_port, until};

const GOOD_ROUTING: &str = "providers:\n  demo: { protocol: mock }\nrecipes:\n  main:\n    \
    rules: [ { name: default, targets: [ { target: demo/echo } ] } ]\naliases: { auto: main }\n";

/// Waits, with a time limit, for the process to end by itself.
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

/// Runs `serve` with these documents. Returns the exit code and all output.
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

/// Whether a line of `text` has the place `file:line:column:`, and `word`.
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

/// Variables for a gateway in `dir` with the documents for a laptop, on ports that the system
/// chooses.
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

/// A running `serve` whose output goes to a file.
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

    /// Waits for `word` in the log. Returns the text after it, up to the next blank, slash or line
    /// end.
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
    let rest = "public_url: https://gw.example.com\n\
        metrics: { address: '${METRICS_LISTEN}' }\ndata_dir: ${DATA_DIR}\n\
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
    // The public URL is that of the clients.
    assert_eq!(serving.told("console on http://").await, told[0]);
    // Each address has the interfaces of its line.
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
        // The store was made with the key that is in the file.
        let again = Serving::start(dir.path(), "again", &config);
        again.told("metrics on http://").await;
        assert_eq!(std::fs::read(dir.path().join("data/master.key")).unwrap(), key);
    }
}

#[tokio::test]
async fn the_version_names_the_commit_that_was_built() {
    let gateway = Gateway::start(GOOD_ROUTING).await;
    let version = gateway.send("GET", "/version", &[], None).await.json();
    // The build scripts set this variable for both the binary and this test.
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
