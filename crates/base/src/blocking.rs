//! Runs blocking work on threads for it. The message of a panic may contain a secret, so it is
//! dropped, and the caller learns only that there was a panic. The hook of [`log`](crate::log) logs
//! where.

use std::future::Future;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use crate::error::Error;

/// Time between two looks whether a full queue has room for the end of a flush.
const FLUSH_INTERVAL: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockingError {
    #[error("a panic")]
    Panicked,
    #[error("the process is shutting down")]
    Leaving,
}

impl From<BlockingError> for Error {
    fn from(lost: BlockingError) -> Self {
        match lost {
            BlockingError::Panicked => Error::panicked(lost),
            BlockingError::Leaving => Error::internal(lost),
        }
    }
}

/// Starts `work` at once on a blocking thread. It runs to its end even if the future is dropped.
pub fn blocking<T, F>(work: F) -> impl Future<Output = Result<T, BlockingError>> + Send
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let begun = tokio::task::spawn_blocking(work);
    async move {
        begun.await.map_err(|error| {
            if error.is_panic() { BlockingError::Panicked } else { BlockingError::Leaving }
        })
    }
}

/// Waits until a thread has done what its queue held, but at most `patience`. The thread answers
/// the `message`. It blocks, and is meant for the end of the process.
pub fn flush<M>(queue: &SyncSender<M>, message: fn(SyncSender<()>) -> M, patience: Duration) {
    let until = Instant::now() + patience;
    let (done, finished) = sync_channel(1);
    let mut message = message(done);
    // The message needs a free place in the queue.
    while let Err(refused) = queue.try_send(message) {
        match refused {
            TrySendError::Full(back) if Instant::now() < until => message = back,
            TrySendError::Full(_) | TrySendError::Disconnected(_) => return,
        }
        std::thread::park_timeout(FLUSH_INTERVAL);
    }
    // On a timeout the rest is lost with the process.
    let _late = finished.recv_timeout(until.saturating_duration_since(Instant::now()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_reported_without_its_message() {
        assert_eq!(blocking(|| 7).await, Ok(7));
        let lost =
            blocking(|| panic!("blocking-canary-1679091c5a880faf")).await.map(|()| 0).unwrap_err();
        assert_eq!(lost, BlockingError::Panicked);
        let told = Error::from(lost);
        assert!(told.is_panic() && told.cause() == Some("a panic"));
        let everywhere = format!("{lost} {lost:?} {told} {told:?} {}", std::io::Error::other(lost));
        assert!(!everywhere.contains("canary"), "{everywhere}");
        assert!(!Error::internal("else").is_panic());
    }
}
