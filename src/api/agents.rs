//! Agents: named presets that clients use as a model. None can be made yet, so the collection is empty.

use bytes::Bytes;
use http::{Request, Response, StatusCode};

use super::answer;
use super::page::{self, Query};
use crate::app::App;
use crate::auth::Principal;
use crate::error::Result;

/// `GET /v1/agents`
pub async fn list(_app: &App, _who: &Principal, request: &Request<Bytes>) -> Result<Response<Bytes>> {
    let limit = Query::read(request.uri().query(), &["limit", "after"])?.limit()?;
    Ok(answer::json(StatusCode::OK, &page::list(Vec::new(), limit)))
}
