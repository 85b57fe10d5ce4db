//! `POST /v1/router/decide`: where a request would go now, and why. No provider is called; nothing is captured or billed.

use std::time::Instant;

use bytes::Bytes;
use http::{Request, Response, StatusCode};

use super::answer;
use super::page::Query;
use crate::app::App;
use crate::auth::Principal;
use crate::capture::record;
use crate::error::Result;
use crate::prompt::{Prompt, gather, may_ask_for};
use crate::protocol::endpoint::Endpoint;
use crate::routing::decide::decide;

/// `POST /v1/router/decide`: the body is a chat completion request's.
pub async fn post(app: &App, who: &Principal, request: &Request<Bytes>) -> Result<Response<Bytes>> {
    Query::read(request.uri().query(), &[])?;
    let prompt = Prompt::read(Endpoint::ChatCompletions, request.body().clone(), request.headers().clone())?;
    let live = app.live();
    let began = Instant::now();
    let inputs = gather(app, &live, app.clock.now(), &prompt, who);
    may_ask_for(who, &inputs.request.name)?;
    let decision = decide(&live.routing, &inputs)?;
    let shown = record::decision_json(&decision, record::micros_of(began.elapsed()), None, &[]);
    Ok(answer::json(StatusCode::OK, &shown))
}
