//! Decides whether a process that has closed a session may serve another one.
//!
//! The gateway does not stop every process after its session, because each start of an agent can take seconds.

use tokio::time::Instant;

use super::scheduler::Pool;
use super::state::PoolKey;
use crate::agent::Process;
use crate::types::limits::{REUSE_GRACE, REUSE_INTERVAL};

impl Pool {
    /// Checks the process of a closed session, and reuses it if no process that the session started still
    /// runs. During the check the process counts as stopping.
    pub(super) fn check_for_reuse(&self, key: PoolKey, id: u64, process: Process) {
        let pool = self.clone();
        self.inner.shutdown.spawn(async move {
            let left = tokio::select! {
                left = pool.count_leftover_processes(&process) => left,
                () = pool.inner.shutdown.drain_started() => 0,
            };
            if left > 0 {
                tracing::info!(agent = %key.agent, left, "stopping an agent process: its closed session left child processes running");
            }
            let reusable = left == 0 && !process.has_ended() && !pool.inner.shutdown.is_draining();
            let stopped = {
                let mut state = pool.state();
                let agent = state.existing(&key);
                let Some(leased) = agent.ending.checking.remove(&id) else { return };
                agent.put_back(id, process, leased, reusable)
            };
            match stopped {
                Some(process) => pool.stop(key, process, id),
                None => pool.advance(&key),
            }
        });
    }

    /// The number of processes that started after `initialize` and still run after a grace period.
    async fn count_leftover_processes(&self, process: &Process) -> usize {
        let end = Instant::now() + REUSE_GRACE;
        loop {
            let Some(tree) = process.tree() else { return 0 };
            let left = self
                .inner
                .shutdown
                .spawn_blocking(move || tree.new_processes())
                .await
                .unwrap_or(1);
            if left == 0 || Instant::now() >= end {
                return left;
            }
            tokio::time::sleep(REUSE_INTERVAL).await;
        }
    }
}
