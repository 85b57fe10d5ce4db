//! Every limit of the program that no document sets, named, with its reason. Limits that operators
//! set have their defaults in `config/`. Nothing is unbounded.

// By its path, as the fuzz targets take this file from elsewhere.
#[path = "bounds/connections.rs"]
mod connections;

use std::time::Duration;

pub use connections::*;

/// Bytes of a configuration document: large routing tables stay far below.
pub const DOCUMENT_BYTES: usize = 1 << 20;
/// Nesting of a configuration document: real ones need six.
pub(crate) const DOCUMENT_DEPTH: usize = 32;
/// Problems reported for one document: nobody reads more.
pub(crate) const DOCUMENT_PROBLEMS: usize = 100;

/// Bytes of a CEL expression.
pub const CEL_BYTES: usize = 4 << 10;
/// Nodes of a CEL expression: bounds the work of one evaluation.
pub const CEL_NODES: usize = 500;

/// Depth of a CEL expression's tree: bounds the stack of one evaluation.
pub(crate) const CEL_DEPTH: usize = 64;
/// Opening brackets and `?` of a CEL expression: bounds the nesting of its parser.
pub(crate) const CEL_BRACKETS: usize = 96;
/// Stack of the thread that compiles a CEL expression: enough for the deepest tree within
/// [`CEL_BYTES`].
pub(crate) const CEL_COMPILE_STACK: usize = 64 << 20;
/// Bytes of a compiled pattern of `matches`: a few hundred states.
pub(crate) const CEL_PATTERN: usize = 64 << 10;
/// Compiled patterns that a thread caches: those of a live document and of one being evaluated.
pub(crate) const CEL_PATTERNS: usize = 256;
/// Bytes of a traced runtime error of a CEL expression.
pub(crate) const CEL_TRACE_BYTES: usize = 200;

/// Providers of a routing document.
pub(crate) const PROVIDERS: usize = 256;
/// Models, recipes and aliases of a routing document, each.
pub(crate) const ROUTING_NAMES: usize = 10_000;
/// Rules of a recipe: a decision may evaluate all of them.
pub const RULES: usize = 64;
/// Targets of a rule: a decision ranks all of them.
pub(crate) const RULE_TARGETS: usize = 64;
/// Static headers of a provider.
pub(crate) const PROVIDER_HEADERS: usize = 32;
/// Bytes of the name of a provider, recipe or rule: they become header and label values.
pub(crate) const ROUTING_NAME_BYTES: usize = 64;
/// Bytes of an alias, or of a provider's name of a model.
pub(crate) const MODEL_NAME_BYTES: usize = 256;
/// Largest weight of a target.
pub(crate) const WEIGHT_MAX: f64 = 1_000_000.0;
/// Keyword sets of a routing document.
pub const KEYWORD_SETS: usize = 64;
/// Words of a keyword set.
pub(crate) const KEYWORDS: usize = 1_000;
/// Bytes of a keyword.
pub(crate) const KEYWORD_BYTES: usize = 256;
/// Bytes of the last user message searched for keywords: a millisecond's work.
pub(crate) const KEYWORD_TEXT: usize = 1 << 20;
/// Patterns of a routing document for the texts of a request.
pub(crate) const CONTENT_PATTERNS: usize = 32;
/// Bytes of a text that such patterns are searched for in. A search is linear in them, so the work
/// of a request is bounded by their product with the number of patterns.
pub(crate) const CONTENT_TEXT: usize = 64 << 10;
/// Bytes of the last user message used to detect its language: more costs time and adds
/// nothing.
pub(crate) const LANGUAGE_TEXT: usize = 1 << 10;
/// Tokens assumed for an answer when a limit or cost is estimated in advance; also the cap on
/// `max_tokens` there, as few answers are as long as they may be.
pub(crate) const ANSWER_TOKENS: u64 = 1_024;
/// Context assumed for a model without `context` when its prompt cannot be seen whole: that of
/// the largest usual models.
pub(crate) const CONTEXT_TOKENS: u64 = 1_000_000;
/// `Retry-After` when all targets are at their `max_concurrency`: nothing says when one gets
/// free.
pub(crate) const CONCURRENCY_RETRY: Duration = Duration::from_secs(1);
/// Longest delay of a `mock` provider.
pub(crate) const MOCK_LATENCY: Duration = Duration::from_secs(60);

