//! Every limit of the program that no document sets, named, with its reason. Limits that operators
//! set have their defaults in `config/`. Nothing is unbounded. Here are those of requests,
//! answers, providers and the process; the others are in `bounds/` by subject.

// By their paths, as the fuzz targets take this file from elsewhere.
#[path = "bounds/accounts.rs"]
mod accounts;
#[path = "bounds/captures.rs"]
mod captures;
#[path = "bounds/connections.rs"]
mod connections;
#[path = "bounds/documents.rs"]
mod documents;
#[path = "bounds/nodes.rs"]
mod nodes;
#[path = "bounds/telemetry.rs"]
mod telemetry;

use std::time::Duration;

pub use accounts::*;
pub use captures::*;
pub use connections::*;
pub use documents::*;
pub use nodes::*;
pub use telemetry::*;

/// Bytes of all header lines of a request: what the large providers accept.
pub const HEAD_BYTES: usize = 64 << 10;
/// Header lines of a request.
pub const HEADER_LINES: usize = 128;
/// Bytes of a request target.
pub const TARGET_BYTES: usize = 8 << 10;
/// Longest silence of a kept-alive connection.
pub const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// The same once another process has taken over: clients reuse connections within seconds.
pub const HANDED_OVER_IDLE: Duration = Duration::from_secs(5);
/// Longest silence within a request body, whatever its rate so far.
pub const BODY_SILENCE: Duration = Duration::from_secs(10);
/// Bytes of an unread body that are drained to keep its connection.
pub const DRAIN_BYTES: usize = 1 << 20;
/// Bytes read away after a refusal that closes the connection, so that the client reads the
/// answer and not a reset.
pub const DISCARD_BYTES: usize = 64 << 20;
/// Longest time for either.
pub const DRAIN_TIME: Duration = Duration::from_secs(1);

/// Nesting of a JSON request body.
pub const JSON_DEPTH: usize = 128;
/// Bytes of a number or member name in a JSON request body. Strings may be as long as the body,
/// as images are. No number needs more digits than an exact double (some 1,100), and parsing
/// one may cost the square of its length.
pub const JSON_WORD_BYTES: usize = 4 << 10;
/// Decoded bytes of an answer that a provider compressed unasked: read for usage only, in a
/// millisecond or two.
pub const DECODED_ANSWER: usize = 4 << 20;
/// Decoded bytes of a request body between two yields: some ten microseconds.
pub const DECODE_STEP: usize = 64 << 10;
/// Members of a gzip body and frames of a zstd one: each needs a decoder, and may be empty.
/// Block-compressed files of the largest bodies have some hundreds.
pub const CODED_PARTS: usize = 4_096;
/// Binary logarithm of the window of a zstd body: 8 MiB, the most that HTTP allows (RFC 9659
/// section 3).
pub const ZSTD_WINDOW_LOG: u32 = 23;
/// Bytes of a management body; documents have their own bound.
pub const MANAGEMENT_BODY: usize = 256 << 10;
/// Bytes of an evaluation's body: a routing document as a JSON string, each byte escaped, and a
/// filter.
pub const EVALUATE_BODY: usize = 2 * DOCUMENT_BYTES + MANAGEMENT_BODY;

/// Bytes of a form with a routing document in it, each byte percent-encoded, and other fields.
pub const FORM_BODY: usize = 3 * DOCUMENT_BYTES + MANAGEMENT_BODY;

/// How long the link of a start makes the first admin.
pub const FIRST_ADMIN_LINK: Duration = Duration::from_secs(3600);

/// `Retry-After` of a gateway without a lease: another one answers at once.
pub const LEASE_RETRY: Duration = Duration::from_secs(1);

/// Gateways in one answer: all there are.
pub const GATEWAYS: usize = 10_000;

/// Entries of a page of a list.
pub const PAGE_MAX: usize = 100;
/// Entries of a page when the caller names none.
pub const PAGE_DEFAULT: usize = 20;

/// Models on a page of Anthropic's list: the most that its API gives.
pub const MODELS_PAGE: usize = 1_000;

