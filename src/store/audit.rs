//! The audit: who did what to what, one row an action. A row is written in the transaction of its
//! change, or before an action that this database does not hold. It never changes, and only the
//! retention deletes it.

use std::net::IpAddr;

use jiff::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params, params_from_iter};
use serde::{Deserialize, Serialize};

use super::changes::Change;
use super::columns::Columns;
use super::rows::Actor;
use super::{Store, StoreError};
use crate::bounds;
use crate::id::{AuditId, Random, RequestId};

macro_rules! actions {
    ($($name:ident $word:literal $meaning:literal;)*) => {
        /// What an audit row says was done.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Action {
            $(#[doc = $meaning] $name,)*
        }

        impl Action {
            pub const ALL: &[Action] = &[$(Action::$name,)*];

            /// Its name in rows and filters.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Action::$name => $word,)*
                }
            }

            /// For the OpenAPI document.
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
    PasswordChange "password.change" "A user changed the password; every other session ended.";
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
}

impl Action {
    /// Reads the word back.
    pub fn parse(word: &str) -> Option<Self> {
        Action::ALL.iter().copied().find(|action| action.as_str() == word)
    }
}

/// The object of an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditTarget {
    /// `key`, `user`, `session`, `agent`, `node`, `gateway`, `config`, `master_key`, `capture` or,
    /// of an import, `request`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its id; the revision of a `config`, the generation of a `master_key`, `unknown` for an
    /// unknown user.
    pub id: String,
}

impl AuditTarget {
    fn new(kind: &str, id: &str) -> Self {
        AuditTarget { kind: kind.to_owned(), id: id.to_owned() }
    }
}

/// An action that is to be audited. It holds no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub at: Timestamp,
    pub actor: Actor,
    pub action: Action,
    pub target: AuditTarget,
    pub request: Option<RequestId>,
    pub address: Option<IpAddr>,
    /// A second target, with a row of its own.
    pub also: Option<AuditTarget>,
}

impl Event {
    /// An action that came by no request.
    pub fn new(at: Timestamp, actor: Actor, action: Action, kind: &str, id: &str) -> Self {
        let target = AuditTarget::new(kind, id);
        Event { at, actor, action, target, request: None, address: None, also: None }
    }

    /// Sets the request that it came by, and the client's address.
    #[must_use]
    pub fn by(self, request: Option<RequestId>, address: Option<IpAddr>) -> Self {
        Event { request, address, ..self }
    }

    /// Sets the second target.
    #[must_use]
    pub fn also(self, kind: &str, id: &str) -> Self {
        Event { also: Some(AuditTarget::new(kind, id)), ..self }
    }
}

/// A row of the audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    pub id: AuditId,
    pub at: Timestamp,
    pub actor: Actor,
    /// The name of the action when the row was written.
    pub action: String,
    pub target: AuditTarget,
    pub request: Option<String>,
    pub address: Option<String>,
}

/// Which rows to list. A field that is not set does not filter.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// The id of the actor.
    pub actor: Option<String>,
    pub action: Option<Action>,
    /// The id of the target.
    pub target: Option<String>,
}

impl Store {
    /// This store for an audited action: each mutation by the returned handle that changes anything
    /// writes a row of `event` in its transaction.
    #[must_use]
    pub fn noting(&self, event: Event) -> Store {
        Store { event: Some(event.into()), ..self.clone() }
    }

    /// Writes an audit row of an action that this database does not hold.
    pub async fn note(&self, event: Event) -> Result<(), StoreError> {
        self.write(move |transaction| insert(transaction, &event)).await
    }

    /// Up to `limit` rows before `after`, the last commit first. `None` if `after` never was a row.
    pub async fn audit(
        &self,
        filter: AuditFilter,
        limit: usize,
        after: Option<AuditId>,
    ) -> Result<Option<Vec<AuditRow>>, StoreError> {
        self.read(move |connection| list(connection, &filter, limit, after.as_ref())).await
    }
}

