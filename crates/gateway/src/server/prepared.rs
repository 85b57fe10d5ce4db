//! A gateway before it serves.

use std::net::TcpListener;
use std::sync::Arc;

use super::upgrade::Takeover;
use rerouter_captures::capture::queue::CaptureWriter;
use rerouter_core::app::App;

/// A gateway that is ready to serve. Its listeners are not bound yet.
pub struct Gateway {
    pub(super) app: Arc<App>,
    pub(super) writer: CaptureWriter,
    pub(super) mock: TcpListener,
    pub(super) takeover: Option<Takeover>,
}
