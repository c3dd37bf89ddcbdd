//! The requests that wait for an answer of a client.
//!
//! This part owns the open requests, the answers that wait for their commit, and the URLs that the agent asked a user to
//! visit. Each method changes the state and returns the effects: the events to append and the messages to send.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::acp::{Outcome, RequestKind};
use crate::api::{PendingRequest, Resolution};
use crate::jsonrpc::IncomingId;
use crate::session::error::{AnswerError, NotFound, RequestResolved};
use crate::types::{Author, PromptId, RequestId, Timestamp};

/// The number of resolved requests that are remembered. Older ones are in the store.
const MAX_RESOLVED: usize = 64;
/// The maximum number of elicitation URLs that are remembered.
const MAX_ELICITATIONS: usize = 64;

#[derive(Debug, Default)]
pub(in crate::session) struct AgentRequests {
    open: BTreeMap<RequestId, Pending>,
    /// The requests that were resolved last, for clients that answer too late.
    resolved: VecDeque<(RequestId, Resolution, Option<String>)>,
    /// Answers, each with the sequence number of the event that must be durable before the agent receives the answer.
    outbox: VecDeque<(u64, IncomingId, Outcome)>,
    /// The URLs that the agent asked a user to visit and has not reported as completed.
    elicitations: VecDeque<String>,
}

/// A request that waits for an answer of a client.
#[derive(Debug)]
struct Pending {
    request: Arc<PendingRequest>,
    kind: RequestKind,
    incoming: IncomingId,
    deadline: Option<Instant>,
}

/// A request that is about to be offered to clients.
#[derive(Debug)]
pub(in crate::session) struct OfferedRequest {
    pub(in crate::session) method: String,
    pub(in crate::session) incoming: IncomingId,
    /// The raw params, with the gateway's session id.
    pub(in crate::session) params: Box<RawValue>,
    /// The turn to which the request belongs.
    pub(in crate::session) prompt: Option<PromptId>,
    /// The child session that sent the request.
    pub(in crate::session) subagent: Option<String>,
    /// The ACP client that alone can answer.
    pub(in crate::session) acp_client: Option<String>,
    pub(in crate::session) wait: Wait,
}

/// How long a request waits for its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::session) enum Wait {
    AtMost(Duration),
    /// As long as a client follows the session's log, and this long without one.
    WhileFollowed(Duration),
    /// As long as its turn runs.
    Turn,
}

/// A request that a caller resolves: the data of its event, and when the agent receives the answer.
#[derive(Debug)]
pub(in crate::session) struct Resolving {
    pub(in crate::session) request: Arc<PendingRequest>,
    pub(in crate::session) incoming: IncomingId,
    pub(in crate::session) resolution: Resolution,
    pub(in crate::session) by: Option<Author>,
    pub(in crate::session) outcome: Outcome,
    /// Whether the agent receives the answer at once, before the commit.
    pub(in crate::session) at_once: bool,
}

/// The requests that one event ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::session) enum EndedBy {
    /// The cancel of this turn. ACP requires that every open permission request is then answered with `cancelled`.
    Cancel(Option<PromptId>),
    /// The end of a turn withdraws its questions. File and terminal requests may outlive the turn.
    TurnEnd,
    /// The session releases its process, or the gateway drains.
    Release,
}

impl EndedBy {
    fn resolution(self) -> Resolution {
        match self {
            Self::Cancel(_) => Resolution::Cancelled,
            Self::TurnEnd | Self::Release => Resolution::Withdrawn,
        }
    }

    fn ends(self, pending: &Pending) -> bool {
        match self {
            Self::Cancel(prompt) => pending.request.prompt_id == prompt,
            Self::TurnEnd => pending.kind.is_question(),
            Self::Release => true,
        }
    }
}

impl AgentRequests {
    pub(in crate::session) fn len(&self) -> usize {
        self.open.len()
    }

    pub(in crate::session) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The open requests as clients see them.
    pub(in crate::session) fn shown(&self) -> Vec<PendingRequest> {
        self.open
            .values()
            .map(|pending| (*pending.request).clone())
            .collect()
    }

