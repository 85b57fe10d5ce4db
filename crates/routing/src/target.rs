//! A target of a compiled document: one model of one provider, with its prices and its state.

use std::sync::{Arc, OnceLock};

use http::HeaderValue;

use super::health::TargetState;
use super::name_patterns::beginning;
use super::price_list;
use super::prices::Prices;
use super::provider::Provider;
use super::request_head::header_of;
use rerouter_base::metrics::{Metrics, TargetMeters};
use rerouter_dialect::endpoint::Endpoint;
use rerouter_dialect::neutral::target_terms::ModelTerms;
use rerouter_dialect::protocol::Way;

#[derive(Clone, Debug)]
pub struct Target {
    pub provider: Arc<Provider>,
    /// The provider's name for the model.
    pub model: Arc<str>,
    /// The model as a header value.
    pub shown: HeaderValue,
    pub name: Arc<str>,
    pub prices: Option<Arc<Prices>>,
    /// Context length in tokens, prompt and answer together.
    pub context: Option<u64>,
    /// Tokens of an answer that the provider can make in a second, as the document says.
    pub tokens_per_second: Option<u64>,
    pub capabilities: Option<Vec<String>>,
    pub terms: ModelTerms,
    /// Whether clients may request it by its name. A pattern that only the targets of recipes have
    /// created cannot be requested.
    pub(super) is_direct: bool,
    /// The pattern that it matches, if the document does not name it exactly. It shares the
    /// pattern's state and is counted as the pattern.
    pub(super) pattern: Option<Arc<Target>>,
    pub(super) state: OnceLock<Arc<TargetState>>,
    /// Its metric series, set when they are first used.
    pub(super) meters: Arc<OnceLock<TargetMeters>>,
}

impl Target {
    pub fn is_on_nodes(&self) -> bool {
        self.provider.is_of_nodes()
    }

    pub fn is_translated(&self, endpoint: Endpoint) -> bool {
        matches!(self.provider.way(endpoint), Some(Way::Translated(_)))
    }

    /// This target at one node, with the state of the node.
    pub fn at_node(&self, provider: Arc<Provider>, state: Arc<TargetState>) -> Target {
        Target { provider, state: OnceLock::from(state), ..self.clone() }
    }

    /// A target that matches this pattern. Values that the document does not set come from the
    /// shipped price list.
    pub(super) fn under(self: &Arc<Self>, name: &str, model: &str) -> Target {
        let listed = price_list::find(self.provider.price_list, model);
        let capabilities = self.capabilities.as_ref();
        let capabilities = capabilities.or_else(|| listed?.capabilities.as_ref());
        Target {
            model: model.into(),
            shown: header_of(model),
            name: name.into(),
            prices: self.prices.clone().or_else(|| Some(Arc::clone(&listed?.prices))),
            context: self.context.or_else(|| listed?.context),
            capabilities: capabilities.cloned(),
            terms: listed.map_or_else(|| self.terms.clone(), |listed| self.terms.or(&listed.terms)),
            pattern: Some(Arc::clone(self)),
            state: OnceLock::from(Arc::clone(self.state.get_or_init(Arc::default))),
            ..Target::clone(self)
        }
    }

    pub(super) fn is_pattern(&self) -> bool {
        beginning(&self.model).is_some() && self.pattern.is_none()
    }

    /// The target of the document whose state and metrics it shares: itself, or its pattern.
    pub fn entry(&self) -> &Target {
        self.pattern.as_deref().unwrap_or(self)
    }

    /// Its metric series, or those of its pattern.
    pub fn meters(&self, metrics: &Metrics) -> &TargetMeters {
        let of = self.entry();
        self.meters.get_or_init(|| metrics.of_target(&of.provider.name, &of.model))
    }

    /// Its state. Live documents share it with their predecessors; another document has its own.
    pub fn state(&self) -> &TargetState {
        self.state.get_or_init(Arc::default)
    }
}

/// The endpoints whose requests are translated for at least one of these targets.
pub(super) fn translated<'t>(
    targets: impl Iterator<Item = &'t Arc<Target>> + Clone,
) -> Vec<Endpoint> {
    let is_translated =
        |endpoint: &Endpoint| targets.clone().any(|target| target.is_translated(*endpoint));
    Endpoint::ALL.into_iter().filter(is_translated).collect()
}
