//! Limits of the configuration documents, and of what they hold.

use std::time::Duration;

/// Bytes of a configuration document: large routing tables stay far below.
pub const DOCUMENT_BYTES: usize = 1 << 20;
/// Nesting of a configuration document: real ones need six.
pub const DOCUMENT_DEPTH: usize = 32;
/// Problems reported for one document: nobody reads more.
pub const DOCUMENT_PROBLEMS: usize = 100;

/// Bytes of a CEL expression.
pub const CEL_BYTES: usize = 4 << 10;
/// Nodes of a CEL expression: bounds the work of one evaluation.
pub const CEL_NODES: usize = 500;

/// Depth of a CEL expression's tree: bounds the stack of one evaluation.
pub const CEL_DEPTH: usize = 64;
/// Opening brackets and `?` of a CEL expression: bounds the nesting of its parser.
pub const CEL_BRACKETS: usize = 96;
/// Stack of the thread that compiles a CEL expression: enough for the deepest tree within
/// [`CEL_BYTES`].
pub const CEL_COMPILE_STACK: usize = 64 << 20;
/// Bytes of a compiled pattern of `matches`: a few hundred states.
pub const CEL_PATTERN: usize = 64 << 10;
/// Compiled patterns that a thread caches: those of a live document and of one being evaluated.
pub const CEL_PATTERNS: usize = 256;
/// Bytes of a traced runtime error of a CEL expression.
pub const CEL_TRACE_BYTES: usize = 200;

/// Providers of a routing document.
pub const PROVIDERS: usize = 256;
/// Models, recipes and aliases of a routing document, each.
pub const ROUTING_NAMES: usize = 10_000;
/// Rules of a recipe: a decision may evaluate all of them.
pub const RULES: usize = 64;
/// Targets of a rule: a decision ranks all of them.
pub const RULE_TARGETS: usize = 64;
/// Static headers of a provider.
pub const PROVIDER_HEADERS: usize = 32;
/// Bytes of the name of a provider, recipe or rule: they become header and label values.
pub const ROUTING_NAME_BYTES: usize = 64;
/// Bytes of an alias, or of a provider's name of a model.
pub const MODEL_NAME_BYTES: usize = 256;
/// Largest weight of a target.
pub const WEIGHT_MAX: f64 = 1_000_000.0;
/// Keyword sets of a routing document.
pub const KEYWORD_SETS: usize = 64;
/// Words of a keyword set.
pub const KEYWORDS: usize = 1_000;
/// Bytes of a keyword.
pub const KEYWORD_BYTES: usize = 256;
/// Bytes of the last user message searched for keywords: a millisecond's work.
pub const KEYWORD_TEXT: usize = 1 << 20;
/// Patterns of a routing document for the texts of a request.
pub const CONTENT_PATTERNS: usize = 32;
/// Bytes of a text that such patterns are searched for in. A search is linear in them, so the work
/// of a request is bounded by their product with the number of patterns.
pub const CONTENT_TEXT: usize = 64 << 10;
/// Bytes of the last user message used to detect its language: more costs time and adds
/// nothing.
pub const LANGUAGE_TEXT: usize = 1 << 10;
/// Tokens assumed for an answer when a limit or cost is estimated in advance; also the cap on
/// `max_tokens` there, as few answers are as long as they may be.
pub const ANSWER_TOKENS: u64 = 1_024;
/// Context assumed for a model without `context` when its prompt cannot be seen whole: that of
/// the largest usual models.
pub const CONTEXT_TOKENS: u64 = 1_000_000;
/// `Retry-After` when all targets are at their `max_concurrency`: nothing says when one gets
/// free.
pub const CONCURRENCY_RETRY: Duration = Duration::from_secs(1);
/// Longest delay of a `mock` provider.
pub const MOCK_LATENCY: Duration = Duration::from_secs(60);

/// Entries of any list in the server document.
pub const SERVER_LIST: usize = 256;
/// Headers that conditions may look at: each is copied into every capture.
pub const SIGNAL_HEADERS: usize = 32;
