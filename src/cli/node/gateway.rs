//! The gateway as a node speaks to it: signed callbacks, by the gateway's own clock, and what becomes of each.

use std::io::Read;
use std::path::Path;

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use serde_json::Value;
use ureq::{Agent, http};

use super::{agent, url};
use crate::auth::signature::{Covered, Signer};
use crate::bounds;
use crate::clock::Clock;
use crate::id::{NodeId, Random};
use crate::routing::BaseUrl;
use crate::secret::Secret;

/// The gateway, and who speaks to it.
pub(super) struct Gateway {
    agent: Agent,
    base: BaseUrl,
    id: NodeId,
    generation: u32,
    secret: Secret,
    clock: Clock,
    random: Random,
    /// Seconds that its clock is ahead of ours.
    ahead: i64,
    /// The registration that is ours, where the gateway told its number: what we tell is no other process's.
    epoch: Option<u64>,
}

/// What became of a callback.
pub(super) enum Said {
    /// It was taken.
    Taken,
    /// The gateway does not know the registration.
    Unregistered,
    /// Not now.
    Later(String),
    /// Never: the enrolment, or what was sent, is wrong, as this status says.
    Never(u16, String),
}

impl Gateway {
    /// The gateway at this URL, whose certificate `ca` may vouch for.
    pub(super) fn new(
        base: BaseUrl,
        ca: Option<&Path>,
        id: NodeId,
        generation: u32,
        secret: Secret,
    ) -> Result<Gateway, String> {
        Ok(Gateway {
            agent: agent(ca)?,
            base,
            id,
            generation,
            secret,
            clock: Clock::System,
            random: Random::System,
            ahead: 0,
            epoch: None,
        })
    }

    /// One callback. A 401 may be a matter of clocks: it is tried once more by the gateway's.
    pub(super) fn call(&mut self, name: &str, body: &Value) -> Said {
        match self.send(name, body) {
            Ok((401, _, Some(date))) => {
                self.ahead = date.as_second() - self.clock.now().as_second();
                self.send(name, body)
                    .map_or_else(Said::Later, |(status, text, _)| self.heard(name, status, &text))
            }
            Ok((status, text, _)) => self.heard(name, status, &text),
            Err(why) => Said::Later(why),
        }
    }

    fn heard(&mut self, name: &str, status: u16, text: &str) -> Said {
        if name == "register" && status == 200 {
            self.epoch = epoch(text);
        }
        judge(status, text)
    }

    /// The status of the answer, its text, and its date.
    fn send(&self, name: &str, body: &Value) -> Result<(u16, String, Option<Timestamp>), String> {
        let mut body = body.clone();
        if let (Some(epoch), Value::Object(fields), true) =
            (self.epoch, &mut body, name != "register")
        {
            fields.insert("epoch".to_owned(), epoch.into());
        }
        let (path, body, authority) = (
            format!("{}/v1/agent/{name}", self.base.path),
            body.to_string(),
            self.base.authority(),
        );
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
        let created = self.clock.now().as_second() + self.ahead;
        let request =
            self.agent.post(url(&self.base, &path)).header("content-type", "application/json");
        let mut request = request.config().timeout_global(Some(bounds::NODE_CALL)).build();
        for (name, value) in signer.sign(&covered, body.as_bytes(), created, &self.random) {
            request = request.header(name, value);
        }
        let answer = request.send(body).map_err(|error| error.to_string())?;
        let date = answer.headers().get(http::header::DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| rfc2822::parse(date).ok()).map(|date| date.timestamp());
        let status = answer.status().as_u16();
        let mut text = String::new();
        let mut reader = answer.into_body().into_with_config().limit(bounds::NODE_ANSWER).reader();
        reader.read_to_string(&mut text).map_err(|error| error.to_string())?;
        Ok((status, text, date))
    }
}

/// The number of the registration, in the answer to it; gateways of before tell none, and take none.
fn epoch(answer: &str) -> Option<u64> {
    let answer: Value = serde_json::from_str(answer).ok()?;
    answer.pointer("/node/registered/epoch")?.as_u64()
}

fn judge(status: u16, text: &str) -> Said {
    let body: Value = serde_json::from_str(text).unwrap_or_default();
    let detail = body.get("detail").and_then(Value::as_str).unwrap_or_default();
    let refused = || format!("the gateway refused ({status}): {detail}");
    match status {
        200..=299 => Said::Taken,
        409 => Said::Unregistered,
        // Also where its secret was rotated: another one cannot come by itself.
        400 | 401 | 403 | 404 | 413 | 415 | 421 => Said::Never(status, refused()),
        _ => Said::Later(refused()),
    }
}
