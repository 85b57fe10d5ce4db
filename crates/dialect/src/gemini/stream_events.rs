//! Events of a Gemini stream, and the answer that they make. Each event has the shape of an answer,
//! with the next parts of each candidate. A candidate ends with its `finishReason`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::super::stream::event::{EventFacts, EventKind, inside, is_empty, read_error, unread};
use super::super::stream::merge::each_object;
use super::super::usage_object::PartialUsage;
use crate::wire::sse::SseFields;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct GeneratedChunk<'a> {
    error: Option<&'a RawValue>,
    candidates: Option<Vec<CandidateChunk<'a>>>,
    prompt_feedback: Option<PromptFeedback<'a>>,
    usage_metadata: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct PromptFeedback<'a> {
    block_reason: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct CandidateChunk<'a> {
    index: Option<u32>,
    finish_reason: Option<&'a RawValue>,
    content: Option<CandidateContent<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct CandidateContent<'a> {
    parts: Option<Vec<PartChunk<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct PartChunk<'a> {
    text: Option<&'a RawValue>,
    function_call: Option<&'a RawValue>,
    executable_code: Option<&'a RawValue>,
    code_execution_result: Option<&'a RawValue>,
    inline_data: Option<&'a RawValue>,
    file_data: Option<&'a RawValue>,
}

/// Classifies an event by its data.
pub(crate) fn look(fields: &SseFields<'_>, data: &[u8]) -> EventFacts {
    let Ok(chunk) = serde_json::from_slice::<GeneratedChunk<'_>>(data) else {
        return unread(fields, data);
    };
    let told = chunk.usage_metadata.and_then(|usage| PartialUsage::read(usage.get()));
    let candidates = chunk.candidates.unwrap_or_default();
    let has_ended = |candidate: &&CandidateChunk<'_>| candidate.finish_reason.is_some();
    let bits = |bits: u128, candidate: &CandidateChunk<'_>| bits | candidate.bit();
    let begun = candidates.iter().fold(0, bits);
    let ended = candidates.iter().filter(has_ended).fold(0, bits);
    // A blocked prompt has no candidates, so this event is the whole answer.
    let is_blocked = chunk.prompt_feedback.is_some_and(|prompt| prompt.block_reason.is_some());
    let finished = is_blocked || ended != 0;
    let parts = || {
        let contents = candidates.iter().filter_map(|candidate| candidate.content.as_ref());
        contents.filter_map(|content| content.parts.as_ref()).flatten()
    };
    let kind = if let Some(error) = chunk.error {
        EventKind::Error(read_error(error.get()))
    } else if finished || parts().any(PartChunk::says_something) {
        EventKind::Content
    } else {
        EventKind::Preamble
    };
    // Every event has the usage of the answer so far, so only the last one is final.
    let all_told = finished || matches!(kind, EventKind::Error(_));
    let bytes = parts().map(PartChunk::bytes).sum();
    EventFacts {
        told: told.map(Box::new),
        all_told,
        bytes,
        finished,
        choices: begun,
        ended,
        ..kind.into()
    }
}

impl CandidateChunk<'_> {
    /// The candidate's bit in a set of indexes. Gemini returns at most eight candidates.
    fn bit(&self) -> u128 {
        1u128.checked_shl(self.index.unwrap_or(0)).unwrap_or(0)
    }
}

impl PartChunk<'_> {
    fn says_something(&self) -> bool {
        let objects = [
            self.function_call,
            self.executable_code,
            self.code_execution_result,
            self.inline_data,
            self.file_data,
        ];
        objects.into_iter().chain([self.text]).flatten().any(|part| !is_empty(part.get()))
    }

    /// Approximate bytes of text that the model wrote.
    fn bytes(&self) -> u64 {
        let called = [self.function_call, self.executable_code];
        let texts = called.into_iter().chain([self.text]).flatten();
        texts.map(|part| inside(part.get().len())).sum()
    }
}

/// Assembles the answer of a recorded stream. Parts keep their order, and consecutive texts are
/// joined. Of other members the last wins.
pub(crate) fn assemble(stream: &[u8]) -> Value {
    let mut top = Map::new();
    let mut candidates: BTreeMap<u64, Map<String, Value>> = BTreeMap::new();
    each_object(stream, |mut chunk| {
        let Some(Value::Array(told)) = chunk.remove("candidates") else {
            return top.extend(chunk);
        };
        for candidate in told {
            let Value::Object(candidate) = candidate else { continue };
            let index = candidate.get("index").and_then(Value::as_u64).unwrap_or(0);
            add_candidate(candidates.entry(index).or_default(), candidate);
        }
        top.extend(chunk);
    });
    let mut whole = Map::new();
    if !candidates.is_empty() {
        let candidates: Vec<Value> = candidates.into_values().map(Value::from).collect();
        whole.insert("candidates".into(), candidates.into());
    }
    whole.extend(top);
    whole.into()
}

fn add_candidate(before: &mut Map<String, Value>, mut more: Map<String, Value>) {
    if let Some(Value::Object(mut content)) = more.remove("content") {
        let parts = content.remove("parts");
        let made = before.entry("content").or_insert_with(|| Map::new().into());
        if let Value::Object(made) = made {
            made.extend(content);
            let list = made.entry("parts").or_insert_with(|| Value::Array(Vec::new()));
            if let (Value::Array(list), Some(Value::Array(parts))) = (list, parts) {
                parts.into_iter().for_each(|part| add_part(list, part));
            }
        }
    }
    before.extend(more);
}

/// Appends a part. A text is joined to the text before it, if both are thinking or neither is.
fn add_part(list: &mut Vec<Value>, part: Value) {
    let is_thought = |part: &Value| part.get("thought") == Some(&Value::Bool(true));
    let continued = list.last_mut().filter(|last| is_thought(last) == is_thought(&part));
    let text = part.get("text").and_then(Value::as_str);
    if let Some(text) = text
        && let Some(Value::Object(last)) = continued
        && let Some(Value::String(before)) = last.get_mut("text")
    {
        before.push_str(text);
        // Other members, such as the signature of the thinking before, are merged too.
        if let Value::Object(part) = part {
            last.extend(part.into_iter().filter(|(name, _)| name != "text"));
        }
    } else {
        list.push(part);
    }
}
