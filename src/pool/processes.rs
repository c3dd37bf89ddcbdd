//! The processes of a tenant with their states, for lists and for messages to each process.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::process_table::{Holder, Started};
use super::scheduler::Pool;
use super::state::AgentState;
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
    fn process(&self, id: Uuid, started: &Started) -> PoolProcess {
        let lease = self.leases.values().find(|leased| leased.process == id);
        let is_idle = || self.idle.iter().any(|idle| idle.process.id == id);
        let is_checked = || self.ending.checking.values().any(|leased| leased.process == id);
        let has_ended = started.connection.as_ref().is_some_and(Connection::has_ended);
        let state = match lease {
            _ if has_ended => ProcessState::Stopping,
            _ if started.connection.is_none() => ProcessState::Starting,
            Some(leased) if leased.releasing => ProcessState::Releasing,
            Some(leased) if leased.idle_since.is_some() => ProcessState::Idle,
            Some(_) => ProcessState::Busy,
            None if is_idle() => ProcessState::Idle,
            None if is_checked() => ProcessState::Releasing,
            None => ProcessState::Stopping,
        };
        PoolProcess {
            id,
            spec: Arc::clone(&started.spec),
            state,
            uptime: started.at.elapsed(),
            holder: lease.and_then(|leased| leased.holder),
            connection: started.connection.clone(),
        }
    }
}

impl Pool {
    /// The processes of the tenant, the oldest first. `agent`: only those of this agent.
    pub fn processes(&self, tenant: &Tenant, agent: Option<&AgentName>) -> Vec<PoolProcess> {
        let state = self.state();
        let pools = state
            .pools
            .iter()
            .filter(|(key, _)| key.tenant == *tenant && agent.is_none_or(|agent| *agent == key.agent));
        let mut processes: Vec<PoolProcess> = pools
            .flat_map(|(_, pool)| pool.processes.iter().map(|(id, started)| pool.process(id, started)))
            .collect();
        drop(state);
        processes.sort_by_key(|process| (std::cmp::Reverse(process.uptime), process.id));
        processes
    }
}
