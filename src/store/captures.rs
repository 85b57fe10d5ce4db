//! The index of captures, `captures.db`: where each is, and what lists filter by. It holds nothing that the segments do not
//! say as well, but for what they say of each other, so it can be made again from them.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::StoreError;
use super::rows::{CaptureRow, OldCapture, Place, SegmentRow};
use crate::bounds;
use crate::id::{KeyId, RequestId, UserId};

/// Pages that the tables and their indexes take while nothing is in them, and a few.
const EMPTY_PAGES: u64 = 32;

/// The index on its writer's thread, for one job.
pub struct CaptureIndex<'a> {
    connection: &'a mut Connection,
}

impl<'a> CaptureIndex<'a> {
    pub(super) fn new(connection: &'a mut Connection) -> Self {
        CaptureIndex { connection }
    }

    /// One transaction; commits survive the end of the process, and the loss of power after a while.
    fn change<T>(
        &mut self,
        change: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let changed = change(&transaction)?;
        transaction.commit()?;
        Ok(changed)
    }

    /// All segments, the oldest first.
    pub fn segments(&self) -> Result<Vec<SegmentRow>, StoreError> {
        let mut statement =
            self.connection.prepare_cached("SELECT * FROM segments ORDER BY number")?;
        let rows = statement.query_map([], |row| {
            Ok(SegmentRow {
                number: row.get("number")?,
                sealed: row.get("sealed")?,
                newest_us: row.get("newest")?,
                bytes: unsigned(row.get("bytes")?),
                synced: unsigned(row.get("synced")?),
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?)
    }

    /// Bytes that it takes for captures: of the pages that are in use those beyond what it takes without any. None that are
    /// known while it holds captures from before there were segments: those wait to be moved, and count where they are then.
    pub fn bytes(&self) -> Result<u64, StoreError> {
        if self.has_old()? {
            return Ok(0);
        }
        let pragma = |name: &str| {
            Ok::<_, StoreError>(unsigned(self.connection.pragma_query_value(
                None,
                name,
                |row| row.get(0),
            )?))
        };
        let used = pragma("page_count")?.saturating_sub(pragma("freelist_count")?);
        Ok(used.saturating_sub(EMPTY_PAGES) * pragma("page_size")?)
    }

    /// Enters captures and what is known of their segment then: all or none. One that is there already stays as it is; one
    /// that is in a grave stays there, and the grave learns where it is. What lies in a second place is to leave that, as what was
    /// deleted does: it was written, and could not be taken back before it was written once more. `between` is called every few rows.
    pub fn append(
        &mut self,
        segment: &SegmentRow,
        rows: &[(CaptureRow, Place)],
        between: impl Fn(),
    ) -> Result<(), StoreError> {
        self.change(|transaction| {
            put_segment(transaction, segment)?;
            insert(transaction, rows, between)
        })
    }

    /// Notes what is known of a segment.
    pub fn put_segment(&mut self, segment: &SegmentRow) -> Result<(), StoreError> {
        self.change(|transaction| put_segment(transaction, segment))
    }

    /// Takes captures out of the index and keeps where they are until their segment is made anew. What is not in the index
    /// yet is kept from entering it. The segment is the one that says so.
    pub fn bury(
        &mut self,
        segment: Option<&SegmentRow>,
        graves: &[(RequestId, i64)],
    ) -> Result<(), StoreError> {
        self.change(|transaction| {
            if let Some(segment) = segment {
                put_segment(transaction, segment)?;
            }
            let mut dig = transaction.prepare_cached(
                "INSERT INTO graves (id, at, segment, heads, position)
                 SELECT ?1, ?2, segment, heads, position FROM (SELECT 1) LEFT JOIN captures ON id = ?1 WHERE true ON CONFLICT (id) DO NOTHING",
            )?;
            let mut delete = transaction.prepare_cached("DELETE FROM captures WHERE id = ?1")?;
            for (id, at_us) in graves {
                dig.execute(params![id.as_str(), at_us])?;
                delete.execute([id.as_str()])?;
            }
            Ok(())
        })
    }

    /// Forgets graves whose captures are nowhere: every segment has been looked at.
    pub fn forget_empty_graves(&mut self) -> Result<(), StoreError> {
        self.change(|transaction| {
            Ok(transaction.execute("DELETE FROM graves WHERE segment IS NULL", []).map(|_| ())?)
        })
    }

    /// What was deleted of a segment is somewhere else now: in the one that stands for it, which is yet to be entered.
    pub fn move_graves(&mut self, segment: i64) -> Result<(), StoreError> {
        self.change(|transaction| {
            transaction.execute("UPDATE graves SET segment = NULL, heads = NULL, position = NULL WHERE segment = ?1", [segment])?;
            Ok(())
        })
    }

    /// The deleted captures whose bytes are still in a segment: where the block with their head begins, and their position.
    pub fn graves(&self, segment: i64) -> Result<Vec<(u64, u32)>, StoreError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT heads, position FROM graves WHERE segment = ?1 ORDER BY heads, position",
        )?;
        let rows =
            statement.query_map([segment], |row| Ok((unsigned(row.get(0)?), row.get(1)?)))?;
        Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?)
    }

