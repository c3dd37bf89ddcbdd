//! Requests of the agent: which side serves them, and questions to a user (ACP, Requesting Permission, Elicitation).

use serde_json::value::RawValue;

use super::Actor;
use crate::acp::{self, ElicitationMode, Outcome, RequestKind, error_code};
use crate::api::Resolution;
use crate::event::ElicitationCompleted;
use crate::jsonrpc::IncomingId;
use crate::session::agent_requests::{OfferedRequest, Wait, policy};
use crate::session::client_methods::WorkOutput;
use crate::types::ServedBy;

/// `Err`: the response that the agent receives at once. Clients do not see the request.
pub(super) type HandlerResult = Result<(), Outcome>;

/// An error response.
pub(super) fn rejected(code: i64, detail: &str) -> Outcome {
    Err(acp::error(code, detail))
}

pub(super) fn invalid(detail: &str) -> Outcome {
    rejected(error_code::INVALID_PARAMS, detail)
}

/// The response if the client that must serve a request has disconnected.
pub(super) fn disconnected() -> Outcome {
    let detail = "the client that served this request has disconnected from the gateway";
    Err(acp::error(error_code::INTERNAL, detail))
}

impl Actor {
    pub(super) fn handle_request(&mut self, incoming: IncomingId, method: &str, params: &RawValue) {
        if let Err(response) = self.serve_request(incoming, method, params) {
            self.link.answer(incoming, &response);
        }
    }

    /// Passes a request to the side that serves it by policy: the gateway, a client, or neither.
    fn serve_request(
        &mut self,
        incoming: IncomingId,
        method: &str,
        params: &RawValue,
    ) -> HandlerResult {
        let kind = RequestKind::from_method(method);
        let unsupported = || Err(Err(acp::method_not_found(method)));
        if !self.attachment.is_attached() {
            // The request arrives before the session is attached or after it is detached.
            return if kind.is_question() {
                Err(kind.cancelled_reply())
            } else {
                unsupported()
            };
        }
        let served_by = match kind {
            RequestKind::Permission | RequestKind::Elicitation | RequestKind::Extension => {
                ServedBy::Client
            }
            _ if !self.link.version().has_client_methods() => ServedBy::Off,
            RequestKind::ReadFile | RequestKind::WriteFile => self.served_by().0,
            RequestKind::CreateTerminal
            | RequestKind::TerminalOutput
            | RequestKind::WaitForExit
            | RequestKind::EndTerminal => self.served_by().1,
        };
        if served_by == ServedBy::Off {
            if let Some(method) = kind.served_method() {
                self.audit_refused(method);
            }
            return unsupported();
        }
        // An elicitation may name a call of the gateway instead of a session. An extension may name neither.
        let needs_session = !matches!(kind, RequestKind::Elicitation | RequestKind::Extension);
        let own = self
            .params_for_clients(params)
            .filter(|_| !needs_session || acp::has_session_id(params));
        let own = own.ok_or_else(|| invalid("expected the sessionId of this session"))?;
        let client = self.serving_client(kind, method, params)?;
        let by_gateway = served_by == ServedBy::Gateway && client.is_none();
        let limits = &self.context.limits;
        let wait = match kind {
            // No client is connected that could know the method.
            RequestKind::Extension if !self.journal.log().has_reader() => return unsupported(),
            RequestKind::Extension => Wait::AtMost(limits.extension_answer_timeout),
            RequestKind::Permission | RequestKind::Elicitation => {
                policy::answer_wait(self.link.spec(), &self.journal.record().policy)
            }
            RequestKind::ReadFile | RequestKind::WriteFile if by_gateway => {
                return self.serve_file(incoming, method, params);
            }
            _ if by_gateway => return self.serve_terminal(incoming, method, params),
            // A command may run for hours, and only the client that runs it knows its state.
            RequestKind::WaitForExit => Wait::WhileFollowed(limits.client_answer_timeout),
            _ => Wait::AtMost(limits.client_answer_timeout),
        };
        let (prompt, subagent) = (self.turns.sent(), self.subagent_of(params));
        let acp_client = client.as_ref().map(|client| client.name.to_string());
        let offer = OfferedRequest {
            method: method.into(),
            incoming,
            params: own,
            prompt,
            subagent,
            acp_client,
            wait,
        };
        match kind {
            RequestKind::Permission => self.handle_permission(offer, params),
            RequestKind::Elicitation => self.handle_elicitation(offer, params),
            _ => match client {
                Some(client) => self.offer_to_client(kind, offer, client),
                None => self.offer_request(offer).map(drop),
            },
        }
    }

