//! State of the providers of the live document in this process, and of nodes if it has targets on
//! nodes.

use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::route::{ApiRequest, ApiResult};
use super::{answer, page};
use crate::app::{App, Live};
use rerouter_access::auth::Principal;
use rerouter_access::nodes;
use rerouter_base::clock::rfc3339;
use rerouter_base::error::Error;
use rerouter_records::node::NodeState;
use rerouter_routing::health::TargetStatus;
use rerouter_routing::{BreakerState, NODES, Protocol, Provider, Target};

/// `GET /v1/router/providers`, in document order, nodes last.
pub(super) async fn list(app: &App, _: &Principal, request: &ApiRequest) -> ApiResult {
    let query = page::Query::read(request.uri().query(), &["limit", "after"])?;
    let limit = query.limit()?;
    let (live, now) = (app.live(), app.clock.now());
    let mut names: Vec<&str> =
        live.routing.providers().iter().map(|provider| &*provider.name).collect();
    if live.routing.targets().any(|target| target.is_on_nodes()) {
        names.push(NODES);
    }
    let start = match query.get("after") {
        None => 0,
        Some(after) => match names.iter().position(|name| *name == after) {
            Some(at) => at + 1,
            None => {
                return Err(Error::invalid(
                    "after",
                    "after must be the id of a provider of this list.",
                ));
            }
        },
    };
    let page = names.into_iter().skip(start).take(limit + 1);
    let page = page.map(|name| {
        live.routing
            .provider(name)
            .map_or_else(|| of_nodes(app, &live, now), |known| describe(&live, known, now))
    });
    Ok(answer::json(StatusCode::OK, &page::list(page.collect(), limit)))
}

fn describe(live: &Live, provider: &Provider, now: Timestamp) -> Value {
    let targets = live.routing.targets().filter(|target| target.provider.name == provider.name);
    let of_target = |target: &std::sync::Arc<Target>| {
        let shown = target.state().show(&target.provider, now);
        doing(json!({ "model": target.model }), &shown, target.provider.max_concurrency)
    };
    json!({
        "object": "provider",
        "id": provider.name,
        "protocol": provider.protocol.as_str(),
        "targets": targets.map(of_target).collect::<Vec<Value>>(),
    })
}

fn of_nodes(app: &App, live: &Live, now: Timestamp) -> Value {
    let targets = live.routing.targets().filter(|target| target.is_on_nodes());
    json!({
        "object": "provider",
        "id": NODES,
        "protocol": Protocol::OpenAi.as_str(),
        "targets": targets.map(|target| on_nodes(app, &target.model, now)).collect::<Vec<Value>>(),
    })
}

/// A target on nodes: the sums of its nodes, the best state of those that are ready, and each node.
fn on_nodes(app: &App, model: &str, now: Timestamp) -> Value {
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
    // A node without a limit leaves the target without one.
    let bounds: Option<Vec<u32>> = ready.iter().map(|(node, _)| most(node)).collect();
    let bound = bounds
        .filter(|bounds| !bounds.is_empty())
        .map(|bounds| bounds.into_iter().fold(0, u32::saturating_add));
    let each = behind.iter().map(|(node, shown)| {
        doing(
            json!({ "id": node.row.id, "name": node.row.name, "state": node.standing.as_str() }),
            shown,
            most(node),
        )
    });
    let each: Vec<Value> = each.collect();
    doing(json!({ "model": model, "nodes": each }), &whole, bound)
}

/// Adds the activity of a target or node to its record.
fn doing(mut record: Value, shown: &TargetStatus, max_concurrency: Option<u32>) -> Value {
    let told = [
        ("breaker", json!(shown.breaker)),
        ("retry_at", json!(shown.retry_at.map(rfc3339))),
        ("ewma_ms", json!(shown.ewma_us.map(|us| us as f64 / 1e3))),
        ("inflight", json!(shown.inflight)),
        ("max_concurrency", json!(max_concurrency)),
        ("requests_1m", json!(shown.requests_1m)),
        ("errors_1m", json!(shown.errors_1m)),
    ];
    if let Value::Object(fields) = &mut record {
        fields.extend(told.map(|(name, value)| (name.to_owned(), value)));
    }
    record
}
