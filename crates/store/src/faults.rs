//! Failures on demand, for tests of full and hanging disks and of panics. They are switches of a
//! store, not a build flag, so the tested code is the released code. They wrap the work that is
//! passed to the databases; no database knows of them.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::sql::{Transaction, Work};
use super::{Result, StoreError};

/// A place in a request, or in background work, that can be made to panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PanicPoint {
    /// After authentication, before the handler of any interface.
    Entry,
    /// Before the routing decision.
    Decision,
    /// At the start of an attempt, in a hook of the proxy.
    Attempt,
    /// After the head of a provider's response, in a hook of the proxy.
    Head,
    /// In a response of which the client has a part already.
    Content,
    /// In background work: before spend and usage are written.
    Usage,
    /// On the thread that writes accounts, before the commit.
    Commit,
    /// In background work: at the start of a round of the capture writer.
    Round,
    /// On the thread that writes captures, before one is prepared.
    Ready,
    /// On the same thread, before a batch is written.
    Append,
    /// On the same thread, after a batch is in its file and before the index knows it.
    Written,
}

impl PanicPoint {
    pub const ALL: [PanicPoint; 11] = [
        PanicPoint::Entry,
        PanicPoint::Decision,
        PanicPoint::Attempt,
        PanicPoint::Head,
        PanicPoint::Content,
        PanicPoint::Usage,
        PanicPoint::Commit,
        PanicPoint::Round,
        PanicPoint::Ready,
        PanicPoint::Append,
        PanicPoint::Written,
    ];
}

/// Switches shared by a test and the store that it tests.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Switches>);

#[derive(Debug, Default)]
struct Switches {
    writes_spared: AtomicU32,
    writes_left: AtomicU32,
    answers_left: AtomicU32,
    appends_left: AtomicU32,
    every_write: AtomicBool,
    every_read: AtomicBool,
    accounts_full: AtomicBool,
    writes_stalled: Mutex<bool>,
    disk_full: AtomicBool,
    /// One more than the bytes that the next write into a segment writes; 0 if it writes all.
    torn_at: AtomicUsize,
    syncs_left: AtomicU32,
    panics: [AtomicU32; PanicPoint::ALL.len()],
    message: Mutex<String>,
    stalled: Mutex<bool>,
    hanging: AtomicU32,
    released: Condvar,
    writes_released: Condvar,
}

impl Faults {
    /// The next `count` mutations of accounts fail.
    pub fn fail_writes(&self, count: u32) {
        self.0.writes_left.store(count, Ordering::Release);
    }

    /// After `spared` mutations of accounts, the next one fails.
    pub fn fail_write_after(&self, spared: u32) {
        self.0.writes_spared.store(spared, Ordering::Release);
        self.fail_writes(1);
    }

    /// The next `count` writes of accounts, other than mutations, happen but are reported as
    /// failed.
    #[cfg(any(test, feature = "testing"))]
    pub fn lose_answers(&self, count: u32) {
        self.0.answers_left.store(count, Ordering::Release);
    }

    /// Every mutation of accounts fails until [`Faults::clear`].
    pub fn fail_every_write(&self) {
        self.0.every_write.store(true, Ordering::Release);
    }

    /// Every read of accounts and of the index of captures fails until [`Faults::clear`], except
    /// those of a start.
    pub fn fail_every_read(&self) {
        self.0.every_read.store(true, Ordering::Release);
    }

    /// Every mutation of accounts finds the disk full until [`Faults::clear`].
    pub fn fill_accounts(&self) {
        self.0.accounts_full.store(true, Ordering::Release);
    }

