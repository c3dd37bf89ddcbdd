//! Commands of clients, and the end of a session: close and delete.

use tokio::time::Instant;

use super::{Actor, Command, send_reply};
use crate::session::error::{DeleteError, PatchError, PreconditionFailed, ProcessError};
use crate::session::requests::EndedBy;
use crate::session::turns::Completion;
use crate::session::validation::check_metadata;
use base::types::Principal;
use events::api::{CancelCause, Session, SessionPatch, SessionState};
use events::event::{DetachedReason, EncodedEvent, SessionChanged, SessionClosed};
use wire::acp::TraceContext;

impl Actor {
    pub(super) fn handle_command(&mut self, command: Command) {
        if self.journal.is_erased() {
            return;
        }
        self.last_command_at = Instant::now();
        self.binding
            .refresh_spec(|| self.context.agent_spec(self.journal.record()));
        command(self);
    }

    /// Fails if `If-Match` has tags and none of them is that of the session's revision.
    fn check_revision(&self, if_match: Option<&[String]>) -> Result<(), PreconditionFailed> {
        let revision = self.journal.fold().revision;
        match if_match {
            Some(tags) if !tags.contains(&Session::revision_tag(revision)) => {
                Err(PreconditionFailed { revision })
            }
            _ => Ok(()),
        }
    }

    /// Applies a merge patch (RFC 7396) to title and metadata.
    pub(crate) fn patch(
        &mut self,
        by: &Principal,
        patch: &SessionPatch,
        if_match: Option<&[String]>,
    ) -> Result<Session, PatchError> {
        self.check_revision(if_match)?;
        if patch.is_empty() {
            return Ok(self.snapshot().0);
        }
        let title = patch.title.as_ref().map(Option::as_deref);
        let mut event = SessionChanged {
            by: by.user.name(),
            title,
            ..SessionChanged::default()
        };
        let metadata = patch.merged_metadata(self.journal.record().metadata.clone());
        if patch.metadata.is_some() {
            check_metadata(&metadata)?;
            event.metadata = Some(&metadata);
        }
        let event = EncodedEvent::from(&event);
        if patch.metadata.is_some() {
            self.journal.set_metadata(metadata);
        }
        self.journal.append_changed(event);
        Ok(self.snapshot().0)
    }

    /// Closes the session and ends its work. The log remains readable, and `attach` reopens the session.
    pub(crate) fn close(&mut self, by: &Principal, trace: Option<&TraceContext>) {
        if self.journal.record().is_closed() {
            return;
        }
        self.end_all(trace);
        let event = &SessionClosed { by: by.user.name() };
        self.journal.append_with(None, event, |_, change| {
            change.record.state = SessionState::Closed;
        });
        if self.journal.record().attached {
            self.append_detached(DetachedReason::Closed);
            self.close_at_agent(false, trace);
        }
    }

    /// Deletes the session: its log, its records and its own folder. The actor then stops.
    pub(crate) fn delete(
        &mut self,
        by: &Principal,
        if_match: Option<&[String]>,
        trace: Option<TraceContext>,
    ) -> Result<u64, DeleteError> {
        self.check_revision(if_match)?;
        self.end_all(trace.as_ref());
        if self.journal.record().attached {
            self.journal.update(|record| record.attached = false);
            self.close_at_agent(true, trace.as_ref());
        } else {
            self.context
                .delete_at_agent(self.journal.record(), self.binding.owner(), trace);
        }
        Ok(self.erase(by.user.name()))
    }

    pub(super) fn erase(&mut self, by: &str) -> u64 {
        self.stopping = true;
        self.journal.erase(by)
    }

    /// Ends the turn and all waiting work, without waiting for the agent.
    fn end_all(&mut self, trace: Option<&TraceContext>) {
        // Without a prompt id, the cancel cannot fail.
        let _ = self.cancel(None, CancelCause::Person, trace);
        self.end_turn(Ok(Completion::cancelled()));
        self.end_requests(EndedBy::Release);
        self.end_terminals();
        self.binding.drop_pending();
        for attaching in self.binding.calls.take_attaching() {
            send_reply(attaching.reply, Err(ProcessError::Closed.into()));
        }
        for call in self.binding.calls.take_queued() {
            send_reply(call.reply, Err(ProcessError::Closed.into()));
        }
        for (id, call) in self.binding.calls.take_sent() {
            self.binding.cancel_call(id);
            self.call_failed(call, &ProcessError::Closed);
        }
        self.abort_set_up();
        self.binding.release_guard();
    }
}
