//! Sign-ins in terminals. Each agent and tenant has one slot, which is offered and then opened once.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::line::{Pool, Refused};
use super::visit::NoVisit;
use crate::acp::auth::TerminalAuth;
use crate::agent::{AgentSpec, Terminal};
use crate::types::{AgentName, Tenant};

/// The state of the sign-in slot of an agent and a tenant.
#[derive(Debug)]
pub(super) enum SignInPlace {
    /// Waits for its connection. A later offer replaces this one.
    Offered {
        id: Uuid,
        method: TerminalAuth,
        until: Instant,
    },
    Open,
}

impl SignInPlace {
    fn offers(&self, wanted: Uuid) -> bool {
        matches!(self, Self::Offered { id, until, .. } if *id == wanted && Instant::now() < *until)
    }
}

/// A running sign-in. Dropping it ends it.
#[derive(Debug)]
pub struct SignIn {
    pub terminal: Terminal,
    place: Held,
}

/// Frees the slot on drop.
#[derive(Debug)]
struct Held {
    pool: Pool,
    /// The configuration entry of the agent.
    spec: Arc<AgentSpec>,
    tenant: Tenant,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(agent) = self.pool.state().agents.get_mut(&self.spec.name) {
            agent.sign_ins.remove(&self.tenant);
        }
    }
}

const RETRY: Duration = Duration::from_secs(5);

impl Pool {
    /// Offers a sign-in under this id, unless one is in progress. The method belongs to `spec`: the offer is
    /// void for any other entry.
    pub fn offer_sign_in(
        &self,
        spec: &Arc<AgentSpec>,
        tenant: &Tenant,
        id: Uuid,
        method: TerminalAuth,
    ) -> Result<(), Refused> {
        let until = Instant::now() + self.limits().ticket_unused;
        let mut state = self.state();
        let agent = state.agents.get_mut(&spec.name).filter(|agent| agent.configured);
        let agent = agent.ok_or(Refused::NoSuchAgent)?;
        if let Some(SignInPlace::Open) = agent.sign_ins.get(tenant) {
            return Err(Refused::SignInRuns { retry_after: RETRY });
        }
        if Arc::ptr_eq(&agent.spec, spec) {
            agent.sign_ins.insert(tenant.clone(), SignInPlace::Offered { id, method, until });
        }
        Ok(())
    }

    /// Whether a sign-in is offered under this id.
    pub fn offers_sign_in(&self, agent: &AgentName, tenant: &Tenant, id: Uuid) -> bool {
        let state = self.state();
        let place = state.agents.get(agent).and_then(|agent| agent.sign_ins.get(tenant));
        place.is_some_and(|place| place.offers(id))
    }

    /// Opens an offered sign-in, once. Returns `None` if no sign-in is offered under this id.
    pub async fn open_sign_in(
        &self,
        spec: &Arc<AgentSpec>,
        tenant: &Tenant,
        id: Uuid,
        size: (u16, u16),
    ) -> Result<Option<SignIn>, NoVisit> {
        if self.shutdown().draining() {
            return Err(Refused::Draining.into());
        }
        let taken = {
            let mut state = self.state();
            let agent = state.agents.get_mut(&spec.name).ok_or(Refused::NoSuchAgent)?;
            // An offer is valid only for its entry.
            if !spec.terminal_auth || !Arc::ptr_eq(&agent.spec, spec) {
                return Ok(None);
            }
            match agent.sign_ins.get_mut(tenant) {
                Some(place) if place.offers(id) => std::mem::replace(place, SignInPlace::Open),
                Some(SignInPlace::Open) => return Err(Refused::SignInRuns { retry_after: RETRY }.into()),
                Some(SignInPlace::Offered { .. }) | None => return Ok(None),
            }
        };
        let place = Held { pool: self.clone(), spec: Arc::clone(spec), tenant: tenant.clone() };
        let SignInPlace::Offered { method, .. } = taken else { return Ok(None) };
        let terminal = self.launcher().sign_in(spec, &method, size).await?;
        Ok(Some(SignIn { terminal, place }))
    }
}

impl SignIn {
    pub fn agent(&self) -> &AgentName {
        &self.place.spec.name
    }

    /// Records that the sign-in succeeded. Running processes do not have it and stop when they are idle.
    pub fn worked(&self) {
        self.place.pool.signed_in_elsewhere(&self.place.spec, &self.place.tenant);
    }
}
