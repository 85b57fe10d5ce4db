//! The statements of `captures.db`. Heads and bodies are opaque here; only what lists filter by is in columns.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params, params_from_iter};

use super::StoreError;
use super::rows::{CaptureFilter, CaptureRow};
use crate::bounds;
use crate::id::{KeyId, RequestId, UserId};

/// Writes a batch, all or none. A row that is there already is left alone, so a batch may be tried again.
pub(super) fn append(connection: &mut Connection, rows: &[CaptureRow]) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    {
        let mut head = transaction.prepare_cached(
            "INSERT INTO captures (id, created_at, owner, key, alias, recipe, provider, model, decided_provider, decided_model,
               status, state, replay_of, shadow_of, head)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15) ON CONFLICT (id) DO NOTHING",
        )?;
        let mut bodies = transaction.prepare_cached("INSERT INTO bodies (id, sealed) VALUES (?1, ?2) ON CONFLICT (id) DO NOTHING")?;
        for row in rows {
            head.execute(params![
                row.id.as_str(),
                row.created_at_us,
                row.owner.as_str(),
                row.key.as_ref().map(KeyId::as_str),
                row.alias,
                row.recipe,
                row.provider,
                row.model,
                row.decided_provider,
                row.decided_model,
                row.status,
                row.state,
                row.replay_of.as_ref().map(RequestId::as_str),
                row.shadow_of.as_ref().map(RequestId::as_str),
                row.head
            ])?;
            if let Some(sealed) = &row.bodies {
                bodies.execute(params![row.id.as_str(), sealed])?;
            }
        }
    }
    transaction.commit()?;
    Ok(())
}

/// Deletes up to `most` of the oldest captures: those made before `before_us`, and any while the file holds more than
/// `bytes`. Gives how many went; pages that become free are used again.
pub(super) fn trim(connection: &mut Connection, before_us: i64, bytes: u64, most: usize) -> Result<usize, StoreError> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let used: i64 = transaction.query_row(
        "SELECT (p.page_count - f.freelist_count) * s.page_size FROM pragma_page_count p, pragma_freelist_count f, pragma_page_size s",
        [],
        |row| row.get(0),
    )?;
    let too_large = u64::try_from(used).unwrap_or(0) > bytes;
    let gone = transaction.execute(
        "DELETE FROM captures WHERE id IN (SELECT id FROM captures ORDER BY id LIMIT ?1) AND (?2 OR created_at < ?3)",
        params![most, too_large, before_us],
    )?;
    transaction.commit()?;
    Ok(gone)
}

/// Whose a capture is.
pub(super) fn owner(connection: &Connection, id: &RequestId) -> Result<Option<UserId>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT owner FROM captures WHERE id = ?1")?;
    Ok(statement.query_row([id.as_str()], |row| Ok(UserId::known(&row.get::<_, String>(0)?))).optional()?)
}

/// Deletes one capture and, where that is asked for, its shadow, replays of it and theirs. What was committed survives the
/// loss of power, and its pages are overwritten. Gives the copies that went.
pub(super) fn delete(connection: &mut Connection, id: &RequestId, replays: bool) -> Result<Vec<RequestId>, StoreError> {
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "secure_delete", true)?;
    let mut gone = Vec::new();
    let mut deleted = Ok(());
    if replays {
        // In steps, so that the writer of captures is never held up for long; the deepest first, so that what is
        // left when a step fails is still found from the first capture.
        while deleted.is_ok() {
            match delete_step(connection, id) {
                Ok(step) => {
                    let last = step.len() < bounds::RETENTION_BATCH;
                    gone.extend(step);
                    if last {
                        break;
                    }
                }
                Err(error) => deleted = Err(error),
            }
        }
    }
    let deleted = deleted.and_then(|()| Ok(connection.execute("DELETE FROM captures WHERE id = ?1", [id.as_str()]).map(|_| ())?));
    connection.pragma_update(None, "secure_delete", false)?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    deleted.map(|()| gone)
}

/// Deletes some of the replays and shadows of a capture, and of those.
fn delete_step(connection: &mut Connection, id: &RequestId) -> Result<Vec<RequestId>, StoreError> {
    let most = i64::try_from(bounds::RETENTION_BATCH).unwrap_or(i64::MAX);
    let mut step = connection.prepare_cached(
        "WITH RECURSIVE replays (id, depth) AS (
           SELECT id, 1 FROM captures WHERE replay_of = ?1 OR shadow_of = ?1
           UNION ALL SELECT c.id, r.depth + 1 FROM captures c JOIN replays r ON c.replay_of = r.id OR c.shadow_of = r.id)
         DELETE FROM captures WHERE id IN (SELECT id FROM replays ORDER BY depth DESC LIMIT ?2) RETURNING id",
    )?;
    let gone = step.query_map(params![id.as_str(), most], |row| Ok(RequestId::known(&row.get::<_, String>(0)?)))?;
    Ok(gone.collect::<rusqlite::Result<Vec<_>>>()?)
}

