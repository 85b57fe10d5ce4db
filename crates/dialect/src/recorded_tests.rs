//! Every recorded answer of a real provider (`tests/data`): its usage, its end and its assembled
//! form. Expected values are computed here from the parsed JSON.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::endpoint::Endpoint;
use super::recorded::{Exchange, exchanges, streams};
use super::recorded_answer::assemble;
use super::stream::{self, StreamTally, StreamVerdict};
use super::usage::Usage;
use rerouter_base::usage_kind::UsageCounts;

fn tally(exchange: &Exchange, size: usize) -> StreamTally {
    let mut tally = StreamTally::new(exchange.endpoint());
    exchange.response.as_bytes().chunks(size).for_each(|chunk| tally.feed(chunk));
    tally.finish();
    tally
}

fn first(usage: &Value, pointers: &[&str]) -> Option<u64> {
    pointers.iter().find_map(|pointer| usage.pointer(pointer)?.as_u64())
}

/// The usage in the answer, read as the provider documents it.
fn said(exchange: &Exchange) -> Option<Usage> {
    let written = if exchange.is_stream() {
        let mut all = json!({});
        let places = ["/message/usage", "/response/usage", "/usage", "/x_groq/usage"];
        for (event, place) in
            exchange.events().iter().flat_map(|event| places.map(|place| (event.clone(), place)))
        {
            let Some(Value::Object(usage)) = event.pointer(place) else { continue };
            all.as_object_mut().unwrap().extend(usage.clone());
        }
        all
    } else {
        serde_json::from_str::<Value>(&exchange.response).unwrap().get("usage")?.clone()
    };
    let completion_tokens = first(&written, &["/completion_tokens", "/output_tokens"]).unwrap_or(0);
    let (prompt_tokens, cached_tokens) = if exchange.kind == "messages" {
        let parts = ["/input_tokens", "/cache_read_input_tokens", "/cache_creation_input_tokens"]
            .map(|part| first(&written, &[part]));
        (parts.iter().flatten().sum(), parts[1])
    } else {
        let cached = [
            "/prompt_tokens_details/cached_tokens",
            "/input_tokens_details/cached_tokens",
            "/prompt_cache_hit_tokens",
        ];
        let cached = first(&written, &cached)
            .or_else(|| first(&written, &["/num_cached_tokens", "/cached_tokens"]));
        (first(&written, &["/prompt_tokens", "/input_tokens"])?, cached)
    };
    let total_tokens =
        first(&written, &["/total_tokens"]).unwrap_or(prompt_tokens + completion_tokens);
    let counts = UsageCounts { cached_tokens, ..UsageCounts::default() };
    Some(Usage { prompt_tokens, completion_tokens, total_tokens, counts, ..Usage::default() })
}

// The table is shown with `--nocapture`.
#[allow(clippy::print_stderr)]
#[test]
fn usage_is_what_every_answer_says() {
    let mut table: BTreeMap<(String, String, bool), [u64; 6]> = BTreeMap::new();
    for exchange in exchanges() {
        let read = if exchange.is_stream() {
            Some(tally(&exchange, 1000).usage_or_estimate(7)).filter(|usage| !usage.estimated)
        } else {
            exchange.endpoint().dialect().read_usage(exchange.response.as_bytes())
        };
        let expected = said(&exchange);
        let common = |usage: &Usage| {
            let counts = [usage.prompt_tokens, usage.completion_tokens, usage.total_tokens];
            (counts, usage.counts.cached_tokens)
        };
        let [found, wanted] = [&read, &expected].map(|usage| usage.as_ref().map(common));
        assert_eq!(found, wanted, "{} of {}", exchange.id, exchange.host);
        let unknown = read.iter().flat_map(|usage| usage.extra.unknown.keys());
        // The model that advised another one has prices of its own.
        let unknown: Vec<_> =
            unknown.filter(|path| *path != "iterations.advisor_message").collect();
        assert_eq!(unknown, [""; 0], "{} of {}", exchange.id, exchange.host);
        let row = table
            .entry((exchange.kind.clone(), exchange.host.clone(), exchange.is_stream()))
            .or_default();
        let used = read.clone().unwrap_or_default();
        let figures = [
            1,
            u64::from(read.is_some()),
            used.prompt_tokens,
            used.counts.cached_tokens.unwrap_or(0),
            used.completion_tokens,
        ];
        row.iter_mut()
            .zip(figures.into_iter().chain([used.total_tokens]))
            .for_each(|(sum, more)| *sum += more);
    }
    eprintln!("kind, host, stream: answers, with usage, prompt, cached, completion, total");
    table.iter().for_each(|(of, sums)| eprintln!("{of:?}: {sums:?}"));
    // Refusals and queued answers have no usage.
    let (answers, with_usage) =
        table.values().fold((0, 0), |(all, told), row| (all + row[0], told + row[1]));
    assert_eq!((answers, with_usage), (231, 226));
}

