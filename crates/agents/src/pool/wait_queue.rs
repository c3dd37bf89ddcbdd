//! The wait queue: requests for a process, in the order of their arrival.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::lease::{Disposition, Lease};
use super::scheduler::Pool;
use super::state::{Grant, PoolKey, Priority, RequestedSession, Waiter};
use crate::agent::{AgentExit, AgentFailure, AgentSpec, IdleFolder, ProcessKey};
use base::types::{AgentName, LimitExceeded, Principal, PrincipalLimit};
use wire::acp::auth::AuthState;
use wire::acp::{AcpVersion, ClientCapabilities, InitializeResult};

/// The suggested delay before the next attempt to enqueue.
pub const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Why the pool cannot provide a process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AcquireError {
    #[error("no agent of that name is configured")]
    NoSuchAgent,
    #[error("the wait queue of this agent is full (limit {max}); retry later")]
    QueueFull { max: usize },
    #[error("all processes of this agent are busy; retry later")]
    Busy,
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    #[error("the agent failed to start too often; retry after the back-off")]
    BreakerOpen { retry_after: Duration },
    #[error("another sign-in to this agent is in progress")]
    SignInInProgress,
    #[error("the gateway is shutting down")]
    Draining,
}

/// A place in the wait queue. Dropping it removes the request from the queue.
#[derive(Debug)]
pub struct PendingLease {
    receiver: oneshot::Receiver<Result<Grant, AgentFailure>>,
    key: PoolKey,
    pool: Pool,
}

impl PendingLease {
    /// Waits for the lease. Cancel-safe.
    pub async fn lease(&mut self) -> Result<Lease, AgentFailure> {
        match (&mut self.receiver).await {
            Ok(outcome) => Ok(self.lease_of(outcome?)),
            Err(_) => Err(AgentFailure::Draining),
        }
    }

    fn lease_of(&self, grant: Grant) -> Lease {
        Lease::new(grant, self.key.clone(), self.pool.clone())
    }
}

impl Drop for PendingLease {
    fn drop(&mut self) {
        self.receiver.close();
        if let Ok(Ok(grant)) = self.receiver.try_recv() {
            // The pool granted the process at the same time. The drop of the lease returns it.
            drop(self.lease_of(grant));
        }
    }
}

