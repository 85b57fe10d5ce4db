//! What a decision costs: `decide` where the first, and where the last, of fifty rules matches,
//! with its allocations; and reading a request's body, of which the estimate of its tokens is the
//! dearest part.

// Figures are for people, and a bench that cannot run says so.
#![expect(clippy::expect_used, clippy::indexing_slicing, clippy::print_stdout)]

use std::alloc::System;
use std::hint::black_box;
use std::time::{Duration, Instant};

use rerouter::internals::config;
use rerouter::internals::protocol::endpoint::Endpoint;
use rerouter::internals::protocol::request::read_request;
use rerouter::internals::protocol::stream::StreamTally;
use rerouter::internals::protocol::tokens;
use rerouter::internals::routing::{Inputs, RequestFacts, Routing, decide, language};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

/// Counts, on top of the system's allocator.
#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const RULES: usize = 50;
const WINDOWS: usize = 9;
const WINDOW: Duration = Duration::from_millis(100);
/// The longest that a decision may take in the release profile: where the first rule matches, and
/// where the last does.
const TARGETS_US: [f64; 2] = [8.0, 50.0];

fn routing() -> Routing {
    let mut text = String::from(
        "providers: { p: { protocol: openai, base_url: \"http://127.0.0.1:9\" } }\n\
         keywords: { code: [refactor, stack trace, \"```\"], law: [contract, liability] }\nrecipes:\n  many:\n    rules:\n",
    );
    for rule in 0..RULES - 1 {
        text += &format!(
            "      - {{ name: r{rule}, when: \"prompt_tokens > {} && !stream && tools == 0\", targets: [ {{ target: p/m{rule} }} ] }}\n",
            1_000_000 - rule
        );
    }
    text += "      - { name: last, strategy: weighted, targets: [ { target: p/a, weight: 9 }, { target: p/b, weight: 1 } ] }\naliases: { auto: many }\n";
    let server = config::read_server("bench", "", &|_| None).expect("defaults");
    config::read_routing("bench", &text, &server, &|_| None, None).expect("a document")
}

fn inputs(prompt_tokens: u64) -> Inputs {
    Inputs {
        version: Inputs::VERSION,
        at: jiff::Timestamp::UNIX_EPOCH,
        request: RequestFacts {
            endpoint: "chat.completions".into(),
            model: "auto".into(),
            name: "auto".into(),
            prompt_tokens,
            ..RequestFacts::default()
        },
        keywords: Default::default(),
        principal: Default::default(),
        seed: 7,
        health: Default::default(),
    }
}

/// Median over windows of the mean time of one call.
fn median(mut call: impl FnMut()) -> Duration {
    let mut means: Vec<Duration> = (0..WINDOWS)
        .map(|_| {
            let (start, mut calls) = (Instant::now(), 0);
            while start.elapsed() < WINDOW {
                for _ in 0..10 {
                    call();
                }
                calls += 10;
            }
            start.elapsed() / calls
        })
        .collect();
    means.sort();
    means[WINDOWS / 2]
}

fn micros(took: Duration) -> f64 {
    took.as_nanos() as f64 / 1000.0
}

fn allocations(call: impl FnOnce()) -> usize {
    let region = Region::new(ALLOCATOR);
    call();
    let change = region.change();
    change.allocations + change.reallocations
}

fn decisions(routing: &Routing) {
    let mut counted = Vec::new();
    for ((what, tokens, rule), target) in
        [("first", 2_000_000, "r0"), ("last", 10, "last")].into_iter().zip(TARGETS_US)
    {
        let inputs = inputs(tokens);
        assert_eq!(decide(routing, &inputs).expect("a decision").rule.as_deref(), Some(rule));
        let call = || {
            let _ = black_box(decide(black_box(routing), black_box(&inputs)));
        };
        let count = allocations(call);
        println!(
            "decide, the {what} of {RULES} rules matches: {:.2} µs (at most {target} µs in release), {count} allocations",
            micros(median(call))
        );
        counted.push(count);
    }
    // Both plans are small; what is between them are the rules that did not match.
    let between = counted[1] as f64 - counted[0] as f64;
    println!("allocations of a rule that is evaluated: {:.2}", between / (RULES - 2) as f64);
}

/// A conversation of that size about this very file.
fn body(size: usize) -> String {
    let source = include_str!("decide.rs");
    let mut messages = Vec::new();
    let mut left = size;
    while left > 0 {
        let text = &source[..source.floor_char_boundary(left.min(source.len()))];
        left -= left.min(source.len());
        messages.push(serde_json::json!({ "role": "user", "content": text }));
    }
    serde_json::json!({ "model": "auto", "messages": messages }).to_string()
}

/// What an event of a stream costs to be counted.
fn stream() {
    const EVENTS: u32 = 100;
    let events: Vec<String> = (0..EVENTS)
        .map(|at| {
            let delta = serde_json::json!({
                "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_764_000_000,
                "model": "m", "system_fingerprint": "fp_1",
                "choices": [{
                    "index": 0, "delta": { "content": format!(" word {at}") },
                    "logprobs": null, "finish_reason": null,
                }],
                "usage": null,
            });
            format!("data: {delta}\n\n")
        })
        .collect();
    let counted = median(|| {
        let mut tally = StreamTally::of(Endpoint::ChatCompletions);
        events.iter().for_each(|event| tally.feed(event.as_bytes()));
        assert_eq!(black_box(tally).events(), u64::from(EVENTS));
    });
    println!("an event of a stream: {:.2} µs to count it", micros(counted / EVENTS));
}

fn main() {
    let routing = routing();
    decisions(&routing);
    let body = body(100 << 10);
    let read = median(|| {
        let _ = black_box(read_request(black_box(body.as_bytes()), Endpoint::ChatCompletions));
    });
    let tokens = median(|| {
        black_box(tokens::estimate(black_box(body.as_bytes())));
    });
    println!(
        "a body of {} KiB: {:.0} µs to read, of which {:.0} µs to estimate its tokens",
        body.len() >> 10,
        micros(read),
        micros(tokens)
    );
    stream();
    let text = &body[body.len() / 2..];
    let found = median(|| {
        black_box(
            routing.keywords().find(&Default::default(), || Some(black_box(text).to_owned())),
        );
    });
    println!("keywords in {} KiB: {:.0} µs", text.len() >> 10, micros(found));
    let detected = median(|| {
        black_box(language::detect(black_box(text)));
    });
    println!("the language of a text: {:.0} µs", micros(detected));
}
