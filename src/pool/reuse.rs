//! Decides whether a process that has closed a session may serve another one.

use tokio::time::Instant;

use super::lease::Lease;
use super::line::Pool;
use super::state::Spare;
use crate::agent::Process;
use crate::types::limits::{REUSE_GRACE, REUSE_INTERVAL};

impl Pool {
    /// Checks the process of a closed session, and reuses it if no process that the session started still
    /// runs. During the check the process counts as stopping.
    pub(super) fn take_back(&self, lease: &Lease, process: Process) {
        let (pool, name, id) = (self.clone(), lease.agent.clone(), lease.id);
        let (tenant, used_by) = (lease.principal.tenant.clone(), Some(lease.principal.id.clone()));
        let generation = lease.generation;
        self.shutdown().spawn(async move {
            let left = tokio::select! {
                left = pool.left_behind(&process) => left,
                () = pool.shutdown().soft() => 0,
            };
            if left > 0 {
                tracing::info!(agent = %name, left, "stopping an agent process: its closed session left child processes running");
            }
            let reusable = left == 0 && !process.is_over() && !pool.shutdown().draining();
            let stopped = {
                let mut state = pool.state();
                let agent = state.agents.get_mut(&name).expect("agents stay in the pool");
                let held = agent.returning.remove(&id).unwrap_or_default();
                if reusable {
                    let since = Instant::now();
                    agent.spares.push(Spare { process, tenant, used_by, generation, since, held });
                    None
                } else {
                    agent.ending.insert(id, held);
                    Some(process)
                }
            };
            match stopped {
                Some(process) => pool.stop(name, process, id),
                None => pool.advance(&name),
            }
        });
    }

    /// The number of processes that started after `initialize` and still run after a grace period.
    async fn left_behind(&self, process: &Process) -> usize {
        let end = Instant::now() + REUSE_GRACE;
        loop {
            let tree = process.tree();
            let left = self.shutdown().spawn_blocking(move || tree.new_processes()).await.unwrap_or(1);
            if left == 0 || Instant::now() >= end {
                return left;
            }
            tokio::time::sleep(REUSE_INTERVAL).await;
        }
    }
}
