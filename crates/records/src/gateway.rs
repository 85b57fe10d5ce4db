//! Gateways that share a store.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Time;
use crate::page::object;

object!(GatewayObject "gateway");

rerouter_base::words! {
    /// Whether a gateway answers.
    pub enum GatewayState {
        Serving = "serving",
        /// Its lease has run out.
        Silent = "silent",
        /// It was too slow for a change, and must register anew.
        Fenced = "fenced",
    }
}

/// A gateway, with its lease by the clock of the database.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Gateway", deny_unknown_fields)]
pub struct GatewayRecord {
    pub object: GatewayObject,
    /// Of its registration: another one after each loss of its lease.
    #[schemars(extend("pattern" = "^gw_"))]
    pub id: String,
    pub name: String,
    pub address: String,
    pub version: String,
    /// Whether it is the one that answers.
    #[serde(rename = "self")]
    pub is_self: bool,
    pub state: GatewayState,
    /// What is left of its lease, by the clock of the database.
    pub lease_ms: i64,
    /// Whether it answers without a lease too.
    pub serves_stale: bool,
    /// The last change that it has applied.
    pub applied: u64,
    /// Changes that it has yet to apply.
    pub lag: u64,
    /// Revision of its routing document.
    pub document: String,
    pub registered_at: Option<Time>,
    pub renewed_at: Option<Time>,
    /// By how much the clock of its machine was ahead of the store's at its last renewal.
    pub clock_offset_ms: i64,
}
