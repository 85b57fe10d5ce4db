//! The cost of one capture before and after a change, in whole nano-dollars: the billed cost, or
//! the billed tokens at another target's prices. A capture without usage costs nothing, unless its
//! usage is missing: then the cost is unknown.

use std::borrow::Cow;

use rerouter_base::money::{NanoUsd, nano_usd};
use rerouter_captures::capture::record::{CaptureState, Head};
use rerouter_dialect::endpoint::Endpoint;
use rerouter_dialect::usage::Usage;
use rerouter_records::evaluation::Lack;
use rerouter_routing::{Routing, is_unknown};

use super::judge::{Question, target_name};

/// What a request cost, or would cost, at one target.
pub(super) type Cost = Result<NanoUsd, Unpriced>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Unpriced {
    pub(super) target: String,
    pub(super) lacks: Lack,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Costs {
    pub(super) before: Cost,
    /// With as many cached tokens as recorded.
    pub(super) after: Cost,
    /// Without cached tokens at a target that the request did not go to.
    pub(super) after_cold: Cost,
    /// Whether the capture used something that the prices do not count.
    pub(super) has_unknown_usage: bool,
}

impl Question<'_> {
    /// The cost at the first target before, and at the first target after. If both are the same
    /// target, both costs are the same, even if its price differs between the documents. A request
    /// that finds no target any more saves nothing.
    pub(super) fn costs(&self, head: &Head, from: Option<&str>, to: Option<&str>) -> Costs {
        let before = cost(head, from, self.baseline, false);
        let target = to.or(from).and_then(|target| self.candidate.target_for(target));
        let prices = target.as_ref().and_then(|target| target.prices.as_deref());
        let has_unknown_usage = head.usage.as_ref().is_some_and(|usage| is_unknown(prices, usage));
        let [after, after_cold] = match from == to || to.is_none() {
            true => [before.clone(), before.clone()],
            false => [false, true].map(|is_cold| cost(head, to, Some(self.candidate), is_cold)),
        };
        Costs { before, after, after_cold, has_unknown_usage }
    }
}

/// The cost of the capture if this target comes first. `is_cold`: the target has cached nothing,
/// unless the request went there.
fn cost(head: &Head, target: Option<&str>, prices: Option<&Routing>, is_cold: bool) -> Cost {
    // Without a target nothing is charged.
    let Some(target) = target else { return Ok(0) };
    let unpriced = |target: &str, lacks| Unpriced { target: target.to_owned(), lacks };
    let Some(usage) = &head.usage else {
        return if lacks_usage(head) {
            Err(unpriced(&served(head).unwrap_or_else(|| target.to_owned()), Lack::Usage))
        } else {
            Ok(0)
        };
    };
    let priced = |target: &str, usage: &Usage| {
        let (target, mut usage) = (prices?.target_for(target)?, Cow::Borrowed(usage));
        // A translation leaves out what may multiply prices.
        if Endpoint::named(&head.endpoint).is_some_and(|endpoint| target.is_translated(endpoint)) {
            usage.to_mut().extra.modes.clear();
        }
        let prices = target.prices.as_ref().filter(|prices| prices.knows_modes(&usage.extra))?;
        prices.cost(&usage).map(nano_usd)
    };
    // The request went this way, including any failover, so the billed cost counts.
    let went = head
        .decision
        .as_ref()
        .is_some_and(|decision| is(target, &decision.provider, &decision.model));
    if went
        || head.served.as_ref().is_some_and(|served| is(target, &served.provider, &served.model))
    {
        let served = served(head).unwrap_or_else(|| target.to_owned());
        // A price may have become known since.
        let billed = head.cost_usd.map(nano_usd).or_else(|| priced(&served, usage));
        return billed.ok_or_else(|| unpriced(&served, Lack::Price));
    }
    let usage = if is_cold { Cow::Owned(usage.without_cache()) } else { Cow::Borrowed(usage) };
    priced(target, &usage).ok_or_else(|| unpriced(target, Lack::Price))
}

/// Whether a complete answer has no usage. Token counts use nothing, and failures are not billed.
fn lacks_usage(head: &Head) -> bool {
    let is_free = Endpoint::named(&head.endpoint).is_some_and(|endpoint| !endpoint.costs());
    head.state == CaptureState::Completed && (200..300).contains(&head.status) && !is_free
}

fn served(head: &Head) -> Option<String> {
    head.served.as_ref().map(|served| target_name(&served.provider, &served.model))
}

fn is(target: &str, provider: &str, model: &str) -> bool {
    target.split_once('/') == Some((provider, model))
}

