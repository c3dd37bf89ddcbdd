//! A process in the hands of one session.

use std::sync::Arc;

use tokio::sync::Notify;

use super::wait_queue::Pool;
use super::state::IdleProcess;
use crate::agent::Process;
use crate::types::{AgentName, Principal};

/// What becomes of the process when a session gives it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Nothing of who held it is left: it may serve whom it could serve before.
    Untouched,
    /// It closed the session and may serve another one of the same principal.
    Reuse,
    /// It goes down the stop ladder.
    Stop,
}

/// What a session does with its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseActivity {
    /// A turn, a request or a call is open.
    Busy,
    /// It could give the process back.
    Idle,
    /// It is giving the process back.
    Releasing,
}

/// One process, one session. Dropping a lease stops the process.
#[derive(Debug)]
pub struct Lease {
    /// `None` only after the release.
    process: Option<Process>,
    pub(super) id: u64,
    pub(super) agent: AgentName,
    pub(super) principal: Principal,
    pub(super) recall: Arc<Notify>,
    /// Who used the process before.
    pub(super) used_by: Option<Arc<str>>,
    /// The sign-in that the process knows of.
    pub(super) generation: u64,
    pool: Pool,
}

impl Lease {
    pub(super) fn new(spare: IdleProcess, id: u64, principal: Principal, recall: Arc<Notify>, pool: Pool) -> Self {
        let IdleProcess { process, used_by, generation, .. } = spare;
        let agent = process.spec.name.clone();
        Self { agent, process: Some(process), id, principal, recall, used_by, generation, pool }
    }

    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("a lease holds its process until it is released")
    }

    pub fn process_mut(&mut self) -> &mut Process {
        self.process.as_mut().expect("a lease holds its process until it is released")
    }

    /// The process has the agent's session from now on, and may keep it locked until it ends.
    pub fn record_session(&self, session: &str) {
        self.pool.record_session(self, session);
    }

    /// The agent reported that another process uses the session.
    pub fn session_in_use(&self, session: &str) {
        self.pool.session_in_use(self, session);
    }

    /// Says whether the process could be taken back now.
    pub fn report_activity(&self, standing: LeaseActivity) {
        self.pool.record_activity(self, standing);
    }

    /// The agent wants a sign-in, or did without one.
    pub fn record_auth(&self, required: bool) {
        self.pool.record_auth(self, required);
    }

    /// The agent refused a prompt for lack of a sign-in, although it had opened the session.
    pub fn prompt_refused(&self) {
        self.pool.record_prompt_auth(self, false);
    }

    /// The agent answered a prompt, so it needs no sign-in.
    pub fn prompt_accepted(&self) {
        self.pool.record_prompt_auth(self, true);
    }

    /// True if new processes sign in with the key that the agent has in its environment, and this one did not.
    pub fn sign_in_with_key(&self) -> bool {
        self.pool.sign_in_with_key(self)
    }

    /// Others wait and this lease was idle the longest: its holder should give it back at once.
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
