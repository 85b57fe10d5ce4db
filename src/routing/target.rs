//! A target as run: one model of one provider, with its prices and its state.

use std::sync::{Arc, OnceLock};

use http::HeaderValue;

use super::health::TargetState;
use super::name_patterns::beginning;
use super::provider::Provider;
use super::request_head::header_of;
use crate::dialect::endpoint::Endpoint;
use crate::dialect::protocol::Way;
use crate::dialect::usage::Usage;
use crate::store::{dollars, nano_usd};

/// One model of one provider.
#[derive(Debug)]
pub struct Target {
    pub provider: Arc<Provider>,
    /// The provider's name for the model.
    pub model: Arc<str>,
    /// The model as a header value.
    pub shown: HeaderValue,
    pub name: Arc<str>,
    pub prices: Option<Prices>,
    /// Context length in tokens, prompt and answer together.
    pub context: Option<u64>,
    pub capabilities: Option<Vec<String>>,
    /// Whether clients may ask for it by its name. A pattern that only a recipe's targets have made
    /// cannot be asked for.
    pub(super) is_direct: bool,
    /// The pattern that it is known by, if the document does not name it exactly. It shares the
    /// pattern's state, and is counted as the pattern.
    pub(super) pattern: Option<Arc<Target>>,
    pub(super) state: OnceLock<Arc<TargetState>>,
}

impl Target {
    /// Whether nodes serve it.
    pub fn is_on_nodes(&self) -> bool {
        self.provider.is_of_nodes()
    }

    /// Whether requests to this endpoint are translated for it.
    pub(super) fn is_translated(&self, endpoint: Endpoint) -> bool {
        matches!(self.provider.protocol.way(endpoint), Some(Way::Translated(_)))
    }

    /// The same target at one node, with that node's state.
    pub fn at_node(&self, provider: Arc<Provider>, state: Arc<TargetState>) -> Target {
        Target {
            provider,
            model: self.model.clone(),
            shown: self.shown.clone(),
            name: self.name.clone(),
            prices: self.prices,
            context: self.context,
            capabilities: self.capabilities.clone(),
            is_direct: self.is_direct,
            pattern: self.pattern.clone(),
            state: OnceLock::from(state),
        }
    }

    /// A target under this pattern.
    pub(super) fn under(self: &Arc<Self>, name: &str, model: &str) -> Target {
        Target {
            provider: Arc::clone(&self.provider),
            model: model.into(),
            shown: header_of(model),
            name: name.into(),
            prices: self.prices,
            context: self.context,
            capabilities: self.capabilities.clone(),
            is_direct: self.is_direct,
            pattern: Some(Arc::clone(self)),
            state: OnceLock::from(Arc::clone(self.state.get_or_init(Arc::default))),
        }
    }

    /// Whether it is a pattern of targets.
    pub(super) fn is_pattern(&self) -> bool {
        beginning(&self.model).is_some() && self.pattern.is_none()
    }

    /// The target of the document whose state and counts it shares: itself, or its pattern.
    pub fn entry(&self) -> &Target {
        self.pattern.as_deref().unwrap_or(self)
    }

    /// Its state. Live documents share it with their predecessors; another document has its own.
    pub fn state(&self) -> &TargetState {
        self.state.get_or_init(Arc::default)
    }
}

/// The endpoints whose requests are translated for some of these targets.
pub(super) fn translated<'t>(
    targets: impl Iterator<Item = &'t Arc<Target>> + Clone,
) -> Vec<Endpoint> {
    let is_translated =
        |endpoint: &Endpoint| targets.clone().any(|target| target.is_translated(*endpoint));
    Endpoint::ALL.into_iter().filter(is_translated).collect()
}

/// Prices in US dollars per million tokens. `None` is unknown, never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prices {
    pub input_per_mtok: Option<f64>,
    pub output_per_mtok: Option<f64>,
    /// Prompt tokens read from the provider's cache; unknown: same as other prompt tokens.
    pub cached_input_per_mtok: Option<f64>,
}

impl Prices {
    /// Cost of an answer in dollars, rounded to whole nano-dollars. `None` if a required price is
    /// unknown.
    pub fn cost(&self, usage: &Usage) -> Option<f64> {
        let input = self.input_per_mtok?;
        let cached = usage.cached_tokens.unwrap_or(0).min(usage.prompt_tokens);
        let fresh = usage.prompt_tokens - cached;
        let prompt =
            fresh as f64 * input + cached as f64 * self.cached_input_per_mtok.unwrap_or(input);
        let answer = match usage.output_tokens() {
            // Embedding models have no output price.
            0 => 0.0,
            tokens => tokens as f64 * self.output_per_mtok?,
        };
        Some(dollars(nano_usd((prompt + answer) / 1e6)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_needs_every_price_it_takes() {
        let (prompt_tokens, completion_tokens) = (1_000_000, 500_000);
        let usage = Usage {
            prompt_tokens,
            completion_tokens,
            total_tokens: 1_500_000,
            cached_tokens: Some(400_000),
            estimated: false,
        };
        let prices = Prices {
            input_per_mtok: Some(1.0),
            output_per_mtok: Some(4.0),
            cached_input_per_mtok: Some(0.1),
        };
        assert!((prices.cost(&usage).unwrap() - (0.6 + 0.04 + 2.0)).abs() < 1e-9);
        assert_eq!(Prices { output_per_mtok: None, ..prices }.cost(&usage), None);
        let thinking = Usage { total_tokens: 1_700_000, ..usage };
        assert!((prices.cost(&thinking).unwrap() - (0.6 + 0.04 + 2.8)).abs() < 1e-9);
        let without_cached = Prices { cached_input_per_mtok: None, ..prices };
        assert!((without_cached.cost(&usage).unwrap() - 3.0).abs() < 1e-9);
    }
}