/// Entries of any list in the server document.
pub(crate) const SERVER_LIST: usize = 256;
/// Headers that conditions may look at: each is copied into every capture.
pub(crate) const SIGNAL_HEADERS: usize = 32;

/// Bytes of all header lines of a request: what the large providers accept.
pub(crate) const HEAD_BYTES: usize = 64 << 10;
/// Header lines of a request.
pub(crate) const HEADER_LINES: usize = 128;
/// Bytes of a request target.
pub(crate) const TARGET_BYTES: usize = 8 << 10;
/// Longest silence of a kept-alive connection.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// Longest silence within a request body, whatever its rate so far.
pub(crate) const BODY_SILENCE: Duration = Duration::from_secs(10);
/// Bytes of an unread body that are drained to keep its connection.
pub(crate) const DRAIN_BYTES: usize = 1 << 20;
/// Bytes read away after a refusal that closes the connection, so that the client reads the
/// answer and not a reset.
pub(crate) const DISCARD_BYTES: usize = 64 << 20;
/// Longest time for either.
pub(crate) const DRAIN_TIME: Duration = Duration::from_secs(1);

/// Nesting of a JSON request body.
pub(crate) const JSON_DEPTH: usize = 128;
/// Bytes of a number or member name in a JSON request body. Strings may be as long as the body,
/// as images are. No number needs more digits than an exact double (some 1,100), and parsing
/// one may cost the square of its length.
pub(crate) const JSON_WORD_BYTES: usize = 4 << 10;
/// Decoded bytes of an answer that a provider compressed unasked: read for usage only, in a
/// millisecond or two.
pub(crate) const DECODED_ANSWER: usize = 4 << 20;
/// Decoded bytes of a request body between two yields: some ten microseconds.
pub(crate) const DECODE_STEP: usize = 64 << 10;
/// Members of a gzip body and frames of a zstd one: each needs a decoder, and may be empty.
/// Block-compressed files of the largest bodies have some hundreds.
pub(crate) const CODED_PARTS: usize = 4_096;
/// Binary logarithm of the window of a zstd body: 8 MiB, the most that HTTP allows (RFC 9659
/// section 3).
pub(crate) const ZSTD_WINDOW_LOG: u32 = 23;
/// Bytes of a management body; documents have their own bound.
pub(crate) const MANAGEMENT_BODY: usize = 256 << 10;

/// Entries of a page of a list.
pub(crate) const PAGE_MAX: usize = 100;
/// Entries of a page when the caller names none.
pub(crate) const PAGE_DEFAULT: usize = 20;

/// Models on a page of Anthropic's list: the most that its API gives.
pub(crate) const MODELS_PAGE: usize = 1_000;

/// Live keys of an owner.
pub const KEYS_PER_OWNER: usize = 100;
/// Ended keys of an owner that are still shown. Older ones are forgotten: otherwise making and
/// ending keys would fill memory.
pub(crate) const ENDED_KEYS_PER_OWNER: usize = 1_000;
/// Keys that a list visits under one lock of the table: nobody waits long for it.
pub(crate) const KEY_LIST_STEP: usize = 128;
/// Keys whose last use is written in one transaction: some milliseconds, for which other
/// changes wait.
pub(crate) const USES_BATCH: usize = 1_000;
/// Tries of a key's patch when other changes come between.
pub(crate) const PATCH_TRIES: usize = 8;
/// Generations of keys that make keys: a request draws on the limits of each.
pub(crate) const KEY_DESCENT: usize = 16;
/// Patterns of `limits.models`: each request is matched against all of them.
pub(crate) const LIMIT_MODELS: usize = 100;
/// Characters of such a pattern.
pub(crate) const LIMIT_MODEL_CHARS: usize = 256;
/// Largest `limits.rpm`: more than one gateway answers in a minute.
pub(crate) const LIMIT_RPM: u64 = 100_000_000;
/// Largest `limits.tpm`: in the unit of its bucket (a minute's microseconds a token) it fits 63
/// bits twice.
pub(crate) const LIMIT_TPM: u64 = 10_000_000_000;
/// Largest `limits.concurrency`: beyond the connections of any gateway.
pub(crate) const LIMIT_CONCURRENCY: u64 = 1_000_000;
/// Largest `limits.budget.usd`: sums of it in billionths stay far within 64 bits.
pub(crate) const LIMIT_USD: f64 = 100_000_000.0;
/// Characters of the name of a key or user.
pub(crate) const NAME_CHARS: usize = 128;
/// Pairs of a key's `metadata`.
pub(crate) const METADATA_PAIRS: usize = 16;
/// Characters of a name in `metadata`.
pub(crate) const METADATA_NAME_CHARS: usize = 64;
/// Characters of a value in `metadata`.
pub(crate) const METADATA_VALUE_CHARS: usize = 512;

