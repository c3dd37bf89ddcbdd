//! Soft and hard stop, and the one place that starts tasks and threads, so that every one is tracked and a panic in
//! any of them has a defined end.

use std::future::{Future, poll_fn};
use std::sync::PoisonError;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A cheap handle on the gateway's life.
///
/// `soft` asks: no new work, finish what runs. `closing` follows when that work has ended: the door shuts. `hard`
/// ends: every task that watches it returns at once.
#[derive(Debug, Clone)]
pub struct Shutdown {
    drain_token: CancellationToken,
    closing_token: CancellationToken,
    abort_token: CancellationToken,
    /// What was begun before the stop was asked for: clients are answered until all of it has ended.
    work_tasks: TaskTracker,
    /// Everything else that the end waits for.
    other_tasks: TaskTracker,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

impl Shutdown {
    pub fn new() -> Self {
        let hard = CancellationToken::new();
        let (soft, closing) = (hard.child_token(), hard.child_token());
        Self { drain_token: soft, closing_token: closing, abort_token: hard, work_tasks: TaskTracker::new(), other_tasks: TaskTracker::new() }
    }

    /// Starts a task that [`Shutdown::finished`] waits for. Others rely on what it does, so a panic in it ends the
    /// process.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.spawn_isolated(abort_on_panic(task))
    }

    /// Starts a task on which all clients rely, like the one that lets them in. It may outlast all work, and a panic in
    /// it ends the process.
    pub fn spawn_critical<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.other_tasks.spawn(abort_on_panic(task))
    }

    /// The same for a task whose panic harms nobody but those who wait for it, and who notice.
    pub fn spawn_isolated<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        // What begins while we drain is only there to answer that we do.
        if self.is_draining() { self.other_tasks.spawn(task) } else { self.work_tasks.spawn(task) }
    }

    /// Starts a task that serves a client. It may outlast all work, and a panic in it is that client's alone.
    pub fn spawn_client<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.other_tasks.spawn(task)
    }

    /// The same on another runtime.
    pub fn spawn_client_on<F>(&self, runtime: &Handle, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.other_tasks.spawn_on(task, runtime)
    }

    /// Runs what blocks on tokio's pool of blocking threads. A panic in it is an error to who waits for it.
    pub fn spawn_blocking<F, T>(&self, work: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.other_tasks.spawn_blocking(work)
    }

    /// Starts a named thread for work that blocks for the gateway's whole life.
    pub fn spawn_thread<F>(name: &str, work: F) -> std::io::Result<std::thread::JoinHandle<()>>
    where
        F: FnOnce() + Send + 'static,
    {
        std::thread::Builder::new().name(name.to_owned()).spawn(work)
    }

    /// Asks for a stop: no new work, running work finishes.
    pub fn start_drain(&self) {
        self.drain_token.cancel();
    }

    /// Ends what is left.
    pub fn abort(&self) {
        self.abort_token.cancel();
    }

    pub fn is_draining(&self) -> bool {
        self.drain_token.is_cancelled()
    }

    /// Whether everything has to end now.
    pub fn is_aborted(&self) -> bool {
        self.abort_token.is_cancelled()
    }

    /// Resolves when a stop was asked for.
    pub async fn drain_started(&self) {
        self.drain_token.cancelled().await;
    }

    /// Resolves when the work has ended after a stop was asked for: nobody new is served.
    pub async fn closing_started(&self) {
        self.closing_token.cancelled().await;
    }

    /// Resolves when everything has to end now.
    pub async fn abort_started(&self) {
        self.abort_token.cancelled().await;
    }

    /// Waits until all work has ended, shuts the door, and waits until every other task has returned; false when some
    /// had not after `limit`.
    pub async fn wait_for_tasks(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        self.work_tasks.close();
        self.other_tasks.close();
        let work_ended = timeout_at(end, self.work_tasks.wait()).await.is_ok();
        self.closing_token.cancel();
        let others_ended = timeout_at(end, self.other_tasks.wait()).await.is_ok();
        // What was on its way when the stop was asked for may have begun some since.
        timeout_at(end, self.work_tasks.wait()).await.is_ok() && others_ended && work_ended
    }
}

/// What a lock guards, if no holder of it has panicked. One that has may have left it half changed, and who goes on
/// from there may write what never was: the process ends instead, and the next one begins from the log.
pub fn lock_or_abort<G>(locked: Result<G, PoisonError<G>>) -> G {
    locked.unwrap_or_else(|_| abort_process("a lock that is shared was held by what panicked"))
}

/// The task, watched while it runs: a panic in it ends the process, since others rely on it. One that is dropped because
/// of somebody else's panic has not panicked.
pub async fn abort_on_panic<F: Future>(task: F) -> F::Output {
    let mut task = std::pin::pin!(task);
    poll_fn(|context| {
        let _vital = AbortOnPanic;
        task.as_mut().poll(context)
    })
    .await
}

/// Ends the process when what runs while it is there panics.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            abort_process("a task on which others rely panicked");
        }
    }
}

/// At once: the keepers end the agents, and what was shown is in the log.
fn abort_process(why: &str) -> ! {
    tracing::error!(
        "{why}: the gateway ends at once, so that nothing goes on from a state that nobody knows"
    );
    std::process::abort()
}

#[cfg(test)]
mod tests;
