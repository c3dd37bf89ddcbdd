//! The exclusive use of a process by one session.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::grant::{Grant, LeaseInfo};
use super::scheduler::Pool;
use super::state::IdleProcess;
use crate::agent::Process;

/// The treatment of a process after the release of its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Reuse without restriction: the process has no data of the session.
    Untouched,
    /// Reuse for the same principal: the process closed the session.
    Reuse,
    /// Stop the process.
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
    pub(super) grant: LeaseInfo,
    pool: Pool,
}

impl Lease {
    pub(super) fn new(Grant { process, lease }: Grant, pool: Pool) -> Self {
        Self { process: Some(process), grant: lease, pool }
    }

    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("a lease holds its process until it is released")
    }

    pub fn process_mut(&mut self) -> &mut Process {
        self.process.as_mut().expect("a lease holds its process until it is released")
    }

    /// Records that the process holds the agent's session. The agent may keep the session locked until the process
    /// ends.
    pub fn record_session(&self, session: &str) {
        if let Some(agent) = self.pool.state().pools.get_mut(&self.grant.pool)
            && let Some(leased) = agent.leases.get_mut(&self.grant.id)
        {
            leased.history.record(session);
        }
    }

    /// Records that the agent reported the session as in use by another process. Detects an agent that does not
    /// unlock on close: a process that released the session still exists and is in use.
    pub fn session_in_use(&self, session: &str) {
        let mut state = self.pool.state();
        let agent = state.existing(&self.grant.pool);
        let mut leased =
            agent.leases.iter().filter(|(id, _)| **id != self.grant.id).map(|(_, leased)| &leased.history);
        let kept = leased.any(|held| held.contains(session))
            || agent.idle.iter().any(|idle_process| idle_process.history.contains(session));
        if kept && !agent.learned.keeps_sessions_locked {
            agent.learned.keeps_sessions_locked = true;
            tracing::warn!(
                agent = %self.grant.pool.agent,
                "the agent keeps a session locked after session/close: its processes are stopped and not reused"
            );
        }
    }

    /// Reports whether the pool could reclaim the process now.
    pub fn report_activity(&self, activity: LeaseActivity) {
        if let Some(agent) = self.pool.state().pools.get_mut(&self.grant.pool)
            && let Some(leased) = agent.leases.get_mut(&self.grant.id)
        {
            leased.idle_since = (activity == LeaseActivity::Idle).then(Instant::now);
            // A holder that was busy at the last recall gets another one.
            leased.releasing = activity == LeaseActivity::Releasing;
            agent.recall_outdated();
        }
        if activity == LeaseActivity::Idle {
            self.pool.advance(&self.grant.pool);
        }
    }

    /// Records whether the agent requires a sign-in.
    pub fn record_auth(&self, required: bool) {
        self.pool.record_auth(self, required);
    }

    /// Records that the agent refused a prompt because of a missing sign-in, although it had opened the session.
    pub fn prompt_refused(&self) {
        self.pool.record_prompt_auth(self, false);
    }

    /// Records that the agent answered a prompt, so it needs no sign-in.
    pub fn prompt_accepted(&self) {
        self.pool.record_prompt_auth(self, true);
    }

    /// Signs in new processes with the key in the environment of the agent. Returns true if they are signed
    /// in and this process is not.
    pub fn sign_in_with_key(&self) -> bool {
        self.pool.sign_in_with_key(self)
    }

    /// Notified when the holder should release the lease at once: it has been idle the longest and others wait.
    pub fn recall_signal(&self) -> Arc<Notify> {
        Arc::clone(&self.grant.recall)
    }

    pub fn release(mut self, disposition: Disposition) {
        self.return_process(disposition);
    }

    /// Returns the process to the pool, once.
    fn return_process(&mut self, disposition: Disposition) {
        let Some(process) = self.process.take() else { return };
        let LeaseInfo { id, pool: key, principal, used_by, generation, .. } = &self.grant;
        let used_by = match disposition {
            Disposition::Untouched => Some(used_by.clone()),
            Disposition::Reuse => Some(Some(Arc::clone(principal))),
            Disposition::Stop => None,
        };
        let used_by = used_by.filter(|_| !process.has_ended() && !self.pool.shutdown().is_draining());
        let stop = {
            let mut state = self.pool.state();
            let agent = state.existing(key);
            let history = agent.leases.remove(id).map(|leased| leased.history).unwrap_or_default();
            // The sessions that this process held would be locked for other processes.
            let used_by = used_by.filter(|_| !agent.learned.keeps_sessions_locked || history.is_empty());
            if used_by.is_some() && disposition == Disposition::Reuse && !history.is_empty() {
                agent.ending.checking.insert(*id, history);
                drop(state);
                return self.pool.check_for_reuse(&self.grant, process);
            }
            if let Some(used_by) = used_by {
                agent.idle.push(IdleProcess {
                    process,
                    used_by,
                    generation: *generation,
                    idle_since: Instant::now(),
                    history,
                });
                None
            } else {
                agent.ending.stopping.insert(*id, history);
                Some(process)
            }
        };
        if let Some(process) = stop {
            self.pool.stop(key.clone(), process, *id);
        }
        self.pool.advance(key);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.return_process(Disposition::Stop);
    }
}
