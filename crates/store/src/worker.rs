//! A thread that owns a connection and runs the jobs that it is sent, in order. Async code never
//! touches a connection: it sends a closure and waits for the result.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use super::{Result, StoreError};

/// Maximum number of jobs that wait for a connection. Beyond it the store is unavailable, so that
/// requests do not pile up.
const QUEUE: usize = 1024;

type Job<C> = Box<dyn FnOnce(&mut C) + Send>;

/// The handle of such a thread. When it is dropped, the waiting jobs still run, then the thread
/// ends.
pub(super) struct Worker<C> {
    jobs: Option<mpsc::Sender<Job<C>>>,
    /// Jobs that the others wait for.
    first: mpsc::Sender<Job<C>>,
    thread: Option<JoinHandle<()>>,
}

impl<C: Send + 'static> Worker<C> {
    pub(super) fn start(name: &str, mut connection: C) -> Result<Self> {
        let (jobs, mut queue) = mpsc::channel::<Job<C>>(QUEUE);
        let (first, mut first_queue) = mpsc::channel::<Job<C>>(QUEUE);
        let run = move || {
            while let Some(job) = queue.blocking_recv() {
                // Only those that wait by now: later ones must not keep this job waiting.
                let waiting = first_queue.len();
                let first = std::iter::from_fn(|| first_queue.try_recv().ok()).take(waiting);
                for job in first.chain([job]) {
                    // A panic fails its job only, whose transaction is rolled back. After a commit
                    // the job must catch panics itself.
                    if catch_unwind(AssertUnwindSafe(|| job(&mut connection))).is_err() {
                        log::error!("a job of the store panicked");
                    }
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(run)
            .map_err(StoreError::unavailable)?;
        Ok(Worker { jobs: Some(jobs), first, thread: Some(thread) })
    }

    /// Runs `work` on the thread. It runs to its end even if the caller is dropped.
    pub(super) async fn run<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut C) -> Result<T> + Send + 'static,
    {
        self.queue(false, work).await
    }

    /// As [`Worker::run`]; `is_first`: before all jobs that wait and are not.
    pub(super) async fn queue<T, F>(&self, is_first: bool, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut C) -> Result<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let mut job: Job<C> = Box::new(move |connection| {
            // A caller that was dropped needs no reply.
            let _gone = reply.send(work(connection));
        });
        let jobs = self.jobs.as_ref().ok_or_else(|| StoreError::unavailable("closed"))?;
        let turn = jobs.try_reserve().map_err(StoreError::unavailable)?;
        if is_first {
            self.first.try_send(job).map_err(StoreError::unavailable)?;
            // It only wakes the thread.
            job = Box::new(|_| {});
        }
        turn.send(job);
        answer.await.map_err(StoreError::unavailable)?
    }
}

impl<C> Drop for Worker<C> {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A thread that panicked has ended too.
            let _ended = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A job that passes others brings the next one, for ever.
    fn again(worker: Arc<Worker<u32>>) {
        let next = Arc::clone(&worker);
        let job = worker.queue(true, move |turns: &mut u32| {
            *turns += 1;
            if *turns < 1_000 {
                again(next);
            }
            Ok(())
        });
        let _not_waited_for = futures::FutureExt::now_or_never(job);
    }

    #[tokio::test]
    async fn a_job_does_not_wait_for_all_that_come_later_and_pass_others() {
        let worker = Arc::new(Worker::start("test", 0).unwrap());
        again(Arc::clone(&worker));
        let turns = worker.run(|turns| Ok(*turns)).await.unwrap();
        assert!(turns < 1_000, "{turns}");
        while worker.run(|turns| Ok(*turns)).await.unwrap() < 1_000 {}
    }
}