    /// Whether answers wait for a commit.
    pub(in crate::session) fn waits_for_commit(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Opens a request. `created_at` and `now` are the same time on two clocks.
    pub(in crate::session) fn offer(
        &mut self,
        id: RequestId,
        offer: OfferedRequest,
        created_at: Timestamp,
        now: Instant,
    ) -> Arc<PendingRequest> {
        let OfferedRequest {
            method,
            incoming,
            params,
            prompt,
            subagent,
            acp_client,
            wait,
        } = offer;
        let request = Arc::new(PendingRequest {
            request_id: id,
            method,
            params,
            prompt_id: prompt,
            subagent,
            acp_client,
            created_at,
            deadline: match wait {
                Wait::AtMost(limit) => Some(created_at.after(limit)),
                Wait::WhileFollowed(_) | Wait::Turn => None,
            },
        });
        let deadline = match wait {
            Wait::AtMost(limit) | Wait::WhileFollowed(limit) => Some(now + limit),
            Wait::Turn => None,
        };
        let kind = RequestKind::from_method(&request.method);
        self.open.insert(
            id,
            Pending {
                request: Arc::clone(&request),
                kind,
                incoming,
                deadline,
            },
        );
        request
    }

    /// Opens a request that a former gateway process has offered. `wall_now` and `now` are the same time on two clocks.
    pub(in crate::session) fn restore(
        &mut self,
        id: RequestId,
        request: PendingRequest,
        incoming: IncomingId,
        wall_now: Timestamp,
        now: Instant,
    ) {
        let kind = RequestKind::from_method(&request.method);
        let deadline = request.deadline.map(|deadline| {
            let left = deadline.as_millis().saturating_sub(wall_now.as_millis());
            now + Duration::from_millis(u64::try_from(left).unwrap_or_default())
        });
        self.open.insert(
            id,
            Pending {
                request: Arc::new(request),
                kind,
                incoming,
                deadline,
            },
        );
    }

    /// The open request with this id.
    pub(in crate::session) fn get(
        &self,
        id: RequestId,
    ) -> Result<Arc<PendingRequest>, AnswerError> {
        if let Some(pending) = self.open.get(&id) {
            return Ok(Arc::clone(&pending.request));
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

    /// Resolves an open request.
    pub(in crate::session) fn resolve(
        &mut self,
        id: RequestId,
        resolution: Resolution,
        by: Option<&Author>,
        outcome: Outcome,
    ) -> Option<Resolving> {
        let Pending {
            request, incoming, ..
        } = self.open.remove(&id)?;
        self.resolved
            .push_back((id, resolution, by.map(|author| author.name.to_string())));
        if self.resolved.len() > MAX_RESOLVED {
            self.resolved.pop_front();
        }
        let at_once = matches!(
            resolution,
            Resolution::Cancelled | Resolution::Withdrawn | Resolution::Disconnected
        );
        Some(Resolving {
            request,
            incoming,
            resolution,
            by: by.cloned(),
            outcome,
            at_once,
        })
    }

    /// Resolves an open request without an answer.
    pub(in crate::session) fn end(
        &mut self,
        id: RequestId,
        resolution: Resolution,
    ) -> Option<Resolving> {
        let outcome = self.open.get(&id)?.kind.cancelled_reply();
        self.resolve(id, resolution, None, outcome)
    }

    /// Resolves the next open request that `by` ends. Call it until it returns `None`.
    pub(in crate::session) fn end_next(&mut self, by: EndedBy) -> Option<Resolving> {
        let (id, _) = self.open.iter().find(|(_, pending)| by.ends(pending))?;
        self.end(*id, by.resolution())
    }

    /// The open request with the agent's id `incoming`.
    pub(in crate::session) fn find(&self, incoming: IncomingId) -> Option<RequestId> {
        self.open
            .iter()
            .find(|(_, pending)| pending.incoming == incoming)
            .map(|(id, _)| *id)
    }

    /// Queues an answer until the event `seq` is durable.
    pub(in crate::session) fn answer_after(
        &mut self,
        seq: u64,
        incoming: IncomingId,
        outcome: Outcome,
    ) {
        self.outbox.push_back((seq, incoming, outcome));
    }

    /// Removes and returns the next answer whose event is durable.
    pub(in crate::session) fn durable_answer(
        &mut self,
        committed: u64,
    ) -> Option<(IncomingId, Outcome)> {
        let (_, incoming, outcome) = self.outbox.pop_front_if(|(seq, ..)| *seq <= committed)?;
        Some((incoming, outcome))
    }

    /// Discards the answers for a process that the session releases. The next process reuses request ids.
    pub(in crate::session) fn process_released(&mut self) {
        self.outbox.clear();
    }

    pub(in crate::session) fn deadline(&self) -> Option<Instant> {
        self.open
            .values()
            .filter_map(|pending| pending.deadline)
            .min()
    }

    /// Expires the next request that no client answered in time. Call it until it returns `None`. A request that waits for
    /// the exit of a command gets another `extension` while a client follows the session.
    pub(in crate::session) fn expire_next(
        &mut self,
        now: Instant,
        is_followed: bool,
        extension: Duration,
    ) -> Option<Resolving> {
        let due = |pending: &Pending| pending.deadline.is_some_and(|deadline| now >= deadline);
        if is_followed {
            let extended =
                |pending: &&mut Pending| due(pending) && pending.kind == RequestKind::WaitForExit;
            for pending in self.open.values_mut().filter(extended) {
                pending.deadline = Some(now + extension);
            }
        }
        let (id, pending) = self.open.iter().find(|(_, pending)| due(pending))?;
        let outcome = pending.kind.timeout_reply(&pending.request.params);
        self.resolve(*id, Resolution::Expired, None, outcome)
    }

    /// Remembers a URL that the agent asks a user to visit.
    pub(in crate::session) fn elicitation_began(&mut self, id: String) {
        self.elicitations.push_back(id);
        if self.elicitations.len() > MAX_ELICITATIONS {
            self.elicitations.pop_front();
        }
    }

    /// Forgets an elicitation that the agent reports as completed. Returns false if it is unknown.
    pub(in crate::session) fn elicitation_completed(&mut self, id: &str) -> bool {
        let Some(at) = self.elicitations.iter().position(|known| *known == *id) else {
            return false;
        };
        self.elicitations.remove(at);
        true
    }
}
