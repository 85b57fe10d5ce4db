//! The statements of `accounts.db`. Each mutation is one transaction that also moves the revision
//! on, so that the order of revisions is the order of commits and none is missing.

use std::collections::HashSet;

use jiff::Timestamp;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::limits::Limits;
use super::rows::{
    Change, Committed, KeyRow, KeyStatus, NewSecret, PreviousSecret, Role, Seen, SessionRow,
    Snapshot, UserRow,
};
use super::{Event, Faults, PanicPoint, StoreError, agents, audit, keys, nodes};
use crate::bounds;
use crate::id::{KeyId, SessionId, UserId};
use crate::interface::Interface;

/// One mutation: `write` says what it changed; nothing changed leaves the revision where it is, and
/// no row in the audit.
pub(super) fn mutate<F>(
    connection: &mut Connection,
    faults: &Faults,
    event: Option<&Event>,
    write: F,
) -> Result<Committed, StoreError>
where
    F: FnOnce(&Transaction<'_>) -> Result<Vec<Change>, StoreError>,
{
    faults.before_write()?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let changes = write(&transaction)?;
    if let Some(event) = event.filter(|_| !changes.is_empty()) {
        audit::insert(&transaction, event)?;
        audit::insert_for_others(&transaction, event, &changes)?;
    }
    let rev: i64 = if changes.is_empty() {
        transaction.query_row("SELECT rev FROM state", [], |row| row.get(0))?
    } else {
        transaction
            .query_row("UPDATE state SET rev = rev + 1 RETURNING rev", [], |row| row.get(0))?
    };
    faults.pass(PanicPoint::Commit);
    transaction.commit()?;
    Ok(Committed { rev: u64::try_from(rev).unwrap_or(0), changes })
}

pub(super) fn insert_user(
    transaction: &Transaction<'_>,
    user: UserRow,
) -> Result<Vec<Change>, StoreError> {
    let taken = transaction
        .query_row("SELECT 1 FROM users WHERE email = ?1", [&user.email], |_| Ok(()))
        .optional()?;
    if taken.is_some() {
        return Err(StoreError::Conflict);
    }
    transaction.execute(
        "INSERT INTO users (id, email, name, role, password, disabled, labels, created_at, limits) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        params![
            user.id.as_str(),
            user.email,
            user.name,
            user.role.as_str(),
            user.password,
            user.disabled,
            json(&user.labels)?,
            user.created_at.as_microsecond(),
            json(&user.limits)?
        ],
    )?;
    Ok(vec![Change::User(user.into())])
}

/// Counts the owner's live keys and looks at the parent in the same transaction: no two creations
/// pass the limit together, and no child outlives the revocation that it raced with. Keys that
/// nobody in particular made while AGENT was open take the room of their like only: they sleep
/// while it is enforced.
pub(super) fn insert_key(
    transaction: &Transaction<'_>,
    key: KeyRow,
    seen: Option<u32>,
) -> Result<Vec<Change>, StoreError> {
    let parent = match &key.parent {
        None => Limits::default(),
        Some(parent) => {
            let of_live =
                "SELECT limits, generation FROM keys WHERE id = ?1 AND revoked_at IS NULL";
            let read =
                |row: &Row<'_>| Ok((from_json(row, "limits")?, row.get::<_, u32>("generation")?));
            let (limits, generation): (Limits, u32) = transaction
                .query_row(of_live, [parent.as_str()], read)
                .optional()?
                .ok_or(StoreError::KeyRevoked)?;
            if seen.is_some_and(|seen| seen != generation) {
                return Err(StoreError::Conflict);
            }
            limits
        }
    };
    room_for_key(transaction, &key, key.created_at, parent.keys_per_user)?;
    let mut changes = forget_keys(transaction, &key.owner, key.created_at)?;
    transaction.execute(
        "INSERT INTO keys (id, interface, name, redacted, digest, owner, created_by, parent, scopes, labels, limits, status,
           created_at, expires_at, revoked_at, rotated_at, metadata, generation, previous_digest, previous_expires_at, made_open, maker,
           last_used_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23)",
        params![
            key.id.as_str(),
            key.interface.as_str(),
            key.name,
            key.redacted,
            key.digest.as_slice(),
            key.owner.as_str(),
            json(&key.created_by)?,
            key.parent.as_ref().map(KeyId::as_str),
            json(&key.scopes)?,
            json(&key.labels)?,
            json(&key.limits)?,
            key.status.as_str(),
            key.created_at.as_microsecond(),
            key.expires_at.map(Timestamp::as_microsecond),
            key.revoked_at.map(Timestamp::as_microsecond),
            key.rotated_at.map(Timestamp::as_microsecond),
            json(&key.metadata)?,
            key.generation,
            key.previous.as_ref().map(|previous| previous.digest),
            key.previous.as_ref().map(|previous| previous.expires_at.as_microsecond()),
            key.made_open,
            key.maker.as_ref().map(UserId::as_str),
            key.last_used_at.map(Timestamp::as_microsecond)
        ],
    )?;
    changes.push(Change::Key(key.into()));
    Ok(changes)
}

