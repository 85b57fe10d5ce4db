//! What this process knows of itself: its document, its queue of captures, its disk, its
//! certificates.

use std::path::Path;

use http::StatusCode;
use serde_json::{Value, json};

use super::answer;
use super::page::Query;
use super::route::{ApiRequest, ApiResult};
use crate::app::App;
use crate::config::{self, Server};
use rerouter_access::auth::Principal;
use rerouter_base::blocking::blocking;
use rerouter_base::bounds;
use rerouter_base::clock::rfc3339;
use rerouter_captures::capture::bounds::CAPTURE_QUEUE_BYTES;
use rerouter_store as store;

/// `GET /v1/router/status`.
pub(super) async fn get(app: &App, _: &Principal, request: &ApiRequest) -> ApiResult {
    Query::read(request.uri().query(), &[])?;
    let server = app.server.clone();
    let files = blocking(move || (disk(&server), certificates(&server)));
    let (disk, certificates) = files.await?;
    let live = app.live();
    let refused = app
        .refused_document()
        .map(|refused| json!({ "at": rfc3339(refused.at), "problems": refused.problems }));
    let status = json!({
        "object": "status", "version": env!("CARGO_PKG_VERSION"),
        "started_at": rfc3339(app.started),
        "requests_under_way": app.requests_under_way(),
        "document": {
            "revision": live.routing.revision(), "since": rfc3339(live.since), "refused": refused,
        },
        "captures": {
            "enabled": app.server.capture.enabled,
            "queue_bytes": app.metrics.capture_queue_bytes_now(),
            "queue_limit_bytes": CAPTURE_QUEUE_BYTES,
            "stored": app.metrics.captures_so_far("stored"),
            "dropped": app.metrics.captures_dropped(),
        },
        "disk": disk, "certificates": certificates,
    });
    Ok(answer::json(StatusCode::OK, &status))
}

/// `low`: a burst of captures may fill it.
fn disk(server: &Server) -> Value {
    let free = store::free_bytes(&server.data_dir);
    let low = free.is_some_and(|free| free < bounds::DOCTOR_DISK_LEAST);
    json!({ "free_bytes": free, "low": low })
}

/// When the certificate of each listener ends, as its file has it now.
fn certificates(server: &Server) -> Vec<Value> {
    let listeners = server.listeners.iter();
    let with_tls = listeners.filter_map(|listener| Some((listener, listener.tls.as_ref()?)));
    let ends = |file: &Path| std::fs::read(file).ok().and_then(|pem| config::expiry(&pem));
    with_tls
        .map(|(listener, files)| {
            let end = ends(&files.cert).map(rfc3339);
            json!({ "listener": listener.address.to_string(), "expires_at": end })
        })
        .collect()
}
