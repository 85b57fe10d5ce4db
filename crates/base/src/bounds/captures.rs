//! Limits of captures, and of what evaluates, imports and exports them.

use std::time::Duration;

/// Evaluations at once: each keeps a thread busy that requests could use.
pub const EVALUATIONS: usize = 2;
/// Evaluations of one caller at once.
pub const EVALUATIONS_SHARE: usize = 1;
/// Longest wait of an evaluation, or of a gated change, for its turn.
pub const EVALUATE_QUEUE_TIMEOUT: Duration = Duration::from_secs(30);
/// Gated changes evaluated at once. They have a place of their own: evaluations never delay a
/// change of routing.
pub const GATES: usize = 1;
/// Captures that an evaluation covers by default, the newest first.
pub const EVALUATE_DEFAULT: u64 = 100_000;
/// Most captures that an evaluation may cover.
pub const EVALUATE_MAX: u64 = 10_000_000;
/// Heads that an evaluation reads at a time: some megabytes. It looks in between whether its
/// client is still there.
pub const EVALUATE_STEP: usize = 200;
/// Time between two progress lines of an evaluation.
pub const EVALUATE_PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
/// Pairs of targets, and targets, that a report tells apart.
pub const EVALUATE_CHANGES: usize = 1_000;
/// Reasons that a report tells apart for a pair of targets.
pub const EVALUATE_REASONS: usize = 20;
/// Captures that a report names for a pair of targets.
pub const EVALUATE_EXAMPLES: usize = 5;
/// Earlier documents that an evaluation keeps in memory, to say what changed in them.
pub const EVALUATE_DOCUMENTS: usize = 16;
/// Tries of a gated change when others come between.
pub const GATE_TRIES: usize = 3;
/// Age of the captures that a gated change is tried on.
pub const GATE_AGE: Duration = Duration::from_secs(24 * 3600);
/// Decided captures that a gated change is tried on, the newest.
pub const GATE_DECIDED: u64 = 100_000;
/// Captures that are visited to find those: refusals, replays and imports do not fill the
/// window.
pub const GATE_VISITED: u64 = 10 * GATE_DECIDED;
/// Bytes of an import: captures of the longest bodies, escaped.
pub const IMPORT_BODY: usize = 64 << 20;
/// Longest wait of the command line for a connection.
pub const CLIENT_CONNECT: Duration = Duration::from_secs(10);
/// Longest time for the command line to send a request: a megabyte on a slow line.
pub const CLIENT_SEND: Duration = Duration::from_secs(120);
/// Longest wait of the command line for the head of an answer: a provider may take as long for
/// a reroute.
pub const CLIENT_ANSWER: Duration = Duration::from_secs(900);
/// Bytes of one answer to the command line, and of one line of a corpus: a capture of the
/// longest bodies, escaped.
pub const CLIENT_BYTES: u64 = 512 << 20;
/// Longest wait for an Ollama that may be there: it delays a start without configuration.
pub const OLLAMA_ANSWER: Duration = Duration::from_millis(700);
/// Longest wait of `doctor` for a provider or a gateway.
pub const DOCTOR_ANSWER: Duration = Duration::from_secs(10);
/// Free bytes of a disk below which `doctor` fails: a burst of captures takes as much.
pub const DOCTOR_DISK_LEAST: u64 = 256 << 20;
/// Days before the end of a certificate from which `doctor` warns.
pub const DOCTOR_CERTIFICATE_DAYS: i64 = 14;
/// Time between two looks of `logs --follow`.
pub const LOGS_INTERVAL: Duration = Duration::from_secs(1);
/// Pages of one look of `logs --follow`. Requests that began before what they hold are missed.
pub const LOGS_PAGES: usize = 10;