    /// Closed segments that hold captures deleted before this time, in microseconds since the epoch, or after `now_us`: the
    /// clock was set back, and how long ago that was is not known.
    pub fn due(&self, before_us: i64, now_us: i64) -> Result<Vec<i64>, StoreError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT DISTINCT g.segment FROM graves g JOIN segments s ON s.number = g.segment
             WHERE s.sealed AND (g.at <= ?1 OR g.at > ?2) ORDER BY 1",
        )?;
        let rows = statement.query_map([before_us, now_us], |row| row.get(0))?;
        Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?)
    }

    /// Notes which closed segments hold captures of times after `now_us`. A segment that time has reached, or a clock that was
    /// behind, is none of them any more.
    pub fn note_ahead(&mut self, now_us: i64) -> Result<(), StoreError> {
        self.change(|transaction| {
            transaction.execute(
                "UPDATE segments SET ahead = NULL WHERE ahead IS NOT NULL AND newest <= ?1",
                [now_us],
            )?;
            transaction.execute(
                "UPDATE segments SET ahead = ?1 WHERE ahead IS NULL AND newest > ?1 AND sealed",
                [now_us],
            )?;
            Ok(())
        })
    }

    /// Those of them that are [noted](CaptureIndex::note_ahead), and when that was first seen of each.
    pub fn ahead(&self, now_us: i64) -> Result<HashMap<i64, i64>, StoreError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT number, ahead FROM segments WHERE ahead IS NOT NULL AND newest > ?1",
        )?;
        let rows = statement.query_map([now_us], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<rusqlite::Result<HashMap<_, _>>>()?)
    }

    /// The shadow and replays of a capture, and theirs, without itself: some of them, the newest first, as each is newer than
    /// what it repeats. Of one owner, where one is given; what is somebody else's leads no further. It ends whatever captures
    /// say of each other.
    pub fn family(
        &self,
        id: &RequestId,
        owner: Option<&UserId>,
        most: usize,
    ) -> Result<Vec<RequestId>, StoreError> {
        let mut statement = self.connection.prepare_cached(
            "WITH RECURSIVE replays (id) AS (
               SELECT id FROM captures WHERE (replay_of = ?1 OR shadow_of = ?1) AND (?3 IS NULL OR owner = ?3)
               UNION SELECT c.id FROM captures c JOIN replays r ON c.replay_of = r.id OR c.shadow_of = r.id
                 WHERE ?3 IS NULL OR c.owner = ?3)
             SELECT id FROM replays WHERE id <> ?1 ORDER BY id DESC LIMIT ?2",
        )?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let rows = statement
            .query_map(params![id.as_str(), most, owner.map(UserId::as_str)], |row| {
                Ok(RequestId::known(&row.get::<_, String>(0)?))
            })?;
        Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?)
    }

    /// Whether a capture is in the index.
    pub fn holds(&self, id: &RequestId) -> Result<bool, StoreError> {
        let mut statement =
            self.connection.prepare_cached("SELECT 1 FROM captures WHERE id = ?1")?;
        Ok(statement.exists([id.as_str()])?)
    }

    /// Whether a capture was deleted, as far as that is still known: until its bytes are gone.
    pub fn buried(&self, id: &RequestId) -> Result<bool, StoreError> {
        let mut statement = self.connection.prepare_cached("SELECT 1 FROM graves WHERE id = ?1")?;
        Ok(statement.exists([id.as_str()])?)
    }

    /// Takes up to `most` captures of a segment out of the index; gives how many that were.
    pub fn forget(&mut self, segment: i64, most: usize) -> Result<usize, StoreError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.change(|transaction| {
            let mut statement =
                transaction.prepare_cached("DELETE FROM captures WHERE id IN (SELECT id FROM captures WHERE segment = ?1 LIMIT ?2)")?;
            Ok(statement.execute([segment, most])?)
        })
    }

    /// Takes captures out of the index that are said to be in a segment from `offset` on, where nothing is. Gives how many.
    pub fn cut(&mut self, segment: i64, offset: u64) -> Result<usize, StoreError> {
        self.change(|transaction| {
            Ok(transaction.execute(
                "DELETE FROM captures WHERE segment = ?1 AND heads >= ?2",
                params![segment, signed(offset)],
            )?)
        })
    }

    /// Forgets a segment, whose captures were taken out before, and what was deleted of it.
    pub fn forget_segment(&mut self, segment: i64) -> Result<(), StoreError> {
        self.change(|transaction| forget_segment(transaction, segment))
    }

    /// Says of some captures of a segment where they are now; where the segment does not hold them any more, nothing.
    pub fn place_anew(&mut self, old: i64, rows: &[(RequestId, Place)]) -> Result<(), StoreError> {
        self.change(|transaction| {
            let mut statement = transaction.prepare_cached(
                "UPDATE captures SET segment = ?2, heads = ?3, bodies = ?4, position = ?5 WHERE id = ?1 AND segment = ?6",
            )?;
            for (id, place) in rows {
                let bodies = place.bodies.map(signed);
                statement.execute(params![id.as_str(), place.segment, signed(place.heads), bodies, place.position, old])?;
            }
            Ok(())
        })
    }

    /// Puts a segment in another's place, whose captures were [placed anew](CaptureIndex::place_anew). What was deleted since
    /// then lies in the new one now; what is not in that is gone.
    pub fn replace(
        &mut self,
        old: i64,
        new: &SegmentRow,
        places: &HashMap<RequestId, Place>,
    ) -> Result<(), StoreError> {
        self.change(|transaction| {
            put_segment(transaction, new)?;
            let ahead = "UPDATE segments SET ahead = (SELECT ahead FROM segments WHERE number = ?1) WHERE number = ?2";
            transaction.execute(ahead, [old, new.number])?;
            let ids = transaction.prepare_cached("SELECT id FROM graves WHERE segment = ?1")?;
            let ids: Vec<String> = { ids }.query_map([old], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
            let mut moved = transaction.prepare_cached("UPDATE graves SET segment = ?2, heads = ?3, position = ?4 WHERE id = ?1")?;
            for id in ids.iter().map(|id| RequestId::known(id)) {
                if let Some(place) = places.get(&id) {
                    moved.execute(params![id.as_str(), place.segment, signed(place.heads), place.position])?;
                }
            }
            transaction.execute("DELETE FROM captures WHERE segment = ?1", [old])?;
            forget_segment(transaction, old)
        })
    }

    /// Empties the write-ahead log, where deleted rows lie until then. Whether that worked: a reader may be in the way.
    pub fn empty_log(&self) -> Result<bool, StoreError> {
        Ok(self
            .connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0))?
            == 0)
    }

    /// Whether there are captures from before there were segments.
    pub fn has_old(&self) -> Result<bool, StoreError> {
        let mut statement =
            self.connection.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'old_captures'")?;
        Ok(statement.exists([])?)
    }

    /// Some of those, the newest first.
    pub fn old(&self, most: usize) -> Result<Vec<OldCapture>, StoreError> {
        let mut statement = self
            .connection
            .prepare("SELECT c.*, b.sealed FROM old_captures c LEFT JOIN old_bodies b ON b.id = c.id ORDER BY c.id DESC LIMIT ?1")?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let rows = statement.query_map([most], |row| {
            Ok(OldCapture {
                row: capture(row)?,
                head: row.get("head")?,
                bodies: row.get("sealed")?,
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?)
    }

    /// Deletes some of those, which are in segments now; the tables too when they are empty then.
    pub fn forget_old(&mut self, ids: &[RequestId]) -> Result<(), StoreError> {
        self.change(|transaction| {
            let mut statement =
                transaction.prepare_cached("DELETE FROM old_captures WHERE id = ?1")?;
            for id in ids {
                statement.execute([id.as_str()])?;
            }
            let left = transaction.prepare("SELECT 1 FROM old_captures")?.exists([])?;
            if !left {
                transaction.execute_batch("DROP TABLE old_bodies; DROP TABLE old_captures;")?;
            }
            Ok(())
        })
    }
}

/// Whose a capture is.
pub(super) fn owner(connection: &Connection, id: &RequestId) -> Result<Option<UserId>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT owner FROM captures WHERE id = ?1")?;
    Ok(statement
        .query_row([id.as_str()], |row| Ok(UserId::known(&row.get::<_, String>(0)?)))
        .optional()?)
}

/// Where a capture is.
pub(super) fn locate(connection: &Connection, id: &RequestId) -> Result<Option<Place>, StoreError> {
    let mut statement = connection
        .prepare_cached("SELECT segment, heads, bodies, position FROM captures WHERE id = ?1")?;
    Ok(statement.query_row([id.as_str()], place).optional()?)
}

/// The place in a row.
pub(super) fn place(row: &rusqlite::Row<'_>) -> rusqlite::Result<Place> {
    Ok(Place {
        segment: row.get("segment")?,
        heads: unsigned(row.get("heads")?),
        bodies: row.get::<_, Option<i64>>("bodies")?.map(unsigned),
        position: row.get("position")?,
    })
}

fn capture(row: &rusqlite::Row<'_>) -> rusqlite::Result<CaptureRow> {
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
    })
}

