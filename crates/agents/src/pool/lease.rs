//! The exclusive use of a process by one session.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::scheduler::Pool;
use super::state::{ActiveLease, Grant, Holder, PoolKey, SignInState};
use crate::agent::Process;

/// The treatment of a process after the release of its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Reuse without restriction: the process has no data of the session.
    Untouched,
    /// Reuse for the same user: the process closed the session.
    Reuse,
    Stop,
}

/// The use of a process by its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseActivity {
    /// A turn, a request or a call is open.
    Busy,
    /// The session could release the process.
    Idle,
    /// The session is releasing the process.
    Releasing,
}

/// One process for one session. Dropping a lease stops the process.
#[derive(Debug)]
pub struct Lease {
    /// `None` only after the release.
    process: Option<Process>,
    id: u64,
    pub(super) key: PoolKey,
    /// Notified when the holder should release the lease at once: it has been idle the longest and others wait.
    pub recall: Arc<Notify>,
    pub(super) pool: Pool,
    pub(super) disposition: Disposition,
}

impl Lease {
    pub(super) fn new(grant: Grant, key: PoolKey, pool: Pool) -> Self {
        Self {
            process: Some(grant.process),
            id: grant.id,
            key,
            recall: grant.recall,
            pool,
            disposition: Disposition::Stop,
        }
    }

    pub fn process(&self) -> &Process {
        self.process
            .as_ref()
            .expect("a lease holds its process until it is released")
    }

    pub fn process_mut(&mut self) -> &mut Process {
        self.process
            .as_mut()
            .expect("a lease holds its process until it is released")
    }

    fn update(&self, change: impl FnOnce(&mut ActiveLease)) {
        let mut state = self.pool.state();
        if let Some(leased) = state.existing(&self.key).leases.get_mut(&self.id) {
            change(leased);
        }
    }

    /// Changes the sign-in state. Returns `None` if the process belongs to a previous entry: it does not describe
    /// the current entry, whose program must not receive the secrets of the previous one.
    pub(super) fn update_sign_in<T>(
        &self,
        change: impl FnOnce(&mut SignInState, &mut ActiveLease) -> T,
    ) -> Option<T> {
        let mut state = self.pool.state();
        let agent = state.existing(&self.key);
        let leased = agent.leases.get_mut(&self.id)?;
        Arc::ptr_eq(&agent.spec, &leased.spec).then(|| change(&mut agent.sign_in, leased))
    }

    /// Records that the process holds the agent's session. The agent may keep the session locked until the process
    /// ends.
    pub fn record_session(&self, session: &str) {
        self.update(|leased| leased.history.record(session));
    }

    /// Names the session that holds the lease, and its running turn.
    pub fn report_holder(&self, holder: Holder) {
        self.process().record_session(holder.session);
        self.update(|leased| leased.holder = Some(holder));
    }

    /// Records that the agent reported the session as in use by another process. Detects an agent that does not
    /// unlock on close: a process that released the session still exists and is in use.
    pub fn session_in_use(&self, session: &str) {
        let mut state = self.pool.state();
        let agent = state.existing(&self.key);
        let others = agent.leases.iter().filter(|(id, _)| **id != self.id);
        let others = others.map(|(_, leased)| &leased.history);
        let mut histories = others.chain(agent.idle.iter().map(|idle| &idle.history));
        if histories.any(|held| held.contains(session)) && !agent.learned.keeps_sessions_locked {
            agent.learned.keeps_sessions_locked = true;
            tracing::warn!(
                agent = %self.key.agent,
                "the agent keeps a session locked after session/close: its processes are stopped and not reused"
            );
        }
    }

    /// Reports whether the pool could reclaim the process now.
    pub fn report_activity(&self, activity: LeaseActivity) {
        self.update(|leased| {
            leased.idle_since = (activity == LeaseActivity::Idle).then(Instant::now);
            // If the holder was busy at the last recall, the pool must be able to recall the lease again.
            leased.releasing = activity == LeaseActivity::Releasing;
        });
        if activity == LeaseActivity::Idle {
            self.pool.advance(&self.key);
        }
    }

    pub fn release(mut self, disposition: Disposition) {
        self.disposition = disposition;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(process) = self.process.take() else {
            return;
        };
        let Self { pool, key, id, .. } = self;
        let stop = {
            let mut state = pool.state();
            let agent = state.existing(key);
            let Some(mut leased) = agent.leases.remove(id) else {
                return;
            };
            let closed_session = self.disposition == Disposition::Reuse;
            if closed_session {
                leased.used_by = Some(leased.user.clone());
            }
            let held_sessions = !leased.history.is_empty();
            // The sessions that this process held would be locked for other processes.
            let locks_sessions = held_sessions && agent.learned.keeps_sessions_locked;
            let draining = pool.inner.shutdown.is_draining();
            let stop = self.disposition == Disposition::Stop
                || process.has_ended()
                || draining
                || locks_sessions;
            if !stop && closed_session && held_sessions {
                agent.checking.insert(*id, leased);
                return pool.check_for_reuse(key.clone(), *id, process);
            }
            agent.put_back(*id, process, leased, !stop)
        };
        if let Some(process) = stop {
            pool.stop(key.clone(), process, *id);
        }
        pool.advance(key);
    }
}