/// Longest grace of a rotated key's old secret, in seconds: a week.
pub(crate) const ROTATION_GRACE_S: u64 = 604_800;

/// Nodes: all are in memory, and each that serves is in the inputs of every decision on nodes.
pub(crate) const NODES: usize = 256;
/// Model patterns in a node's enrolment.
pub(crate) const NODE_PATTERNS: usize = 32;
/// Models that a node serves at once.
pub(crate) const NODE_MODELS: usize = 64;
/// Bytes of a node's endpoint, key, version and model names, each.
pub(crate) const NODE_TEXT_BYTES: usize = 512;
/// Largest difference between a node's clock and the gateway's.
pub(crate) const NODE_SKEW: Duration = Duration::from_secs(60);
/// Nonces remembered of a node, one a signature; it signs at most so many within twice the
/// skew.
pub(crate) const NODE_NONCES: usize = 4_096;
/// Time between two heartbeats of a node.
pub const NODE_HEARTBEAT: Duration = Duration::from_secs(10);
/// Time for which a heartbeat counts: two may be lost.
pub const NODE_LEASE: Duration = Duration::from_secs(30);
/// Time between two checks of a node's lease by a request that waits for it.
pub(crate) const NODE_LEASE_CHECK: Duration = Duration::from_secs(1);
/// First wait of a node after a failed callback, doubled up to [`NODE_HEARTBEAT`]; also its
/// interval for checking what it waits for.
pub(crate) const NODE_RETRY: Duration = Duration::from_secs(1);
/// Longest wait for the store to record or look up a nonce: a hanging disk counts as failing,
/// well before [`NODE_CALLBACK_TIMEOUT`].
pub(crate) const NODE_NONCE_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest wait of a node for the answer to a callback. With [`NODE_QUERY_TIMEOUT`] it leaves time
/// for two reports within a lease.
pub const NODE_CALLBACK_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time for a node to ask its server all that a report needs.
pub(crate) const NODE_QUERY_TIMEOUT: Duration = Duration::from_secs(4);
/// Bytes of an answer of a server to its node: lists, metrics, slots with their prompts.
pub(crate) const NODE_RESPONSE_BYTES: u64 = 8 << 20;
/// Grace of a node's previous secret, unless the new one is used earlier.
pub(crate) const NODE_ROTATION: Duration = Duration::from_secs(600);
/// Bytes of a body of node events.
pub(crate) const NODE_EVENTS_BODY: usize = 1 << 20;
/// Events in one body.
pub(crate) const NODE_EVENTS: usize = 1_000;
/// Ids of node events that are remembered, so that what is sent twice is logged once.
pub(crate) const NODE_EVENT_IDS: usize = 4_096;

