//! Questions of the agent to a user: permissions and elicitations (ACP, Requesting Permission, Elicitation).

use serde_json::value::RawValue;

use super::Actor;
use crate::acp::{self, ElicitationMode, RequestKind, error_code};
use crate::api::Resolution;
use crate::event::ElicitationCompleted;
use crate::jsonrpc::IncomingId;
use crate::session::agent_requests::{OfferedRequest, policy};
use crate::session::client_methods::{CheckedElicitation, WorkOutput};

impl Actor {
    /// Handles a permission request: a user or the policy selects an option. `own` is the params with the gateway's session id.
    pub(super) fn handle_permission(&mut self, incoming: IncomingId, params: &RawValue, own: Box<RawValue>) {
        let Ok(view) = acp::parse_permission(params) else {
            return self.refuse(
                incoming,
                error_code::INVALID_PARAMS,
                "expected a toolCall, and options that each have an optionId",
            );
        };
        // The request describes its tool call like an update does.
        if let Some(call) = view.tool_call {
            self.turns.track_cancellable(acp::update::TOOL_CALL_UPDATE, call);
        }
        let (spec, session_policy) = (self.link.spec(), &self.journal.record().policy);
        let allowed = policy::allows(spec, session_policy, view.tool_kind.as_deref());
        let allowed = allowed.then(|| view.allow_once()).flatten();
        let offer = OfferedRequest {
            method: acp::method::SESSION_REQUEST_PERMISSION,
            incoming,
            params: own,
            prompt: self.turns.sent(),
            subagent: self.subagent_of(params),
            wait: policy::answer_wait(spec, session_policy),
        };
        let Some(id) = self.offer_request(offer) else { return };
        let resolving = if self.turns.is_cancelling() {
            // New questions of a cancelled turn are answered at once.
            self.agent_requests.end(id, Resolution::Cancelled)
        } else {
            allowed.and_then(|result| self.agent_requests.resolve(id, Resolution::Policy, None, Ok(result)))
        };
        if let Some(resolving) = resolving {
            self.resolve(resolving);
        }
    }

    /// Handles an elicitation: a form to fill in or a URL to visit. `own` is the params with the gateway's session id, if
    /// they contain one.
    pub(super) fn handle_elicitation(&mut self, incoming: IncomingId, params: &RawValue, own: Box<RawValue>) {
        let view = match acp::parse_elicitation(params) {
            Ok(view) => view,
            Err(error) => return self.refuse(incoming, error_code::INVALID_PARAMS, &error.to_string()),
        };
        let subagent = self.subagent_of(params);
        let params = match view.request_id.map(|raw| self.public_call_id(raw)) {
            None if acp::has_session_id(params) => own,
            Some(Some(name)) => acp::replace_request_id(&own, &name),
            _ => {
                let detail = "expected the sessionId of this session or the requestId of an open request of the client";
                return self.refuse(incoming, error_code::INVALID_PARAMS, detail);
            }
        };
        let elicitation = CheckedElicitation { params, prompt: self.turns.sent(), subagent };
        match view.mode {
            ElicitationMode::Url { elicitation_id } => {
                self.agent_requests.elicitation_began(elicitation_id.into_owned());
                self.offer_elicitation(incoming, elicitation);
            }
            ElicitationMode::Form { .. } => self.check_form(incoming, elicitation),
        }
    }

    /// Checks a form outside of the actor, and then offers it to clients.
    fn check_form(&mut self, incoming: IncomingId, elicitation: CheckedElicitation) {
        let shutdown = self.context.shutdown.clone();
        self.serve_to_completion(incoming, async move {
            let checked = shutdown.spawn_blocking(move || {
                let usable = acp::check_form(&elicitation.params).map_err(|error| error.to_string());
                usable.map(|()| elicitation)
            });
            match checked.await {
                Ok(Ok(elicitation)) => WorkOutput::Elicitation(elicitation),
                Ok(Err(detail)) => WorkOutput::Answer(Err(acp::error(error_code::INVALID_PARAMS, &detail))),
                Err(_) => {
                    let detail = "the form could not be checked";
                    WorkOutput::Answer(Err(acp::error(error_code::INTERNAL, detail)))
                }
            }
        });
    }

    /// The public id of a call of the gateway: the id of its turn, or `null`. `None` if no such call is open.
    fn public_call_id(&self, raw_id: &RawValue) -> Option<String> {
        let call = self.link.process()?.connection.find_call(raw_id)?;
        let turn = self.turns.sent().filter(|_| self.turns.is_prompt(call));
        Some(turn.map_or_else(|| "null".to_owned(), |prompt| format!("\"{prompt}\"")))
    }

    pub(super) fn offer_elicitation(&mut self, incoming: IncomingId, elicitation: CheckedElicitation) {
        let CheckedElicitation { params, prompt, subagent } = elicitation;
        let ended = prompt.is_some() && prompt != self.turns.sent();
        if ended || !self.attachment.is_attached() {
            return self.link.answer(incoming, &RequestKind::Elicitation.cancelled_reply());
        }
        let method = acp::method::ELICITATION_CREATE;
        let wait = policy::answer_wait(self.link.spec(), &self.journal.record().policy);
        let offered = self.offer_request(OfferedRequest { method, incoming, params, prompt, subagent, wait });
        if self.turns.is_cancelling()
            && let Some(id) = offered
            && let Some(resolving) = self.agent_requests.end(id, Resolution::Cancelled)
        {
            self.resolve(resolving);
        }
    }

    /// Handles `elicitation/complete`: the agent reports, once, that the user completed the page.
    pub(super) fn elicitation_completed(&mut self, params: &RawValue) {
        let Some((id, more)) = acp::completed_elicitation(params) else { return };
        if self.agent_requests.elicitation_completed(&id) {
            let event = ElicitationCompleted { elicitation_id: &id, more: more.as_deref() };
            self.journal.append(self.turns.sent(), &event);
        }
    }
}