/// Whether one more key like this one has room among its owner's that are live at `at`.
pub(super) fn room_for_key(
    transaction: &Transaction<'_>,
    key: &KeyRow,
    at: Timestamp,
    of_parent: Option<u64>,
) -> Result<(), StoreError> {
    let live: i64 = transaction.query_row(
        "SELECT count(*) FROM keys
         WHERE owner = ?1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?2) AND (made_open = 0 OR ?3)",
        params![key.owner.as_str(), at.as_microsecond(), key.made_open],
        |row| row.get(0),
    )?;
    let owner = "SELECT limits FROM users WHERE id = ?1";
    let owner: Option<Limits> = transaction
        .query_row(owner, [key.owner.as_str()], |row| from_json(row, "limits"))
        .optional()?;
    let owner = owner.and_then(|limits| limits.keys_per_user);
    let most =
        [owner, of_parent].into_iter().flatten().fold(bounds::KEYS_PER_OWNER as u64, u64::min);
    if u64::try_from(live).unwrap_or(u64::MAX) >= most {
        Err(StoreError::LimitReached)
    } else {
        Ok(())
    }
}

/// Forgets an owner's keys that ended, but for the newest: making and ending keys fills neither
/// memory nor disk. One from which others descend stays for as long as they do: they draw on its
/// limits, though it has ended.
fn forget_keys(
    transaction: &Transaction<'_>,
    owner: &UserId,
    now: Timestamp,
) -> Result<Vec<Change>, StoreError> {
    let mut surplus = transaction.prepare_cached(
        "SELECT id FROM
           (SELECT id FROM keys WHERE owner = ?1 AND (revoked_at IS NOT NULL OR expires_at <= ?2) ORDER BY id DESC LIMIT -1 OFFSET ?4) old
         WHERE NOT EXISTS (SELECT 1 FROM keys child WHERE child.parent = old.id) LIMIT ?3",
    )?;
    let [most, kept] = [bounds::RETENTION_BATCH, bounds::ENDED_KEYS_PER_OWNER]
        .map(|bound| i64::try_from(bound).unwrap_or(i64::MAX));
    let ids = surplus
        .query_map(params![owner.as_str(), now.as_microsecond(), most, kept], |row| {
            row.get::<_, String>(0)
        })?;
    let mut changes = Vec::new();
    for id in ids.collect::<rusqlite::Result<Vec<_>>>()? {
        transaction.prepare_cached("DELETE FROM keys WHERE id = ?1")?.execute([&id])?;
        changes.push(Change::KeyForgotten(KeyId::known(&id)));
    }
    Ok(changes)
}

/// Ends a key; one that has ended stays as it is.
pub(super) fn end_key(
    transaction: &Transaction<'_>,
    id: &KeyId,
    at: Timestamp,
) -> Result<Vec<Change>, StoreError> {
    let ended = transaction.execute(
        "UPDATE keys SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL",
        params![id.as_str(), at.as_microsecond()],
    )?;
    let key =
        transaction.query_row("SELECT * FROM keys WHERE id = ?1", [id.as_str()], key).optional()?;
    match key {
        None => Err(StoreError::NotFound),
        Some(_) if ended == 0 => Ok(Vec::new()),
        Some(key) => Ok(vec![Change::Key(key.into())]),
    }
}

