//! Every limit in the program that no document sets, named, with its reason. A limit that operators set has
//! its default in `config/`; nothing is unbounded.

// By its path, as the fuzz targets take this file from elsewhere.
#[path = "bounds/connections.rs"]
mod connections;

use std::time::Duration;

pub use connections::*;

/// A configuration document, in bytes: large routing tables stay far below.
pub const DOCUMENT_BYTES: usize = 1 << 20;
/// Nesting of a configuration document: ours need six.
pub const DOCUMENT_DEPTH: usize = 32;
/// Problems reported for one document; more would not be read.
pub const DOCUMENT_PROBLEMS: usize = 100;

/// A CEL expression, in bytes.
pub const CEL_BYTES: usize = 4 << 10;
/// Nodes of a CEL expression: bounds the work of one evaluation.
pub const CEL_NODES: usize = 500;

/// Depth of a CEL expression's tree: bounds the stack of one evaluation.
pub const CEL_DEPTH: usize = 64;
/// Opening brackets and `?` of a CEL expression: bounds what its parser nests.
pub const CEL_BRACKETS: usize = 96;
/// Stack of the thread that compiles a CEL expression: room for the deepest tree that [`CEL_BYTES`] can spell.
pub const CEL_COMPILE_STACK: usize = 64 << 20;
/// Bytes of a compiled pattern of `matches`; a few hundred states.
pub const CEL_PATTERN: usize = 64 << 10;
/// Compiled patterns that a thread keeps: those of a live document, and of what is being evaluated beside it.
pub const CEL_PATTERNS: usize = 256;
/// Bytes of a traced runtime error of a CEL expression.
pub const CEL_TRACE_BYTES: usize = 200;

/// Providers of a routing document.
pub const PROVIDERS: usize = 256;
/// Entries of a routing document's `models`, and its recipes and aliases.
pub const ROUTING_NAMES: usize = 10_000;
/// Rules of a recipe: a decision may evaluate all of them.
pub const RULES: usize = 64;
/// Targets of a rule: a decision ranks all of them.
pub const RULE_TARGETS: usize = 64;
/// Static headers of a provider.
pub const PROVIDER_HEADERS: usize = 32;
/// Bytes of a provider's, recipe's or rule's name; they become header and label values.
pub const ROUTING_NAME_BYTES: usize = 64;
/// Bytes of an alias or of a provider's name of a model.
pub const MODEL_NAME_BYTES: usize = 256;
/// Largest weight of a target.
pub const WEIGHT_MAX: f64 = 1_000_000.0;
/// Keyword sets of a routing document.
pub const KEYWORD_SETS: usize = 64;
/// Words of a keyword set.
pub const KEYWORDS: usize = 1_000;
/// Bytes of a keyword.
pub const KEYWORD_BYTES: usize = 256;
/// Bytes of the last user message in which keywords are looked for: a millisecond's work.
pub const KEYWORD_TEXT: usize = 1 << 20;
/// Bytes of the last user message by which its language is told: more costs time and tells no more.
pub const LANGUAGE_TEXT: usize = 1 << 10;
/// Tokens of an answer that has not been given, where a cost or a limit is reckoned beforehand: `max_tokens` counts up to
/// here only, as few answers are as long as they may be.
pub const ANSWER_TOKENS: u64 = 1_024;
/// The context of a model whose context the routing document does not tell, where a prompt that cannot be seen whole is reserved:
/// what the largest usual ones have.
pub const CONTEXT_TOKENS: u64 = 1_000_000;
/// When a request may come again that found all targets at their `max_concurrency`: nothing tells when one will be free.
pub const CONCURRENCY_RETRY: Duration = Duration::from_secs(1);
/// Longest delay of a `mock` provider.
pub const MOCK_LATENCY: Duration = Duration::from_secs(60);

/// Entries of any list in the server document.
pub const SERVER_LIST: usize = 256;
/// Headers that routing expressions may look at; each is copied into every capture.
pub const SIGNAL_HEADERS: usize = 32;

