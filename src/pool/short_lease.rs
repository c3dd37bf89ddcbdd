//! Short leases: calls that belong to no session.

use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::lease::{Disposition, Lease};
use super::scheduler::Pool;
use super::state::Priority;
use super::wait_queue::{AcquireError, PendingLease, RETRY_AFTER};
use crate::acp::InitializeResult;
use crate::acp::auth::AuthState;
use crate::agent::{AgentFailure, AgentSpec, Dialect};
use crate::types::{Principal, Tenant};

/// Why a short lease is not available.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ShortLeaseError {
    #[error(transparent)]
    Refused(#[from] AcquireError),
    #[error(transparent)]
    Agent(#[from] AgentFailure),
}

/// A process that no session holds. Dropping the value returns the process to the pool. During a call,
/// dropping it stops the process.
#[derive(Debug)]
pub struct ShortLease {
    /// `None` only during the release.
    lease: Option<Lease>,
    disposition: Disposition,
    pool: Pool,
}

impl Pool {
    /// Leases a process of the agent as soon as one is available. Waits only a short time if all processes are busy.
    pub async fn short_lease(
        &self,
        spec: &AgentSpec,
        principal: &Principal,
        manner: Priority,
    ) -> Result<ShortLease, ShortLeaseError> {
        let mut place = self.enqueue_with(
            &spec.name,
            principal,
            (spec.client_capabilities(), Vec::new()),
            (manner, None),
        )?;
        let lease = self.await_lease(&mut place, spec, &principal.tenant).await?;
        Ok(ShortLease { lease: Some(lease), disposition: Disposition::Untouched, pool: self.clone() })
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
        let unsupported = || AgentFailure::Unsupported { method: method.to_owned() };
        let known = self.agent_stats(&spec.name, &principal.tenant).and_then(|(_, initialized)| initialized);
        if known.is_some_and(|initialized| !supported(&initialized)) {
            return Err(unsupported().into());
        }
        let visit = self.short_lease(spec, principal, Priority::Reclaim).await?;
        if !supported(visit.initialized()) {
            return Err(unsupported().into());
        }
        Ok(visit)
    }

    async fn await_lease(
        &self,
        place: &mut PendingLease,
        spec: &AgentSpec,
        tenant: &Tenant,
    ) -> Result<Lease, ShortLeaseError> {
        let patience = self.limits().short_lease_timeout;
        let end = Instant::now() + spec.settings.start_timeout + patience;
        loop {
            let waited = tokio::time::timeout(patience, place.lease()).await;
            if let Ok(lease) = waited {
                return Ok(lease?);
            }
            // A starting process justifies a longer wait than a busy one.
            if !self.is_starting(&spec.name, tenant) || Instant::now() >= end {
                return Err(AcquireError::Busy { retry_after: RETRY_AFTER }.into());
            }
        }
    }
}

impl ShortLease {
    fn lease(&self) -> &Lease {
        self.lease.as_ref().expect("a short lease has its lease until the drop")
    }

    pub fn initialized(&self) -> &InitializeResult {
        &self.lease().process().initialized
    }

    pub fn dialect(&self) -> &dyn Dialect {
        self.lease().process().dialect()
    }

    /// Calls a method. Dropping the call stops the process, because its answer would remain unread.
    pub async fn call(
        &mut self,
        method: &str,
        params: &RawValue,
        limit: Duration,
    ) -> Result<Box<RawValue>, AgentFailure> {
        self.disposition = Disposition::Stop;
        let shutdown = self.pool.shutdown().clone();
        let process = self.lease.as_mut().expect("a short lease has its lease until the drop").process_mut();
        let outcome = tokio::select! {
            biased;
            () = shutdown.drain_started() => Err(AgentFailure::Draining),
            outcome = process.call(method, params, limit) => outcome,
        };
        match &outcome {
            Ok(_) | Err(AgentFailure::Rpc(_)) => self.disposition = Disposition::Reuse,
            Err(AgentFailure::AuthRequired { .. }) => {
                self.disposition = Disposition::Reuse;
                self.lease().record_auth(true);
            }
            Err(_) => {}
        }
        outcome
    }

    /// Sends a notification.
    pub fn notify(&mut self, method: &str, params: &RawValue) -> Result<(), AgentFailure> {
        self.disposition = Disposition::Reuse;
        let connection = &self.lease().process().connection;
        // The next use of the process detects its end.
        connection
            .notify(method, params)
            .map_err(|_| AgentFailure::Exited(crate::agent::AgentExit::default()))
    }

    /// Releases a process that any principal may reuse: the call left no trace of its caller.
    pub fn release_untouched(mut self) {
        if self.disposition == Disposition::Reuse {
            self.disposition = Disposition::Untouched;
        }
    }

    /// Records a successful sign-in with these params. This process and new ones are signed in. All other
    /// processes stop.
    pub fn signed_in(mut self, told: Box<RawValue>) {
        let lease = self.lease.as_mut().expect("a short lease has its lease until the drop");
        self.pool.auth_changed(lease, AuthState::Authenticated, Some(told));
        self.disposition = Disposition::Untouched;
    }

    /// Records a successful sign-out. No process that was signed in is reused.
    pub fn signed_out(mut self) {
        let lease = self.lease.as_mut().expect("a short lease has its lease until the drop");
        self.pool.auth_changed(lease, AuthState::Unauthenticated, None);
        self.disposition = Disposition::Stop;
    }
}

impl Drop for ShortLease {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.release(self.disposition);
        }
    }
}
