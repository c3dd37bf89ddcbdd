//! The session's actor, reduced to the inputs that resolve requests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::error::AnswerError;
use super::journal::Journal;
use super::requests::{EndedBy, Offer, Requests};
use base::types::{Author, RequestId};
use events::api::Resolution;
use log::eventlog::SessionLog;
use wire::acp::Outcome;
use wire::jsonrpc::{IncomingId, PendingTables};

pub(super) struct Actor {
    pub(super) journal: Journal,
    pub(super) link: Link,
    pub(super) requests: Requests,
}

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
        Self(Arc::new(Process {
            connection,
            log,
            answers: Mutex::default(),
        }))
    }

    pub(super) fn process(&self) -> &Process {
        &self.0
    }

    pub(super) fn answer(&self, id: IncomingId, outcome: &Outcome) {
        self.0
            .answer(id, outcome.as_deref().map_err(|error| &**error));
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
        let Some(raw) = self
            .connection
            .0
            .lock()
            .expect("poisoned lock")
            .resolve_request(id)
        else {
            return;
        };
        let (Ok(outcome) | Err(outcome)) = outcome;
        let committed = self.log.committed();
        let message = AgentMessage {
            id: raw.get().to_owned(),
            outcome: outcome.get().to_owned(),
            committed,
        };
        self.answers.lock().expect("poisoned lock").push(message);
    }
}

impl Actor {
    pub(super) fn offer(&mut self, offer: Offer) {
        let offered = self
            .requests
            .offer(&mut self.journal, offer, None, 10, Instant::now());
        assert!(offered.is_ok(), "two requests may be pending");
    }

    pub(super) fn answer(
        &mut self,
        by: &Author,
        id: RequestId,
        outcome: Outcome,
    ) -> Result<u64, AnswerError> {
        self.requests.get(id)?;
        let answered = self.requests.resolve(
            &mut self.journal,
            id,
            Resolution::Answered,
            Some(by),
            outcome,
        );
        Ok(answered.expect("the request is open"))
    }

    pub(super) fn end_requests(&mut self, by: EndedBy) {
        self.requests.end_all(&mut self.journal, by);
    }

    pub(super) fn expire_requests(&mut self, now: Instant) {
        let is_followed = self.journal.log().has_reader();
        self.requests
            .expire(&mut self.journal, is_followed, Duration::ZERO, now);
    }

    pub(super) fn cancelled_by_agent(&mut self, raw_id: &RawValue) {
        let found = self.link.process().connection.find(raw_id);
        if let Some(id) = found.and_then(|incoming| self.requests.find(incoming)) {
            self.requests
                .end(&mut self.journal, id, Resolution::Withdrawn);
        }
    }

    pub(super) fn send_responses(&mut self) {
        let committed = self.journal.log().committed();
        while let Some((incoming, outcome)) = self.requests.take_response(committed) {
            self.link.answer(incoming, &outcome);
        }
    }
}
