//! Metadata of keys: a map that takes little memory, for a million keys.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Names and values, sorted by name: the text of a JSON object, or an empty one without any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(Box<str>);

impl From<BTreeMap<String, String>> for Pairs {
    fn from(pairs: BTreeMap<String, String>) -> Self {
        match pairs.is_empty() {
            true => Pairs::default(),
            // Texts can always be written.
            false => Pairs(serde_json::to_string(&pairs).unwrap_or_default().into()),
        }
    }
}

impl Pairs {
    pub fn to_map(&self) -> BTreeMap<String, String> {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

impl Serialize for Pairs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_map().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::<String, String>::deserialize(deserializer).map(Pairs::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_an_object_in_json() {
        for text in ["{}", r#"{"a":"1","b":""}"#] {
            let pairs: Pairs = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&pairs).unwrap(), text);
        }
        assert!(serde_json::from_str::<Pairs>(r#"{"a":1}"#).is_err());
    }
}
