//! The sign-in state of each agent and tenant, and the sign-in of new processes.
//!
//! Many agents store a sign-in on disk, in their HOME. Some store it only in their process. Therefore the
//! pool sends the params of the last successful sign-in to every new process. The params exist only in
//! memory: after a restart of the gateway such an agent needs a new sign-in.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::lease::Lease;
use super::scheduler::Pool;
use super::sign_in_state::SignInState;
use crate::acp::ClientCapabilities;
use crate::acp::auth::{self, AuthState};
use crate::agent::{AgentFailure, AgentSpec, FailedStart, Process};
use crate::types::{AgentName, Tenant};

/// The state of an agent that works without a sign-in.
fn auth_state_without_sign_in(lease: &Lease) -> AuthState {
    if lease.process().initialized.has_auth_methods() {
        AuthState::Authenticated
    } else {
        AuthState::NotRequired
    }
}

impl Pool {
    /// The state of a tenant's sign-in to the agent.
    pub fn auth_state(&self, agent: &AgentName, tenant: &Tenant) -> AuthState {
        self.sign_in_state(agent, tenant).state
    }

    pub(super) fn sign_in_state(&self, agent: &AgentName, tenant: &Tenant) -> SignInState {
        let state = self.state();
        let agent = state.agents.get(agent);
        agent.and_then(|agent| agent.signed_in.get(tenant)).cloned().unwrap_or_default()
    }

    /// The sign-in state for a process of this entry, and whether the agent still has this entry.
    pub(super) fn sign_in_state_of_entry(
        &self,
        spec: &Arc<AgentSpec>,
        tenant: &Tenant,
    ) -> (SignInState, bool) {
        let state = self.state();
        let agent = state.agents.get(&spec.name).filter(|agent| Arc::ptr_eq(&agent.spec, spec));
        let signed_in = agent.and_then(|agent| agent.signed_in.get(tenant)).cloned().unwrap_or_default();
        (signed_in, agent.is_some())
    }

    /// Starts a process and sends it the last successful sign-in.
    pub(super) async fn launch_signed_in(
        &self,
        spec: &Arc<AgentSpec>,
        offer: ClientCapabilities,
        (tenant, signed_in): (&Tenant, SignInState),
    ) -> Result<Process, FailedStart> {
        let mut process = self.launcher().launch(spec, offer).await?;
        if let Some(params) = signed_in.sign_in_params {
            let method = process.dialect().login_method();
            if let Err(failure) = self.send_sign_in(&mut process, method, &params).await {
                // Sessions report that a sign-in is necessary, if it is. The next process does not repeat the failed
                // one.
                tracing::warn!(agent = %spec.name, %failure, "a new process rejected the stored sign-in; sign in again if necessary");
                self.discard_sign_in(&spec.name, tenant, signed_in.generation);
                if matches!(failure, AgentFailure::Exited(_)) {
                    return Err(process.failed(failure));
                }
            }
        }
        Ok(process)
    }

    /// Sends a sign-in, unless the agent reports that it does not need one.
    async fn send_sign_in(
        &self,
        process: &mut Process,
        method: &str,
        params: &RawValue,
    ) -> Result<(), AgentFailure> {
        let limit = self.limits().call_timeout;
        if process.initialized.capabilities.auth.status {
            let empty = RawValue::from_string("{}".to_owned()).expect("an object");
            let status = process.call(auth::STATUS, &empty, limit).await;
            // An agent without a status gets the sign-in.
            let state = status.as_deref().ok().and_then(auth::auth_state);
            if state.is_some_and(|state| state != AuthState::Unauthenticated.as_str()) {
                return Ok(());
            }
        }
        process.call(method, params, limit).await.map(drop)
    }

    fn discard_sign_in(&self, agent: &AgentName, tenant: &Tenant, generation: u64) {
        if let Some(agent) = self.state().agents.get_mut(agent)
            && let Some(signed_in) = agent.signed_in.get_mut(tenant)
            && signed_in.generation == generation
        {
            signed_in.sign_in_params = None;
        }
    }

