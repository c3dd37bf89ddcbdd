//! Statistics of an agent's processes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::scheduler::Pool;
use super::state::{ActiveLease, AgentState, Holder, IdleProcess, LastFailure, PoolKey};
use crate::agent::{AgentExit, AgentSpec, Connection};
use base::telemetry::metrics;
use base::types::{AgentName, AppliedIsolation, Tenant, UserId};
use children::ProcessTree;
use events::api::ProcessState;
use wire::acp::InitializeResult;

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
    /// `None` if the agent is not a child process of the gateway.
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

    /// Records that the process of a session ended without an order of the gateway.
    pub fn record_exit(&self, agent: &AgentName, tenant: &Tenant, exit: &AgentExit) {
        metrics().agent_exits(agent, exit.cause(), 1);
        if let Some(pool) = self.state().pools.get_mut(&PoolKey::new(agent, tenant)) {
            pool.learned.last_failure = Some(LastFailure::of(exit.clone().into()));
        }
    }

    /// The latest failure of the agent with its current entry.
    pub fn last_failure(&self, agent: &AgentName, tenant: &Tenant) -> Option<LastFailure> {
        let state = self.state();
        let pool = state.pools.get(&PoolKey::new(agent, tenant))?;
        pool.learned.last_failure.clone()
    }
}

#[derive(Debug, Clone)]
pub struct PoolProcess {
    pub id: Uuid,
    pub spec: Arc<AgentSpec>,
    pub state: ProcessState,
    /// The time since the gateway started the process, or continued with it.
    pub uptime: Duration,
    pub holder: Option<Holder>,
    /// The user whose sessions use the process. `None` if no session has used it.
    pub user: Option<UserId>,
    /// `None` while the process starts.
    pub connection: Option<Connection>,
    /// `None` while the process starts, and if it is not a child process of the gateway.
    pub pid: Option<u32>,
    pub tree: Option<ProcessTree>,
}

impl AgentState {
    fn processes(&self, now: Instant) -> impl Iterator<Item = PoolProcess> {
        let leases = self.leases.values().map(|leased| (leased.process, leased));
        let by_process: HashMap<Uuid, &ActiveLease> = leases.collect();
        let idle = self.idle.iter();
        let idle: HashMap<Uuid, &IdleProcess> = idle.map(|idle| (idle.process.id, idle)).collect();
        let checked = self.checking.values().map(|leased| leased.process);
        let checked: HashSet<Uuid> = checked.collect();
        self.processes.iter().map(move |(&id, started)| {
            let lease = by_process.get(&id).copied();
            let connection = started.connection.as_ref();
            let has_ended = connection.is_some_and(Connection::has_ended);
            let state = match lease {
                _ if has_ended => ProcessState::Stopping,
                _ if started.connection.is_none() => ProcessState::Starting,
                Some(lease) if lease.releasing => ProcessState::Releasing,
                Some(lease) if lease.idle_since.is_some() => ProcessState::Idle,
                Some(_) => ProcessState::Busy,
                None if idle.contains_key(&id) => ProcessState::Idle,
                None if checked.contains(&id) => ProcessState::Releasing,
                None => ProcessState::Stopping,
            };
            PoolProcess {
                id,
                spec: Arc::clone(&started.spec),
                state,
                uptime: now.saturating_duration_since(started.at),
                holder: lease.and_then(|lease| lease.holder),
                user: match lease {
                    Some(lease) => Some(lease.user.clone()),
                    None => idle.get(&id).and_then(|idle| idle.used_by.clone()),
                },
                connection: started.connection.clone(),
                pid: started.pid,
                tree: started.tree.clone(),
            }
        })
    }
}

/// The counts of one agent, over all tenants.
#[derive(Debug, Default)]
pub struct PoolCounts {
    pub waiting: u64,
    pub processes: HashMap<ProcessState, u64>,
}

impl Pool {
    /// The waiting requests and the processes of each agent.
    pub fn counts(&self) -> HashMap<AgentName, PoolCounts> {
        let state = self.state();
        let now = Instant::now();
        let mut counts: HashMap<AgentName, PoolCounts> = HashMap::new();
        for (key, pool) in &state.pools {
            let of_agent = counts.entry(key.agent.clone()).or_default();
            of_agent.waiting += pool.queue.len() as u64;
            for process in pool.processes(now) {
                *of_agent.processes.entry(process.state).or_default() += 1;
            }
        }
        counts
    }

    /// The processes that the user's sessions use or have used, and unused ones, the oldest first. `agent`: only those of
    /// this agent.
    pub fn processes_of(&self, user: &UserId, agent: Option<&AgentName>) -> Vec<PoolProcess> {
        let mut processes = self.processes(&user.tenant(), agent);
        processes.retain(|process| process.user.as_ref().is_none_or(|of| of == user));
        processes
    }

    /// The processes of the tenant, the oldest first. `agent`: only those of this agent.
    pub fn processes(&self, tenant: &Tenant, agent: Option<&AgentName>) -> Vec<PoolProcess> {
        let state = self.state();
        let now = Instant::now();
        let pools = state.pools.iter().filter(|(key, _)| {
            key.tenant == *tenant && agent.is_none_or(|agent| *agent == key.agent)
        });
        let mut processes: Vec<PoolProcess> =
            pools.flat_map(|(_, pool)| pool.processes(now)).collect();
        drop(state);
        processes.sort_by_key(|process| (std::cmp::Reverse(process.uptime), process.id));
        processes
    }
}
