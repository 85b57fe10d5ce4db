//! Checks of the compose files without containers: each document in them is accepted by its
//! program, and all files that they name exist.

use std::path::{Path, PathBuf};
use std::process::Command;

use regex::Regex;

use crate::process::prometheus::program;

const FILES: [&str; 2] = ["one.yaml", "several-gateways.yaml"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/compose")
}

fn several_gateways() -> String {
    std::fs::read_to_string(folder().join("several-gateways.yaml")).unwrap()
}

/// The text of an entry in `configs`, as the container gets it.
fn content(compose: &str, name: &str) -> String {
    let (_, after) = compose.split_once(&format!("\n  {name}:\n    content: |\n")).unwrap();
    let lines = after.lines().map_while(|line| line.strip_prefix("      "));
    lines.map(|line| line.replace("$$", "$") + "\n").collect()
}

#[test]
fn the_gateways_of_the_compose_file_start_with_their_document() {
    let dir = tempfile::tempdir().unwrap();
    let document = content(&several_gateways(), "rerouter");
    assert!(document.contains("/var/lib/rerouter"), "{document}");
    // Addresses, the database and directories exist only in the containers.
    let here = document
        .replace("/var/lib/rerouter", dir.path().to_str().unwrap())
        .replace("0.0.0.0:8080", "127.0.0.1:0")
        .replace("0.0.0.0:9090", "127.0.0.1:0");
    std::fs::write(dir.path().join("s.yaml"), here).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_rerouter"))
        .args(["check", "--no-env", "--config", "s.yaml"])
        .current_dir(dir.path())
        .env_clear()
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// The gateways take a client's address only from the balancer, and the balancer takes none from
/// clients.
#[test]
fn clients_of_the_compose_file_do_not_choose_their_address() {
    let compose = several_gateways();
    let (_, network) = compose.split_once("subnet: ").unwrap();
    let (subnet, _) = network.split_once(' ').unwrap();
    let document = content(&compose, "rerouter");
    assert!(document.contains(&format!("trusted_proxies: [{subnet}]\n")), "{document}");
    let balancer = content(&compose, "balancer");
    assert!(balancer.contains("http-request set-header X-Forwarded-For %[src]\n"), "{balancer}");
    assert!(!balancer.contains("option forwardfor"), "{balancer}");
}

#[test]
fn prometheus_takes_its_document_and_the_rules() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("p.yml"), content(&several_gateways(), "prometheus")).unwrap();
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf/prometheus/rules.yml");
    std::fs::copy(rules, dir.path().join("rules.yml")).unwrap();
    let output = program("promtool")
        .args(["check", "config", "p.yml"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn all_that_the_compose_files_name_is_there() {
    let file = Regex::new(r"(?:file|dockerfile|context): ([^\s,}]+)").unwrap();
    let source = Regex::new(r"source: (\w+)").unwrap();
    for name in FILES {
        let compose = std::fs::read_to_string(folder().join(name)).unwrap();
        for found in file.captures_iter(&compose) {
            let from = if found[0].starts_with("dockerfile") { "../.." } else { "" };
            let path = folder().join(from).join(&found[1]);
            assert!(path.exists(), "{name} names {}", path.display());
        }
        let (services, configs) = compose.split_once("\nconfigs:\n").unwrap_or((&compose, ""));
        for found in source.captures_iter(services) {
            let named = &found[1];
            assert!(configs.contains(&format!("  {named}:")), "{name} has no config {named}");
        }
    }
}
