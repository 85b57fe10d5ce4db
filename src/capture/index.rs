//! The archive of captures: whole in segments, sealed block by block, and found by the store's index of them.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::prepare;
use super::record::{Bodies, Capture, Head};
use super::redact::Redactor;
use super::segment::group::{Parts, Rows};
use super::segment::reader::{Damage, Segment};
use super::segment::writer::{Effort, Pace};
use super::shelf::{Make, Shelf};
use crate::blocking::blocking;
use crate::bounds;
use crate::clock::Clock;
use crate::error::Error;
use crate::id::{Random, RequestId, UserId};
use crate::metrics::Metrics;
use crate::secret::{Keyring, Purpose};
use crate::store::{CaptureFilter, Faults, PanicPoint, Place, Store, StoreError};

/// Where captures are kept. Cloning is cheap.
///
/// What is appended is in its file, beyond the end of this process, when that returns; a second later it survives the loss of
/// power too ([`bounds::CAPTURE_SYNC`]).
#[derive(Clone)]
pub struct Archive {
    pub(super) store: Store,
    pub(super) make: Make,
    pub(super) shelf: Arc<Mutex<Shelf>>,
    pub(super) shared: Arc<Shared>,
    redactor: Arc<Redactor>,
    metrics: Option<Metrics>,
}

/// What clones of an archive share beside the segment that is written to.
#[derive(Default)]
pub(super) struct Shared {
    /// Segments that were read from.
    segments: Mutex<Opened>,
    /// Damaged blocks that were reported.
    damaged: Mutex<HashSet<(i64, u64)>>,
    /// The index does not know all segments yet.
    pub(super) incomplete: AtomicBool,
    /// What the last process wrote last was not looked through: that failed.
    pub(super) unrecovered: AtomicBool,
    /// Held by who makes the index complete, or segments anew: one takes for unfinished what the other is about to finish.
    pub(super) rebuilding: tokio::sync::Mutex<()>,
    /// Something was written that might not survive the loss of power.
    unsynced: AtomicBool,
    /// Rows were deleted that may still be in the index's write-ahead log.
    pub(super) log_to_empty: AtomicBool,
    /// A segment that was made anew is in the place of another in part only, or one was left of which the index may know nothing.
    pub(super) half_done: AtomicBool,
}

/// Segments that are open to be read.
#[derive(Default)]
struct Opened {
    open: HashMap<i64, Arc<Segment>>,
    /// How many were let go of: one that was opened before the last of them may have left since.
    gone: u64,
}

/// A page of heads, newest first.
pub struct Page {
    /// The heads that can be read.
    pub heads: Vec<Head>,
    /// Where each of them is, for [`Archive::bodies`].
    pub places: Vec<Place>,
    /// Captures that belong here and cannot be read.
    pub unreadable: usize,
    /// What the next page is after, if there may be one.
    pub next: Option<RequestId>,
}

/// The block of bodies that was read last: captures that were made together lie together, so it is opened once for them all.
#[derive(Default)]
pub struct LastBlock(Option<(i64, u64, Parts)>);

impl Archive {
    /// An archive in `store` and beside it, sealed under the keys of this keyring. `encrypt` concerns what is written from now
    /// on; either kind is read.
    pub fn new(store: Store, keys: impl Into<Keyring>, random: Random, encrypt: bool) -> Self {
        let make = Make {
            dir: store.dir().join("captures"),
            keys: [keys.into().derive(Purpose::Captures, b"")].into(),
            random,
            encrypt,
            clock: Clock::System,
            bytes: bounds::SEGMENT_BYTES,
            age: bounds::SEGMENT_AGE,
            faults: store.faults().clone(),
        };
        let shelf = Arc::new(Mutex::new(Shelf::new(make.clone())));
        Archive {
            store,
            make,
            shelf,
            shared: Arc::default(),
            redactor: Arc::default(),
            metrics: None,
        }
    }

