//! Requests of the agent. Policies select the server of each request: the gateway, a client, or neither.

use serde_json::value::RawValue;

use super::actor::Actor;
use super::attachment::Attachment;
use super::requests::{OfferedRequest, Wait};
use crate::acp::{self, RequestKind, error_code};
use crate::jsonrpc::IncomingId;
use crate::types::ServedBy;

impl Actor {
    pub(super) fn handle_request(&mut self, incoming: IncomingId, method: &str, params: &RawValue) {
        let ask = RequestKind::from_method(method);
        if !matches!(self.attachment, Attachment::Attached) {
            return self.reject_unattached(incoming, ask, method);
        }
        let served_by = match ask {
            RequestKind::Permission | RequestKind::Elicitation | RequestKind::Extension => ServedBy::Client,
            _ if !self.dialect().has_client_methods() => ServedBy::Off,
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
        let needs_session = !matches!(ask, RequestKind::Elicitation | RequestKind::Extension);
        let Some(own) =
            self.params_for_clients(params).filter(|_| !needs_session || acp::has_session_id(params))
        else {
            let detail = "expected the sessionId of this session";
            return self.refuse(incoming, error_code::INVALID_PARAMS, detail);
        };
        match ask {
            RequestKind::Permission => self.handle_permission(incoming, params, own),
            RequestKind::Elicitation => self.handle_elicitation(incoming, params, own),
            RequestKind::Extension => {
                let subagent = self.subagent_of(params);
                self.handle_extension_request(incoming, method, own, subagent);
            }
            RequestKind::ReadFile | RequestKind::WriteFile if served_by == ServedBy::Gateway => {
                self.serve_file(incoming, method, params);
            }
            _ if served_by == ServedBy::Gateway => self.serve_terminal(incoming, method, params),
            _ => {
                let limit = self.context.limits.client_answer_timeout;
                // A command may run for hours, and only the client that runs it knows its state.
                let wait = match ask {
                    RequestKind::WaitForExit => Wait::WhileFollowed(limit),
                    _ => Wait::AtMost(limit),
                };
                let (prompt, subagent) = (self.running_turn(), self.subagent_of(params));
                self.offer_request(OfferedRequest { method, incoming, params: own, prompt, subagent, wait });
            }
        }
    }

    /// Rejects a request that arrives before the session is attached or after it is detached.
    fn reject_unattached(&self, incoming: IncomingId, ask: RequestKind, method: &str) {
        if ask.is_question() {
            self.send_answer(incoming, &ask.cancelled_reply());
        } else {
            self.refuse_method(incoming, method);
        }
    }

    /// Offers an extension request to clients. Rejects it at once if no client is connected.
    fn handle_extension_request(
        &mut self,
        incoming: IncomingId,
        method: &str,
        params: Box<RawValue>,
        subagent: Option<String>,
    ) {
        if !self.log.has_reader() {
            return self.refuse_method(incoming, method);
        }
        let (prompt, wait) =
            (self.running_turn(), Wait::AtMost(self.context.limits.extension_answer_timeout));
        self.offer_request(OfferedRequest { method, incoming, params, prompt, subagent, wait });
    }

    fn refuse_method(&self, incoming: IncomingId, method: &str) {
        self.send_answer(incoming, &Err(acp::method_not_found(method)));
    }

    /// Responds to a request of the agent with an error. The request is not shown to clients.
    pub(super) fn refuse(&self, incoming: IncomingId, code: i64, detail: &str) {
        self.send_answer(incoming, &Err(acp::error(code, detail)));
    }
}
