//! Limits of keys, users, agents, sessions and logins, and of what they spend.

use std::time::Duration;

/// Live keys of an owner.
pub const KEYS_PER_OWNER: usize = 100;
/// Ended keys of an owner that are still shown. Older ones are forgotten: otherwise making and
/// ending keys would fill memory.
pub const ENDED_KEYS_PER_OWNER: usize = 1_000;
/// Keys that a list visits under one lock of the table: nobody waits long for it.
pub const KEY_LIST_STEP: usize = 128;
/// Keys whose last use is written in one transaction: some milliseconds, for which other
/// changes wait.
pub const USES_BATCH: usize = 1_000;
/// Tries of a key's patch when other changes come between.
pub const PATCH_TRIES: usize = 8;
/// Generations of keys that make keys: a request draws on the limits of each.
pub const KEY_DESCENT: usize = 16;
/// Patterns of `limits.models`: each request is matched against all of them.
pub const LIMIT_MODELS: usize = 100;
/// Characters of such a pattern.
pub const LIMIT_MODEL_CHARS: usize = 256;
/// Largest `limits.rpm`: more than one gateway answers in a minute.
pub const LIMIT_RPM: u64 = 100_000_000;
/// Largest `limits.tpm`: in the unit of its bucket (a minute's microseconds a token) it fits 63
/// bits twice.
pub const LIMIT_TPM: u64 = 10_000_000_000;
/// Largest `limits.concurrency`: beyond the connections of any gateway.
pub const LIMIT_CONCURRENCY: u64 = 1_000_000;
/// Largest `limits.budget.usd`: sums of it in billionths stay far within 64 bits.
pub const LIMIT_USD: f64 = 100_000_000.0;
/// Characters of the name of a key or user.
pub const NAME_CHARS: usize = 128;
/// Pairs of a key's `metadata`.
pub const METADATA_PAIRS: usize = 16;
/// Characters of a name in `metadata`.
pub const METADATA_NAME_CHARS: usize = 64;
/// Characters of a value in `metadata`.
pub const METADATA_VALUE_CHARS: usize = 512;

/// Longest grace of a rotated key's old secret, in seconds: a week.
pub const ROTATION_GRACE_S: u64 = 604_800;

/// Agents: all are in memory, and while AGENT is open anybody makes them.
pub const AGENTS: usize = 1_000;
/// Characters of an agent's name: those of a DNS label.
pub const AGENT_NAME_CHARS: usize = 63;
/// Characters of an agent's description.
pub const AGENT_DESCRIPTION_CHARS: usize = 1_024;
/// Bytes of an agent's instructions: they go with each of its requests.
pub const AGENT_INSTRUCTIONS: usize = 32 << 10;
/// Tools of an agent: as many as OpenAI takes in a request.
pub const AGENT_TOOLS: usize = 128;
/// Bytes of an agent's tools as JSON.
pub const AGENT_TOOLS_BYTES: usize = 64 << 10;
/// Tries of a change of an agent when others come between.
pub const AGENT_TRIES: usize = 4;
/// Sequences of an agent's default `stop`: OpenAI takes four.
pub const AGENT_STOPS: usize = 4;
/// Bytes of such a sequence.
pub const AGENT_STOP_BYTES: usize = 256;

/// Live sessions of a user: a new one ends the oldest.
pub const SESSIONS_PER_USER: usize = 20;
/// Shortest password in bytes: OWASP's floor.
pub const PASSWORD_MIN: usize = 8;
/// Longest password in bytes: hashing stays cheap to refuse.
pub const PASSWORD_MAX: usize = 1024;
/// Bytes of an e-mail address (RFC 5321 section 4.5.3.1.3, without its brackets).
pub const EMAIL_MAX: usize = 254;
/// Argon2 runs waiting for a core: each takes 19 MiB when it runs, so more are refused with
/// 503.
pub const PASSWORD_QUEUE: usize = 64;
/// Denominator of the share of that queue which one network may have.
pub const PASSWORD_SHARE: usize = 4;
/// Logins of one e-mail from one network in [`LOGIN_WINDOW`], failed or not.
pub const LOGINS: u32 = 10;
/// Window of the login throttle.
pub const LOGIN_WINDOW: Duration = Duration::from_secs(15 * 60);
/// Refused logins of one user in [`LOGIN_WINDOW`] that get an audit row, and of all unknown
/// e-mails together: guessing does not fill the audit.
pub const AUDITED_REFUSALS: u32 = 10;
/// Logins of one network in [`LOGIN_WINDOW`], whatever the e-mails: an office's morning, and
/// few guesses.
pub const NETWORK_LOGINS: u32 = 100;
/// Pairs, and networks, that the login throttle remembers. Those whose window is over leave
/// first, then those with the fewest logins.
pub const LOGIN_PAIRS: usize = 100_000;
/// Registrations from one network in an hour.
pub const REGISTRATIONS: u32 = 20;

