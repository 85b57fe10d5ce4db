//! Secrets in records.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use rerouter_base::secret::Secret;

/// A secret that its record shows, in JSON only: `Debug` has nothing of it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline, description = "")]
pub struct ShownSecret(
    #[serde(serialize_with = "shown")]
    #[schemars(with = "String")]
    pub Secret,
);

fn shown<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.expose())
}
