//! The one way to a thread that may wait. What a panic there says may be made of anything that was at hand, a secret too, so it is
//! told by nobody: whoever waits learns that there was one. Where it was is logged by the hook of [`log`](crate::log).

use std::future::Future;

use crate::error::Error;

/// Why work came to no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// It panicked.
    #[error("a panic")]
    Panicked,
    /// The process is leaving.
    #[error("the process leaves")]
    Leaving,
}

impl From<Lost> for Error {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Panicked => Error::panicked(lost),
            Lost::Leaving => Error::internal(lost),
        }
    }
}

/// Begins `work` at once, on a thread that may wait; it runs to its end, also when nobody waits for it any more.
pub fn blocking<T, F>(work: F) -> impl Future<Output = Result<T, Lost>> + Send
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let begun = tokio::task::spawn_blocking(work);
    async move {
        begun.await.map_err(|error| if error.is_panic() { Lost::Panicked } else { Lost::Leaving })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_told_without_its_words() {
        assert_eq!(blocking(|| 7).await, Ok(7));
        let lost =
            blocking(|| panic!("blocking-canary-1679091c5a880faf")).await.map(|()| 0).unwrap_err();
        assert_eq!(lost, Lost::Panicked);
        let told = Error::from(lost);
        assert!(told.is_panic() && told.cause() == Some("a panic"));
        let everywhere = format!("{lost} {lost:?} {told} {told:?} {}", std::io::Error::other(lost));
        assert!(!everywhere.contains("canary"), "{everywhere}");
        assert!(!Error::internal("else").is_panic());
    }
}
