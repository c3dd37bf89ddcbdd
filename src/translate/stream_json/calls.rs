//! The control requests of the translation to the CLI, and the calls that they answer.

use std::collections::HashMap;

use serde::Serialize;

use super::bounds::MAX_CONTROLS;
use crate::jsonrpc::CallId;
use crate::translate::message::to_raw;

/// The purpose of a control request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Purpose {
    Initialize(CallId),
    /// A step of the set-up of the session.
    SetUp,
    Mode(CallId, String),
    Model(CallId, String),
    Interrupt,
}

/// The control requests without an answer, by their number.
#[derive(Debug, Default)]
pub(super) struct Controls {
    last: u64,
    open: HashMap<String, Purpose>,
}

#[derive(Serialize)]
struct ControlRequest<'a, R> {
    r#type: &'static str,
    request_id: &'a str,
    request: &'a R,
}

impl Controls {
    /// Encodes a control request as a line. `None`: too many have no answer.
    pub(super) fn send(&mut self, purpose: Purpose, request: &impl Serialize) -> Option<String> {
        if self.open.len() >= MAX_CONTROLS {
            return None;
        }
        self.last += 1;
        let id = format!("gateway-{}", self.last);
        let line = to_raw(&ControlRequest {
            r#type: "control_request",
            request_id: &id,
            request,
        });
        self.open.insert(id, purpose);
        Some(format!("{line}\n"))
    }

    /// The purpose of an answered control request.
    pub(super) fn answered(&mut self, id: &str) -> Option<Purpose> {
        self.open.remove(id)
    }

    /// The call `initialize`, if the CLI has not answered it.
    pub(super) fn take_initialize(&mut self) -> Option<CallId> {
        let (id, call) = self.open.iter().find_map(|(id, purpose)| match purpose {
            Purpose::Initialize(call) => Some((id.clone(), *call)),
            _ => None,
        })?;
        self.open.remove(&id);
        Some(call)
    }
}
