//! The end of a session: close and delete.

use super::turn::TurnEnd;
use super::{Actor, send_reply};
use crate::acp::TraceContext;
use crate::event::{DetachedReason, SessionClosed};
use crate::pool::Disposition;
use crate::session::agent_requests::EndedBy;
use crate::session::record::StoredState;
use crate::session::refusal::Refusal;
use crate::session::upstream_delete;
use crate::types::Principal;

impl Actor {
    /// Closes the session and ends its work. The log remains readable, and `attach` reopens the session.
    pub(super) fn close(&mut self, by: &Principal, trace: Option<&TraceContext>) -> u64 {
        if self.journal.record().is_closed() {
            return self.journal.appended();
        }
        self.end_all(trace);
        let event = &SessionClosed { by: &by.id };
        let mut seq =
            self.journal.append_with(None, event, |_, change| change.record.state = StoredState::Closed);
        if self.journal.record().attached {
            self.append_detached(DetachedReason::Closed);
            seq = self.journal.appended();
            self.close_at_agent(false, trace);
        }
        seq
    }

    /// Deletes the session: its log, its records and its own folder. The actor then stops.
    pub(super) fn delete(&mut self, by: &Principal, trace: Option<TraceContext>) -> u64 {
        self.end_all(trace.as_ref());
        if self.journal.record().attached {
            self.journal.update(|record| record.attached = false);
            self.close_at_agent(true, trace.as_ref());
        } else {
            upstream_delete::request_delete(&self.context, self.journal.record(), self.link.owner(), trace);
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
        drop(self.cancel(None, trace));
        self.end_turn(TurnEnd::cancelled());
        self.end_requests(EndedBy::Release);
        self.end_terminals();
        self.link.drop_pending();
        for attaching in self.client_calls.take_attaching() {
            send_reply(attaching.reply, Err(Refusal::Closed));
        }
        for call in self.client_calls.take_queued() {
            send_reply(call.reply, Err(Refusal::Closed));
        }
        for (id, call) in self.client_calls.take_sent() {
            self.link.cancel_call(id);
            self.call_failed(call, &Refusal::Closed);
        }
        if let Some(call) = self.attachment.open_call() {
            self.link.cancel_call(call);
            self.release(Disposition::Stop, &Refusal::Closed);
            self.attachment.detach();
        }
        self.release_live_guard();
    }
}
