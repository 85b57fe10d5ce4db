//! The status of this process: its document, its queue of captures, its disk, its certificates.

use std::path::Path;

use super::call::{Answer, Call};
use crate::config::Server;
use rerouter_base::blocking::blocking;
use rerouter_base::bounds;
use rerouter_base::error::Result;
use rerouter_captures::capture::bounds::CAPTURE_QUEUE_BYTES;
use rerouter_records::status::{
    CaptureStatus, CertificateStatus, DiskStatus, DocumentStatus, GatewayStatus, RefusedDocument,
    StatusObject,
};
use rerouter_store as store;

pub(super) async fn get(call: Call<'_>) -> Result<Answer<GatewayStatus>> {
    let app = call.app;
    let server = app.server.clone();
    let files = blocking(move || (disk(&server), certificates(&server)));
    let (disk, certificates) = files.await?;
    let live = app.live();
    let refused = app.refused_document().map(|refused| RefusedDocument {
        at: refused.at.into(),
        problems: refused.problems.clone(),
    });
    Ok(GatewayStatus {
        object: StatusObject::It,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at: app.started.into(),
        requests_under_way: app.requests_under_way(),
        document: DocumentStatus {
            revision: live.routing.revision().to_owned(),
            since: live.since.into(),
            refused,
        },
        captures: CaptureStatus {
            enabled: app.server.capture.enabled,
            queue_bytes: app.metrics.capture_queue_bytes_now(),
            queue_limit_bytes: CAPTURE_QUEUE_BYTES,
            stored: app.metrics.captures_so_far("stored"),
            dropped: app.metrics.captures_dropped(),
        },
        disk,
        certificates,
    }
    .into())
}

fn disk(server: &Server) -> DiskStatus {
    let free_bytes = store::free_bytes(&server.data_dir);
    DiskStatus { free_bytes, low: free_bytes.is_some_and(|free| free < bounds::DOCTOR_DISK_LEAST) }
}

/// The expiry of each listener's certificate, as read from its file now.
fn certificates(server: &Server) -> Vec<CertificateStatus> {
    let listeners = server.listeners.iter();
    let with_tls = listeners.filter_map(|listener| Some((listener, listener.tls.as_ref()?)));
    let ends = |file: &Path| std::fs::read(file).ok().and_then(|pem| crate::config::expiry(&pem));
    with_tls
        .map(|(listener, files)| CertificateStatus {
            listener: listener.address.to_string(),
            expires_at: ends(&files.cert).map(Into::into),
        })
        .collect()
}
