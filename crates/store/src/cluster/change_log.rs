//! The log of changes. A mutation writes which rows it changed. Every gateway reads the entries
//! that it has not applied, with the rows as they are now.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::changes::{Change, Committed};
use crate::columns::{Columns, word_columns};
use crate::rows::stored::row;
use crate::rows::{AgentRow, KeyRow, NodeRow, SessionRow, Stored, UserRow};
use crate::sql::{NOW, Row, ToValue, Transaction, Value, params};
use crate::{Result, document_texts};
use rerouter_base::id::{AgentId, KeyId, NodeId, SessionId, UserId};
use rerouter_base::secret::SecretBytes;

/// The channel on which a mutation notifies other gateways.
pub(super) const CHANGED: &str = "rerouter_changed";

/// Maximum number of revisions that are read at once.
const CHUNK: u64 = 256;
/// How long changes are kept after every gateway has applied them: a gateway that starts may be
/// behind.
pub(super) const KEPT: Duration = Duration::from_secs(3600);

/// How far a gateway has applied the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LogPosition {
    pub(super) rev: u64,
    /// The random mark of that revision, which tells different histories of a database apart;
    /// `None` if the log does not have the revision.
    pub(super) mark: Option<String>,
}

#[derive(Debug)]
pub(super) enum LogBatch {
    Changes {
        committed: Committed,
        position: LogPosition,
        /// Whether the log has nothing more.
        is_all: bool,
    },
    /// The log does not continue from the position, for this reason.
    Gap(&'static str),
}

row! { "changes" =>
    #[derive(Clone, Debug)]
    struct LogEntry {
        rev: u64,
        seq: i64,
        kind: LogSubject,
        id: String,
        mark: String,
    }
}

rerouter_base::words! {
    /// The kind of row that an entry is about.
    enum LogSubject {
        User = "user",
        Key = "key",
        Session = "session",
        Agent = "agent",
        Node = "node",
        Document = "document",
    }
}

word_columns! { LogSubject }

impl LogSubject {
    /// The table of these rows; `None` for documents, of which only the live one matters.
    fn table(self) -> Option<&'static str> {
        match self {
            LogSubject::User => Some(UserRow::TABLE),
            LogSubject::Key => Some(KeyRow::TABLE),
            LogSubject::Session => Some(SessionRow::TABLE),
            LogSubject::Agent => Some(AgentRow::TABLE),
            LogSubject::Node => Some(NodeRow::TABLE),
            LogSubject::Document => None,
        }
    }

    fn read(self, row: &Row<'_>) -> Result<(String, Change)> {
        let id = Columns::new(row).get()?;
        let change = match self {
            LogSubject::User => Change::User(UserRow::of(row)?.into()),
            LogSubject::Key => Change::Key(KeyRow::of(row)?.into()),
            LogSubject::Session => Change::Session(SessionRow::of(row)?),
            LogSubject::Agent => Change::Agent(AgentRow::of(row)?.into()),
            LogSubject::Node => Change::Node(NodeRow::of(row)?.into()),
            LogSubject::Document => return Err(row.unreadable(0, "a document")),
        };
        Ok((id, change))
    }

    /// The change if the row no longer exists.
    fn gone(self, id: &str) -> Option<Change> {
        match self {
            LogSubject::User => Some(Change::UserDeleted(UserId::known(id))),
            LogSubject::Key => Some(Change::KeyForgotten(KeyId::known(id))),
            LogSubject::Session => Some(Change::SessionEnded(SessionId::known(id))),
            LogSubject::Agent => Some(Change::AgentDeleted(AgentId::known(id))),
            LogSubject::Node => Some(Change::NodeDeleted(NodeId::known(id))),
            // Documents are never deleted.
            LogSubject::Document => None,
        }
    }
}

fn subject_of(change: &Change) -> (LogSubject, &str) {
    match change {
        Change::User(user) => (LogSubject::User, user.id.as_str()),
        Change::UserDeleted(id) => (LogSubject::User, id.as_str()),
        Change::Key(key) => (LogSubject::Key, key.id.as_str()),
        Change::KeyForgotten(id) => (LogSubject::Key, id.as_str()),
        Change::Session(session) => (LogSubject::Session, session.id.as_str()),
        Change::SessionEnded(id) => (LogSubject::Session, id.as_str()),
        Change::Agent(agent) => (LogSubject::Agent, agent.id.as_str()),
        Change::AgentDeleted(id) => (LogSubject::Agent, id.as_str()),
        Change::Node(node) => (LogSubject::Node, node.id.as_str()),
        Change::NodeDeleted(id) => (LogSubject::Node, id.as_str()),
        Change::Document(document) => (LogSubject::Document, &document.revision),
    }
}

/// Writes the changes of a mutation in its transaction, and wakes the other gateways at its commit.
pub(crate) fn record(transaction: &Transaction<'_>, rev: u64, changes: &[Change]) -> Result<()> {
    let insert = format!(
        "WITH added AS (INSERT INTO changes (rev, seq, kind, id, at)
           SELECT ?1, seq - 1, kind, id, {NOW} FROM
             unnest(CAST(?2 AS TEXT[]), CAST(?3 AS TEXT[])) WITH ORDINALITY AS c (kind, id, seq))
         SELECT pg_notify(?4, '')"
    );
    let (kinds, ids): (Vec<_>, Vec<_>) = changes
        .iter()
        .map(subject_of)
        .map(|(subject, id)| (Value::Text(subject.as_str()), Value::Text(id)))
        .unzip();
    let rows = [rev.value(), Value::Column(&kinds), Value::Column(&ids), CHANGED.value()];
    transaction.exists(&insert, &rows).map(drop)
}

