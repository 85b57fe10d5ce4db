//! Calls that take time: they report progress to clients that ask for lines.

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, Response};
use serde_json::Value;
use tokio::sync::mpsc;

use rerouter_base::error::{Error, Result};

/// A running call that reports progress. Dropping it ends the work, as when the client leaves.
pub struct ProgressStream {
    /// Whether the client gets progress as lines. If so, the last line is the answer.
    pub lines: bool,
    /// The steps. The last one is [`ProgressStep::Answer`].
    pub steps: mpsc::Receiver<ProgressStep>,
}

pub enum ProgressStep {
    Line(Value),
    Answer(Result<Response<Bytes>>),
}

impl ProgressStream {
    /// Whether a client asks for lines of progress.
    pub fn is_wanted(headers: &HeaderMap) -> bool {
        let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
        accept.unwrap_or_default().split(',').any(|part| {
            let kind = part.split(';').next().unwrap_or_default();
            kind.trim().eq_ignore_ascii_case("application/x-ndjson")
        })
    }

    /// An answer without progress.
    pub fn at_once(lines: bool, answer: Result<Response<Bytes>>) -> Self {
        let (out, steps) = mpsc::channel(1);
        // A new channel has room for one step.
        let _sent = out.try_send(ProgressStep::Answer(answer));
        ProgressStream { lines, steps }
    }

    /// The steps that `step` makes of what comes `from` the work, up to an answer. `step` gets an
    /// error if the work ends without one. When the client leaves, `from` is dropped, which ends
    /// the work.
    pub fn of<T: Send + 'static>(
        lines: bool,
        mut from: mpsc::Receiver<T>,
        mut step: impl FnMut(Result<T>) -> ProgressStep + Send + 'static,
    ) -> Self {
        let (out, steps) = mpsc::channel(1);
        tokio::spawn(async move {
            loop {
                let came = tokio::select! {
                    came = from.recv() => came,
                    () = out.closed() => return,
                };
                let came = came.ok_or_else(|| Error::panicked("work ended without a result"));
                let is_over = came.is_err();
                let next = step(came);
                let is_last = is_over || matches!(next, ProgressStep::Answer(_));
                if out.send(next).await.is_err() || is_last {
                    return;
                }
            }
        });
        ProgressStream { lines, steps }
    }
}