/// A request head, in bytes of all header lines: what the large providers accept.
pub const HEAD_BYTES: usize = 64 << 10;
/// Header lines of a request.
pub const HEADER_LINES: usize = 128;
/// A request target, in bytes.
pub const TARGET_BYTES: usize = 8 << 10;
/// How long a kept-alive connection may stay silent.
pub const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// Longest silence within a request body, whatever its rate so far.
pub const BODY_SILENCE: Duration = Duration::from_secs(10);
/// What is drained of an unread body to keep its connection.
pub const DRAIN_BYTES: usize = 1 << 20;
/// What is read away after a refusal that closes the connection, so that the client reads the answer instead of a reset.
pub const DISCARD_BYTES: usize = 64 << 20;
/// How long either may take.
pub const DRAIN_TIME: Duration = Duration::from_secs(1);

/// Nesting of a JSON request body (contract 6.1).
pub const JSON_DEPTH: usize = 128;
/// A number or a member's name of a JSON request body, as written. Texts may be as long as the body: images and files are such texts.
/// No number needs more digits than an exact double has (some 1,100), and reading one may cost the square of its length.
pub const JSON_WORD_BYTES: usize = 4 << 10;
/// Decoded bytes of an answer that a provider compressed though it was asked not to: read for its usage only, in a millisecond or two.
pub const DECODED_ANSWER: usize = 4 << 20;
/// Decoded bytes of such an answer that is captured, for credentials in it: the writer of captures holds one at a time.
pub const DECODED_CAPTURE: usize = 16 << 20;
/// Decoded bytes of a compressed request body between two looks at everybody else's work: some ten microseconds.
pub const DECODE_STEP: usize = 64 << 10;
/// Members of a gzip body and frames of a zstd one: each takes an engine, and may hold nothing. Blocked files of the largest bodies
/// have some hundreds.
pub const CODED_PARTS: usize = 4_096;
/// Binary logarithm of the window of a zstd body: 8 MiB, the most that HTTP allows (RFC 9659 section 3).
pub const ZSTD_WINDOW_LOG: u32 = 23;
/// A body of a management call; documents have their own bound.
pub const MANAGEMENT_BODY: usize = 256 << 10;

/// Entries of a page of a list, and its default.
pub const PAGE_MAX: usize = 100;
/// See [`PAGE_MAX`].
pub const PAGE_DEFAULT: usize = 20;

/// Models on a page of Anthropic's list: the most that its API gives.
pub const MODELS_PAGE: usize = 1_000;

/// Live keys an owner (contract 2).
pub const KEYS_PER_OWNER: usize = 100;
/// Keys of an owner that ended and are still shown; older ones are forgotten, or making and ending keys would fill memory.
pub const DEAD_KEYS_PER_OWNER: usize = 1_000;
/// Keys that a list looks at in one hold of the table: nobody waits long for it, however many of them are not shown.
pub const KEY_STEP: usize = 128;
/// Peppers that secrets may be known by, that of the master key of now counted: a secret that is not known is looked for by each.
pub const PEPPERS: usize = 4;
/// Digests that are moved to the pepper of now in one transaction: some milliseconds, for which other changes wait.
pub const MOVES_BATCH: usize = 500;
/// How long a digest that is to be moved waits for others: until then a use of its secret costs one more HMAC.
pub const MOVES_INTERVAL: Duration = Duration::from_millis(250);
/// Keys whose last use is written down in one transaction: some milliseconds, for which other changes wait.
pub const USES_BATCH: usize = 1_000;
/// How often a patch of a key is made anew because another change of it came between.
pub const PATCH_TRIES: usize = 8;
/// Keys from one without a maker down to its furthest descendant: a request draws on the limits of each.
pub const KEY_DESCENT: usize = 16;
/// Patterns of `limits.models`: each request is held against all of them.
pub const LIMIT_MODELS: usize = 100;
/// Characters of such a pattern.
pub const LIMIT_MODEL_CHARS: usize = 256;
/// Largest `limits.rpm`: more than one gateway answers in a minute.
pub const LIMIT_RPM: u64 = 100_000_000;
/// Largest `limits.tpm`: in the units of its bucket (a minute's microseconds a token) it fits 63 bits twice.
pub const LIMIT_TPM: u64 = 10_000_000_000;
/// Largest `limits.concurrency`: beyond the connections of any gateway.
pub const LIMIT_CONCURRENCY: u64 = 1_000_000;
/// Largest `limits.budget.usd`: sums of it in billionths stay far within 64 bits.
pub const LIMIT_USD: f64 = 100_000_000.0;
/// Characters of a key's or user's name.
pub const NAME_CHARS: usize = 128;
/// Pairs of a key's `metadata`, and the characters of a name and a value in it.
pub const METADATA_PAIRS: usize = 16;
/// See [`METADATA_PAIRS`].
pub const METADATA_NAME_CHARS: usize = 64;
/// See [`METADATA_PAIRS`].
pub const METADATA_VALUE_CHARS: usize = 512;

