//! A session's beginning: made anew, adopted from the agent, or forked from another one.

use tokio::time::Instant;

use super::actor::{Actor, send_reply};
use super::attachment::AttachMethod;
use super::command::Reply;
use super::idempotency::Claim;
use super::refusal::Refusal;
use crate::acp::{AgentCapabilities, TraceContext};
use crate::agent::AgentFailure;
use crate::api::Session;
use crate::api::event::{AttachedBy, SessionCreated};
use crate::eventlog::Records;
use crate::types::SessionId;

/// Where a new session comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    New,
    /// The agent has it already.
    Adopted,
    /// The agent has made it of another session.
    Forked(SessionId),
}

/// Who waits for a new session, and what is written with it.
#[derive(Debug)]
pub(super) struct CreateWaiter {
    pub(super) origin: Origin,
    pub(super) claim: Option<Claim>,
    pub(super) trace: Option<TraceContext>,
    pub(super) reply: Reply<(Session, u64)>,
    /// How long it stands in line while every process is at work.
    pub(super) deadline: Instant,
}

impl Actor {
    /// A new session: nothing is written before the agent has it.
    pub(super) fn create(&mut self, creating: CreateWaiter) {
        match self.reserve() {
            Ok(()) => self.create_waiter = Some(creating),
            Err(refusal) => {
                self.stopping = true;
                send_reply(creating.reply, Err(refusal));
            }
        }
    }

    /// What the agent already has is taken with its history, if it can be had.
    pub(super) fn adopt_method(&self, capabilities: &AgentCapabilities) -> Result<Option<AttachMethod>, Refusal> {
        match self.create_waiter.as_ref().map(|creating| creating.origin) {
            None | Some(Origin::New) => Ok(None),
            Some(_) if capabilities.can_replay => Ok(Some(AttachMethod::Load)),
            Some(_) if capabilities.session.resume => Ok(Some(AttachMethod::Resume)),
            Some(_) => Err(cannot_adopt()),
        }
    }

    /// The history that comes is new to the log.
    pub(super) fn imports_history(&self) -> bool {
        self.create_waiter.as_ref().is_some_and(|creating| creating.origin != Origin::New)
    }

    /// The first history of a session that is being taken: the agent has it, so the log begins. What fails from here
    /// on is erased again.
    pub(super) fn begin_history(&mut self) {
        if self.log.appended() == 0 {
            self.record.unfinished = true;
            self.append_created(None);
        }
    }

    /// The first event of the log, with the records that make the session exist.
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

    /// How the event calls what gave the session to its process.
    pub(super) fn attached_by(&self, by: AttachMethod) -> AttachedBy {
        match self.create_waiter.as_ref().map(|creating| creating.origin) {
            None | Some(Origin::New) => by.attached_by(),
            Some(Origin::Adopted) => AttachedBy::Adopt,
            Some(Origin::Forked(_)) => AttachedBy::Fork,
        }
    }

    /// There will be no such session.
    pub(super) fn create_failed(&mut self, refusal: &Refusal) {
        let Some(creating) = self.create_waiter.take() else { return };
        if self.record.unfinished {
            self.erase(&self.record.owner.clone());
        }
        self.stopping = true;
        send_reply(creating.reply, Err(refusal.clone()));
    }
}

/// The agent cannot give a session that it has to another process.
pub(super) fn cannot_adopt() -> Refusal {
    let method = "session/load or session/resume, so a session of its own cannot be taken over".to_owned();
    Refusal::Agent(AgentFailure::Unsupported { method })
}
