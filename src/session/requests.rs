//! Requests of the agent that a person answers (ACP, Requesting Permission). The first answer wins.

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::actor::Actor;
use super::command::Answer;
use super::record::RequestRecord;
use super::refusal::Refusal;
use super::written::Written;
use crate::acp::{self, error_code};
use crate::agent::Unanswered;
use crate::api::event::{RequestCreated, RequestResolved};
use crate::api::{self, PendingRequest, Resolution};
use crate::eventlog::Records;
use crate::jsonrpc::IncomingId;
use crate::types::{Principal, RequestId};

/// A request that waits for a person.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) shown: PendingRequest,
    incoming: IncomingId,
    deadline: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Resolved {
    id: RequestId,
    resolution: Resolution,
    by: Option<String>,
}

/// An answer that goes to the agent once its event is durable.
#[derive(Debug)]
pub(super) struct Answered {
    seq: u64,
    incoming: IncomingId,
    outcome: Outcome,
}

/// A JSON-RPC result or error.
pub(super) type Outcome = Result<Box<RawValue>, Box<RawValue>>;

/// How many resolved requests an owner remembers; older ones are in the store.
const REMEMBERED: usize = 64;

impl Actor {
    pub(super) fn permission(&mut self, incoming: IncomingId, params: &RawValue) {
        let invalid = |actor: &Self| {
            actor.refuse(
                incoming,
                error_code::INVALID_PARAMS,
                "a permission request of this session was expected",
            );
        };
        let Ok(peek) = acp::peek_permission(params) else { return invalid(self) };
        let Some(own) = self.own_params(params) else { return invalid(self) };
        if self.requests.len() >= self.context.limits.pending_requests {
            return self.refuse(incoming, error_code::INTERNAL, "too many requests wait for an answer");
        }
        let (unanswered, after, allowed) = self.permissions(peek.tool_kind.as_deref());
        let now = Instant::now();
        let id = RequestId::new(self.record.last_request + 1);
        self.record.last_request += 1;
        let created_at = self.context.ids.now();
        let waits = unanswered == Unanswered::Wait;
        let shown = PendingRequest {
            request_id: id,
            method: acp::method::SESSION_REQUEST_PERMISSION.to_owned(),
            params: own,
            prompt_id: self.running(),
            created_at,
            deadline: (!waits).then(|| created_at.after(after)),
        };
        let deadline = (!waits).then(|| now + after);
        self.created_request(Pending { shown, incoming, deadline });
        if self.turn.as_ref().is_some_and(|turn| turn.cancelled_at.is_some()) {
            self.resolve(id, Resolution::Cancelled, None, Ok(acp::cancelled()));
        } else if let Some(result) = allowed.then(|| peek.allow_once()).flatten() {
            self.resolve(id, Resolution::Policy, None, Ok(result));
        }
    }

    fn created_request(&mut self, pending: Pending) {
        let (id, prompt) = (pending.shown.request_id, pending.shown.prompt_id);
        let record = RequestRecord { pending: Some(pending.shown.clone()), resolution: None, by: None };
        let mut records = Records::default();
        record.put(self.record.session_id, id, &mut records);
        let event = Written::from(&RequestCreated {
            request_id: id,
            method: &pending.shown.method,
            params: &pending.shown.params,
            deadline: pending.shown.deadline,
        });
        self.requests.insert(id, pending);
        let records = self.saved(records);
        self.append(prompt, event, records);
    }

    /// The session's policy: what a client narrowed of what the agent's entry has.
    fn permissions(&self, kind: Option<&str>) -> (Unanswered, std::time::Duration, bool) {
        let entry = &self.spec.permissions;
        let narrowed = self.record.policy.permissions.as_ref();
        let unanswered = match narrowed.and_then(|policy| policy.unanswered) {
            Some(api::Unanswered::Reject) => Unanswered::Reject,
            Some(api::Unanswered::Wait) | None => entry.unanswered,
        };
        let after = narrowed.and_then(|policy| policy.after_seconds).map(std::time::Duration::from_secs);
        let after = after.map_or(entry.after, |after| after.min(entry.after));
        let listed = |list: &[String]| kind.is_some_and(|kind| list.iter().any(|allowed| allowed == kind));
        let narrow = narrowed.and_then(|policy| policy.allow.as_deref());
        (unanswered, after, listed(&entry.allow) && narrow.is_none_or(listed))
    }

