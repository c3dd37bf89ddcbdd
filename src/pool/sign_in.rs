//! Sign-ins in terminals. Each agent and tenant has one slot, which is offered and then opened once.

use std::sync::Arc;

use tokio::time::Instant;
use uuid::Uuid;

use super::scheduler::Pool;
use super::short_lease::ShortLeaseError;
use super::sign_in_state::SignInSlot;
use super::state::PoolKey;
use super::wait_queue::{AcquireError, RETRY_AFTER};
use crate::acp::auth::{AuthState, TerminalAuth};
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
    key: PoolKey,
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.pool.state().existing(&self.key).sign_in.slot = None;
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
        let until = Instant::now() + self.inner.limits.ticket_unused_timeout;
        let mut state = self.state();
        let agent = state.configured(&PoolKey::new(&spec.name, tenant));
        let agent = agent.ok_or(AcquireError::NoSuchAgent)?;
        if let Some(SignInSlot::Open) = agent.sign_in.slot {
            return Err(AcquireError::SignInInProgress {
                retry_after: RETRY_AFTER,
            });
        }
        if Arc::ptr_eq(&agent.spec, spec) {
            agent.sign_in.slot = Some(SignInSlot::Offered { id, method, until });
        }
        Ok(())
    }

    /// Whether a sign-in is offered under this id.
    pub fn offers_sign_in(&self, agent: &AgentName, tenant: &Tenant, id: Uuid) -> bool {
        let state = self.state();
        let slot = state
            .pools
            .get(&PoolKey::new(agent, tenant))
            .and_then(|pool| pool.sign_in.slot.as_ref());
        slot.is_some_and(|slot| slot.is_offered(id))
    }

    /// Opens an offered sign-in, once. Returns `None` if no sign-in is offered under this id.
    pub async fn open_sign_in(
        &self,
        spec: &Arc<AgentSpec>,
        tenant: &Tenant,
        id: Uuid,
        size: (u16, u16),
    ) -> Result<Option<SignIn>, ShortLeaseError> {
        if self.inner.shutdown.is_draining() {
            return Err(AcquireError::Draining.into());
        }
        let key = PoolKey::new(&spec.name, tenant);
        let offered = {
            let mut state = self.state();
            let Some(agent) = state.pools.get_mut(&key) else {
                return Ok(None);
            };
            // An offer is valid only for its entry.
            if !spec.settings.terminal_auth || !Arc::ptr_eq(&agent.spec, spec) {
                return Ok(None);
            }
            match &mut agent.sign_in.slot {
                Some(slot) if slot.is_offered(id) => std::mem::replace(slot, SignInSlot::Open),
                Some(SignInSlot::Open) => {
                    return Err(AcquireError::SignInInProgress {
                        retry_after: RETRY_AFTER,
                    }
                    .into());
                }
                Some(SignInSlot::Offered { .. }) | None => return Ok(None),
            }
        };
        let slot = SlotGuard {
            pool: self.clone(),
            spec: Arc::clone(spec),
            key,
        };
        let SignInSlot::Offered { method, .. } = offered else {
            return Ok(None);
        };
        let terminal = self
            .inner
            .source
            .sign_in(spec, tenant, &method, size)
            .await?;
        Ok(Some(SignIn { terminal, slot }))
    }
}

impl SignIn {
    pub fn agent(&self) -> &AgentName {
        &self.slot.spec.name
    }

    /// Records that the sign-in succeeded. Running processes do not have it and stop when they are idle.
    pub fn succeeded(&self) {
        let SlotGuard { pool, spec, key } = &self.slot;
        {
            let mut state = pool.state();
            let agent = state.existing(key);
            // The new program of a changed entry must not receive the sign-in of the former one.
            if Arc::ptr_eq(&agent.spec, spec) {
                agent.sign_in.update(AuthState::Authenticated, None);
            }
        }
        pool.advance(key);
    }
}