    /// The same before anything is written, with another clock.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        let make = Make { clock, ..self.make.clone() };
        self.remade(make)
    }

    /// The same before anything is written, for captures to be kept so long and while they have so many bytes: segments are
    /// small enough to follow that.
    #[must_use]
    pub fn kept_for(self, age: Duration, size: u64) -> Self {
        let share = u64::from(bounds::SEGMENT_SHARE);
        let bytes = (size / share).clamp(bounds::SEGMENT_BYTES_LEAST, bounds::SEGMENT_BYTES);
        let age = (age / bounds::SEGMENT_SHARE).clamp(bounds::CAPTURE_SYNC, bounds::SEGMENT_AGE);
        let make = Make { bytes, age, ..self.make.clone() };
        self.remade(make)
    }

    /// The same, with this taken out of what is written.
    #[must_use]
    pub fn redacting(self, redactor: Redactor) -> Self {
        Archive { redactor: Arc::new(redactor), ..self }
    }

    /// The same, with damage counted there.
    #[must_use]
    pub fn counting(self, metrics: Metrics) -> Self {
        Archive { metrics: Some(metrics), ..self }
    }

    fn remade(self, make: Make) -> Self {
        Archive { shelf: Arc::new(Mutex::new(Shelf::new(make.clone()))), make, ..self }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a batch, all or none, and tells how many that is: one that cannot be written out is left out.
    pub async fn append(&self, captures: Arc<Vec<Capture>>) -> Result<usize, StoreError> {
        self.append_with(captures, Effort::Usual).await
    }

    /// The same with so much effort, or at this pace.
    pub async fn append_with(
        &self,
        captures: Arc<Vec<Capture>>,
        pace: impl Into<Pace>,
    ) -> Result<usize, StoreError> {
        let (archive, pace) = (self.clone(), pace.into());
        self.store
            .write_captures(move |index| {
                archive.unsynced();
                let ready = captures.iter().filter_map(|capture| {
                    pace.give_way();
                    // A mistake that we make with one is no other's end.
                    archive.guarded(|| {
                        archive.make.faults.pass(PanicPoint::Ready);
                        prepare::ready(capture, &archive.redactor)
                    })?
                });
                let written = archive.guarded(|| {
                    archive.make.faults.pass(PanicPoint::Append);
                    archive.lock().append(index, ready, pace)
                });
                // What it wrote to is left as after a crash, read again and closed.
                written.unwrap_or_else(|| {
                    Err(StoreError::unavailable("a panic where captures are written"))
                })
            })
            .await
    }

    /// `None` where `work` panicked, which is counted.
    fn guarded<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let done = catch_unwind(AssertUnwindSafe(work));
        if let (Err(_), Some(metrics)) = (&done, &self.metrics) {
            metrics.panic();
        }
        done.ok()
    }

    /// Where tests make what writes captures fail.
    pub(super) fn faults(&self) -> &Faults {
        &self.make.faults
    }

    /// What is taken out of captures before they are written.
    pub(super) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Notes that something is written which may not survive the loss of power yet.
    pub(super) fn unsynced(&self) {
        self.shared.unsynced.store(true, Ordering::Release);
    }

    /// Whether the index does not know all segments yet.
    fn is_incomplete(&self) -> bool {
        self.shared.incomplete.load(Ordering::Acquire)
    }

    /// 503 while the index does not know all segments yet: for what has to look at every capture.
    pub fn check_complete(&self) -> Result<(), Error> {
        if self.is_incomplete() { Err(Error::store_unavailable(INCOMPLETE)) } else { Ok(()) }
    }

    /// Makes everything that was appended survive the loss of power. Costs nothing when it does.
    pub async fn sync(&self) -> Result<(), StoreError> {
        if !self.shared.unsynced.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let archive = self.clone();
        let synced = self.store.write_captures(move |index| archive.lock().sync(index)).await;
        if synced.is_err() {
            self.shared.unsynced.store(true, Ordering::Release);
        }
        synced
    }

    /// Closes the segment that is written to: all of it is durable then, and a start after it has nothing to look at.
    pub async fn close(&self) -> Result<(), StoreError> {
        let archive = self.clone();
        self.store.write_captures(move |index| archive.lock().close(index)).await
    }

    /// Heads, newest first, older than `after`, up to `limit`. A page may be shorter than that although more follow.
    pub async fn page(
        &self,
        filter: CaptureFilter,
        limit: usize,
        after: Option<RequestId>,
    ) -> Result<Page, Error> {
        let mut tried = false;
        loop {
            let page = self
                .store
                .list_captures(filter.clone(), limit, after.clone())
                .await
                .map_err(Error::store_unavailable)?;
            let (archive, asked) = (self.clone(), page.found.len());
            let read = blocking(move || archive.read_heads(&page.found)).await;
            let (read, moved) = read?;
            // A segment may leave or be made anew between the two; then the index knows by now.
            if !moved || tried {
                // Those of a segment that left meanwhile are over their age.
                let unreadable = if moved { 0 } else { asked.saturating_sub(read.len()) };
                let (heads, places) = read.into_iter().unzip();
                return Ok(Page { heads, places, unreadable, next: page.next });
            }
            tried = true;
        }
    }

    /// The heads of such a page.
    pub async fn list(
        &self,
        filter: CaptureFilter,
        limit: usize,
        after: Option<RequestId>,
    ) -> Result<Vec<Head>, Error> {
        Ok(self.page(filter, limit, after).await?.heads)
    }

    /// The bodies of a capture of a page, for a thread that may wait; `None` where there are none, or no more. Of many it is
    /// asked in the order of the page.
    pub fn bodies(&self, place: Place, last: &mut LastBlock) -> Option<Bodies> {
        let at = place.bodies?;
        if last
            .0
            .as_ref()
            .is_none_or(|(segment, block, _)| (*segment, *block) != (place.segment, at))
        {
            let parts = self.segment(place.segment).and_then(|segment| Parts::bodies(&segment, at));
            let parts = parts.inspect_err(|damage| self.report(place.segment, at, damage)).ok()?;
            last.0 = Some((place.segment, at, parts));
        }
        last.0.as_ref()?.2.bodies_at(place.position)
    }

    /// One capture, whole.
    pub async fn get(&self, id: &RequestId) -> Result<Option<Capture>, Error> {
        let mut tried = false;
        loop {
            let Some(place) =
                self.store.locate_capture(id).await.map_err(Error::store_unavailable)?
            else {
                return self.absent();
            };
            let (archive, wanted) = (self.clone(), id.clone());
            let read = blocking(move || archive.read(&wanted, place)).await;
            match read? {
                Ok(capture) => return Ok(Some(capture)),
                Err(damage) if damage.is_absent() && !tried => tried = true,
                Err(damage) => {
                    return Err(Error::internal(format!("capture {id} cannot be read: {damage}")));
                }
            }
        }
    }

    /// Whose a capture is, if it is there.
    pub async fn owner(&self, id: &RequestId) -> Result<Option<UserId>, Error> {
        match self.store.capture_owner(id).await.map_err(Error::store_unavailable)? {
            None => self.absent(),
            found => Ok(found),
        }
    }

    /// While the index is being made again, what it does not know may still be there.
    fn absent<T>(&self) -> Result<Option<T>, Error> {
        self.check_complete().map(|()| None)
    }

    /// Deletes a capture, and its replays with theirs if so asked. Durable and unreadable when it returns; its bytes leave
    /// the disk when its segment is [made anew](Archive::tend). Gives the replays that went.
    pub async fn delete(&self, id: &RequestId, replays: bool) -> Result<Vec<RequestId>, Error> {
        self.delete_of(id, replays, None).await
    }

    /// The same; of its replays and theirs only this owner's, where one is given.
    pub async fn delete_of(
        &self,
        id: &RequestId,
        replays: bool,
        owner: Option<UserId>,
    ) -> Result<Vec<RequestId>, Error> {
        self.check_complete()?;
        let (archive, id) = (self.clone(), id.clone());
        let delete = self.store.write_captures(move |index| {
            let (mut shelf, mut gone) = (archive.lock(), Vec::new());
            archive.shared.log_to_empty.store(true, Ordering::Release);
            // The deepest first, so that what is left when a step fails is still found from the first capture.
            let mut step = if replays {
                index.family(&id, owner.as_ref(), bounds::RETENTION_BATCH)?
            } else {
                Vec::new()
            };
            while !step.is_empty() {
                shelf.bury(index, &step)?;
                gone.append(&mut step);
                step = index.family(&id, owner.as_ref(), bounds::RETENTION_BATCH)?;
            }
            if index.holds(&id)? {
                shelf.bury(index, std::slice::from_ref(&id))?;
            }
            Ok(gone)
        });
        delete.await.map_err(Error::store_unavailable)
    }

    /// The heads that can be read, and whether a segment was not there.
    fn read_heads(&self, found: &[(RequestId, Place)]) -> (Vec<(Head, Place)>, bool) {
        let mut by_block: Vec<(usize, &(RequestId, Place))> = found.iter().enumerate().collect();
        // A block is opened once, however those that it holds are scattered among others.
        by_block.sort_by_key(|(_, (_, place))| (place.segment, place.heads));
        let (mut heads, mut moved) = (Vec::with_capacity(found.len()), false);
        let mut block: Option<(i64, u64, Result<Parts, Damage>)> = None;
        for (at, (id, place)) in by_block {
            if block
                .as_ref()
                .is_none_or(|(segment, at, _)| (*segment, *at) != (place.segment, place.heads))
            {
                let parts = self
                    .segment(place.segment)
                    .and_then(|segment| Parts::heads(&segment, place.heads));
                if let Err(damage) = &parts {
                    self.report(place.segment, place.heads, damage);
                }
                block = Some((place.segment, place.heads, parts));
            }
            match block.as_ref().map(|(_, _, parts)| parts) {
                Some(Ok(parts)) => match read_head(id, parts, *place) {
                    Ok(head) => heads.push((at, (head, *place))),
                    Err(damage) => self.report(place.segment, place.heads, &damage),
                },
                Some(Err(damage)) => moved |= damage.is_absent(),
                None => {}
            }
        }
        heads.sort_unstable_by_key(|(at, _)| *at);
        (heads.into_iter().map(|(_, head)| head).collect(), moved)
    }

    fn read(&self, id: &RequestId, place: Place) -> Result<Capture, Damage> {
        let segment = self.segment(place.segment)?;
        let reported = |at: u64| {
            move |damage: Damage| {
                self.report(place.segment, at, &damage);
                damage
            }
        };
        let heads = Parts::heads(&segment, place.heads).map_err(reported(place.heads))?;
        let head = read_head(id, &heads, place).map_err(reported(place.heads))?;
        let bodies = match place.bodies {
            // What leads to them is damaged as well.
            None if head.request_captured && !Rows::tell_of_no_bodies(&segment, place.heads) => {
                return Err(Damage::Bytes(LOST)).map_err(reported(place.heads));
            }
            None => Bodies::default(),
            Some(at) => {
                let bodies = Parts::bodies(&segment, at).map_err(reported(at))?;
                bodies
                    .bodies_at(place.position)
                    .ok_or(Damage::Bytes("it holds fewer bodies"))
                    .map_err(reported(at))?
            }
        };
        Ok(Capture { head, bodies })
    }

    /// A segment, open to be read.
    pub(super) fn segment(&self, number: i64) -> Result<Arc<Segment>, Damage> {
        let gone = {
            let segments = self.opened();
            if let Some(open) = segments.open.get(&number) {
                return Ok(open.clone());
            }
            segments.gone
        };
        let opened = self.make.open(number).inspect_err(|damage| self.report(number, 0, damage))?;
        let opened = Arc::new(opened);
        self.keep_open(number, &opened, gone);
        Ok(opened)
    }

    fn opened(&self) -> MutexGuard<'_, Opened> {
        self.shared.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a segment open that was opened when so many had gone. Not if one more has: it might be this one, and its bytes
    /// would never leave the disk.
    fn keep_open(&self, number: i64, opened: &Arc<Segment>, gone: u64) {
        let mut segments = self.opened();
        if segments.gone != gone {
            return;
        }
        if segments.open.len() >= bounds::SEGMENTS_OPEN
            && let Some(oldest) = segments.open.keys().min().copied()
        {
            segments.open.remove(&oldest);
        }
        segments.open.insert(number, opened.clone());
    }

    /// Lets go of a segment that has left, so that the disk gets its bytes back.
    pub(super) fn let_go(&self, number: i64) {
        let mut segments = self.opened();
        segments.gone += 1;
        segments.open.remove(&number);
    }

    /// Says once that a block is damaged.
    pub(super) fn report(&self, segment: i64, at: u64, damage: &Damage) {
        if damage.is_absent() {
            return;
        }
        let mut damaged = self.shared.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        if damaged.len() < bounds::DAMAGED_BLOCKS && damaged.insert((segment, at)) {
            log::error!(
                "captures are lost in segment {segment:016x}, in the block at {at}: {damage}"
            );
            if let Some(metrics) = &self.metrics {
                metrics.capture_block_damaged();
            }
        }
    }
}

/// What is said while the index does not know all.
const INCOMPLETE: &str = "the index of captures is being made again";
/// What is said of bodies that nothing leads to.
const LOST: &str = "its bodies are not there";

fn read_head(id: &RequestId, parts: &Parts, place: Place) -> Result<Head, Damage> {
    let head = parts.head(place.position).ok_or(Damage::Bytes("it holds fewer heads"))?;
    let head = serde_json::from_slice::<Head>(&head)
        .map_err(|_| Damage::Bytes("a head of it does not read"))?;
    if head.version > Head::VERSION {
        return Err(Damage::Bytes("a head of it was written by a newer build"));
    }
    if head.id == *id { Ok(head) } else { Err(Damage::Bytes("it holds another capture there")) }
}

#[cfg(test)]
#[path = "index_tests.rs"]
pub(crate) mod tests;
