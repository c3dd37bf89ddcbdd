//! The requests that wait for an answer of a client. The first answer wins.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::allowed_calls::AllowedCalls;
use super::client_tools::ToolClients;
use super::offer::{Offer, Wait};
use super::work::Work;
use crate::session::error::{AnswerError, NotFound, RequestResolved};
use crate::session::journal::Journal;
use crate::session::record::{PeerRequest, RequestRecord, TerminalRecord};
use base::telemetry::metrics;
use base::telemetry::metrics::Level;
use base::telemetry::traces::TraceSpan;
use base::types::{Author, PromptId, RequestId};
use events::api::{PendingRequest, Resolution};
use events::event::{EncodedEvent, RequestCreated, RequestResolved as ResolvedEvent};
use log::audit::Audit;
use wire::acp::{self, Outcome, RequestKind, error_code, method};
use wire::jsonrpc::IncomingId;
use workspace::AgentTerminals;

/// The number of resolved requests that are remembered. Older ones are in the store.
const MAX_RESOLVED: usize = 64;
/// The maximum number of elicitation URLs that are remembered.
const MAX_ELICITATIONS: usize = 64;

pub(crate) struct Requests {
    pub(super) open: BTreeMap<RequestId, OpenRequest>,
    /// The requests that were resolved last, for clients that answer too late.
    pub(super) resolved: VecDeque<(RequestId, Resolution, Option<String>)>,
    /// Responses, each with the sequence number of the event that must be durable before the agent receives the response.
    pub(super) outbox: VecDeque<(u64, IncomingId, Outcome)>,
    /// The URLs that the agent asked a user to visit and has not reported as completed.
    elicitations: VecDeque<String>,
    pub(crate) tool_clients: ToolClients,
    pub(crate) work: Work,
    /// The terminals that the gateway runs for the agent (ACP, Terminals). A terminal belongs to the session and ends at the
    /// latest when the session releases its process.
    pub(crate) terminals: AgentTerminals<TerminalRecord>,
    /// The tool calls that permissions allowed and that have not ended.
    pub(crate) allowed_calls: AllowedCalls,
    pub(super) audit: Audit,
}

pub(super) struct OpenRequest {
    pub(super) request: Arc<PendingRequest>,
    pub(super) kind: RequestKind,
    pub(super) incoming: IncomingId,
    /// The request as its agent knows it, if the agent's process outlives the gateway.
    peer: Option<PeerRequest>,
    deadline: Option<Instant>,
    _level: Level,
    /// It ends with the request.
    trace: Option<TraceSpan>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndedBy {
    /// The cancel of this turn. ACP requires that every open permission request is then answered with `cancelled`.
    Cancel(Option<PromptId>),
    /// The end of a turn withdraws its questions. File and terminal requests may outlive the turn.
    TurnEnd,
    /// The session releases its process, or the gateway drains.
    Release,
}

impl EndedBy {
    fn ends(self, open: &OpenRequest) -> bool {
        match self {
            Self::Cancel(prompt) => open.request.prompt_id == prompt,
            Self::TurnEnd => open.kind.is_question(),
            Self::Release => true,
        }
    }
}

pub(crate) fn rejected(code: i64, detail: &str) -> Outcome {
    Err(acp::error(code, detail))
}

impl Requests {
    pub(crate) fn new(work: Work, terminals: AgentTerminals<TerminalRecord>, audit: Audit) -> Self {
        Self {
            open: BTreeMap::new(),
            resolved: VecDeque::new(),
            outbox: VecDeque::new(),
            elicitations: VecDeque::new(),
            tool_clients: ToolClients::default(),
            work,
            terminals,
            allowed_calls: AllowedCalls::new(audit.clone()),
            audit,
        }
    }

    /// The open requests as clients see them.
    pub(crate) fn shown(&self) -> Vec<PendingRequest> {
        let open = self.open.values();
        open.map(|open| (*open.request).clone()).collect()
    }