/// Records waiting for the capture writer.
pub const CAPTURE_QUEUE_RECORDS: usize = 16_384;
/// Bytes waiting for the capture writer.
pub const CAPTURE_QUEUE_BYTES: usize = 64 << 20;
/// Records of one transaction of the capture writer.
pub const CAPTURE_BATCH: usize = 1_000;
/// Longest wait of a record for others before it is written: a crash may lose so much.
pub const CAPTURE_LINGER: Duration = Duration::from_millis(200);
/// Records that end the wait of [`CAPTURE_LINGER`]: a block of heads or two. Many small bursts of
/// work delay requests less than few large ones.
pub const CAPTURE_LINGER_RECORDS: usize = 64;
/// Records of one transaction while the queue is almost empty: a small burst of work.
pub const CAPTURE_BURST: usize = 256;
/// Longest time that the writer yields to other work after [`CAPTURE_LINGER`]: on busy processors
/// each yield may take milliseconds.
pub const CAPTURE_YIELD_MAX: Duration = Duration::from_millis(100);
/// Denominator of the share of the queue's bytes that ends the wait of [`CAPTURE_LINGER`]: a
/// mebibyte.
pub const CAPTURE_LINGER_SHARE: usize = 64;
/// Bytes of captures a second that are compressed best: a tenth of a core. Where more come, speed
/// counts more than the disk.
pub const CAPTURE_CALM: usize = 8 << 20;
/// Time between two yields of a thread that writes captures.
pub const CAPTURE_SLICE: Duration = Duration::from_micros(100);
/// Bytes that are compressed between two yields: half a millisecond.
pub const CAPTURE_PIECE: usize = 64 << 10;
/// Bytes of captures that are written together: their heads lie side by side, before their bodies.
pub const CAPTURE_BLOCK: usize = 256 << 10;
/// Bytes of bodies that an import stores at once.
pub const CAPTURE_COMMIT: usize = 4 << 20;
/// Time between two syncs of captures to disk.
pub const CAPTURE_SYNC: Duration = Duration::from_secs(1);
/// Bytes of a segment before the next one begins. Captures leave the disk a segment at a time.
pub const SEGMENT_BYTES: u64 = 64 << 20;
/// Smallest segment under a small `retention.size`.
pub const SEGMENT_BYTES_MIN: u64 = 1 << 20;
/// Longest time that a segment is written to.
pub const SEGMENT_AGE: Duration = Duration::from_secs(600);
/// The same where segments go to an object store: so old are captures that other gateways read.
pub const SEGMENT_AGE_SHARED: Duration = Duration::from_secs(60);
/// Time between two looks for segments to upload, and for rows to hand over.
pub const SHARE_INTERVAL: Duration = Duration::from_secs(1);
/// Longest such time while that fails; it doubles up to this.
pub const SHARE_RETRY: Duration = Duration::from_secs(20);
/// Bytes of a part of a segment on its way to or from an object store.
pub const OBJECT_PART: usize = 8 << 20;
/// Bytes of the largest answer of an object store.
pub const OBJECT_ANSWER: u64 = 160 << 20;
/// Time to connect to an object store.
pub const OBJECT_CONNECT: Duration = Duration::from_secs(5);
/// Time of one request to an object store, with the request tried again within it.
pub const OBJECT_REQUEST: Duration = Duration::from_secs(30);
/// Time between two looks whether the object store answers. One costs two requests.
pub const OBJECTS_LOOK: Duration = Duration::from_secs(20);
/// How long nothing is read of an object store that failed.
pub const OBJECTS_AWAY: Duration = Duration::from_secs(5);
/// Time of all requests for one segment.
pub const OBJECT_TIME: Duration = Duration::from_secs(120);
/// Characters of an error of an object store that are told.
pub const OBJECT_ERROR: usize = 300;
/// Ranges that are read of one segment of another gateway, one by one, before it is fetched whole.
pub const SEGMENT_RANGES: u32 = 3;
/// Bytes of segments of other gateways that are kept here.
pub const SEGMENT_CACHE: u64 = 1 << 30;
/// How long such a segment is kept.
pub const SEGMENT_CACHE_TIME: Duration = Duration::from_secs(3600);
/// How long after its age another gateway removes a segment that its own one has not.
pub const SEGMENT_LEFT_BEHIND: Duration = Duration::from_secs(3600);
/// How long a deletion keeps captures away that come later: a gateway that is started again may
/// bring some.
pub const DELETED_CAPTURES_KEPT: Duration = Duration::from_secs(30 * 24 * 3600);
/// Smallest number of segments in `retention`: so much more than asked for may be kept.
pub const SEGMENT_SHARE: u32 = 16;
/// Index rows visited for one page of a list, in order: less than 5 ms (`benches/run index`).
pub const LIST_ROWS: usize = 15_000;
/// The same where each row is looked up by itself, as for one owner or for failures.
pub const LIST_LOOKUPS: usize = 1_500;
/// Precision of the time in an id, in microseconds.
pub const ID_PRECISION_US: i64 = 1_000;
/// Bytes of an index that is checked whole at the start; of a larger one only the length is.
pub const INDEX_CHECK: u64 = 64 << 20;
/// Damaged captures remembered, so that each is reported once.
pub const DAMAGED_CAPTURES: usize = 1_000;
/// Largest lead of an imported capture's time over the clock here.
pub const IMPORT_AHEAD: Duration = Duration::from_secs(300);
/// Bytes that `rerouter replay import` sends at once; a larger line goes alone.
pub const IMPORT_PART: usize = 4 << 20;
/// Tries of `rerouter replay import` to send a part while the gateway is busy.
pub const IMPORT_TRIES: usize = 10;
/// Longest wait between these tries.
pub const IMPORT_WAIT: Duration = Duration::from_secs(30);
pub const REDACT_EXPRESSIONS: usize = 32;
/// Bytes of one of those, compiled.
pub const REDACT_COMPILED: usize = 1 << 20;

/// Longest wait of a reader for captures that are still to be written.
pub const CAPTURE_SETTLE: Duration = Duration::from_secs(2);
/// Time between two looks of such a reader.
pub const CAPTURE_SETTLE_INTERVAL: Duration = Duration::from_millis(1);
/// The same where another gateway writes it, and each look asks the database.
pub const CAPTURE_COMES_INTERVAL: Duration = Duration::from_millis(50);
/// Age of a request up to which another gateway may have yet to write its capture: most end sooner.
pub const CAPTURE_COMES: Duration = Duration::from_secs(600);
/// Longest wait of a deletion for captures being written: the writer's tries with their waits,
/// twice.
pub const CAPTURE_FLUSH: Duration = Duration::from_secs(5);

/// Tries of a batch of captures that the store refuses.
pub const CAPTURE_TRIES: u32 = 4;
/// Wait after the first try that failed; doubled each time.
pub const CAPTURE_RETRY: Duration = Duration::from_millis(50);
