//! Sessions of agents that need `authenticate` although their key is in their environment.

use super::actor::Actor;
use super::attachment::Attachment;
use super::refusal::Refusal;
use crate::agent::AgentFailure;
use crate::pool::{Disposition, Lease};

impl Actor {
    /// Acquires another process if new processes sign in with the key of the agent's environment and this one
    /// did not. Returns false if `refusal` is final.
    pub(super) fn retried_with_key(&mut self, refusal: &Refusal) -> bool {
        let needed = matches!(refusal, Refusal::Agent(AgentFailure::AuthRequired { .. }));
        if !needed || !self.event_loop.lease.as_ref().is_some_and(Lease::sign_in_with_key) {
            return false;
        }
        tracing::info!(session = %self.record.session_id, "retrying with a process that signs in with the key of the agent's environment");
        self.release(Disposition::Stop, refusal);
        self.attachment = Attachment::Detached;
        if let Err(refusal) = self.reserve() {
            self.attach_failed(&refusal);
        }
        true
    }
}