    pub(crate) fn waits_for_commit(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Offers a request to clients. Fails with the response for the agent if `max_open` requests are open.
    pub(crate) fn offer(
        &mut self,
        journal: &mut Journal,
        offer: Offer,
        peer: Option<PeerRequest>,
        max_open: usize,
        now: Instant,
    ) -> Result<RequestId, Outcome> {
        if self.open.len() >= max_open {
            let detail = "too many requests wait for an answer";
            return Err(rejected(error_code::INTERNAL, detail));
        }
        let Offer {
            mut request,
            incoming,
            wait,
        } = offer;
        let id = journal.next_request();
        request.request_id = id;
        request.created_at = journal.now();
        let deadline = match wait {
            Wait::AtMost(limit) => {
                request.deadline = Some(request.created_at.after(limit));
                Some(now + limit)
            }
            Wait::WhileFollowed(limit) => Some(now + limit),
            Wait::Turn => None,
        };
        let event = RequestCreated {
            request_id: id,
            method: &request.method,
            params: &request.params,
            subagent: request.subagent.as_deref(),
            acp_client: request.acp_client.as_deref(),
            deadline: request.deadline,
        };
        let record = RequestRecord::open(&request, peer.clone());
        journal.append_with(request.prompt_id, &event, |_, change| {
            change.open_request(id, &record);
        });
        self.insert(request, incoming, peer, deadline);
        Ok(id)
    }

    /// Opens a request that a previous gateway process has offered.
    pub(crate) fn restore(
        &mut self,
        journal: &Journal,
        request: PendingRequest,
        incoming: IncomingId,
        peer: PeerRequest,
        now: Instant,
    ) {
        let deadline = request.deadline;
        let deadline = deadline.map(|deadline| now + deadline.since(journal.now()));
        self.insert(request, incoming, Some(peer), deadline);
    }

    fn insert(
        &mut self,
        request: PendingRequest,
        incoming: IncomingId,
        peer: Option<PeerRequest>,
        deadline: Option<Instant>,
    ) {
        let kind = RequestKind::from_method(&request.method);
        let open = OpenRequest {
            kind,
            request: Arc::new(request),
            incoming,
            peer,
            deadline,
            _level: metrics().open_agent_requests(kind.name()),
            trace: None,
        };
        self.open.insert(open.request.request_id, open);
    }

    /// Sets the exported span of an open request.
    pub(crate) fn trace(&mut self, id: RequestId, span: TraceSpan) {
        if let Some(open) = self.open.get_mut(&id) {
            open.trace = Some(span);
        }
    }

    pub(crate) fn get(&self, id: RequestId) -> Result<Arc<PendingRequest>, AnswerError> {
        if let Some(open) = self.open.get(&id) {
            return Ok(Arc::clone(&open.request));
        }
        Err(
            match self.resolved.iter().find(|(known, ..)| *known == id) {
                Some((_, resolution, by)) => AnswerError::Resolved(RequestResolved {
                    id,
                    resolution: *resolution,
                    by: by.clone(),
                }),
                // Older resolutions are in the store, and the handle looks them up there.
                None => AnswerError::NotFound(NotFound("request")),
            },
        )
    }

    /// Resolves an open request. The agent receives a decision when it is durable, and the end of a request without a decision
    /// at once. Returns the event.
    pub(crate) fn resolve(
        &mut self,
        journal: &mut Journal,
        id: RequestId,
        resolution: Resolution,
        by: Option<&Author>,
        outcome: Outcome,
    ) -> Option<u64> {
        let open = self.open.remove(&id)?;
        if let Some(span) = &open.trace {
            let resolution: &'static str = resolution.into();
            span.set("acp_gateway.request.resolution", resolution);
        }
        let outcome = self.served_by_client(&open.request, outcome);
        let seq = self.append_end(journal, &open.request, resolution, by, &outcome, open.peer);
        let is_decision = matches!(
            resolution,
            Resolution::Answered | Resolution::Policy | Resolution::Expired
        );
        let after = if is_decision { seq } else { 0 };
        self.outbox.push_back((after, open.incoming, outcome));
        Some(seq)
    }

    /// Resolves an open request without an answer.
    pub(crate) fn end(
        &mut self,
        journal: &mut Journal,
        id: RequestId,
        resolution: Resolution,
    ) -> Option<u64> {
        let outcome = self.open.get(&id)?.kind.cancelled_reply();
        self.resolve(journal, id, resolution, None, outcome)
    }

    /// Ends the open requests to which `by` applies.
    pub(crate) fn end_all(&mut self, journal: &mut Journal, by: EndedBy) {
        let resolution = match by {
            EndedBy::Cancel(_) => Resolution::Cancelled,
            EndedBy::TurnEnd | EndedBy::Release => Resolution::Withdrawn,
        };
        let ended = self.open.iter().filter(|(_, open)| by.ends(open));
        let ids: Vec<RequestId> = ended.map(|(id, _)| *id).collect();
        for id in ids {
            self.end(journal, id, resolution);
        }
        if !matches!(by, EndedBy::Cancel(_)) {
            self.allowed_calls.end();
        }
    }

    /// Appends the only end of a request. The decision about a permission is durable in the audit log no later than the end,
    /// and therefore before the agent receives the answer.
    pub(crate) fn append_end(
        &mut self,
        journal: &mut Journal,
        request: &PendingRequest,
        resolution: Resolution,
        by: Option<&Author>,
        outcome: &Outcome,
        peer: Option<PeerRequest>,
    ) -> u64 {
        self.audit_decision(journal, request, resolution, by, outcome);
        let kind = RequestKind::from_method(&request.method).name();
        let wait = journal.now().since(request.created_at);
        metrics().agent_request_duration(kind, resolution.into(), wait.as_secs_f64());
        let id = request.request_id;
        let by = by.map(|author| author.name.to_string());
        let view = if request.method == method::SESSION_REQUEST_PERMISSION {
            acp::parse_permission(&request.params).ok()
        } else {
            None
        };
        let event = EncodedEvent::from(&ResolvedEvent {
            request_id: id,
            method: &request.method,
            tool_call_id: view.as_ref().and_then(|view| view.tool_call_id.as_deref()),
            resolution,
            acp_client: request.acp_client.as_deref(),
            by: by.as_deref(),
            result: outcome.as_deref().ok(),
            error: outcome.as_deref().err().map(|error| &**error),
        });
        self.resolved.push_back((id, resolution, by.clone()));
        if self.resolved.len() > MAX_RESOLVED {
            self.resolved.pop_front();
        }
        let peer = peer.map(|peer| peer.answered(outcome.clone()));
        let record = RequestRecord::resolved(resolution, by, peer);
        journal.append_with(request.prompt_id, event, |_, change| {
            change.resolve_request(id, &record);
        })
    }

    pub(crate) fn find(&self, incoming: IncomingId) -> Option<RequestId> {
        let mut open = self.open.iter();
        open.find(|(_, open)| open.incoming == incoming)
            .map(|(id, _)| *id)
    }

    /// Removes and returns the next response that the agent may receive.
    pub(crate) fn take_response(&mut self, committed: u64) -> Option<(IncomingId, Outcome)> {
        let at = self.outbox.iter().position(|(seq, ..)| *seq <= committed)?;
        let (_, incoming, outcome) = self.outbox.remove(at)?;
        Some((incoming, outcome))
    }

    /// Discards the state of a process that the session releases. The next process reuses request ids.
    pub(crate) fn process_released(&mut self) {
        self.outbox.clear();
        self.work.process_released();
        self.tool_clients.process_released();
    }

    /// When the next request expires, or its client counts as disconnected.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let open = self.open.values().filter_map(|open| open.deadline);
        open.chain(self.tool_clients.deadline()).min()
    }

