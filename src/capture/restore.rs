//! What a start does with captures: first what little has to be seen before anything is written, then, beside the traffic,
//! whatever the index does not know yet.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;

use super::index::Archive;
use super::prepare;
use super::record::{Bodies, Head};
use super::segment::format::{self, BlockHead, FIRST, Kind};
use super::segment::group::{self, Groups, Ready, Rows};
use super::segment::reader::{Damage, Found, Scanned};
use super::segment::writer::Pace;
use super::shelf::Shelf;
use crate::blocking::blocking;
use crate::id::RequestId;
use crate::secret;
use crate::store::{
    CaptureIndex, CaptureRow, INDEX_STEP, OldCapture, Place, SegmentRow, StoreError,
};

/// What [`Archive::recover`] saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Bytes read of segments that were not closed.
    pub read: u64,
    /// Captures found there that the index did not know.
    pub found: usize,
    /// Captures that the index knew and that are not there: the loss of power.
    pub lost: usize,
    /// Segments that the index does not know at all.
    pub unknown: usize,
}

impl Archive {
    /// Makes index and segments agree on what was written last, before this process writes: reads what a segment that was not
    /// closed has beyond what the index knows to be durable, and cuts off its torn end. The rest is for [`Archive::catch_up`].
    pub async fn recover(&self) -> Result<Recovered, StoreError> {
        let archive = self.clone();
        let recovered = self.store.write_captures(move |index| archive.recover_now(index)).await;
        self.shared.unrecovered.store(recovered.is_err(), Ordering::Release);
        if recovered.is_err() {
            // Nobody can say what is there before that succeeds.
            self.shared.incomplete.store(true, Ordering::Release);
        }
        let recovered = recovered?;
        if recovered.read > 0 {
            let Recovered { read, found, lost, .. } = recovered;
            log::info!(
                "captures were not closed: {read} bytes read, {found} captures put into the index, {lost} taken out of it"
            );
        }
        Ok(recovered)
    }