/// Empties the write-ahead log, where deleted pages lie until then. Whether that worked: a reader may be in the way.
pub(super) fn empty_log(connection: &Connection) -> Result<bool, StoreError> {
    Ok(connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0))? == 0)
}

/// Heads, newest first, that match the filter and are older than `after`.
pub(super) fn list(
    connection: &Connection,
    filter: &CaptureFilter,
    limit: usize,
    after: Option<&RequestId>,
) -> Result<Vec<(RequestId, Vec<u8>)>, StoreError> {
    let mut sql = String::from("SELECT id, head FROM captures WHERE shadow_of IS ");
    sql.push_str(if filter.shadows { "NOT NULL" } else { "NULL" });
    let mut values = Vec::new();
    conditions(filter, after, &mut sql, &mut values);
    sql.push_str(" ORDER BY id DESC LIMIT ?");
    values.push(Value::Integer(i64::try_from(limit).unwrap_or(i64::MAX)));
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement
        .query_map(params_from_iter(values), |row| Ok((RequestId::known(&row.get::<_, String>(0)?), row.get::<_, Vec<u8>>(1)?)))?;
    Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?)
}

/// Adds a condition for each filter that is set. Only fixed text goes into the statement, every value by a parameter.
fn conditions(filter: &CaptureFilter, after: Option<&RequestId>, sql: &mut String, values: &mut Vec<Value>) {
    let texts = [
        (" AND id < ?", after.map(RequestId::as_str)),
        (" AND owner = ?", filter.owner.as_ref().map(UserId::as_str)),
        (" AND key = ?", filter.key.as_ref().map(KeyId::as_str)),
        (" AND alias = ?", filter.alias.as_deref()),
        (" AND recipe = ?", filter.recipe.as_deref()),
        (" AND provider = ?", filter.provider.as_deref()),
        (" AND model = ?", filter.model.as_deref()),
        (" AND decided_provider = ?", filter.decided_provider.as_deref()),
        (" AND decided_model = ?", filter.decided_model.as_deref()),
        (" AND state = ?", filter.state.as_deref()),
        (" AND replay_of = ?", filter.replay_of.as_ref().map(RequestId::as_str)),
        (" AND shadow_of = ?", filter.shadow_of.as_ref().map(RequestId::as_str)),
    ];
    for (condition, value) in texts {
        if let Some(value) = value {
            sql.push_str(condition);
            values.push(Value::Text(value.to_owned()));
        }
    }
    for (condition, value) in [(" AND created_at >= ?", filter.since_us), (" AND created_at < ?", filter.until_us)] {
        if let Some(value) = value {
            sql.push_str(condition);
            values.push(Value::Integer(value));
        }
    }
    for (at, (low, high)) in filter.statuses.iter().enumerate() {
        sql.push_str(if at == 0 { " AND (status BETWEEN ? AND ?" } else { " OR status BETWEEN ? AND ?" });
        values.push(Value::Integer((*low).into()));
        values.push(Value::Integer((*high).into()));
    }
    if !filter.statuses.is_empty() {
        sql.push(')');
    }
}

/// One capture with its bodies.
pub(super) fn get(connection: &Connection, id: &RequestId) -> Result<Option<CaptureRow>, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT c.*, b.sealed FROM captures c LEFT JOIN bodies b ON b.id = c.id WHERE c.id = ?1")?;
    let row = statement.query_row([id.as_str()], |row| {
        Ok(CaptureRow {
            id: RequestId::known(&row.get::<_, String>("id")?),
            created_at_us: row.get("created_at")?,
            owner: UserId::known(&row.get::<_, String>("owner")?),
            key: row.get::<_, Option<String>>("key")?.as_deref().map(KeyId::known),
            alias: row.get("alias")?,
            recipe: row.get("recipe")?,
            provider: row.get("provider")?,
            model: row.get("model")?,
            decided_provider: row.get("decided_provider")?,
            decided_model: row.get("decided_model")?,
            status: row.get("status")?,
            state: row.get("state")?,
            replay_of: row.get::<_, Option<String>>("replay_of")?.as_deref().map(RequestId::known),
            shadow_of: row.get::<_, Option<String>>("shadow_of")?.as_deref().map(RequestId::known),
            head: row.get("head")?,
            bodies: row.get("sealed")?,
        })
    });
    Ok(row.optional()?)
}
