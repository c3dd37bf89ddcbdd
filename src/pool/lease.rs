//! The exclusive use of a process by one session.

use std::sync::Arc;

use tokio::sync::Notify;

use super::state::IdleProcess;
use super::wait_queue::Pool;
use crate::agent::Process;
use crate::types::{AgentName, Principal};

/// The treatment of a process after the release of its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Reuse without restriction: the session left no trace in the process.
    Untouched,
    /// Reuse for the same principal: the process closed the session.
    Reuse,
    /// Stop the process.
    Stop,
}

/// What a session does with its process.
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
    pub(super) id: u64,
    pub(super) agent: AgentName,
    pub(super) principal: Principal,
    pub(super) recall: Arc<Notify>,
    /// The principal that used the process before.
    pub(super) used_by: Option<Arc<str>>,
    /// The generation of the sign-in that the process has.
    pub(super) generation: u64,
    pool: Pool,
}

impl Lease {
    pub(super) fn new(
        idle_process: IdleProcess,
        id: u64,
        principal: Principal,
        recall: Arc<Notify>,
        pool: Pool,
    ) -> Self {
        let IdleProcess { process, used_by, generation, .. } = idle_process;
        let agent = process.spec.name.clone();
        Self { agent, process: Some(process), id, principal, recall, used_by, generation, pool }
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
        self.pool.record_session(self, session);
    }

    /// Records that the agent reported the session as in use by another process.
    pub fn session_in_use(&self, session: &str) {
        self.pool.session_in_use(self, session);
    }

    /// Reports whether the pool could reclaim the process now.
    pub fn report_activity(&self, standing: LeaseActivity) {
        self.pool.record_activity(self, standing);
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
        Arc::clone(&self.recall)
    }

    pub fn release(mut self, fate: Disposition) {
        if let Some(process) = self.process.take() {
            self.pool.on_released(&self, process, fate);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            self.pool.on_released(self, process, Disposition::Stop);
        }
    }
}