#[test]
fn every_stream_ends_once_and_only_with_its_last_event() {
    for exchange in streams() {
        let whole = tally(&exchange, 1000);
        assert_eq!(
            (whole.verdict(), whole.finished()),
            (StreamVerdict::Answer, true),
            "{}",
            exchange.id
        );
        assert_eq!(
            whole.error().is_some(),
            exchange.host == "openrouter.ai" && exchange.response.contains("\"error\""),
            "{}",
            exchange.id
        );
        if exchange.kind == "chat" {
            continue;
        }
        let text = exchange.response.trim_end();
        let cut = Exchange { response: text[..text.rfind("\n\n").unwrap() + 2].into(), ..exchange };
        let cut_short = tally(&cut, 1000);
        assert_eq!(
            (cut_short.verdict(), cut_short.finished()),
            (StreamVerdict::Answer, false),
            "{}",
            cut.id
        );
    }
}

#[test]
fn chunking_changes_nothing() {
    for exchange in streams() {
        let whole = tally(&exchange, usize::MAX >> 1);
        for size in [1, 2, 13, 997] {
            let cut = tally(&exchange, size);
            assert_eq!(
                (cut.usage(), cut.events(), cut.content_bytes()),
                (whole.usage(), whole.events(), whole.content_bytes())
            );
            assert_eq!(
                (cut.verdict(), cut.error(), cut.next_number()),
                (whole.verdict(), whole.error(), whole.next_number())
            );
        }
    }
}

#[test]
fn a_stream_that_breaks_off_is_accounted_by_what_was_seen() {
    for exchange in streams().into_iter().filter(|exchange| exchange.kind != "chat") {
        let half = exchange.response.len() / 2;
        let cut = Exchange {
            response: String::from_utf8_lossy(&exchange.response.as_bytes()[..half]).into_owned(),
            ..exchange
        };
        let usage = tally(&cut, 1000).usage_or_estimate(7);
        assert!(usage.estimated, "{}", cut.id);
        let start = cut.events().first().cloned().unwrap();
        let prompt = if cut.kind == "messages" {
            start.pointer("/message/usage/input_tokens").and_then(Value::as_u64).unwrap()
        } else {
            7
        };
        assert!(
            usage.prompt_tokens >= prompt
                && usage.total_tokens == usage.prompt_tokens + usage.completion_tokens,
            "{usage:?}"
        );
    }
}