/// Gives a live key another secret. Of the secrets before, the last may stay for its grace; any
/// older one is gone.
pub(super) fn rotate_key(
    transaction: &Transaction<'_>,
    id: &KeyId,
    secret: &NewSecret,
    seen: &Seen,
    at: Timestamp,
) -> Result<Vec<Change>, StoreError> {
    let old = transaction
        .query_row("SELECT * FROM keys WHERE id = ?1", [id.as_str()], key)
        .optional()?
        .ok_or(StoreError::NotFound)?;
    if old.revoked_at.is_some() {
        return Err(StoreError::KeyRevoked);
    }
    if old.expires_at.is_some_and(|end| end <= at) {
        return Err(StoreError::KeyExpired);
    }
    keys::still_seen(transaction, &old, seen)?;
    let previous =
        secret.grace_ends.map(|expires_at| PreviousSecret { digest: old.digest, expires_at });
    transaction.execute(
        "UPDATE keys SET redacted = ?2, digest = ?3, rotated_at = ?4, generation = generation + 1, previous_digest = ?5,
           previous_expires_at = ?6 WHERE id = ?1",
        params![
            id.as_str(),
            secret.redacted,
            secret.digest.as_slice(),
            at.as_microsecond(),
            previous.as_ref().map(|previous| previous.digest),
            previous.as_ref().map(|previous| previous.expires_at.as_microsecond())
        ],
    )?;
    let new = transaction.query_row("SELECT * FROM keys WHERE id = ?1", [id.as_str()], key)?;
    Ok(vec![Change::Key(new.into())])
}

/// Exchanges a password hash, if it is still `old`: of two changes at once only one knew the
/// password. All sessions of the user but `keep` end with it.
pub(super) fn change_password(
    transaction: &Transaction<'_>,
    id: &UserId,
    old: &str,
    new: &str,
    keep: &SessionId,
) -> Result<Vec<Change>, StoreError> {
    let changed = transaction.execute(
        "UPDATE users SET password = ?2 WHERE id = ?1 AND password = ?3",
        params![id.as_str(), new, old],
    )?;
    if changed == 0 {
        return Err(StoreError::Conflict);
    }
    let user = transaction.query_row("SELECT * FROM users WHERE id = ?1", [id.as_str()], user)?;
    let mut changes = vec![Change::User(user.into())];
    let mut end = transaction
        .prepare_cached("DELETE FROM sessions WHERE user = ?1 AND id <> ?2 RETURNING id")?;
    for ended in end.query_map(params![id.as_str(), keep.as_str()], session_id)? {
        changes.push(Change::SessionEnded(ended?));
    }
    Ok(changes)
}

/// Begins a session and ends the user's oldest beyond `keep`, if the user is still let in with this
/// `password` hash.
pub(super) fn insert_session(
    transaction: &Transaction<'_>,
    session: SessionRow,
    password: &str,
    keep: usize,
) -> Result<Vec<Change>, StoreError> {
    let one = "SELECT 1 FROM users WHERE id = ?1 AND password = ?2 AND NOT disabled";
    transaction
        .query_row(one, params![session.user.as_str(), password], |_| Ok(()))
        .optional()?
        .ok_or(StoreError::Conflict)?;
    transaction.execute(
        "INSERT INTO sessions (id, user, cookie_digest, token_digest, created_at, expires_at, last_seen)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            session.id.as_str(),
            session.user.as_str(),
            session.cookie_digest.as_slice(),
            session.token_digest.as_slice(),
            session.created_at.as_microsecond(),
            session.expires_at.as_microsecond(),
            session.last_seen.as_microsecond()
        ],
    )?;
    let mut surplus = transaction.prepare_cached(
        "DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE user = ?1 AND id <> ?3 ORDER BY created_at DESC, id DESC LIMIT -1 OFFSET ?2)
         RETURNING id",
    )?;
    // Whatever the clock says, the one that begins is not among those that end.
    let others = i64::try_from(keep.saturating_sub(1)).unwrap_or(i64::MAX);
    let ended = surplus
        .query_map(params![session.user.as_str(), others, session.id.as_str()], session_id)?;
    let mut changes = vec![];
    for id in ended {
        changes.push(Change::SessionEnded(id?));
    }
    changes.push(Change::Session(session));
    Ok(changes)
}