/// Attempts of one request, whatever its recipe says. Pingora's loop has the same bound.
pub const ATTEMPTS_MAX: usize = 16;
/// Longest time that a breaker stays open, however often it opened.
pub const BREAKER_OPEN_MAX: Duration = Duration::from_secs(600);
/// Longest `Retry-After` of a provider that is believed: some name the end of the day, and most
/// are back before.
pub const COOLDOWN_MAX: Duration = Duration::from_secs(600);
/// Time after which a measured latency counts a third.
pub const LATENCY_DECAY: Duration = Duration::from_secs(10);
/// Rest of one of several provider keys after a 429 without `Retry-After`.
pub const KEY_LIMITED: Duration = Duration::from_secs(10);
/// Rest of one of several provider keys after a refusal: somebody has to mend it.
pub const KEY_REFUSED: Duration = Duration::from_secs(300);
/// Window of a retry budget.
pub const RETRY_SPAN: Duration = Duration::from_secs(10);
/// Retries a second that a retry budget always allows.
pub const RETRIES_A_SECOND: u64 = 3;
/// Keys of one provider: each is looked at for an attempt.
pub const PROVIDER_KEYS: usize = 32;
/// Shortest interval of a health check.
pub const HEALTH_CHECK_MIN: Duration = Duration::from_secs(1);
/// Longest interval of a health check.
pub const HEALTH_CHECK_MAX: Duration = Duration::from_secs(3_600);
/// Longest time of a health check: a slower provider is not well.
pub const HEALTH_CHECK_TIME: Duration = Duration::from_secs(10);
/// Time between two looks for due health checks and DNS look-ups.
pub const UPKEEP_INTERVAL: Duration = Duration::from_millis(500);
/// DNS look-ups in the background at once: each takes a thread.
pub const DNS_LOOKUPS: usize = 8;
/// Longest time of a DNS look-up in the background.
pub const DNS_TIME: Duration = Duration::from_secs(5);
/// Requests on one HTTP/2 connection to a provider: more use another, so that one lost packet
/// does not stop all.
pub const H2_STREAMS: usize = 32;
/// Largest `max_concurrency` of a provider.
pub const PROVIDER_CONCURRENCY: u64 = 1_000_000;
/// Bytes of an answer that are held until its first content event.
pub const HOLD_BYTES: usize = 256 << 10;
/// Bytes of a provider's answer to a reroute.
pub const COLLECT_BYTES: usize = 32 << 20;
/// Parts of a translated answer: texts, thoughts and tool calls; real ones have some tens.
pub const ANSWER_PARTS: usize = 1_024;
/// Bytes of one server-sent event that the relay looks into.
pub const SSE_EVENT_BYTES: usize = 1 << 20;
/// Largest count of tokens of one kind that is believed: more would poison sums and budgets.
pub const USAGE_TOKENS: u64 = 1_000_000_000;
/// Bytes at the end of a long answer in which its usage is looked for.
pub const USAGE_ENDING: usize = 16 << 10;
/// Reroutes at once: they spend money and hold bodies in memory.
pub const REROUTES: usize = 16;
/// Reroutes of one caller at once.
pub const REROUTES_SHARE: usize = 4;
/// Longest wait of a reroute for its turn: clients still wait themselves.
pub const REROUTE_QUEUE_TIMEOUT: Duration = Duration::from_secs(10);
/// Smallest buffer for a body that does not come in one piece.
pub const BODY_BUFFER_MIN: usize = 4 << 10;
/// Bytes above which bodies are read on blocking threads: that takes some milliseconds at
/// worst.
pub const READ_INLINE: usize = 128 << 10;
/// Large and compressed bodies read at once: of two cores, the data path keeps one.
pub const READERS: usize = 2;
/// Those of one caller.
pub const READERS_SHARE: usize = 1;
/// Longest wait of a large body to be read.
pub const READ_QUEUE_TIMEOUT: Duration = Duration::from_secs(10);

/// Calls of one kind by one payer whose `Idempotency-Key` is remembered; beyond it a new key is
/// refused.
pub const REPEATS_SHARE: usize = 1_000;
/// Bytes of a payer's answers beyond which its next call is refused. A larger answer is not kept.
pub const REPEATS_SHARE_BYTES: usize = 8 << 20;
/// Time after which a gateway that was killed no longer holds the `Idempotency-Key` of a reroute.
pub const REROUTE_CLAIM: Duration = Duration::from_secs(60);
/// Time for which an `Idempotency-Key` counts.
pub const REPEATS_AGE: Duration = Duration::from_secs(600);
/// Pause after which a store that did not take the claim or the answer of a reroute is tried again.
pub const REPEATS_PAUSE: Duration = Duration::from_secs(1);
/// Answers at once that wait for the store: more than the reroutes that may be under way when it
/// goes away.
pub const REPEATS_LATE: u32 = 64;
/// `Retry-After` of a payer that has as many as it may.
pub const REPEATS_RETRY: Duration = Duration::from_secs(60);
/// Characters of an `Idempotency-Key`: a UUID with a prefix.
pub const IDEMPOTENCY_KEY: usize = 255;
/// Shadows at once: each holds a body and an answer in memory.
pub const SHADOWS: usize = 32;
/// Time that a draining gateway waits for shadows: nobody misses their answers.
pub const SHADOW_GRACE: Duration = Duration::from_secs(2);