/// Agents: all are in memory, and while AGENT is open anybody makes them.
pub(crate) const AGENTS: usize = 1_000;
/// Characters of an agent's name: those of a DNS label.
pub(crate) const AGENT_NAME_CHARS: usize = 63;
/// Characters of an agent's description.
pub(crate) const AGENT_DESCRIPTION_CHARS: usize = 1_024;
/// Bytes of an agent's instructions: they go with each of its requests.
pub(crate) const AGENT_INSTRUCTIONS: usize = 32 << 10;
/// Tools of an agent: as many as OpenAI takes in a request.
pub(crate) const AGENT_TOOLS: usize = 128;
/// Bytes of an agent's tools as JSON.
pub(crate) const AGENT_TOOLS_BYTES: usize = 64 << 10;
/// Tries of a change of an agent when others come between.
pub(crate) const AGENT_TRIES: usize = 4;
/// Sequences of an agent's default `stop`: OpenAI takes four.
pub(crate) const AGENT_STOPS: usize = 4;
/// Bytes of such a sequence.
pub(crate) const AGENT_STOP_BYTES: usize = 256;

/// Live sessions of a user: a new one ends the oldest.
pub(crate) const SESSIONS_PER_USER: usize = 20;
/// Shortest password in bytes: OWASP's floor.
pub(crate) const PASSWORD_MIN: usize = 8;
/// Longest password in bytes: hashing stays cheap to refuse.
pub const PASSWORD_MAX: usize = 1024;
/// Bytes of an e-mail address (RFC 5321 section 4.5.3.1.3, without its brackets).
pub(crate) const EMAIL_MAX: usize = 254;
/// Argon2 runs waiting for a core: each takes 19 MiB when it runs, so more are refused with
/// 503.
pub const PASSWORD_QUEUE: usize = 64;
/// Logins of one e-mail from one network in [`LOGIN_WINDOW`], failed or not.
pub const LOGINS: u32 = 10;
/// Window of the login throttle.
pub(crate) const LOGIN_WINDOW: Duration = Duration::from_secs(15 * 60);
/// Refused logins of one user in [`LOGIN_WINDOW`] that get an audit row, and of all unknown
/// e-mails together: guessing does not fill the audit.
pub(crate) const AUDITED_REFUSALS: u32 = 10;
/// Logins of one network in [`LOGIN_WINDOW`], whatever the e-mails: an office's morning, and
/// few guesses.
pub(crate) const NETWORK_LOGINS: u32 = 100;
/// Pairs, and networks, that the login throttle remembers. Those whose window is over leave
/// first, then those with the fewest logins.
pub(crate) const LOGIN_PAIRS: usize = 100_000;
/// Registrations from one network in an hour.
pub const REGISTRATIONS: u32 = 20;

