//! `POST /v1/router/decide`: the decision for a request, without sending, capturing or billing it.

use std::time::Instant;

use http::StatusCode;

use super::answer;
use super::page::Query;
use super::route::{ApiRequest, ApiResult};
use crate::app::App;
use crate::prompt::{Prompt, UnreadBody, gather, may_ask_for};
use rerouter_access::auth::Principal;
use rerouter_base::body_memory::BodyClass;
use rerouter_base::error::Error;
use rerouter_captures::capture::record;
use rerouter_dialect::endpoint::Endpoint;
use rerouter_routing::decide;

pub(super) const PARAMETERS: &[&str] = &["endpoint"];

/// `POST /v1/router/decide`: the body is a request for `endpoint`, by default a chat completion.
pub(super) async fn post(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    let query = Query::read(request.uri().query(), PARAMETERS)?;
    let endpoint = match query.get("endpoint") {
        None => Endpoint::ChatCompletions,
        Some(word) => Endpoint::named(word).ok_or_else(|| {
            let known = Endpoint::ALL.map(Endpoint::as_str).join(", ");
            Error::invalid("endpoint", format!("endpoint must be one of {known}."))
        })?,
    };
    // The memory of the body was counted when it was read.
    let mut held = app.body_memory.begin(BodyClass::Requests);
    let body = request.body().clone();
    let unread = UnreadBody { endpoint, body, coding: None, costs: false, held: &mut held };
    let mut prompt = Prompt::read_in_turn(app, who, unread, request.headers().clone()).await?;
    may_ask_for(who, prompt.asked())?;
    prompt.take_agent(app, who).await?;
    let _drawn = super::limits::draw(app, who)?;
    let live = app.live();
    if live.routing.translates(&prompt.request.model, endpoint) {
        prompt.read_neutral(app, who).await?;
    }
    let began = Instant::now();
    let inputs = gather(app, &live, app.clock.now(), &prompt, who);
    let decision = decide(&live.routing, &inputs)?;
    let shown = record::decision_json(&decision, record::micros_of(began.elapsed()), None, &[]);
    Ok(answer::json(StatusCode::OK, &shown))
}
