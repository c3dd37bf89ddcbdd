//! The session's actor, reduced to the parts that `requests.rs` uses.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::requests::{QueuedAnswer, Outcome, Pending, Resolved};
use crate::event::EncodedEvent;
use crate::eventlog::{Records, SessionLog};
use crate::jsonrpc::{IncomingId, PendingTables};
use crate::types::{Ids, Limits, PromptId, RequestId, SessionId};

pub(super) struct Actor {
    pub(super) context: Context,
    pub(super) log: SessionLog,
    pub(super) record: Record,
    pub(super) event_loop: EventLoop,
    pub(super) turn: Option<Turn>,
    pub(super) requests: BTreeMap<RequestId, Pending>,
    pub(super) resolved: VecDeque<Resolved>,
    pub(super) outbox: VecDeque<QueuedAnswer>,
}

pub(super) struct Context {
    pub(super) ids: Ids,
    pub(super) limits: Limits,
}

pub(super) struct Record {
    pub(super) session_id: SessionId,
    pub(super) last_request: u32,
}

pub(super) struct Turn {
    pub(super) prompt: PromptId,
    pub(super) last_activity: Instant,
}

pub(super) struct EventLoop {
    pub(super) lease: Option<Lease>,
}

/// The process and the answers that it read.
#[derive(Clone)]
pub(super) struct Lease(Arc<Process>);

pub(super) struct Process {
    pub(super) connection: Connection,
    log: SessionLog,
    heard: Mutex<Vec<AgentMessage>>,
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
pub(super) struct Connection(Mutex<PendingTables<()>>);

impl Lease {
    pub(super) fn new(log: SessionLog) -> Self {
        let connection = Connection(Mutex::default());
        Self(Arc::new(Process { connection, log, heard: Mutex::default() }))
    }

    pub(super) fn process(&self) -> &Process {
        &self.0
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
    pub(super) fn answer(&self, id: IncomingId, outcome: Result<&RawValue, &RawValue>) {
        let Some(raw) = self.connection.0.lock().expect("poisoned lock").resolve_request(id) else { return };
        let (Ok(outcome) | Err(outcome)) = outcome;
        let committed = self.log.committed();
        let heard = AgentMessage { id: raw.get().to_owned(), outcome: outcome.get().to_owned(), committed };
        self.heard.lock().expect("poisoned lock").push(heard);
    }

    pub(super) fn agent_messages(&self) -> Vec<AgentMessage> {
        self.heard.lock().expect("poisoned lock").clone()
    }
}

impl Actor {
    pub(super) fn running_turn(&self) -> Option<PromptId> {
        self.turn.as_ref().map(|turn| turn.prompt)
    }

    pub(super) fn with_session_records(&self, records: Records) -> Records {
        records
    }

    pub(super) fn append(
        &self,
        prompt: Option<PromptId>,
        event: impl Into<EncodedEvent>,
        records: Records,
    ) -> u64 {
        self.log.append(&event.into().in_turn(prompt), records)
    }

    pub(super) fn refuse(&self, incoming: IncomingId, code: i64, message: &str) {
        let refused: Outcome = Err(crate::acp::error(code, message));
        self.send_answer(incoming, &refused);
    }

    /// Files and terminals are not part of the model.
    pub(super) fn cancel_serving(&self, _incoming: IncomingId) {}
}