/// Longest that a key's old secret may be accepted beside its new one, in seconds: a week (contract 2).
pub const ROTATION_GRACE_S: u64 = 604_800;

/// Nodes; all are held in memory, and each that serves is in the inputs of every decision on nodes.
pub const NODES: usize = 256;
/// Patterns of models that a node may be enrolled for.
pub const NODE_PATTERNS: usize = 32;
/// Models that a node may serve at once.
pub const NODE_MODELS: usize = 64;
/// Bytes of a node's endpoint, key, version and names of models.
pub const NODE_TEXT_BYTES: usize = 512;
/// How far a node's clock may be from ours.
pub const NODE_SKEW: Duration = Duration::from_secs(60);
/// Nonces of a node that are kept, one a signature, and that it may sign within twice the skew. An agent sends one every ten seconds:
/// a clock that is set back by eleven hours shuts none out.
pub const NODE_NONCES: usize = 4_096;
/// How often a node is to report.
pub const NODE_HEARTBEAT: Duration = Duration::from_secs(10);
/// For how long a report holds: two may be lost.
pub const NODE_LEASE: Duration = Duration::from_secs(30);
/// How often a request that waits for a node looks whether that still has its lease.
pub const NODE_LOOK: Duration = Duration::from_secs(1);
/// The first wait of an agent whose callback failed, doubled each time up to [`NODE_HEARTBEAT`]; and how often it looks whether
/// something has changed that it waits for.
pub const NODE_RETRY: Duration = Duration::from_secs(1);
/// For how long the store may take to keep or to look up what a node signed: a disk that hangs is one that takes nothing, well before
/// the agent has waited for [`NODE_CALL`].
pub const NODE_SPEND: Duration = Duration::from_secs(1);
/// For how long an agent waits for the answer to a callback. With [`NODE_ASK`] it leaves time for two reports within a lease.
pub const NODE_CALL: Duration = Duration::from_secs(5);
/// For how long an agent asks its server what a report tells, all questions together.
pub const NODE_ASK: Duration = Duration::from_secs(4);
/// Bytes of what a server tells its agent: lists, metrics, slots with their prompts.
pub const NODE_ANSWER: u64 = 8 << 20;
/// For how long the secret before the current one is taken, if that is not used earlier.
pub const NODE_ROTATION: Duration = Duration::from_secs(600);
/// The body of a node's events.
pub const NODE_EVENTS_BODY: usize = 1 << 20;
/// Events in one body.
pub const NODE_EVENTS: usize = 1_000;
/// Ids of a node's events that are remembered, so that what is sent twice is told once.
pub const NODE_EVENT_IDS: usize = 4_096;

/// Agents; all are held in memory, and while AGENT is open anybody makes them.
pub const AGENTS: usize = 1_000;
/// Characters of an agent's name: a DNS label's.
pub const AGENT_NAME_CHARS: usize = 63;
/// Characters of an agent's description.
pub const AGENT_DESCRIPTION_CHARS: usize = 1_024;
/// An agent's instructions, in bytes: they go with every request of it.
pub const AGENT_INSTRUCTIONS: usize = 32 << 10;
/// An agent's tools: as many as OpenAI takes in a request.
pub const AGENT_TOOLS: usize = 128;
/// An agent's tools, in bytes of their JSON.
pub const AGENT_TOOLS_BYTES: usize = 64 << 10;
/// Times that a change of an agent is made anew because another came between.
pub const AGENT_TRIES: usize = 4;
/// Sequences of an agent's default `stop`, and the bytes of one: OpenAI takes four.
pub const AGENT_STOPS: usize = 4;
/// See [`AGENT_STOPS`].
pub const AGENT_STOP_BYTES: usize = 256;