    /// Mutations of accounts hang until [`Faults::clear`].
    pub fn stall_writes(&self) {
        *self.0.writes_stalled.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    pub fn fail_appends(&self, count: u32) {
        self.0.appends_left.store(count, Ordering::Release);
    }

    /// Every append of captures finds the disk full until [`Faults::clear`].
    pub fn fill_disk(&self) {
        self.0.disk_full.store(true, Ordering::Release);
    }

    /// The next write into a segment fails after this many bytes.
    pub fn tear_write(&self, bytes: usize) {
        self.0.torn_at.store(bytes.saturating_add(1), Ordering::Release);
    }

    pub fn fail_syncs(&self, count: u32) {
        self.0.syncs_left.store(count, Ordering::Release);
    }

    pub fn panic_at(&self, point: PanicPoint, count: u32, message: &str) {
        message.clone_into(&mut self.0.message.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(left) = self.0.panics.get(point as usize) {
            left.store(count, Ordering::Release);
        }
    }

    /// Appends of captures hang until [`Faults::clear`].
    pub fn stall_appends(&self) {
        *self.0.stalled.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// How many appends and deletions of captures hang.
    pub fn hanging(&self) -> u32 {
        self.0.hanging.load(Ordering::Acquire)
    }

    pub fn clear(&self) {
        self.0.writes_spared.store(0, Ordering::Release);
        self.0.writes_left.store(0, Ordering::Release);
        self.0.answers_left.store(0, Ordering::Release);
        self.0.appends_left.store(0, Ordering::Release);
        self.0.every_write.store(false, Ordering::Release);
        self.0.every_read.store(false, Ordering::Release);
        self.0.accounts_full.store(false, Ordering::Release);
        self.0.disk_full.store(false, Ordering::Release);
        self.0.torn_at.store(0, Ordering::Release);
        self.0.syncs_left.store(0, Ordering::Release);
        self.0.panics.iter().for_each(|left| left.store(0, Ordering::Release));
        *self.0.stalled.lock().unwrap_or_else(PoisonError::into_inner) = false;
        *self.0.writes_stalled.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.released.notify_all();
        self.0.writes_released.notify_all();
    }

    /// Whether every write fails. A health check uses this, so that it uses up no counted failure.
    pub(super) fn broken(&self) -> bool {
        self.0.every_write.load(Ordering::Acquire)
    }

    /// Wraps the `work` of a write. It fails as the switches say: before the work, or at its end,
    /// before the commit.
    pub(super) fn writing<T: 'static>(self, work: impl Work<T>) -> impl Work<T> {
        move |transaction: &Transaction<'_>| {
            self.before_write()?;
            let done = work(transaction)?;
            self.pass(PanicPoint::Commit);
            Ok(done)
        }
    }

    pub(super) fn appending<T: 'static>(self, work: impl Work<T>) -> impl Work<T> {
        move |transaction: &Transaction<'_>| {
            self.before_append()?;
            work(transaction)
        }
    }

    pub(super) fn reading<T: 'static>(self, work: impl Work<T>) -> impl Work<T> {
        move |transaction: &Transaction<'_>| {
            self.before_read()?;
            work(transaction)
        }
    }

    fn before_write(&self) -> Result<()> {
        let mut stalled = self.0.writes_stalled.lock().unwrap_or_else(PoisonError::into_inner);
        while *stalled {
            stalled = self.0.writes_released.wait(stalled).unwrap_or_else(PoisonError::into_inner);
        }
        drop(stalled);
        if self.0.accounts_full.load(Ordering::Acquire) {
            return Err(StoreError::Full("on demand".into()));
        }
        let fails = || !spend(&self.0.writes_spared) && spend(&self.0.writes_left);
        if self.broken() || fails() {
            Err(StoreError::Unavailable("write failed on demand".into()))
        } else {
            Ok(())
        }
    }

    /// Called after a write that has happened; an error hides its success.
    pub(super) fn answer_write(&self) -> Result<()> {
        match spend(&self.0.answers_left) {
            true => Err(StoreError::Unavailable("the answer was lost on demand".into())),
            false => Ok(()),
        }
    }

    /// Called on the thread of a connection, before a read.
    pub(super) fn before_read(&self) -> Result<()> {
        if self.0.every_read.load(Ordering::Acquire) {
            Err(StoreError::Unavailable("read failed on demand".into()))
        } else {
            Ok(())
        }
    }

    /// Number of bytes after which the next write into a segment fails.
    pub fn torn_write(&self) -> Option<usize> {
        self.0.torn_at.swap(0, Ordering::AcqRel).checked_sub(1)
    }

    pub fn before_sync(&self) -> io::Result<()> {
        if spend(&self.0.syncs_left) {
            Err(io::Error::other("sync failed on demand"))
        } else {
            Ok(())
        }
    }

    /// Panics if `point` is to panic.
    #[allow(clippy::panic)] // on demand
    pub fn pass(&self, point: PanicPoint) {
        if self
            .0
            .panics
            .get(point as usize)
            .is_some_and(|left| left.load(Ordering::Acquire) > 0 && spend(left))
        {
            let message = self.0.message.lock().unwrap_or_else(PoisonError::into_inner).clone();
            std::panic::panic_any(message);
        }
    }

    /// Called on the capture writer's thread, before an append. Waits while appends hang.
    pub(super) fn before_append(&self) -> Result<()> {
        let mut stalled = self.0.stalled.lock().unwrap_or_else(PoisonError::into_inner);
        if *stalled {
            self.0.hanging.fetch_add(1, Ordering::AcqRel);
            while *stalled {
                stalled = self.0.released.wait(stalled).unwrap_or_else(PoisonError::into_inner);
            }
            self.0.hanging.fetch_sub(1, Ordering::AcqRel);
        }
        if self.0.disk_full.load(Ordering::Acquire) {
            return Err(StoreError::Full("on demand".into()));
        }
        let fails = spend(&self.0.appends_left);
        if fails { Err(StoreError::Unavailable("append failed on demand".into())) } else { Ok(()) }
    }
}

fn spend(left: &AtomicU32) -> bool {
    left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1)).is_ok()
}
