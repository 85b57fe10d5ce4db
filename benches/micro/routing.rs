//! Decisions among fifty rules, and what is read of a request for them.

use std::hint::black_box;

use rerouter::internals::config;
use rerouter::internals::dialect::endpoint::Endpoint;
use rerouter::internals::dialect::request::read_request;
use rerouter::internals::routing::{Inputs, RequestFacts, Routing, decide, language};
use rerouter::internals::wire::tokens;

use crate::Bench;

const RULES: usize = 50;

fn routing() -> Routing {
    let mut text = String::from(
        "providers: { p: { protocol: openai, base_url: \"http://127.0.0.1:9\" } }\n\
         keywords: { code: [refactor, stack trace, \"```\"], law: [contract, liability] }\n\
         recipes:\n  many:\n    rules:\n",
    );
    for rule in 0..RULES - 1 {
        text += &format!(
            "      - {{ name: r{rule}, when: \"prompt_tokens > {} && !stream && tools == 0\", \
             targets: [ {{ target: p/m{rule} }} ] }}\n",
            1_000_000 - rule
        );
    }
    text += "      - { name: last, strategy: weighted, targets: [ { target: p/a, weight: 9 }, \
        { target: p/b, weight: 1 } ] }\naliases: { auto: many }\n";
    let server = config::read_server("bench", "", &|_| None).expect("defaults");
    config::read_routing("bench", &text, &server, &|_| None, None).expect("a document")
}

pub fn inputs(prompt_tokens: u64) -> Inputs {
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
        texts: Default::default(),
        principal: Default::default(),
        seed: 7,
        health: Default::default(),
    }
}

/// A conversation of that size about this very file.
pub fn body(size: usize) -> String {
    let source = include_str!("routing.rs");
    let mut messages = Vec::new();
    let mut left = size;
    while left > 0 {
        let text = &source[..source.floor_char_boundary(left.min(source.len()))];
        left -= left.min(source.len());
        messages.push(serde_json::json!({ "role": "user", "content": text }));
    }
    serde_json::json!({ "model": "auto", "messages": messages }).to_string()
}

/// Decisions, and what is read of a request for them.
pub fn measure(bench: &Bench) {
    let routing = routing();
    for (what, tokens, rule) in [("first", 2_000_000, "r0"), ("last", 10, "last")] {
        let inputs = inputs(tokens);
        assert_eq!(decide(&routing, &inputs).expect("a decision").rule.as_deref(), Some(rule));
        bench.call(&format!("decide, the {what} of {RULES} rules matches"), || {
            drop(black_box(decide(black_box(&routing), black_box(&inputs))));
        });
    }
    for kib in [1, 8, 100] {
        let body = body(kib << 10);
        bench.call(&format!("read a request of {kib} KiB"), || {
            drop(black_box(read_request(black_box(body.as_bytes()), Endpoint::ChatCompletions)));
        });
        bench.call(&format!("  of which the estimate of its tokens, {kib} KiB"), || {
            black_box(tokens::estimate(black_box(body.as_bytes())));
        });
    }
    let body = body(50 << 10);
    bench.call("keywords in 50 KiB", || {
        let text = || Some(black_box(&body).to_owned());
        black_box(routing.keywords.find(&Default::default(), text));
    });
    bench.call("the language of 50 KiB", || {
        black_box(language::detect(black_box(&body)));
    });
}
