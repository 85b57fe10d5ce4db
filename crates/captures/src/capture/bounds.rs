//! Limits of the queue of captures, and of what is written from it.

use std::time::Duration;

/// Records waiting for the capture writer.
pub(super) const CAPTURE_QUEUE_RECORDS: usize = 16_384;
/// Bytes waiting for the capture writer.
pub const CAPTURE_QUEUE_BYTES: usize = 64 << 20;
/// Records of one transaction of the capture writer.
pub(crate) const CAPTURE_BATCH: usize = 1_000;
/// Longest wait of a record for others before it is written. A crash may lose the records of this
/// time.
pub const CAPTURE_LINGER: Duration = Duration::from_millis(200);
/// Records that end the wait of [`CAPTURE_LINGER`]: a block of heads or two. Many small bursts of
/// work delay requests less than few large ones.
pub(super) const CAPTURE_LINGER_RECORDS: usize = 64;
/// Records of one transaction while the queue is almost empty: a small burst of work.
pub(super) const CAPTURE_BURST: usize = 256;
/// Denominator of the share of the queue's bytes that ends the wait of [`CAPTURE_LINGER`]: a
/// mebibyte.
pub(super) const CAPTURE_LINGER_SHARE: usize = 64;
/// Time between two syncs of captures to disk.
pub const CAPTURE_SYNC: Duration = Duration::from_secs(1);
/// Time between two looks of a reader that waits for captures to be written.
pub(super) const CAPTURE_SETTLE_INTERVAL: Duration = Duration::from_millis(1);
/// Tries of a batch of captures that the store refuses.
pub(super) const CAPTURE_TRIES: u32 = 4;
/// Wait after the first try that failed; doubled each time.
pub(super) const CAPTURE_RETRY: Duration = Duration::from_millis(50);
