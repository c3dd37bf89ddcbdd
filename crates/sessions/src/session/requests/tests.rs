//! Tables of inputs and effects of the agent's requests, with a journal and without a process or time.
//!
//! All times are seconds after one base time.

mod answers;
mod ends;
mod offers;
mod policy;

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::work::Work;
use super::{EndedBy, Offer, Requests, Wait};
use crate::limits::Limits;
use crate::session::error::{AnswerError, NotFound, RequestResolved};
use crate::session::fixtures;
use crate::session::journal::Journal;
use base::types::{Author, PromptId, RequestId, TerminalId, Timestamp};
use events::api::{PendingRequest, Resolution};
use wire::acp::{self, Outcome, method};
use wire::jsonrpc::{IncomingId, PendingTables};
use workspace::{AgentTerminals, Exit, ScrollbackBudget, TerminalRequest};

const PERMISSION: &str = method::SESSION_REQUEST_PERMISSION;
const ELICITATION: &str = method::ELICITATION_CREATE;
const READ: &str = method::FS_READ_TEXT_FILE;
const WAIT_FOR_EXIT: &str = method::TERMINAL_WAIT_FOR_EXIT;
const EXTENSION: &str = "_vendor/ask";

/// The params of a permission request with one option of each effect.
const OPTIONS: &str = r#"{"sessionId":"s","toolCall":{"toolCallId":"c"},"options":[{"optionId":"yes","kind":"allow_once"},{"optionId":"no","kind":"reject_once"}]}"#;
const SELECTED_NO: &str = r#"{"outcome":{"outcome":"selected","optionId":"no"}}"#;
const NONE_SELECTED: &str = r#"{"outcome":{"outcome":"cancelled"}}"#;
const CANCELLED_FORM: &str = r#"{"action":"cancel"}"#;

/// The part under test with its journal. Its requests have the ids 1, 2, ...
struct Fixture {
    part: Requests,
    journal: Journal,
    incoming: PendingTables,
    base: Instant,
}

/// A resolved request, and its response in the outbox.
struct Resolved {
    id: u32,
    resolution: Resolution,
    by: Option<String>,
    incoming: IncomingId,
    at_once: bool,
    response: String,
}

impl Fixture {
    async fn new() -> Self {
        let (journal, audit) = fixtures::journal().await;
        let work = Work::new(mpsc::channel(1).0, &Limits::default());
        let terminals = AgentTerminals::new(mpsc::channel(1).0, ScrollbackBudget::new(1024));
        Self {
            part: Requests::new(work, terminals, audit),
            journal,
            incoming: PendingTables::default(),
            base: Instant::now(),
        }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.base + Duration::from_secs(seconds)
    }

    fn incoming(&mut self) -> IncomingId {
        self.incoming.register_request(RawValue::NULL.to_owned())
    }

    /// Offers a request at second 0 and millisecond 1000 of the wall clock.
    fn offer(&mut self, method: &str, prompt: Option<u32>, wait: Wait) -> Arc<PendingRequest> {
        let offer = Offer {
            request: PendingRequest {
                request_id: RequestId::new(0),
                method: method.to_owned(),
                params: raw(OPTIONS),
                prompt_id: prompt.map(PromptId::new),
                subagent: Some("child".to_owned()),
                acp_client: None,
                created_at: Timestamp::from_millis(0),
                deadline: None,
            },
            incoming: self.incoming(),
            wait,
        };
        let id = self
            .part
            .offer(&mut self.journal, offer, None, 100, self.base)
            .unwrap();
        self.part.get(id).unwrap()
    }

    fn open(&self) -> Vec<u32> {
        let shown = self.part.shown();
        shown
            .iter()
            .map(|request| request.request_id.number())
            .collect()
    }

    /// The error for an answer to a request.
    fn error(&self, id: u32) -> Option<String> {
        self.part
            .get(RequestId::new(id))
            .err()
            .map(|error| named(&error))
    }

    fn resolve(&mut self, id: u32, resolution: Resolution) -> Option<u64> {
        let id = RequestId::new(id);
        self.part
            .resolve(&mut self.journal, id, resolution, None, Ok(raw("1")))
    }

    fn end(&mut self, id: u32, resolution: Resolution) -> Option<u64> {
        self.part
            .end(&mut self.journal, RequestId::new(id), resolution)
    }

    fn expire(&mut self, second: u64, is_followed: bool, extension: u64) {
        let now = self.at(second);
        self.part
            .expire(&mut self.journal, is_followed, seconds(extension), now);
    }

    fn answer(&mut self, id: u32, by: &str) -> Option<u64> {
        let by = Author {
            name: by.into(),
            key: "key".into(),
            address: [127, 0, 0, 1].into(),
            http_request_id: None,
        };
        let id = RequestId::new(id);
        let answered = Resolution::Answered;
        self.part
            .resolve(&mut self.journal, id, answered, Some(&by), Ok(raw("1")))
    }

    /// The requests that were resolved since the last call.
    fn take_resolved(&mut self) -> Vec<Resolved> {
        let known = self.part.resolved.len() - self.part.outbox.len();
        let resolved = self.part.resolved.iter().skip(known);
        resolved
            .zip(self.part.outbox.drain(..))
            .map(
                |((id, resolution, by), (seq, incoming, outcome))| Resolved {
                    id: id.number(),
                    resolution: *resolution,
                    by: by.clone(),
                    incoming,
                    at_once: seq == 0,
                    response: response(&outcome),
                },
            )
            .collect()
    }
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn named(error: &AnswerError) -> String {
    match error {
        AnswerError::NotFound(NotFound(kind)) => format!("no {kind}"),
        AnswerError::Resolved(RequestResolved { id, resolution, by }) => {
            format!("{id} {resolution:?} {by:?}")
        }
        other => format!("{other:?}"),
    }
}

/// The response for the agent as text: the result, or the code of the error.
fn response(outcome: &Outcome) -> String {
    match outcome {
        Ok(result) => result.get().to_owned(),
        Err(error) => {
            let object = acp::RawObject::parse(error).expect("an error is an object");
            format!("error {}", object.get("code").expect("an error has a code"))
        }
    }
}

#[test]
fn requests_for_unknown_terminals_have_no_effect() {
    let mut terminals: AgentTerminals<()> =
        AgentTerminals::new(tokio::sync::mpsc::channel(1).0, ScrollbackBudget::new(1024));
    let id = TerminalId::FIRST;
    for request in [
        TerminalRequest::Output,
        TerminalRequest::WaitForExit,
        TerminalRequest::Kill,
        TerminalRequest::Release,
    ] {
        for name in ["t1", "t0", "x", ""] {
            assert!(
                terminals.serve(name, request).is_none(),
                "{name} {request:?}"
            );
        }
    }
    terminals.kill(id);
    assert!(terminals.ended(id, Exit::default()).is_none());
    assert!(terminals.end_next().is_none() && terminals.kill_all(|()| true).is_empty());
    assert_eq!(
        (terminals.running(id).is_none(), terminals.count()),
        (true, 0)
    );
    assert!(!terminals.is_busy() && !terminals.is_alive());
}
