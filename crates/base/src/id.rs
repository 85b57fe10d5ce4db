//! Identifiers: a prefix and 26 lower-case Crockford base32 digits of a UUIDv7 (RFC 9562 section
//! 5.7), so that ids sort by creation. An id is independent of the secret of its object.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Precision of the time in an id, in microseconds.
pub const ID_PRECISION_US: i64 = 1_000;

/// A source of random bytes: the system, or a seed in tests.
#[derive(Clone, Debug, Default)]
pub enum Random {
    /// The operating system's CSPRNG.
    #[default]
    System,
    /// SHA-256 in counter mode over a seed: repeatable, for tests only.
    Seeded(Arc<Mutex<(u64, u64)>>),
}

impl Random {
    pub fn seeded(seed: u64) -> Self {
        Random::Seeded(Arc::new(Mutex::new((seed, 0))))
    }

    /// Fills `out` with random bytes. The system source never fails on supported platforms. If it
    /// did, the process would abort rather than create weak secrets.
    pub fn fill(&self, out: &mut [u8]) {
        match self {
            Random::System => {
                if getrandom::fill(out).is_err() {
                    std::process::abort();
                }
            }
            Random::Seeded(state) => {
                use sha2::Digest;
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                for chunk in out.chunks_mut(32) {
                    let mut hasher = sha2::Sha256::new();
                    hasher.update(state.0.to_be_bytes());
                    hasher.update(state.1.to_be_bytes());
                    state.1 += 1;
                    let digest = hasher.finalize();
                    for (to, from) in chunk.iter_mut().zip(digest.iter()) {
                        *to = *from;
                    }
                }
            }
        }
    }

    pub fn next_u64(&self) -> u64 {
        u64::from_be_bytes(self.open())
    }

    /// Random bytes for ids and draws, which are not secret. They come from a stock of the thread,
    /// so that a request needs no system call.
    fn open<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        match self {
            Random::System => STOCK.with_borrow_mut(|stock| {
                if stock.len() < N {
                    stock.resize(STOCKED, 0);
                    self.fill(stock);
                }
                let left = stock.len() - N;
                let taken = stock.get_mut(left..).unwrap_or_default();
                bytes.copy_from_slice(taken);
                taken.fill(0);
                stock.truncate(left);
            }),
            Random::Seeded(_) => self.fill(&mut bytes),
        }
        bytes
    }
}

/// Random bytes that a thread takes from the system at once.
const STOCKED: usize = 1024;

