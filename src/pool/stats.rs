//! Statistics of an agent's processes.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::scheduler::Pool;
use crate::acp::InitializeResult;
use crate::types::AgentName;

/// Statistics of one agent's processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolStats {
    pub max_size: usize,
    pub live: usize,
    pub starting: usize,
    pub leased: usize,
    /// The current target number of unused idle processes.
    pub min_idle: usize,
    pub idle: usize,
    pub queued: usize,
    /// The agent keeps a session locked after `session/close`, so the pool reuses no process.
    pub keeps_sessions_locked: bool,
    pub idle_timeout: Duration,
    /// This timeout and the next one apply to an agent that can neither load nor resume a session.
    pub no_load_idle_timeout: Duration,
    pub no_load_reclaim_timeout: Duration,
}

impl Pool {
    /// Pool statistics, and the last `initialize` result of the agent.
    pub fn agent_stats(&self, agent: &AgentName) -> Option<(PoolStats, Option<Arc<InitializeResult>>)> {
        let state = self.state();
        let agent = state.agents.get(agent).filter(|agent| agent.configured)?;
        let figures = PoolStats {
            max_size: agent.spec.settings.pool.max_size,
            live: agent.live,
            starting: agent.starting,
            min_idle: agent.min_idle(Instant::now()),
            leased: agent.leases.len(),
            idle: agent.idle.len(),
            queued: agent.queue.len(),
            keeps_sessions_locked: agent.keeps_sessions_locked,
            idle_timeout: agent.spec.settings.pool.idle_timeout,
            no_load_idle_timeout: agent.spec.settings.pool.no_load_idle_timeout,
            no_load_reclaim_timeout: agent.spec.settings.pool.no_load_reclaim_timeout,
        };
        Some((figures, agent.initialized.clone()))
    }
}
