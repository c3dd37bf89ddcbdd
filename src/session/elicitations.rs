//! `elicitation/create` (ACP, Elicitation): a form to fill in or a URL to visit.

use serde_json::value::RawValue;

use super::actor::Actor;
use super::attachment::Attachment;
use super::client_methods::WorkOutput;
use super::requests::OfferedRequest;
use crate::acp::{self, ElicitationMode, RequestKind, error_code};
use crate::api::Resolution;
use crate::event::ElicitationCompleted;
use crate::eventlog::Records;
use crate::jsonrpc::IncomingId;
use crate::types::PromptId;

/// The maximum number of elicitation URLs that the actor remembers.
const MAX_REMEMBERED: usize = 64;

/// A checked elicitation that can be offered to clients.
#[derive(Debug)]
pub(super) struct CheckedElicitation {
    params: Box<RawValue>,
    prompt: Option<PromptId>,
    subagent: Option<String>,
}

impl Actor {
    /// Handles an elicitation. `own` is the params with the gateway's session id, if they contain one.
    pub(super) fn handle_elicitation(&mut self, incoming: IncomingId, params: &RawValue, own: Box<RawValue>) {
        let invalid = |actor: &Self, detail: &str| actor.refuse(incoming, error_code::INVALID_PARAMS, detail);
        let view = match acp::parse_elicitation(params) {
            Ok(view) => view,
            Err(error) => return invalid(self, &error.to_string()),
        };
        let subagent = self.subagent_of(params);
        let named = view.request_id.map(|raw| self.public_call_id(raw));
        let params = match named {
            None if acp::has_session_id(params) => own,
            Some(Some(name)) => acp::replace_request_id(&own, &name),
            _ => {
                return invalid(
                    self,
                    "expected the sessionId of this session or the requestId of an open request of the client",
                );
            }
        };
        let elicit = CheckedElicitation { params, prompt: self.running_turn(), subagent };
        match view.mode {
            ElicitationMode::Url { elicitation_id } => {
                self.elicitations.push_back(elicitation_id.into_owned());
                if self.elicitations.len() > MAX_REMEMBERED {
                    self.elicitations.pop_front();
                }
                self.offer_elicitation(incoming, elicit);
            }
            ElicitationMode::Form { .. } => {
                let shutdown = self.context.shutdown.clone();
                self.serve_to_completion(incoming, async move {
                    let checked = shutdown.spawn_blocking(move || {
                        let usable = acp::check_form(&elicit.params).map_err(|error| error.to_string());
                        usable.map(|()| elicit)
                    });
                    match checked.await {
                        Ok(Ok(elicit)) => WorkOutput::Elicitation(elicit),
                        Ok(Err(detail)) => {
                            WorkOutput::Answer(Err(acp::error(error_code::INVALID_PARAMS, &detail)))
                        }
                        Err(_) => {
                            let detail = "the form could not be checked";
                            WorkOutput::Answer(Err(acp::error(error_code::INTERNAL, detail)))
                        }
                    }
                });
            }
        }
    }

    /// The public id of a call of the gateway: the id of its turn, or `null`. `None` if no such call is open.
    fn public_call_id(&self, raw_id: &RawValue) -> Option<String> {
        let call = self.event_loop.lease.as_ref()?.process().connection.find_call(raw_id)?;
        let turn = self.turn.as_ref().filter(|turn| turn.call == Some(call));
        Some(turn.map_or_else(|| "null".to_owned(), |turn| format!("\"{}\"", turn.record.prompt_id)))
    }

    pub(super) fn offer_elicitation(
        &mut self,
        incoming: IncomingId,
        CheckedElicitation { params, prompt, subagent }: CheckedElicitation,
    ) {
        let over = prompt.is_some() && prompt != self.running_turn();
        if over || !matches!(self.attachment, Attachment::Attached) {
            return self.send_answer(incoming, &RequestKind::Elicitation.cancelled_reply());
        }
        let (method, wait) = (acp::method::ELICITATION_CREATE, self.answer_wait());
        let offered = self.offer_request(OfferedRequest { method, incoming, params, prompt, subagent, wait });
        if let Some(id) = offered.filter(|_| self.is_cancelling()) {
            self.end_request(id, Resolution::Cancelled);
        }
    }

    /// Handles `elicitation/complete`: the agent reports, once, that the user completed the page.
    pub(super) fn elicitation_completed(&mut self, params: &RawValue) {
        let Some((id, more)) = acp::completed_elicitation(params) else { return };
        let Some(place) = self.elicitations.iter().position(|known| *known == *id) else { return };
        self.elicitations.remove(place);
        let prompt = self.running_turn();
        self.append(
            prompt,
            &ElicitationCompleted { elicitation_id: &id, more: more.as_deref() },
            Records::default(),
        );
    }
}
