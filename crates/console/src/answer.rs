//! Answers of the console, with the headers that protect them.

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use maud::Markup;

use rerouter_base::error::{Error, Result};

/// Pages load nothing from elsewhere, run no inline script, and appear in no frame of another site.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; \
    frame-ancestors 'none'";

pub(super) fn protect(headers: &mut HeaderMap) {
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Not `no-referrer`: forms would then be sent with `Origin: null`.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
}

/// An HTML answer, which is not cached.
pub(super) fn html(status: StatusCode, html: Markup) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(html.into_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    protect(headers);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// An answer that the browser saves as a file, and that is not cached.
pub(super) fn file(
    kind: &'static str,
    name: &str,
    body: impl Into<Bytes>,
) -> Result<Response<Bytes>> {
    let mut response = Response::new(body.into());
    let headers = response.headers_mut();
    protect(headers);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let disposition = format!("attachment; filename=\"{name}\"");
    headers.insert(CONTENT_DISPOSITION, disposition.try_into().map_err(Error::internal)?);
    Ok(response)
}

/// A redirect to another page. A request of htmx gets it in the header `HX-Redirect`.
pub(super) fn redirect(fragment: bool, place: HeaderValue) -> Response<Bytes> {
    let mut response = html(StatusCode::SEE_OTHER, Markup::default());
    if fragment {
        *response.status_mut() = StatusCode::OK;
        response.headers_mut().insert("hx-redirect", place);
    } else {
        response.headers_mut().insert(LOCATION, place);
    }
    response
}
