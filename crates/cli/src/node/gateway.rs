//! Signed callbacks to the gateway (RFC 9421), by the gateway's clock.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use ureq::{Agent, http};

use super::super::client::cause;
use super::http::{NODE_RESPONSE_BYTES, agent, url};
use rerouter_access::auth::signature::{Covered, Signer};
use rerouter_base::clock::Clock;
use rerouter_base::id::{NodeId, Random, RequestId};
use rerouter_base::secret::Secret;
use rerouter_routing::BaseUrl;

/// Longest wait of a node for the answer to a callback. With `NODE_QUERY_TIMEOUT` it leaves time
/// for two reports within a lease.
pub const NODE_CALLBACK_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct GatewayClient {
    agent: Agent,
    base: BaseUrl,
    id: NodeId,
    generation: u32,
    secret: Secret,
    clock: Clock,
    random: Random,
    /// Seconds that the gateway's clock is ahead of ours.
    clock_offset: i64,
    /// Number of our registration. The gateway refuses callbacks with any other.
    pub(super) epoch: Option<u64>,
}

pub(super) enum Reply {
    Accepted,
    Unregistered,
    Unavailable(String),
    /// Retrying is useless: the enrolment or the callback is wrong. With the status.
    Refused(u16, String),
}

impl GatewayClient {
    pub(super) fn new(
        base: BaseUrl,
        ca: Option<&Path>,
        id: NodeId,
        generation: u32,
        secret: Secret,
    ) -> Result<GatewayClient, String> {
        Ok(GatewayClient {
            agent: agent(ca)?,
            base,
            id,
            generation,
            secret,
            clock: Clock::System,
            random: Random::System,
            clock_offset: 0,
            epoch: None,
        })
    }

    /// Sends a callback. A 401 may be due to our clock, or to a gateway that started in this second
    /// and does not know what was signed in it. Retries once, a second later, by the gateway's
    /// clock.
    pub(super) fn call(&mut self, name: &str, body: &impl Serialize) -> Reply {
        let body = match serde_json::to_string(body) {
            Ok(body) => body,
            Err(error) => return Reply::Unavailable(error.to_string()),
        };
        match self.send(name, &body) {
            Ok((401, _, Some(at))) => {
                self.clock_offset = at.as_second() - self.clock.now().as_second();
                #[allow(clippy::disallowed_methods)] // the process has nothing else to do
                std::thread::sleep(Duration::from_secs(1));
                self.send(name, &body).map_or_else(Reply::Unavailable, |(status, text, _)| {
                    self.read(name, status, &text)
                })
            }
            Ok((status, text, _)) => self.read(name, status, &text),
            Err(why) => Reply::Unavailable(why),
        }
    }

    fn read(&mut self, name: &str, status: u16, text: &str) -> Reply {
        let body: Value = serde_json::from_str(text).unwrap_or_default();
        if name == "register" && status == 200 {
            self.epoch = body.pointer("/node/registered/epoch").and_then(Value::as_u64);
        }
        let detail = body.get("detail").and_then(Value::as_str).unwrap_or_default();
        let refused = || format!("the gateway refused ({status}): {detail}");
        match status {
            200..=299 => Reply::Accepted,
            409 => Reply::Unregistered,
            // 401 includes a rotated secret, which this process cannot learn.
            400 | 401 | 403 | 404 | 413 | 415 | 421 => Reply::Refused(status, refused()),
            _ => Reply::Unavailable(refused()),
        }
    }

    /// Returns status and body of the answer, and when the gateway began it.
    fn send(&self, name: &str, body: &str) -> Result<(u16, String, Option<Timestamp>), String> {
        let path = format!("{}/v1/agent/{name}", self.base.path);
        let authority = self.base.authority();
        let covered = Covered {
            method: &http::Method::POST,
            authority: &authority,
            path: &path,
            query: None,
        };
        let signer = Signer {
            key: self.secret.expose().as_bytes(),
            node: self.id.as_str(),
            generation: self.generation,
        };
        let created = self.clock.now().as_second() + self.clock_offset;
        let request =
            self.agent.post(url(&self.base, &path)).header("content-type", "application/json");
        let mut request = request.config().timeout_global(Some(NODE_CALLBACK_TIMEOUT)).build();
        for (name, value) in signer.sign(&covered, body.as_bytes(), created, &self.random) {
            request = request.header(name, value);
        }
        let answer = request.send(body).map_err(|error| cause(&error))?;
        // The clock by which signatures are checked: the time in the request id. `Date` is by the
        // clock of the gateway's machine.
        let id = answer.headers().get("x-request-id").and_then(|id| id.to_str().ok());
        let at = id.and_then(RequestId::parse).and_then(|id| id.at());
        let status = answer.status().as_u16();
        let mut text = String::new();
        let mut reader = answer.into_body().into_with_config().limit(NODE_RESPONSE_BYTES).reader();
        reader.read_to_string(&mut text).map_err(|error| error.to_string())?;
        Ok((status, text, at))
    }
}
