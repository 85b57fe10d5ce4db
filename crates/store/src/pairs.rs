//! Metadata of keys: a map that takes no memory when it is empty, for a million keys.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Names and values, sorted by name. In JSON an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(Box<[(Box<str>, Box<str>)]>);

impl From<BTreeMap<String, String>> for Pairs {
    fn from(pairs: BTreeMap<String, String>) -> Self {
        Pairs(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl Pairs {
    /// Copies the pairs into a map.
    pub fn to_map(&self) -> BTreeMap<String, String> {
        self.0.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }
}

impl Serialize for Pairs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
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
