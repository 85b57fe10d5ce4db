//! One check at a time, whose result all concurrent callers share: anybody may ask for the health
//! of the gateway, and the queue of the store is for writes.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};

type RunningCheck = Option<Shared<BoxFuture<'static, bool>>>;

/// The running check.
#[derive(Clone, Default)]
pub(super) struct SingleFlight(Arc<Mutex<RunningCheck>>);

impl SingleFlight {
    /// The result of the running check, or of a new one. It runs to its end even if all callers are
    /// dropped.
    pub(super) async fn run<F: Future<Output = bool> + Send + 'static>(
        &self,
        check: impl FnOnce() -> F,
    ) -> bool {
        let result = {
            let mut running = self.lock();
            match running.as_ref() {
                Some(result) => result.clone(),
                None => {
                    let (end, check) = (EndOfCheck(self.clone()), check());
                    let check = tokio::spawn(async move {
                        let _end = end;
                        check.await
                    });
                    let result = check.map(|result| result.unwrap_or(false)).boxed().shared();
                    running.insert(result).clone()
                }
            }
        };
        result.await
    }

    fn lock(&self) -> MutexGuard<'_, RunningCheck> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Callers from here on start a new check, also after a panic.
struct EndOfCheck(SingleFlight);

impl Drop for EndOfCheck {
    fn drop(&mut self) {
        self.0.lock().take();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn concurrent_callers_share_one_check_and_later_ones_start_another() {
        let (probe, asked, gate) =
            (SingleFlight::default(), Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let ask = || {
            let (probe, asked, gate) = (probe.clone(), asked.clone(), gate.clone());
            tokio::spawn(async move {
                let question = || async move {
                    asked.fetch_add(1, Ordering::Relaxed);
                    let passed = gate.acquire().await.map(tokio::sync::SemaphorePermit::forget);
                    passed.is_ok()
                };
                probe.run(question).await
            })
        };
        let many: Vec<_> = (0..100).map(|_| ask()).collect();
        while asked.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        // The first caller is dropped.
        many[0].abort();
        let (left, rest) = (Vec::from_iter(many), 99);
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        gate.add_permits(1);
        let mut told = 0;
        for answer in left {
            told += usize::from(answer.await.is_ok_and(|answer| answer));
        }
        assert_eq!((told, asked.load(Ordering::Relaxed)), (rest, 1));
        // Nobody waits for the result of this one.
        let alone = ask();
        while asked.load(Ordering::Relaxed) == 1 {
            tokio::task::yield_now().await;
        }
        alone.abort();
        gate.add_permits(1);
        while probe.lock().is_some() {
            tokio::task::yield_now().await;
        }
        gate.add_permits(1);
        assert!(ask().await.unwrap());
        assert_eq!(asked.load(Ordering::Relaxed), 3);
    }
}