/// Notes when sessions were last used, which moves no revision, and ends those that are over.
pub(super) fn sweep_sessions(
    transaction: &Transaction<'_>,
    seen: &[(SessionId, Timestamp)],
    over: &[SessionId],
) -> Result<Vec<Change>, StoreError> {
    let mut note = transaction
        .prepare_cached("UPDATE sessions SET last_seen = ?2 WHERE id = ?1 AND last_seen < ?2")?;
    for (id, at) in seen {
        note.execute(params![id.as_str(), at.as_microsecond()])?;
    }
    let mut end = transaction.prepare_cached("DELETE FROM sessions WHERE id = ?1")?;
    let mut changes = vec![];
    for id in over {
        if end.execute([id.as_str()])? > 0 {
            changes.push(Change::SessionEnded(id.clone()));
        }
    }
    Ok(changes)
}

/// Everything, at one revision.
pub(super) fn snapshot(connection: &mut Connection) -> Result<Snapshot, StoreError> {
    let mut snapshot = Snapshot::default();
    snapshot.rev = each(connection, |change| match change {
        Change::User(user) => snapshot.users.push((*user).clone()),
        Change::Key(key) => snapshot.keys.push((*key).clone()),
        Change::Session(session) => snapshot.sessions.push(session),
        Change::Agent(agent) => snapshot.agents.push((*agent).clone()),
        Change::Node(node) => snapshot.nodes.push((*node).clone()),
        Change::KeyForgotten(_)
        | Change::SessionEnded(_)
        | Change::AgentDeleted(_)
        | Change::NodeDeleted(_) => {}
    })?;
    Ok(snapshot)
}

/// Every row, one after another, at the revision that it gives.
pub(super) fn each(
    connection: &mut Connection,
    mut take: impl FnMut(Change),
) -> Result<u64, StoreError> {
    let transaction = connection.transaction()?;
    let rev: i64 = transaction.query_row("SELECT rev FROM state", [], |row| row.get(0))?;
    all(&transaction, "SELECT * FROM users", |row| {
        user(row).map(|row| take(Change::User(row.into())))
    })?;
    // An owner has many keys, whose text is in memory once.
    let mut owners = HashSet::new();
    all(&transaction, "SELECT * FROM keys", |row| {
        let mut row = key(row)?;
        row.owner = shared(&mut owners, row.owner);
        row.maker = row.maker.map(|maker| shared(&mut owners, maker));
        take(Change::Key(row.into()));
        Ok(())
    })?;
    all(&transaction, "SELECT * FROM sessions", |row| {
        session(row).map(|row| take(Change::Session(row)))
    })?;
    all(&transaction, "SELECT * FROM agents", |row| {
        agents::agent(row).map(|row| take(Change::Agent(row.into())))
    })?;
    all(&transaction, "SELECT * FROM nodes", |row| {
        nodes::node(row).map(|row| take(Change::Node(row.into())))
    })?;
    Ok(u64::try_from(rev).unwrap_or(0))
}

/// Whether the file can be locked for writing and read.
pub(super) fn probe(connection: &mut Connection) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.query_row("SELECT rev FROM state", [], |_| Ok(()))?;
    Ok(())
}

fn shared(known: &mut HashSet<UserId>, id: UserId) -> UserId {
    if let Some(same) = known.get(&id) {
        return same.clone();
    }
    known.insert(id.clone());
    id
}

fn all(
    transaction: &Transaction<'_>,
    sql: &str,
    mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
) -> Result<(), StoreError> {
    let mut statement = transaction.prepare(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        read(row)?;
    }
    Ok(())
}