fn put_segment(transaction: &Transaction<'_>, segment: &SegmentRow) -> Result<(), StoreError> {
    let mut statement = transaction.prepare_cached(
        "INSERT INTO segments (number, sealed, newest, bytes, synced) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (number) DO UPDATE SET sealed = ?2, newest = ?3, bytes = ?4, synced = ?5",
    )?;
    let SegmentRow { number, sealed, newest_us, bytes, synced } = segment;
    statement.execute(params![number, sealed, newest_us, signed(*bytes), signed(*synced)])?;
    Ok(())
}

fn forget_segment(transaction: &Transaction<'_>, segment: i64) -> Result<(), StoreError> {
    transaction.execute("DELETE FROM graves WHERE segment = ?1", [segment])?;
    transaction.execute("DELETE FROM segments WHERE number = ?1", [segment])?;
    Ok(())
}

/// Rows that take about a tenth of a millisecond.
const ROWS_BETWEEN: usize = 8;

fn insert(
    transaction: &Transaction<'_>,
    rows: &[(CaptureRow, Place)],
    between: impl Fn(),
) -> Result<(), StoreError> {
    let graves = transaction.prepare_cached("SELECT 1 FROM graves LIMIT 1")?.exists([])?;
    let mut grave = transaction.prepare_cached(
        "SELECT at, segment, heads, NULL AS bodies, position FROM graves WHERE id = ?1",
    )?;
    let mut buried = transaction.prepare_cached(
        "UPDATE graves SET segment = ?2, heads = ?3, position = ?4 WHERE id = ?1",
    )?;
    // Under a name that no capture has, and each place its own.
    let mut copied = transaction.prepare_cached(
        "INSERT INTO graves (id, at, segment, heads, position) VALUES (?1 || '@' || ?3 || '.' || ?4 || '.' || ?5, ?2, ?3, ?4, ?5)
         ON CONFLICT (id) DO NOTHING",
    )?;
    let mut is_copy = |row: &CaptureRow, place: &Place, known: Place, at_us: i64| {
        if (known.segment, known.heads, known.position)
            != (place.segment, place.heads, place.position)
        {
            copied.execute(params![
                row.id.as_str(),
                at_us,
                place.segment,
                signed(place.heads),
                place.position
            ])?;
        }
        Ok::<_, StoreError>(())
    };
    let mut statement = transaction.prepare_cached(
        "INSERT INTO captures (id, created_at, owner, key, alias, recipe, provider, model, decided_provider, decided_model,
           status, state, replay_of, shadow_of, segment, heads, bodies, position)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18) ON CONFLICT (id) DO NOTHING",
    )?;
    for (at, (row, place)) in rows.iter().enumerate() {
        if at % ROWS_BETWEEN == 0 {
            between();
        }
        if graves
            && let Some((at_us, known)) = grave.query_row([row.id.as_str()], lies).optional()?
        {
            match known {
                Some(known) => is_copy(row, place, known, at_us)?,
                None => {
                    _ = buried.execute(params![
                        row.id.as_str(),
                        place.segment,
                        signed(place.heads),
                        place.position
                    ])?
                }
            }
            continue;
        }
        let entered = statement.execute(params![
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
            place.segment,
            signed(place.heads),
            place.bodies.map(signed),
            place.position
        ])?;
        if entered == 0
            && let Some(known) = locate(transaction, &row.id)?
        {
            // It is as old: what is there in its stead has been durable for as long when its turn comes.
            is_copy(row, place, known, row.created_at_us)?;
        }
    }
    Ok(())
}

/// When a capture was deleted, and where it lies, if that is known.
fn lies(row: &rusqlite::Row<'_>) -> rusqlite::Result<(i64, Option<Place>)> {
    let known = row.get::<_, Option<i64>>("segment")?.is_some();
    Ok((row.get("at")?, if known { Some(place(row)?) } else { None }))
}

/// Rows that one job takes out of the index; more take another job, so that captures that wait are not held up.
pub const INDEX_STEP: usize = bounds::CAPTURE_BATCH;

/// Offsets of files fit 63 bits.
fn signed(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}

fn unsigned(offset: i64) -> u64 {
    u64::try_from(offset).unwrap_or(0)
}
