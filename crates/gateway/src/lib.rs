//! The boundary: from bytes on a connection to calls into the rooms above, and back. `accept` takes
//! connections, `edge` takes requests, `pipeline` has their stages, and Pingora's proxy calls the
//! hooks here. The map, `src/lib.rs` of the root package, walks through an inference request and a
//! reroute, file by file.
//!
//! ```text
//! accept → http1_head | http2 → edge → pipeline → wrap → Pingora → attempt, relay
//!                                              └→ respond
//! ```

// The documentation is for readers of the source, who see private items.
#![allow(rustdoc::private_intra_doc_links)]
// A test's scenario reads from top to bottom, however many steps it has.
#![cfg_attr(test, allow(clippy::too_many_lines))]

pub mod mock;
#[warn(missing_docs)]
pub mod server;

mod accept;
mod accounting;
mod admission;
mod allowance;
mod answer_filter;
mod answer_translation;
mod answers;
mod attempt;
mod attempt_guard;
mod background;
mod call;
mod chunked_body;
mod client_leaves;
mod connection_limits;
mod content_type;
mod cork;
mod cost_bound;
mod edge;
mod error_event;
mod exchange;
mod failure;
mod finish_answer;
mod framing;
mod http1_head;
mod http2;
mod http2_stream;
mod intake;
mod node_signature;
mod outcome;
mod peers;
mod pipeline;
mod plan;
mod progress_stream;
mod provider_headers;
mod reading_on;
mod record;
mod relay;
mod reroute;
mod reroute_answer;
mod reroute_repeat;
mod resolver;
mod respond;
mod retry_after;
mod service;
mod shadow;
mod stages;
mod translation;
mod verdict;
mod wrap;

use std::os::fd::RawFd;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::Version;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::Digest;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, Result};
use pingora_proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};

pub use accept::{ConnectionAcceptor, ConnectionGate, ConnectionLimits, TlsAcceptors};
pub(crate) use background::BackgroundWork;
use call::InferenceCall;
use cork::Cork;
pub use edge::Edge;
use failure::AttemptFailure;
pub use intake::IMPORT_BODY;
use peers::Peers;
use rerouter_core::app::App;
pub use service::{HttpService, answer, refuse};
pub use stages::CallStages;

/// The hooks of Pingora's proxy: they connect to the targets of the plan, write head and body, and
/// ask the call whether another one is tried.
#[derive(Clone)]
pub struct ProxyHooks {
    app: Arc<App>,
    peers: Arc<Peers>,
}

impl ProxyHooks {
    pub fn new(app: Arc<App>) -> Self {
        let peers = Arc::new(Peers::new(&app));
        ProxyHooks { app, peers }
    }
}

/// The context that Pingora passes from hook to hook of one call.
pub struct HookContext {
    call: Option<Arc<InferenceCall>>,
    body: Option<Bytes>,
    /// The descriptor of the connection to the provider.
    socket: Option<RawFd>,
}

impl HookContext {
    fn call(&self) -> Result<&Arc<InferenceCall>> {
        self.call
            .as_ref()
            .ok_or_else(|| Error::explain(ErrorType::InternalError, "a session without its call"))
    }
}

#[async_trait]
impl ProxyHttp for ProxyHooks {
    type CTX = HookContext;

    fn new_ctx(&self) -> HookContext {
        HookContext { call: call::CALL.try_with(Arc::clone).ok(), body: None, socket: None }
    }

    async fn upstream_peer(&self, _: &mut Session, ctx: &mut HookContext) -> Result<Box<HttpPeer>> {
        attempt::peer(&self.peers, ctx.call()?).await
    }

    async fn connected_to_upstream(
        &self,
        _: &mut Session,
        _: bool,
        _: &HttpPeer,
        socket: RawFd,
        _: Option<&Digest>,
        ctx: &mut HookContext,
    ) -> Result<()> {
        ctx.socket = Some(socket);
        Ok(())
    }

    async fn upstream_request_filter(
        &self,
        _: &mut Session,
        head: &mut RequestHeader,
        ctx: &mut HookContext,
    ) -> Result<()> {
        let call = ctx.call()?;
        let body = provider_headers::write_request(call, head)?;
        // An HTTP/2 connection is shared with other requests.
        let own = ctx.socket.filter(|_| head.version == Version::HTTP_11);
        let mut progress = call.progress();
        progress.cork = own.and_then(Cork::new);
        progress.http2 = head.version == Version::HTTP_2;
        drop(progress);
        ctx.body = Some(body);
        Ok(())
    }

    async fn request_body_filter(
        &self,
        _: &mut Session,
        body: &mut Option<Bytes>,
        end: bool,
        ctx: &mut HookContext,
    ) -> Result<()> {
        // Pingora calls this once for each attempt, with the client's whole body. The provider gets
        // the target's body instead.
        *body = if end { ctx.body.take() } else { Some(Bytes::new()) };
        Ok(())
    }

    async fn upstream_response_filter(
        &self,
        _: &mut Session,
        head: &mut ResponseHeader,
        ctx: &mut HookContext,
    ) -> Result<()> {
        provider_headers::rewrite_answer(ctx.call()?, head)
    }

    fn fail_to_connect(
        &self,
        _: &mut Session,
        peer: &HttpPeer,
        ctx: &mut HookContext,
        error: Box<Error>,
    ) -> Box<Error> {
        let another = self.peers.has_another_address(peer);
        attempt::failed(ctx.call.as_deref(), error, Some(AttemptFailure::Connect), another)
    }

    fn error_while_proxy(
        &self,
        _: &HttpPeer,
        _: &mut Session,
        error: Box<Error>,
        ctx: &mut HookContext,
        reused: bool,
    ) -> Box<Error> {
        attempt::failed(ctx.call.as_deref(), error, None, reused)
    }

    async fn fail_to_proxy(&self, _: &mut Session, _: &Error, _: &mut HookContext) -> FailToProxy {
        // The edge answers, once it has the session back.
        FailToProxy { error_code: 0, can_reuse_downstream: false }
    }

    fn suppress_error_log(&self, _: &Session, _: &HookContext, _: &Error) -> bool {
        true
    }

    fn suppress_proxy_warn_log(
        &self,
        _: &Session,
        _: &HookContext,
        _: &Error,
        _: ProxyWarnLogContext,
    ) -> bool {
        // Attempts are in captures, in the access log and in the metrics.
        true
    }
}
