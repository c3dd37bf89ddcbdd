//! Short leases: calls that belong to no session.

use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::lease::{Disposition, Lease};
use super::scheduler::Pool;
use super::state::Priority;
use super::wait_queue::{AcquireError, RETRY_AFTER};
use crate::acp::auth::AuthState;
use crate::acp::{AcpVersion, InitializeResult};
use crate::agent::{AgentExit, AgentFailure, AgentSpec};
use crate::types::Principal;

/// Why a short lease is not available.
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
        let requirements = (spec.client_capabilities(), Vec::new());
        let mut pending = self.enqueue(&spec.name, principal, requirements, (priority, None))?;
        let patience = self.inner.limits.short_lease_timeout;
        let end = Instant::now() + spec.settings.start_timeout + patience;
        loop {
            if let Ok(lease) = tokio::time::timeout(patience, pending.lease()).await {
                let mut lease = lease?;
                lease.disposition = Disposition::Untouched;
                return Ok(ShortLease(lease));
            }
            // A starting process justifies a longer wait than a busy one.
            if !self.is_starting(&spec.name, &principal.tenant) || Instant::now() >= end {
                return Err(AcquireError::Busy {
                    retry_after: RETRY_AFTER,
                }
                .into());
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
            .agent_stats(&spec.name, &principal.tenant)
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

    /// Sends a notification.
    pub fn notify(&mut self, method: &str, params: &RawValue) -> Result<(), AgentFailure> {
        self.0.disposition = Disposition::Reuse;
        // The next use of the process detects its end.
        let sent = self.0.process().connection.notify(method, params);
        sent.map_err(|_| AgentFailure::Exited(AgentExit::default()))
    }

    /// Releases a process that any principal may reuse: the call left no trace of its caller.
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
