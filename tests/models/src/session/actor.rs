//! The session's actor, reduced to the parts that `answers.rs` uses.

#[path = "../../../../src/session/actor/answers.rs"]
mod answers;

use std::sync::{Arc, Mutex};

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::agent_requests::AgentRequests;
use super::record::{PeerRequest, RequestRecord};
use crate::acp::Outcome;
use crate::api::{PendingRequest, Resolution};
use crate::event::EncodedEvent;
use crate::eventlog::{Records, SessionLog};
use crate::jsonrpc::{IncomingId, PendingTables};
use crate::types::{Author, Ids, Limits, PromptId, RequestId, SessionId};

pub(super) struct Actor {
    pub(super) context: Context,
    pub(super) journal: Journal,
    pub(super) link: Link,
    pub(super) agent_requests: AgentRequests,
    pub(super) turns: Turns,
    pub(super) client_methods: ClientMethods,
}

pub(super) struct Context {
    pub(super) ids: Ids,
    pub(super) limits: Limits,
}

/// The log and the last number of a request.
pub(super) struct Journal {
    log: SessionLog,
    record: Record,
}

pub(super) struct Record {
    last_request: u32,
}

/// The records of one commit.
pub(super) struct Change<'a> {
    session: SessionId,
    record: &'a mut Record,
    records: Records,
}

/// Files and terminals are not part of the model.
pub(super) struct ClientMethods;

/// The model measures no silence of the agent.
pub(super) struct Turns;

/// The process and the answers that it read.
#[derive(Clone)]
pub(super) struct Link(Arc<Process>);

pub(super) struct Process {
    pub(super) connection: Connection,
    log: SessionLog,
    answers: Mutex<Vec<AgentMessage>>,
}

/// An answer that the agent read.
#[derive(Debug, Clone)]
pub(super) struct AgentMessage {
    pub(super) id: String,
    pub(super) outcome: String,
    /// The committed seq at that time.
    pub(super) committed: u64,
}

/// The table that matches requests and answers comes from the gateway.
pub(super) struct Connection(Mutex<PendingTables>);

impl Link {
    pub(super) fn new(log: SessionLog) -> Self {
        let connection = Connection(Mutex::default());
        Self(Arc::new(Process { connection, log, answers: Mutex::default() }))
    }

    pub(super) fn process(&self) -> Option<&Process> {
        Some(&self.0)
    }

    pub(super) fn answer(&self, id: IncomingId, outcome: &Outcome) {
        self.0.answer(id, outcome.as_deref().map_err(|error| &**error));
    }

    pub(super) fn peer_request(&self, _incoming: IncomingId) -> Option<PeerRequest> {
        None
    }

    pub(super) fn agent_messages(&self) -> Vec<AgentMessage> {
        self.0.answers.lock().expect("poisoned lock").clone()
    }
}

impl Connection {
    pub(super) fn received(&self, raw_id: &str) -> IncomingId {
        let raw = RawValue::from_string(raw_id.to_owned()).expect("invalid JSON");
        self.0.lock().expect("poisoned lock").register_request(raw)
    }

    pub(super) fn find(&self, raw_id: &RawValue) -> Option<IncomingId> {
        self.0.lock().expect("poisoned lock").find_request(raw_id)
    }
}

impl Process {
    fn answer(&self, id: IncomingId, outcome: Result<&RawValue, &RawValue>) {
        let Some(raw) = self.connection.0.lock().expect("poisoned lock").resolve_request(id) else { return };
        let (Ok(outcome) | Err(outcome)) = outcome;
        let committed = self.log.committed();
        let message = AgentMessage { id: raw.get().to_owned(), outcome: outcome.get().to_owned(), committed };
        self.answers.lock().expect("poisoned lock").push(message);
    }

}

impl Actor {
    /// The audit log is not part of the model.
    pub(super) fn audit_decision(&self, _: &PendingRequest, _: Resolution, _: Option<&Author>, _: &Outcome) {}

    pub(super) fn client_served(&mut self, _: &PendingRequest, outcome: Outcome) -> Outcome {
        outcome
    }
}

impl Journal {
    pub(super) fn new(log: SessionLog) -> Self {
        Self { log, record: Record { last_request: 0 } }
    }

    pub(super) fn log(&self) -> &SessionLog {
        &self.log
    }

    fn next_request(&self) -> RequestId {
        RequestId::new(self.record.last_request + 1)
    }

    fn appended(&self) -> u64 {
        self.log.appended()
    }

    fn append_with(
        &mut self,
        prompt: Option<PromptId>,
        event: impl Into<EncodedEvent>,
        change: impl FnOnce(u64, &mut Change<'_>),
    ) -> u64 {
        let (session, seq) = (self.log.session(), self.log.appended() + 1);
        let mut changed = Change { session, record: &mut self.record, records: Records::default() };
        change(seq, &mut changed);
        self.log.append(&event.into().in_turn(prompt), changed.records)
    }
}

impl Change<'_> {
    fn open_request(&mut self, id: RequestId, request: &RequestRecord) {
        self.record.last_request = id.number();
        request.put(self.session, id, &mut self.records);
    }

    fn resolve_request(&mut self, id: RequestId, request: &RequestRecord) {
        request.put(self.session, id, &mut self.records);
    }
}

impl ClientMethods {
    fn cancel(&mut self, _incoming: IncomingId) -> bool {
        false
    }
}

impl Turns {
    fn note_activity(&mut self, _now: Instant) {}
}
