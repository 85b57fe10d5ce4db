//! Scenarios of the console: scripts of `tests/console/` that drive Chromium against a gateway.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::gateway::Gateway;
use crate::requests::sdk;

pub const EMAIL: &str = "admin@example.com";
pub const PASSWORD: &str = "correct horse";

/// Makes an account, and gives what [`drive`] takes: `url`, `email`, `password`.
pub async fn account(gateway: &Gateway, email: &str, role: &str) -> Value {
    let account = json!({"email": email, "password": PASSWORD, "role": role});
    let made = gateway.manage("POST", "/v1/users", &gateway.admin_key, Some(&account)).await;
    assert_eq!(made.status, 201, "{}", made.text());
    json!({"url": format!("http://{}", gateway.address()), "email": email, "password": PASSWORD})
}

/// Runs `tests/console/{script}.mjs` with this input, and gives its result. It fails with the
/// script. With `REROUTER_PICTURES` set the script writes its pictures into that folder.
pub async fn drive(script: &str, mut given: Value) -> Value {
    sdk::installed();
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    if let Some(folder) = std::env::var_os("REROUTER_PICTURES") {
        given["pictures"] = folder.to_str().unwrap().into();
    }
    let home = tempfile::Builder::new().prefix("rerouter-console-").tempdir().unwrap();
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=10", "300", "node"])
        .arg(root.join(format!("tests/console/{script}.mjs")))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", home.path())
        .env("TMPDIR", home.path())
        .env("CONSOLE", given.to_string())
        .stdin(Stdio::null());
    // The providers of a test answer on this thread meanwhile.
    let output =
        tokio::task::spawn_blocking(move || command.output()).await.unwrap().expect("node");
    let (told, failed) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}: {}\n{told}\n{failed}", output.status);
    let last = told.lines().next_back().unwrap_or("null");
    serde_json::from_str(last).unwrap_or_else(|_| panic!("{script} printed {told}"))
}