/// Live sessions a user; the oldest ends when one more begins.
pub const SESSIONS_PER_USER: usize = 20;
/// Password length in bytes: OWASP's floor, and a ceiling that keeps hashing cheap to refuse.
pub const PASSWORD_MIN: usize = 8;
/// See [`PASSWORD_MIN`].
pub const PASSWORD_MAX: usize = 1024;
/// An e-mail address (RFC 5321 section 4.5.3.1.3, with its brackets gone).
pub const EMAIL_MAX: usize = 254;
/// Argon2 runs that may wait for a core; 19 MiB each once running, so the rest is shed with 503.
pub const PASSWORD_QUEUE: usize = 64;
/// Failed or successful logins of one (email, network) in [`LOGIN_WINDOW`].
pub const LOGINS: u32 = 10;
/// See [`LOGINS`].
pub const LOGIN_WINDOW: Duration = Duration::from_secs(15 * 60);
/// Refused logins of one user in [`LOGIN_WINDOW`] that the audit is told of, and of all unknown ones together: guessing does not fill it.
pub const NOTED_REFUSALS: u32 = 10;
/// Logins of one network in [`LOGIN_WINDOW`], whatever the e-mails: an office's morning, and few guesses.
pub const NETWORK_LOGINS: u32 = 100;
/// Pairs the login throttle remembers, and networks; those leave first whose window is over, then those with the fewest logins.
pub const LOGIN_PAIRS: usize = 100_000;
/// Registrations from one network in an hour.
pub const REGISTRATIONS: u32 = 20;

