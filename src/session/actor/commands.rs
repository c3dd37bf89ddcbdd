//! Commands of clients, and the end of a session: close and delete.

use tokio::time::Instant;

use super::turn::TurnEnd;
use super::{Actor, send_reply};
use crate::acp::TraceContext;
use crate::api::{Session, SessionPatch};
use crate::event::{DetachedReason, EncodedEvent, SessionChanged, SessionClosed};
use crate::pool::Disposition;
use crate::session::agent_requests::EndedBy;
use crate::session::client_calls::AttachWaiter;
use crate::session::command::Command;
use crate::session::error::{PatchError, PreconditionFailed, ProcessError};
use crate::session::stored::agent_spec;
use crate::session::upstream_delete;
use crate::session::validation::check_metadata;
use crate::types::{CancelCause, Principal, SessionState};

impl Actor {
    pub(super) fn handle_command(&mut self, command: Command) {
        if self.journal.is_erased() {
            return;
        }
        self.lifecycle.last_command_at = Instant::now();
        self.link
            .refresh_spec(|| agent_spec(&self.context, self.journal.record()));
        match command {
            Command::Create(creating) => self.create(creating),
            Command::Snapshot { reply } => {
                send_reply(reply, Ok((self.snapshot(), self.journal.appended())));
            }
            Command::Patch {
                by,
                patch,
                if_match,
                reply,
            } => {
                let patched = self.patch(&by, &patch, if_match.as_deref());
                send_reply(reply, patched.map(|seq| (self.snapshot(), seq)));
            }
            Command::Attach {
                context,
                trace,
                reply,
            } => {
                let deadline = Instant::now() + self.context.limits.settings_queue_timeout;
                let attaching = AttachWaiter {
                    trace,
                    reply,
                    deadline,
                };
                self.attach(attaching, context);
            }
            Command::BringServers { servers, reply } => {
                self.bring_servers(servers);
                send_reply(reply, Ok(()));
            }
            Command::Close { by, trace, reply } => {
                send_reply(reply, Ok(self.close(&by, trace.as_ref())));
            }
            Command::Delete {
                by,
                if_match,
                trace,
                reply,
            } => {
                let checked = self.check_revision(if_match.as_deref());
                send_reply(
                    reply,
                    checked
                        .map(|()| self.delete(&by, trace))
                        .map_err(Into::into),
                );
            }
            Command::Prompt {
                by,
                request,
                claim,
                reply,
            } => send_reply(reply, self.prompt(&by, *request, claim.as_ref())),
            Command::ChangePrompt { change, reply } => {
                send_reply(reply, self.change_prompt(*change));
            }
            Command::Cancel {
                prompt,
                cause,
                trace,
                reply,
            } => {
                let cancelled = self.cancel(prompt, cause, trace.as_ref());
                send_reply(
                    reply,
                    cancelled.map(|cancelled| (cancelled, self.journal.appended())),
                );
            }
            Command::Pending { request, reply } => {
                send_reply(reply, self.agent_requests.get(request));
            }
            Command::Answer {
                by,
                request,
                outcome,
                reply,
            } => {
                let checked = self.check_answer_modes(request, &outcome);
                send_reply(
                    reply,
                    checked.and_then(|()| self.answer(&by, request, outcome)),
                );
            }
            Command::Call {
                by,
                call,
                trace,
                reply,
            } => self.queue_call(by, call, trace, reply),
            Command::KillTerminal { terminal, reply } => {
                send_reply(reply, self.kill_terminal(terminal));
            }
            Command::Stderr { reply } => {
                let tail = self.link.process().map(crate::agent::Process::stderr);
                send_reply(reply, Ok(tail.unwrap_or_default()));
            }
        }
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
    fn patch(
        &mut self,
        by: &Principal,
        patch: &SessionPatch,
        if_match: Option<&[String]>,
    ) -> Result<u64, PatchError> {
        self.check_revision(if_match)?;
        if patch.is_empty() {
            return Ok(self.journal.appended());
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
        Ok(self.journal.append_changed(event))
    }

    /// Closes the session and ends its work. The log remains readable, and `attach` reopens the session.
    fn close(&mut self, by: &Principal, trace: Option<&TraceContext>) -> u64 {
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
    fn delete(&mut self, by: &Principal, trace: Option<TraceContext>) -> u64 {
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
        self.erase(&by.id)
    }

    /// Erases all stored data of the session. The actor then stops.
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
