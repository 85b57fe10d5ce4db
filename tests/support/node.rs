//! A node's side of the callbacks: it signs, and can be told to sign wrongly.

use http::Method;
use rerouter::internals::auth::signature::{Covered, Signer};
use rerouter::internals::id::Random;
use serde_json::{Value, json};

use super::client::{Answer, pairs};
use super::gateway::Gateway;
use super::until;

/// A node as it was enrolled.
#[derive(Clone)]
pub struct Node {
    pub id: String,
    pub secret: String,
    pub generation: u32,
}

/// Seconds since the epoch.
pub fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// Waits for the next second: a start refuses what nodes signed in its own.
pub async fn next_second() {
    let then = now();
    until("the next second", async || (now() > then).then_some(())).await;
}

impl Node {
    /// Enrols one, with these fields beside its name.
    pub async fn enrol(gateway: &Gateway, name: &str, fields: Value) -> Node {
        let mut body = json!({ "name": name });
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let answer = gateway.manage("POST", "/v1/nodes", &gateway.admin_key, Some(&body)).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        Node::of(&answer.json())
    }

    /// Of a record with its secret.
    pub fn of(record: &Value) -> Node {
        let text = |name: &str| record[name].as_str().unwrap().to_owned();
        Node {
            id: text("id"),
            secret: text("secret"),
            generation: u32::try_from(record["generation"].as_u64().unwrap()).unwrap(),
        }
    }

    /// The headers of a signed POST, made at `created`.
    pub fn sign(
        &self,
        gateway: &Gateway,
        path: &str,
        body: &[u8],
        created: i64,
    ) -> Vec<(&'static str, String)> {
        self.sign_for(&gateway.host(), path, body, created)
    }

    /// The same for a gateway of this name.
    pub fn sign_for(
        &self,
        authority: &str,
        path: &str,
        body: &[u8],
        created: i64,
    ) -> Vec<(&'static str, String)> {
        let signer =
            Signer { key: self.secret.as_bytes(), node: &self.id, generation: self.generation };
        let method = Method::POST;
        let covered = Covered { method: &method, authority, path, query: None };
        let mut headers = signer.sign(&covered, body, created, &Random::System).to_vec();
        headers.push(("content-type", "application/json".to_owned()));
        headers
    }

    /// One signed callback.
    pub async fn call(&self, gateway: &Gateway, name: &str, body: &Value) -> Answer {
        let (path, body) = (format!("/v1/agent/{name}"), body.to_string());
        let headers = self.sign(gateway, &path, body.as_bytes(), now());
        send(gateway, &path, &headers, body.as_bytes()).await
    }

    /// Registers with this endpoint and these models, and reports itself idle.
    pub async fn serve(&self, gateway: &Gateway, endpoint: &str, models: &[&str], extra: Value) {
        let models: Vec<Value> = models.iter().map(|model| json!({ "id": model })).collect();
        let mut body = json!({ "version": "1", "endpoint": endpoint, "models": models });
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let answer = self.call(gateway, "register", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        self.beat(gateway, 1, "ready", 0).await;
    }

    /// A report that is taken.
    pub async fn beat(&self, gateway: &Gateway, seq: u64, status: &str, running: u32) {
        let answer = self.call(gateway, "heartbeat", &report(seq, status, running)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// What an admin sees of it.
    pub async fn shown(&self, gateway: &Gateway) -> Value {
        gateway
            .manage("GET", &format!("/v1/nodes/{}", self.id), &gateway.admin_key, None)
            .await
            .json()
    }
}

/// The body of a report.
pub fn report(seq: u64, status: &str, running: u32) -> Value {
    json!({ "seq": seq, "status": status, "running": running, "queued": 0 })
}

/// A POST with these headers as they are.
pub async fn send(
    gateway: &Gateway,
    path: &str,
    headers: &[(&'static str, String)],
    body: &[u8],
) -> Answer {
    let headers = pairs(headers);
    gateway.send("POST", path, &headers, Some(body)).await
}
