//! Limits of the queue of captures, and of the writer behind it.

use std::time::Duration;

/// Most records that wait for the capture writer. The bytes end earlier: the smallest capture takes
/// over a kibibyte.
pub(super) const CAPTURE_QUEUE_RECORDS: usize = 65_536;
/// Most bytes that wait for the capture writer.
pub const CAPTURE_QUEUE_BYTES: usize = 64 << 20;
/// Most records in one transaction of the capture writer.
pub(crate) const CAPTURE_BATCH: usize = 1_000;
/// Longest time that a record waits for others before it is written. A crash may lose the records
/// of this time.
pub const CAPTURE_LINGER: Duration = Duration::from_millis(200);
/// Number of records that ends the wait of [`CAPTURE_LINGER`]: one or two blocks of heads. Many
/// small bursts of work delay requests less than a few large ones.
pub(super) const CAPTURE_LINGER_RECORDS: usize = 64;
/// Most records in one transaction while the queue is almost empty: a small burst of work.
pub(super) const CAPTURE_BURST: usize = 256;
/// The wait of [`CAPTURE_LINGER`] ends when the queued bytes reach their limit divided by this: a
/// mebibyte.
pub(super) const CAPTURE_LINGER_SHARE: usize = 64;
/// Time between two syncs of captures to disk.
pub const CAPTURE_SYNC: Duration = Duration::from_secs(1);
/// Time between two checks of a reader that waits for captures to be written.
pub(super) const CAPTURE_SETTLE_INTERVAL: Duration = Duration::from_millis(1);
/// How often a batch of captures is tried if the store refuses it.
pub(super) const CAPTURE_TRIES: u32 = 4;
/// Wait after the first failed try; doubled after each further one.
pub(super) const CAPTURE_RETRY: Duration = Duration::from_millis(50);
