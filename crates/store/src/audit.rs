//! The audit: who did what to what, one row per action. A row is written in the transaction of its
//! change; if the action changes nothing in this database, it is written before the action. Rows
//! never change, and only the retention deletes them. `audit_query.rs` lists them.

use std::net::IpAddr;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Result;
use super::changes::Change;
use super::rows::stored::row;
use super::rows::{self, Actor};
use super::sql::Transaction;
use rerouter_base::id::{AuditId, Random, RequestId};

macro_rules! actions {
    ($($name:ident $word:literal $meaning:literal;)*) => {
        rerouter_base::words! {
            /// What an audit row says was done.
            pub enum Action {
                $(#[doc = $meaning] $name = $word,)*
            }
        }

        impl Action {
            /// Its description in the OpenAPI document.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Action::$name => $meaning,)*
                }
            }
        }
    };
}

actions! {
    KeyCreate "key.create"
        "A key was created. If an admin did it for a user, a second row has that user.";
    KeyUpdate "key.update" "A key's record was changed.";
    KeyRotate "key.rotate"
        "A key got another secret. If an admin did it for a user, a second row has that user.";
    KeyRevoke "key.revoke" "A key was revoked.";
    UserCreate "user.create" "A user was created, by registration or by an admin.";
    UserUpdate "user.update"
        "A user's name, role or limits were changed, or a disabled user was enabled.";
    UserDisable "user.disable" "A user was disabled: sessions ended, keys refused.";
    UserDelete "user.delete"
        "A user was deleted, with the captures; the row is written before.";
    PasswordChange "password.change"
        "A user changed the password, which ended every other session, or an admin set another.";
    SessionCreate "session.create"
        "A user logged in: the actor is the new session, the target the user.";
    SessionRefused "session.refused"
        "A login was refused; at most ten rows in 15 minutes for a user, and for all unknown ones.";
    SessionEnd "session.end" "A session was ended by a logout.";
    AgentCreate "agent.create" "An agent was created.";
    AgentUpdate "agent.update" "An agent was changed.";
    AgentDelete "agent.delete" "An agent was deleted.";
    NodeCreate "node.create" "A node was enrolled.";
    NodeRotate "node.rotate" "A node got another secret.";
    NodeDelete "node.delete" "A node was deleted.";
    UsageSettle "usage.settle"
        "What dead processes held of a budget was settled: the target is the key or user.";
    GatewayForget "gateway.forget" "A gateway that is dead was taken off the list.";
    ConfigPut "config.put" "A routing document was made live by the API.";
    ConfigRollback "config.rollback" "An earlier routing document was made live again.";
    MasterKeyChange "master_key.change"
        "A start changed the master key: the actor is the operator, the target its new generation.";
    CaptureRead "capture.read"
        "An admin reads or compares another user's capture; the row is written before the answer.";
    CaptureReroute "capture.reroute"
        "An admin reroutes another user's capture; the row is written before the run.";
    CaptureEvaluate "capture.evaluate"
        "A document (its revision) is evaluated on captures of others; the row is written before.";
    CaptureImport "capture.import"
        "Captures are imported; the row is written before, and its target is the request.";
    CaptureDelete "capture.delete"
        "A capture is deleted, by its owner or an admin; the row is written before.";
    CaptureErase "capture.erase"
        "Captures are deleted by a filter, which is the target; the row is written before.";
}

/// The object of an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct AuditTarget {
    #[serde(rename = "type")]
    #[schemars(extend("enum" = [
        "key", "user", "session", "agent", "node", "gateway", "config", "master_key", "capture",
        "captures", "request",
    ]))]
    pub kind: String,
    /// Its id; the revision of a `config`, the generation of a `master_key`, the filter of
    /// `captures`, `unknown` for an unknown user.
    pub id: String,
}

impl AuditTarget {
    fn new(kind: &str, id: &str) -> Self {
        AuditTarget { kind: kind.to_owned(), id: id.to_owned() }
    }
}

/// It holds no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub at: Timestamp,
    pub actor: Actor,
    pub action: Action,
    pub target: AuditTarget,
    pub request: Option<RequestId>,
    pub address: Option<IpAddr>,
    /// What the same mutation did besides. Another row is written for each.
    pub also: Vec<(Action, AuditTarget)>,
}

impl Event {
    /// An action that no request caused.
    pub fn new(at: Timestamp, actor: Actor, action: Action, kind: &str, id: &str) -> Self {
        let target = AuditTarget::new(kind, id);
        Event { at, actor, action, target, request: None, address: None, also: Vec::new() }
    }

    #[must_use]
    pub fn by(self, request: Option<RequestId>, address: Option<IpAddr>) -> Self {
        Event { request, address, ..self }
    }

    #[must_use]
    pub fn also(mut self, action: Action, kind: &str, id: &str) -> Self {
        self.also.push((action, AuditTarget::new(kind, id)));
        self
    }
}

row! { "audit" =>
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct AuditRow {
        pub id: AuditId,
        pub at: Timestamp,
        pub actor_type: String,
        pub actor: String,
        /// The name of the action when the row was written.
        pub action: String,
        pub target_type: String,
        pub target: String,
        pub request: Option<String>,
        pub address: Option<String>,
    }
}

pub(super) fn insert(transaction: &Transaction<'_>, event: &Event) -> Result<()> {
    let row = AuditRow {
        id: AuditId::new(event.at, &Random::System),
        at: event.at,
        actor_type: event.actor.kind.clone(),
        actor: event.actor.id.clone(),
        action: event.action.as_str().to_owned(),
        target_type: event.target.kind.clone(),
        target: event.target.id.clone(),
        request: event.request.as_ref().map(ToString::to_string),
        address: event.address.map(|address| address.to_string()),
    };
    rows::insert(transaction, &row)
}

/// Writes the rows of a mutation: one for its event, one for each thing that it did besides, and
/// one for each descendant of a key that changed with it.
pub(super) fn insert_all(
    transaction: &Transaction<'_>,
    event: &Event,
    changes: &[Change],
) -> Result<()> {
    insert(transaction, event)?;
    for (action, target) in &event.also {
        insert(transaction, &Event { action: *action, target: target.clone(), ..event.clone() })?;
    }
    if !matches!(event.action, Action::KeyUpdate | Action::KeyRevoke) {
        return Ok(());
    }
    for change in changes {
        if let Change::Key(key) = change
            && key.id.as_str() != event.target.id
        {
            let target = AuditTarget { id: key.id.to_string(), ..event.target.clone() };
            insert(transaction, &Event { target, ..event.clone() })?;
        }
    }
    Ok(())
}
