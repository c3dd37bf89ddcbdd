//! Sign-ins in terminals. Each agent and tenant has one slot, which is offered and then opened once.

use std::sync::Arc;

use tokio::time::Instant;
use uuid::Uuid;

use super::pool_key::PoolKey;
use super::scheduler::Pool;
use super::short_lease::ShortLeaseError;
use super::sign_in_state::SignInSlot;
use super::wait_queue::{AcquireError, RETRY_AFTER};
use crate::acp::auth::TerminalAuth;
use crate::agent::{AgentSpec, Terminal};
use crate::types::{AgentName, Tenant};

/// A running sign-in. Dropping it ends it.
#[derive(Debug)]
pub struct SignIn {
    pub terminal: Terminal,
    slot: SlotGuard,
}

/// Frees the slot on drop.
#[derive(Debug)]
struct SlotGuard {
    pool: Pool,
    /// The configuration entry of the agent.
    spec: Arc<AgentSpec>,
    tenant: Tenant,
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.pool.state().existing(&PoolKey::new(&self.spec.name, &self.tenant)).sign_in_slot = None;
    }
}

impl Pool {
    /// Offers a sign-in under this id, unless one is in progress. The method belongs to `spec`: the offer is
    /// void for any other entry.
    pub fn offer_sign_in(
        &self,
        spec: &Arc<AgentSpec>,
        tenant: &Tenant,
        id: Uuid,
        method: TerminalAuth,
    ) -> Result<(), AcquireError> {
        let until = Instant::now() + self.limits().ticket_unused_timeout;
        let mut state = self.state();
        let agent = state.configured(&PoolKey::new(&spec.name, tenant));
        let agent = agent.ok_or(AcquireError::NoSuchAgent)?;
        if let Some(SignInSlot::Open) = agent.sign_in_slot {
            return Err(AcquireError::SignInInProgress { retry_after: RETRY_AFTER });
        }
        if Arc::ptr_eq(&agent.spec, spec) {
            agent.sign_in_slot = Some(SignInSlot::Offered { id, method, until });
        }
        Ok(())
    }

    /// Whether a sign-in is offered under this id.
    pub fn offers_sign_in(&self, agent: &AgentName, tenant: &Tenant, id: Uuid) -> bool {
        let state = self.state();
        let place = state.pools.get(&PoolKey::new(agent, tenant)).and_then(|pool| pool.sign_in_slot.as_ref());
        place.is_some_and(|place| place.is_offered(id))
    }

    /// Opens an offered sign-in, once. Returns `None` if no sign-in is offered under this id.
    pub async fn open_sign_in(
        &self,
        spec: &Arc<AgentSpec>,
        tenant: &Tenant,
        id: Uuid,
        size: (u16, u16),
    ) -> Result<Option<SignIn>, ShortLeaseError> {
        if self.shutdown().is_draining() {
            return Err(AcquireError::Draining.into());
        }
        let taken = {
            let mut state = self.state();
            let agent = state.pools.get_mut(&PoolKey::new(&spec.name, tenant));
            let Some(agent) = agent else { return Ok(None) };
            // An offer is valid only for its entry.
            if !spec.settings.terminal_auth || !Arc::ptr_eq(&agent.spec, spec) {
                return Ok(None);
            }
            match &mut agent.sign_in_slot {
                Some(place) if place.is_offered(id) => std::mem::replace(place, SignInSlot::Open),
                Some(SignInSlot::Open) => {
                    return Err(AcquireError::SignInInProgress { retry_after: RETRY_AFTER }.into());
                }
                Some(SignInSlot::Offered { .. }) | None => return Ok(None),
            }
        };
        let place = SlotGuard { pool: self.clone(), spec: Arc::clone(spec), tenant: tenant.clone() };
        let SignInSlot::Offered { method, .. } = taken else { return Ok(None) };
        let terminal = self.source().sign_in(spec, tenant, &method, size).await?;
        Ok(Some(SignIn { terminal, slot: place }))
    }
}

impl SignIn {
    pub fn agent(&self) -> &AgentName {
        &self.slot.spec.name
    }

    /// Records that the sign-in succeeded. Running processes do not have it and stop when they are idle.
    pub fn succeeded(&self) {
        self.slot.pool.signed_in_by_terminal(&self.slot.spec, &self.slot.tenant);
    }
}