    fn recover_now(&self, index: &mut CaptureIndex<'_>) -> Result<Recovered, StoreError> {
        let mut there = self.files()?;
        let (mut recovered, mut failed) = (Recovered::default(), None);
        if let Some(newest) = there.last() {
            self.lock().above(*newest);
        }
        let known = index.segments()?;
        let mut unknown: BTreeSet<i64> =
            there.iter().copied().filter(|number| !self.lock().writes(*number)).collect();
        known
            .iter()
            .filter(|row| !is_half_known(row))
            .for_each(|row| _ = unknown.remove(&row.number));
        for number in self.take_begun(&unknown) {
            unknown.remove(&number);
            there.remove(&number);
        }
        recovered.unknown = unknown.len();
        let is_gone = |row: &SegmentRow| !there.contains(&row.number);
        // A loss of power may keep what was done to files and not what the index was told of it.
        let replaced =
            if known.iter().any(is_gone) { self.replaced_by(&unknown)? } else { BTreeSet::new() };
        for row in known {
            if is_gone(&row) {
                let stands = replaced.contains(&row.number);
                if stands {
                    index.move_graves(row.number)?;
                }
                let lost = self.forget(index, row.number)?;
                if lost > 0 && !stands {
                    log::error!(
                        "segment {:016x} of captures is not there: {lost} captures are lost",
                        row.number
                    );
                    recovered.lost += lost;
                }
            } else if self.is_left(&row) {
                // One that cannot be read does not keep the others.
                failed = self.mend(index, row, &mut recovered).err().or(failed);
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        // A new index has the empty tables of before: there is nothing to wait for. Where they cannot go now, they go later.
        let old = index.has_old()?
            && index.forget_old(&[]).and_then(|()| index.has_old()).unwrap_or(true);
        let incomplete = recovered.unknown > 0 || old;
        self.shared.incomplete.store(incomplete, Ordering::Release);
        Ok(recovered)
    }

    /// Whether a segment was being written when its process ended, or could not be closed.
    pub(super) fn is_left(&self, row: &SegmentRow) -> bool {
        !row.sealed && !is_half_known(row) && !self.lock().writes(row.number)
    }

    /// The segments that these were made from and stand for.
    fn replaced_by(&self, numbers: &BTreeSet<i64>) -> Result<BTreeSet<i64>, StoreError> {
        let mut replaced = BTreeSet::new();
        for number in numbers {
            match self.make.open(*number) {
                Ok(segment) => _ = replaced.insert(segment.head().replaces),
                // It says nothing any more. That is told when it is to be read.
                Err(damage) if damage.is_absent() || matches!(damage, Damage::Bytes(_)) => {}
                Err(damage) => return Err(StoreError::unavailable(damage)),
            }
        }
        Ok(replaced)
    }

    /// Takes away those of these that were begun and never had a block: nothing is lost with them. Gives their numbers.
    fn take_begun(&self, unknown: &BTreeSet<i64>) -> Vec<i64> {
        let taken = unknown.iter().copied().filter(|number| {
            let path = format::path(&self.make.dir, *number);
            let begun = || {
                Ok::<_, std::io::Error>(
                    std::fs::metadata(&path)?.len() <= FIRST
                        && format::is_begun(&std::fs::read(&path)?),
                )
            };
            // One that cannot be looked at is left to those who read segments.
            begun().unwrap_or(false) && std::fs::remove_file(&path).is_ok()
        });
        taken.collect()
    }

    /// The numbers of the segments that are there. What was never finished goes.
    fn files(&self) -> Result<BTreeSet<i64>, StoreError> {
        let mut numbers = BTreeSet::new();
        let entries = match std::fs::read_dir(&self.make.dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(numbers),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.ends_with(".new") {
                std::fs::remove_file(entry.path())?;
            }
            numbers.extend(format::number(&name));
        }
        Ok(numbers)
    }

    /// Takes all of a segment out of the index; gives how many captures that were.
    fn forget(&self, index: &mut CaptureIndex<'_>, number: i64) -> Result<usize, StoreError> {
        let mut lost = 0;
        loop {
            let step = index.forget(number, INDEX_STEP)?;
            lost += step;
            if step < INDEX_STEP {
                index.forget_segment(number)?;
                return Ok(lost);
            }
        }
    }

    /// Closes a segment that was being written when its process ended.
    fn mend(
        &self,
        index: &mut CaptureIndex<'_>,
        mut row: SegmentRow,
        recovered: &mut Recovered,
    ) -> Result<(), StoreError> {
        let segment = match self.make.open(row.number) {
            Ok(segment) => segment,
            // No descriptor is left, or the disk does not answer: that says nothing of what it holds.
            Err(damage) if matches!(damage, Damage::Io(_)) && !damage.is_absent() => {
                return Err(StoreError::unavailable(damage));
            }
            Err(damage) => {
                self.report(row.number, 0, &damage);
                row.sealed = true;
                return index.put_segment(&row);
            }
        };
        let (mut rows, mut graves) = (Vec::new(), Vec::new());
        let from = row.synced.min(row.bytes).max(FIRST);
        let scanned = segment.scan(from, true, |found| {
            match found.head.kind {
                Kind::Rows => rows.extend(Rows::read(&segment, found.offset)?.placed(row.number)),
                Kind::Graves => graves.extend(group::read_graves(&segment, found.offset)?),
                Kind::Heads | Kind::Bodies | Kind::End => {}
            }
            Ok(())
        });
        let scanned = scanned.map_err(StoreError::unavailable)?;
        recovered.read += scanned.read;
        scanned.damaged.iter().for_each(|at| {
            self.report(row.number, *at, &Damage::Bytes("its bytes are not what was written"))
        });
        recovered.lost += index.cut(row.number, scanned.whole)?;
        let newest = rows
            .iter()
            .map(|(row, _)| row.created_at_us)
            .chain(graves.iter().map(|grave| grave.at_us))
            .max();
        row.newest_us = row.newest_us.max(newest.unwrap_or(i64::MIN));
        let graves: Vec<(RequestId, i64)> =
            graves.into_iter().map(|grave| (grave.id, grave.at_us)).collect();
        index.bury(None, &graves)?;
        let before: usize = rows
            .iter()
            .map(|(row, _)| index.holds(&row.id).map(usize::from))
            .sum::<Result<_, _>>()?;
        recovered.found += rows.len() - before;
        if scanned.whole <= FIRST {
            std::fs::remove_file(format::path(&self.make.dir, row.number))?;
            return index.forget_segment(row.number);
        }
        row.bytes = self.end(row.number, &scanned)?;
        (row.synced, row.sealed) = (row.bytes, true);
        let pace = Pace::beside();
        index.append(&row, &rows, || _ = pace.give_way())
    }

    /// The same for those that this process could not close.
    pub(super) fn mend_left(&self, index: &mut CaptureIndex<'_>) -> Result<(), StoreError> {
        let mut failed = None;
        for row in index.segments()? {
            if self.is_left(&row) {
                failed = self.mend(index, row, &mut Recovered::default()).err().or(failed);
            }
        }
        if self.lock().has_left() {
            // Perhaps one that is not among these.
            self.shared.half_done.store(true, Ordering::Release);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Cuts off what is torn and writes the end that is missing. Gives the length then.
    fn end(&self, number: i64, scanned: &Scanned) -> Result<u64, StoreError> {
        let file =
            std::fs::File::options().write(true).open(format::path(&self.make.dir, number))?;
        let mut length = scanned.whole;
        self.make.faults.before_sync()?;
        file.set_len(length)?;
        if !scanned.ended {
            let end = BlockHead {
                kind: Kind::End,
                compressed: false,
                sealed: false,
                count: 0,
                raw: 0,
                stored: 0,
                number: u64::MAX,
                sum: 0,
            };
            file.write_all_at(&end.encode(number, length), length)?;
            length = end.end(length);
        }
        file.sync_all()?;
        Ok(length)
    }

    /// Tells the index of segments that it does not know, and moves captures from before there were segments into some. Until
    /// that is done, lists are not complete, and a capture that is not found is not said to be absent.
    pub async fn catch_up(&self) -> Result<(), StoreError> {
        let _alone = self.shared.rebuilding.lock().await;
        self.catch_up_alone().await
    }

    /// The same for who has `rebuilding`.
    pub(super) async fn catch_up_alone(&self) -> Result<(), StoreError> {
        if self.shared.unrecovered.load(Ordering::Acquire) {
            self.recover().await?;
        }
        if !self.shared.incomplete.load(Ordering::Acquire) {
            return Ok(());
        }
        let unknown = self.unknown().await?;
        if !unknown.is_empty() {
            log::warn!(
                "the index of captures does not know {} segments: it is told now, lists are incomplete meanwhile",
                unknown.len()
            );
        }
        let unknown = self.without_replaced(unknown).await?;
        // What was deleted comes before all captures: without that, one of them would be back.
        for number in &unknown {
            self.learn_graves(*number).await?;
        }
        let (mut found, mut failed) = (0, None);
        for number in unknown.iter().rev() {
            match self.learn(*number).await {
                Ok(learnt) => found += learnt,
                // One that cannot be read does not keep the others.
                Err(error) => failed = Some(error),
            }
        }
        let moved = self.move_old().await?;
        if let Some(error) = failed {
            return Err(error);
        }
        self.store.write_captures(|index| index.forget_empty_graves()).await?;
        self.shared.incomplete.store(false, Ordering::Release);
        log::info!(
            "the index of captures is complete: {found} captures from {} segments, {moved} from the store before",
            unknown.len()
        );
        Ok(())
    }

    /// The same until it succeeds.
    pub async fn catch_up_at_last(&self) {
        while let Err(error) = self.catch_up().await {
            log::warn!("the index of captures is not complete, trying again: {error}");
            tokio::time::sleep(RETRY).await;
        }
        self.store.captures_complete();
    }

    /// The segments that are there and not in the index, or not whole.
    pub(super) async fn unknown(&self) -> Result<Vec<i64>, StoreError> {
        let archive = self.clone();
        self.store
            .write_captures(move |index| {
                let (mut there, shelf) = (archive.files()?, archive.lock());
                for row in index.segments()?.iter().filter(|row| !is_half_known(row)) {
                    there.remove(&row.number);
                }
                there.retain(|number| !shelf.writes(*number));
                Ok(there.into_iter().collect())
            })
            .await
    }

    /// Takes segments away that others stand for: a process ended between the two.
    async fn without_replaced(&self, mut unknown: Vec<i64>) -> Result<Vec<i64>, StoreError> {
        if unknown.is_empty() {
            return Ok(unknown);
        }
        let archive = self.clone();
        let replaced = blocking(move || {
            let there = archive.files()?;
            Ok::<_, StoreError>(
                archive.replaced_by(&there)?.intersection(&there).copied().collect::<Vec<_>>(),
            )
        });
        for number in replaced.await?? {
            unknown.retain(|known| *known != number);
            self.store.write_captures(move |index| index.move_graves(number)).await?;
            self.remove(number).await?;
        }
        Ok(unknown)
    }

    /// Before any capture comes into the index: which of them were deleted.
    async fn learn_graves(&self, number: i64) -> Result<(), StoreError> {
        let archive = self.clone();
        let read = blocking(move || {
            let mut graves = Vec::new();
            let segment = archive.segment(number)?;
            segment.scan(FIRST, false, |found| {
                if found.head.kind == Kind::Graves {
                    graves.extend(group::read_graves(&segment, found.offset)?);
                }
                Ok(())
            })?;
            Ok::<_, Damage>(graves)
        });
        match read.await? {
            Ok(graves) if graves.is_empty() => Ok(()),
            Ok(graves) => {
                let graves: Vec<(RequestId, i64)> =
                    graves.into_iter().map(|grave| (grave.id, grave.at_us)).collect();
                self.store.write_captures(move |index| index.bury(None, &graves)).await
            }
            // It was reported when it was opened.
            Err(Damage::Bytes(_)) => Ok(()),
            Err(damage) => Err(StoreError::unavailable(damage)),
        }
    }

    /// Tells the index of one segment; gives how many captures are in it.
    async fn learn(&self, number: i64) -> Result<usize, StoreError> {
        let (rows, mut steps) = mpsc::channel(1);
        let archive = self.clone();
        let reading = blocking(move || archive.read_rows(number, &rows));
        let mut row = half_known(number);
        let mut count = 0;
        while let Some(step) = steps.recv().await {
            count += step.len();
            row.newest_us = step
                .iter()
                .map(|(row, _)| row.created_at_us)
                .max()
                .unwrap_or(i64::MIN)
                .max(row.newest_us);
            let row = row.clone();
            let append = move |index: &mut CaptureIndex<'_>| {
                let pace = Pace::beside();
                index.append(&row, &step, || _ = pace.give_way())
            };
            self.store.write_captures(append).await?;
        }
        let (scanned, deleted_us) = match reading.await? {
            Ok(read) => read,
            Err(Damage::Bytes(_)) => return Ok(0),
            Err(damage) => return Err(StoreError::unavailable(damage)),
        };
        let archive = self.clone();
        // What says that captures were deleted stays as long as they would have.
        row.newest_us = row.newest_us.max(deleted_us);
        let learnt = move |index: &mut CaptureIndex<'_>| {
            row.bytes = archive.end(number, &scanned)?;
            (row.synced, row.sealed) = (row.bytes, true);
            index.put_segment(&row)
        };
        self.store.write_captures(learnt).await.map(|()| count)
    }

    /// Reads the rows of a segment, in steps. Gives when the last of its deletions was too, or the least there is.
    fn read_rows(
        &self,
        number: i64,
        to: &mpsc::Sender<Vec<(CaptureRow, Place)>>,
    ) -> Result<(Scanned, i64), Damage> {
        let segment = self.segment(number)?;
        let verify = !segment.has_ended()?;
        let (mut step, mut groups, mut deleted_us) = (Vec::new(), Groups::default(), i64::MIN);
        // Nobody reads any more: then nobody asks what was found either.
        let send = |step: &mut Vec<_>| _ = to.blocking_send(std::mem::take(step));
        let scanned = segment.scan(FIRST, verify, |found| {
            groups.found(&found);
            let Found { offset, head } = found;
            if head.kind == Kind::Rows {
                let rows = Rows::read(&segment, offset)
                    .inspect_err(|damage| self.report(number, offset, damage))?;
                groups.told(rows.heads);
                step.extend(rows.placed(number));
                if step.len() >= INDEX_STEP {
                    send(&mut step);
                }
            } else if head.kind == Kind::Graves {
                let newest =
                    group::read_graves(&segment, offset)?.iter().map(|grave| grave.at_us).max();
                deleted_us = deleted_us.max(newest.unwrap_or(i64::MIN));
            }
            Ok(())
        })?;
        // Where rows are damaged the heads say the same.
        for (heads, bodies) in groups.untold(scanned.whole) {
            match Rows::of_heads(&segment, heads, bodies) {
                Ok(rows) => step.extend(rows.placed(number)),
                Err(damage) => self.report(number, heads, &damage),
            }
        }
        send(&mut step);
        Ok((scanned, deleted_us))
    }

    /// Moves captures that the store kept in tables, the newest first; gives how many.
    async fn move_old(&self) -> Result<usize, StoreError> {
        // In segments of their own: they are older than what is written now, and leave before it.
        let shelf = Arc::new(std::sync::Mutex::new(Shelf::new(self.make.clone())));
        let mut moved = 0;
        loop {
            let (archive, shelf) = (self.clone(), Arc::clone(&shelf));
            let step = move |index: &mut CaptureIndex<'_>| {
                let mut shelf = shelf.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                if !index.has_old()? {
                    shelf.close(index)?;
                    return Ok(None);
                }
                let old = index.old(OLD_STEP)?;
                let ids: Vec<RequestId> = old.iter().map(|old| old.row.id.clone()).collect();
                let ready: Vec<Ready> =
                    old.into_iter().filter_map(|old| archive.ready_from(old)).collect();
                if !ready.is_empty() {
                    shelf.append(index, ready, Pace::beside())?;
                    shelf.sync(index)?;
                }
                index.forget_old(&ids)?;
                Ok(Some(ids.len()))
            };
            match self.store.write_captures(step).await? {
                Some(step) => moved += step,
                None => return Ok(moved),
            }
        }
    }

    /// What is written of such a capture; its bodies are left out where they do not open.
    fn ready_from(&self, old: OldCapture) -> Option<Ready> {
        let id = old.row.id.clone();
        let Ok(mut head) = serde_json::from_slice::<Head>(&old.head) else {
            log::error!("the head of {id} does not read: it is left out");
            return None;
        };
        let bodies = old
            .bodies
            .as_ref()
            .and_then(|kept| self.make.keys.iter().find_map(|key| open_old(key, &id, kept)));
        if bodies.is_none() && head.request_captured {
            log::error!(
                "the bodies of {id} are not there or do not open, and are left out: it cannot be replayed"
            );
            head.request_captured = false;
        }
        prepare::of(&head, bodies.unwrap_or_default())
    }
}

/// What the index says of a segment while it is being told of it: nothing that is written into a segment is so short.
fn half_known(number: i64) -> SegmentRow {
    SegmentRow { number, sealed: false, newest_us: i64::MIN, bytes: FIRST, synced: FIRST }
}

/// Whether the index was told of a segment in part only.
fn is_half_known(row: &SegmentRow) -> bool {
    !row.sealed && row.bytes <= FIRST
}

/// How long a start that could not finish waits before it tries again.
const RETRY: Duration = Duration::from_secs(5);
/// Captures of the store before that one job moves; their bodies are megabytes at times.
const OLD_STEP: usize = 32;

/// Bodies as they were kept in the store: a byte that says whether they are sealed, then a version, two lengths and both.
fn open_old(key: &secret::SecretBytes, id: &RequestId, kept: &[u8]) -> Option<Bodies> {
    let plain = match kept.split_first()? {
        (1, sealed) => secret::open(key, id.as_str().as_bytes(), sealed)?,
        (0, plain) => plain.to_vec(),
        _ => return None,
    };
    let (version, rest) = plain.split_first()?;
    let (request, rest) = rest.split_first_chunk::<8>()?;
    let (response, rest) = rest.split_first_chunk::<8>()?;
    let [request, response] =
        [request, response].map(|length| usize::try_from(u64::from_be_bytes(*length)).ok());
    if *version != 1 || request?.checked_add(response?)? != rest.len() {
        return None;
    }
    let (request, response) = rest.split_at_checked(request?)?;
    Some(Bodies { request: request.to_vec().into(), response: response.to_vec().into() })
}

#[cfg(test)]
#[path = "restore_tests.rs"]
mod tests;