/// Attempts of one request, whatever its recipe says. Pingora's loop has the same bound.
pub(crate) const ATTEMPTS_MAX: usize = 16;
/// Longest time that a breaker stays open, however often it opened.
pub(crate) const BREAKER_OPEN_MAX: Duration = Duration::from_secs(600);
/// Longest `Retry-After` of a provider that is believed: some name the end of the day, and most
/// are back before.
pub(crate) const COOLDOWN_MAX: Duration = Duration::from_secs(600);
/// Time after which a measured latency counts a third.
pub(crate) const LATENCY_DECAY: Duration = Duration::from_secs(10);
/// Rest of one of several provider keys after a 429 without `Retry-After`.
pub(crate) const KEY_LIMITED: Duration = Duration::from_secs(10);
/// Rest of one of several provider keys after a refusal: somebody has to mend it.
pub(crate) const KEY_REFUSED: Duration = Duration::from_secs(300);
/// Window of a retry budget.
pub(crate) const RETRY_SPAN: Duration = Duration::from_secs(10);
/// Retries a second that a retry budget always allows.
pub(crate) const RETRIES_A_SECOND: u64 = 3;
/// Keys of one provider: each is looked at for an attempt.
pub(crate) const PROVIDER_KEYS: usize = 32;
/// Shortest interval of a health check.
pub(crate) const HEALTH_CHECK_MIN: Duration = Duration::from_secs(1);
/// Longest interval of a health check.
pub(crate) const HEALTH_CHECK_MAX: Duration = Duration::from_secs(3_600);
/// Longest time of a health check: a slower provider is not well.
pub(crate) const HEALTH_CHECK_TIME: Duration = Duration::from_secs(10);
/// Time between two looks for due health checks and DNS look-ups.
pub(crate) const UPKEEP_INTERVAL: Duration = Duration::from_millis(500);
/// DNS look-ups in the background at once: each takes a thread.
pub(crate) const DNS_LOOKUPS: usize = 8;
/// Longest time of a DNS look-up in the background.
pub(crate) const DNS_TIME: Duration = Duration::from_secs(5);
/// Requests on one HTTP/2 connection to a provider: more use another, so that one lost packet
/// does not stop all.
pub(crate) const H2_STREAMS: usize = 32;
/// Largest `max_concurrency` of a provider.
pub(crate) const PROVIDER_CONCURRENCY: u64 = 1_000_000;
/// Bytes of an answer that are held until its first content event.
pub(crate) const HOLD_BYTES: usize = 256 << 10;
/// Bytes of a provider's answer to a reroute.
pub(crate) const COLLECT_BYTES: usize = 32 << 20;
/// Bytes of one server-sent event that the relay looks into.
pub(crate) const SSE_EVENT_BYTES: usize = 1 << 20;
/// Largest count of tokens of one kind that is believed: more would poison sums and budgets.
pub(crate) const USAGE_TOKENS: u64 = 1_000_000_000;
/// Bytes at the end of a long answer in which its usage is looked for.
pub(crate) const USAGE_ENDING: usize = 16 << 10;
/// Reroutes at once: they spend money and hold bodies in memory.
pub(crate) const REROUTES: usize = 16;
/// Reroutes of one caller at once.
pub const REROUTES_SHARE: usize = 4;
/// Longest wait of a reroute for its turn: clients still wait themselves.
pub(crate) const REROUTE_QUEUE_TIMEOUT: Duration = Duration::from_secs(10);
/// Smallest buffer for a body that does not come in one piece.
pub(crate) const BODY_BUFFER_MIN: usize = 4 << 10;
/// Bytes above which bodies are read on blocking threads: that takes some milliseconds at
/// worst.
pub const READ_INLINE: usize = 128 << 10;
/// Large and compressed bodies read at once: of two cores, the data path keeps one.
pub(crate) const READERS: usize = 2;
/// Those of one caller.
pub(crate) const READERS_SHARE: usize = 1;
/// Longest wait of a large body to be read.
pub(crate) const READ_QUEUE_TIMEOUT: Duration = Duration::from_secs(10);
/// Evaluations at once: each keeps a thread busy that requests could use.
pub(crate) const EVALUATIONS: usize = 2;
/// Evaluations of one caller at once.
pub(crate) const EVALUATIONS_SHARE: usize = 1;
/// Longest wait of an evaluation, or of a gated change, for its turn.
pub(crate) const EVALUATE_QUEUE_TIMEOUT: Duration = Duration::from_secs(30);
/// Gated changes evaluated at once. They have a place of their own: evaluations never delay a
/// change of routing.
pub(crate) const GATES: usize = 1;
/// Captures that an evaluation covers by default, the newest first.
pub(crate) const EVALUATE_DEFAULT: u64 = 100_000;
/// Most captures that an evaluation may cover.
pub(crate) const EVALUATE_MAX: u64 = 10_000_000;
/// Heads that an evaluation reads at a time: some megabytes. It looks in between whether its
/// client is still there.
pub(crate) const EVALUATE_STEP: usize = 200;
/// Time between two progress lines of an evaluation.
pub(crate) const EVALUATE_PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
/// Pairs of targets, and targets, that a report tells apart.
pub(crate) const EVALUATE_CHANGES: usize = 1_000;
/// Reasons that a report tells apart for a pair of targets.
pub(crate) const EVALUATE_REASONS: usize = 20;
/// Captures that a report names for a pair of targets.
pub(crate) const EVALUATE_EXAMPLES: usize = 5;
/// Earlier documents that an evaluation keeps in memory, to say what changed in them.
pub(crate) const EVALUATE_DOCUMENTS: usize = 16;
/// Tries of a gated change when others come between.
pub(crate) const GATE_TRIES: usize = 3;
/// Age of the captures that a gated change is tried on.
pub(crate) const GATE_AGE: Duration = Duration::from_secs(24 * 3600);
/// Decided captures that a gated change is tried on, the newest.
pub(crate) const GATE_DECIDED: u64 = 100_000;
/// Captures that are visited to find those: refusals, replays and imports do not fill the
/// window.
pub(crate) const GATE_VISITED: u64 = 10 * GATE_DECIDED;
/// Bytes of an import: captures of the longest bodies, escaped.
pub(crate) const IMPORT_BODY: usize = 64 << 20;
/// Bytes of an evaluation's body: a routing document as a JSON string, each byte escaped, and a
/// filter.
pub(crate) const EVALUATE_BODY: usize = 2 * DOCUMENT_BYTES + MANAGEMENT_BODY;
/// Longest wait of the command line for a connection.
pub(crate) const CLIENT_CONNECT: Duration = Duration::from_secs(10);
/// Longest time for the command line to send a request: a megabyte on a slow line.
pub(crate) const CLIENT_SEND: Duration = Duration::from_secs(120);
/// Longest wait of the command line for the head of an answer: a provider may take as long for
/// a reroute.
pub(crate) const CLIENT_ANSWER: Duration = Duration::from_secs(900);
/// Bytes of one answer to the command line, and of one line of a corpus: a capture of the
/// longest bodies, escaped.
pub(crate) const CLIENT_BYTES: u64 = 512 << 20;
/// Calls of one kind remembered by `Idempotency-Key`; while there are more, a new key is
/// refused.
pub(crate) const REPEATS: usize = 10_000;
/// Bytes of their answers.
pub(crate) const REPEATS_BYTES: usize = 64 << 20;
/// Remembered calls of one payer: a tenth, so that nobody fills the room of others.
pub(crate) const REPEATS_SHARE: usize = 1_000;
/// Bytes of a payer's answers beyond which its next call is refused.
pub(crate) const REPEATS_SHARE_BYTES: usize = 8 << 20;
/// Time for which an `Idempotency-Key` counts.
pub(crate) const REPEATS_AGE: Duration = Duration::from_secs(600);
/// Characters of an `Idempotency-Key`: a UUID with a prefix.
pub(crate) const IDEMPOTENCY_KEY: usize = 255;
/// Shadows at once: each holds a body and an answer in memory.
pub const SHADOWS: usize = 32;
/// Time that a draining gateway waits for shadows: nobody misses their answers.
pub(crate) const SHADOW_GRACE: Duration = Duration::from_secs(2);

