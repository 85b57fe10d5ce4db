//! State of the providers of the live document in this process, and of nodes if it has targets on
//! nodes.

use jiff::Timestamp;

use super::call::{Answer, Call};
use super::page;
use crate::app::{App, Live};
use rerouter_access::nodes;
use rerouter_base::error::Result;
use rerouter_records::node::NodeState;
use rerouter_records::page::{Page, PageQuery};
use rerouter_records::status::{
    Activity, ProviderObject, ProviderStatus, ProviderTarget, ServingNode,
};
use rerouter_routing::health::TargetStatus;
use rerouter_routing::{BreakerState, NODES, Protocol, Provider, Target};

/// `GET /v1/router/providers`, in document order, nodes last.
pub(super) async fn list(call: Call<'_>, query: PageQuery) -> Result<Answer<Page<ProviderStatus>>> {
    let (app, now, limit) = (call.app, call.now(), query.limit);
    let live = app.live();
    let mut names: Vec<&str> =
        live.routing.providers.iter().map(|provider| &*provider.name).collect();
    if live.routing.targets().any(|target| target.is_on_nodes()) {
        names.push(NODES);
    }
    let place = |after: &str| names.iter().position(|name| *name == after);
    let after = page::after(query.after.as_deref(), "a provider of this list", place)?;
    let page = names.into_iter().skip(after.map_or(0, |at| at + 1)).take(limit + 1);
    let page = page.map(|name| {
        live.routing
            .provider(name)
            .map_or_else(|| of_nodes(app, &live, now), |known| describe(&live, known, now))
    });
    Ok(Page::of(page.collect(), limit, |provider: &ProviderStatus| provider.id.clone()).into())
}

fn describe(live: &Live, provider: &Provider, now: Timestamp) -> ProviderStatus {
    let targets = live.routing.targets().filter(|target| target.provider.name == provider.name);
    let of_target = |target: &std::sync::Arc<Target>| ProviderTarget {
        model: target.model.to_string(),
        activity: activity(
            &target.state().show(&target.provider, now),
            target.provider.max_concurrency,
        ),
        nodes: None,
    };
    ProviderStatus {
        object: ProviderObject::It,
        id: provider.name.to_string(),
        protocol: provider.protocol.as_str().to_owned(),
        targets: targets.map(of_target).collect(),
    }
}

fn of_nodes(app: &App, live: &Live, now: Timestamp) -> ProviderStatus {
    let targets = live.routing.targets().filter(|target| target.is_on_nodes());
    ProviderStatus {
        object: ProviderObject::It,
        id: NODES.to_owned(),
        protocol: Protocol::OpenAi.as_str().to_owned(),
        targets: targets.map(|target| on_nodes(app, &target.model, now)).collect(),
    }
}

/// A target on nodes: the sums over its nodes, the best state of the ready nodes, and each node.
fn on_nodes(app: &App, model: &str, now: Timestamp) -> ProviderTarget {
    let behind = app.nodes.behind(model, now);
    let most = |node: &nodes::NodeSnapshot| {
        node.row.registration.as_ref().and_then(|registration| registration.max_concurrency)
    };
    let ready: Vec<&(nodes::NodeSnapshot, TargetStatus)> =
        behind.iter().filter(|(node, _)| node.standing == NodeState::Ready).collect();
    let all = || ready.iter().map(|(_, shown)| shown);
    let rank = |breaker: BreakerState| match breaker {
        BreakerState::Closed => 0,
        BreakerState::HalfOpen => 1,
        BreakerState::Open => 2,
    };
    let whole = TargetStatus {
        breaker: all()
            .map(|shown| shown.breaker)
            .min_by_key(|breaker| rank(*breaker))
            .unwrap_or_default(),
        // The target is available as long as one of its nodes is.
        retry_at: all().map(|shown| shown.retry_at).min().flatten(),
        ewma_us: all().filter_map(|shown| shown.ewma_us).min(),
        inflight: behind.iter().map(|(_, shown)| shown.inflight).fold(0, u32::saturating_add),
        requests_1m: behind.iter().map(|(_, shown)| shown.requests_1m).sum(),
        errors_1m: behind.iter().map(|(_, shown)| shown.errors_1m).sum(),
    };
    // If one node has no limit, the target has none.
    let bounds: Option<Vec<u32>> = ready.iter().map(|(node, _)| most(node)).collect();
    let bound = bounds
        .filter(|bounds| !bounds.is_empty())
        .map(|bounds| bounds.into_iter().fold(0, u32::saturating_add));
    let each = behind.iter().map(|(node, shown)| ServingNode {
        id: node.row.id.clone(),
        name: node.row.name.clone(),
        state: node.standing,
        activity: activity(shown, most(node)),
    });
    ProviderTarget {
        model: model.to_owned(),
        activity: activity(&whole, bound),
        nodes: Some(each.collect()),
    }
}

fn activity(shown: &TargetStatus, max_concurrency: Option<u32>) -> Activity {
    Activity {
        breaker: shown.breaker,
        retry_at: shown.retry_at.map(Into::into),
        ewma_ms: shown.ewma_us.map(|us| us as f64 / 1e3),
        inflight: shown.inflight,
        max_concurrency,
        requests_1m: shown.requests_1m,
        errors_1m: shown.errors_1m,
    }
}
