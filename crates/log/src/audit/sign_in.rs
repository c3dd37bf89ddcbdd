//! The events of one sign-in to an agent.

use super::log::Audit;
use base::types::{AgentName, Author};
use events::event::{AuditActor, SignInEnded, SignInOutcome, SignInStarted};

/// A running sign-in. Its start is in the audit log. Dropping it without an outcome records that it was aborted.
#[derive(Debug)]
pub struct SignInRecord {
    audit: Audit,
    actor: AuditActor,
    agent: AgentName,
    method_id: Option<String>,
    outcome: SignInOutcome,
}

impl SignInRecord {
    pub fn start(
        audit: &Audit,
        author: &Author,
        agent: AgentName,
        method_id: Option<String>,
    ) -> Self {
        let actor = AuditActor::from(author);
        let started = SignInStarted {
            agent: agent.clone(),
            method_id: method_id.clone(),
        };
        audit.append(actor.clone(), started);
        Self {
            audit: audit.clone(),
            actor,
            agent,
            method_id,
            outcome: SignInOutcome::Aborted,
        }
    }

    pub fn end(mut self, succeeded: bool) {
        self.outcome = if succeeded {
            SignInOutcome::Succeeded
        } else {
            SignInOutcome::Failed
        };
    }
}

impl Drop for SignInRecord {
    fn drop(&mut self) {
        let ended = SignInEnded {
            agent: self.agent.clone(),
            method_id: self.method_id.take(),
            outcome: self.outcome,
        };
        self.audit.append(self.actor.clone(), ended);
    }
}