    /// Expires the requests that no client answered in time. A request that waits for the exit of a command gets another
    /// `extension` while a client follows the session.
    pub(crate) fn expire(
        &mut self,
        journal: &mut Journal,
        is_followed: bool,
        extension: Duration,
        now: Instant,
    ) {
        let due = |open: &OpenRequest| open.deadline.is_some_and(|deadline| now >= deadline);
        for open in self.open.values_mut() {
            if is_followed && due(open) && open.kind == RequestKind::WaitForExit {
                open.deadline = Some(now + extension);
            }
        }
        while let Some((id, open)) = self.open.iter().find(|(_, open)| due(open)) {
            let outcome = open.kind.timeout_reply(&open.request.params);
            self.resolve(journal, *id, Resolution::Expired, None, outcome);
        }
    }

    pub(crate) fn elicitation_began(&mut self, id: String) {
        self.elicitations.push_back(id);
        if self.elicitations.len() > MAX_ELICITATIONS {
            self.elicitations.pop_front();
        }
    }

    /// Forgets an elicitation that the agent reports as completed. Returns false if it is unknown.
    pub(crate) fn elicitation_completed(&mut self, id: &str) -> bool {
        let known = self.elicitations.len();
        self.elicitations.retain(|known| *known != *id);
        self.elicitations.len() < known
    }
}
