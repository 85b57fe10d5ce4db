//! Packs values: one after another, without names, in the order of their fields. Numbers take seven
//! bits per byte (LEB128), texts and lists are preceded by their length, and optional values by one
//! byte.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::record::{Attempt, CaptureState, Head, Served};
use rerouter_base::error::RefusalReason;
use rerouter_base::id::{KeyId, RequestId, UserId};
use rerouter_base::trace_context::TraceId;
use rerouter_base::usage_kind::UsageCounts;
use rerouter_dialect::usage::Usage;
use rerouter_routing::{
    Abilities, AgentRef, BreakerState, Candidate, Decision, Inputs, KeywordHit, NodeFacts,
    PlanEntry, PrincipalFacts, RefusedFeature, RequestFacts, TargetHealth, TextMatches, Trace,
};

/// A value that can be packed. [`Pack::take`] returns `None` for bytes that [`Pack::put`] cannot
/// have written, and takes at most a few times the memory of the bytes that are left.
pub(super) trait Pack: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(from: &mut &[u8]) -> Option<Self>;
}

pub(super) fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    bytes.len().put(out);
    out.extend_from_slice(bytes);
}

pub(super) fn take_text<'a>(from: &mut &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(skip_bytes(from)?).ok()
}

pub(super) fn skip_bytes<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::take(from)?;
    let (bytes, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(bytes)
}

impl Pack for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        let mut rest = *self;
        while rest > 0x7f {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = from.split_first()?;
            *from = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Pack for $number {
            fn put(&self, out: &mut Vec<u8>) {
                (*self as u64).put(out);
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                u64::take(from)?.try_into().ok()
            }
        }
    )*};
}

numbers!(u16 u32 usize);

impl Pack for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        (*byte < 2).then_some(*byte == 1)
    }
}

impl Pack for f64 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let (bytes, rest) = from.split_first_chunk()?;
        *from = rest;
        Some(f64::from_be_bytes(*bytes))
    }
}

/// Microseconds since 1970. Smaller fractions are lost.
impl Pack for Timestamp {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_microsecond().cast_unsigned().put(out);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Timestamp::from_microsecond(u64::take(from)?.cast_signed()).ok()
    }
}

macro_rules! texts {
    ($($text:ty: $from:expr, $as:expr;)*) => {$(
        impl Pack for $text {
            fn put(&self, out: &mut Vec<u8>) {
                let text: fn(&$text) -> &str = $as;
                put_bytes(text(self).as_bytes(), out);
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                take_text(from).map($from)
            }
        }
    )*};
}

texts! {
    String: str::to_owned, String::as_str;
    Arc<str>: Arc::from, AsRef::as_ref;
    RequestId: RequestId::known, RequestId::as_str;
    KeyId: KeyId::known, KeyId::as_str;
    UserId: UserId::known, UserId::as_str;
}

impl Pack for Cow<'static, str> {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(self.as_bytes(), out);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        String::take(from).map(Cow::Owned)
    }
}

impl<T: Pack> Pack for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Some(if bool::take(from)? { Some(T::take(from)?) } else { None })
    }
}

/// The last field that every head has. A head without a trace ends before it, like heads that were
/// written before the field existed.
impl Pack for Option<TraceId> {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|id| out.extend_from_slice(&id.to_bytes()));
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let Some((bytes, rest)) = from.split_first_chunk() else {
            return from.is_empty().then_some(None);
        };
        *from = rest;
        TraceId::from_bytes(*bytes).map(Some)
    }
}

/// [`put_head`] puts it behind the head.
impl Pack for Option<RefusalReason> {
    fn put(&self, _: &mut Vec<u8>) {}

    fn take(_: &mut &[u8]) -> Option<Self> {
        Some(None)
    }
}

impl<T: Pack> Pack for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        (0..usize::take(from)?).map(|_| T::take(from)).collect()
    }
}

impl<K: Pack + Ord, V: Pack> Pack for BTreeMap<K, V> {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        for (key, value) in self {
            key.put(out);
            value.put(out);
        }
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        (0..usize::take(from)?).map(|_| Some((K::take(from)?, V::take(from)?))).collect()
    }
}

impl<T: Pack> Pack for Arc<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (**self).put(out);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        T::take(from).map(Arc::new)
    }
}

/// Enumerations, packed as the index of the value in its list.
macro_rules! words {
    ($($word:ident: $($value:ident)*;)*) => {$(
        impl Pack for $word {
            fn put(&self, out: &mut Vec<u8>) {
                out.push(*self as u8);
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                let (byte, rest) = from.split_first()?;
                *from = rest;
                [$($word::$value),*].into_iter().find(|word| *word as u8 == *byte)
            }
        }
    )*};
}

