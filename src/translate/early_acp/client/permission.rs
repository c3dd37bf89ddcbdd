//! Permission requests: a title, a message, and options with labels.

use std::collections::HashMap;

use serde_json::json;
use serde_json::value::RawValue;

use crate::acp::RawObject;
use crate::jsonrpc::{Message, RpcError};
use crate::translate::message::to_raw;

/// The maximum number of open requests.
const MAX_OPEN: usize = 256;

/// The requests without an answer, by the ids of the agent, with their sessions.
#[derive(Debug, Default)]
pub(super) struct Permissions(HashMap<String, (Box<RawValue>, String)>);

fn cancelled(id: Box<RawValue>) -> Message {
    Message::Response {
        id,
        outcome: Ok(to_raw(&json!({ "outcome": { "outcome": "cancelled" } }))),
    }
}

impl Permissions {
    /// Opens a request. Returns false if too many are open.
    pub(super) fn open(&mut self, id: &RawValue, session: String) -> bool {
        let has_room = self.0.len() < MAX_OPEN;
        if has_room {
            self.0.insert(id.get().to_owned(), (id.to_owned(), session));
        }
        has_room
    }

    /// The answer of the client for the agent. `None` if the request is not open.
    pub(super) fn answer(
        &mut self,
        id: &RawValue,
        outcome: Result<Box<RawValue>, RpcError>,
    ) -> Option<Message> {
        let (id, _) = self.0.remove(id.get())?;
        let answer = outcome.ok();
        let option = answer
            .as_deref()
            .and_then(RawObject::parse)
            .and_then(|answer| selected(&answer));
        let Some(option) = option else {
            return Some(cancelled(id));
        };
        let outcome = json!({ "outcome": { "outcome": "selected", "optionId": option } });
        Some(Message::Response {
            id,
            outcome: Ok(to_raw(&outcome)),
        })
    }

    /// The agent withdraws a request. A late answer is dropped.
    pub(super) fn withdraw(&mut self, id: &RawValue) {
        self.0.remove(id.get());
    }

    /// Cancels the requests of a session.
    pub(super) fn cancel(&mut self, session: &str) -> Vec<Message> {
        let cancelled_ones = self.0.extract_if(|_, (_, of)| of == session);
        cancelled_ones.map(|(_, (id, _))| cancelled(id)).collect()
    }
}

/// The id of the selected option, in each form: in `outcome` as in ACP, or as a member of the answer.
fn selected(answer: &RawObject<'_>) -> Option<String> {
    let outcome = answer.object("outcome");
    let objects = [outcome.as_ref(), Some(answer)].into_iter().flatten();
    let names = ["optionId", "option", "selected"];
    objects
        .flat_map(|object| names.map(|name| object.text(name)))
        .flatten()
        .next()
        .map(String::from)
}
