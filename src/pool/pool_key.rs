//! The key of a pool: every tenant has its own pool for each agent.

use crate::types::{AgentName, Tenant};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PoolKey {
    pub(super) agent: AgentName,
    pub(super) tenant: Tenant,
}

impl PoolKey {
    pub(super) fn new(agent: &AgentName, tenant: &Tenant) -> Self {
        Self { agent: agent.clone(), tenant: tenant.clone() }
    }
}
