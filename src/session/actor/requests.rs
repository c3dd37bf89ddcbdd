//! Requests of the agent: which side serves them, and the answers of clients.

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Actor;
use crate::acp::{self, Outcome, RequestKind, error_code};
use crate::api::Resolution;
use crate::api::event::{RequestCreated, RequestResolved};
use crate::jsonrpc::IncomingId;
use crate::session::agent_requests::{EndedBy, OfferedRequest, Resolving, Wait};
use crate::session::encode::EncodedEvent;
use crate::session::record::RequestRecord;
use crate::session::refusal::Refusal;
use crate::types::{Principal, RequestId, ServedBy};

impl Actor {
    /// Passes a request to the side that serves it by policy: the gateway, a client, or neither.
    pub(super) fn handle_request(&mut self, incoming: IncomingId, method: &str, params: &RawValue) {
        let kind = RequestKind::from_method(method);
        if !self.attachment.is_attached() {
            return self.reject_unattached(incoming, kind, method);
        }
        let served_by = match kind {
            RequestKind::Permission | RequestKind::Elicitation | RequestKind::Extension => ServedBy::Client,
            _ if !self.link.version().has_client_methods() => ServedBy::Off,
            RequestKind::ReadFile | RequestKind::WriteFile => self.files_served_by(),
            RequestKind::CreateTerminal
            | RequestKind::TerminalOutput
            | RequestKind::WaitForExit
            | RequestKind::EndTerminal => self.terminals_served_by(),
        };
        if served_by == ServedBy::Off {
            return self.refuse_method(incoming, method);
        }
        // An elicitation may name a call of the gateway instead of a session. An extension may name neither.
        let needs_session = !matches!(kind, RequestKind::Elicitation | RequestKind::Extension);
        let Some(own) =
            self.params_for_clients(params).filter(|_| !needs_session || acp::has_session_id(params))
        else {
            let detail = "expected the sessionId of this session";
            return self.refuse(incoming, error_code::INVALID_PARAMS, detail);
        };
        match kind {
            RequestKind::Permission => self.handle_permission(incoming, params, own),
            RequestKind::Elicitation => self.handle_elicitation(incoming, params, own),
            RequestKind::Extension if !self.journal.log().has_reader() => {
                // No client is connected that could know the method.
                self.refuse_method(incoming, method);
            }
            RequestKind::ReadFile | RequestKind::WriteFile if served_by == ServedBy::Gateway => {
                self.serve_file(incoming, method, params);
            }
            _ if served_by == ServedBy::Gateway => self.serve_terminal(incoming, method, params),
            _ => {
                let limits = &self.context.limits;
                let wait = match kind {
                    RequestKind::Extension => Wait::AtMost(limits.extension_answer_timeout),
                    // A command may run for hours, and only the client that runs it knows its state.
                    RequestKind::WaitForExit => Wait::WhileFollowed(limits.client_answer_timeout),
                    _ => Wait::AtMost(limits.client_answer_timeout),
                };
                let (prompt, subagent) = (self.turns.sent(), self.subagent_of(params));
                self.offer_request(OfferedRequest { method, incoming, params: own, prompt, subagent, wait });
            }
        }
    }

    /// Rejects a request that arrives before the session is attached or after it is detached.
    fn reject_unattached(&self, incoming: IncomingId, kind: RequestKind, method: &str) {
        if kind.is_question() {
            self.link.answer(incoming, &kind.cancelled_reply());
        } else {
            self.refuse_method(incoming, method);
        }
    }

    fn refuse_method(&self, incoming: IncomingId, method: &str) {
        self.link.answer(incoming, &Err(acp::method_not_found(method)));
    }

    /// Responds to a request of the agent with an error. The request is not shown to clients.
    pub(super) fn refuse(&self, incoming: IncomingId, code: i64, detail: &str) {
        self.link.answer(incoming, &Err(acp::error(code, detail)));
    }

