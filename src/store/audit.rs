//! The audit: who did what to what, one row an action, in `accounts.db` beside what was changed. A
//! row is written in the transaction of its change, or before what the database does not hold; it
//! is never changed, and leaves by retention only.

use std::net::IpAddr;

use jiff::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params, params_from_iter};
use serde::{Deserialize, Serialize};

use super::StoreError;
use super::accounts::time;
use super::rows::{Actor, Change};
use crate::bounds;
use crate::id::{AuditId, Random, RequestId};

macro_rules! actions {
    ($($name:ident $word:literal $says:literal;)*) => {
        /// What was done: every word that the audit has.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Action {
            $(#[doc = $says] $name,)*
        }

        impl Action {
            pub const ALL: &[Action] = &[$(Action::$name,)*];

            /// The word of it, in rows and filters.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Action::$name => $word,)*
                }
            }

            /// What the word means, for people.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Action::$name => $says,)*
                }
            }
        }
    };
}

actions! {
    KeyCreate "key.create" "A key was made; by an admin for somebody else with a second row, whose target is that user.";
    KeyUpdate "key.update" "A key's record was changed.";
    KeyRotate "key.rotate" "A key was given another secret; one of somebody else's by an admin with a second row, whose target is that user.";
    KeyRevoke "key.revoke" "A key was ended.";
    UserCreate "user.create" "A user was made, by registration or by an admin.";
    UserUpdate "user.update" "A user's name, role or limits were changed, or a disabled user may log in again.";
    UserDisable "user.disable" "A user was disabled: sessions ended, keys refused.";
    PasswordChange "password.change" "A user changed the password; every other session ended.";
    SessionCreate "session.create" "A user logged in: the actor is the new session, the target the user.";
    SessionRefused "session.refused" "A wrong password, or a login that may not be; ten rows a quarter of an hour for a user, and for all unknown ones.";
    SessionEnd "session.end" "A session was ended by a logout.";
    AgentCreate "agent.create" "An agent was made.";
    AgentUpdate "agent.update" "An agent was changed.";
    AgentDelete "agent.delete" "An agent was deleted.";
    NodeCreate "node.create" "A node was enrolled.";
    NodeRotate "node.rotate" "A node was given another secret.";
    NodeDelete "node.delete" "A node was deleted.";
    ConfigPut "config.put" "A routing document was made live by the API.";
    ConfigRollback "config.rollback" "A routing document that was live was made live again.";
    MasterKeyChange "master_key.change" "A start changed the master key: the actor is the operator, the target the generation of the new one.";
    CaptureRead "capture.read" "An admin reads or compares somebody else's capture; the row comes before the answer.";
    CaptureReroute "capture.reroute" "An admin runs somebody else's capture again; the row comes before the run.";
    CaptureEvaluate "capture.evaluate" "A document of one's own, its revision the target, is tried on captures of others: by an admin, or by the gate of a change; the row comes before.";
    CaptureImport "capture.import" "Captures were taken in from a file; the row comes before they are, its target is the request.";
    CaptureDelete "capture.delete" "A capture is deleted, by its owner or an admin; the row comes before the deletion.";
}

impl Action {
    /// Reads the word back.
    pub fn parse(word: &str) -> Option<Self> {
        Action::ALL.iter().copied().find(|action| action.as_str() == word)
    }
}

/// What something was done to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// `key`, `user`, `session`, `agent`, `node`, `config`, `master_key`, `capture` or, of an
    /// import, `request`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its id; of a `config` the revision, of a `master_key` its generation, of a user whom nobody
    /// knows `unknown`.
    pub id: String,
}

/// Whose doing something is. Where there are too many rows those of lower rank leave first: nobody
/// makes room for what they do by doing much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Nobody's in particular: registrations, refused logins, AGENT while it is open.
    Stranger = 0,
    /// A user's, or that of AGENT's tenant by a key.
    User = 1,
    Admin = 2,
}

/// What is to be written of an action. Nothing in it is secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub at: Timestamp,
    pub actor: Actor,
    /// Whose doing that is.
    pub rank: Rank,
    pub action: Action,
    pub target: Target,
    pub request: Option<RequestId>,
    pub address: Option<IpAddr>,
    /// Whom it concerns beside that, with a row of its own.
    pub also: Option<Target>,
}

impl Event {
    /// An action, not by any request, of somebody of that rank.
    pub fn new(
        at: Timestamp,
        (actor, rank): (Actor, Rank),
        action: Action,
        kind: &str,
        id: &str,
    ) -> Self {
        let target = Target { kind: kind.to_owned(), id: id.to_owned() };
        Event { at, actor, rank, action, target, request: None, address: None, also: None }
    }

    /// The request that it came by, and from where that came.
    #[must_use]
    pub fn by(self, request: Option<RequestId>, address: Option<IpAddr>) -> Self {
        Event { request, address, ..self }
    }

    /// Whom it concerns beside its target.
    #[must_use]
    pub fn also(self, kind: &str, id: &str) -> Self {
        Event { also: Some(Target { kind: kind.to_owned(), id: id.to_owned() }), ..self }
    }
}

/// An action as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    pub id: AuditId,
    pub at: Timestamp,
    pub actor: Actor,
    /// What, as it was called then.
    pub action: String,
    pub target: Target,
    pub request: Option<String>,
    pub address: Option<String>,
}

