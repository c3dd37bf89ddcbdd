//! The processes of a tenant with their states, for lists and for messages to each process.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::process_table::Holder;
use super::scheduler::Pool;
use super::state::{ActiveLease, AgentState};
use crate::agent::{AgentSpec, Connection};
use crate::types::{AgentName, ProcessState, Tenant};

/// A process of an agent.
#[derive(Debug, Clone)]
pub struct PoolProcess {
    /// The id of the process from its start to its end.
    pub id: Uuid,
    /// The entry with which the process started.
    pub spec: Arc<AgentSpec>,
    pub state: ProcessState,
    /// The time since the gateway started the process, or continued with it.
    pub uptime: Duration,
    pub holder: Option<Holder>,
    /// `None` while the process starts.
    pub connection: Option<Connection>,
}

impl AgentState {
    /// All processes with their states.
    fn processes(&self, now: Instant) -> impl Iterator<Item = PoolProcess> {
        let by_process: HashMap<Uuid, &ActiveLease> = self
            .leases
            .values()
            .map(|leased| (leased.process, leased))
            .collect();
        let idle: HashSet<Uuid> = self.idle.iter().map(|idle| idle.process.id).collect();
        let checked: HashSet<Uuid> = self
            .ending
            .checking
            .values()
            .map(|leased| leased.process)
            .collect();
        self.processes.iter().map(move |(id, started)| {
            let lease = by_process.get(&id).copied();
            let has_ended = started
                .connection
                .as_ref()
                .is_some_and(Connection::has_ended);
            let state = match lease {
                _ if has_ended => ProcessState::Stopping,
                _ if started.connection.is_none() => ProcessState::Starting,
                Some(lease) if lease.releasing => ProcessState::Releasing,
                Some(lease) if lease.idle_since.is_some() => ProcessState::Idle,
                Some(_) => ProcessState::Busy,
                None if idle.contains(&id) => ProcessState::Idle,
                None if checked.contains(&id) => ProcessState::Releasing,
                None => ProcessState::Stopping,
            };
            PoolProcess {
                id,
                spec: Arc::clone(&started.spec),
                state,
                uptime: now.saturating_duration_since(started.at),
                holder: lease.and_then(|lease| lease.holder),
                connection: started.connection.clone(),
            }
        })
    }
}

impl Pool {
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
