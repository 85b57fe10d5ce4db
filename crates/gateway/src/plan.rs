//! The targets that a call may try, resolved from the decision, and the request that providers get.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use super::verdict::Mode;
use rerouter_access::limits::LimitPermit;
use rerouter_core::app::{App, Live};
use rerouter_core::prompt::{NeutralForm, Prompt};
use rerouter_dialect::CLIENT_HEADERS;
use rerouter_dialect::endpoint::Endpoint;
use rerouter_dialect::request::{self, Ceiling};
use rerouter_dialect::wire::json::Edit;
use rerouter_routing::health::RetryBudget;
use rerouter_routing::{
    Decision, Demand, Inputs, RetryOn, RetryPolicy, Rule, StreamUsage, Target, header_of,
};

pub(super) struct CallPlan {
    pub(super) live: Arc<Live>,
    /// The decision's targets, in order.
    pub(super) targets: Vec<Arc<Target>>,
    pub(super) retry: RetryPolicy,
    /// The recipe's retry budget, if it has one. Only live traffic uses it up.
    pub(super) budget: Option<Arc<RetryBudget>>,
    pub(super) recipe: HeaderValue,
    /// The name of the deciding rule, as text and as a header value.
    pub(super) rule: Option<(Arc<str>, HeaderValue)>,
    /// The capabilities that a model on a node must have.
    pub(super) demand: Demand<'static>,
}

impl CallPlan {
    /// Counts the decision in the metrics.
    pub(super) fn of_decision(
        app: &App,
        live: Arc<Live>,
        decision: &Decision,
        inputs: Option<&Inputs>,
        mode: Mode,
    ) -> Self {
        app.metrics.decision(
            &decision.recipe,
            decision.rule.as_deref().unwrap_or(""),
            &decision.provider,
            live.routing.counted_as(&decision.provider, &decision.model),
        );
        let recipe = live.routing.recipe(&decision.recipe);
        let retry = recipe.map_or_else(RetryPolicy::default, |recipe| recipe.retry);
        let shown = recipe.map(|recipe| recipe.shown.clone());
        let shown = shown.unwrap_or_else(|| header_of(&decision.recipe));
        let rule = recipe
            .zip(decision.rule.as_deref())
            .and_then(|(recipe, rule)| recipe.rule(rule))
            .map(Rule::shown);
        let recipe = recipe.filter(|_| mode == Mode::Relay && retry.budget.is_some());
        let budget = recipe.map(|recipe| recipe.budget().clone());
        if let Some(budget) = &budget {
            budget.request(app.clock.now());
        }
        let targets = live.routing.targets_of(decision);
        CallPlan { live, targets, retry, budget, recipe: shown, rule, demand: demand(inputs) }
    }

    pub(super) fn of_shadow(
        live: Arc<Live>,
        decision: &Decision,
        target: Arc<Target>,
        inputs: Option<&Inputs>,
    ) -> Self {
        CallPlan {
            live,
            recipe: header_of(&decision.recipe),
            targets: vec![target],
            retry: RetryPolicy { attempts: 1, on: RetryOn::default(), budget: None },
            budget: None,
            rule: None,
            demand: demand(inputs),
        }
    }
}

fn demand(inputs: Option<&Inputs>) -> Demand<'static> {
    inputs.map(|inputs| inputs.request.demand().into_owned()).unwrap_or_default()
}

