//! `POST /v1/router/decide`: the decision for a request, without sending, capturing or billing it.

use std::time::Instant;

use super::call::{Answer, Call};
use crate::prompt::{Prompt, UnreadBody, gather, may_ask_for};
use rerouter_base::body_memory::BodyClass;
use rerouter_base::error::Result;
use rerouter_captures::capture::record;
use rerouter_dialect::endpoint::Endpoint;
use rerouter_records::inference::DecideQuery;
use rerouter_records::replay::DecisionRecord;
use rerouter_routing::decide;

/// `POST /v1/router/decide`: the body is a request for `endpoint`, by default a chat completion.
pub(super) async fn post(call: Call<'_>, query: DecideQuery) -> Result<Answer<DecisionRecord>> {
    let Call { app, who, request } = call;
    let endpoint = query.endpoint.as_deref().and_then(Endpoint::named).unwrap_or_default();
    // The memory of the body was counted when the body was read.
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
    let routing_us = record::micros_of(began.elapsed());
    Ok(DecisionRecord::undone(decision, routing_us).into())
}