    /// Records whether the agent requires a sign-in, as the holder of a lease reports it.
    pub(super) fn record_auth(&self, lease: &Lease, required: bool) {
        let mut state = self.state();
        let Some(agent) = state.agents.get_mut(&lease.grant.agent) else { return };
        // A process of a former entry does not describe the current entry.
        if !Arc::ptr_eq(&agent.spec, &lease.process().spec) {
            return;
        }
        let tenant = &lease.grant.principal.tenant;
        // A process that started before the last change does not know the current state.
        if lease.grant.generation == agent.generation(tenant) {
            let signed_in = agent.signed_in.entry(tenant.clone()).or_default();
            if required || !signed_in.prompt_refused {
                signed_in.state =
                    if required { AuthState::Unauthenticated } else { auth_state_without_sign_in(lease) };
            }
        }
    }

    /// Records whether the agent accepts prompts without a sign-in, as the holder of a lease reports it.
    pub(super) fn record_prompt_auth(&self, lease: &Lease, accepted: bool) {
        let mut state = self.state();
        let agent = state.agents.get_mut(&lease.grant.agent);
        let Some(agent) = agent.filter(|agent| Arc::ptr_eq(&agent.spec, &lease.process().spec)) else {
            return;
        };
        let tenant = &lease.grant.principal.tenant;
        if lease.grant.generation != agent.generation(tenant) {
            return;
        }
        let signed_in = agent.signed_in.entry(tenant.clone()).or_default();
        if accepted && std::mem::take(&mut signed_in.prompt_refused) {
            signed_in.state = auth_state_without_sign_in(lease);
        } else if !accepted {
            (signed_in.prompt_refused, signed_in.state) = (true, AuthState::Unauthenticated);
        }
    }

    /// Signs in new processes with the key in the environment of the agent. This happens once, and never after a
    /// client signed in or out. Returns true if new processes are signed in and the process of the lease is not.
    pub(super) fn sign_in_with_key(&self, lease: &Lease) -> bool {
        let Some(method) = lease.process().sign_in_by_variable() else { return false };
        {
            let mut state = self.state();
            let agent = state.agents.get_mut(&lease.grant.agent);
            let Some(agent) = agent.filter(|agent| Arc::ptr_eq(&agent.spec, &lease.process().spec)) else {
                return false;
            };
            let signed_in = agent.signed_in.entry(lease.grant.principal.tenant.clone()).or_default();
            if lease.grant.generation < signed_in.generation {
                return signed_in.sign_in_params.is_some();
            }
            if signed_in.key_tried {
                return false;
            }
            signed_in.update(AuthState::Unknown, Some(auth::authenticate(method, None)));
        }
        self.recall_and_advance(&lease.grant.agent);
        true
    }

    /// Records a sign-in or sign-out through the process of this lease. This process already has it.
    pub(super) fn auth_changed(&self, lease: &mut Lease, state: AuthState, told: Option<Box<RawValue>>) {
        let (agent, tenant) = (lease.grant.agent.clone(), lease.grant.principal.tenant.clone());
        let Some(generation) = self.update_sign_in(&lease.process().spec, &tenant, state, told) else {
            return;
        };
        lease.grant.generation = generation;
        if let Some(agent) = self.state().agents.get_mut(&agent)
            && let Some(leased) = agent.leases.get_mut(&lease.grant.id)
        {
            leased.generation = generation;
        }
        self.recall_and_advance(&agent);
    }

    /// Records a sign-in outside of the pool. No running process has it.
    pub(super) fn signed_in_by_terminal(&self, spec: &Arc<AgentSpec>, tenant: &Tenant) {
        if self.update_sign_in(spec, tenant, AuthState::Authenticated, None).is_some() {
            self.recall_and_advance(&spec.name);
        }
    }

    /// Returns `None` if the entry has changed. The new program must not receive the secrets of the former one.
    fn update_sign_in(
        &self,
        spec: &Arc<AgentSpec>,
        tenant: &Tenant,
        state: AuthState,
        told: Option<Box<RawValue>>,
    ) -> Option<u64> {
        let mut pool = self.state();
        let agent = pool.agents.get_mut(&spec.name).expect("agents stay in the pool");
        Arc::ptr_eq(&agent.spec, spec)
            .then(|| agent.signed_in.entry(tenant.clone()).or_default().update(state, told))
    }

    /// Stops the idle processes of earlier generations. Busy processes finish their work and are not reused.
    fn recall_and_advance(&self, agent: &AgentName) {
        self.state().agents.get_mut(agent).expect("agents stay in the pool").recall_outdated();
        self.advance(agent);
    }
}
