//! Redacting a packed capture has the same result as redacting the unpacked one.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::capture::fixtures::capture;
use crate::capture::packed_head::PackedHead;
use crate::capture::record::Capture;
use crate::redaction::Expression;
use rerouter_base::id::{KeyId, Random, RequestId, UserId};
use rerouter_base::secret::KeyRedactor;
use rerouter_base::secret::Secret;

const OURS: &str = "rtr_AbCdEfGhIjKlMnOpQrStUvWxYz01232piBxe";
const ENVIRONMENT: &str = "admin-key-0123456789abcdef";
/// Texts with and without secrets.
const TEXTS: [&str; 9] = [
    "auto",
    "a/b;q=0.9",
    "",
    "Bearer sk-live-0123456789",
    OURS,
    ENVIRONMENT,
    "https://a.b/?api_key=sk-live-0123456789",
    "canary-0123",
    "api_key=sk-live-0123456789&a=b",
];
const NAMES: [&str; 7] = [
    "accept",
    "authorization",
    "x-api-key",
    "X-Session-Token",
    "www-authenticate",
    "user-agent",
    "idempotency-key",
];
const BODIES: [&str; 7] = [
    "",
    r#"{"said":"rtr_AbCdEfGhIjKlMnOpQrStUvWxYz01232piBxe"}"#,
    r#"{"messages":[{"role":"user","content":"hi"}]}"#,
    r#"{"tools":[{"server_url":"https://a.b","authorization":"sk-live-0123456789"}]}"#,
    r#"{"tools":[{"type":"function"}],"said":"canary-0123"}"#,
    "not JSON \"tools\"",
    "data: {\"tools\":[{\"headers\":{\"a\":\"sk-live-0123456789\"}}]}\n\n",
];

fn one(words: &[usize], flags: [bool; 4]) -> Capture {
    let mut words = words.iter().copied().cycle();
    let mut draw = |of: &[&'static str]| of[words.next().unwrap_or(0) % of.len()];
    let mut one = capture(2, &UserId::known("usr_1"), &Random::seeded(8));
    let head = &mut one.head;
    let mut headers = |count: usize| -> Vec<(String, String)> {
        (0..count).map(|_| (draw(&NAMES).to_owned(), draw(&TEXTS).to_owned())).collect()
    };
    (head.request_headers, head.response_headers) = (headers(3), headers(3));
    let inputs = head.inputs.as_mut().unwrap();
    inputs.request.headers = headers(1).into_iter().collect();
    if flags[0] {
        head.client_request_id = Some(draw(&TEXTS).to_owned());
        head.query = Some(draw(&TEXTS).to_owned());
    }
    if flags[1] {
        inputs.request.name = draw(&TEXTS).into();
        Arc::make_mut(head.decision.as_mut().unwrap()).recipe = draw(&TEXTS).into();
    }
    (head.request_captured, head.response_stream) = (flags[2], flags[3]);
    one.bodies = Bodies { request: draw(&BODIES).into(), response: draw(&BODIES).into() };
    one
}

proptest! {
    #[test]
    fn what_is_written_is_what_redaction_leaves(
        words in prop::collection::vec(0_usize..1_000, 1..24), flags: [bool; 4], expressions: bool,
    ) {
        let environment = Secret::new(ENVIRONMENT);
        let expressions = expressions.then(|| Expression::new("canary-[0-9]{4}").unwrap());
        let redactor = Redactor::new(expressions.into_iter().collect())
            .veiling(KeyRedactor::new([&environment]));
        let (one, mut filter) = (one(&words, flags), HeaderFilter::default());
        let expected = redactor.redact(&one).unwrap();
        // The second time, the filter remembers which headers it kept.
        for _ in 0..2 {
            let packed = PackedCapture::new(one.clone().into()).unwrap();
            let ready = ready(&packed, &redactor, &mut filter).unwrap();
            let head = PackedHead::split(&ready.head).unwrap().read().unwrap();
            prop_assert_eq!((&head, &*ready.bodies), (&expected.head, &expected.bodies));
            let recipe = head.decision.as_ref().map(|decision| &*decision.recipe);
            prop_assert_eq!(ready.row.recipe.as_deref(), recipe);
            let kept = serde_json::to_string(&head).unwrap();
            prop_assert!(!kept.contains(OURS) && !kept.contains(ENVIRONMENT), "{}", kept);
        }
    }
}

#[test]
fn the_row_says_what_the_head_says() {
    let mut one = capture(2, &UserId::known("usr_1"), &Random::seeded(8));
    let ready_row = |one: &Capture| {
        let packed = PackedCapture::new(one.clone().into()).unwrap();
        ready(&packed, &Redactor::default(), &mut HeaderFilter::default()).unwrap().row
    };
    one.head.key = Some(KeyId::known("key_1"));
    one.head.replay_of = Some(RequestId::known("req_1"));
    let expected = CaptureRow {
        id: one.head.id.clone(),
        created_at_us: one.head.created_at.as_microsecond(),
        owner: one.head.owner.clone(),
        key: one.head.key.clone(),
        alias: Some("auto".into()),
        recipe: Some("balanced".into()),
        provider: Some("demo".into()),
        model: Some("echo".into()),
        decided_provider: Some("openai".into()),
        decided_model: Some("gpt-5".into()),
        status: 200,
        state: "completed".into(),
        replay_of: one.head.replay_of.clone(),
        shadow_of: None,
    };
    assert_eq!(ready_row(&one), expected);
    (one.head.decision, one.head.served) = (None, None);
    let refused = ready_row(&one);
    assert_eq!(
        (refused.alias.as_deref(), refused.recipe, refused.provider),
        (Some("auto"), None, None)
    );
}
