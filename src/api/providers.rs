//! What the providers of the live document are doing, as this process sees them.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{answer, page};
use crate::app::{App, Live};
use crate::auth::Principal;
use crate::clock::rfc3339;
use crate::error::{Error, Result};
use crate::routing::provider::Provider;
use crate::routing::recipe::Target;

/// `GET /v1/router/providers`, in document order.
pub async fn list(app: &App, _: &Principal, request: &Request<Bytes>) -> Result<Response<Bytes>> {
    let query = page::Query::read(request.uri().query(), &["limit", "after"])?;
    let limit = query.limit()?;
    let (live, now) = (app.live(), app.clock.now());
    let providers = live.routing.providers();
    let start = match query.get("after") {
        None => 0,
        Some(after) => match providers.iter().position(|provider| &*provider.name == after) {
            Some(at) => at + 1,
            None => return Err(Error::invalid("after", "after has to be the id of a provider of this list.")),
        },
    };
    let page = providers.iter().skip(start).take(limit + 1).map(|provider| describe(&live, provider, now));
    Ok(answer::json(StatusCode::OK, &page::list(page.collect(), limit)))
}

fn describe(live: &Live, provider: &Provider, now: Timestamp) -> Value {
    let targets = live.routing.targets().filter(|target| target.provider.name == provider.name);
    json!({
        "object": "provider",
        "id": provider.name,
        "protocol": provider.protocol.as_str(),
        "targets": targets.map(|target| of_target(target, now)).collect::<Vec<Value>>(),
    })
}

fn of_target(target: &Target, now: Timestamp) -> Value {
    let shown = target.state().show(target, now);
    json!({
        "model": target.model,
        "breaker": shown.breaker,
        "retry_at": shown.retry_at.map(rfc3339),
        "ewma_ms": shown.ewma_us.map(|us| us as f64 / 1e3),
        "inflight": shown.inflight,
        "max_concurrency": target.provider.max_concurrency,
        "requests_1m": shown.requests_1m,
        "errors_1m": shown.errors_1m,
    })
}