/// Which rows to list; what is not set does not filter.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// Done by the actor with this id.
    pub actor: Option<String>,
    pub action: Option<Action>,
    /// Done to what has this id.
    pub target: Option<String>,
}

pub(super) fn insert(transaction: &Transaction<'_>, event: &Event) -> Result<(), StoreError> {
    let mut write = transaction.prepare_cached(
        "INSERT INTO audit (id, at, actor_type, actor, action, target_type, target, request, address, rank)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
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
        event.rank as u8
    ])?;
    Ok(())
}

/// A change of a key may be one of those that descend from it, or concern somebody else: each has a
/// row of its own.
pub(super) fn insert_for_others(
    transaction: &Transaction<'_>,
    event: &Event,
    changes: &[Change],
) -> Result<(), StoreError> {
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
            let target = Target { id: key.id.to_string(), ..event.target.clone() };
            insert(transaction, &Event { target, ..event.clone() })?;
        }
    }
    Ok(())
}

/// Rows in the order of commits, the last first, those before `after`, up to `limit`; none when
/// `after` never was a row. One that has left since is as good: then it is those that are not
/// younger than it. What was done in its millisecond may come again, rather than not at all.
pub(super) fn list(
    connection: &Connection,
    filter: &AuditFilter,
    limit: usize,
    after: Option<&AuditId>,
) -> Result<Option<Vec<AuditRow>>, StoreError> {
    let mut filter = filter.clone();
    let mut last: i64 = connection.prepare_cached(LAST)?.query_row([], |row| row.get(0))?;
    if let Some(after) = after {
        let place = "SELECT seq FROM audit WHERE id = ?1";
        let place: Option<i64> =
            connection.query_row(place, [after.as_str()], |row| row.get(0)).optional()?;
        let next = after.at().and_then(|at| {
            Timestamp::from_microsecond(at.as_microsecond().checked_add(1_000)?).ok()
        });
        match (place, next) {
            (Some(place), _) => last = place - 1,
            (None, Some(next)) => {
                filter.until = Some(filter.until.map_or(next, |until| until.min(next)))
            }
            (None, None) => return Ok(None),
        }
    }
    if filter.since.is_none() && filter.until.is_none() {
        return page(connection, &filter, (0, last), limit).map(Some);
    }
    // Mostly what is asked for is near. Else it is looked up where rows of that time are: a clock
    // that was set back, or forth, makes that more, and leaves none out.
    let rows = page(connection, &filter, (last.saturating_sub(NEAR), last), limit)?;
    if rows.len() >= limit {
        return Ok(Some(rows));
    }
    let us = |at: Option<Timestamp>, none: i64| at.map_or(none, Timestamp::as_microsecond);
    let (since, until) = (us(filter.since, i64::MIN), us(filter.until, i64::MAX));
    let of_time = |row: &Row<'_>| Ok(row.get::<_, Option<i64>>(0)?.zip(row.get(1)?));
    let span: Option<(i64, i64)> =
        connection.prepare_cached(OF_TIME)?.query_row([since, until], of_time)?;
    let Some((first, newest)) = span else { return Ok(Some(Vec::new())) };
    page(connection, &filter, (first, newest.min(last)), limit).map(Some)
}

/// The row that was written last.
const LAST: &str = "SELECT coalesce(max(seq), 0) FROM audit";
/// From where to where rows of a time are.
const OF_TIME: &str = "SELECT min(seq), max(seq) FROM audit WHERE at >= ?1 AND at < ?2";
/// Rows of any time that are looked through before it is looked up where those of the time are.
const NEAR: i64 = bounds::LIST_ROWS as i64;

/// Those of these places that match, the last first.
fn page(
    connection: &Connection,
    filter: &AuditFilter,
    (first, last): (i64, i64),
    limit: usize,
) -> Result<Vec<AuditRow>, StoreError> {
    let (conditions, mut values) = narrowed(filter);
    values.extend([first, last, i64::try_from(limit).unwrap_or(i64::MAX)].map(Value::from));
    let mut statement = connection.prepare_cached(&select(&conditions))?;
    let rows = statement.query_map(params_from_iter(values), read)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn select(conditions: &[&str]) -> String {
    let conditions: String =
        conditions.iter().map(|condition| format!("{condition} AND ")).collect();
    format!("SELECT * FROM audit WHERE {conditions}seq >= ? AND seq <= ? ORDER BY seq DESC LIMIT ?")
}

/// The conditions of a filter, with their values. Of what is named the rarest by its nature is
/// looked up: a target, else an actor, else an action; a plus keeps the indices of the others out
/// of it.
fn narrowed(filter: &AuditFilter) -> (Vec<&'static str>, Vec<Value>) {
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

fn read(row: &Row<'_>) -> rusqlite::Result<AuditRow> {
    Ok(AuditRow {
        id: AuditId::known(&row.get::<_, String>("id")?),
        at: time(row, "at")?,
        actor: Actor { kind: row.get("actor_type")?, id: row.get("actor")? },
        action: row.get("action")?,
        target: Target { kind: row.get("target_type")?, id: row.get("target")? },
        request: row.get("request")?,
        address: row.get("address")?,
    })
}

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;
