//! Who is signed in to an agent: what was seen of it, and what each new process has to be told.
//!
//! Many agents keep a sign-in on disk, in their HOME; some keep it in their process alone. So the last way that
//! worked is told again to every new process. It stays in memory: after a restart of the gateway such an agent wants
//! its sign-in again.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::lease::Lease;
use super::wait_queue::Pool;
use crate::acp::ClientCapabilities;
use crate::acp::auth::{self, AuthState};
use crate::agent::{AgentFailure, AgentSpec, FailedStart, Process};
use crate::types::{AgentName, Tenant};

/// What is known of one tenant's sign-in.
#[derive(Clone, Default)]
pub(super) struct SignInState {
    /// Processes of an earlier one do not know of the last sign-in or sign-out.
    pub(super) generation: u64,
    pub(super) state: AuthState,
    /// Params of the sign-in that worked last, to be told to new processes.
    pub(super) sign_in_params: Option<Box<RawValue>>,
    /// The agent refused a prompt for lack of a sign-in. That it opens sessions proves nothing then.
    prompt_refused: bool,
    /// A sign-in with the key of the environment is not tried: it was, or somebody signed in or out.
    key_tried: bool,
}

impl SignInState {
    /// The entry is another one: nothing of this holds for it.
    pub(super) fn reset(&mut self) {
        self.update(AuthState::default(), None);
        self.key_tried = false;
    }

    /// Somebody signed in or out: from now on only new processes count.
    pub(super) fn update(&mut self, state: AuthState, told: Option<Box<RawValue>>) -> u64 {
        (self.state, self.sign_in_params) = (state, told);
        (self.prompt_refused, self.key_tried) = (false, true);
        self.generation += 1;
        self.generation
    }
}

/// The state of an agent that did without a sign-in.
fn auth_state_without_sign_in(lease: &Lease) -> AuthState {
    if lease.process().initialized.has_auth_methods() {
        AuthState::Authenticated
    } else {
        AuthState::NotRequired
    }
}

impl Pool {
    /// What is known of a tenant's sign-in to the agent.
    pub fn auth_state(&self, agent: &AgentName, tenant: &Tenant) -> AuthState {
        self.sign_in_state(agent, tenant).state
    }

    pub(super) fn sign_in_state(&self, agent: &AgentName, tenant: &Tenant) -> SignInState {
        let state = self.state();
        let agent = state.agents.get(agent);
        agent.and_then(|agent| agent.signed_in.get(tenant)).cloned().unwrap_or_default()
    }

    /// The same for a process of this entry, and whether the entry still is the agent's.
    pub(super) fn sign_in_state_of_entry(&self, spec: &Arc<AgentSpec>, tenant: &Tenant) -> (SignInState, bool) {
        let state = self.state();
        let agent = state.agents.get(&spec.name).filter(|agent| Arc::ptr_eq(&agent.spec, spec));
        let signed_in = agent.and_then(|agent| agent.signed_in.get(tenant)).cloned().unwrap_or_default();
        (signed_in, agent.is_some())
    }

    /// Starts a process and tells it of the sign-in that the others know of.
    pub(super) async fn launch_signed_in(
        &self,
        spec: &Arc<AgentSpec>,
        offer: ClientCapabilities,
        (tenant, signed_in): (&Tenant, SignInState),
    ) -> Result<Process, FailedStart> {
        let mut process = self.launcher().launch(spec, offer).await?;
        if let Some(params) = signed_in.sign_in_params {
            let method = process.initialized.acp_version.login_method();
            if let Err(failure) = self.send_sign_in(&mut process, method, &params).await {
                // Sessions are told to sign in if the agent still wants it; the next process need not wait for that.
                tracing::warn!(agent = %spec.name, %failure, "a new process did not take the sign-in");
                self.discard_sign_in(&spec.name, tenant, signed_in.generation);
                if matches!(failure, AgentFailure::Exited(_)) {
                    return Err(process.failed(failure));
                }
            }
        }
        Ok(process)
    }

