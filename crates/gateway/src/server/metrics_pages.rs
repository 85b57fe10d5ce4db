//! The metrics listener: `GET` and `HEAD` of `/metrics`, `/livez`, `/readyz`, without credentials.
//! Bind it where only the operator's machines reach it.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Response, StatusCode};
use pingora::http::RequestHeader;
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;

use rerouter_base::error::Error;
use rerouter_base::interface::Interface;
use rerouter_base::metrics::gauge;
use rerouter_base::money::dollars;
use rerouter_core::app::App;
use rerouter_records::node::NodeState;
use rerouter_routing::BreakerState;
use rerouter_store::KeyState;

pub(super) struct MetricsPages {
    app: Arc<App>,
}

impl MetricsPages {
    pub(super) fn new(app: Arc<App>) -> Self {
        MetricsPages { app }
    }

    fn metrics(&self) -> String {
        let (auth, now) = (&self.app.auth, self.app.clock.now());
        let metrics = &self.app.metrics.process;
        for interface in Interface::ALL {
            for state in KeyState::ALL {
                let count = gauge(auth.count_keys(interface, state, now));
                metrics.keys.with_label_values(&[interface.as_str(), state.as_str()]).set(count);
            }
        }
        for (kind, count) in
            [("keys", auth.unsaved_revocations()), ("users", auth.unsaved_disablings())]
        {
            metrics.unsaved_endings.with_label_values(&[kind]).set(gauge(count));
        }
        for state in NodeState::ALL {
            let count = gauge(self.app.nodes.count(state, now));
            metrics.nodes.with_label_values(&[state.as_str()]).set(count);
        }
        // Computed at each request, because an open breaker becomes half-open by time alone.
        let live = self.app.live();
        let health = self.app.standing(&live.routing, None, now);
        for target in live.routing.targets() {
            let breaker = match health.get(&*target.name) {
                // For a target on nodes, the state of the next node to try: the breaker is open
                // only if all are.
                Some(told) if target.is_on_nodes() => told.breaker,
                _ => target.state().show(&target.provider, now).breaker,
            };
            let open = i64::from(breaker != BreakerState::Closed);
            let labels = [&*target.provider.name, &*target.model];
            self.app.metrics.target.breaker_open.with_label_values(&labels).set(open);
        }
        let (held, lost) = self.app.limits.held_and_lost(now);
        metrics.budget_held.set(dollars(held));
        metrics.budget_lost.set(dollars(lost));
        metrics.usage_waiting.set(gauge(self.app.limits.usage_waiting()));
        self.app.metrics.body_memory(self.app.body_memory.held());
        if let Some(left) = self.app.authority.left() {
            self.app.metrics.lease(left, self.app.clock.machine_ahead().unwrap_or(0));
        }
        self.app.metrics.render()
    }

    async fn answer(&self, head: &RequestHeader) -> Response<Bytes> {
        // HTTP/2 has the host in its request target.
        let host = head.uri.authority().map(|authority| authority.as_str());
        let host = host.or_else(|| {
            head.headers.get(http::header::HOST).map(|host| host.to_str().unwrap_or_default())
        });
        let method = if head.method == Method::HEAD { &Method::GET } else { &head.method };
        match (method, head.uri.path()) {
            _ if !self.app.server.accepts_metrics_host(host) => {
                let why = "this host is not served here: see `metrics.hosts`";
                line(StatusCode::MISDIRECTED_REQUEST, why)
            }
            (&Method::GET, "/metrics") => {
                text(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", self.metrics())
            }
            (&Method::GET, "/livez") => line(StatusCode::OK, "ok"),
            (&Method::GET, "/readyz") if self.app.is_draining() => {
                line(StatusCode::SERVICE_UNAVAILABLE, "draining")
            }
            (&Method::GET, "/readyz") => match self.app.unready().await {
                Some(why) => line(StatusCode::SERVICE_UNAVAILABLE, why),
                None => line(StatusCode::OK, "ok"),
            },
            _ => line(StatusCode::NOT_FOUND, "GET /metrics, /livez or /readyz"),
        }
    }
}

fn line(status: StatusCode, line: &str) -> Response<Bytes> {
    text(status, "text/plain", format!("{line}\n"))
}

fn text(status: StatusCode, kind: &'static str, body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

#[async_trait]
impl crate::HttpService for MetricsPages {
    async fn serve(
        &self,
        session: Box<ServerSession>,
        standby: bool,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        let response = self.answer(session.req_header()).await;
        crate::answer(&self.app, session, response, !standby && !*shutdown.borrow()).await
    }

    async fn refuse(&self, session: &mut ServerSession, _: &[u8], error: Error) {
        crate::refuse(session, line(error.status(), error.detail())).await;
    }
}