words! {
    CaptureState: Completed Failed Aborted Refused;
    BreakerState: Closed Open HalfOpen;
}

/// Structures, packed field by field. A field that is missing here is a compile error.
macro_rules! structures {
    ($($name:ident { $($field:ident)* })*) => {$(
        impl Pack for $name {
            fn put(&self, out: &mut Vec<u8>) {
                let $name { $($field),* } = self;
                $($field.put(out);)*
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                Some($name { $($field: Pack::take(from)?),* })
            }
        }
    )*};
}

structures! {
    Attempt { provider model node status error duration_ms }
    Served { provider model node }
    Decision {
        provider model recipe rule strategy alias revision seed propensity plan candidates trace
    }
    PlanEntry { provider model }
    Candidate { provider model eligible reason }
    Trace { rule error }
    Inputs { version at request keywords texts principal seed health }
    RequestFacts {
        endpoint model name agent needs prompt_tokens max_tokens choices stream messages tools
        images audio json_output language headers untranslatable
    }
    AgentRef { id name etag }
    RefusedFeature { member detail }
    KeywordHit { hash hit }
    TextMatches { digest matches }
    PrincipalFacts { key user labels user_labels models }
    TargetHealth { breaker probe_free cooldown_until ewma_us inflight max nodes node }
    NodeFacts { models load abilities }
    Abilities { context capabilities }
    // If headers are packed apart, these lists are empty.
    Head {
        version id created_at state endpoint owner key agent client_request_id query stream status
        request_headers response_headers response_stream inputs decision routing_us attempts
        served usage cost_usd ttft_ms total_ms request_captured request_truncated
        response_truncated redacted request_whole response_assembled replay_of replayed_by
        shadow_of error imported trace_id refused
    }
}

/// The counts that every head has. [`put_head`] puts the others behind the head.
impl Pack for Usage {
    fn put(&self, out: &mut Vec<u8>) {
        self.prompt_tokens.put(out);
        self.completion_tokens.put(out);
        self.total_tokens.put(out);
        self.counts.cached_tokens.put(out);
        self.estimated.put(out);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let mut usage = Usage {
            prompt_tokens: Pack::take(from)?,
            completion_tokens: Pack::take(from)?,
            total_tokens: Pack::take(from)?,
            ..Usage::default()
        };
        usage.counts.cached_tokens = Pack::take(from)?;
        usage.estimated = Pack::take(from)?;
        Some(usage)
    }
}

/// The trace id of a head that has none, but is followed by more.
const NO_TRACE: [u8; 16] = [0xff; 16];

/// Puts a head, and behind it what few heads have: why the request was refused, and further kinds
/// of usage.
pub(super) fn put_head(head: &Head, out: &mut Vec<u8>) {
    head.put(out);
    let usage = head.usage.as_ref().filter(|usage| usage.has_kinds());
    if head.refused.is_none() && usage.is_none() {
        return;
    }
    if head.trace_id.is_none() {
        out.extend_from_slice(&NO_TRACE);
    }
    out.push(head.refused.map_or(0, |reason| reason as u8 + 1));
    let Some(usage) = usage else { return };
    Vec::from(usage.counts.all()).put(out);
    usage.extra.cost_usd.put(out);
    usage.extra.modes.put(out);
    let unknown = usage.extra.unknown.iter().map(|(path, told)| (path.clone(), told.to_string()));
    unknown.collect::<Vec<_>>().put(out);
}

pub(super) fn take_head(from: &mut &[u8]) -> Option<Head> {
    let mut head = Head::take(from)?;
    head.trace_id = head.trace_id.filter(|id| id.to_bytes() != NO_TRACE);
    let Some((reason, rest)) = from.split_first() else { return Some(head) };
    *from = rest;
    head.refused =
        RefusalReason::ALL.into_iter().find(|known| Some(*known as u8) == reason.checked_sub(1));
    let Some(usage) = head.usage.as_mut().filter(|_| !from.is_empty()) else { return Some(head) };
    // A head of another build may have fewer kinds, or more.
    let mut counts = UsageCounts::default().all();
    counts.iter_mut().zip(Vec::take(from)?).for_each(|(count, told)| *count = told);
    usage.counts = UsageCounts::of(counts);
    usage.extra.cost_usd = Pack::take(from)?;
    usage.extra.modes = Pack::take(from)?;
    let unknown = Vec::<(String, String)>::take(from)?.into_iter();
    let told = unknown.map(|(path, told)| Some((path, serde_json::from_str(&told).ok()?)));
    usage.extra.unknown = told.collect::<Option<_>>()?;
    Some(head)
}

impl Pack for (String, String) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Some((String::take(from)?, String::take(from)?))
    }
}
