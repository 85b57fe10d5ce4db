//! Responses of handlers.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;

use super::route::ApiResult;
use rerouter_base::error::Error;

pub(super) fn json(status: StatusCode, body: &impl Serialize) -> ApiResult {
    let body = serde_json::to_vec(body).map_err(Error::internal)?;
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}
