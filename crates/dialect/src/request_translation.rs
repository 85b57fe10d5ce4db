//! Translates requests between dialects.

use bytes::Bytes;
use http::{HeaderName, HeaderValue};

use super::feature::{Fate, Feature};
pub use super::members::MalformedRequest;
use super::members::printable;
use super::neutral::part::{Part, Thinking};
use super::neutral::request::{Request, Use};
use super::{Dialect, messages};
use rerouter_base::error::{Error, Kind};

#[derive(Debug)]
pub struct Translated {
    pub body: Bytes,
    /// Members of the client's request that were left out, for `x-rerouter-dropped`. They consist
    /// of letters, digits and `_.:-`.
    pub dropped: Vec<String>,
    /// A header that the body needs.
    pub header: Option<(HeaderName, HeaderValue)>,
}

/// A request that cannot be translated, as its meaning would change.
#[derive(Debug, PartialEq, Eq)]
pub struct TranslationRefusal {
    pub feature: Feature,
    /// The member of the client's request that uses the feature.
    pub member: String,
    pub target: Dialect,
}

/// Reads a request. Fails if the body does not have the shape of its dialect, or if the dialect has
/// no clients.
pub fn read_request(source: Dialect, body: &[u8]) -> Result<Request, MalformedRequest> {
    let Some(rules) = &source.row().client else {
        return Err(MalformedRequest("the dialect".to_owned()));
    };
    let mut request = (rules.read_request)(body)?;
    request.conclude(rules.prefills);
    Ok(request)
}

/// The first feature of the request that the target refuses; `None` if the request can be
/// translated.
pub fn refused(request: &Request, target: Dialect) -> Option<TranslationRefusal> {
    let refused = request.uses.iter().find(|used| used.feature.fate(target) == Fate::Refused)?;
    let member = printable(&refused.member());
    Some(TranslationRefusal { feature: refused.feature, member, target })
}

/// Writes a request in another dialect. A body for Gemini names no model, as that is in the path.
pub fn write_request(request: &Request, target: Dialect) -> Result<Translated, TranslationRefusal> {
    let short = (target != Dialect::Messages).then(|| request.with_short_names()).flatten();
    write_as(short.as_ref().unwrap_or(request), target, target.row().write_request)
}

/// Writes a request that counts the tokens of `request`; `None` if the dialect has no such request.
pub fn write_count(request: &Request, target: Dialect) -> Option<Translated> {
    let rules = target.row().count.as_ref()?;
    write_as(request, target, |request, _| (rules.write)(request)).ok()
}

fn write_as(
    request: &Request,
    target: Dialect,
    write: impl FnOnce(&Request, &mut Vec<String>) -> Vec<u8>,
) -> Result<Translated, TranslationRefusal> {
    if let Some(refused) = refused(request, target) {
        return Err(refused);
    }
    let kept = keeps_thinking(request, target).then_some(Feature::Thinking);
    let lost = request
        .uses
        .iter()
        .filter(|used| used.feature.fate(target) == Fate::Dropped && Some(used.feature) != kept);
    let mut dropped: Vec<String> = lost.map(Use::member).collect();
    let limits_user = matches!(target, Dialect::Chat | Dialect::Responses);
    if limits_user && request.user.is_some() && request.short_user().is_none() {
        dropped.push("user".to_owned());
    }
    match (request.depth(), &request.reasoning) {
        (None, Some(_)) => dropped.extend(request.reasoning_members()),
        (Some(depth), Some(asked)) if *depth != asked.depth => {
            dropped.extend(request.reasoning_members().last());
        }
        _ => {}
    }
    let body = write(request, &mut dropped).into();
    let dropped = dropped.iter().map(|member| printable(member)).collect();
    let needs_beta = target == Dialect::Messages && !request.mcp_servers.is_empty();
    let beta = HeaderValue::from_static(messages::request_writer::MCP_BETA);
    let header = needs_beta.then_some((messages::BETA_HEADER, beta));
    Ok(Translated { body, dropped, header })
}

/// Whether there is earlier thinking that the target gets: all of it sealed by its dialect, or as
/// text.
fn keeps_thinking(request: &Request, target: Dialect) -> bool {
    let parts = request.turns.iter().flat_map(|turn| &turn.content);
    let mut thinking = parts.filter_map(|part| match part {
        Part::Thinking(thinking) => Some(thinking),
        _ => None,
    });
    let takes_text = target == Dialect::Chat && request.target.reasoning_content;
    let is_own = |thinking: &Thinking| {
        thinking.seal.as_ref().is_some_and(|seal| seal.dialect == target.name())
            || (takes_text && !thinking.text.is_empty())
    };
    thinking.next().is_some_and(is_own) && thinking.all(is_own)
}

impl From<TranslationRefusal> for Error {
    fn from(refused: TranslationRefusal) -> Self {
        let TranslationRefusal { feature, member, target } = refused;
        let detail = format!(
            "`{member}` asks for {}, which a provider that speaks {} cannot be asked for.",
            feature.title(),
            target.title()
        );
        Error::new(Kind::UnsupportedFeature, detail).at(member)
    }
}

impl From<MalformedRequest> for Error {
    fn from(malformed: MalformedRequest) -> Self {
        if malformed.0 == MalformedRequest::TOO_LARGE {
            let detail = format!("The request can't be translated: {}.", malformed.0);
            return Error::new(Kind::InvalidRequest, detail);
        }
        let member = malformed.0.split(' ').next().unwrap_or_default().to_owned();
        let detail = format!("The request can't be translated: {} has another shape.", malformed.0);
        Error::invalid(member, detail)
    }
}
