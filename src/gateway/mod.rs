//! The boundary: from bytes on a connection to calls into the rooms above, and back. `edge` does a request in plain async
//! code; `inference` gives it to Pingora's proxy, whose hooks are here, each a call into `attempt`. The crate's own page
//! walks through an inference request and a reroute, file by file.
//!
//! ```text
//! door → (head | http2) → edge → gate → (api | intake → inference → process_new_http(wrap) → relay) → reply
//! ```

mod admission;
mod allowance;
mod attempt;
mod broken_off;
mod call;
mod chunks;
mod door;
mod edge;
mod exchange;
mod failure;
mod gate;
mod head;
mod http2;
mod http2_stream;
mod inference;
mod intake;
mod node;
mod panicked;
mod places;
mod reach;
mod record;
mod relay;
mod reply;
mod reroute;
mod resolve;
mod retry_after;
mod shadow;
mod slow;
mod under_way;
mod upkeep;
mod wrap;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, Result};
use pingora_proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};

use crate::app::App;
use call::Call;
pub use door::{Door, Identities, Room, Serves, answer, refuse};
pub use edge::Edge;
use failure::Failure;
use reach::Reach;
pub use upkeep::Upkeep;

/// Our side of Pingora's proxy: which provider, with which head and body, and whether to try the next.
pub struct Gateway {
    app: Arc<App>,
    reach: Arc<Reach>,
}

impl Gateway {
    /// The hooks over one application.
    pub fn new(app: Arc<App>) -> Self {
        let reach = Arc::new(Reach::new(&app));
        Gateway { app, reach }
    }

    /// What is to be done beside calls; it shares what these know.
    pub fn upkeep(&self) -> Upkeep {
        Upkeep::new(self.app.clone(), self.reach.clone())
    }
}

/// What Pingora carries from hook to hook.
#[derive(Default)]
pub struct Attempting {
    call: Option<Arc<Call>>,
    body: Option<Bytes>,
}

impl Attempting {
    fn call(&self) -> Result<&Arc<Call>> {
        self.call
            .as_ref()
            .ok_or_else(|| Error::explain(ErrorType::InternalError, "a session without its call"))
    }
}

#[async_trait]
impl ProxyHttp for Gateway {
    type CTX = Attempting;

    fn new_ctx(&self) -> Attempting {
        Attempting::default()
    }

    async fn request_filter(&self, session: &mut Session, ctx: &mut Attempting) -> Result<bool> {
        ctx.call = session.req_header().extensions.get::<Arc<Call>>().cloned();
        ctx.call().map(|_| false)
    }

    async fn upstream_peer(&self, _: &mut Session, ctx: &mut Attempting) -> Result<Box<HttpPeer>> {
        attempt::peer(&self.app, &self.reach, ctx.call()?).await
    }

    async fn upstream_request_filter(
        &self,
        _: &mut Session,
        head: &mut RequestHeader,
        ctx: &mut Attempting,
    ) -> Result<()> {
        ctx.body = Some(attempt::write_head(ctx.call()?, head)?);
        Ok(())
    }

    async fn request_body_filter(
        &self,
        _: &mut Session,
        body: &mut Option<Bytes>,
        end: bool,
        ctx: &mut Attempting,
    ) -> Result<()> {
        // Called once for each attempt, with the whole body of the client; the provider gets its own.
        *body = if end { ctx.body.take() } else { Some(Bytes::new()) };
        Ok(())
    }

    async fn upstream_response_filter(
        &self,
        _: &mut Session,
        head: &mut ResponseHeader,
        ctx: &mut Attempting,
    ) -> Result<()> {
        attempt::read_head(ctx.call()?, head)
    }

    fn fail_to_connect(
        &self,
        _: &mut Session,
        _: &HttpPeer,
        ctx: &mut Attempting,
        error: Box<Error>,
    ) -> Box<Error> {
        attempt::failed(ctx.call.as_deref(), error, Some(Failure::Connect), false)
    }

    fn error_while_proxy(
        &self,
        _: &HttpPeer,
        _: &mut Session,
        error: Box<Error>,
        ctx: &mut Attempting,
        reused: bool,
    ) -> Box<Error> {
        attempt::failed(ctx.call.as_deref(), error, None, reused)
    }

    async fn fail_to_proxy(&self, _: &mut Session, _: &Error, _: &mut Attempting) -> FailToProxy {
        // The edge answers, once it has the session back.
        FailToProxy { error_code: 0, can_reuse_downstream: false }
    }

    fn suppress_error_log(&self, _: &Session, _: &Attempting, _: &Error) -> bool {
        true
    }

    fn suppress_proxy_warn_log(
        &self,
        _: &Session,
        _: &Attempting,
        _: &Error,
        _: ProxyWarnLogContext,
    ) -> bool {
        // Each attempt is in the capture, in the access line's count and in the metrics.
        true
    }
}