/// The newest position of the log. In a transaction that loads all rows, it is the position of
/// these rows.
pub(super) fn newest(transaction: &Transaction<'_>) -> Result<LogPosition> {
    let rev = transaction.revision()?;
    let mark = "SELECT mark FROM changes WHERE rev = ?1 AND seq = 0";
    let mark = transaction.row(mark, &params![rev], |row| Columns::new(row).get())?;
    Ok(LogPosition { rev, mark })
}

/// Reads the entries after a position with one statement, then their rows as they are by now: at
/// least as new as the entries, and changed again by later entries if they are newer.
pub(super) fn read(
    transaction: &Transaction<'_>,
    from: &LogPosition,
    key: &SecretBytes,
) -> Result<LogBatch> {
    let last = from.rev.saturating_add(CHUNK);
    let select = "SELECT state.rev, changes.rev, seq, kind, id, mark FROM state
          LEFT JOIN changes ON changes.rev >= ?1 AND changes.rev <= ?2 ORDER BY changes.rev, seq";
    let (mut newest, mut entries) = (0, Vec::new());
    transaction.each(select, &params![from.rev, last], &mut |row| {
        let mut columns = Columns::new(row);
        newest = columns.get()?;
        // Without an entry its columns are NULL.
        entries.extend(row.int(1)?.map(|_| LogEntry::read(&mut columns)).transpose()?);
        Ok(())
    })?;
    if newest < from.rev {
        return Ok(LogBatch::Gap("its last revision went back"));
    }
    let upto = newest.min(last);
    let (position, changed) = match follow_on(from, upto, entries) {
        Ok(found) => found,
        Err(why) => return Ok(LogBatch::Gap(why)),
    };
    let changes = rows_of(transaction, changed, key)?;
    let committed = Committed { rev: upto, changes };
    Ok(LogBatch::Changes { committed, position, is_all: upto == newest })
}

type Changed = Vec<(LogSubject, String)>;

/// Checks that the entries continue from a position, up to a revision without a gap. Returns the
/// new position, and the subjects of the entries without duplicates.
fn follow_on(
    from: &LogPosition,
    upto: u64,
    entries: Vec<LogEntry>,
) -> Result<(LogPosition, Changed), &'static str> {
    let (mut at, mut known) = (from.clone(), from.mark.is_none());
    let (mut seen, mut changed) = (HashSet::new(), Vec::new());
    for entry in entries {
        if entry.rev == from.rev {
            // A position without a mark cannot be compared.
            if entry.seq == 0 && from.mark.as_ref().is_some_and(|mark| *mark != entry.mark) {
                return Err("it has another history");
            }
            known = true;
            continue;
        }
        if entry.rev != at.rev {
            if entry.rev != at.rev + 1 {
                return Err("changes are missing");
            }
            at = LogPosition { rev: entry.rev, mark: Some(entry.mark) };
        }
        if seen.insert((entry.kind, entry.id.clone())) {
            changed.push((entry.kind, entry.id));
        }
    }
    match at.rev == upto && known {
        true => Ok((at, changed)),
        false => Err("changes are missing"),
    }
}

/// The changed objects as they are now, in the order of their first change.
fn rows_of(
    transaction: &Transaction<'_>,
    changed: Changed,
    key: &SecretBytes,
) -> Result<Vec<Change>> {
    let mut now: HashMap<(LogSubject, String), Change> = HashMap::new();
    let is_changed = |subject: LogSubject| changed.iter().any(|(kind, _)| *kind == subject);
    for subject in LogSubject::ALL.into_iter().filter(|subject| is_changed(*subject)) {
        let Some(table) = subject.table() else { continue };
        let of_subject = changed.iter().filter(|(kind, _)| *kind == subject);
        let ids: Vec<_> = of_subject.map(|(_, id)| id.value()).collect();
        let select = format!("SELECT * FROM {table} WHERE id = ANY(CAST(?1 AS TEXT[]))");
        transaction.each(&select, &[Value::Column(&ids)], &mut |row| {
            let (id, change) = subject.read(row)?;
            now.insert((subject, id), change);
            Ok(())
        })?;
    }
    let document = match is_changed(LogSubject::Document) {
        true => document_texts::live(transaction, key)?.map(Change::Document),
        false => None,
    };
    let rows = changed.into_iter().filter_map(|(subject, id)| {
        let gone = subject.gone(&id);
        now.remove(&(subject, id)).or(gone)
    });
    Ok(rows.chain(document).collect())
}

/// Deletes old changes that every gateway has applied. Returns how many it deleted. The newest
/// change is kept, as its mark identifies the history.
pub(super) fn prune(transaction: &Transaction<'_>) -> Result<usize> {
    let delete = "DELETE FROM changes WHERE rev < (SELECT min(applied) FROM gateways)
                    AND at < CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT) - ?1";
    transaction.execute(delete, &params![KEPT])
}

#[cfg(test)]
#[path = "change_log_tests.rs"]
mod tests;
