//! Requests of the agent. Policies select the server of each request: the gateway, a client, or neither.

use serde_json::value::RawValue;

use super::actor::Actor;
use super::attachment::Attachment;
use super::requests::{Offer, Wait};
use crate::acp::{self, Ask, error_code};
use crate::jsonrpc::IncomingId;
use crate::types::ServedBy;

impl Actor {
    pub(super) fn asked(&mut self, incoming: IncomingId, method: &str, params: &RawValue) {
        let ask = Ask::of(method);
        if !matches!(self.attachment, Attachment::Attached) {
            return self.asked_too_soon(incoming, ask, method);
        }
        let served_by = match ask {
            Ask::Permission | Ask::Elicitation | Ask::Extension => ServedBy::Client,
            _ if !self.dialect().asks_for_files() => ServedBy::Off,
            Ask::ReadFile | Ask::WriteFile => self.files(),
            Ask::CreateTerminal | Ask::TerminalOutput | Ask::WaitForExit | Ask::EndTerminal => {
                self.terminals()
            }
        };
        if served_by == ServedBy::Off {
            return self.refuse_method(incoming, method);
        }
        // An elicitation may name a call of the gateway instead of a session. An extension may name neither.
        let needs_session = !matches!(ask, Ask::Elicitation | Ask::Extension);
        let Some(own) = self.own_params(params).filter(|_| !needs_session || acp::names_session(params))
        else {
            let detail = "expected the sessionId of this session";
            return self.refuse(incoming, error_code::INVALID_PARAMS, detail);
        };
        match ask {
            Ask::Permission => self.permission(incoming, params, own),
            Ask::Elicitation => self.elicitation(incoming, params, own),
            Ask::Extension => {
                let subagent = self.subagent_of(params);
                self.extension_asked(incoming, method, own, subagent);
            }
            Ask::ReadFile | Ask::WriteFile if served_by == ServedBy::Gateway => {
                self.serve_file(incoming, method, params);
            }
            _ if served_by == ServedBy::Gateway => self.serve_terminal(incoming, method, params),
            _ => {
                let limit = self.context.limits.client_answer;
                // A command may run for hours, and only the client that runs it knows its state.
                let wait = match ask {
                    Ask::WaitForExit => Wait::WhileFollowed(limit),
                    _ => Wait::AtMost(limit),
                };
                let (prompt, subagent) = (self.running(), self.subagent_of(params));
                self.offer_request(Offer { method, incoming, params: own, prompt, subagent, wait });
            }
        }
    }

    /// Rejects a request that arrives before the session is attached or after it is detached.
    fn asked_too_soon(&self, incoming: IncomingId, ask: Ask, method: &str) {
        if ask.is_question() {
            self.send_answer(incoming, &ask.cancelled());
        } else {
            self.refuse_method(incoming, method);
        }
    }

    /// Offers an extension request to clients. Rejects it at once if no client is connected.
    fn extension_asked(
        &mut self,
        incoming: IncomingId,
        method: &str,
        params: Box<RawValue>,
        subagent: Option<String>,
    ) {
        if !self.log.is_followed() {
            return self.refuse_method(incoming, method);
        }
        let (prompt, wait) = (self.running(), Wait::AtMost(self.context.limits.extension_answer));
        self.offer_request(Offer { method, incoming, params, prompt, subagent, wait });
    }

    fn refuse_method(&self, incoming: IncomingId, method: &str) {
        self.send_answer(incoming, &Err(acp::method_not_found(method)));
    }

    /// Responds to a request of the agent with an error. The request is not shown to clients.
    pub(super) fn refuse(&self, incoming: IncomingId, code: i64, detail: &str) {
        self.send_answer(incoming, &Err(acp::error(code, detail)));
    }
}