#[cfg(test)]
mod tests {
    use super::super::judge::HealthSource;
    use super::*;
    use crate::config;
    use rerouter_base::id::{Random, UserId};
    use rerouter_captures::capture::fixtures::capture;

    /// A document with prices only for `p/a`: one dollar per million input tokens, two per million
    /// output tokens.
    fn document() -> Routing {
        let text = "providers: { p: { protocol: mock } }\n\
            models: { p/a: { input_per_mtok: 1, output_per_mtok: 2 }, p/cached: { \
            input_per_mtok: 1, output_per_mtok: 2, cached_input_per_mtok: 0.5 } }\n\
            recipes: { r: { rules: [ { name: x, targets: [ { target: p/a }, \
            { target: p/b }, { target: p/cached } ] } ] } }\naliases: { auto: r }\n";
        let server = config::read_server("test", "", &|_| None).unwrap();
        config::read_routing("test", text, &server, &|_| None, None).unwrap()
    }

    /// A capture that was decided for `openai/gpt-5` and served by `demo/echo`: three input tokens,
    /// four output tokens, billed at `cost`.
    fn served_at(cost: Option<f64>) -> Head {
        Head { cost_usd: cost, ..capture(0, &UserId::known("usr_1"), &Random::seeded(1)).head }
    }

    fn lacks(target: &str, lacks: Lack) -> Cost {
        Err(Unpriced { target: target.to_owned(), lacks })
    }

    #[test]
    fn a_capture_costs_what_was_billed_and_elsewhere_what_its_tokens_cost_there() {
        let (routing, head) = (document(), served_at(Some(0.5)));
        let health = &HealthSource::Recorded;
        let prices = Question { candidate: &routing, baseline: None, health };
        let after = |to: Option<&str>| prices.costs(&head, Some("openai/gpt-5"), to).after;
        for (to, cost) in [
            (Some("openai/gpt-5"), Ok(500_000_000)),
            (Some("demo/echo"), Ok(500_000_000)),
            (Some("p/a"), Ok(11_000)),
            (Some("p/b"), lacks("p/b", Lack::Price)),
            (Some("p/gone"), lacks("p/gone", Lack::Price)),
            // No target is no saving.
            (None, Ok(500_000_000)),
        ] {
            assert_eq!(after(to), cost, "{to:?}");
        }
        // The same target costs the same before and after, whichever document has its price.
        let both = Question { baseline: Some(&routing), ..prices };
        let sides = |costs: Costs| (costs.before, costs.after);
        assert_eq!(
            sides(both.costs(&head, Some("p/b"), Some("p/b"))),
            (lacks("p/b", Lack::Price), lacks("p/b", Lack::Price))
        );
        assert_eq!(sides(both.costs(&head, Some("p/a"), None)), (Ok(11_000), Ok(11_000)));
        let unknown = served_at(None);
        let costs = sides(prices.costs(&unknown, Some("openai/gpt-5"), Some("p/a")));
        assert_eq!(costs, (lacks("demo/echo", Lack::Price), Ok(11_000)));
    }

    #[test]
    fn another_target_may_have_cached_nothing() {
        let (routing, mut head) = (document(), served_at(Some(0.5)));
        let usage = head.usage.as_mut().unwrap();
        usage.counts.cached_tokens = Some(2);
        let health = &HealthSource::Recorded;
        let prices = Question { candidate: &routing, baseline: Some(&routing), health };
        let after = |from, to| {
            let costs = prices.costs(&head, Some(from), Some(to));
            (costs.after, costs.after_cold)
        };
        // Two of three input tokens at half a dollar per million.
        assert_eq!(after("demo/echo", "p/cached"), (Ok(10_000), Ok(11_000)));
        assert_eq!(after("p/a", "demo/echo"), (Ok(500_000_000), Ok(500_000_000)), "it went there");
    }

    #[test]
    fn nothing_is_charged_without_usage() {
        let routing = document();
        let cost = |change: &dyn Fn(&mut Head)| {
            let mut head = Head { usage: None, ..served_at(None) };
            change(&mut head);
            super::cost(&head, Some("p/a"), Some(&routing), false)
        };
        assert_eq!(cost(&|head| head.endpoint = "messages.count_tokens".into()), Ok(0));
        assert_eq!(cost(&|head| head.status = 400), Ok(0));
        assert_eq!(cost(&|head| head.state = CaptureState::Failed), Ok(0));
        assert_eq!(cost(&|head| (head.state, head.status) = (CaptureState::Aborted, 499)), Ok(0));
        // A complete answer without usage has an unknown cost.
        assert_eq!(cost(&|_| {}), lacks("demo/echo", Lack::Usage));
    }
}
