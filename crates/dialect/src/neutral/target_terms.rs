//! What the target of a translated request takes.

use std::sync::Arc;

use serde::Deserialize;

rerouter_base::words! {
    /// How a model can be asked to reason, from the least effort to the most.
    pub enum Effort {
        /// By a limit in tokens, and not by an effort.
        Budget = "budget",
        None = "none",
        Minimal = "minimal",
        Low = "low",
        Medium = "medium",
        High = "high",
        XHigh = "xhigh",
        Max = "max",
    }
}

/// What a provider and its model take. The default is OpenAI's own API and a model of which nothing
/// is known.
#[derive(Clone, Debug)]
pub struct TargetTerms {
    /// Of chat completions: whether the provider takes `max_completion_tokens`; others take
    /// `max_tokens` only.
    pub completion_tokens: bool,
    /// Of chat completions: whether the provider takes `stream_options.include_usage`.
    pub stream_usage: bool,
    /// Of chat completions: whether the provider wants its earlier thinking back, as
    /// `reasoning_content`. Others refuse that member.
    pub reasoning_content: bool,
    pub model: ModelTerms,
}

impl Default for TargetTerms {
    fn default() -> Self {
        let model = ModelTerms::default();
        TargetTerms { completion_tokens: true, stream_usage: true, reasoning_content: false, model }
    }
}

/// What a model takes; `None` is unknown.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
pub struct ModelTerms {
    /// Tokens of the longest answer, thinking included.
    pub longest_answer: Option<u64>,
    /// The efforts that it takes. Empty if it does not reason.
    pub reasoning: Option<Arc<[Effort]>>,
    /// Whether it takes `temperature`, `top_p` and `top_k`.
    pub sampling: Option<bool>,
}

impl ModelTerms {
    /// These terms, and those of `other` where these are unknown.
    pub fn or(&self, other: &ModelTerms) -> ModelTerms {
        ModelTerms {
            longest_answer: self.longest_answer.or(other.longest_answer),
            reasoning: self.reasoning.as_ref().or(other.reasoning.as_ref()).cloned(),
            sampling: self.sampling.or(other.sampling),
        }
    }

    /// Whether it is known to take this effort.
    pub(crate) fn takes(&self, effort: Effort) -> bool {
        self.reasoning.as_ref().is_some_and(|efforts| efforts.contains(&effort))
    }

    /// Whether it is known not to reason.
    pub(crate) fn never_reasons(&self) -> bool {
        self.reasoning.as_ref().is_some_and(|efforts| efforts.is_empty())
    }

    /// The effort itself, or the next lower one that the model takes, or else its lowest. `None` if
    /// it does not reason.
    pub(crate) fn fit<'a>(&self, effort: &'a str) -> Option<&'a str> {
        let (Some(taken), Some(asked)) = (&self.reasoning, Effort::parse(effort)) else {
            return Some(effort).filter(|_| !self.never_reasons());
        };
        let is_budget = self.takes(Effort::Budget) && asked != Effort::None;
        if is_budget || taken.contains(&asked) {
            return Some(effort);
        }
        let thinking = || taken.iter().copied().filter(|effort| *effort > Effort::None);
        let lower = thinking().filter(|effort| *effort < asked).max();
        lower.or_else(|| thinking().min()).map(Effort::as_str)
    }
}