/// Parts that a budget is granted in: a crash may cost its owner one.
pub const GRANTS: u64 = 20;
/// Largest reserves so far that a grant holds, up to a quarter of the budget, so that concurrent
/// requests seldom wait for the next.
pub const GRANT_RESERVES: u64 = 8;
/// Smallest grant in billionths of a dollar, up to a quarter of the budget: five cents, so that
/// small budgets need few.
pub const GRANT_SMALL: u64 = 50_000_000;
/// Time before a day or month ends at which the first grant of the next one is written.
pub const GRANT_AHEAD: Duration = Duration::from_secs(120);
/// `Retry-After` of a refusal that ends with another request, or with a write of the store.
pub const LIMIT_RETRY: Duration = Duration::from_secs(1);
/// Longest that a request waits for its grant where gateways share budgets: others look twice a
/// second for what they are to give back.
pub const GRANT_WAIT: Duration = Duration::from_secs(2);
/// Longest of such a request's pauses between two looks, if nothing wakes it.
pub const GRANT_LOOK: Duration = Duration::from_millis(100);
/// Time in which gateways give back what they do not use of a budget, once another one lacks it.
pub const GRANT_RECALL: Duration = Duration::from_secs(3);
/// Time after which all have answered such a request who can: they look twice a second.
pub const GRANT_ANSWERED: Duration = Duration::from_millis(1_500);
/// Time between two such requests for one budget, while requests of others have reserved of it.
pub const GRANT_RECALL_AGAIN: Duration = Duration::from_secs(5);
/// The same where the others have spent it.
pub const GRANT_RECALL_SPENT: Duration = Duration::from_secs(60);
/// Time after it in which a gateway is granted no more than it needs.
pub const GRANT_LEAN: Duration = Duration::from_secs(10);
/// Time between two writes of usage and spend: a crash may lose so much usage.
pub const USAGE_WRITE_INTERVAL: Duration = Duration::from_millis(500);
/// Time that a leaving process tries to write revocations and disablings.
pub const SHUTDOWN_WRITE_TIME: Duration = Duration::from_secs(5);
/// Budgets, and sums of usage, written in one transaction: others write between two of them.
pub const USAGE_WRITE_ROWS: usize = 1_000;
/// Budgets that each round checks for the first grant of the next day: half a million within
/// [`GRANT_AHEAD`].
pub const GRANT_AHEAD_BUDGETS: usize = 2_000;
/// Sums of usage waiting to be written; more are dropped, with a warning.
pub const USAGE_PENDING: usize = 20_000;
/// Seconds between two writes of usage by hour and by five minutes: a crash may lose so much of it.
pub const USAGE_RECENT_INTERVAL_S: i64 = 10;
/// Days that usage is kept.
pub const USAGE_DAYS: i64 = 400;
/// How long usage by hour is kept: a week, and the day that it begins in.
pub const USAGE_HOURS_KEPT: Duration = Duration::from_secs(8 * 86_400);
/// How long usage by five minutes is kept.
pub const USAGE_MINUTES_KEPT: Duration = Duration::from_secs(6 * 3_600);
/// Values of one column that usage is asked of.
pub const USAGE_VALUES: usize = 20;
/// Groups in an answer on usage.
pub const USAGE_GROUPS: usize = 1_000;

/// How long PostgreSQL may take to accept a connection, and for each answer. The server gives up a
/// statement before, at four fifths of it, and the wait for a lock at half of it.
pub const DATABASE_ANSWER: Duration = Duration::from_secs(10);
/// The same for rows of captures, which wait elsewhere then.
pub const CAPTURE_DATABASE_ANSWER: Duration = Duration::from_secs(5);
/// The same for changes of its tables, for which gateways that start wait, and for a copy.
pub const DATABASE_MIGRATION: Duration = Duration::from_secs(300);
/// How often that is tried again while a table is in use: a backup may take minutes.
pub const DATABASE_MIGRATION_TRIES: u32 = 600;
/// Time between two of these, for those who wait behind them.
pub const DATABASE_MIGRATION_PAUSE: Duration = Duration::from_secs(1);
/// How long PostgreSQL waits for the next statement of a transaction, before it ends it: a gateway
/// that was stopped must not hold the lock that all writes take.
pub const DATABASE_IDLE: Duration = Duration::from_secs(2);
/// First wait before another try to connect to PostgreSQL; it doubles.
pub const DATABASE_RETRY: Duration = Duration::from_millis(50);
/// Longest of those waits: keys are served again soon after the database is back.
pub const DATABASE_RETRY_MOST: Duration = Duration::from_secs(1);
/// Difference between the clock of a gateway's machine and the store's that people are told of.
pub const CLOCK_WRONG: Duration = Duration::from_secs(5);
/// How long a gateway that starts waits for its database, and tries to get its first lease.
pub const DATABASE_JOIN: Duration = Duration::from_secs(30);
/// Longest wait for the TCP connection to one address of PostgreSQL, before the next is tried.
pub const DATABASE_CONNECT: Duration = Duration::from_secs(3);
/// How long data to PostgreSQL may be unacknowledged before the connection counts as lost.
pub const DATABASE_UNACKNOWLEDGED: Duration = Duration::from_secs(5);
/// How long a connection to PostgreSQL may be silent before it is probed.
pub const DATABASE_KEEPALIVE: Duration = Duration::from_secs(5);
/// Shortest and longest `store.lease`. A shorter one would be lost with each pause of a busy
/// machine; a longer one lets a revocation wait for so long for a gateway that has gone.
pub const LEASE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(600));
