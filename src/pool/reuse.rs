//! Whether a process that has closed a session may serve another one.

use tokio::time::Instant;

use super::lease::Lease;
use super::line::Pool;
use super::state::Spare;
use crate::agent::Process;
use crate::types::limits::{REUSE_GRACE, REUSE_INTERVAL};

impl Pool {
    /// Takes the process of a closed session back, unless something that the session started still runs. Until then
    /// the process counts as stopping.
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
                tracing::info!(agent = %name, left, "a process is stopped: a closed session left processes behind");
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

    /// How many processes are left that were not there after `initialize`, when they had a little time to end.
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
