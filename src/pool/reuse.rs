//! Whether a process that has closed a session may serve another one.

use tokio::time::Instant;

use super::lease::Lease;
use super::wait_queue::Pool;
use super::state::IdleProcess;
use crate::agent::Process;
use crate::types::limits::{REUSE_GRACE, REUSE_INTERVAL};

impl Pool {
    /// Takes the process of a closed session back, unless something that the session started still runs. Until then
    /// the process counts as stopping.
    pub(super) fn check_for_reuse(&self, lease: &Lease, process: Process) {
        let (pool, name, id) = (self.clone(), lease.agent.clone(), lease.id);
        let (tenant, used_by) = (lease.principal.tenant.clone(), Some(lease.principal.id.clone()));
        let generation = lease.generation;
        self.shutdown().spawn(async move {
            let left = tokio::select! {
                left = pool.count_leftover_processes(&process) => left,
                () = pool.shutdown().drain_started() => 0,
            };
            if left > 0 {
                tracing::info!(agent = %name, left, "a process is stopped: a closed session left processes behind");
            }
            let reusable = left == 0 && !process.has_ended() && !pool.shutdown().is_draining();
            let stopped = {
                let mut state = pool.state();
                let agent = state.agents.get_mut(&name).expect("agents stay in the pool");
                let held = agent.checking.remove(&id).unwrap_or_default();
                if reusable {
                    let since = Instant::now();
                    agent.idle.push(IdleProcess { process, tenant, used_by, generation, idle_since: since, history: held });
                    None
                } else {
                    agent.stopping.insert(id, held);
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
    async fn count_leftover_processes(&self, process: &Process) -> usize {
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
