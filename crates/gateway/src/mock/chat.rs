//! Chat completions of the mock provider.

use serde_json::{Value, json};

use rerouter_dialect::usage::Usage;

pub(super) struct MockAnswer<'a> {
    pub(super) model: &'a str,
    /// A hash of the request: equal requests get the same id.
    pub(super) mark: String,
    pub(super) content: String,
    pub(super) usage: Usage,
    pub(super) include_usage: bool,
}

/// Number of events in a stream up to and including the first word of the model.
pub(super) const UNTIL_FIRST_WORD: usize = 2;

impl MockAnswer<'_> {
    pub(super) fn whole(&self) -> Value {
        let message = json!({ "role": "assistant", "content": self.content });
        json!({
            "id": format!("chatcmpl-mock-{}", self.mark), "object": "chat.completion",
            "created": 0, "model": self.model,
            "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }],
            "usage": self.usage(),
        })
    }

    pub(super) fn events(&self) -> Vec<String> {
        let event = |choices: Value, usage: Option<Value>| {
            let mut chunk = json!({
                "id": format!("chatcmpl-mock-{}", self.mark), "object": "chat.completion.chunk",
                "created": 0, "model": self.model, "choices": choices,
            });
            if let (Some(usage), Some(chunk)) = (usage, chunk.as_object_mut()) {
                chunk.insert("usage".into(), usage);
            }
            format!("data: {chunk}\n\n")
        };
        let delta = |delta: Value, finish: Option<&str>| {
            event(json!([{ "index": 0, "delta": delta, "finish_reason": finish }]), None)
        };
        let mut events = vec![delta(json!({ "role": "assistant", "content": "" }), None)];
        let words = self.content.split_inclusive(' ');
        events.extend(words.map(|word| delta(json!({ "content": word }), None)));
        events.push(delta(json!({}), Some("stop")));
        if self.include_usage {
            events.push(event(json!([]), Some(self.usage())));
        }
        events.push("data: [DONE]\n\n".to_owned());
        events
    }

    fn usage(&self) -> Value {
        json!({
            "prompt_tokens": self.usage.prompt_tokens,
            "completion_tokens": self.usage.completion_tokens,
            "total_tokens": self.usage.total_tokens,
        })
    }
}
