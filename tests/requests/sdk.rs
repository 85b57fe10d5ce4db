//! The official SDKs of OpenAI and Anthropic for Python and Node, LangChain's ChatOpenAI and
//! LiteLLM, unmodified, with an `rtr_` key against the real binary: the scripts in `tests/sdk/`
//! assert, this starts what they talk to. And schemathesis, which makes up requests from the
//! OpenAPI document. `./test` installs them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::documents::provider;
use crate::support::gateway::Gateway;
use crate::support::provider::{self as scripted, Provider, Received, Step};
use crate::support::recorded::{self, Recorded};
use crate::translation::coding_agents;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A provider whose filter finds every request wanting, in the words of its API.
fn strict(received: &Received) -> Vec<Step> {
    let body = if received.target.starts_with("/v1/messages") {
        json!({
            "type": "error", "error": {
                "type": "invalid_request_error", "message": "Output blocked by content filtering \
                    policy"
            }
        })
    } else {
        let message =
            "Invalid prompt: your prompt was flagged as potentially violating our usage policy.";
        json!({
            "error": {
                "message": message, "type": "invalid_request_error", "param": null,
                "code": "invalid_prompt"
            }
        })
    };
    scripted::json_answer(400, &body)
}

/// Keys that are refused, each for a reason of its own.
async fn refused_keys(gateway: &Gateway) -> serde_json::Value {
    let mut keys = serde_json::Map::new();
    for (name, asked) in [
        ("forbidden", json!({"scopes": ["replay"]})),
        ("hasty", json!({"limits": {"rpm": 1}})),
        ("broke", json!({"limits": {"budget": {"usd": 0.01, "per": "day"}}})),
    ] {
        let made =
            gateway.answers(201, "POST", "/v1/router/keys", &gateway.admin_key, Some(&asked)).await;
        keys.insert(name.to_owned(), made.json()["key"].clone());
    }
    keys.into()
}

/// The mock behind `auto`, the strict provider, and every recorded model by its name.
fn document(recorded: &Recorded, strict: &Provider) -> String {
    let models: BTreeSet<String> = recorded::all()
        .iter()
        .map(|known| format!("{}/{}", known.provider(), known.model()))
        .collect();
    let models: String = models
        .iter()
        .map(|model| format!("  {}: {{}}\n", serde_json::to_string(model).unwrap()))
        .collect();
    format!(
        "providers:\n  demo: {{ protocol: mock }}\n{}{}{}{}models:\n\
         {models}  demo/status-429: {{}}\n  demo/short: {{ context: 100 }}\n  \
         demo/dear: {{ input_per_mtok: 1000000, output_per_mtok: 1000000 }}\n  \
         strict/filter: {{}}\n  ant-strict/filter: {{}}\nrecipes:\n  main:\n    \
         rules: [ {{ name: only, targets: [ {{ target: demo/echo }} ] }} ]\n\
         aliases: {{ auto: main }}\n",
        provider("rec", &recorded.url(), "sk-recorded"),
        provider("ant", &recorded.url(), "sk-recorded")
            .replace("protocol: openai", "protocol: anthropic"),
        provider("strict", &strict.url(), "sk-strict"),
        provider("ant-strict", &strict.url(), "sk-strict")
            .replace("protocol: openai", "protocol: anthropic"),
    )
}

/// That `./test` has installed what the requirement files ask for now: its stamp ends with their
/// texts.
pub fn installed() {
    let texts = ["requirements.txt", "package.json", "package-lock.json"]
        .map(|name| std::fs::read_to_string(root().join("tests/sdk").join(name)).unwrap());
    let stamp = std::fs::read_to_string(root().join(".test/sdk.stamp")).unwrap_or_default();
    assert!(
        stamp.ends_with(&texts.concat()),
        "the SDKs of tests/sdk are not installed, or not these: run ./test, which installs them"
    );
}

/// Runs a script of `tests/sdk/` with nothing in its environment but where to go; what it printed.
async fn run(program: &Path, script: &str) -> String {
    installed();
    let recorded = Recorded::start(0).await;
    let strict = Provider::start(|received, _| strict(received)).await;
    let gateway = Gateway::start(&document(&recorded, &strict)).await;
    let key = gateway.create_key().await;
    let agent = concat!(
        r#"{"name":"brief","model":"auto","instructions":"Be brief.","#,
        r#""defaults":{"max_tokens":64}}"#,
    );
    let made = gateway
        .send("POST", "/v1/agents", &[("content-type", "application/json")], Some(agent.as_bytes()))
        .await;
    assert_eq!(made.status, 201, "{}", made.text());
    let mut command = Command::new("timeout");
    command
        .arg("600")
        .arg(program)
        .arg(root().join("tests/sdk").join(script))
        .env_clear()
        .stdin(Stdio::null());
    command
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("HOME", gateway.dir());
    command
        .env("REROUTER_BASE_URL", format!("http://{}/v1", gateway.host()))
        .env("REROUTER_RECORDED", std::env::join_paths(recorded::files()).unwrap());
    let node = gateway
        .manage("POST", "/v1/nodes", &gateway.admin_key, Some(&json!({"name": "script"})))
        .await
        .json();
    command
        .env("REROUTER_NODE_ID", node["id"].as_str().unwrap())
        .env("REROUTER_NODE_SECRET", node["secret"].as_str().unwrap());
    command.env("REROUTER_KEY", &key.secret).env("REROUTER_KEY_ID", &key.id);
    command.env("REROUTER_REFUSED_KEYS", refused_keys(&gateway).await.to_string());
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{script}: {}\n{said}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(said.trim_end().ends_with("done"), "{script} did not come to its end:\n{said}");
    said
}

