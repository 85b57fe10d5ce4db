//! Exchanges with real providers (`tests/data`), for the unit tests of several crates.

use serde::Deserialize;
use serde_json::Value;

use super::endpoint::Endpoint;

/// A recorded exchange, without the request.
#[derive(Deserialize)]
pub struct Exchange {
    pub id: String,
    pub kind: String,
    pub host: String,
    pub status: u16,
    pub content_type: String,
    pub response: String,
}

impl Exchange {
    pub fn endpoint(&self) -> Endpoint {
        Endpoint::named(if self.kind == "chat" { "chat.completions" } else { &self.kind }).unwrap()
    }

    pub fn is_stream(&self) -> bool {
        self.content_type.starts_with("text/event-stream")
    }

    /// The parsed data of each event.
    pub fn events(&self) -> Vec<Value> {
        let text = self.response.replace("\r\n", "\n");
        text.split("\n\n")
            .filter_map(|event| {
                serde_json::from_str(event.lines().find_map(|line| line.strip_prefix("data:"))?)
                    .ok()
            })
            .collect()
    }
}

pub fn exchanges() -> Vec<Exchange> {
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data");
    let read = |kind| std::fs::read_to_string(data.join(format!("recorded_{kind}.jsonl"))).unwrap();
    let texts = ["chat", "messages", "responses", "embeddings"].map(read);
    let all: Vec<Exchange> = texts
        .iter()
        .flat_map(|text| text.lines())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(all.len(), 231);
    all
}

/// The recorded exchanges that are successful streams.
pub fn streams() -> Vec<Exchange> {
    let streams: Vec<Exchange> = exchanges()
        .into_iter()
        .filter(|exchange| exchange.is_stream() && exchange.status == 200)
        .collect();
    assert_eq!(streams.len(), 27);
    streams
}