#[test]
fn a_response_is_assembled_as_its_last_event_has_it_and_from_deltas_where_that_is_missing() {
    for exchange in streams().into_iter().filter(|exchange| exchange.kind == "responses") {
        let events = exchange.events();
        let last = &events.last().unwrap()["response"];
        assert_eq!(
            &assemble(Endpoint::Responses, exchange.response.as_bytes()),
            last,
            "{}",
            exchange.id
        );
        let without = |dropped: fn(&str) -> bool| {
            let kept = events.iter().filter(|event| !dropped(event["type"].as_str().unwrap()));
            let text: String = kept.map(|event| format!("data: {event}\n\n")).collect();
            assemble(Endpoint::Responses, text.as_bytes())
        };
        let cut = without(|kind| kind == "response.completed");
        // Ids are made anew, and items of the provider's tools are left out.
        let told = |response: &Value| -> Vec<Value> {
            let items = response["output"].as_array().unwrap().iter();
            items
                .filter(|item| item["type"] == "message" || item["type"] == "function_call")
                .map(|item| json!([item["name"], item["arguments"], item["content"][0]["text"]]))
                .collect()
        };
        assert_eq!(told(&cut), told(last), "{}", exchange.id);
        let from_deltas = without(|kind| kind == "response.completed" || kind.ends_with(".done"));
        assert_eq!(told(&from_deltas), told(last), "{}", exchange.id);
    }
}

#[test]
fn a_message_is_assembled_with_its_blocks_and_inputs() {
    for exchange in streams().into_iter().filter(|exchange| exchange.kind == "messages") {
        let (events, whole) =
            (exchange.events(), assemble(Endpoint::Messages, exchange.response.as_bytes()));
        let of = |kind: &str| {
            events
                .iter()
                .filter(move |event| event["type"] == kind)
                .cloned()
                .collect::<Vec<Value>>()
        };
        let start = of("message_start").remove(0);
        for name in ["id", "model", "role", "type"] {
            assert_eq!(whole[name], start["message"][name], "{}: {name}", exchange.id);
        }
        let delta = of("message_delta").remove(0);
        assert_eq!(whole["stop_reason"], delta["delta"]["stop_reason"]);
        assert_eq!(whole["usage"]["output_tokens"], delta["usage"]["output_tokens"]);
        // Blocks of the provider's tools are named instead.
        let known = ["text", "thinking", "redacted_thinking", "tool_use"];
        let is_known =
            |block: &&Value| known.contains(&block["content_block"]["type"].as_str().unwrap());
        let blocks = of("content_block_start");
        let (shown, others): (Vec<&Value>, Vec<&Value>) = blocks.iter().partition(is_known);
        let dropped = whole["x_rerouter_dropped"]
            .as_array()
            .is_some_and(|words| words.contains(&json!("server_tools")));
        assert_eq!(
            (whole["content"].as_array().unwrap().len(), dropped),
            (shown.len(), !others.is_empty()),
            "{}",
            exchange.id
        );
        for (made, block) in whole["content"].as_array().unwrap().iter().zip(shown) {
            assert_eq!(
                (&made["type"], &made["id"], &made["name"]),
                (
                    &block["content_block"]["type"],
                    &block["content_block"]["id"],
                    &block["content_block"]["name"]
                )
            );
            let written = |name: &str| -> String {
                let deltas = events.iter().filter(|event| {
                    event["type"] == "content_block_delta" && event["index"] == block["index"]
                });
                deltas.filter_map(|event| event["delta"][name].as_str()).collect()
            };
            for (kind, name) in
                [("text", "text"), ("thinking", "thinking"), ("thinking", "signature")]
            {
                if made["type"] == kind {
                    let before = block["content_block"][name].as_str().unwrap();
                    assert_eq!(made[name], format!("{before}{}", written(name)), "{}", exchange.id);
                }
            }
            let input = written("partial_json");
            if !input.is_empty() {
                assert_eq!(
                    made["input"],
                    serde_json::from_str::<Value>(&input).unwrap(),
                    "{}",
                    exchange.id
                );
            }
        }
    }
}

#[test]
fn no_whole_document_of_success_holds_an_error() {
    for exchange in exchanges().into_iter().filter(|exchange| !exchange.is_stream()) {
        let error = stream::error_in(exchange.response.as_bytes());
        assert_eq!(error.is_some(), exchange.status >= 400, "{}: {error:?}", exchange.id);
    }
}