pub fn python() -> PathBuf {
    root().join(".test/venv/bin/python")
}

#[tokio::test]
async fn openai_for_python() {
    let said = run(&python(), "openai_sdk.py").await;
    assert!(said.contains("revocation: AuthenticationError"), "{said}");
}

#[tokio::test]
async fn openai_for_node() {
    let said = run(Path::new("node"), "openai_sdk.mjs").await;
    assert!(said.contains("revocation: AuthenticationError"), "{said}");
}

#[tokio::test]
async fn anthropic_for_python() {
    let said = run(&python(), "anthropic_sdk.py").await;
    assert!(said.contains("revocation: AuthenticationError"), "{said}");
}

#[tokio::test]
async fn anthropic_for_node() {
    let said = run(Path::new("node"), "anthropic_sdk.mjs").await;
    assert!(said.contains("revocation: AuthenticationError"), "{said}");
}

#[tokio::test]
async fn langchain() {
    let said = run(&python(), "langchain_sdk.py").await;
    assert!(said.contains("AuthenticationError after revocation"), "{said}");
}

#[tokio::test]
async fn litellm() {
    let said = run(&python(), "litellm_sdk.py").await;
    assert!(
        said.contains("openai: ContextWindowExceededError")
            && said.contains("anthropic: ContextWindowExceededError"),
        "{said}"
    );
}

/// A node whose signatures another implementation of RFC 9421 makes.
#[tokio::test]
async fn http_message_signatures() {
    let said = run(&python(), "node_client.py").await;
    assert!(said.contains("all routes: taken") && said.contains("nothing: 401"), "{said}");
}

/// Each recorded request in every other dialect, against the types of that dialect's own SDK.
#[tokio::test]
async fn translated_requests() {
    use rerouter::internals::dialect::Dialect;
    use rerouter::internals::dialect::request_translation::{read_request, write_request};
    let recorded = recorded::all()
        .into_iter()
        .map(|exchange| (Dialect::named(&exchange.kind), exchange.id, exchange.request));
    let of_agents = coding_agents::requests()
        .into_iter()
        .map(|asked| (Some(asked.endpoint().dialect()), asked.name, asked.request));
    let mut bodies = Vec::new();
    for (source, name, text) in recorded.chain(of_agents) {
        let Some(source) = source else { continue };
        let request = read_request(source, text.get().as_bytes()).unwrap();
        for target in Dialect::TRANSLATED.into_iter().filter(|target| *target != source) {
            let Ok(translated) = write_request(&request, target) else { continue };
            bodies.push((name.clone(), target.name(), translated.body.to_vec()));
        }
    }
    assert!(bodies.len() > 600, "{}", bodies.len());
    check_types(bodies).await;
}

/// That each body is a request of its dialect, by the types of that dialect's SDK: a name, the
/// dialect, and the bytes.
pub async fn check_types(bodies: Vec<(String, &str, Vec<u8>)>) {
    installed();
    let mut lines = String::new();
    for (name, dialect, body) in bodies {
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let line = json!({ "id": name, "target": dialect, "body": body });
        lines.push_str(&format!("{line}\n"));
    }
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("requests.jsonl");
    std::fs::write(&file, lines).unwrap();
    let mut command = Command::new("timeout");
    command.arg("300").arg(python()).arg(root().join("tests/sdk/translated_requests.py"));
    command.env_clear().stdin(Stdio::null()).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("HOME", scratch.path()).env("TRANSLATED", &file);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.ends_with("done\n"), "{said}{errors}");
}

/// schemathesis over the OpenAPI document: every operation with generated requests, no 5xx, no
/// undocumented status or shape.
async fn generated(credential: &str, more: &[&str]) -> String {
    installed();
    let recorded = Recorded::start(0).await;
    let strict = Provider::start(|received, _| strict(received)).await;
    let gateway = Gateway::start(&document(&recorded, &strict)).await;
    let secret = if credential == "admin" {
        gateway.admin_key.clone()
    } else {
        gateway.create_key().await.secret
    };
    let cases = if crate::support::full() { "300" } else { "15" };
    let mut command = Command::new("timeout");
    command.arg("900").arg(root().join(".test/venv/bin/schemathesis"));
    command.args([
        "run",
        &format!("http://{}/openapi.json", gateway.host()),
        "--header",
        &format!("Authorization: Bearer {secret}"),
    ]);
    command.args([
        "--phases",
        "coverage,fuzzing",
        "--max-examples",
        cases,
        "--seed",
        "1",
        "--no-color",
        "--suppress-health-check",
        "all",
    ]);
    let checks = "not_a_server_error,status_code_conformance,content_type_conformance,\
        response_schema_conformance";
    command.args(["--checks", checks]).args(more).env("PYTHONDONTWRITEBYTECODE", "1");
    command.current_dir(gateway.dir()).stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[tokio::test]
async fn every_operation_with_generated_requests_of_an_admin() {
    let said = generated("admin", &[]).await;
    let number =
        |text: &str| text.split('/').next().and_then(|digits| digits.trim().parse::<usize>().ok());
    let count = |word: &str| said.lines().find_map(|line| number(line.trim().strip_prefix(word)?));
    assert!(
        count("Tested:").is_some_and(|tested| count("Selected:") == Some(tested) && tested > 30),
        "{said}"
    );
}

#[tokio::test]
async fn the_data_plane_with_generated_requests_of_a_key() {
    // Not reroutes: of a capture that no provider could answer they are 502 and 503, as the
    // contract says.
    let said = generated(
        "router",
        &["--include-path-regex", "^/v1/(chat|models|embeddings|responses|messages)"],
    )
    .await;
    assert!(said.contains("Tested: 7"), "{said}");
}
