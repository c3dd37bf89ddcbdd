//! Requests of the agent to the client: `can_use_tool`, and control requests of other kinds.

use std::collections::HashMap;

use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::writer::bare;
use crate::acp::{RawObject, error_code};
use crate::jsonrpc::Message;
use crate::served::message::{object, raw, rpc_error};

/// The maximum number of open requests.
const MAX_OPEN: usize = 256;

/// An option of a permission request.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) id: String,
    pub(super) kind: String,
}

#[derive(Debug)]
pub(super) enum Open {
    Permission {
        id: Box<RawValue>,
        choices: Vec<Choice>,
    },
    Extension {
        id: Box<RawValue>,
    },
}

impl Open {
    pub(super) fn id(&self) -> &RawValue {
        match self {
            Self::Permission { id, .. } | Self::Extension { id } => id,
        }
    }

    fn cancelled(self) -> Message {
        match self {
            Self::Permission { id, .. } => {
                let outcome = Ok(raw(&json!({ "outcome": { "outcome": "cancelled" } })));
                Message::Response { id, outcome }
            }
            Self::Extension { id } => {
                let outcome = Err(rpc_error(
                    error_code::REQUEST_CANCELLED,
                    "Request cancelled",
                ));
                Message::Response { id, outcome }
            }
        }
    }
}

/// The requests without an answer, by the id that the client knows.
#[derive(Debug, Default)]
pub(super) struct Permissions(HashMap<String, Open>);

/// The id for the client, which is a string.
fn request_id(id: &RawValue) -> Box<RawValue> {
    if id.get().starts_with('"') {
        id.to_owned()
    } else {
        raw(&format!("acp-{id}"))
    }
}

/// The line that withdraws a request.
pub(super) fn withdrawal(request: &RawValue) -> Bytes {
    bare(object(&[
        ("type", raw("control_cancel_request")),
        ("request_id", request.to_owned()),
    ]))
}

impl Permissions {
    /// Opens a request, and returns its id for the client. `None`: too many are open.
    pub(super) fn open(&mut self, open: Open) -> Option<Box<RawValue>> {
        let request = request_id(open.id());
        if self.0.len() >= MAX_OPEN {
            return None;
        }
        self.0.insert(request.get().to_owned(), open);
        Some(request)
    }

    /// The answer of the client for the agent. `None` if the request is not open.
    pub(super) fn answer(
        &mut self,
        request: &RawValue,
        outcome: Result<Box<RawValue>, String>,
    ) -> Option<Message> {
        let open = self.0.remove(request.get());
        if open.is_none() {
            tracing::debug!("the client answered a request that is not open");
        }
        Some(match (open?, outcome) {
            (Open::Extension { id }, Ok(result)) => Message::Response {
                id,
                outcome: Ok(result),
            },
            (Open::Extension { id }, Err(error)) => Message::Response {
                id,
                outcome: Err(rpc_error(error_code::INTERNAL, error)),
            },
            (open @ Open::Permission { .. }, Err(_)) => open.cancelled(),
            (Open::Permission { id, choices }, Ok(answer)) => {
                let chosen = RawObject::parse(&answer).and_then(|answer| choose(&choices, &answer));
                let outcome = chosen.map_or_else(
                    || json!({ "outcome": "cancelled" }),
                    |option| json!({ "outcome": "selected", "optionId": option }),
                );
                Message::Response {
                    id,
                    outcome: Ok(raw(&json!({ "outcome": outcome }))),
                }
            }
        })
    }

    /// The agent withdraws a request. Returns its id for the client.
    pub(super) fn withdraw(&mut self, id: &RawValue) -> Option<Box<RawValue>> {
        let request = request_id(id);
        self.0.remove(request.get()).map(|_| request)
    }

    /// Cancels all requests. Returns their ids for the client, with the answers for the agent.
    pub(super) fn cancel_all(&mut self) -> Vec<(Box<RawValue>, Message)> {
        self.0
            .drain()
            .map(|(_, open)| (request_id(open.id()), open.cancelled()))
            .collect()
    }
}

/// The option that has the effect of an answer. `None`: the request is cancelled.
fn choose<'a>(choices: &'a [Choice], answer: &RawObject<'_>) -> Option<&'a str> {
    let of_kind = |kinds: &[&str]| {
        kinds
            .iter()
            .find_map(|kind| choices.iter().find(|choice| choice.kind == *kind))
    };
    let chosen = if answer.text("behavior").as_deref() == Some("allow") {
        let updates: Vec<Value> = answer
            .get("updatedPermissions")
            .and_then(|updates| serde_json::from_str(updates.get()).ok())
            .unwrap_or_default();
        let mode = updates
            .iter()
            .find(|update| update["type"] == "setMode")
            .and_then(|set| set["mode"].as_str());
        let named = mode.and_then(|mode| choices.iter().find(|choice| choice.id == mode));
        let is_lasting = !updates.is_empty();
        named.or_else(|| {
            of_kind(if is_lasting {
                &["allow_always", "allow_once"]
            } else {
                &["allow_once", "allow_always"]
            })
        })
    } else if answer
        .get("interrupt")
        .is_some_and(|interrupt| interrupt.get() == "true")
    {
        None
    } else {
        of_kind(&["reject_once", "reject_always"])
    };
    chosen.map(|choice| &*choice.id)
}
