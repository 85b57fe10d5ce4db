//! One question to the store at a time whether it works, for all who ask meanwhile: they are many
//! and anybody, and its thread has a queue for those who write.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};

/// What those who wait for an answer share.
type Asked = Option<Shared<BoxFuture<'static, bool>>>;

/// The question that is under way.
#[derive(Clone, Default)]
pub(super) struct Probe(Arc<Mutex<Asked>>);

impl Probe {
    /// The answer to the question that is under way, or to this one where none is. It goes on when
    /// who asked leaves.
    pub(super) async fn ask<F: Future<Output = bool> + Send + 'static>(
        &self,
        question: impl FnOnce() -> F,
    ) -> bool {
        let answer = {
            let mut under_way = self.lock();
            match under_way.as_ref() {
                Some(answer) => answer.clone(),
                None => {
                    let (probe, question) = (self.clone(), question());
                    // Whoever asks from here on asks anew, also where nobody waited for this
                    // answer; after a panic too.
                    let asked = tokio::spawn(async move {
                        let _over = Over(probe);
                        question.await
                    });
                    let answer = asked.map(|answer| answer.unwrap_or(false)).boxed().shared();
                    under_way.insert(answer).clone()
                }
            }
        };
        answer.await
    }

    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of a question.
struct Over(Probe);

impl Drop for Over {
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
    async fn many_share_one_question_and_who_comes_after_the_answer_asks_anew() {
        let (probe, asked, gate) =
            (Probe::default(), Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let ask = || {
            let (probe, asked, gate) = (probe.clone(), asked.clone(), gate.clone());
            tokio::spawn(async move {
                let question = || async move {
                    asked.fetch_add(1, Ordering::Relaxed);
                    let passed = gate.acquire().await.map(tokio::sync::SemaphorePermit::forget);
                    passed.is_ok()
                };
                probe.ask(question).await
            })
        };
        let many: Vec<_> = (0..100).map(|_| ask()).collect();
        while asked.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        // Who asked first leaves.
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
        // Of this one nobody waits for the answer.
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