impl Pool {
    /// Enqueues a request for a process with access to `folders`. `requested` is the session that the
    /// agent must restore.
    pub fn enqueue(
        &self,
        agent: &AgentName,
        principal: &Principal,
        offer: ClientCapabilities,
        folders: Vec<PathBuf>,
        priority: Priority,
        requested: Option<RequestedSession>,
    ) -> Result<PendingLease, AcquireError> {
        if self.inner.shutdown.is_draining() {
            return Err(AcquireError::Draining);
        }
        let key = PoolKey::new(agent, &principal.user.tenant());
        let (reply, receiver) = oneshot::channel();
        {
            let mut state = self.state();
            let pool = state.configured(&key).ok_or(AcquireError::NoSuchAgent)?;
            if let Some(retry_after) = pool
                .learned
                .crashes
                .breaker_open_for(Instant::now(), &self.inner.limits)
            {
                return Err(AcquireError::BreakerOpen { retry_after });
            }
            pool.last_requested_at = Instant::now();
            pool.queue.retain(|waiter| !waiter.reply.is_closed());
            let max = self.inner.limits.max_queue_places;
            if pool.queue.len() >= max {
                return Err(AcquireError::QueueFull { max });
            }
            let limits = self.principal_limits().effective(principal);
            let queued = pool.queue.iter();
            let queued = queued
                .filter(|waiter| waiter.principal.user == principal.user)
                .count();
            if queued >= limits.max(PrincipalLimit::QueuedPrompts) {
                return Err(limits
                    .exceeded(PrincipalLimit::QueuedPrompts, RETRY_AFTER)
                    .into());
            }
            let restore = requested.as_ref().filter(|requested| requested.has_history);
            let restore = restore.map(|requested| Arc::clone(&requested.session));
            let channel = requested
                .as_ref()
                .and_then(|requested| requested.earlier.clone());
            let tenant = principal.user.tenant();
            let key = ProcessKey::new(&pool.spec, tenant, offer, folders, restore);
            pool.queue.push_back(Waiter {
                principal: principal.clone(),
                key: ProcessKey { channel, ..key },
                priority,
                requested,
                reply,
            });
        }
        self.advance(&key);
        Ok(PendingLease {
            receiver,
            key,
            pool: self.clone(),
        })
    }
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum ShortLeaseError {
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    #[error(transparent)]
    Agent(#[from] AgentFailure),
}

/// A process that no session holds. Dropping the value returns the process to the pool. During a call,
/// dropping it stops the process.
#[derive(Debug)]
pub struct ShortLease(Lease);

impl Pool {
    /// Leases a process of the agent as soon as one is available. Waits only a short time if all processes are busy.
    pub async fn short_lease(
        &self,
        spec: &AgentSpec,
        principal: &Principal,
        priority: Priority,
    ) -> Result<ShortLease, ShortLeaseError> {
        let folders = Vec::new();
        let offer = spec.client_capabilities();
        let mut pending = self.enqueue(&spec.name, principal, offer, folders, priority, None)?;
        let patience = self.inner.limits.short_lease_timeout;
        let end = Instant::now() + spec.settings.start_timeout + patience;
        loop {
            if let Ok(lease) = tokio::time::timeout(patience, pending.lease()).await {
                let mut lease = lease?;
                lease.disposition = Disposition::Untouched;
                return Ok(ShortLease(lease));
            }
            // A starting process justifies a longer wait than a busy one.
            if !self.is_starting(&spec.name, &principal.user.tenant()) || Instant::now() >= end {
                return Err(AcquireError::Busy.into());
            }
        }
    }

    /// Leases a process for a method that not every agent supports. Fails at once, without a process, if the
    /// last `initialize` of the agent did not offer the method.
    pub async fn short_lease_for(
        &self,
        method: &str,
        spec: &AgentSpec,
        principal: &Principal,
        supported: impl Fn(&InitializeResult) -> bool,
    ) -> Result<ShortLease, ShortLeaseError> {
        let unsupported = || AgentFailure::Unsupported {
            method: method.to_owned(),
        };
        let known = self
            .agent_stats(&spec.name, &principal.user.tenant())
            .and_then(|(_, initialized)| initialized);
        if known.is_some_and(|initialized| !supported(&initialized)) {
            return Err(unsupported().into());
        }
        let lease = self.short_lease(spec, principal, Priority::Reclaim).await?;
        if supported(lease.initialized()) {
            Ok(lease)
        } else {
            Err(unsupported().into())
        }
    }
}

impl ShortLease {
    pub fn initialized(&self) -> &InitializeResult {
        &self.0.process().initialized
    }

    pub fn version(&self) -> AcpVersion {
        self.0.process().version()
    }

    /// Calls a method. Dropping the call stops the process, because its answer would remain unread.
    pub async fn call(
        &mut self,
        method: &str,
        params: &RawValue,
        limit: Duration,
    ) -> Result<Box<RawValue>, AgentFailure> {
        self.0.disposition = Disposition::Stop;
        let shutdown = self.0.pool.inner.shutdown.clone();
        let outcome = tokio::select! {
            biased;
            () = shutdown.drain_started() => Err(AgentFailure::Draining),
            outcome = self.0.process_mut().call(method, params, limit) => outcome,
        };
        if matches!(outcome, Err(AgentFailure::AuthRequired { .. })) {
            self.0.record_auth(true);
        }
        if matches!(
            outcome,
            Ok(_) | Err(AgentFailure::Rpc(_) | AgentFailure::AuthRequired { .. })
        ) {
            self.0.disposition = Disposition::Reuse;
        }
        outcome
    }

    pub fn notify(&mut self, method: &str, params: &RawValue) -> Result<(), AgentFailure> {
        self.0.disposition = Disposition::Reuse;
        // The next use of the process detects its end.
        let sent = self.0.process().connection.notify(method, params);
        sent.map_err(|_| AgentFailure::Exited(AgentExit::default()))
    }

    /// Releases a process that every user may reuse: the call left no trace of its caller.
    pub fn release_untouched(mut self) {
        if self.0.disposition == Disposition::Reuse {
            self.0.disposition = Disposition::Untouched;
        }
    }

    /// Records a successful sign-in with these params. This process and new ones are signed in. All other
    /// processes stop.
    pub fn signed_in(self, params: Box<RawValue>) {
        self.0
            .record_sign_in(AuthState::Authenticated, Some(params));
        self.0.release(Disposition::Untouched);
    }

    /// Records a successful sign-out. No process that was signed in is reused.
    pub fn signed_out(self) {
        self.0.record_sign_in(AuthState::Unauthenticated, None);
        self.0.release(Disposition::Stop);
    }
}

impl Pool {
    /// Assigns an idle process to a new session of the user, with its folder. `None` if there is no such process. The
    /// session renames the folder to `name`, and then requests a process with it. No other request gets the process.
    pub fn claim_folder(
        &self,
        spec: &AgentSpec,
        principal: &Principal,
        offer: ClientCapabilities,
        name: &str,
    ) -> Option<IdleFolder> {
        let mut state = self.state();
        let agent = state.configured(&PoolKey::new(&spec.name, &principal.user.tenant()))?;
        agent
            .idle_process_with_folder(&principal.user, offer)?
            .assign_folder(name)
    }
}
