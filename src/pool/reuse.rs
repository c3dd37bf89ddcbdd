//! Decides whether a process that has closed a session may serve another one.

use std::sync::Arc;

use tokio::time::Instant;

use super::grant::LeaseInfo;
use super::scheduler::Pool;
use super::state::IdleProcess;
use crate::agent::Process;
use crate::types::limits::{REUSE_GRACE, REUSE_INTERVAL};

impl Pool {
    /// Checks the process of a closed session, and reuses it if no process that the session started still
    /// runs. During the check the process counts as stopping.
    pub(super) fn check_for_reuse(&self, lease: &LeaseInfo, process: Process) {
        let (pool, key, id) = (self.clone(), lease.pool.clone(), lease.id);
        let used_by = Some(Arc::clone(&lease.principal));
        let generation = lease.generation;
        self.shutdown().spawn(async move {
            let left = tokio::select! {
                left = pool.count_leftover_processes(&process) => left,
                () = pool.shutdown().drain_started() => 0,
            };
            if left > 0 {
                tracing::info!(agent = %key.agent, left, "stopping an agent process: its closed session left child processes running");
            }
            let reusable = left == 0 && !process.has_ended() && !pool.shutdown().is_draining();
            let stopped = {
                let mut state = pool.state();
                let agent = state.existing(&key);
                let held = agent.checking.remove(&id).unwrap_or_default();
                if reusable {
                    let since = Instant::now();
                    agent.idle.push(IdleProcess { process, used_by, generation, idle_since: since, history: held });
                    None
                } else {
                    agent.stopping.insert(id, held);
                    Some(process)
                }
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
            let left = self.shutdown().spawn_blocking(move || tree.new_processes()).await.unwrap_or(1);
            if left == 0 || Instant::now() >= end {
                return left;
            }
            tokio::time::sleep(REUSE_INTERVAL).await;
        }
    }
}