/// Access lines waiting for a slow standard output; more are dropped and counted.
pub const LOG_QUEUE: usize = 8_192;
/// Longest wait of the first access line of a batch, so that the writer wakes once a batch.
pub const LOG_LINGER: Duration = Duration::from_millis(10);
/// Time between two tries of the process's end to flush a full log queue.
pub const LOG_FLUSH_INTERVAL: Duration = Duration::from_millis(1);
/// Bytes of access lines written at once.
pub const LOG_BUFFER: usize = 64 << 10;
/// Time between two looks at the routing document's file. Polling also sees symbolic-link swaps
/// of mounted configuration.
pub const WATCH_INTERVAL: Duration = Duration::from_millis(500);
/// Equal looks at the file, one [`WATCH_INTERVAL`] apart, before a change is taken: two
/// seconds. Whoever writes in place usually pauses for less.
pub const WATCH_EQUAL_READS: u32 = 5;
/// Time between the two reads of the file after SIGHUP.
pub const SIGHUP_REREAD: Duration = Duration::from_millis(250);
/// Time for which a resolved address is used.
pub const DNS_TTL: Duration = Duration::from_secs(30);
/// Time between two checkpoints of the store: damage to a write-ahead log costs at most what
/// was written since.
pub const CHECKPOINT: Duration = Duration::from_secs(120);
/// Tries of `rerouter backup` on a busy database, or on a list of segments that changes.
pub const BACKUP_TRIES: usize = 50;
/// Wait between these tries.
pub const BACKUP_WAIT: Duration = Duration::from_millis(100);
/// Time between two sweeps that end expired sessions and write the use of the others.
pub const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Bytes of a request's `model`: it is written into records and messages.
pub const MODEL_BYTES: usize = 512;

/// Numbers in one embeddings answer of the mock provider: 2,048 texts of 512.
pub const MOCK_NUMBERS: u64 = 1 << 20;
/// Bytes of a request to the mock provider.
pub const MOCK_BODY: usize = 32 << 20;
/// Connections of the mock provider at once; more wait to be accepted.
pub const MOCK_CONNECTIONS: usize = 1_024;
/// Rows deleted in one transaction by retention: keys, audit rows, copies of captures.
pub const RETENTION_BATCH: usize = 500;
/// Captures deleted in one transaction of PostgreSQL: each costs round trips, under a lock.
pub const ERASE_BATCH: usize = 50;
/// Batches of [`RETENTION_BATCH`] rows that one look at the audit deletes: more than can be
/// added until the next one.
pub const AUDIT_STEPS: usize = 1_000;
pub const AUDIT_ROWS_MIN: u64 = 100;
pub const AUDIT_ROWS_MAX: u64 = 1_000_000_000;
/// Characters kept of a client's `X-Request-Id`.
pub const CLIENT_REQUEST_ID_CHARS: usize = 200;
/// Resolved names kept; the oldest leave first.
pub const DNS_NAMES: usize = 1_024;
/// Time for a body to arrive after which its credential is checked again.
pub const CREDENTIAL_AGE: Duration = Duration::from_millis(10);
/// Tokens of an answer that a translated request asks for, if its client gave no limit and the
/// provider's dialect needs one; budgets reserve it. Every current model of that dialect can write
/// so much.
pub const DEFAULT_MAX_TOKENS: u64 = 8_192;
/// Objects and lists of a text that is translated. Each takes up to a kilobyte meanwhile; a long
/// session with many tools has some thousands.
pub const TRANSLATED_VALUES: usize = 32_768;
/// Bytes of the name of an end user that OpenAI's API takes.
pub const USER_NAME_BYTES: usize = 64;
