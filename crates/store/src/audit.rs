//! The audit: who did what to what, one row an action. A row is written in the transaction of its
//! change, or before an action that this database does not hold. It never changes, and only the
//! retention deletes it.

use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::changes::Change;
use super::columns::Columns;
use super::rows::Actor;
use super::sql::{Row, ToValue, Transaction, Value, params};
use super::{Store, StoreError};
use crate::captures::LIST_ROWS;
use rerouter_base::id::{AuditId, Random, RequestId};

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

impl Action {
    /// Reads the word back.
    pub fn parse(word: &str) -> Option<Self> {
        Action::ALL.iter().copied().find(|action| action.as_str() == word)
    }
}

/// The object of an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditTarget {
    /// `key`, `user`, `session`, `agent`, `node`, `gateway`, `config`, `master_key`, `capture`,
    /// `captures` or, of an import, `request`.
    #[serde(rename = "type")]
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
        self.read(move |transaction| list(transaction, &filter, limit, after.as_ref())).await
    }
}

pub(super) fn insert(transaction: &Transaction<'_>, event: &Event) -> Result<(), StoreError> {
    transaction.execute(
        "INSERT INTO audit
           (id, at, actor_type, actor, action, target_type, target, request, address)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        &params![
            AuditId::new(event.at, &Random::System),
            event.at,
            event.actor.kind,
            event.actor.id,
            event.action.as_str(),
            event.target.kind,
            event.target.id,
            event.request,
            event.address.map(|address| address.to_string()),
        ],
    )?;
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
    transaction: &Transaction<'_>,
    filter: &AuditFilter,
    limit: usize,
    after: Option<&AuditId>,
) -> Result<Option<Vec<AuditRow>>, StoreError> {
    let mut last = transaction.int(LAST, &[])?.unwrap_or(0);
    if let Some(after) = after {
        match transaction.int("SELECT seq FROM audit WHERE id = ?1", &params![after])? {
            Some(place) => last = place - 1,
            // The retention deleted the row, and so all rows before it.
            None => return Ok(after.at().map(|_| Vec::new())),
        }
    }
    if filter.since.is_none() && filter.until.is_none() {
        return page(transaction, filter, (0, last), limit).map(Some);
    }
    // Most queries are for the newest rows. Others look up first between which rows the time lies;
    // a clock that was set makes that range larger, and leaves no row out.
    let rows = page(transaction, filter, (last.saturating_sub(NEAR), last), limit)?;
    if rows.len() >= limit {
        return Ok(Some(rows));
    }
    let us = |at: Option<Timestamp>, none: i64| at.map_or(none, Timestamp::as_microsecond);
    let (since, until) = (us(filter.since, i64::MIN), us(filter.until, i64::MAX));
    let span = |row: &Row<'_>| Ok(row.int(0)?.zip(row.int(1)?));
    let span = transaction.row(OF_TIME, &params![since, until], span)?;
    let Some((first, newest)) = span.flatten() else { return Ok(Some(Vec::new())) };
    page(transaction, filter, (first, newest.min(last)), limit).map(Some)
}

/// The row that was written last.
pub(super) const LAST: &str = "SELECT max(seq) FROM audit";
/// The first and the last row of a time.
pub(super) const OF_TIME: &str = "SELECT min(seq), max(seq) FROM audit WHERE at >= ?1 AND at < ?2";
/// Newest rows that a query for a time reads before it looks up where rows of that time are.
pub(super) const NEAR: i64 = LIST_ROWS as i64;

/// The matching rows between two places, the last first.
fn page(
    transaction: &Transaction<'_>,
    filter: &AuditFilter,
    (first, last): (i64, i64),
    limit: usize,
) -> Result<Vec<AuditRow>, StoreError> {
    let (conditions, mut values) = conditions(filter);
    values.extend(params![first, last, limit]);
    transaction.rows(&select(&conditions), &values, row)
}

/// The statement of a page. Its conditions have their values in this order; then come the first and
/// the last place, and the limit.
pub(super) fn select(conditions: &[&str]) -> String {
    let numbered = conditions.iter().chain(&["seq >=", "seq <="]).zip(1..);
    let conditions: Vec<_> = numbered.map(|(condition, at)| format!("{condition} ?{at}")).collect();
    format!(
        "SELECT * FROM audit WHERE {} ORDER BY seq DESC LIMIT ?{}",
        conditions.join(" AND "),
        conditions.len() + 1
    )
}

/// The conditions of a filter, with their values. The rarest of target, actor and action is looked
/// up by its index, in this order; the others are written so that no index serves them.
pub(super) fn conditions(filter: &AuditFilter) -> (Vec<&'static str>, Vec<Value<'_>>) {
    let (target, actor) = (filter.target.is_some(), filter.actor.is_some());
    let narrow = [
        (filter.since.as_ref().map(ToValue::value), "at + 0 >="),
        (filter.until.as_ref().map(ToValue::value), "at + 0 <"),
        (filter.target.as_ref().map(ToValue::value), "target ="),
        (
            filter.actor.as_ref().map(ToValue::value),
            if target { "actor || '' =" } else { "actor =" },
        ),
        (
            filter.action.map(|action| Value::Text(action.as_str())),
            if target || actor { "action || '' =" } else { "action =" },
        ),
    ];
    let named = narrow.into_iter().filter_map(|(value, condition)| Some((condition, value?)));
    named.unzip()
}

fn row(row: &Row<'_>) -> Result<AuditRow, StoreError> {
    let mut columns = Columns::of(row);
    let _seq: i64 = columns.get()?;
    Ok(AuditRow {
        id: AuditId::known(columns.text()?),
        at: columns.get()?,
        actor: Actor { kind: columns.get()?, id: columns.get()? },
        action: columns.get()?,
        target: AuditTarget { kind: columns.get()?, id: columns.get()? },
        request: columns.maybe()?,
        address: columns.maybe()?,
    })
}