/// Records waiting for the capture writer.
pub(crate) const CAPTURE_QUEUE_RECORDS: usize = 16_384;
/// Bytes waiting for the capture writer.
pub const CAPTURE_QUEUE_BYTES: usize = 64 << 20;
/// Records of one transaction of the capture writer.
pub(crate) const CAPTURE_BATCH: usize = 1_000;
/// Longest wait of a record for others before it is written: a crash may lose so much.
pub const CAPTURE_LINGER: Duration = Duration::from_millis(200);
/// Records that end this wait: a block of heads or two. Many small bursts of work delay
/// requests less than few large ones.
pub(crate) const CAPTURE_LINGER_RECORDS: usize = 64;
/// Records of one transaction while few wait.
pub(crate) const CAPTURE_BURST: usize = 256;
/// Longest time that a record yields to other work beyond [`CAPTURE_LINGER`]: on busy
/// processors each yield may take milliseconds.
pub(crate) const CAPTURE_YIELD_MAX: Duration = Duration::from_millis(100);
/// Part of the queue's bytes that ends this wait: a mebibyte.
pub(crate) const CAPTURE_LINGER_SHARE: usize = 64;
/// Time between two yields of a thread that writes captures.
pub(crate) const CAPTURE_SLICE: Duration = Duration::from_micros(100);
/// Bytes that are compressed between two yields: half a millisecond.
pub(crate) const CAPTURE_PIECE: usize = 64 << 10;
/// Bytes of captures that are written together: their heads lie side by side, before their bodies.
pub(crate) const CAPTURE_BLOCK: usize = 256 << 10;
/// Bytes of bodies that an import stores at once.
pub(crate) const CAPTURE_COMMIT: usize = 4 << 20;
/// Time between two syncs of captures to disk.
pub const CAPTURE_SYNC: Duration = Duration::from_secs(1);
/// Bytes of a segment before the next one begins. Captures leave the disk a segment at a time.
pub(crate) const SEGMENT_BYTES: u64 = 64 << 20;
/// Smallest segment under a small `retention.size`.
pub(crate) const SEGMENT_BYTES_MIN: u64 = 1 << 20;
/// Longest time that a segment is written to.
pub(crate) const SEGMENT_AGE: Duration = Duration::from_secs(600);
/// Smallest number of segments in `retention`: so much more than asked for may be kept.
pub(crate) const SEGMENT_SHARE: u32 = 16;
/// Index rows visited for one page of a list, in order: less than 5 ms (`benches/run index`).
pub(crate) const LIST_ROWS: usize = 15_000;
/// The same where each row is looked up by itself, as for one owner or for failures.
pub(crate) const LIST_LOOKUPS: usize = 1_500;
/// Precision of the time in an id, in microseconds.
pub(crate) const ID_PRECISION_US: i64 = 1_000;
/// Bytes of an index that is checked whole at the start; of a larger one only the length is.
pub(crate) const INDEX_CHECK: u64 = 64 << 20;
/// Damaged captures remembered, so that each is reported once.
pub(crate) const DAMAGED_CAPTURES: usize = 1_000;
/// Largest lead of an imported capture's time over the clock here.
pub(crate) const IMPORT_AHEAD: Duration = Duration::from_secs(300);
/// Bytes that `rerouter replay import` sends at once; a larger line goes alone.
pub(crate) const IMPORT_PART: usize = 4 << 20;
/// Tries of `rerouter replay import` to send a part while the gateway is busy.
pub(crate) const IMPORT_TRIES: usize = 10;
/// Longest wait between these tries.
pub(crate) const IMPORT_WAIT: Duration = Duration::from_secs(30);
pub(crate) const REDACT_EXPRESSIONS: usize = 32;
/// Bytes of one of those, compiled.
pub(crate) const REDACT_COMPILED: usize = 1 << 20;

