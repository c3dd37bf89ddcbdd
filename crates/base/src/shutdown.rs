//! Graceful and immediate shutdown. This module is the only place that starts tasks and threads. Therefore
//! every task is tracked, and a panic in any task has a defined result.
//!
//! Panics unwind and do not abort the process directly, because a bug in one request must not end unrelated turns. The
//! code that starts a task selects the effect of a panic in this task. No code acquires a poisoned lock, unless the
//! state behind this lock cannot be half changed, for example a count.

use std::future::{Future, poll_fn};
use std::sync::PoisonError;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Span;

pub trait Task: Future<Output: Send + 'static> + Send + 'static {}

impl<F: Future<Output: Send + 'static> + Send + 'static> Task for F {}

/// A cheap handle on the shutdown state of the gateway. A shutdown has three phases:
///
/// - `drain_started`: the gateway accepts no new work, and running work finishes.
/// - `closing_started`: the running work has ended, and the listener closes.
/// - `abort_started`: every task that watches this phase returns at once.
#[derive(Debug, Clone)]
pub struct Shutdown {
    drain_token: CancellationToken,
    closing_token: CancellationToken,
    abort_token: CancellationToken,
    /// Tasks that started before the drain. The gateway serves clients until all of these tasks have ended.
    work_tasks: TaskTracker,
    /// Every other task. [`Shutdown::wait_for_tasks`] waits for these tasks too.
    other_tasks: TaskTracker,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

impl Shutdown {
    pub fn new() -> Self {
        let abort_token = CancellationToken::new();
        Self {
            drain_token: abort_token.child_token(),
            closing_token: abort_token.child_token(),
            abort_token,
            work_tasks: TaskTracker::new(),
            other_tasks: TaskTracker::new(),
        }
    }

    /// Starts a task that [`Shutdown::wait_for_tasks`] waits for. Other tasks depend on it, so a panic in it
    /// aborts the process.
    pub fn spawn<F: Task>(&self, task: F) -> JoinHandle<F::Output> {
        self.spawn_isolated(abort_on_panic(task))
    }

    /// Starts a task like [`Shutdown::spawn`]. It is cancelled in its current wait when the drain starts.
    pub fn spawn_until_drain<F: Task<Output = ()>>(&self, task: F) {
        let drain = self.drain_token.clone();
        self.spawn(async move {
            drain.run_until_cancelled(task).await;
        });
    }

    /// Starts a task that all clients depend on, such as the listener. The task may outlive all work. A panic
    /// in it aborts the process.
    pub fn spawn_critical<F: Task>(&self, task: F) -> JoinHandle<F::Output> {
        self.other_tasks.spawn(abort_on_panic(task))
    }

    /// Starts a task like [`Shutdown::spawn`], but a panic ends only this task. Its callers detect the panic
    /// through the handle.
    pub fn spawn_isolated<F: Task>(&self, task: F) -> JoinHandle<F::Output> {
        // A task that starts during the drain only reports that the gateway drains.
        if self.is_draining() {
            self.other_tasks.spawn(task)
        } else {
            self.work_tasks.spawn(task)
        }
    }

    /// Starts a task that serves one client. The task may outlive all work. A panic ends only the service of
    /// this client.
    pub fn spawn_client<F: Task>(&self, task: F) -> JoinHandle<F::Output> {
        self.other_tasks.spawn(task)
    }

    /// Starts a task like [`Shutdown::spawn_client`] on another runtime.
    pub fn spawn_client_on<F: Task>(&self, runtime: &Handle, task: F) -> JoinHandle<F::Output> {
        self.other_tasks.spawn_on(task, runtime)
    }

    /// Runs blocking work on tokio's blocking thread pool, in the span of the caller. The handle returns a panic as an error.
    pub fn spawn_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let span = Span::current();
        self.other_tasks.spawn_blocking(move || span.in_scope(work))
    }

    /// Starts a named thread for blocking work that lasts as long as the gateway.
    pub fn spawn_thread(
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<std::thread::JoinHandle<()>> {
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(work)
    }

    /// Starts the drain: no new work is accepted, and running work finishes.
    pub fn start_drain(&self) {
        self.drain_token.cancel();
    }

    pub fn abort(&self) {
        self.abort_token.cancel();
    }

    pub fn is_draining(&self) -> bool {
        self.drain_token.is_cancelled()
    }

    pub fn is_aborted(&self) -> bool {
        self.abort_token.is_cancelled()
    }

    /// Resolves when the drain starts.
    pub async fn drain_started(&self) {
        self.drain_token.cancelled().await;
    }

    /// Resolves when the running work has ended after the start of the drain. New clients are not served any more.
    pub async fn closing_started(&self) {
        self.closing_token.cancelled().await;
    }

    pub async fn abort_started(&self) {
        self.abort_token.cancelled().await;
    }

    /// Waits until all work has ended, starts the closing phase, and waits for every other task. Returns
    /// false if a task has not ended within `limit`.
    pub async fn wait_for_tasks(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        self.work_tasks.close();
        self.other_tasks.close();
        let work_ended = timeout_at(end, self.work_tasks.wait()).await.is_ok();
        self.closing_token.cancel();
        let others_ended = timeout_at(end, self.other_tasks.wait()).await.is_ok();
        // Operations that were in progress at the start of the drain may have started work tasks after the first wait.
        timeout_at(end, self.work_tasks.wait()).await.is_ok() && others_ended && work_ended
    }
}

/// Returns the guard of a lock. A poisoned lock may protect inconsistent state, so the process aborts. The
/// next process restores the state from the log.
pub fn lock_or_abort<G>(locked: Result<G, PoisonError<G>>) -> G {
    locked.unwrap_or_else(|_| abort_process("shared lock poisoned by a panic in another task"))
}

/// Runs a task that other tasks depend on: a panic in it aborts the process. A task that is dropped because
/// another task panicked has not panicked itself.
pub async fn abort_on_panic<F: Future>(task: F) -> F::Output {
    let mut task = std::pin::pin!(task);
    poll_fn(|context| {
        let _guard = AbortOnPanic;
        task.as_mut().poll(context)
    })
    .await
}

struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            abort_process("a task that other tasks depend on panicked");
        }
    }
}

/// Aborts immediately. The supervisors stop the agents, and every event that a client has seen is in the log.
fn abort_process(why: &str) -> ! {
    tracing::error!("{why}: aborting the gateway, because its state may be inconsistent");
    std::process::abort()
}

#[cfg(test)]
mod tests;