/// Attempts of one request whatever its recipe asks for: Pingora's loop is told the same.
pub const ATTEMPTS_MAX: usize = 16;
/// Longest that a breaker stays open, however often it has opened: a provider that is back is not left out for longer.
pub const BREAKER_OPEN_MAX: Duration = Duration::from_secs(600);
/// Longest that a provider's `Retry-After` is believed: some mean the end of the day, and most are back before.
pub const COOL_DOWN_MAX: Duration = Duration::from_secs(600);
/// How fast measured latency is forgotten: after this long it counts a third.
pub const LATENCY_DECAY: Duration = Duration::from_secs(10);
/// How long one of several keys rests after a 429 that did not say.
pub const KEY_LIMITED: Duration = Duration::from_secs(10);
/// How long one of several keys rests after it was refused: somebody has to mend it.
pub const KEY_REFUSED: Duration = Duration::from_secs(300);
/// Over how long a retry budget counts (contract 6.2).
pub const RETRY_SPAN: Duration = Duration::from_secs(10);
/// Retries that a budget always has room for, a second (contract 6.2).
pub const RETRIES_A_SECOND: u64 = 3;
/// Keys of one provider: each is looked at for an attempt.
pub const PROVIDER_KEYS: usize = 32;
/// How often a provider may be asked whether it is well, and must at least be.
pub const HEALTH_CHECK_LEAST: Duration = Duration::from_secs(1);
/// See [`HEALTH_CHECK_LEAST`].
pub const HEALTH_CHECK_MOST: Duration = Duration::from_secs(3_600);
/// Longest that a health check may take: a provider that needs longer is not well.
pub const HEALTH_CHECK_TIME: Duration = Duration::from_secs(10);
/// How often it is looked whether a health check or a look-up of a name is due.
pub const UPKEEP_INTERVAL: Duration = Duration::from_millis(500);
/// Names looked up at once in the background; each takes a thread.
pub const DNS_LOOKUPS: usize = 8;
/// Longest that a look-up in the background is waited for.
pub const DNS_TIME: Duration = Duration::from_secs(5);
/// Requests at once on one HTTP/2 connection to a provider: more go to another, so that one lost packet does not stop all.
pub const H2_STREAMS: usize = 32;
/// Requests that one provider may be allowed at once.
pub const PROVIDER_CONCURRENCY: u64 = 1_000_000;
/// Bytes of a response held back until the first content event shows that it is one.
pub const HOLD_BYTES: usize = 256 << 10;
/// A provider's answer collected for a reroute.
pub const COLLECT_BYTES: usize = 32 << 20;
/// One server-sent event while the relay looks for content, errors and usage.
pub const SSE_EVENT_BYTES: usize = 1 << 20;
/// Tokens that one answer can have used, of each kind: more is no count, and would poison sums and budgets.
pub const USAGE_TOKENS: u64 = 1_000_000_000;
/// The end of an answer that is longer than what is captured of it, in which its usage is looked for.
pub const USAGE_ENDING: usize = 16 << 10;
/// Reroutes at once: they spend money and hold bodies in memory.
pub const REROUTES: usize = 16;
/// Those of one caller: four callers may be at it at once.
pub const REROUTES_SHARE: usize = 4;
/// Longest that a reroute waits for its turn: clients still wait themselves.
pub const REROUTE_PATIENCE: Duration = Duration::from_secs(10);
/// Least room that is made for a body that does not come in one piece.
pub const BODY_ROOM: usize = 4 << 10;
/// Bodies above this are read on threads that may wait: reading one this large takes some
/// milliseconds at worst.
pub const READ_INLINE: usize = 128 << 10;
/// Large and compressed bodies that are read at once: the data path keeps a core where there are two.
pub const READERS: usize = 2;
/// Those of one caller.
pub const READERS_SHARE: usize = 1;
/// Longest that a large body waits to be read.
pub const READ_PATIENCE: Duration = Duration::from_secs(10);
/// Evaluations at once: each keeps a thread busy that requests could use.
pub const EVALUATIONS: usize = 2;
/// Those of one caller.
pub const EVALUATIONS_SHARE: usize = 1;
/// Longest that an evaluation, or a gated change, waits for its turn.
pub const EVALUATE_PATIENCE: Duration = Duration::from_secs(30);
/// Gated changes that are evaluated at once. They have a place of their own: evaluations never hold
/// up a change of the routing.
pub const GATES: usize = 1;
/// Captures that an evaluation asks where nothing else is said, the newest first.
pub const EVALUATE_DEFAULT: u64 = 100_000;
/// Most captures that an evaluation may be asked for.
pub const EVALUATE_MOST: u64 = 10_000_000;
/// Heads that an evaluation reads at a time: some megabytes, and how long it goes on when nobody wants its answer any more.
pub const EVALUATE_STEP: usize = 200;
/// How often an evaluation tells how far it has come.
pub const EVALUATE_TELL: Duration = Duration::from_millis(250);
/// Pairs of targets, and targets, that a report tells apart.
pub const EVALUATE_CHANGES: usize = 1_000;
/// Reasons that a report tells apart for each pair of targets.
pub const EVALUATE_REASONS: usize = 20;
/// Captures that a report names for each pair of targets.
pub const EVALUATE_EXAMPLES: usize = 5;
/// Earlier documents that an evaluation keeps at hand, to say what has changed in them.
pub const EVALUATE_DOCUMENTS: usize = 16;
/// How often a gated change is evaluated again because another one came between.
pub const GATE_TRIES: usize = 3;
/// The captures that a gated change is tried on: those of so long.
pub const GATE_AGE: Duration = Duration::from_secs(24 * 3600);
/// The captures that a gated change is tried on: so many that were decided, the newest.
pub const GATE_DECIDED: u64 = 100_000;
/// Captures that are looked at for those: refusals, replays and what was imported do not fill the window.
pub const GATE_LOOKED_AT: u64 = 10 * GATE_DECIDED;
/// The body of an import: captures of the longest bodies, escaped, and more than a gateway takes of one request.
pub const IMPORT_BODY: usize = 64 << 20;
/// The body of an evaluation: a routing document as a JSON string, in which every byte may be escaped, and a filter.
pub const EVALUATE_BODY: usize = 2 * DOCUMENT_BYTES + MANAGEMENT_BODY;
/// Longest that the command line waits for a gateway to accept a connection.
pub const CLIENT_CONNECT: Duration = Duration::from_secs(10);
/// Longest that the command line takes to send a request: a document of a megabyte, on a bad line.
pub const CLIENT_SEND: Duration = Duration::from_secs(120);
/// Longest that the command line waits for the head of an answer: a provider's, to a reroute, may take as long.
pub const CLIENT_ANSWER: Duration = Duration::from_secs(900);
/// Bytes of one answer that the command line takes, and of one line of a corpus: a capture of the longest bodies, escaped.
pub const CLIENT_BYTES: u64 = 512 << 20;
/// Calls of one kind that are remembered for their `Idempotency-Key`; while there are more, a new key is refused.
pub const REPEATS: usize = 10_000;
/// Bytes of their answers. What somebody has beyond [`REPEATS_SHARE_BYTES`], at most one answer more, is not counted to it.
pub const REPEATS_BYTES: usize = 64 << 20;
/// Those of the calls that one payer may have remembered: a tenth, so that nobody fills the room for the others.
pub const REPEATS_SHARE: usize = 1_000;
/// Bytes of a payer's answers beyond which no more of its calls are let in.
pub const REPEATS_SHARE_BYTES: usize = 8 << 20;
/// How long an `Idempotency-Key` holds (contract 6.4).
pub const REPEATS_AGE: Duration = Duration::from_secs(600);
/// Characters of an `Idempotency-Key`: a UUID and what somebody writes before it.
pub const IDEMPOTENCY_KEY: usize = 255;
/// Shadows at once: each holds a request's body and its answer in memory, for nobody who waits.
pub const SHADOWS: usize = 32;
/// How long a gateway that leaves waits for shadows; nobody misses what they would have said.
pub const SHADOW_GRACE: Duration = Duration::from_secs(2);

