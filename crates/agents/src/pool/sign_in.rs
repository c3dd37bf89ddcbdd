//! Sign-ins in terminals. Each agent and tenant has one slot, which is offered and then opened once.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;
use uuid::Uuid;

use super::lease::Lease;
use super::scheduler::Pool;
use super::state::{PoolKey, SignInSlot};
use super::wait_queue::{AcquireError, ShortLeaseError};
use crate::agent::{AgentFailure, AgentSpec, FailedStart, Process, ProcessKey, Terminal};
use base::types::{AgentName, Tenant};
use children::PtySize;
use wire::acp::auth::{self, AuthState, TerminalAuth};

/// The lifetime of an unused offer, which a ticket opens.
const OFFER_TIMEOUT: Duration = Duration::from_mins(1);

/// A running sign-in. Dropping it ends it.
#[derive(Debug)]
pub struct SignIn {
    pub terminal: Terminal,
    slot: SlotGuard,
}

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
        let until = Instant::now() + OFFER_TIMEOUT;
        let mut state = self.state();
        let agent = state.configured(&PoolKey::new(&spec.name, tenant));
        let agent = agent.ok_or(AcquireError::NoSuchAgent)?;
        if let Some(SignInSlot::Open) = agent.sign_in.slot {
            return Err(AcquireError::SignInInProgress);
        }
        if Arc::ptr_eq(&agent.spec, spec) {
            agent.sign_in.slot = Some(SignInSlot::Offered { id, method, until });
        }
        Ok(())
    }

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
        size: PtySize,
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
                Some(SignInSlot::Open) => return Err(AcquireError::SignInInProgress.into()),
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
            // The new program of a changed entry must not receive the sign-in of the previous one.
            if Arc::ptr_eq(&agent.spec, spec) {
                agent.sign_in.update(AuthState::Authenticated, None);
            }
        }
        pool.advance(key);
    }
}

impl Pool {
    pub fn auth_state(&self, agent: &AgentName, tenant: &Tenant) -> AuthState {
        let state = self.state();
        state
            .pools
            .get(&PoolKey::new(agent, tenant))
            .map(|pool| pool.sign_in.state)
            .unwrap_or_default()
    }

    /// Starts a process and sends it the last successful sign-in. Returns it with the generation of its sign-in.
    pub(super) async fn connect_signed_in(
        &self,
        spec: &Arc<AgentSpec>,
        key: &ProcessKey,
    ) -> Result<(Process, u64), FailedStart> {
        let pool = PoolKey::new(&spec.name, &key.tenant);
        let (generation, params) = {
            let mut state = self.state();
            let agent = state.existing(&pool);
            if !Arc::ptr_eq(&agent.spec, spec) {
                return Err(AgentFailure::removed().into());
            }
            (
                agent.sign_in.generation,
                agent.sign_in.sign_in_params.clone(),
            )
        };
        let mut process = self.inner.source.connect(spec, key).await?;
        if let Some(params) = params
            && let Err(failure) = self.send_sign_in(&mut process, &params).await
        {
            // Sessions report that a sign-in is necessary, if it is. The next process does not repeat the failed one.
            tracing::warn!(%failure, "a new process rejected the stored sign-in; sign in again if necessary");
            let mut state = self.state();
            let sign_in = &mut state.existing(&pool).sign_in;
            if sign_in.generation == generation {
                sign_in.sign_in_params = None;
            }
            if matches!(failure, AgentFailure::Exited(_)) {
                return Err(process.failed(failure));
            }
        }
        Ok((process, generation))
    }

    /// Sends a sign-in, unless the agent reports that it does not need one.
    async fn send_sign_in(
        &self,
        process: &mut Process,
        params: &RawValue,
    ) -> Result<(), AgentFailure> {
        let method = process.version().login_method();
        let limit = self.inner.limits.call_timeout;
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
}

impl Lease {
    /// The state of an agent that works without a sign-in.
    fn state_without_sign_in(&self) -> AuthState {
        if self.process().initialized.has_auth_methods() {
            AuthState::Authenticated
        } else {
            AuthState::NotRequired
        }
    }

    pub fn record_auth(&self, required: bool) {
        self.update_sign_in(|sign_in, leased| {
            // A process that started before the last change does not know the current state.
            if leased.generation == sign_in.generation && (required || !sign_in.prompt_refused) {
                sign_in.state = if required {
                    AuthState::Unauthenticated
                } else {
                    self.state_without_sign_in()
                };
            }
        });
    }

    /// Records whether the agent answered a prompt, or refused it because of a missing sign-in although it had
    /// opened the session.
    pub fn record_prompt_auth(&self, accepted: bool) {
        self.update_sign_in(|sign_in, leased| {
            let current = leased.generation == sign_in.generation;
            if current && !accepted {
                sign_in.prompt_refused = true;
                sign_in.state = AuthState::Unauthenticated;
            } else if current && std::mem::take(&mut sign_in.prompt_refused) {
                sign_in.state = self.state_without_sign_in();
            }
        });
    }

    /// Signs in new processes with the key in the environment of the agent. This happens once, and never after a
    /// client signed in or out. Returns true if new processes are signed in and this process is not.
    pub fn sign_in_with_key(&self) -> bool {
        let Some(method) = self.process().sign_in_by_variable() else {
            return false;
        };
        let newer = self.update_sign_in(|sign_in, leased| {
            if leased.generation == sign_in.generation && !sign_in.key_tried {
                sign_in.update(AuthState::Unknown, Some(auth::authenticate(method, None)));
            }
            leased.generation < sign_in.generation && sign_in.sign_in_params.is_some()
        });
        // The pool stops the idle processes of earlier generations. Busy processes finish their work.
        self.pool.advance(&self.key);
        newer.unwrap_or_default()
    }

    /// Records a sign-in or sign-out through this process, which already has it.
    pub(super) fn record_sign_in(&self, state: AuthState, params: Option<Box<RawValue>>) {
        self.update_sign_in(|sign_in, leased| leased.generation = sign_in.update(state, params));
        self.pool.advance(&self.key);
    }
}
