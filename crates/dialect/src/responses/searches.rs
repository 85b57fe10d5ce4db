//! Web searches of a response. OpenAI bills each of them, but its usage does not tell them.

use std::sync::LazyLock;

use memchr::memmem;
use serde::Deserialize;

use crate::neutral::json_text::JsonText;
use crate::usage::Usage;
use crate::usage_answer::{USAGE, UsageRules};

pub(super) const RESPONSE_USAGE: UsageRules = UsageRules { read, ..USAGE };

fn read(answer: &[u8]) -> Option<Usage> {
    let mut usage = (USAGE.read)(answer)?;
    let found = searches(answer);
    if found > 0 {
        usage.counts.web_searches = Some(found);
    }
    Some(usage)
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Searched<'a> {
    output: Vec<SearchedItem<'a>>,
    /// The response, in an event of a stream.
    response: Option<SearchedResponse<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct SearchedResponse<'a> {
    output: Vec<SearchedItem<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct SearchedItem<'a> {
    #[serde(rename = "type")]
    kind: JsonText<'a>,
    action: Option<SearchAction<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct SearchAction<'a> {
    #[serde(rename = "type")]
    kind: JsonText<'a>,
}

/// The number of searches in a response, or in the last event of its stream. Opening a page and
/// finding text in it are not billed.
pub(super) fn searches(response: &[u8]) -> u64 {
    static SEARCH: LazyLock<memmem::Finder<'static>> =
        LazyLock::new(|| memmem::Finder::new(b"\"web_search_call\""));
    if SEARCH.find(response).is_none() {
        return 0;
    }
    let Ok(response) = serde_json::from_slice::<Searched<'_>>(response) else { return 0 };
    let is_search = |item: &&SearchedItem<'_>| {
        let acts = |action: &SearchAction<'_>| matches!(&*action.kind, "search" | "");
        &*item.kind == "web_search_call" && item.action.as_ref().is_none_or(acts)
    };
    let in_event = response.response.iter().flat_map(|response| &response.output);
    response.output.iter().chain(in_event).filter(is_search).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_search_counts_once() {
        let answer = r#"{"output":[
            {"type":"web_search_call","action":{"type":"search","query":"a"}},
            {"type":"web_search_call","action":{"type":"open_page"}},
            {"type":"web_search_call"},
            {"type":"message","content":[{"text":"\"web_search_call\""}]}
        ],"usage":{"input_tokens":3,"output_tokens":4}}"#;
        let found = |answer: &str| read(answer.as_bytes()).unwrap().counts.web_searches;
        assert_eq!(found(answer), Some(2));
        assert_eq!(found(&answer.replace("web_search_call", "message")), None);
        let event = format!(r#"{{"type":"response.completed","response":{answer}}}"#);
        assert_eq!(searches(event.as_bytes()), 2);
    }
}