/// Records waiting for the capture writer.
pub const CAPTURE_QUEUE_RECORDS: usize = 16_384;
/// Bytes waiting for the capture writer.
pub const CAPTURE_QUEUE_BYTES: usize = 64 << 20;
/// Records of one transaction of the capture writer.
pub const CAPTURE_BATCH: usize = 1_000;
/// Longest a record waits for company before it is written: that and the write itself are what a crash may lose.
pub const CAPTURE_LINGER: Duration = Duration::from_millis(200);
/// Records that are company enough: a block of heads or two. Many small bursts of work delay requests less than few large ones,
/// and what was written is memory that the next requests find warm.
pub const CAPTURE_COMPANY: usize = 64;
/// Records of one transaction while few wait: how much work goes into them is settled anew for the next ones.
pub const CAPTURE_BURST: usize = 256;
/// Longest that a record gives way to other work beyond [`CAPTURE_LINGER`]: where every processor is busy, each time may take
/// milliseconds.
pub const CAPTURE_GIVES_WAY: Duration = Duration::from_millis(100);
/// Part of the queue's bytes that is company enough: a mebibyte.
pub const CAPTURE_LINGER_SHARE: usize = 64;
/// Bytes that are compressed without giving way to other threads: a tenth of a millisecond.
pub const CAPTURE_PIECE: usize = 64 << 10;
/// Bytes of captures that are compressed together: larger blocks are hardly smaller on disk, and slower to read one from.
pub const CAPTURE_BLOCK: usize = 256 << 10;
/// Bytes of heads of captures that are compressed together: a list of rare captures opens such a block for each of them.
pub const HEADS_BLOCK: usize = 64 << 10;
/// Bytes of finished blocks that are written at once.
pub const CAPTURE_COMMIT: usize = 4 << 20;
/// How often captures are made to survive the loss of power; each time the disk has to catch up.
pub const CAPTURE_SYNC: Duration = Duration::from_secs(1);
/// Bytes of a segment before the next one begins, and the least that a small `retention.size` makes of it. Captures leave
/// the disk a segment at a time.
pub const SEGMENT_BYTES: u64 = 64 << 20;
/// See [`SEGMENT_BYTES`].
pub const SEGMENT_BYTES_LEAST: u64 = 1 << 20;
/// Longest that a segment is written to.
pub const SEGMENT_AGE: Duration = Duration::from_secs(600);
/// Parts of `retention` that a segment is at most: so much more may be kept than is asked for.
pub const SEGMENT_SHARE: u32 = 16;
/// Segments that are kept open to be read.
pub const SEGMENTS_OPEN: usize = 64;
/// How long the bytes of a deleted capture may wait for others to be deleted with them: their segment is written anew.
pub const REWRITE_AFTER: Duration = Duration::from_secs(3_600);
/// Rows of the index that are looked at for one page of a list, one after another: so many as take less than 5 ms
/// (`benches/run index`).
pub const LIST_ROWS: usize = 15_000;
/// The same where each is looked up by itself, as an owner's are and failures: as long for fewer.
pub const LIST_LOOKUPS: usize = 1_500;
/// How exact the time in an id is, in microseconds.
pub const ID_PRECISION_US: i64 = 1_000;
/// Bytes of an index that is read through at the start to see whether it is whole; of a larger one only its length is looked at.
pub const INDEX_CHECK: u64 = 64 << 20;
/// Damaged blocks that are remembered, so that each is reported once.
pub const DAMAGED_BLOCKS: usize = 1_000;
/// How far a capture that is imported may be ahead of the clock here.
pub const IMPORT_AHEAD: Duration = Duration::from_secs(300);
/// Bytes of captures that `rerouter replay import` sends at once; a larger line goes alone.
pub const IMPORT_PART: usize = 4 << 20;
/// Times that `rerouter replay import` sends a part for which the gateway has no turn yet.
pub const IMPORT_TRIES: usize = 10;
/// Longest that it waits before it does so again.
pub const IMPORT_WAIT: Duration = Duration::from_secs(30);
/// Expressions of `capture.redact`.
pub const REDACT_EXPRESSIONS: usize = 32;
/// Bytes of one of those, compiled.
pub const REDACT_COMPILED: usize = 1 << 20;

