//! Why there is no decision, and the error that the client gets.

use std::time::Duration;

use super::decision::Candidate;
use super::inputs::RefusedFeature;
use super::name_patterns::MODEL_NAME_BYTES;
use rerouter_base::error::{Error, Kind, RefusalReason};

#[derive(Clone, Debug, PartialEq)]
pub enum RoutingRefusal {
    /// The document does not have the requested name.
    ModelNotFound { model: String },
    /// Every target of the matching rule is ineligible.
    NoTarget {
        candidates: Vec<Candidate>,
        /// Time until a target may be free again, if all targets that fit are at a limit.
        retry_after: Option<Duration>,
        /// Set if the request exceeds the context of a target.
        too_long: Option<TooLong>,
        /// The feature that a target's dialect cannot carry, if the target is ineligible for that
        /// reason.
        untranslatable: Option<RefusedFeature>,
    },
}

/// Length of a request and the limit that it exceeds, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    pub prompt: u64,
    pub answer: u64,
    /// Longest context among the targets that are too short.
    pub most: u64,
}

impl From<RoutingRefusal> for Error {
    fn from(refusal: RoutingRefusal) -> Error {
        match refusal {
            RoutingRefusal::ModelNotFound { model } => {
                let shown: String = model.chars().take(MODEL_NAME_BYTES).collect();
                Error::new(
                    Kind::ModelNotFound,
                    format!("The model `{shown}` does not exist or you do not have access to it."),
                )
                .at("model")
            }
            RoutingRefusal::NoTarget { candidates, retry_after, too_long, untranslatable } => {
                no_target(&candidates, retry_after, too_long, untranslatable)
                    .refusing(RefusalReason::Target)
            }
        }
    }
}

/// 400 if the request fits no target, 429 if waiting helps, else 503. The message lists each target
/// with its reason.
fn no_target(
    candidates: &[Candidate],
    retry_after: Option<Duration>,
    too_long: Option<TooLong>,
    untranslatable: Option<RefusedFeature>,
) -> Error {
    let reasons = || candidates.iter().filter_map(|candidate| candidate.reason.as_deref());
    let why: Vec<String> = candidates
        .iter()
        .map(|candidate| {
            format!(
                "{}/{}: {}",
                candidate.provider,
                candidate.model,
                candidate.reason.as_deref().unwrap_or("eligible")
            )
        })
        .collect();
    let why = why.join(", ");
    if candidates.is_empty() {
        Error::new(Kind::NoTarget, "No rule leads this request to a target.")
    } else if let Some(too_long) =
        too_long.filter(|_| reasons().all(|reason| matches!(reason, "context" | "endpoint")))
    {
        Error::new(Kind::ContextLengthExceeded, too_long.message(&why)).at("messages")
    } else if reasons().all(|reason| reason == "endpoint") {
        let message = format!(
            "No provider that the request may go to speaks the protocol of this endpoint ({why})."
        );
        Error::new(Kind::UnsupportedFeature, message).at("model")
    } else if let Some(RefusedFeature { member, detail }) =
        untranslatable.filter(|_| reasons().all(is_permanent))
    {
        Error::new(Kind::UnsupportedFeature, format!("{detail} ({why})")).at(member)
    } else if reasons().all(is_permanent) {
        Error::new(
            Kind::UnsupportedFeature,
            format!("No model that the request may go to can do all that it asks for ({why})."),
        )
    } else if let Some(wait) = retry_after {
        Error::new(
            Kind::RateLimited,
            format!("Every target that the request may go to is at its limit ({why})."),
        )
        .retry_after(wait)
    } else {
        Error::new(Kind::NoTarget, format!("No target can take the request now ({why})."))
    }
}

impl TooLong {
    /// A message with the phrases of OpenAI and of Anthropic that clients search for.
    fn message(self, why: &str) -> String {
        let TooLong { prompt, answer, most } = self;
        let limit = format!("This model's maximum context length is {most} tokens");
        if prompt > most {
            return format!(
                "{limit}, and the prompt is too long: {prompt} tokens > {most} maximum, \
                as estimated ({why})."
            );
        }
        let sum = format!(
            "input length and `max_tokens` exceed context limit: {prompt} + {answer} > {most}"
        );
        format!("{limit}, and {sum}, as estimated (context_length_exceeded; {why}).")
    }
}

/// Whether the reason is a property of the request, so that a later attempt would fail as well.
pub(super) fn is_permanent(reason: &str) -> bool {
    matches!(reason, "endpoint" | "translation" | "capability" | "context")
}
