//! Tables of inputs and effects of the agent's requests, without a process, a store or time.
//!
//! All times are seconds after one base time.

mod answers;
mod ends;
mod offers;
mod policy;

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::{AgentRequests, EndedBy, OfferedRequest, Resolving, Wait};
use crate::acp::{self, Outcome, method};
use crate::api::{PendingRequest, Resolution};
use crate::jsonrpc::{IncomingId, PendingTables};
use crate::session::error::{AnswerError, NotFound, RequestResolved};
use crate::types::{Author, PromptId, RequestId, Timestamp};

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

/// The part under test. Its requests have the ids 1, 2, ...
struct Fixture {
    part: AgentRequests,
    incoming: PendingTables,
    last: u32,
    base: Instant,
}

impl Fixture {
    fn new() -> Self {
        let base = Instant::now();
        Self {
            part: AgentRequests::default(),
            incoming: PendingTables::default(),
            last: 0,
            base,
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
        self.last += 1;
        let offered = OfferedRequest {
            method: method.to_owned(),
            incoming: self.incoming(),
            params: raw(OPTIONS),
            prompt: prompt.map(PromptId::new),
            subagent: Some("child".to_owned()),
            acp_client: None,
            wait,
        };
        self.part.offer(
            RequestId::new(self.last),
            offered,
            Timestamp::from_millis(1000),
            self.base,
        )
    }

    fn open(&self) -> Vec<u32> {
        self.part
            .shown()
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

    fn answer(&mut self, id: u32, by: &str) -> Option<Resolving> {
        let by = Author {
            name: by.into(),
            key: "key".into(),
            address: [127, 0, 0, 1].into(),
        };
        self.part.resolve(
            RequestId::new(id),
            Resolution::Answered,
            Some(&by),
            Ok(raw("1")),
        )
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