    /// Where the agent can say that it needs no sign-in, it is not told of one.
    async fn send_sign_in(&self, process: &mut Process, method: &str, params: &RawValue) -> Result<(), AgentFailure> {
        let limit = self.limits().call;
        if process.initialized.capabilities.auth.status {
            let empty = RawValue::from_string("{}".to_owned()).expect("an object");
            let status = process.call(auth::STATUS, &empty, limit).await;
            // Whoever cannot say is told.
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

    /// A holder learned whether the agent wants a sign-in.
    pub(super) fn record_auth(&self, lease: &Lease, required: bool) {
        let mut state = self.state();
        let Some(agent) = state.agents.get_mut(&lease.agent) else { return };
        // What a process of a former entry wants says nothing of this one.
        if !Arc::ptr_eq(&agent.spec, &lease.process().spec) {
            return;
        }
        let tenant = &lease.principal.tenant;
        // One that was started before the last change does not know better.
        if lease.generation == agent.generation(tenant) {
            let signed_in = agent.signed_in.entry(tenant.clone()).or_default();
            if required || !signed_in.prompt_refused {
                signed_in.state = if required { AuthState::Unauthenticated } else { auth_state_without_sign_in(lease) };
            }
        }
    }

    /// A holder learned from a prompt whether the agent wants a sign-in.
    pub(super) fn record_prompt_auth(&self, lease: &Lease, accepted: bool) {
        let mut state = self.state();
        let agent = state.agents.get_mut(&lease.agent);
        let Some(agent) = agent.filter(|agent| Arc::ptr_eq(&agent.spec, &lease.process().spec)) else {
            return;
        };
        let tenant = &lease.principal.tenant;
        if lease.generation != agent.generation(tenant) {
            return;
        }
        let signed_in = agent.signed_in.entry(tenant.clone()).or_default();
        if accepted && std::mem::take(&mut signed_in.prompt_refused) {
            signed_in.state = auth_state_without_sign_in(lease);
        } else if !accepted {
            (signed_in.prompt_refused, signed_in.state) = (true, AuthState::Unauthenticated);
        }
    }

    /// Has new processes sign in with the key that the agent has in its environment: once, and not after anybody
    /// signed in or out. Returns true if a new process is signed in and that of the lease is not.
    pub(super) fn sign_in_with_key(&self, lease: &Lease) -> bool {
        let Some(method) = lease.process().sign_in_by_variable() else { return false };
        {
            let mut state = self.state();
            let agent = state.agents.get_mut(&lease.agent);
            let Some(agent) = agent.filter(|agent| Arc::ptr_eq(&agent.spec, &lease.process().spec)) else {
                return false;
            };
            let signed_in = agent.signed_in.entry(lease.principal.tenant.clone()).or_default();
            if lease.generation < signed_in.generation {
                return signed_in.sign_in_params.is_some();
            }
            if signed_in.key_tried {
                return false;
            }
            signed_in.update(AuthState::Unknown, Some(auth::authenticate(method, None)));
        }
        self.recall_and_advance(&lease.agent);
        true
    }

    /// Somebody signed in or out by the process of this lease, which knows of it.
    pub(super) fn auth_changed(&self, lease: &mut Lease, state: AuthState, told: Option<Box<RawValue>>) {
        let (agent, tenant) = (lease.agent.clone(), lease.principal.tenant.clone());
        let Some(generation) = self.update_sign_in(&lease.process().spec, &tenant, state, told) else { return };
        lease.generation = generation;
        if let Some(agent) = self.state().agents.get_mut(&agent)
            && let Some(leased) = agent.leases.get_mut(&lease.id)
        {
            leased.generation = lease.generation;
        }
        self.recall_and_advance(&agent);
    }

    /// Somebody signed in beside the pool: every process that runs knows nothing of it.
    pub(super) fn signed_in_by_terminal(&self, spec: &Arc<AgentSpec>, tenant: &Tenant) {
        if self.update_sign_in(spec, tenant, AuthState::Authenticated, None).is_some() {
            self.recall_and_advance(&spec.name);
        }
    }

    /// `None`: the entry has changed since. Its program may be another, and what was told to the former one, a key
    /// perhaps, is no business of it.
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

    /// Idle processes of before the last change end; busy ones go on, and are not used again.
    fn recall_and_advance(&self, agent: &AgentName) {
        self.state().agents.get_mut(agent).expect("agents stay in the pool").recall_outdated();
        self.advance(agent);
    }
}