    /// Offers a request to clients. If too many requests are open, rejects it and returns `None`.
    pub(super) fn offer_request(&mut self, offer: OfferedRequest<'_>) -> Option<RequestId> {
        if self.agent_requests.len() >= self.context.limits.max_pending_requests {
            self.refuse(offer.incoming, error_code::INTERNAL, "too many requests wait for an answer");
            return None;
        }
        let id = self.journal.next_request();
        let now = self.context.ids.now();
        let request = self.agent_requests.offer(id, offer, now, Instant::now());
        let event = RequestCreated {
            request_id: id,
            method: &request.method,
            params: &request.params,
            subagent: request.subagent.as_deref(),
            deadline: request.deadline,
        };
        let record = RequestRecord { pending: Some((*request).clone()), resolution: None, by: None };
        self.journal.append_with(request.prompt_id, &event, |_, change| change.open_request(id, &record));
        Some(id)
    }

    /// Resolves a request with a checked answer. The agent receives the answer when it is durable.
    pub(super) fn answer(&mut self, by: &Principal, id: RequestId, outcome: Outcome) -> Result<u64, Refusal> {
        self.agent_requests.get(id, self.journal.record().last_request)?;
        let resolving = self.agent_requests.resolve(id, Resolution::Answered, Some(&by.id), outcome);
        Ok(match resolving {
            Some(resolving) => self.resolve(resolving),
            None => self.journal.appended(),
        })
    }

    /// Appends the resolution of a request, and answers the agent at once or after the commit.
    pub(super) fn resolve(&mut self, resolving: Resolving) -> u64 {
        let Resolving { id, request, incoming, record, outcome, at_once } = resolving;
        let event = EncodedEvent::from(&RequestResolved {
            request_id: id,
            method: &request.method,
            resolution: record.resolution.unwrap_or(Resolution::Withdrawn),
            by: record.by.as_deref(),
            result: outcome.as_deref().ok(),
            error: outcome.as_deref().err().map(|error| &**error),
        });
        let seq = self
            .journal
            .append_with(request.prompt_id, event, |_, change| change.resolve_request(id, &record));
        self.turns.note_activity(Instant::now());
        if at_once {
            self.link.answer(incoming, &outcome);
        } else {
            self.agent_requests.answer_after(seq, incoming, outcome);
        }
        seq
    }

    /// Ends the open requests to which `by` applies.
    pub(super) fn end_requests(&mut self, by: EndedBy) {
        while let Some(resolving) = self.agent_requests.end_next(by) {
            self.resolve(resolving);
        }
    }

    /// Sends the answers that have become durable.
    pub(super) fn send_answers(&mut self) {
        let committed = self.journal.committed();
        while let Some((incoming, outcome)) = self.agent_requests.durable_answer(committed) {
            self.link.answer(incoming, &outcome);
        }
    }

    /// Expires requests that no client answered in time. The agent receives a rejection.
    pub(super) fn expire_requests(&mut self, now: Instant) {
        if self.agent_requests.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        let (followed, extension) =
            (self.journal.log().has_reader(), self.context.limits.client_answer_timeout);
        while let Some(resolving) = self.agent_requests.expire_next(now, followed, extension) {
            self.resolve(resolving);
        }
    }

    /// Handles `$/cancel_request` of the agent.
    pub(super) fn cancelled_by_agent(&mut self, params: &RawValue) {
        let Ok(raw_id) = acp::parse_cancel_request(params) else { return };
        let Some(incoming) = self.link.process().and_then(|process| process.connection.find(raw_id)) else {
            return;
        };
        let open = self.agent_requests.find(incoming);
        if let Some(resolving) = open.and_then(|id| self.agent_requests.end(id, Resolution::Withdrawn)) {
            self.resolve(resolving);
        } else if self.client_methods.cancel(incoming) {
            self.refuse(incoming, error_code::REQUEST_CANCELLED, "");
        }
    }
}
