//! The wait queue: requests for a process, in the order of their arrival.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::lease::Lease;
use super::scheduler::Pool;
use super::state::{Grant, PoolKey, Priority, RequestedSession, Waiter};
use crate::acp::ClientCapabilities;
use crate::agent::{AgentFailure, ProcessKey};
use crate::types::{AgentName, LimitExceeded, Principal, PrincipalLimit};

/// The suggested delay before the next attempt to enqueue.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Why the pool cannot provide a process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AcquireError {
    #[error("no agent of that name is configured")]
    NoSuchAgent,
    #[error("the wait queue of this agent is full (limit {max}); retry later")]
    QueueFull { max: usize, retry_after: Duration },
    #[error("all processes of this agent are busy; retry later")]
    Busy { retry_after: Duration },
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    #[error("the agent failed to start too often; retry after the back-off")]
    BreakerOpen { retry_after: Duration },
    #[error("another sign-in to this agent is in progress")]
    SignInInProgress { retry_after: Duration },
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
    /// Enqueues a request for a process with access to `folders`. Never waits. `requested` is the session that the
    /// agent must restore.
    pub fn enqueue(
        &self,
        agent: &AgentName,
        principal: &Principal,
        (offer, folders): (ClientCapabilities, Vec<PathBuf>),
        (priority, requested): (Priority, Option<RequestedSession>),
    ) -> Result<PendingLease, AcquireError> {
        if self.inner.shutdown.is_draining() {
            return Err(AcquireError::Draining);
        }
        let key = PoolKey::new(agent, &principal.tenant);
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
                return Err(AcquireError::QueueFull {
                    max,
                    retry_after: RETRY_AFTER,
                });
            }
            let limits = self.principal_limits().effective(principal);
            let queued = pool
                .queue
                .iter()
                .filter(|waiter| waiter.principal.id == principal.id)
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
                .and_then(|requested| requested.former.clone());
            let key = ProcessKey::new(
                &pool.spec,
                principal.tenant.clone(),
                offer,
                folders,
                restore,
            );
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
