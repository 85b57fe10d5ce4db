//! Examples of real requests and answers. `examples.json` has one for each of the most common
//! calls; `tests/house/api_examples.rs` compares them with a running gateway.

use serde_json::Value;

/// The examples, by the id of the operation.
pub(super) fn read() -> Value {
    serde_json::from_str(include_str!("../examples.json")).unwrap_or_default()
}

pub(super) fn add(examples: &Value, id: &str, described: &mut Value) {
    let Some(example) = examples.get(id) else { return };
    let status = example.get("status").and_then(Value::as_u64).unwrap_or_default();
    let answer = format!("/responses/{status}/content/application~1json");
    for (part, place) in [("body", "/requestBody/content/application~1json"), ("answer", &answer)] {
        let content = described.pointer_mut(place).and_then(Value::as_object_mut);
        if let (Some(value), Some(content)) = (example.get(part), content) {
            content.insert("example".to_owned(), value.clone());
        }
    }
}
