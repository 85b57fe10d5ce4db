//! `rerouter node` as operators run it: the real binary beside a server, told to leave by a signal.

use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::gateway::Gateway;
use super::node::Node;
use super::provider::Provider;
use super::until;

/// A running `rerouter node`; ends with the value.
pub struct Process(Child);

impl Process {
    /// Beside this server, with more options.
    pub fn start(gateway: &Gateway, node: &Node, upstream: &Provider, options: &[&str]) -> Process {
        Process::start_in(gateway, node, upstream, options, &[])
    }

    /// The same, with more of an environment.
    pub fn start_in(
        gateway: &Gateway,
        node: &Node,
        upstream: &Provider,
        options: &[&str],
        environment: &[(&str, &str)],
    ) -> Process {
        let (url, upstream) =
            (format!("http://{}", gateway.address()), format!("http://{}", upstream.address()));
        Process::of(
            node,
            &[&["--gateway", &url, "--upstream", &upstream], options].concat(),
            environment,
        )
    }

    /// With exactly these options.
    pub fn of(node: &Node, options: &[&str], environment: &[(&str, &str)]) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rerouter"));
        command
            .args(["node", "--id", &node.id])
            .args(options)
            .env_clear()
            .envs(environment.iter().copied());
        Process(
            command.env("REROUTER_NODE_SECRET", &node.secret).stdin(Stdio::null()).spawn().unwrap(),
        )
    }

    /// Tells it to leave.
    pub fn tell(&self) {
        assert!(
            Command::new("sh")
                .args(["-c", "kill -s TERM \"$0\"", &self.0.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
    }

    /// How it left.
    pub async fn left(&mut self) -> Option<i32> {
        until("the node to leave", || std::future::ready(self.0.try_wait().unwrap())).await.code()
    }

    /// Whether it runs.
    pub fn runs(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Tells it to leave; how it left.
    pub async fn end(&mut self) -> Option<i32> {
        self.tell();
        self.left().await
    }

    /// Ends it with SIGKILL.
    pub fn kill_9(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What an admin sees of a node that is ready, once it has told that this many run there.
pub async fn reported(gateway: &Gateway, node: &Node, running: u64) -> Option<Value> {
    let shown = node.shown(gateway).await;
    (shown["state"] == "ready" && shown["running"] == running).then_some(shown)
}