/// Longest that a reader of captures waits for those which are still to be written.
pub const CAPTURE_SETTLE: Duration = Duration::from_secs(2);
/// How often such a reader looks whether a capture that is not offered yet has come: that takes as long as a request's end.
pub const CAPTURE_SETTLE_LOOK: Duration = Duration::from_millis(1);
/// Longest that a deletion waits for captures that are being written: the writer's tries with their waits, and as much again.
pub const CAPTURE_FLUSH: Duration = Duration::from_secs(5);

/// Log lines waiting for a slow standard output; more are dropped and counted.
pub const LOG_QUEUE: usize = 8_192;
/// How long the first access line of a batch waits for company, so that its writer is woken once a batch.
pub const LOG_LINGER: Duration = Duration::from_millis(10);
/// How often the end of the process looks whether a full log queue has room for its last word.
pub const LOG_FLUSH_LOOK: Duration = Duration::from_millis(1);
/// Bytes of access lines that are written at once.
pub const LOG_BUFFER: usize = 64 << 10;
/// How often the routing document's file is looked at. Polling also sees the symbolic-link swaps of
/// mounted configuration, which file notifications miss.
pub const WATCH_INTERVAL: Duration = Duration::from_millis(500);
/// Looks at the file, one [`WATCH_INTERVAL`] after the other, that have to find it the same before
/// a change is taken: two seconds. Whoever writes into it in place pauses for less, as a rule.
pub const WATCH_LOOKS: u32 = 5;
/// Time between the two readings of the file that SIGHUP asks for.
pub const HANGUP_APART: Duration = Duration::from_millis(250);
/// How long a resolved address of a provider is used before it is looked up again.
pub const DNS_TTL: Duration = Duration::from_secs(30);
/// How often what the write-ahead logs of the store hold is moved into its databases: damage to a log, or a copy without it,
/// costs no more than what was written since.
pub const CHECKPOINT: Duration = Duration::from_secs(120);
/// Times that `rerouter backup` begins to copy a database that is busy, and a list of segments of which one has left meanwhile.
pub const BACKUP_TRIES: usize = 50;
/// Its wait before it tries again.
pub const BACKUP_WAIT: Duration = Duration::from_millis(100);
/// How often sessions that are over are ended, and the use of the others is written down.
pub const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// The name of a model in a request, in bytes: it is written into records and messages.
pub const MODEL_BYTES: usize = 512;
/// Times a batch of captures is offered to a store that refuses it, and the wait before the first repetition; doubled each time.
pub const CAPTURE_TRIES: u32 = 4;
/// See [`CAPTURE_TRIES`].
pub const CAPTURE_RETRY: Duration = Duration::from_millis(50);

