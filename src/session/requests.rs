//! Requests of the agent that clients answer. The first answer wins.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::actor::Actor;
use super::record::RequestRecord;
use super::refusal::Refusal;
use crate::acp::{self, RequestKind, error_code};
use crate::api::{PendingRequest, Resolution};
use crate::event::{EncodedEvent, RequestCreated, RequestResolved};
use crate::eventlog::Records;
use crate::jsonrpc::IncomingId;
use crate::types::{Principal, PromptId, RequestId};

/// A request that waits for an answer of a client.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) request: Arc<PendingRequest>,
    kind: RequestKind,
    incoming: IncomingId,
    deadline: Option<Instant>,
}

/// A request that is about to be offered to clients.
#[derive(Debug)]
pub(super) struct OfferedRequest<'a> {
    pub(super) method: &'a str,
    pub(super) incoming: IncomingId,
    /// The raw params, with the gateway's session id.
    pub(super) params: Box<RawValue>,
    /// The turn to which the request belongs.
    pub(super) prompt: Option<PromptId>,
    /// The child session that sent the request.
    pub(super) subagent: Option<String>,
    pub(super) wait: Wait,
}

/// How long a request waits for its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    AtMost(Duration),
    /// As long as a client follows the session's log, and this long without one.
    WhileFollowed(Duration),
    /// As long as its turn runs.
    Turn,
}

#[derive(Debug)]
pub(super) struct Resolved {
    id: RequestId,
    resolution: Resolution,
    by: Option<String>,
}

/// An answer that is sent to the agent when its event is durable.
#[derive(Debug)]
pub(super) struct QueuedAnswer {
    seq: u64,
    incoming: IncomingId,
    outcome: Outcome,
}

/// A JSON-RPC result or error.
pub(super) type Outcome = acp::Outcome;

/// The number of resolved requests that the actor remembers. Older ones are in the store.
const MAX_REMEMBERED: usize = 64;

impl Actor {
    /// Offers a request to clients. If too many requests are open, rejects it and returns `None`.
    pub(super) fn offer_request(&mut self, offer: OfferedRequest<'_>) -> Option<RequestId> {
        let OfferedRequest { method, incoming, params, prompt, subagent, wait } = offer;
        if self.requests.len() >= self.context.limits.max_pending_requests {
            self.refuse(incoming, error_code::INTERNAL, "too many requests wait for an answer");
            return None;
        }
        let id = RequestId::new(self.record.last_request + 1);
        self.record.last_request += 1;
        let created_at = self.context.ids.now();
        let shown = Arc::new(PendingRequest {
            request_id: id,
            method: method.to_owned(),
            params,
            prompt_id: prompt,
            subagent,
            created_at,
            deadline: match wait {
                Wait::AtMost(limit) => Some(created_at.after(limit)),
                Wait::WhileFollowed(_) | Wait::Turn => None,
            },
        });
        let deadline = match wait {
            Wait::AtMost(limit) | Wait::WhileFollowed(limit) => Some(Instant::now() + limit),
            Wait::Turn => None,
        };
        let record = RequestRecord::open(&shown);
        let mut records = Records::default();
        record.put(self.record.session_id, id, &mut records);
        let event = EncodedEvent::from(&RequestCreated {
            request_id: id,
            method,
            params: &shown.params,
            subagent: shown.subagent.as_deref(),
            deadline: shown.deadline,
        });
        self.requests.insert(
            id,
            Pending { request: shown, kind: RequestKind::from_method(method), incoming, deadline },
        );
        let records = self.with_session_records(records);
        self.append(prompt, event, records);
        Some(id)
    }

    /// The open request with this id.
    pub(super) fn pending(&self, id: RequestId) -> Result<Arc<PendingRequest>, Refusal> {
        self.requests.get(&id).map(|pending| Arc::clone(&pending.request)).ok_or_else(|| self.not_pending(id))
    }

    /// Resolves a request with a checked answer. The agent receives the answer when it is durable.
    pub(super) fn answer(&mut self, by: &Principal, id: RequestId, outcome: Outcome) -> Result<u64, Refusal> {
        if !self.requests.contains_key(&id) {
            return Err(self.not_pending(id));
        }
        Ok(self.resolve(id, Resolution::Answered, Some(&by.id), outcome))
    }

    fn not_pending(&self, id: RequestId) -> Refusal {
        if id.number() == 0 || id.number() > self.record.last_request {
            return Refusal::NotFound("request");
        }
        match self.resolved.iter().find(|resolved| resolved.id == id) {
            Some(known) => {
                Refusal::RequestResolved { id, resolution: known.resolution, by: known.by.clone() }
            }
            // Older resolutions are in the store, and the handle looks them up there.
            None => Refusal::NotFound("request"),
        }
    }

