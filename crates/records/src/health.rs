//! Whether a gateway answers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

rerouter_base::words! {
    /// Whether something answers.
    pub enum HealthWord {
        Ok = "ok",
        Unavailable = "unavailable",
    }
}

/// Whether a gateway answers requests.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    pub status: HealthWord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<HealthWord>,
    /// Revision of the routing document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Why it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether the object store takes segments of captures, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<HealthWord>,
    /// How far the clock of the machine is off the store's, as `45m ahead of the store's`; absent
    /// below five seconds, and where gateways share no store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<String>,
}