thread_local! {
    /// The unused random bytes. Used ones are wiped. A forked process would draw the same bytes, so
    /// nothing forks once threads run.
    static STOCK: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

const CROCKFORD: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// Number of digits in an id.
const DIGITS: usize = 26;
/// Length of the longest prefix.
const LONGEST_PREFIX: usize = 6;

fn mint(prefix: &str, at: Timestamp, random: &Random) -> Arc<str> {
    spell(prefix, at, random.open())
}

fn spell(prefix: &str, at: Timestamp, noise: [u8; 10]) -> Arc<str> {
    let millis = u64::try_from(at.as_millisecond()).unwrap_or(0);
    let mut value = uuid::Builder::from_unix_timestamp_millis(millis, &noise).into_uuid().as_u128();
    let mut text = [0; LONGEST_PREFIX + DIGITS];
    let (start, digits) = text.split_at_mut(prefix.len());
    start.copy_from_slice(prefix.as_bytes());
    let digits = digits.get_mut(..DIGITS).unwrap_or_default();
    for digit in digits.iter_mut().rev() {
        *digit = CROCKFORD.get((value & 31) as usize).copied().unwrap_or(b'0');
        value >>= 5;
    }
    let length = prefix.len() + DIGITS;
    text.get(..length).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default().into()
}

fn is_well_formed(prefix: &str, text: &str) -> bool {
    text.strip_prefix(prefix)
        .is_some_and(|digits| digits.len() == 26 && digits.bytes().all(|b| CROCKFORD.contains(&b)))
}

/// The time at which an id was made, in whole milliseconds; `None` if it is no UUIDv7.
fn made_at(prefix: &str, id: &str) -> Option<Timestamp> {
    let digits = id.strip_prefix(prefix).filter(|digits| digits.len() == 26)?;
    let digit = |byte: u8| CROCKFORD.iter().position(|known| *known == byte);
    let value = digits
        .bytes()
        .try_fold(0_u128, |value, byte| value.checked_mul(32)?.checked_add(digit(byte)? as u128))?;
    let id = uuid::Uuid::from_u128(value);
    (id.get_version_num() == 7).then_some(())?;
    Timestamp::from_millisecond(i64::try_from(value >> 80).ok()?).ok()
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            /// Makes a new id, which sorts after ids of earlier milliseconds.
            pub fn new(at: Timestamp, random: &Random) -> Self {
                $name(mint(Self::PREFIX, at, random))
            }

            /// Parses an id from outside; `None` unless it has exactly this form.
            pub fn parse(text: &str) -> Option<Self> {
                is_well_formed(Self::PREFIX, text).then(|| $name(text.into()))
            }

            /// Wraps a trusted id, from the store or built in, without a check.
            pub fn known(text: &str) -> Self {
                $name(text.into())
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<$name> for Arc<str> {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": concat!("^", $prefix) })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

ids! {
    /// A user: `usr_…`; the built-in one behind `ADMIN_API_KEY` is `usr_admin`.
    UserId "usr_";
    /// An API key of any interface: `key_…`.
    KeyId "key_";
    AgentId "agent_";
    NodeId "node_";
    /// A request, and the capture made of it: `req_…`.
    RequestId "req_";
    /// A login session. This id is never accepted as a credential.
    SessionId "sess_";
    /// A row of the audit log: `aud_…`.
    AuditId "aud_";
    /// The registration of a gateway that shares its store: `gw_…`.
    GatewayId "gw_";
}

impl RequestId {
    /// The smallest id of requests that began at this time, in microseconds since the epoch, or
    /// later; `None` if the time is out of range.
    pub fn first_at(at_us: i64) -> Option<Self> {
        Some(RequestId(spell(Self::PREFIX, Timestamp::from_microsecond(at_us).ok()?, [0; 10])))
    }

    /// The time at which the request began, in whole milliseconds; `None` if it is no UUIDv7.
    pub fn at(&self) -> Option<Timestamp> {
        made_at(Self::PREFIX, &self.0)
    }
}

impl AuditId {
    /// The time at which it was made, in whole milliseconds; `None` if it is no UUIDv7.
    pub fn at(&self) -> Option<Timestamp> {
        made_at(Self::PREFIX, &self.0)
    }
}

impl UserId {
    /// The built-in user behind `ADMIN_API_KEY`.
    pub fn admin() -> Self {
        UserId::known("usr_admin")
    }

    /// The owner of all AGENT keys. Nobody can log in as this user.
    pub fn tenant() -> Self {
        UserId::known("usr_agent")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_their_form_and_sort_by_time() {
        let random = Random::seeded(1);
        let early = RequestId::new(Timestamp::from_second(1_000).unwrap(), &random);
        let late = RequestId::new(Timestamp::from_second(1_001).unwrap(), &random);
        assert!(early < late);
        let second = |second: i64| RequestId::first_at(second * 1_000_000).unwrap();
        assert!(second(1_000) <= early && early < second(1_001) && second(1_001) <= late);
        assert_eq!(
            (RequestId::first_at(i64::MAX), RequestId::first_at(-5)),
            (None, Some(second(0)))
        );
        assert_eq!(RequestId::parse(early.as_str()), Some(early.clone()));
        assert_eq!(KeyId::parse(early.as_str()), None);
        assert_eq!(RequestId::parse("req_ILOU"), None);
        assert_eq!(early.as_str().len(), 30);
        let at = Timestamp::from_millisecond(1_764_000_000_123).unwrap();
        assert_eq!(AuditId::new(at, &random).at(), Some(at));
        assert_eq!(AuditId::parse(&format!("aud_{}", "0".repeat(26))).unwrap().at(), None);
        assert_eq!(AuditId::parse(&format!("aud_{}", "z".repeat(26))).unwrap().at(), None);
    }

    #[test]
    fn a_seed_repeats_and_the_system_does_not() {
        assert_eq!(Random::seeded(5).next_u64(), Random::seeded(5).next_u64());
        assert_ne!(Random::System.next_u64(), Random::System.next_u64());
    }

    #[test]
    fn the_stock_of_a_thread_is_drawn_once() {
        let draw = || (0..1_000).map(|_| Random::System.next_u64()).collect::<Vec<_>>();
        let mut drawn = draw();
        drawn.extend(std::thread::spawn(draw).join().unwrap());
        let at = Timestamp::UNIX_EPOCH;
        let ids: std::collections::BTreeSet<AgentId> =
            (0..1_000).map(|_| AgentId::new(at, &Random::System)).collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!((drawn.len(), ids.len()), (2_000, 1_000));
        assert!(ids.iter().all(|id| AgentId::parse(id.as_str()).is_some()));
        STOCK.with_borrow(|stock| assert!(stock.len() < STOCKED));
    }

    proptest::proptest! {
        #[test]
        fn digits_are_those_of_the_number(millis in 0_i64..1 << 47, noise: [u8; 10]) {
            let at = Timestamp::from_millisecond(millis).unwrap();
            let value = uuid::Builder::from_unix_timestamp_millis(millis as u64, &noise)
                .into_uuid()
                .as_u128();
            let digit = |place: u32| char::from(CROCKFORD[(value >> (5 * place)) as usize & 31]);
            let plain: String = (0..26).rev().map(digit).collect();
            for prefix in ["agent_", "req_"] {
                proptest::prop_assert_eq!(&*spell(prefix, at, noise), format!("{prefix}{plain}"));
            }
        }
    }
}
