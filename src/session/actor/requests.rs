//! Requests of the agent: which side serves them.

use serde_json::value::RawValue;

use super::Actor;
use crate::acp::{self, RequestKind, error_code};
use crate::jsonrpc::IncomingId;
use crate::session::agent_requests::{OfferedRequest, Wait};
use crate::types::ServedBy;

impl Actor {
    /// Passes a request to the side that serves it by policy: the gateway, a client, or neither.
    pub(super) fn handle_request(&mut self, incoming: IncomingId, method: &str, params: &RawValue) {
        let kind = RequestKind::from_method(method);
        if !self.attachment.is_attached() {
            return self.reject_unattached(incoming, kind, method);
        }
        let served_by = match kind {
            RequestKind::Permission | RequestKind::Elicitation | RequestKind::Extension => ServedBy::Client,
            _ if !self.link.dialect().has_client_methods() => ServedBy::Off,
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

    pub(super) fn refuse_method(&self, incoming: IncomingId, method: &str) {
        self.link.answer(incoming, &Err(acp::method_not_found(method)));
    }

    /// Responds to a request of the agent with an error. The request is not shown to clients.
    pub(super) fn refuse(&self, incoming: IncomingId, code: i64, detail: &str) {
        self.link.answer(incoming, &Err(acp::error(code, detail)));
    }
}