    pub(super) fn resolve(
        &mut self,
        id: RequestId,
        resolution: Resolution,
        by: Option<&str>,
        outcome: Outcome,
    ) -> u64 {
        let Some(pending) = self.requests.remove(&id) else { return self.log.appended() };
        let mut records = Records::default();
        let by = by.map(str::to_owned);
        let record = RequestRecord::resolved(resolution, by.clone());
        record.put(self.record.session_id, id, &mut records);
        let event = RequestResolved {
            request_id: id,
            method: &pending.request.method,
            resolution,
            by: by.as_deref(),
            result: outcome.as_deref().ok(),
            error: outcome.as_deref().err().map(|error| &**error),
        };
        let records = self.with_session_records(records);
        let seq = self.append(pending.request.prompt_id, &event, records);
        if let Some(turn) = &mut self.turn {
            // The agent continues now, so its silence is measured from here.
            turn.last_activity = Instant::now();
        }
        self.resolved.push_back(Resolved { id, resolution, by });
        if self.resolved.len() > MAX_REMEMBERED {
            self.resolved.pop_front();
        }
        match resolution {
            // The agent receives ACP's response to a cancelled request at once, before the commit.
            Resolution::Cancelled | Resolution::Withdrawn => self.send_answer(pending.incoming, &outcome),
            _ => self.outbox.push_back(QueuedAnswer { seq, incoming: pending.incoming, outcome }),
        }
        seq
    }

    pub(super) fn send_answer(&self, incoming: IncomingId, outcome: &Outcome) {
        if let Some(lease) = &self.event_loop.lease {
            lease.process().answer(incoming, outcome.as_deref().map_err(|error| &**error));
        }
    }

    /// Sends the answers that have become durable.
    pub(super) fn send_answers(&mut self) {
        let committed = self.log.committed();
        while self.outbox.front().is_some_and(|answer| answer.seq <= committed) {
            if let Some(QueuedAnswer { incoming, outcome, .. }) = self.outbox.pop_front() {
                self.send_answer(incoming, &outcome);
            }
        }
    }

    /// Handles `$/cancel_request` of the agent.
    pub(super) fn cancelled_by_agent(&mut self, params: &RawValue) {
        let Ok(raw_id) = acp::parse_cancel_request(params) else { return };
        let incoming =
            self.event_loop.lease.as_ref().and_then(|lease| lease.process().connection.find(raw_id));
        let Some(incoming) = incoming else { return };
        match self.requests.iter().find(|(_, pending)| pending.incoming == incoming) {
            Some((id, _)) => self.end_request(*id, Resolution::Withdrawn),
            None => self.cancel_serving(incoming),
        }
    }

    /// After `session/cancel`, ACP requires that every open permission request of the turn is answered with
    /// `cancelled`. Other requests of the turn end as well, so that the agent can end the turn.
    pub(super) fn cancel_requests(&mut self) {
        let running = self.running_turn();
        self.end_requests(Resolution::Cancelled, |pending| pending.request.prompt_id == running);
    }

    /// Withdraws the questions of an ended turn. File and terminal requests may outlive the turn.
    pub(super) fn withdraw_questions(&mut self) {
        self.end_requests(Resolution::Withdrawn, |pending| pending.kind.is_question());
    }

    /// Withdraws all requests, because the session releases its process or the gateway drains.
    pub(super) fn withdraw_requests(&mut self) {
        self.end_requests(Resolution::Withdrawn, |_| true);
    }

    fn end_requests(&mut self, resolution: Resolution, which: impl Fn(&Pending) -> bool) {
        let open: Vec<RequestId> =
            self.requests.iter().filter(|(_, pending)| which(pending)).map(|(id, _)| *id).collect();
        for id in open {
            self.end_request(id, resolution);
        }
    }

    pub(super) fn end_request(&mut self, id: RequestId, resolution: Resolution) {
        if let Some(pending) = self.requests.get(&id) {
            let outcome = pending.kind.cancelled_reply();
            self.resolve(id, resolution, None, outcome);
        }
    }

    pub(super) fn request_deadline(&self) -> Option<Instant> {
        self.requests.values().filter_map(|pending| pending.deadline).min()
    }

    /// Expires requests that no client answered in time. The agent receives a rejection.
    pub(super) fn expire_requests(&mut self, now: Instant) {
        let due = |pending: &Pending| pending.deadline.is_some_and(|deadline| now >= deadline);
        let overdue: Vec<RequestId> =
            self.requests.iter().filter(|(_, p)| due(p)).map(|(id, _)| *id).collect();
        for id in overdue {
            let followed = self.log.has_reader();
            let Some(pending) = self.requests.get_mut(&id) else { continue };
            if pending.kind == RequestKind::WaitForExit && followed {
                pending.deadline = Some(now + self.context.limits.client_answer_timeout);
                continue;
            }
            let outcome = pending.kind.timeout_reply(&pending.request.params);
            self.resolve(id, Resolution::Expired, None, outcome);
        }
    }
}
