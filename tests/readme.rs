//! README's tour, run as it stands there by a shell against a gateway of its own.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::support::gateway::Setup;

/// The tour's commands, its address and its document exchanged for the test's.
fn tour(readme: &str, host: &str, routing: &str) -> String {
    let section = readme.split("## A five-minute tour").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("a tour");
    let blocks: Vec<&str> = section.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap()).collect();
    assert!(blocks.len() >= 6, "only {} blocks of commands", blocks.len());
    let script = blocks.join("\n");
    assert!(script.contains("http://127.0.0.1:8080/") && script.contains("conf/routing.yaml"));
    script.replace("http://127.0.0.1:8080", &format!("http://{host}")).replace("conf/routing.yaml", routing)
}

#[tokio::test]
async fn the_tour_works_as_written() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let gateway = Setup::new(&std::fs::read_to_string(root.join("conf/routing.yaml")).unwrap()).start().await;
    let routing = gateway.dir().join("routing.yaml");
    let script = tour(&std::fs::read_to_string(root.join("README.md")).unwrap(), &gateway.host(), routing.to_str().unwrap());
    let scratch = tempfile::tempdir().unwrap();
    let mut shell = Command::new("timeout");
    shell.args(["60", "bash", "-euo", "pipefail", "-c", &script]).env("ADMIN_API_KEY", &gateway.admin_key);
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
    // Decided under the changed document, whichever model the old one drew.
    let rerouted = said.lines().find(|line| line.contains("\"new_id\"")).unwrap();
    let rerouted: serde_json::Value = serde_json::from_str(rerouted).unwrap();
    assert_eq!(rerouted["decision"]["model"], "large", "{rerouted}");
    assert_ne!(rerouted["decision"]["revision"], rerouted["original"]["decision"]["revision"], "{rerouted}");
}
