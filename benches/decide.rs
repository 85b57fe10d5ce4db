//! What a decision costs: `decide` where the first, and where the last, of fifty rules matches.

// Figures are for people, and a bench that cannot run says so.
#![expect(clippy::expect_used, clippy::indexing_slicing, clippy::print_stdout)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use rerouter::config;
use rerouter::routing::decide::decide;
use rerouter::routing::inputs::{Inputs, RequestFacts};
use rerouter::routing::recipe::Routing;

const RULES: usize = 50;
const WINDOWS: usize = 9;
const WINDOW: Duration = Duration::from_millis(200);

fn routing() -> Routing {
    let mut text =
        String::from("providers: { p: { protocol: openai, base_url: \"http://127.0.0.1:9\" } }\nrecipes:\n  many:\n    rules:\n");
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
                for _ in 0..100 {
                    call();
                }
                calls += 100;
            }
            start.elapsed() / calls
        })
        .collect();
    means.sort();
    means[WINDOWS / 2]
}

fn main() {
    let routing = routing();
    for (what, tokens, rule) in [("first", 2_000_000, "r0"), ("last", 10, "last")] {
        let inputs = inputs(tokens);
        assert_eq!(decide(&routing, &inputs).expect("a decision").rule.as_deref(), Some(rule));
        let took = median(|| {
            let _ = black_box(decide(black_box(&routing), black_box(&inputs)));
        });
        println!("decide, the {what} of {RULES} rules matches: {:.2} µs", took.as_nanos() as f64 / 1000.0);
    }
}
