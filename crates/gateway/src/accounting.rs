//! What a call adds to the metrics, to the sums of usage, and to later estimates. Each call adds to
//! `requests` once: as answered, as failed (`errors`), or as refused (`refused_*`).

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::outcome::Outcome;
use rerouter_base::error::RefusalReason;
use rerouter_base::id::{KeyId, UserId};
use rerouter_base::interface::Interface;
use rerouter_base::money::{dollars, nano_usd};
use rerouter_base::usage_kind::UsageCountSums;
use rerouter_captures::capture::record::{CaptureState, Head};
use rerouter_core::app::App;
use rerouter_routing::Routing;
use rerouter_store::{LatencyCounts, UsageKey, UsageSums, usage_interval_start};

pub(super) type Payer = (UserId, Option<KeyId>);

pub(super) struct CallAccount {
    pub(super) payer: Payer,
    /// Estimated prompt tokens, not corrected by earlier usage. `None` if the prompt holds more
    /// than text, or its provider knows more of it.
    pub(super) estimated: Option<u64>,
}

impl CallAccount {
    pub(super) fn add(&self, app: &App, head: &Head, outcome: &Outcome, ttft: Option<Duration>) {
        count(app, &app.live().routing, outcome);
        if head.replay_of.is_none() {
            time(app, outcome, ttft);
        }
        self.learn(app, head, outcome);
        self.add_usage(app, head, outcome, ttft);
    }

    /// Adds a call for which no provider was asked, under the alias that it asked for.
    pub(super) fn add_unasked(&self, app: &App, head: &Head) {
        let mut group = group_of(self.payer.clone(), head.created_at);
        group.replay = head.replay_of.is_some();
        let (live, name) = (app.live(), head.inputs.as_ref().map(|inputs| &*inputs.request.name));
        // Other names than those of the document lead to no group, as clients choose them.
        if let Some((name, recipe)) = name.and_then(|name| Some((name, live.routing.alias(name)?)))
        {
            group.alias = live.routing.entry(name).map(Arc::from);
            group.recipe = recipe.name().into();
        }
        add_unasked(app, group, head.refused);
    }

    /// Corrects later estimates by the usage of this call.
    fn learn(&self, app: &App, head: &Head, outcome: &Outcome) {
        if let (Some(estimated), Some(usage), Some(inputs), None) =
            (self.estimated, &outcome.usage, &head.inputs, &head.replay_of)
            && !usage.estimated
        {
            app.bias.learn(
                &app.live().routing,
                &inputs.request.name,
                estimated,
                usage.prompt_tokens,
            );
        }
    }

    fn add_usage(&self, app: &App, head: &Head, outcome: &Outcome, ttft: Option<Duration>) {
        let decision = head.decision.as_ref();
        let key = UsageKey {
            model: outcome.target().map(|target| target.entry().name.clone()),
            alias: decision.and_then(|decision| decision.alias.clone()),
            recipe: decision.map(|decision| Arc::clone(&decision.recipe)).unwrap_or_default(),
            rule: decision.and_then(|decision| decision.rule.clone()),
            replay: head.replay_of.is_some(),
            ..group_of(self.payer.clone(), head.created_at)
        };
        let failed = head.state == CaptureState::Failed;
        if !key.replay {
            app.metrics.call(if failed { "failed" } else { "answered" });
        }
        let ((prompt_tokens, completion_tokens, counts), cost) =
            (outcome.used(), outcome.cost_usd());
        let is_timed = outcome.is_good() && outcome.failure.is_none() && head.replay_of.is_none();
        let took = Duration::from_millis(head.total_ms);
        let sums = UsageSums {
            requests: 1,
            prompt_tokens,
            completion_tokens,
            counts: UsageCountSums::of(counts.all().map(Option::unwrap_or_default)),
            unknown_usage: u64::from(outcome.has_unknown_usage),
            nano: cost.map_or(0, nano_usd),
            priced: u64::from(cost.is_some()),
            unpriced: u64::from(cost.is_none() && outcome.usage.is_some()),
            errors: u64::from(failed),
            took: if is_timed { LatencyCounts::one(took) } else { LatencyCounts::default() },
            first_token: ttft.filter(|_| is_timed).map(LatencyCounts::one).unwrap_or_default(),
            ..UsageSums::default()
        };
        note_usage(app, key, &sums);
    }
}

/// Without a reason the gateway itself failed.
pub(super) fn add_unasked(app: &App, key: UsageKey, refused: Option<RefusalReason>) {
    let mut sums = UsageSums { requests: 1, ..UsageSums::default() };
    let (outcome, sum) = match refused {
        None => ("failed", &mut sums.errors),
        Some(RefusalReason::Limit) => ("refused_limit", &mut sums.refused_limit),
        Some(RefusalReason::Target) => ("refused_target", &mut sums.refused_target),
        Some(RefusalReason::Model) => ("refused_model", &mut sums.refused_model),
        Some(RefusalReason::Request) => ("refused_request", &mut sums.refused_request),
    };
    *sum = 1;
    if !key.replay {
        app.metrics.call(outcome);
    }
    note_usage(app, key, &sums);
}

/// The group of a payer's calls that have no decision.
pub(super) fn group_of((user, key): Payer, at: Timestamp) -> UsageKey {
    UsageKey {
        at: usage_interval_start(at),
        user,
        key,
        model: None,
        alias: None,
        recipe: Arc::default(),
        rule: None,
        replay: false,
    }
}

/// Adds to the sums of the payer and, if the server document names a label of keys, to the metrics
/// of its value.
fn note_usage(app: &App, key: UsageKey, sums: &UsageSums) {
    if let Some(label) = &app.server.metrics.label {
        let payer = key.key.as_ref().and_then(|id| app.auth.key(Interface::Router, id));
        let value = payer.as_ref().and_then(|payer| payer.row().labels.get(label));
        let tokens = sums.prompt_tokens.saturating_add(sums.completion_tokens);
        let value = value.map_or("", String::as_str);
        app.metrics.label_used(value, sums.requests, tokens, dollars(sums.nano));
    }
    app.limits.used(key, sums);
}

/// Counts each attempt. A target under a pattern is counted under the pattern, because clients
/// choose its model name.
fn count(app: &App, routing: &Routing, outcome: &Outcome) {
    let metrics = &app.metrics;
    for attempt in &outcome.attempts {
        let result = attempt.error.as_deref().unwrap_or("ok");
        let model = routing.counted_as(&attempt.provider, &attempt.model);
        metrics.attempt(&attempt.provider, model, result);
    }
    let Some(target) = outcome.target() else { return };
    let (prompt, completion, counts) = outcome.used();
    target.meters(metrics).used(prompt, completion, &counts, outcome.has_unknown_usage);
    if let Some(cost) = outcome.cost_usd() {
        metrics.cost(&target.provider.name, &target.entry().model, cost);
    }
}

fn time(app: &App, outcome: &Outcome, ttft: Option<Duration>) {
    let Some(target) = outcome.target() else { return };
    let meters = target.meters(&app.metrics);
    if let Some(ttft) = ttft {
        meters.first_token(ttft);
    }
    if outcome.is_good() && outcome.failure.is_none() {
        let counted = outcome.usage.as_ref().filter(|usage| !usage.estimated);
        meters.answered(outcome.took, counted.map(|usage| usage.completion_tokens));
    }
}
