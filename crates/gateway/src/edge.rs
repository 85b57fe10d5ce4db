//! The edge: the application that serves the requests of a connection. It sets a session's
//! timeouts, sends each request through the pipeline, and catches panics, so that a panic ends only
//! its own request.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt;
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use pingora_proxy::HttpProxy;

use super::exchange::HttpExchange;
use super::pipeline::Pipeline;
use super::respond::{self, RequestEnd};
use super::service::{self, HttpService};
use super::{ProxyHooks, answers, http1_head};
use rerouter_base::bounds;
use rerouter_base::error::Error;
use rerouter_base::interface::Surface;
use rerouter_core::app::App;

pub struct Edge(Pipeline);

impl Edge {
    pub fn new(app: Arc<App>, proxy: Arc<HttpProxy<ProxyHooks>>) -> Self {
        Edge(Pipeline::new(app, proxy))
    }
}

#[async_trait]
impl HttpService for Edge {
    async fn serve(
        &self,
        mut session: Box<ServerSession>,
        standby: bool,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        let app = &self.0.app;
        // A drain waits for the request from here on.
        let _busy = app.begin_request();
        if session.get_keepalive().is_some() {
            // Pingora has just set an unlimited keep-alive. While draining, and on a reserve slot,
            // there is none.
            let keep = !standby && !*shutdown.borrow();
            session.set_keepalive(keep.then_some(bounds::KEEP_ALIVE.as_secs()));
        }
        // `intake` limits how bodies are read, for every protocol.
        session.set_read_timeout(None);
        session.set_write_timeout(Some(bounds::KEEP_ALIVE));
        let mut exchange = Box::new(HttpExchange::open(app, &session));
        exchange.skip_drain = standby;
        // The session stays outside of the code that may panic, so that the client gets an answer
        // after a panic.
        let mut holder = Some(session);
        let serving = AssertUnwindSafe(self.0.serve(&mut holder, &mut exchange, standby, shutdown))
            .catch_unwind()
            .await;
        let ended = match (serving, holder.as_deref_mut()) {
            (Ok(ended), _) => ended,
            (Err(_), Some(session)) => {
                Box::pin(respond::panicked(app, session, &mut exchange)).await.0
            }
            (Err(_), None) => {
                app.metrics.process.panics.inc();
                RequestEnd::GONE
            }
        };
        exchange.close(app, ended.status, ended.sent);
        service::finish(holder?, ended.reusable && !standby).await
    }

    async fn refuse(&self, session: &mut ServerSession, came: &[u8], error: Error) {
        let app = &self.0.app;
        let mut exchange = Box::new(HttpExchange::unread(app, session, surface_of_first(came)));
        let mut response = respond::refuse(&mut exchange, &error);
        respond::name_request(&exchange, &mut response);
        answers::write_unparsed(session, response).await;
        exchange.close(app, error.status().as_u16(), 0);
    }
}

/// The surface that a malformed head was meant for, judged by the part of the head that came.
fn surface_of_first(first: &[u8]) -> Surface {
    let line = http1_head::first_line(first);
    let request_target = line.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    let request_target = String::from_utf8_lossy(request_target);
    let path = request_target.split('?').next().unwrap_or_default();
    match path.split_once("://") {
        // Absolute form (RFC 9112 section 3.2.2): the path begins after the authority.
        Some((_, rest)) => Surface::of(rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("/")),
        None => Surface::of(path),
    }
}
