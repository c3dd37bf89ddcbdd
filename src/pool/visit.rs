//! A process for a moment: calls that belong to no session.

use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::lease::{Fate, Lease};
use super::line::{Place, Pool, RETRY, Refused};
use crate::acp::InitializeResult;
use crate::acp::auth::AuthState;
use crate::agent::{AgentFailure, AgentSpec};
use crate::types::Principal;

/// What a visit may cost the sessions of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// It takes only what no session holds.
    Quiet,
    /// The session that has been idle the longest gives its process up, as for another session.
    Pressing,
}

/// Why there is no visit.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NoVisit {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Agent(#[from] AgentFailure),
}

/// A process that no session holds. It goes back to the pool when this is dropped; in the middle of a call it ends.
#[derive(Debug)]
pub struct Visit {
    /// `None` only while it is given back.
    lease: Option<Lease>,
    fate: Fate,
    pool: Pool,
}

impl Pool {
    /// Takes a process of the agent as soon as one is free. With all of them busy it waits for a little while only.
    pub async fn visit(
        &self,
        spec: &AgentSpec,
        principal: &Principal,
        manner: Manner,
    ) -> Result<Visit, NoVisit> {
        let mut place = self.reserve_as(&spec.name, principal, spec.offers(), (manner, None))?;
        let lease = self.wait_for(&mut place, spec).await?;
        Ok(Visit { lease: Some(lease), fate: Fate::Untouched, pool: self.clone() })
    }

    /// The same for a method that not every agent supports. Fails at once, without a process, if the last
    /// `initialize` of the agent did not offer the method.
    pub async fn visit_for(
        &self,
        method: &str,
        spec: &AgentSpec,
        principal: &Principal,
        supported: impl Fn(&InitializeResult) -> bool,
    ) -> Result<Visit, NoVisit> {
        let unsupported = || AgentFailure::Unsupported { method: method.to_owned() };
        let known = self.agent(&spec.name).and_then(|(_, initialized)| initialized);
        if known.is_some_and(|initialized| !supported(&initialized)) {
            return Err(unsupported().into());
        }
        let visit = self.visit(spec, principal, Manner::Pressing).await?;
        if !supported(visit.initialized()) {
            return Err(unsupported().into());
        }
        Ok(visit)
    }

    async fn wait_for(&self, place: &mut Place, spec: &AgentSpec) -> Result<Lease, NoVisit> {
        let patience = self.limits().visit_wait;
        let end = Instant::now() + spec.limits.start + patience;
        loop {
            let waited = tokio::time::timeout(patience, place.lease()).await;
            if let Ok(lease) = waited {
                return Ok(lease?);
            }
            // One that starts is worth more patience than one that others use.
            if !self.is_starting(&spec.name) || Instant::now() >= end {
                return Err(Refused::Busy { retry_after: RETRY }.into());
            }
        }
    }
}

impl Visit {
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
        self.fate = Fate::Stop;
        let shutdown = self.pool.shutdown().clone();
        let process = self.lease.as_mut().expect("a visit has its lease until it is dropped").process_mut();
        let outcome = tokio::select! {
            biased;
            () = shutdown.soft() => Err(AgentFailure::Draining),
            outcome = process.ask(method, params, limit) => outcome,
        };
        match &outcome {
            Ok(_) | Err(AgentFailure::Rpc(_)) => self.fate = Fate::Reuse,
            Err(AgentFailure::AuthRequired { .. }) => {
                self.fate = Fate::Reuse;
                self.lease().saw_auth(true);
            }
            Err(_) => {}
        }
        outcome
    }

    /// Sends a notification.
    pub fn notify(&mut self, method: &str, params: &RawValue) -> Result<(), AgentFailure> {
        self.fate = Fate::Reuse;
        let connection = &self.lease().process().connection;
        // Its end shows where it is looked at next.
        connection.notify(method, params).map_err(|_| AgentFailure::Exited(crate::agent::Ended::default()))
    }

    /// What was called left nothing of its caller behind: the process is as good as it was for everybody.
    pub fn leave_untouched(mut self) {
        if self.fate == Fate::Reuse {
            self.fate = Fate::Untouched;
        }
    }

    /// The sign-in with these params worked: this process and new ones are signed in, others go.
    pub fn signed_in(mut self, told: Box<RawValue>) {
        let lease = self.lease.as_mut().expect("a visit has its lease until it is dropped");
        self.pool.auth_changed(lease, AuthState::Authenticated, Some(told));
        self.fate = Fate::Untouched;
    }

    /// The sign-out worked: no process that was signed in goes on.
    pub fn signed_out(mut self) {
        let lease = self.lease.as_mut().expect("a visit has its lease until it is dropped");
        self.pool.auth_changed(lease, AuthState::Unauthenticated, None);
        self.fate = Fate::Stop;
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.release(self.fate);
        }
    }
}