    /// A person's answer. It is durable before the agent hears of it.
    pub(super) fn answer(&mut self, by: &Principal, id: RequestId, answer: Answer) -> Result<u64, Refusal> {
        let Some(pending) = self.requests.get(&id) else { return Err(self.not_pending(id)) };
        let invalid = |pointer: &str, detail: &str| Refusal::Invalid {
            pointer: pointer.to_owned(),
            detail: detail.to_owned(),
        };
        let peek = acp::peek_permission(&pending.shown.params).map_err(|error| Refusal::internal(&error))?;
        let outcome = match answer {
            Answer::Option(option) if peek.offers(&option) => Ok(acp::selected(&option)),
            Answer::Option(_) => return Err(invalid("/optionId", "the agent did not offer this option")),
            Answer::Cancelled => Ok(acp::cancelled()),
            Answer::Result(result) => {
                peek.check(&result).map_err(|error| invalid("/result", &error.to_string()))?;
                Ok(acp::one_line(result))
            }
            Answer::Error(error) => {
                let object = acp::Object::parse(&error).filter(|object| {
                    let code = object.get("code").is_some_and(|code| code.get().parse::<i64>().is_ok());
                    code && object.text("message").is_some()
                });
                if object.is_none() {
                    return Err(invalid(
                        "/error",
                        "a JSON-RPC error has a number `code` and a text `message`",
                    ));
                }
                Err(acp::one_line(error))
            }
        };
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
            // What is not remembered is in the store, where the handle looks.
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
        let record = RequestRecord { pending: None, resolution: Some(resolution), by: by.clone() };
        record.put(self.record.session_id, id, &mut records);
        let event = RequestResolved {
            request_id: id,
            method: &pending.shown.method,
            resolution,
            by: by.as_deref(),
            result: outcome.as_deref().ok(),
            error: outcome.as_deref().err().map(|error| &**error),
        };
        let records = self.saved(records);
        let seq = self.append(pending.shown.prompt_id, &event, records);
        if let Some(turn) = &mut self.turn {
            // The agent goes on from here: its silence is counted anew.
            turn.active = Instant::now();
        }
        self.resolved.push_back(Resolved { id, resolution, by });
        if self.resolved.len() > REMEMBERED {
            self.resolved.pop_front();
        }
        match resolution {
            // A cancel does not wait, and whoever took it back wants no answer but the protocol's.
            Resolution::Cancelled | Resolution::Withdrawn => self.send_answer(pending.incoming, &outcome),
            _ => self.outbox.push_back(Answered { seq, incoming: pending.incoming, outcome }),
        }
        seq
    }

    pub(super) fn send_answer(&self, incoming: IncomingId, outcome: &Outcome) {
        if let Some(lease) = &self.inputs.lease {
            lease.process().answer(incoming, outcome.as_deref().map_err(|error| &**error));
        }
    }

    /// Sends the answers that have become durable.
    pub(super) fn send_answers(&mut self) {
        let committed = self.log.committed();
        while self.outbox.front().is_some_and(|answer| answer.seq <= committed) {
            if let Some(Answered { incoming, outcome, .. }) = self.outbox.pop_front() {
                self.send_answer(incoming, &outcome);
            }
        }
    }

    /// The agent's `$/cancel_request`: it no longer wants the answer.
    pub(super) fn taken_back(&mut self, params: &RawValue) {
        let Ok(raw_id) = acp::peek_cancel_request(params) else { return };
        let incoming = self.inputs.lease.as_ref().and_then(|lease| lease.process().connection.find(raw_id));
        let id = self.requests.iter().find(|(_, p)| Some(p.incoming) == incoming).map(|(id, _)| *id);
        if let Some(id) = id {
            self.resolve(id, Resolution::Withdrawn, None, Ok(acp::cancelled()));
        }
    }

    /// ACP: after `session/cancel` every open permission request is answered `cancelled`.
    pub(super) fn cancel_requests(&mut self) {
        self.resolve_all(Resolution::Cancelled);
    }

    /// Their turn or their process is over.
    pub(super) fn withdraw_requests(&mut self) {
        self.resolve_all(Resolution::Withdrawn);
    }

    fn resolve_all(&mut self, resolution: Resolution) {
        let open: Vec<RequestId> = self.requests.keys().copied().collect();
        for id in open {
            self.resolve(id, resolution, None, Ok(acp::cancelled()));
        }
    }

    pub(super) fn request_deadline(&self) -> Option<Instant> {
        self.requests.values().filter_map(|pending| pending.deadline).min()
    }

    /// Nobody answered in time: the agent hears no.
    pub(super) fn requests_overdue(&mut self, now: Instant) {
        let due = |pending: &Pending| pending.deadline.is_some_and(|deadline| now >= deadline);
        let overdue: Vec<RequestId> =
            self.requests.iter().filter(|(_, p)| due(p)).map(|(id, _)| *id).collect();
        for id in overdue {
            let params = &self.requests[&id].shown.params;
            let reject = acp::peek_permission(params).map_or_else(|_| acp::cancelled(), |peek| peek.reject());
            self.resolve(id, Resolution::Expired, None, Ok(reject));
        }
    }
}
