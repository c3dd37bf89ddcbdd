//! Soft and hard stop, and the one place that starts tasks and threads, so that every one is tracked.

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A cheap handle on the gateway's life.
///
/// `soft` asks: no new work, finish what runs. `hard` ends: every task that watches it returns at once.
#[derive(Debug, Clone)]
pub struct Shutdown {
    soft: CancellationToken,
    hard: CancellationToken,
    tasks: TaskTracker,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

impl Shutdown {
    pub fn new() -> Self {
        let hard = CancellationToken::new();
        Self { soft: hard.child_token(), hard, tasks: TaskTracker::new() }
    }

    /// Starts a task that [`Shutdown::finished`] waits for.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.tasks.spawn(task)
    }

    /// Runs what blocks on tokio's pool of blocking threads.
    pub fn spawn_blocking<F, T>(&self, work: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.tasks.spawn_blocking(work)
    }

    /// Starts a named thread for work that blocks for the gateway's whole life.
    pub fn thread<F>(name: &str, work: F) -> std::io::Result<std::thread::JoinHandle<()>>
    where
        F: FnOnce() + Send + 'static,
    {
        std::thread::Builder::new().name(name.to_owned()).spawn(work)
    }

    /// Asks for a stop: no new work, running work finishes.
    pub fn begin(&self) {
        self.soft.cancel();
    }

    /// Ends what is left.
    pub fn abort(&self) {
        self.hard.cancel();
    }

    pub fn draining(&self) -> bool {
        self.soft.is_cancelled()
    }

    /// Resolves when a stop was asked for.
    pub async fn soft(&self) {
        self.soft.cancelled().await;
    }

    /// Resolves when everything has to end now.
    pub async fn hard(&self) {
        self.hard.cancelled().await;
    }

    /// Waits until every task has returned; false when some had not after `limit`.
    pub async fn finished(&self, limit: Duration) -> bool {
        self.tasks.close();
        tokio::time::timeout(limit, self.tasks.wait()).await.is_ok()
    }
}