pub(super) fn user(row: &Row<'_>) -> rusqlite::Result<UserRow> {
    Ok(UserRow {
        id: UserId::known(&row.get::<_, String>("id")?),
        email: row.get("email")?,
        name: row.get("name")?,
        role: word(row, "role", Role::parse)?,
        password: row.get("password")?,
        disabled: row.get("disabled")?,
        labels: from_json(row, "labels")?,
        limits: from_json(row, "limits")?,
        created_at: time(row, "created_at")?,
    })
}

pub(super) fn key(row: &Row<'_>) -> rusqlite::Result<KeyRow> {
    Ok(KeyRow {
        id: KeyId::known(&row.get::<_, String>("id")?),
        interface: word(row, "interface", Interface::parse)?,
        name: row.get("name")?,
        redacted: row.get("redacted")?,
        digest: row.get("digest")?,
        owner: UserId::known(&row.get::<_, String>("owner")?),
        created_by: from_json(row, "created_by")?,
        parent: row.get::<_, Option<String>>("parent")?.as_deref().map(KeyId::known),
        scopes: from_json(row, "scopes")?,
        labels: from_json(row, "labels")?,
        limits: from_json(row, "limits")?,
        status: word(row, "status", KeyStatus::parse)?,
        created_at: time(row, "created_at")?,
        expires_at: maybe_time(row, "expires_at")?,
        revoked_at: maybe_time(row, "revoked_at")?,
        rotated_at: maybe_time(row, "rotated_at")?,
        generation: row.get("generation")?,
        previous: previous(row)?,
        made_open: row.get("made_open")?,
        maker: row.get::<_, Option<String>>("maker")?.as_deref().map(UserId::known),
        last_used_at: maybe_time(row, "last_used_at")?,
        metadata: from_json(row, "metadata")?,
    })
}

fn previous(row: &Row<'_>) -> rusqlite::Result<Option<PreviousSecret>> {
    let digest: Option<[u8; 32]> = row.get("previous_digest")?;
    Ok(digest
        .zip(maybe_time(row, "previous_expires_at")?)
        .map(|(digest, expires_at)| PreviousSecret { digest, expires_at }))
}

pub(super) fn session(row: &Row<'_>) -> rusqlite::Result<SessionRow> {
    Ok(SessionRow {
        id: session_id(row)?,
        user: UserId::known(&row.get::<_, String>("user")?),
        cookie_digest: row.get("cookie_digest")?,
        token_digest: row.get("token_digest")?,
        created_at: time(row, "created_at")?,
        expires_at: time(row, "expires_at")?,
        last_seen: time(row, "last_seen")?,
    })
}

pub(super) fn session_id(row: &Row<'_>) -> rusqlite::Result<SessionId> {
    Ok(SessionId::known(&row.get::<_, String>("id")?))
}

pub(super) fn json<T: Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(StoreError::unavailable)
}

pub(super) fn from_json<T: DeserializeOwned>(row: &Row<'_>, column: &str) -> rusqlite::Result<T> {
    serde_json::from_str(&row.get::<_, String>(column)?).map_err(|error| unreadable(column, error))
}

fn word<T>(row: &Row<'_>, column: &str, parse: fn(&str) -> Option<T>) -> rusqlite::Result<T> {
    let text = row.get::<_, String>(column)?;
    parse(&text)
        .ok_or_else(|| unreadable(column, std::io::Error::other(format!("unknown word {text:?}"))))
}

pub(super) fn time(row: &Row<'_>, column: &str) -> rusqlite::Result<Timestamp> {
    Timestamp::from_microsecond(row.get(column)?).map_err(|error| unreadable(column, error))
}

pub(super) fn maybe_time(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<Timestamp>> {
    match row.get::<_, Option<i64>>(column)? {
        None => Ok(None),
        Some(micros) => {
            Timestamp::from_microsecond(micros).map(Some).map_err(|error| unreadable(column, error))
        }
    }
}

/// A stored value that this build cannot read, by its column.
fn unreadable(
    column: &str,
    cause: impl std::error::Error + Send + Sync + 'static,
) -> rusqlite::Error {
    let cause = std::io::Error::other(format!("column {column}: {cause}"));
    rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(cause))
}
