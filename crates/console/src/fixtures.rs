//! Records of the API for tests.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// A record of the API: the whole one, with these members replaced.
pub(super) fn record<T: DeserializeOwned>(mut whole: Value, with: Value) -> T {
    replace(&mut whole, with);
    serde_json::from_value(whole).unwrap()
}

fn replace(value: &mut Value, with: Value) {
    match (value, with) {
        (Value::Object(members), Value::Object(with)) => {
            with.into_iter().for_each(|(name, with)| {
                replace(members.entry(name).or_insert(Value::Null), with);
            });
        }
        (value, with) => *value = with,
    }
}
