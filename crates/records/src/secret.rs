//! Secrets in records.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};

use rerouter_base::secret::Secret;

/// A secret that its record shows, in JSON only: `Debug` has nothing of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct ShownSecret(pub Secret);

impl Serialize for ShownSecret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.expose())
    }
}

impl JsonSchema for ShownSecret {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ShownSecret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}
