//! What a change would have cost where providers cache prompts: between `after_warm` and
//! `after_cold`, whatever the change does to the caches.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::replay_cli::run;
use crate::support::documents::provider;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider};

/// Nano-dollars a token: input, cached input, output.
const PRICES: [(&str, [u64; 3]); 2] =
    [("one", [3_000, 300, 15_000]), ("two", [2_400, 240, 12_000])];
const CONVERSATIONS: usize = 8;
const TURNS: usize = 12;
/// Bytes of a message: a thousand tokens.
const MESSAGE: usize = 4_000;

/// Per model the prefixes that are cached, and the bill.
#[derive(Default)]
struct Cache {
    prefixes: HashMap<String, Vec<String>>,
    bill: u64,
}

impl Cache {
    /// The usage of a request. Messages that the model has seen in this order cost less.
    fn usage(&mut self, asked: &Value) -> Value {
        let model = asked["model"].as_str().unwrap();
        let prices = PRICES.iter().find(|(name, _)| *name == model).unwrap().1;
        let messages = asked["messages"].as_array().unwrap();
        let (mut text, mut cached, mut prompt) = (String::new(), 0, 0);
        let seen = self.prefixes.entry(model.to_owned()).or_default();
        for message in messages {
            let words = message["content"].as_str().unwrap();
            text.push_str(&words[..8]);
            prompt += words.len() as u64 / 4;
            if seen.contains(&text) {
                cached = prompt;
            } else {
                seen.push(text.clone());
            }
        }
        let output = 50;
        self.bill += (prompt - cached) * prices[0] + cached * prices[1] + output * prices[2];
        json!({
            "prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output,
            "prompt_tokens_details": {"cached_tokens": cached},
        })
    }
}

fn document(url: &str, rules: &str) -> String {
    let models: String = PRICES
        .iter()
        .map(|(name, [input, cached, output])| {
            let usd = |nano: &u64| *nano as f64 / 1e3;
            format!(
                "  a/{name}: {{ input_per_mtok: {}, cached_input_per_mtok: {}, output_per_mtok: {} \
                 }}\n",
                usd(input),
                usd(cached),
                usd(output)
            )
        })
        .collect();
    format!(
        "providers:\n{}models:\n{models}recipes:\n  main:\n    rules:\n{rules}\
         aliases: {{ auto: main }}\n",
        provider("a", url, "${ANY_API_KEY}")
    )
}

/// The same conversations, turn by turn. `world` tells their texts apart from another run's.
async fn talk(gateway: &Gateway, key: &Key, world: &str) -> String {
    let mut last = String::new();
    for turn in 1..=TURNS {
        for conversation in 0..CONVERSATIONS {
            let message = |n: usize| {
                let words = format!("{world} {conversation:02} {n:02}");
                let role = if n.is_multiple_of(2) { "user" } else { "assistant" };
                json!({"role": role, "content": format!("{words:.<MESSAGE$}")})
            };
            let messages: Vec<Value> = (0..2 * turn - 1).map(message).collect();
            let body = json!({"model": "auto", "max_tokens": 60, "messages": messages});
            let answer = gateway.chat(key, body.to_string().as_bytes()).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            last = answer.request_id();
        }
    }
    gateway.capture(&last).await;
    last
}

#[tokio::test]
async fn what_a_change_really_costs_lies_between_warm_and_cold() {
    let cache = Arc::new(Mutex::new(Cache::default()));
    let counting = Arc::clone(&cache);
    let provider = Provider::start(move |received, _| {
        let mut body = scripted::completion_body("well said");
        body["usage"] = counting.lock().unwrap().usage(&received.json());
        scripted::json_answer(200, &body)
    })
    .await;
    let url = provider.url();
    let live = document(&url, "      - { name: default, targets: [ { target: a/one } ] }\n");
    let gateway = Setup::new(&live).env("ANY_API_KEY", "k").start().await;
    let key = gateway.create_key().await;
    talk(&gateway, &key, "1").await;
    let before = std::mem::take(&mut *cache.lock().unwrap()).bill;
    let address = format!("http://{}", gateway.host());
    let environment =
        [("REROUTER_URL", address.as_str()), ("REROUTER_API_KEY", &gateway.admin_key)];
    let half = "      - { name: default, strategy: weighted, targets: [ \
                { target: a/one, weight: 1 }, { target: a/two, weight: 1 } ] }\n";
    let long = "      - { name: long, when: \"messages > 12\", \
                targets: [ { target: a/two } ] }\n      \
                - { name: default, targets: [ { target: a/one } ] }\n";
    for (world, rules) in [("2", half), ("3", long)] {
        let candidate = document(&url, rules);
        std::fs::write(gateway.dir().join("candidate.yaml"), &candidate).unwrap();
        let evaluate = async |more: &[&str]| {
            let asked = ["evaluate", "--document", "candidate.yaml", "--limit", "96"];
            run(gateway.dir(), &[&asked, more].concat(), &environment).await
        };
        // All of the world's requests went to the live document's only target.
        *cache.lock().unwrap() = Cache::default();
        if world != "2" {
            talk(&gateway, &key, &format!("{world}a")).await;
            *cache.lock().unwrap() = Cache::default();
        }
        let report: Value = serde_json::from_str(&evaluate(&["--json"]).await.well()).unwrap();
        assert_eq!(report["evaluated"], (TURNS * CONVERSATIONS) as u64, "{report}");
        let cost = |name: &str| (report["cost"][name].as_f64().unwrap() * 1e9).round() as u64;
        assert_eq!(cost("before"), before, "{report}");
        assert_eq!(cost("after"), cost("after_warm"));
        let gate = evaluate(&["--max-cost-increase", "5%"]).await;
        assert_eq!(gate.code, Some(1), "{}{}", gate.out, gate.error);
        assert!(gate.out.contains("if the caches of other targets are cold"), "{}", gate.out);
        evaluate(&["--max-cost-increase", "5%", "--assume-warm"]).await.well();
        gateway.write_routing(&candidate).await;
        talk(&gateway, &key, &format!("{world}b")).await;
        let really = cache.lock().unwrap().bill;
        let (warm, cold) = (cost("after_warm"), cost("after_cold"));
        assert!(warm < really && really < cold, "{world}: {warm} {really} {cold}");
        assert!(warm < before && before < really, "the saving is none: {warm} {before} {really}");
        gateway.write_routing(&live).await;
    }
}