pub(super) fn insert(transaction: &Transaction<'_>, event: &Event) -> Result<(), StoreError> {
    let mut write = transaction.prepare_cached(
        "INSERT INTO audit
           (id, at, actor_type, actor, action, target_type, target, request, address)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    write.execute(params![
        AuditId::new(event.at, &Random::System).as_str(),
        event.at.as_microsecond(),
        event.actor.kind,
        event.actor.id,
        event.action.as_str(),
        event.target.kind,
        event.target.id,
        event.request.as_ref().map(RequestId::as_str),
        event.address.map(|address| address.to_string()),
    ])?;
    Ok(())
}

/// Writes the rows of a mutation: one for its event, one for the second target, and one for each
/// descendant of a key that changed with it.
pub(super) fn insert_all(
    transaction: &Transaction<'_>,
    event: &Event,
    changes: &[Change],
) -> Result<(), StoreError> {
    insert(transaction, event)?;
    if let Some(also) = &event.also {
        insert(transaction, &Event { target: also.clone(), ..event.clone() })?;
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

fn list(
    connection: &Connection,
    filter: &AuditFilter,
    limit: usize,
    after: Option<&AuditId>,
) -> Result<Option<Vec<AuditRow>>, StoreError> {
    let mut last: i64 = connection.prepare_cached(LAST)?.query_row([], |row| row.get(0))?;
    if let Some(after) = after {
        let place = "SELECT seq FROM audit WHERE id = ?1";
        let place: Option<i64> =
            connection.query_row(place, [after.as_str()], |row| row.get(0)).optional()?;
        match place {
            Some(place) => last = place - 1,
            // The retention deleted the row, and so all rows before it.
            None => return Ok(after.at().map(|_| Vec::new())),
        }
    }
    if filter.since.is_none() && filter.until.is_none() {
        return page(connection, filter, (0, last), limit).map(Some);
    }
    // Most queries are for the newest rows. Others look up first between which rows the time lies;
    // a clock that was set makes that range larger, and leaves no row out.
    let rows = page(connection, filter, (last.saturating_sub(NEAR), last), limit)?;
    if rows.len() >= limit {
        return Ok(Some(rows));
    }
    let us = |at: Option<Timestamp>, none: i64| at.map_or(none, Timestamp::as_microsecond);
    let (since, until) = (us(filter.since, i64::MIN), us(filter.until, i64::MAX));
    let of_time = |row: &Row<'_>| Ok(row.get::<_, Option<i64>>(0)?.zip(row.get(1)?));
    let span: Option<(i64, i64)> =
        connection.prepare_cached(OF_TIME)?.query_row([since, until], of_time)?;
    let Some((first, newest)) = span else { return Ok(Some(Vec::new())) };
    page(connection, filter, (first, newest.min(last)), limit).map(Some)
}

/// The row that was written last.
const LAST: &str = "SELECT coalesce(max(seq), 0) FROM audit";
/// The first and the last row of a time.
const OF_TIME: &str = "SELECT min(seq), max(seq) FROM audit WHERE at >= ?1 AND at < ?2";
/// Newest rows that a query for a time reads before it looks up where rows of that time are.
const NEAR: i64 = bounds::LIST_ROWS as i64;

/// The matching rows between two places, the last first.
fn page(
    connection: &Connection,
    filter: &AuditFilter,
    (first, last): (i64, i64),
    limit: usize,
) -> Result<Vec<AuditRow>, StoreError> {
    let (conditions, mut values) = conditions(filter);
    values.extend([first, last, i64::try_from(limit).unwrap_or(i64::MAX)].map(Value::from));
    let mut statement = connection.prepare_cached(&select(&conditions))?;
    let rows = statement.query_map(params_from_iter(values), row)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn select(conditions: &[&str]) -> String {
    let conditions: String =
        conditions.iter().map(|condition| format!("{condition} AND ")).collect();
    format!("SELECT * FROM audit WHERE {conditions}seq >= ? AND seq <= ? ORDER BY seq DESC LIMIT ?")
}

/// The conditions of a filter, with their values. The rarest of target, actor and action is looked
/// up by its index, in this order; a plus keeps the query off the other indices.
fn conditions(filter: &AuditFilter) -> (Vec<&'static str>, Vec<Value>) {
    let time = |at: &Timestamp| Value::from(at.as_microsecond());
    let (target, actor) = (filter.target.is_some(), filter.actor.is_some());
    let narrow = [
        (filter.since.as_ref().map(time), "+at >= ?"),
        (filter.until.as_ref().map(time), "+at < ?"),
        (filter.target.clone().map(Value::from), "target = ?"),
        (filter.actor.clone().map(Value::from), if target { "+actor = ?" } else { "actor = ?" }),
        (
            filter.action.map(|action| action.as_str().to_owned().into()),
            if target || actor { "+action = ?" } else { "action = ?" },
        ),
    ];
    let named = narrow.into_iter().filter_map(|(value, condition)| Some((condition, value?)));
    named.unzip()
}

fn row(row: &Row<'_>) -> rusqlite::Result<AuditRow> {
    let mut columns = Columns::of(row);
    let _seq: i64 = columns.get()?;
    Ok(AuditRow {
        id: AuditId::known(columns.text()?),
        at: columns.time()?,
        actor: Actor { kind: columns.get()?, id: columns.get()? },
        action: columns.get()?,
        target: AuditTarget { kind: columns.get()?, id: columns.get()? },
        request: columns.get()?,
        address: columns.get()?,
    })
}

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;