/// Numbers of the mock provider's embeddings in one answer: 2,048 texts of 512 are as many as anybody tries.
pub const MOCK_NUMBERS: u64 = 1 << 20;
/// A request body that the mock provider reads.
pub const MOCK_BODY: usize = 32 << 20;
/// Connections that the mock provider serves at once; more wait to be accepted.
pub const MOCK_CONNECTIONS: usize = 1_024;
/// Keys that are forgotten, rows that leave the audit, and copies of a capture that are deleted, in one transaction.
pub const RETENTION_BATCH: usize = 500;
/// Steps, of [`RETENTION_BATCH`] rows each, in which rows leave the audit at one look: more than can be added until the next one.
pub const AUDIT_STEPS: usize = 1_000;
/// Part of the audit's rows that what strangers do may take where there are too many: a tenth, so that a flood of it is seen and
/// washes nothing away.
pub const AUDIT_STRANGERS: u64 = 10;
/// The same of what users do: a half.
pub const AUDIT_USERS: u64 = 2;
/// Least rows that the audit may be kept at, and most.
pub const AUDIT_ROWS_LEAST: u64 = 100;
/// See [`AUDIT_ROWS_LEAST`].
pub const AUDIT_ROWS_MOST: u64 = 1_000_000_000;
/// Characters that are kept of a client's own name for its request.
pub const CLIENT_REQUEST_ID_CHARS: usize = 200;
/// Looked-up names that are kept; beyond it those that are old go first.
pub const DNS_NAMES: usize = 1_024;
/// A request whose body was longer in coming than this has its credential looked at again.
pub const CREDENTIAL_AGE: Duration = Duration::from_millis(10);

/// Parts of a budget that are granted one after another: what a crash may cost an owner is one part.
pub const GRANTS: u64 = 20;
/// Of the largest reserves so far, as many as a grant holds at least: requests at once seldom wait for the next.
pub const GRANT_RESERVES: u64 = 8;
/// What a grant holds at least, but for a quarter of the budget: five cents, so that small budgets need few.
pub const GRANT_SMALL: u64 = 50_000_000;
/// How long before a day or month ends the first grant of the next one is made durable.
pub const GRANT_AHEAD: Duration = Duration::from_secs(120);
/// When to come back after a refusal that ends with some other request, or with a write of the store.
pub const LIMIT_RETRY: Duration = Duration::from_secs(1);
/// How often usage and spend are written down: what a crash may lose of usage.
pub const BOOKS_INTERVAL: Duration = Duration::from_millis(500);
/// How long a process that leaves waits for the store to take what was ended here: keys revoked, users disabled.
pub const LEAVING_TRIES: Duration = Duration::from_secs(5);
/// Budgets, and sums of usage, that are written down in one transaction: others write between two of them.
pub const BOOKS_ROWS: usize = 1_000;
/// Budgets that each round looks at for the first grant of the next day: half a million in [`GRANT_AHEAD`].
pub const BOOKS_AHEAD: usize = 2_000;
/// Sums of usage that wait to be written down; more are dropped and counted in a warning.
pub const BOOKS_PENDING: usize = 20_000;
/// Days that usage is kept for.
pub const USAGE_DAYS: i64 = 400;
/// Groups of an answer on usage.
pub const USAGE_GROUPS: usize = 1_000;
