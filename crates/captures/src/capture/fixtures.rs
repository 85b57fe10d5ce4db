//! One capture, for the unit tests of all rooms.

use std::sync::Arc;

use bytes::Bytes;

use super::record::{Attempt, Bodies, Capture, CaptureState, Head, Served};
use rerouter_base::clock::fixtures::at;
use rerouter_base::id::{Random, RequestId, UserId};
use rerouter_dialect::usage::Usage;
use rerouter_routing::{Candidate, Decision, Inputs, PlanEntry, chat};

/// A capture of an ordinary answer, `second` seconds after the start of the tests' time.
pub fn capture(second: i64, owner: &UserId, random: &Random) -> Capture {
    let at = at(second);
    let mut head = Head::new(RequestId::new(at, random), at, owner.clone(), "chat.completions");
    head.inputs = Some(Inputs { at, ..chat("auto", u64::MAX) });
    head.decision = Some(Arc::new(Decision {
        provider: "openai".into(),
        model: "gpt-5".into(),
        recipe: "balanced".into(),
        rule: Some("default".into()),
        strategy: "priority".into(),
        alias: Some("auto".into()),
        revision: "9f2c41d07a1b".into(),
        seed: u64::MAX,
        propensity: 1.0,
        plan: vec![PlanEntry { provider: "openai".into(), model: "gpt-5".into() }],
        candidates: vec![Candidate {
            provider: "openai".into(),
            model: "gpt-5".into(),
            eligible: true,
            reason: None,
        }],
        trace: Vec::new(),
    }));
    head.attempts = vec![Attempt {
        provider: "openai".into(),
        model: "gpt-5".into(),
        node: None,
        status: Some(429),
        error: Some("rate_limited".into()),
        duration_ms: 41,
    }];
    head.served = Some(Served { provider: "demo".into(), model: "echo".into(), node: None });
    head.usage =
        Some(Usage { prompt_tokens: 3, completion_tokens: 4, total_tokens: 7, ..Usage::default() });
    (head.state, head.status, head.request_captured, head.routing_us, head.total_ms) =
        (CaptureState::Completed, 200, true, 7, 934);
    head.request_headers = vec![("accept".into(), "a".into()), ("accept".into(), "b".into())];
    let bodies = Bodies {
        request: Bytes::from_static(b"{\"model\": \"auto\"}"),
        response: Bytes::from_static(b"{\"id\":\"x\"}"),
    };
    Capture { head, bodies }
}
