//! README's tour and the two commands of a node, run as they stand there by a shell against a gateway of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::support::documents::chat_body;
use crate::support::gateway::Setup;
use crate::support::provider::{self as scripted, Provider};
use crate::support::until;

/// The blocks of a language in a section.
fn blocks<'a>(readme: &'a str, section: &str, language: &str) -> Vec<&'a str> {
    let section = readme
        .split(&format!("\n## {section}\n"))
        .nth(1)
        .and_then(|rest| rest.split("\n## ").next())
        .expect("the section");
    section
        .split(&format!("```{language}\n"))
        .skip(1)
        .map(|block| block.split("```").next().unwrap())
        .collect()
}

/// The tour's commands, its address and its document exchanged for the test's.
fn tour(readme: &str, host: &str, routing: &str) -> String {
    let blocks = blocks(readme, "A five-minute tour", "sh");
    assert!(blocks.len() >= 6, "only {} blocks of commands", blocks.len());
    let script = blocks.join("\n");
    assert!(script.contains("http://127.0.0.1:8080/") && script.contains("conf/routing.yaml"));
    script
        .replace("http://127.0.0.1:8080", &format!("http://{host}"))
        .replace("conf/routing.yaml", routing)
}

#[tokio::test]
async fn the_tour_works_as_written() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let gateway =
        Setup::new(&std::fs::read_to_string(root.join("conf/routing.yaml")).unwrap()).start().await;
    let routing = gateway.dir().join("routing.yaml");
    let script = tour(
        &std::fs::read_to_string(root.join("README.md")).unwrap(),
        &gateway.host(),
        routing.to_str().unwrap(),
    );
    let scratch = tempfile::tempdir().unwrap();
    let mut shell = Command::new("timeout");
    shell
        .args(["300", "bash", "-euo", "pipefail", "-c", &script])
        .env("ADMIN_API_KEY", &gateway.admin_key);
    shell.current_dir(scratch.path()).stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || shell.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    for expected in [
        "\"content\":\"Is anybody there?\"",
        "x-rerouter-recipe: balanced",
        "\"object\":\"replay\"",
        "\"new_id\":\"req_",
        "\"content\":[{\"type\":\"text\",\"text\":\"And in other words?\"}]",
        "HTTP/1.1 204 No Content",
        "HTTP/1.1 401 Unauthorized",
    ] {
        assert!(said.contains(expected), "no {expected} in:\n{said}");
    }
    // The change shows to each reader: neither decision depends on a draw.
    let rerouted = said.lines().find(|line| line.contains("\"new_id\"")).unwrap();
    let rerouted: serde_json::Value = serde_json::from_str(rerouted).unwrap();
    let (now, then) = (&rerouted["decision"], &rerouted["original"]["decision"]);
    assert_eq!((&then["model"], &now["model"]), (&json!("large"), &json!("small")), "{rerouted}");
    assert_eq!((&now["rule"], &now["propensity"]), (&json!("code"), &json!(1.0)), "{rerouted}");
    let captured = said
        .lines()
        .find(|line| line.contains("Please refactor") && line.contains("propensity"))
        .unwrap();
    let captured: serde_json::Value = serde_json::from_str(captured).unwrap();
    assert_eq!(
        (&captured["decision"]["rule"], &captured["decision"]["propensity"]),
        (&json!("code"), &json!(1.0)),
        "{captured}"
    );
    assert_ne!(
        rerouted["decision"]["revision"], rerouted["original"]["decision"]["revision"],
        "{rerouted}"
    );
}

/// Ends with the value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn two_commands_make_a_node_of_a_server() {
    let readme =
        std::fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("README.md"))
            .unwrap();
    let server = Provider::start(|request, _| match request.target.as_str() {
        "/v1/models" => scripted::json_answer(
            200,
            &json!({"object": "list", "data": [{"id": "qwen3:8b", "object": "model"}]}),
        ),
        "/v1/chat/completions" => scripted::completion("from the desk"),
        _ => scripted::failure(404, "no such page"),
    })
    .await;
    let [routing] = blocks(&readme, "Nodes", "yaml")[..] else { panic!("one document") };
    let gateway = Setup::new(&format!("providers: {{}}\n{routing}")).start().await;
    let key = gateway.create_key().await;
    let [commands] = blocks(&readme, "Nodes", "sh")[..] else { panic!("one block of commands") };
    assert!(
        commands.contains("http://127.0.0.1:8080/")
            && commands.contains("http://127.0.0.1:11434\n")
    );
    let script = commands
        .replace("127.0.0.1:8080", &gateway.host())
        .replace("127.0.0.1:11434", &server.address().to_string());
    // In the shell's place, so that it ends with it.
    let script = script.replace("\nrerouter node", "\nexec rerouter node");
    let scratch = tempfile::tempdir().unwrap();
    let programs =
        Path::new(env!("CARGO_BIN_EXE_rerouter")).parent().unwrap().display().to_string();
    let mut shell = Command::new("bash");
    shell
        .args(["-euo", "pipefail", "-c", &script])
        .env("ADMIN_API_KEY", &gateway.admin_key)
        .current_dir(scratch.path());
    shell
        .env("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap()))
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let _running = Running(shell.spawn().unwrap());
    until("the node to serve", async || {
        let answer = gateway.chat(&key, chat_body("own", false).as_bytes()).await;
        (answer.status == 200 && answer.text().contains("from the desk")).then_some(())
    })
    .await;
}

#[test]
fn the_section_on_nodes_names_every_option_of_the_command_and_no_other() {
    let readme =
        std::fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("README.md"))
            .unwrap();
    let section =
        readme.split("\n## Nodes\n").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let help =
        Command::new(env!("CARGO_BIN_EXE_rerouter")).args(["node", "--help"]).output().unwrap();
    let options = |text: &str| -> std::collections::BTreeSet<String> {
        let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '-'));
        words
            .filter(|word| word.starts_with("--") && word.len() > 3 && *word != "--help")
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(options(section), options(&String::from_utf8(help.stdout).unwrap()));
}
