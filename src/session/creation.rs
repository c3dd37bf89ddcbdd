//! The creation of a session: new, adopted from the agent, or forked from another session.

use tokio::time::Instant;

use super::actor::{Actor, send_reply};
use super::attachment::AttachMethod;
use super::command::Reply;
use super::idempotency::Claim;
use super::refusal::Refusal;
use crate::acp::{AgentCapabilities, TraceContext};
use crate::agent::AgentFailure;
use crate::api::Session;
use crate::event::{AttachedBy, SessionCreated};
use crate::eventlog::Records;
use crate::types::SessionId;

/// The origin of a new session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    New,
    /// The agent already has the session.
    Adopted,
    /// The agent forked the session from another one.
    Forked(SessionId),
}

/// The client that waits for a new session, and the data that is written with the session.
#[derive(Debug)]
pub(super) struct CreateWaiter {
    pub(super) origin: Origin,
    pub(super) claim: Option<Claim>,
    pub(super) trace: Option<TraceContext>,
    pub(super) reply: Reply<(Session, u64)>,
    /// Until when the session waits for a process while all processes are busy.
    pub(super) deadline: Instant,
}

impl Actor {
    /// Begins a new session. No event is written before the agent has the session.
    pub(super) fn create(&mut self, creating: CreateWaiter) {
        match self.reserve() {
            Ok(()) => self.create_waiter = Some(creating),
            Err(refusal) => {
                self.stopping = true;
                send_reply(creating.reply, Err(refusal));
            }
        }
    }

    /// The method for a session that the agent already has: with its history if the agent can replay it.
    pub(super) fn adopt_method(
        &self,
        capabilities: &AgentCapabilities,
    ) -> Result<Option<AttachMethod>, Refusal> {
        match self.create_waiter.as_ref().map(|creating| creating.origin) {
            None | Some(Origin::New) => Ok(None),
            Some(_) if capabilities.can_replay => Ok(Some(AttachMethod::Load)),
            Some(_) if capabilities.session.resume => Ok(Some(AttachMethod::Resume)),
            Some(_) => Err(cannot_adopt()),
        }
    }

    /// Whether the history that the agent sends is new to the log.
    pub(super) fn imports_history(&self) -> bool {
        self.create_waiter.as_ref().is_some_and(|creating| creating.origin != Origin::New)
    }

    /// Begins the log of an imported session. If the import fails later, the session is erased.
    pub(super) fn begin_history(&mut self) {
        if self.log.appended() == 0 {
            self.record.unfinished = true;
            self.append_created(None);
        }
    }

    /// Appends `session.created` with the records that make the session exist.
    pub(super) fn append_created(&mut self, claim: Option<&Claim>) {
        let mut records = Records::default();
        if let Some(claim) = claim {
            claim.put(self.record.session_id, None, &mut records);
        }
        let records = self.with_session_records(records);
        let mut session = self.snapshot();
        session.last_event_id = self.log.id(self.log.appended() + 1);
        let (forked_from, adopted) = match self.create_waiter.as_ref().map(|creating| creating.origin) {
            Some(Origin::Forked(parent)) => (Some(parent), false),
            origin => (None, origin == Some(Origin::Adopted)),
        };
        self.append(None, &SessionCreated { session: &session, forked_from, adopted }, records);
    }

    /// The `by` of the event `session.attached`.
    pub(super) fn attached_by(&self, by: AttachMethod) -> AttachedBy {
        match self.create_waiter.as_ref().map(|creating| creating.origin) {
            None | Some(Origin::New) => by.attached_by(),
            Some(Origin::Adopted) => AttachedBy::Adopt,
            Some(Origin::Forked(_)) => AttachedBy::Fork,
        }
    }

    /// Fails the creation of the session.
    pub(super) fn create_failed(&mut self, refusal: &Refusal) {
        let Some(creating) = self.create_waiter.take() else { return };
        if self.record.unfinished {
            self.erase(&self.record.owner.clone());
        }
        self.stopping = true;
        send_reply(creating.reply, Err(refusal.clone()));
    }
}

/// The error if the agent cannot move one of its sessions to another process.
pub(super) fn cannot_adopt() -> Refusal {
    let method = "session/load or session/resume, so its own sessions cannot be adopted".to_owned();
    Refusal::Agent(AgentFailure::Unsupported { method })
}
