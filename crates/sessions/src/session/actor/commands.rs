//! Commands of clients, and the end of a session: close and delete.

use tokio::time::Instant;

use super::{Actor, Command, send_reply};
use crate::session::error::{DeleteError, PatchError, PreconditionFailed, ProcessError};
use crate::session::requests::EndedBy;
use crate::session::stored::agent_spec;
use crate::session::turns::TurnEnd;
use crate::session::upstream_delete;
use crate::session::validation::check_metadata;
use agents::pool::Disposition;
use base::types::{CancelCause, Principal, SessionState};
use events::api::{Session, SessionPatch};
use events::event::{DetachedReason, EncodedEvent, SessionChanged, SessionClosed};
use wire::acp::TraceContext;

impl Actor {
    pub(super) fn handle_command(&mut self, command: Command) {
        if self.journal.is_erased() {
            return;
        }
        self.lifecycle.last_command_at = Instant::now();
        self.link
            .refresh_spec(|| agent_spec(&self.context, self.journal.record()));
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
    ) -> Result<(Session, u64), PatchError> {
        self.check_revision(if_match)?;
        if patch.is_empty() {
            return Ok(self.snapshot());
        }
        let title = patch.title.as_ref().map(Option::as_deref);
        let mut event = SessionChanged {
            by: &by.id,
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
        Ok(self.snapshot())
    }

    /// Closes the session and ends its work. The log remains readable, and `attach` reopens the session.
    pub(crate) fn close(&mut self, by: &Principal, trace: Option<&TraceContext>) -> u64 {
        if self.journal.record().is_closed() {
            return self.journal.appended();
        }
        self.end_all(trace);
        let event = &SessionClosed { by: &by.id };
        let mut seq = self.journal.append_with(None, event, |_, change| {
            change.record.state = SessionState::Closed;
        });
        if self.journal.record().attached {
            self.append_detached(DetachedReason::Closed);
            seq = self.journal.appended();
            self.close_at_agent(false, trace);
        }
        seq
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
            upstream_delete::request_delete(
                &self.context,
                self.journal.record(),
                self.link.owner(),
                trace,
            );
        }
        Ok(self.erase(&by.id))
    }

    pub(super) fn erase(&mut self, by: &str) -> u64 {
        self.lifecycle.stopping = true;
        self.journal.erase(by)
    }

    /// Ends the turn and all waiting work, without waiting for the agent.
    fn end_all(&mut self, trace: Option<&TraceContext>) {
        // Without a prompt id, the cancel cannot fail.
        drop(self.cancel(None, CancelCause::Person, trace));
        self.end_turn(TurnEnd::cancelled());
        self.end_requests(EndedBy::Release);
        self.end_terminals();
        self.link.drop_pending();
        for attaching in self.client_calls.take_attaching() {
            send_reply(attaching.reply, Err(ProcessError::Closed.into()));
        }
        for call in self.client_calls.take_queued() {
            send_reply(call.reply, Err(ProcessError::Closed.into()));
        }
        for (id, call) in self.client_calls.take_sent() {
            self.link.cancel_call(id);
            self.call_failed(call, &ProcessError::Closed);
        }
        if let Some(call) = self.attachment.open_call() {
            self.link.cancel_call(call);
            self.release(Disposition::Stop, &ProcessError::Closed);
            self.attachment.detach();
        }
        self.release_live_guard();
    }
}
