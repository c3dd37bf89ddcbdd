//! Statistics of an agent's processes.

use std::sync::Arc;

use tokio::time::Instant;

use super::scheduler::Pool;
use super::state::{AgentState, PoolKey};
use crate::acp::InitializeResult;
use crate::types::{AgentName, AppliedIsolation, Tenant};

/// Statistics of one agent's processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolStats {
    pub live: usize,
    pub starting: usize,
    pub leased: usize,
    /// The current target number of unused idle processes.
    pub min_idle: usize,
    pub idle: usize,
    pub queued: usize,
    /// The agent keeps a session locked after `session/close`, so the pool reuses no process.
    pub keeps_sessions_locked: bool,
    /// The error of the last start, if it failed.
    pub start_error: Option<Arc<str>>,
    /// `None` if the agent runs on another host.
    pub isolation: Option<AppliedIsolation>,
}

impl Pool {
    /// Whether a session uses a process or waits for one. A session without a turn, request or call does not use it.
    pub fn is_busy(&self) -> bool {
        let in_use = |agent: &AgentState| {
            !agent.queue.is_empty()
                || agent
                    .leases
                    .values()
                    .any(|lease| lease.idle_since.is_none())
        };
        self.state().pools.values().any(in_use)
    }

    /// Statistics of the tenant's pool, and the last `initialize` result of the agent.
    pub fn agent_stats(
        &self,
        agent: &AgentName,
        tenant: &Tenant,
    ) -> Option<(PoolStats, Option<Arc<InitializeResult>>)> {
        let state = self.state();
        let key = PoolKey::new(agent, tenant);
        // A tenant without a request has no pool yet.
        let unused = AgentState::new(Arc::clone(state.catalogue.agent(agent)?), tenant.clone());
        let agent = state.pools.get(&key).unwrap_or(&unused);
        let figures = PoolStats {
            live: agent.live,
            starting: agent.starting,
            min_idle: agent.min_idle(Instant::now()),
            leased: agent.leases.len(),
            idle: agent.idle.len(),
            queued: agent.queue.len(),
            keeps_sessions_locked: agent.learned.keeps_sessions_locked,
            start_error: agent.learned.start_error.clone(),
            isolation: self.inner.source.isolation(&agent.spec),
        };
        Some((figures, agent.learned.initialized.clone()))
    }
}
