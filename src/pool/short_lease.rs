//! A process for a moment: calls that belong to no session.

use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::lease::{Disposition, Lease};
use super::wait_queue::{PendingLease, Pool, RETRY_AFTER, AcquireError};
use crate::acp::InitializeResult;
use crate::acp::auth::AuthState;
use crate::agent::{AgentFailure, AgentSpec};
use crate::types::Principal;

/// What a visit may cost the sessions of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// It takes only what no session holds.
    NoReclaim,
    /// The session that has been idle the longest gives its process up, as for another session.
    Reclaim,
}

/// Why there is no visit.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ShortLeaseError {
    #[error(transparent)]
    Refused(#[from] AcquireError),
    #[error(transparent)]
    Agent(#[from] AgentFailure),
}

/// A process that no session holds. It goes back to the pool when this is dropped; in the middle of a call it ends.
#[derive(Debug)]
pub struct ShortLease {
    /// `None` only while it is given back.
    lease: Option<Lease>,
    disposition: Disposition,
    pool: Pool,
}

impl Pool {
    /// Takes a process of the agent as soon as one is free. With all of them busy it waits for a little while only.
    pub async fn short_lease(
        &self,
        spec: &AgentSpec,
        principal: &Principal,
        manner: Priority,
    ) -> Result<ShortLease, ShortLeaseError> {
        let mut place = self.enqueue_with(&spec.name, principal, spec.client_capabilities(), (manner, None))?;
        let lease = self.await_lease(&mut place, spec).await?;
        Ok(ShortLease { lease: Some(lease), disposition: Disposition::Untouched, pool: self.clone() })
    }

    /// The same for a method that not every agent supports. Fails at once, without a process, if the last
    /// `initialize` of the agent did not offer the method.
    pub async fn short_lease_for(
        &self,
        method: &str,
        spec: &AgentSpec,
        principal: &Principal,
        supported: impl Fn(&InitializeResult) -> bool,
    ) -> Result<ShortLease, ShortLeaseError> {
        let unsupported = || AgentFailure::Unsupported { method: method.to_owned() };
        let known = self.agent_stats(&spec.name).and_then(|(_, initialized)| initialized);
        if known.is_some_and(|initialized| !supported(&initialized)) {
            return Err(unsupported().into());
        }
        let visit = self.short_lease(spec, principal, Priority::Reclaim).await?;
        if !supported(visit.initialized()) {
            return Err(unsupported().into());
        }
        Ok(visit)
    }

    async fn await_lease(&self, place: &mut PendingLease, spec: &AgentSpec) -> Result<Lease, ShortLeaseError> {
        let patience = self.limits().visit_wait;
        let end = Instant::now() + spec.limits.start_timeout + patience;
        loop {
            let waited = tokio::time::timeout(patience, place.lease()).await;
            if let Ok(lease) = waited {
                return Ok(lease?);
            }
            // One that starts is worth more patience than one that others use.
            if !self.is_starting(&spec.name) || Instant::now() >= end {
                return Err(AcquireError::Busy { retry_after: RETRY_AFTER }.into());
            }
        }
    }
}

impl ShortLease {
    fn lease(&self) -> &Lease {
        self.lease.as_ref().expect("a visit has its lease until it is dropped")
    }

    pub fn initialized(&self) -> &InitializeResult {
        &self.lease().process().initialized
    }

    /// Calls a method. A process whose answer nobody waited for is not used any more.
    pub async fn call(
        &mut self,
        method: &str,
        params: &RawValue,
        limit: Duration,
    ) -> Result<Box<RawValue>, AgentFailure> {
        self.disposition = Disposition::Stop;
        let shutdown = self.pool.shutdown().clone();
        let process = self.lease.as_mut().expect("a visit has its lease until it is dropped").process_mut();
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
        // Its end shows where it is looked at next.
        connection.notify(method, params).map_err(|_| AgentFailure::Exited(crate::agent::AgentExit::default()))
    }

    /// What was called left nothing of its caller behind: the process is as good as it was for everybody.
    pub fn release_untouched(mut self) {
        if self.disposition == Disposition::Reuse {
            self.disposition = Disposition::Untouched;
        }
    }

    /// The sign-in with these params worked: this process and new ones are signed in, others go.
    pub fn signed_in(mut self, told: Box<RawValue>) {
        let lease = self.lease.as_mut().expect("a visit has its lease until it is dropped");
        self.pool.auth_changed(lease, AuthState::Authenticated, Some(told));
        self.disposition = Disposition::Untouched;
    }

    /// The sign-out worked: no process that was signed in goes on.
    pub fn signed_out(mut self) {
        let lease = self.lease.as_mut().expect("a visit has its lease until it is dropped");
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
