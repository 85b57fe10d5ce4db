//! Unpacking returns what was packed, and refuses anything else.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

use super::*;
use crate::capture::fixtures::capture;
use crate::capture::packed_capture::{PackedCapture, packed_head};
use crate::capture::raw_capture::RawCapture;
use crate::capture::record::Capture;
use rerouter_base::error::RefusalReason;
use rerouter_base::id::{KeyId, Random, UserId};
use rerouter_base::trace_context::TraceId;
use rerouter_routing::{AgentRef, BreakerState, NodeFacts, TargetHealth};

fn some() -> Capture {
    capture(3, &UserId::known("usr_1"), &Random::seeded(4))
}

#[test]
fn headers_join_the_head_but_for_sensitive_ones() {
    let Capture { head, bodies } = some();
    let mut request_headers = HeaderMap::new();
    let mut sensitive = HeaderValue::from_static("canary");
    sensitive.set_sensitive(true);
    request_headers.insert("x-secret", sensitive);
    request_headers.append("x-a", HeaderValue::from_static("1"));
    request_headers.append("x-a", HeaderValue::from_bytes(b"\xff").unwrap());
    let response_headers =
        HeaderMap::from_iter([(HeaderName::from_static("x-b"), HeaderValue::from_static(""))]);
    let raw = RawCapture { head: head.clone(), request_headers, response_headers, bodies };
    let unpacked = PackedCapture::new(raw).unwrap().unpack().unwrap();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut expected = head;
    expected.request_headers.extend([pair("x-a", "1"), pair("x-a", "\u{fffd}")]);
    expected.response_headers.push(pair("x-b", ""));
    assert_eq!(unpacked.head, expected);
}

#[test]
fn another_form_is_not_read() {
    let mut packed = packed_head(&some().head).unwrap();
    assert_eq!(PackedHead::split(&packed).unwrap().read().unwrap(), some().head);
    packed[0] = FORM + 1;
    assert!(PackedHead::split(&packed).is_none());
}

#[test]
fn heads_of_before_traces_and_refusals_are_read() {
    let mut head = some().head;
    let before = packed_head(&head).unwrap();
    for refused in RefusalReason::ALL {
        for trace in ["", "4bf92f3577b34da6a3ce929d0e0e4736"] {
            let head =
                Head { refused: Some(refused), trace_id: TraceId::parse(trace), ..head.clone() };
            let packed = packed_head(&head).unwrap();
            assert_eq!(PackedHead::split(&packed).unwrap().read().unwrap(), head);
        }
    }
    head.trace_id = TraceId::parse("4bf92f3577b34da6a3ce929d0e0e4736");
    let packed = packed_head(&head).unwrap();
    assert_eq!(packed.len(), before.len() + 16, "without a trace there are no more bytes");
    assert_eq!(PackedHead::split(&packed).unwrap().read().unwrap(), head);
    assert_eq!(PackedHead::split(&before).unwrap().read().unwrap().trace_id, None);
}

proptest! {
    #[test]
    fn what_is_packed_is_unpacked(
        texts: [String; 4], numbers: [u64; 4], flags: [bool; 6], cost: Option<f64>,
        request in prop::collection::vec(any::<u8>(), 0..20_000), cut in 0_usize..600,
    ) {
        let mut one = some();
        let [first, second, third, fourth] = texts;
        let head = &mut one.head;
        (head.query, head.agent) =
            (flags[0].then(|| first.clone()), flags[1].then(|| second.clone()));
        head.key = flags[2].then(|| KeyId::known(&third));
        (head.request_whole, head.response_assembled) = (flags[3], flags[4]);
        (head.total_ms, head.ttft_ms) = (numbers[0], flags[5].then_some(numbers[1]));
        head.cost_usd = cost.filter(|cost| cost.is_finite());
        head.attempts[0].node = flags[0].then(|| first.as_str().into());
        head.request_headers =
            vec![(first.clone(), second.clone()), (third.clone(), fourth.clone())];
        head.response_headers = if flags[1] { vec![(fourth, third.clone())] } else { Vec::new() };
        let inputs = head.inputs.as_mut().unwrap();
        inputs.seed = numbers[2];
        inputs.request.headers.insert(first.clone(), second.clone());
        inputs.request.agent =
            flags[2].then(|| AgentRef { id: third, name: first.clone(), etag: second.clone() });
        let hit = serde_json::json!({ first.clone(): { "hash": first.clone(), "hit": flags[3] } });
        inputs.keywords = serde_json::from_value(hit).unwrap();
        let node = NodeFacts { models: vec![first.as_str().into()], ..NodeFacts::default() };
        inputs.health.insert(
            second,
            TargetHealth {
                breaker: BreakerState::HalfOpen,
                ewma_us: Some(numbers[3]),
                nodes: flags[4].then_some(3),
                node: flags[5].then_some(node),
                ..TargetHealth::default()
            },
        );
        Arc::make_mut(head.decision.as_mut().unwrap()).rule = None;
        one.bodies.request = request.into();
        let packed = PackedCapture::new(one.clone().into()).unwrap();
        let unpacked = packed.unpack().unwrap();
        prop_assert_eq!(&unpacked, &one);
        let head = &one.head;
        // A damaged head is refused or becomes another head; nothing worse happens.
        let stored = packed_head(head).unwrap();
        let _other =
            PackedHead::split(stored.get(..cut).unwrap_or_default()).and_then(PackedHead::read);
    }
}
