//! `rerouter serve` without any configuration, as a new user runs it, and `rerouter init`.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use serde_json::{Value, json};

use crate::support::command::{run, run_with};
use crate::support::provider::{self as scripted, Provider};
use crate::support::{PATIENCE, until};

/// An address where no Ollama listens.
const NO_OLLAMA: (&str, &str) = ("OLLAMA_HOST", "127.0.0.1:1");
const ANYWHERE: [&str; 7] =
    ["serve", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--data-dir", "data"];

/// A running `serve` whose output goes to a file.
struct Started {
    child: Child,
    log: std::path::PathBuf,
}

impl Started {
    fn new(dir: &Path, environment: &[(&str, &str)]) -> Started {
        Started::with(dir, &ANYWHERE, environment)
    }

    fn with(dir: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Started {
        let log = dir.join("log");
        let output = std::fs::File::create(&log).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_rerouter"));
        command.args(arguments).current_dir(dir).env_clear().envs(environment.iter().copied());
        let output = command.stdout(output.try_clone().unwrap()).stderr(output);
        Started { child: output.stdin(Stdio::null()).spawn().unwrap(), log }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// What the start says about itself, and the command line that it suggests to try.
    async fn told(&self) -> (String, String) {
        until("the start to be told", async || {
            let log = self.log();
            if !log.contains("metrics on http://") {
                return None;
            }
            // Output for programs: every line is a JSON object.
            let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
            let mut messages = lines.filter_map(|line| line["message"].as_str().map(str::to_owned));
            let told = messages.find(|said| said.starts_with("There is no routing"))?;
            let (said, rest) = told.split_once("Try it:\n\n")?;
            let (line, _) = rest.split_once("\n\n")?;
            Some((said.to_owned(), line.to_owned()))
        })
        .await
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Runs a line in a shell until it succeeds, because the listener may come up a moment later.
async fn shell(dir: &Path, line: &str) -> String {
    until("an answer", async || {
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(dir);
        // On another thread, because the provider runs on this one.
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    })
    .await
}

/// The models of `auto` have prices by preset. Without prices, a key with a budget would get 403.
#[tokio::test]
async fn a_key_with_a_budget_is_served_with_any_one_key() {
    let gemini = json!({
        "responseId": "g1", "modelVersion": "m",
        "candidates": [{"index": 0, "finishReason": "STOP",
            "content": {"role": "model", "parts": [{"text": "well said"}]}}],
        "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5},
    });
    let provider = Provider::start(move |request, _| match request.target.contains(":generate") {
        true => scripted::json_answer(200, &gemini),
        false => scripted::completion("well said"),
    })
    .await;
    let root = format!("http://{}", provider.address());
    for (name, target, header) in [
        ("GEMINI", "/v1beta/models/gemini-2.5-flash:generateContent", "x-goog-api-key"),
        ("OPENROUTER", "/api/v1/chat/completions", "authorization"),
        ("GROQ", "/openai/v1/chat/completions", "authorization"),
        ("MISTRAL", "/v1/chat/completions", "authorization"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (key, base) = (format!("{name}_API_KEY"), format!("{name}_BASE_URL"));
        let started = Started::new(dir.path(), &[(&key, "sk-canary"), (&base, &root), NO_OLLAMA]);
        let (_, line) = started.told().await;
        let url = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
        let first = std::fs::read_to_string(dir.path().join("data/first-key")).unwrap();
        let gateway = url.trim_end_matches("/v1/chat/completions");
        let client = [("REROUTER_URL", gateway), ("REROUTER_API_KEY", first.trim())];
        let create = ["keys", "create", "team", "--budget", "1/day", "--quiet"];
        let made = run(dir.path(), &create, &client).await.well();
        let body = r#"{"model": "auto", "messages": [{"role": "user", "content": "hello"}]}"#;
        let ask = format!(
            "curl -sS --fail-with-body {url} -H 'Authorization: Bearer {}' -H 'Content-Type: \
             application/json' -d '{body}'",
            made.trim()
        );
        let answer = shell(dir.path(), &ask).await;
        assert!(answer.contains("well said"), "{name}: {answer}");
        assert_eq!(provider.last().target, target);
        assert!(provider.last().header(header).unwrap().ends_with("sk-canary"), "{name}");
    }
}

#[tokio::test]
async fn a_key_in_the_environment_is_enough_to_serve() {
    let openai = Provider::always(scripted::completion("well said")).await;
    let dir = tempfile::tempdir().unwrap();
    let url = openai.url();
    let environment = [("OPENAI_API_KEY", "sk-canary"), ("OPENAI_BASE_URL", &url), NO_OLLAMA];
    let started = Started::new(dir.path(), &environment);
    let (said, line) = started.told().await;
    for word in ["Found OPENAI_API_KEY.", "auto is openai/gpt-5-mini", "openai/*, gpt-*"] {
        assert!(said.contains(word), "no {word} in {said}");
    }
    let answer = shell(dir.path(), &line).await;
    assert!(answer.contains("well said"), "{answer}");
    assert_eq!(openai.last().header("authorization").as_deref(), Some("Bearer sk-canary"));
    assert_eq!(openai.last().json()["model"], "gpt-5-mini");
    // The key is not in the log, but in a file of its own.
    let file = dir.path().join("data/first-key");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let key = std::fs::read_to_string(&file).unwrap().trim().to_owned();
    assert!(key.starts_with("rtr_") && !started.log().contains(&key), "{}", started.log());
    assert!(!started.log().contains("sk-canary"), "{}", started.log());
    // Another of the provider's models works with the same line.
    let other = line.replace("\"auto\"", "\"gpt-4o\"");
    assert!(shell(dir.path(), &other).await.contains("well said"));
    assert_eq!(openai.last().json()["model"], "gpt-4o");
    // The key may make others, and evaluate a document.
    let gateway = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
    let gateway = gateway.trim_end_matches("/v1/chat/completions");
    let client = [("REROUTER_URL", gateway), ("REROUTER_API_KEY", key.as_str())];
    let made = run(dir.path(), &["keys", "create", "laptop", "--quiet"], &client).await.well();
    assert!(made.starts_with("rtr_") && made.trim() != key, "{made}");
    std::fs::write(dir.path().join("new.yaml"), include_str!("../../conf/routing.yaml")).unwrap();
    until("the captures", async || {
        let listed = run(dir.path(), &["replay", "list", "--json"], &client).await.well();
        (listed.lines().count() == 2).then_some(())
    })
    .await;
    let evaluate = ["replay", "evaluate", "--document", "new.yaml"];
    let report = run(dir.path(), &evaluate, &client).await.well();
    assert!(report.contains("2 captures decided"), "{report}");
    drop(started);
    let again = Started::new(dir.path(), &environment);
    let (said, line) = again.told().await;
    assert!(said.contains("The first key is in data/first-key"), "{said}");
    assert!(shell(dir.path(), &line).await.contains("well said"));
    // If the file is gone, the user has moved the key and knows where it is.
    drop(again);
    std::fs::remove_file(&file).unwrap();
    let (said, line) = Started::new(dir.path(), &environment).told().await;
    assert!(said.contains("$KEY stands for a key of yours"), "{said}");
    assert!(line.contains("Bearer $KEY"), "{line}");
}

/// The server document of the Debian package, with another data directory.
#[tokio::test]
async fn a_server_document_without_a_routing_document_serves_what_is_found() {
    let openai = Provider::always(scripted::completion("well said")).await;
    let dir = tempfile::tempdir().unwrap();
    let packaged = include_str!("../../packaging/deb/rerouter.yaml");
    let document = packaged.replace("/var/lib/rerouter", "data");
    std::fs::write(dir.path().join("server.yaml"), document).unwrap();
    let url = openai.url();
    let anywhere = "127.0.0.1:0";
    let environment = [
        ("OPENAI_API_KEY", "sk-canary"),
        ("OPENAI_BASE_URL", &url),
        ("LISTEN", anywhere),
        ("METRICS_LISTEN", anywhere),
        NO_OLLAMA,
    ];
    let started = Started::with(dir.path(), &["serve", "--config", "server.yaml"], &environment);
    let (said, line) = started.told().await;
    assert!(said.contains("Found OPENAI_API_KEY."), "{said}");
    assert!(shell(dir.path(), &line).await.contains("well said"));
}

#[tokio::test]
async fn with_an_admin_key_nobody_needs_a_first_one() {
    let dir = tempfile::tempdir().unwrap();
    let admin = ("ADMIN_API_KEY", "admin-canary-0123456789abcdef0123456789");
    let started = Started::new(dir.path(), &[admin, ("OPENAI_API_KEY", "sk-canary"), NO_OLLAMA]);
    let (said, line) = started.told().await;
    let gateway = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
    let gateway = gateway.trim_end_matches("/v1/chat/completions");
    let make = format!("rerouter keys create laptop --quiet --url {gateway}");
    assert!(said.contains(&make) && line.contains("Bearer $KEY"), "{said}");
    assert!(!dir.path().join("data/first-key").exists() && !started.log().contains(admin.1));
}

#[tokio::test]
async fn a_shell_that_is_set_up_for_clients_makes_no_circle() {
    // OPENAI_BASE_URL leads to the gateway itself, so the usual URL is used instead.
    let dir = tempfile::tempdir().unwrap();
    let environment =
        [("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"), NO_OLLAMA];
    let checked = run(dir.path(), &["check"], &environment).await;
    let (out, _) = checked.well_told();
    assert!(out.contains("shipped prices of") && out.contains("openai"), "{out}");
}

#[tokio::test]
async fn an_ollama_is_found_by_asking_it() {
    let ollama = Provider::start(|request, _| match request.target.as_str() {
        "/api/tags" => scripted::json_answer(
            200,
            &json!({"models": [{"name": "nomic-embed-text:latest"}, {"name": "qwen3:8b"}]}),
        ),
        _ => scripted::completion("from the desk"),
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let host = ollama.address().to_string();
    let started = Started::new(dir.path(), &[("OLLAMA_HOST", &host)]);
    let (said, line) = started.told().await;
    assert!(said.contains("(2 models)") && said.contains("auto is ollama/qwen3:8b"), "{said}");
    assert!(shell(dir.path(), &line).await.contains("from the desk"));
    assert_eq!(ollama.last().json()["model"], "qwen3:8b");
}

#[tokio::test]
async fn without_a_provider_it_says_what_to_set_and_the_demo_answers() {
    let dir = tempfile::tempdir().unwrap();
    let started = Started::new(dir.path(), &[NO_OLLAMA]);
    let (said, line) = started.told().await;
    for word in ["No provider was found", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "Ollama", "demo"] {
        assert!(said.contains(word), "no {word} in {said}");
    }
    assert!(shell(dir.path(), &line).await.contains("chat.completion"));
}

/// The output of a start on a terminal, which `script` makes, up to its last message. With `input`,
/// the terminal is also standard input.
fn on_a_terminal(dir: &Path, input: &str) -> String {
    let command = format!("exec {} {} {input}", env!("CARGO_BIN_EXE_rerouter"), ANYWHERE.join(" "));
    let mut child = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .current_dir(dir)
        .env(NO_OLLAMA.0, NO_OLLAMA.1)
        .env_remove("OPENAI_API_KEY")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command `script` (of bsdutils)");
    let (lines, output) = (mpsc::channel(), child.stdout.take().unwrap());
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if lines.0.send(line).is_err() {
                return;
            }
        }
    });
    let mut told = String::new();
    while !told.contains("metrics on http://") {
        let line = lines.1.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{told}"));
        told.extend([line.as_str(), "\n"]);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    told
}

/// The key and the link for the first admin are shown only on a terminal with a person.
#[tokio::test]
async fn a_terminal_shows_the_first_key_once() {
    let dir = tempfile::tempdir().unwrap();
    let told = on_a_terminal(dir.path(), "");
    for word in ["The first key, shown this once: rtr_", "/console/first-admin?token="] {
        assert!(told.contains(word), "no {word} in {told}");
    }
    for file in ["first-key", "first-admin"] {
        assert!(!dir.path().join("data").join(file).exists(), "{file}: {told}");
    }
    // The terminal of a container has no input, so its output is treated as a log.
    let dir = tempfile::tempdir().unwrap();
    let told = on_a_terminal(dir.path(), "</dev/null");
    for (file, begin) in [("first-key", "rtr_"), ("first-admin", "http")] {
        let file = dir.path().join("data").join(file);
        let secret = std::fs::read_to_string(&file).unwrap();
        assert!(secret.starts_with(begin) && !told.contains(secret.trim()), "{told}");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert!(!told.contains("token=") && told.contains("hour: in data/first-admin"), "{told}");
}

#[tokio::test]
async fn init_writes_documents_that_check_takes() {
    let dir = tempfile::tempdir().unwrap();
    let none = [NO_OLLAMA];
    run(dir.path(), &["init"], &none).await.failed(2, "name one with --provider");
    run(dir.path(), &["init", "--provider", "oracle"], &none).await.failed(2, "known: openai");
    assert!(!dir.path().join("conf").exists(), "a wrong answer writes nothing");
    let init = ["init", "--provider", "openai", "--provider", "gemini", "--provider", "ollama"];
    let said = run(dir.path(), &init, &none).await.well();
    for word in ["conf/rerouter.yaml", "Set OPENAI_API_KEY, GEMINI_API_KEY first."] {
        assert!(said.contains(word), "no {word} in {said}");
    }
    run(dir.path(), &init, &none).await.failed(1, "conf/rerouter.yaml is there already");
    let keys = [("OPENAI_API_KEY", "a"), ("GEMINI_API_KEY", "b"), NO_OLLAMA];
    let again = ["init", "--force", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:9191"];
    let found = run(dir.path(), &again, &keys).await;
    let found = found.well();
    assert!(!found.contains("first."));
    // The suggested command uses the gateway's address from the document, not the default one.
    assert!(found.contains("keys create laptop --url http://127.0.0.1:0\n"), "{found}");
    assert!(said.contains("keys create laptop --url http://127.0.0.1:8080\n"), "{said}");
    let server = std::fs::read_to_string(dir.path().join("conf/rerouter.yaml")).unwrap();
    assert!(server.contains("metrics: { address: \"127.0.0.1:9191\" }"), "{server}");
    let all = ["init", "--dir", "all", "--provider", "openai", "--listen", "0.0.0.0:8099"];
    let said = run(dir.path(), &all, &none).await.well();
    assert!(said.contains("keys create laptop --url http://localhost:8099\n"), "{said}");
    let checked = run(dir.path(), &["check"], &keys).await.well();
    assert!(checked.contains("conf/routing.yaml: good"), "{checked}");
    let text = std::fs::read_to_string(dir.path().join("conf/routing.yaml")).unwrap();
    assert!(text.contains("${GEMINI_API_KEY}") && !text.contains("ollama"), "{text}");
    let odd = ["init", "--dir", "odd", "--provider", "openai", "--data-dir", "a ${X} \"b\""];
    run(dir.path(), &odd, &none).await.well();
    run(dir.path(), &["check", "--config", "odd/rerouter.yaml"], &keys).await.well();
    // Questions are only asked on a terminal, not of other input.
    let elsewhere = ["init", "--dir", "other", "--provider", "openai"];
    run_with(dir.path(), &elsewhere, &none, "nonsense\n").await.well();
}

#[tokio::test]
async fn init_asks_on_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let lines = "8080\\n127.0.0.1:0\\noracle\\nopenai, groq\\n\\n";
    let init = concat!(env!("CARGO_BIN_EXE_rerouter"), " init");
    let command = format!("printf '{lines}' | script -qec '{init}' /dev/null");
    let output = Command::new("sh")
        .args(["-c", &command])
        .current_dir(dir.path())
        .env(NO_OLLAMA.0, NO_OLLAMA.1)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    // An invalid answer is asked for again.
    assert_eq!(said.matches("Listen on [127.0.0.1:8080]").count(), 2, "{said}");
    assert!(
        said.contains("`8080` is not an address") && said.contains("unknown provider `oracle`")
    );
    let text = std::fs::read_to_string(dir.path().join("conf/routing.yaml")).unwrap();
    assert!(text.contains("groq") && text.contains("openai"), "{said}\n{text}");
}

#[tokio::test]
async fn a_problem_of_an_option_is_told_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    std::fs::write(dir.path().join("file"), "").unwrap();
    for (option, value) in
        [("--listen", address.as_str()), ("--metrics", &address), ("--data-dir", "file")]
    {
        let mut arguments = ANYWHERE;
        let at = arguments.iter().position(|argument| *argument == option).unwrap();
        arguments[at + 1] = value;
        let ran = run(dir.path(), &arguments, &[NO_OLLAMA]).await;
        ran.failed(1, &format!("{option}: "));
        assert!(!ran.error.contains("options of the command line"), "{}", ran.error);
    }
    run(dir.path(), &["migrate", "--data-dir", "data"], &[]).await.failed(2, "by `--to`");
    run(dir.path(), &["migrate", "--to", "nowhere"], &[]).await.failed(2, "--to ");
}