/// The request that providers get, without the parts that differ between providers.
pub(super) struct SentRequest {
    pub(super) endpoint: Endpoint,
    pub(super) body: Bytes,
    /// The range of the model's name in the body.
    pub(super) model: Range<usize>,
    /// The edit that asks for the usage of a stream, if the client asks for a stream but not for
    /// its usage.
    pub(super) ask_usage: Option<Edit>,
    /// As in [`ModelRequest`](request::ModelRequest).
    pub(super) has_foreign_thinking: bool,
    /// Whether the client asks for the usage of a stream.
    pub(super) includes_usage: bool,
    pub(super) headers: HeaderMap,
    /// The part of the client's query that providers see.
    pub(super) query: Option<String>,
    /// Whether the usage counts towards a limit of the caller.
    pub(super) counted: bool,
    /// The most tokens of the request, if a budget pays for it.
    pub(super) paid: Option<Ceiling>,
    /// Number of answers that the client asks for.
    pub(super) answers: u64,
    /// Members that may multiply prices, with their values.
    pub(super) modes: Vec<(&'static str, String)>,
    pub(super) stream: bool,
    /// The body in the neutral form, if it was read, until the call takes it.
    pub(super) neutral: Option<NeutralForm>,
}

impl SentRequest {
    pub(super) fn of_prompt(mut prompt: Prompt, headers: &HeaderMap, permit: &LimitPermit) -> Self {
        let is_paid = permit.has_budget() && prompt.endpoint.costs();
        let paid = is_paid.then_some(prompt.request.ceiling);
        SentRequest {
            neutral: prompt.take_neutral(),
            endpoint: prompt.endpoint,
            headers: forwarded(headers),
            query: prompt.query,
            body: prompt.body,
            has_foreign_thinking: prompt.request.has_foreign_thinking,
            model: prompt.request.model_span,
            includes_usage: prompt.request.ask_usage.is_none(),
            ask_usage: prompt.request.ask_usage,
            counted: permit.counts_tokens(),
            paid,
            answers: prompt.request.choices.unwrap_or(1),
            modes: prompt.request.modes,
            stream: prompt.request.stream,
        }
    }

    /// The body for this target: with the target's name of the model, without foreign thinking,
    /// and, if [`own_question`](SentRequest::own_question) says so, with a question for the usage.
    pub(super) fn body_for(&self, target: &Target) -> Bytes {
        let foreign = match self.has_foreign_thinking {
            true => request::without_foreign_thinking(&self.body),
            false => Vec::new(),
        };
        let edits = foreign.iter().chain(self.own_question(target));
        request::rename_model(&self.body, &self.model, &target.model, edits)
    }

    /// The edit that asks this target for the usage of a stream, if the client does not ask for the
    /// usage and we do.
    pub(super) fn own_question(&self, target: &Target) -> Option<&Edit> {
        let wanted = match target.provider.stream_usage {
            StreamUsage::Auto => self.counted,
            StreamUsage::Inject => true,
            StreamUsage::Never => false,
        };
        self.ask_usage
            .as_ref()
            .filter(|_| wanted && target.provider.protocol.takes_stream_options())
    }
}

pub(super) struct TranslatedRequest {
    pub(super) request_target: Uri,
    pub(super) body: Bytes,
    /// A header that the provider needs with this body.
    pub(super) header: Option<(HeaderName, HeaderValue)>,
}

/// The client's headers that providers see.
pub(super) fn forwarded(headers: &HeaderMap) -> HeaderMap {
    // Compared as text, which is faster than comparing two header names.
    let is_seen = |name: &str| CLIENT_HEADERS.iter().any(|seen| seen.as_str() == name);
    let seen = headers.iter().filter(|(name, _)| is_seen(name.as_str()));
    seen.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_providers_see_is_what_each_name_holds(names in proptest::collection::vec(
            prop::sample::select(vec![
                "openai-beta", "anthropic-version", "anthropic-beta", "authorization", "accept",
            ]),
            0..12,
        )) {
            let mut headers = HeaderMap::new();
            for (at, name) in names.into_iter().enumerate() {
                headers.append(name, HeaderValue::from(at));
            }
            let mut plain = HeaderMap::new();
            for name in &CLIENT_HEADERS {
                for value in headers.get_all(name) {
                    plain.append(name.clone(), value.clone());
                }
            }
            prop_assert_eq!(forwarded(&headers), plain);
        }
    }
}
