//! The sign-in state of each agent and tenant, and the sign-in of new processes.
//!
//! Many agents store a sign-in on disk, in their HOME. Some store it only in their process. Therefore the
//! pool sends the params of the last successful sign-in to every new process. The params exist only in
//! memory: after a restart of the gateway such an agent needs a new sign-in.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::lease::Lease;
use super::pool_key::PoolKey;
use super::scheduler::Pool;
use super::sign_in_state::SignInState;
use crate::acp::auth::{self, AuthState};
use crate::agent::{AgentFailure, AgentSpec, FailedStart, Process, ProcessKey};
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
        let state = self.state();
        state.pools.get(&PoolKey::new(agent, tenant)).map(|pool| pool.sign_in.state).unwrap_or_default()
    }

    /// The sign-in state for a process of this entry, and whether the agent still has this entry.
    pub(super) fn sign_in_state_of_entry(
        &self,
        spec: &Arc<AgentSpec>,
        tenant: &Tenant,
    ) -> (SignInState, bool) {
        let state = self.state();
        let agent = state.pools.get(&PoolKey::new(&spec.name, tenant));
        let agent = agent.filter(|agent| Arc::ptr_eq(&agent.spec, spec));
        (agent.map(|agent| agent.sign_in.clone()).unwrap_or_default(), agent.is_some())
    }

    /// Starts a process and sends it the last successful sign-in.
    pub(super) async fn connect_signed_in(
        &self,
        spec: &Arc<AgentSpec>,
        key: &ProcessKey,
        signed_in: SignInState,
    ) -> Result<Process, FailedStart> {
        let mut process = self.source().connect(spec, key).await?;
        if let Some(params) = signed_in.sign_in_params {
            let method = process.dialect().login_method();
            if let Err(failure) = self.send_sign_in(&mut process, method, &params).await {
                // Sessions report that a sign-in is necessary, if it is. The next process does not repeat the failed
                // one.
                tracing::warn!(agent = %spec.name, %failure, "a new process rejected the stored sign-in; sign in again if necessary");
                self.discard_sign_in(&PoolKey::new(&spec.name, &key.tenant), signed_in.generation);
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

    fn discard_sign_in(&self, pool: &PoolKey, generation: u64) {
        let mut state = self.state();
        let signed_in = &mut state.existing(pool).sign_in;
        if signed_in.generation == generation {
            signed_in.sign_in_params = None;
        }
    }

    /// Records whether the agent requires a sign-in, as the holder of a lease reports it.
    pub(super) fn record_auth(&self, lease: &Lease, required: bool) {
        let mut state = self.state();
        let agent = state.existing(&lease.grant.pool);
        // A process of a former entry does not describe the current entry.
        if !Arc::ptr_eq(&agent.spec, &lease.process().spec) {
            return;
        }
        let signed_in = &mut agent.sign_in;
        // A process that started before the last change does not know the current state.
        if lease.grant.generation == signed_in.generation && (required || !signed_in.prompt_refused) {
            signed_in.state =
                if required { AuthState::Unauthenticated } else { auth_state_without_sign_in(lease) };
        }
    }

    /// Records whether the agent accepts prompts without a sign-in, as the holder of a lease reports it.
    pub(super) fn record_prompt_auth(&self, lease: &Lease, accepted: bool) {
        let mut state = self.state();
        let agent = state.existing(&lease.grant.pool);
        let signed_in = &mut agent.sign_in;
        if !Arc::ptr_eq(&agent.spec, &lease.process().spec) || lease.grant.generation != signed_in.generation
        {
            return;
        }
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
            let agent = state.existing(&lease.grant.pool);
            if !Arc::ptr_eq(&agent.spec, &lease.process().spec) {
                return false;
            }
            let signed_in = &mut agent.sign_in;
            if lease.grant.generation < signed_in.generation {
                return signed_in.sign_in_params.is_some();
            }
            if signed_in.key_tried {
                return false;
            }
            signed_in.update(AuthState::Unknown, Some(auth::authenticate(method, None)));
        }
        self.recall_and_advance(&lease.grant.pool);
        true
    }

    /// Records a sign-in or sign-out through the process of this lease. This process already has it.
    pub(super) fn auth_changed(&self, lease: &mut Lease, state: AuthState, told: Option<Box<RawValue>>) {
        let pool = lease.grant.pool.clone();
        let Some(generation) = self.update_sign_in(&pool, &lease.process().spec, state, told) else { return };
        lease.grant.generation = generation;
        if let Some(leased) = self.state().existing(&pool).leases.get_mut(&lease.grant.id) {
            leased.generation = generation;
        }
        self.recall_and_advance(&pool);
    }

    /// Records a sign-in outside of the pool. No running process has it.
    pub(super) fn signed_in_by_terminal(&self, spec: &Arc<AgentSpec>, tenant: &Tenant) {
        let pool = PoolKey::new(&spec.name, tenant);
        if self.update_sign_in(&pool, spec, AuthState::Authenticated, None).is_some() {
            self.recall_and_advance(&pool);
        }
    }

    /// Returns `None` if the entry has changed. The new program must not receive the secrets of the former one.
    fn update_sign_in(
        &self,
        pool: &PoolKey,
        spec: &Arc<AgentSpec>,
        auth: AuthState,
        params: Option<Box<RawValue>>,
    ) -> Option<u64> {
        let mut state = self.state();
        let agent = state.existing(pool);
        Arc::ptr_eq(&agent.spec, spec).then(|| agent.sign_in.update(auth, params))
    }

    /// Stops the idle processes of earlier generations. Busy processes finish their work and are not reused.
    fn recall_and_advance(&self, pool: &PoolKey) {
        self.state().existing(pool).recall_outdated();
        self.advance(pool);
    }
}
