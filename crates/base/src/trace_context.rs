//! The W3C trace context of a request (<https://www.w3.org/TR/trace-context/>): `traceparent` and
//! `tracestate` from clients and to providers.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::id::Random;

static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
static TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Length of a `traceparent` of version 00.
const LENGTH: usize = 55;
/// Limit on the bytes of a `tracestate` that is passed on. The standard requires at least this
/// much.
const STATE_BYTES: usize = 512;
/// Limit on the members of a `tracestate`.
const STATE_MEMBERS: usize = 32;
/// The flag of traces whose spans are recorded.
const SAMPLED: u8 = 1;

/// The id of a trace: 32 lower-case hexadecimal digits, not all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(u128);

/// The id of a span: 16 lower-case hexadecimal digits, not all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanId(u64);

impl TraceId {
    pub fn parse(digits: &str) -> Option<Self> {
        is_hex(digits, 32).then(|| u128::from_str_radix(digits, 16).ok())?.and_then(TraceId::new)
    }

    fn new(id: u128) -> Option<Self> {
        (id != 0).then_some(TraceId(id))
    }

    /// The bytes of the id, big-endian.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Makes an id from big-endian bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Option<Self> {
        TraceId::new(u128::from_be_bytes(bytes))
    }

    /// Whether the trace is sampled at a rate of `share`, from 0 to 1. The result depends on the id
    /// alone, so it is the same everywhere.
    #[allow(clippy::cast_precision_loss)] // a share needs no more than 53 bits
    fn is_drawn(self, share: f64) -> bool {
        let draw = (self.0 as u64 >> 11) as f64 / (1u64 << 53) as f64;
        draw < share
    }
}

impl SpanId {
    fn parse(digits: &str) -> Option<Self> {
        is_hex(digits, 16).then(|| u64::from_str_radix(digits, 16).ok())?.and_then(SpanId::new)
    }

    fn new(id: u64) -> Option<Self> {
        (id != 0).then_some(SpanId(id))
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Serialize for TraceId {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TraceId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let digits = String::deserialize(from)?;
        TraceId::parse(&digits).ok_or_else(|| serde::de::Error::custom("not the id of a trace"))
    }
}

#[derive(Clone, Debug)]
pub struct TraceContext {
    pub trace: TraceId,
    pub span: SpanId,
    /// The client's span that contains the request.
    pub parent: Option<SpanId>,
    /// Whether its spans are exported.
    pub sampled: bool,
    /// The `tracestate` of other systems, which is passed on unchanged.
    state: Option<HeaderValue>,
}

impl TraceContext {
    /// Continues the trace in the headers, sampled as they say. If there is none, or it is
    /// malformed, starts a new trace, which is sampled at a rate of `share` (from 0 to 1).
    pub fn of(headers: &HeaderMap, random: &Random, share: f64) -> Self {
        let span = new_span(random);
        if let Some((trace, parent, sampled)) = continued(headers) {
            let state = state(headers);
            return TraceContext { trace, span, parent: Some(parent), sampled, state };
        }
        let half = || u128::from(random.next_u64());
        let trace = TraceId((half() << 64 | half()).max(1));
        TraceContext { trace, span, parent: None, sampled: trace.is_drawn(share), state: None }
    }

    /// A context with a new span inside this one.
    pub fn within(&self, random: &Random) -> Self {
        TraceContext { span: new_span(random), parent: Some(self.span), ..self.clone() }
    }

    /// The span of the request's attempt with this number, from 0.
    pub fn attempt(&self, number: usize) -> SpanId {
        SpanId(self.span.0.wrapping_add(number as u64 + 1).max(1))
    }

    /// Sets the context of an attempt on its request, so that the provider's spans belong to it.
    pub fn write(&self, attempt: usize, headers: &mut HeaderMap) {
        let flags = if self.sampled { SAMPLED } else { 0 };
        let text = format!("00-{}-{}-{flags:02x}", self.trace, self.attempt(attempt));
        if let Ok(value) = HeaderValue::try_from(text) {
            headers.insert(&TRACEPARENT, value);
        }
        if let Some(state) = &self.state {
            headers.insert(&TRACESTATE, state.clone());
        }
    }
}

fn new_span(random: &Random) -> SpanId {
    SpanId(random.next_u64().max(1))
}

/// Trace, span and sampling of a `traceparent`, if there is exactly one and it is well-formed.
fn continued(headers: &HeaderMap) -> Option<(TraceId, SpanId, bool)> {
    let mut lines = headers.get_all(&TRACEPARENT).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else { return None };
    parse(line.to_str().ok()?)
}

/// Reads a `traceparent`. Later versions may have more after the flags.
fn parse(text: &str) -> Option<(TraceId, SpanId, bool)> {
    let (head, rest) = text.split_at_checked(LENGTH)?;
    let mut parts = head.split('-');
    let (version, trace) = (parts.next()?, parts.next()?);
    let (span, flags) = (parts.next()?, parts.next()?);
    let is_whole = match version {
        "00" => rest.is_empty(),
        "ff" => false,
        _ => rest.is_empty() || rest.starts_with('-'),
    };
    if !is_whole || !is_hex(version, 2) || !is_hex(flags, 2) || parts.next().is_some() {
        return None;
    }
    let sampled = u8::from_str_radix(flags, 16).ok()? & SAMPLED != 0;
    Some((TraceId::parse(trace)?, SpanId::parse(span)?, sampled))
}

fn is_hex(digits: &str, length: usize) -> bool {
    digits.len() == length && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// The `tracestate` of all header lines, joined; `None` if it is malformed or too long.
fn state(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut lines = headers.get_all(&TRACESTATE).iter();
    let first = lines.next()?;
    let whole = lines.try_fold(first.to_str().ok()?.to_owned(), |whole, line| {
        Some(format!("{whole},{}", line.to_str().ok()?))
    })?;
    let members = || whole.split(',').map(str::trim).filter(|member| !member.is_empty());
    let is_good = whole.len() <= STATE_BYTES
        && (1..=STATE_MEMBERS).contains(&members().count())
        && members().all(|member| member.find('=').is_some_and(|at| at > 0));
    HeaderValue::try_from(whole).ok().filter(|_| is_good)
}

#[cfg(test)]
#[path = "trace_context_tests.rs"]
mod tests;