/// Longest wait of a reader for captures that are still to be written.
pub(crate) const CAPTURE_SETTLE: Duration = Duration::from_secs(2);
/// Time between two looks of such a reader.
pub(crate) const CAPTURE_SETTLE_INTERVAL: Duration = Duration::from_millis(1);
/// Longest wait of a deletion for captures being written: the writer's tries with their waits,
/// twice.
pub(crate) const CAPTURE_FLUSH: Duration = Duration::from_secs(5);

/// Access lines waiting for a slow standard output; more are dropped and counted.
pub(crate) const LOG_QUEUE: usize = 8_192;
/// Longest wait of the first access line of a batch, so that the writer wakes once a batch.
pub(crate) const LOG_LINGER: Duration = Duration::from_millis(10);
/// Time between two tries of the process's end to flush a full log queue.
pub(crate) const LOG_FLUSH_INTERVAL: Duration = Duration::from_millis(1);
/// Bytes of access lines written at once.
pub(crate) const LOG_BUFFER: usize = 64 << 10;
/// Time between two looks at the routing document's file. Polling also sees symbolic-link swaps
/// of mounted configuration.
pub(crate) const WATCH_INTERVAL: Duration = Duration::from_millis(500);
/// Equal looks at the file, one [`WATCH_INTERVAL`] apart, before a change is taken: two
/// seconds. Whoever writes in place usually pauses for less.
pub(crate) const WATCH_EQUAL_READS: u32 = 5;
/// Time between the two reads of the file after SIGHUP.
pub(crate) const SIGHUP_REREAD: Duration = Duration::from_millis(250);
/// Time for which a resolved address is used.
pub(crate) const DNS_TTL: Duration = Duration::from_secs(30);
/// Time between two checkpoints of the store: damage to a write-ahead log costs at most what
/// was written since.
pub(crate) const CHECKPOINT: Duration = Duration::from_secs(120);
/// Tries of `rerouter backup` on a busy database, or on a list of segments that changes.
pub(crate) const BACKUP_TRIES: usize = 50;
/// Wait between these tries.
pub(crate) const BACKUP_WAIT: Duration = Duration::from_millis(100);
/// Time between two sweeps that end expired sessions and write the use of the others.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Bytes of a request's `model`: it is written into records and messages.
pub(crate) const MODEL_BYTES: usize = 512;
/// Tries of a batch of captures that the store refuses.
pub(crate) const CAPTURE_TRIES: u32 = 4;
/// Wait after the first try that failed; doubled each time.
pub(crate) const CAPTURE_RETRY: Duration = Duration::from_millis(50);

