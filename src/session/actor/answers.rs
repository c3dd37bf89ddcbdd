//! Requests that clients answer: offered, resolved by the first answer, ended, and expired.

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Actor;
use crate::acp::{self, Outcome, error_code, method};
use crate::api::{PendingRequest, Resolution};
use crate::event::{EncodedEvent, RequestCreated, RequestResolved};
use crate::session::agent_requests::{EndedBy, OfferedRequest, Resolving};
use crate::session::error::AnswerError;
use crate::session::record::{PeerRequest, RequestRecord};
use crate::types::{Author, RequestId};

impl Actor {
    /// Offers a request to clients. Fails with the response for the agent if too many requests are open.
    pub(in crate::session) fn offer_request(
        &mut self,
        offer: OfferedRequest,
    ) -> Result<RequestId, Outcome> {
        if self.agent_requests.len() >= self.context.limits.max_pending_requests {
            return Err(Err(acp::error(
                error_code::INTERNAL,
                "too many requests wait for an answer",
            )));
        }
        let id = self.journal.next_request();
        let peer = self.link.peer_request(offer.incoming);
        let request = self
            .agent_requests
            .offer(id, offer, self.context.ids.now(), Instant::now());
        let event = RequestCreated {
            request_id: id,
            method: &request.method,
            params: &request.params,
            subagent: request.subagent.as_deref(),
            acp_client: request.acp_client.as_deref(),
            deadline: request.deadline,
        };
        let record = RequestRecord::open(&request, peer);
        self.journal
            .append_with(request.prompt_id, &event, |_, change| {
                change.open_request(id, &record);
            });
        Ok(id)
    }

    /// Resolves a request with a checked answer. The agent receives the answer when it is durable.
    pub(in crate::session) fn answer(
        &mut self,
        by: &Author,
        id: RequestId,
        outcome: Outcome,
    ) -> Result<u64, AnswerError> {
        self.agent_requests.get(id)?;
        let resolving = self
            .agent_requests
            .resolve(id, Resolution::Answered, Some(by), outcome);
        Ok(match resolving {
            Some(resolving) => self.resolve(resolving),
            None => self.journal.appended(),
        })
    }

    /// Appends the resolution of a request, and answers the agent at once or after the commit.
    pub(in crate::session) fn resolve(&mut self, resolving: Resolving) -> u64 {
        let Resolving {
            request,
            incoming,
            resolution,
            by,
            outcome,
            at_once,
        } = resolving;
        let outcome = self.client_served(&request, outcome);
        let peer = self.link.peer_request(incoming);
        let seq = self.append_resolved(&request, resolution, by, &outcome, peer);
        self.turns.note_activity(Instant::now());
        if at_once {
            self.link.answer(incoming, &outcome);
        } else {
            self.agent_requests.answer_after(seq, incoming, outcome);
        }
        seq
    }

    /// Appends the only end of a request. The decision about a permission is durable in the audit log no later than
    /// the end, and therefore before the agent receives the answer.
    pub(in crate::session) fn append_resolved(
        &mut self,
        request: &PendingRequest,
        resolution: Resolution,
        by: Option<Author>,
        outcome: &Outcome,
        peer: Option<PeerRequest>,
    ) -> u64 {
        self.audit_decision(request, resolution, by.as_ref(), outcome);
        let id = request.request_id;
        let by = by.map(|author| author.name.to_string());
        let is_permission = request.method == method::SESSION_REQUEST_PERMISSION;
        let view = is_permission
            .then(|| acp::parse_permission(&request.params).ok())
            .flatten();
        let event = EncodedEvent::from(&RequestResolved {
            request_id: id,
            method: &request.method,
            tool_call_id: view.as_ref().and_then(|view| view.tool_call_id.as_deref()),
            resolution,
            acp_client: request.acp_client.as_deref(),
            by: by.as_deref(),
            result: outcome.as_deref().ok(),
            error: outcome.as_deref().err().map(|error| &**error),
        });
        let peer = peer.map(|peer| peer.answered(outcome.clone()));
        let record = RequestRecord::resolved(resolution, by, peer);
        self.journal
            .append_with(request.prompt_id, event, |_, change| {
                change.resolve_request(id, &record);
            })
    }

    /// Ends the open requests to which `by` applies.
    pub(in crate::session) fn end_requests(&mut self, by: EndedBy) {
        while let Some(resolving) = self.agent_requests.end_next(by) {
            self.resolve(resolving);
        }
    }

    /// Sends the answers that have become durable.
    pub(in crate::session) fn send_answers(&mut self) {
        let committed = self.journal.log().committed();
        while let Some((incoming, outcome)) = self.agent_requests.durable_answer(committed) {
            self.link.answer(incoming, &outcome);
        }
    }

    /// Expires requests that no client answered in time. The agent receives a rejection.
    pub(in crate::session) fn expire_requests(&mut self, now: Instant) {
        if self
            .agent_requests
            .deadline()
            .is_none_or(|deadline| now < deadline)
        {
            return;
        }
        let (followed, extension) = (
            self.journal.log().has_reader(),
            self.context.limits.client_answer_timeout,
        );
        while let Some(resolving) = self.agent_requests.expire_next(now, followed, extension) {
            self.resolve(resolving);
        }
    }

    /// Handles `$/cancel_request` of the agent.
    pub(in crate::session) fn cancelled_by_agent(&mut self, params: &RawValue) {
        let Ok(acp::CancelRequest { request_id: raw_id }) = acp::parse(params) else {
            return;
        };
        let found = self
            .link
            .process()
            .and_then(|process| process.connection.find(raw_id));
        let Some(incoming) = found else { return };
        let open = self.agent_requests.find(incoming);
        if let Some(resolving) =
            open.and_then(|id| self.agent_requests.end(id, Resolution::Withdrawn))
        {
            self.resolve(resolving);
        } else if self.client_methods.cancel(incoming) {
            self.link.answer(
                incoming,
                &Err(acp::error(error_code::REQUEST_CANCELLED, "")),
            );
        }
    }
}