    /// Handles a permission request: a user or the policy selects an option. `params` contains the agent's session id.
    fn handle_permission(&mut self, offer: OfferedRequest, params: &RawValue) -> HandlerResult {
        let view = acp::parse_permission(params)
            .map_err(|_| invalid("expected a toolCall, and options that each have an optionId"))?;
        // The request describes its tool call like an update does.
        if let Some(call) = view.tool_call {
            self.turns
                .track_cancellable(acp::update::TOOL_CALL_UPDATE, call);
        }
        let (spec, session_policy) = (self.link.spec(), &self.journal.record().policy);
        let allowed = policy::allows(spec, session_policy, view.tool_kind.as_deref());
        let answer = allowed
            .then(|| view.allow_once(&self.client_rules().settings.denied_modes))
            .flatten();
        self.offer_question(offer, answer)
    }

    /// Offers a question to a user. `allowed`: the answer of the policy.
    fn offer_question(
        &mut self,
        offer: OfferedRequest,
        allowed: Option<Box<RawValue>>,
    ) -> HandlerResult {
        let id = self.offer_request(offer)?;
        let resolving = if self.turns.is_cancelling() {
            // New questions of a cancelled turn are answered at once.
            self.agent_requests.end(id, Resolution::Cancelled)
        } else {
            allowed.and_then(|result| {
                self.agent_requests
                    .resolve(id, Resolution::Policy, None, Ok(result))
            })
        };
        if let Some(resolving) = resolving {
            self.resolve(resolving);
        }
        Ok(())
    }

    /// Handles an elicitation: a form to fill in or a URL to visit. `params` contains the agent's session id, if any.
    fn handle_elicitation(
        &mut self,
        mut offer: OfferedRequest,
        params: &RawValue,
    ) -> HandlerResult {
        let view = acp::parse_elicitation(params).map_err(|error| invalid(&error.to_string()))?;
        match view.request_id.map(|raw| self.public_call_id(raw)) {
            None if acp::has_session_id(params) => {}
            Some(Some(name)) => offer.params = acp::replace_request_id(&offer.params, &name),
            _ => {
                let detail = "expected the sessionId of this session or the requestId of an open request of the client";
                return Err(invalid(detail));
            }
        }
        match view.mode {
            ElicitationMode::Url { elicitation_id } => {
                self.agent_requests
                    .elicitation_began(elicitation_id.into_owned());
                self.offer_elicitation(offer)
            }
            ElicitationMode::Form { .. } => self.check_form(offer),
        }
    }

    /// Checks a form outside of the actor, and then offers it to clients.
    fn check_form(&mut self, offer: OfferedRequest) -> HandlerResult {
        let shutdown = self.context.shutdown.clone();
        self.serve(offer.incoming, false, async move {
            let checked = shutdown.spawn_blocking(move || {
                acp::check_form(&offer.params)
                    .map(|()| offer)
                    .map_err(|error| error.to_string())
            });
            let unchecked = |_| acp::error(error_code::INTERNAL, "the form could not be checked");
            let offer = checked.await.map_err(unchecked)?;
            offer
                .map(WorkOutput::Elicitation)
                .map_err(|detail| acp::error(error_code::INVALID_PARAMS, &detail))
        })
    }

    /// The public id of a call of the gateway: the id of its turn, or `null`. `None` if no such call is open.
    fn public_call_id(&self, raw_id: &RawValue) -> Option<String> {
        let call = self.link.process()?.connection.find_call(raw_id)?;
        let turn = self.turns.sent().filter(|_| self.turns.is_prompt(call));
        Some(turn.map_or_else(|| "null".to_owned(), |prompt| format!("\"{prompt}\"")))
    }

    pub(super) fn offer_elicitation(&mut self, offer: OfferedRequest) -> HandlerResult {
        let ended = offer.prompt.is_some() && offer.prompt != self.turns.sent();
        if ended || !self.attachment.is_attached() {
            return Err(RequestKind::Elicitation.cancelled_reply());
        }
        self.offer_question(offer, None)
    }

    /// Handles `elicitation/complete`: the agent reports, once, that the user completed the page.
    pub(super) fn elicitation_completed(&mut self, params: &RawValue) {
        let Some((id, more)) = acp::completed_elicitation(params) else {
            return;
        };
        if self.agent_requests.elicitation_completed(&id) {
            let event = ElicitationCompleted {
                elicitation_id: &id,
                more: more.as_deref(),
            };
            self.journal.append(self.turns.sent(), &event);
        }
    }
}