/// Numbers in one embeddings answer of the mock provider: 2,048 texts of 512.
pub(crate) const MOCK_NUMBERS: u64 = 1 << 20;
/// Bytes of a request to the mock provider.
pub(crate) const MOCK_BODY: usize = 32 << 20;
/// Connections of the mock provider at once; more wait to be accepted.
pub(crate) const MOCK_CONNECTIONS: usize = 1_024;
/// Rows deleted in one transaction by retention: keys, audit rows, copies of captures.
pub(crate) const RETENTION_BATCH: usize = 500;
/// Batches of [`RETENTION_BATCH`] rows that one look at the audit deletes: more than can be
/// added until the next one.
pub(crate) const AUDIT_STEPS: usize = 1_000;
pub(crate) const AUDIT_ROWS_MIN: u64 = 100;
pub(crate) const AUDIT_ROWS_MAX: u64 = 1_000_000_000;
/// Characters kept of a client's `X-Request-Id`.
pub(crate) const CLIENT_REQUEST_ID_CHARS: usize = 200;
/// Resolved names kept; the oldest leave first.
pub(crate) const DNS_NAMES: usize = 1_024;
/// Time for a body to arrive after which its credential is checked again.
pub(crate) const CREDENTIAL_AGE: Duration = Duration::from_millis(10);

/// Parts that a budget is granted in: a crash may cost its owner one.
pub(crate) const GRANTS: u64 = 20;
/// Largest reserves so far that a grant holds, up to a quarter of the budget, so that concurrent
/// requests seldom wait for the next.
pub(crate) const GRANT_RESERVES: u64 = 8;
/// Smallest grant in billionths of a dollar, up to a quarter of the budget: five cents, so that
/// small budgets need few.
pub(crate) const GRANT_SMALL: u64 = 50_000_000;
/// Time before a day or month ends at which the first grant of the next one is written.
pub(crate) const GRANT_AHEAD: Duration = Duration::from_secs(120);
/// `Retry-After` of a refusal that ends with another request, or with a write of the store.
pub(crate) const LIMIT_RETRY: Duration = Duration::from_secs(1);
/// Time between two writes of usage and spend: a crash may lose so much usage.
pub(crate) const USAGE_WRITE_INTERVAL: Duration = Duration::from_millis(500);
/// Time that a leaving process tries to write revocations and disablings.
pub(crate) const SHUTDOWN_WRITE_TIME: Duration = Duration::from_secs(5);
/// Budgets, and sums of usage, written in one transaction: others write between two of them.
pub(crate) const USAGE_WRITE_ROWS: usize = 1_000;
/// Budgets that each round checks for the first grant of the next day: half a million within
/// [`GRANT_AHEAD`].
pub(crate) const GRANT_AHEAD_BUDGETS: usize = 2_000;
/// Sums of usage waiting to be written; more are dropped, with a warning.
pub(crate) const USAGE_PENDING: usize = 20_000;
/// Days that usage is kept.
pub(crate) const USAGE_DAYS: i64 = 400;
/// Groups in an answer on usage.
pub(crate) const USAGE_GROUPS: usize = 1_000;
