//! The audit.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Time;
use crate::page::{PAGE_MAX, object, page_default};
use rerouter_base::id::AuditId;
use rerouter_store::{Action, Actor, AuditRow, AuditTarget};

object!(AuditObject "audit_event");

/// Who did what to what.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct AuditEvent {
    pub object: AuditObject,
    pub id: AuditId,
    pub at: Time,
    pub actor: Actor,
    /// One of the values of `GET /v1/audit?action=`.
    pub action: String,
    pub target: AuditTarget,
    /// Null for rows of a start.
    pub request_id: Option<String>,
    /// Null for rows of a start.
    pub address: Option<String>,
}

impl From<AuditRow> for AuditEvent {
    fn from(row: AuditRow) -> Self {
        AuditEvent {
            object: AuditObject::It,
            id: row.id,
            at: row.at.into(),
            actor: Actor { kind: row.actor_type, id: row.actor },
            action: row.action,
            target: AuditTarget { kind: row.target_type, id: row.target },
            request_id: row.request,
            address: row.address,
        }
    }
}

/// Query of the list.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditQuery {
    /// Maximum number of entries of the page.
    #[serde(default = "page_default")]
    #[schemars(range(min = 1, max = PAGE_MAX))]
    pub limit: usize,
    /// `next` of the previous page.
    pub after: Option<String>,
    /// From this RFC 3339 time on.
    pub since: Option<Time>,
    /// Before this RFC 3339 time.
    pub until: Option<Time>,
    /// Id of the actor.
    pub actor: Option<String>,
    /// What was done.
    pub action: Option<Action>,
    /// Id of the target.
    pub target: Option<String>,
}
