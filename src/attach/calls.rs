//! The requests to the gateway that have no response yet.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::acp::{RawObject, method};

/// The number of a call. Its JSON-RPC id is `b-<number>`. No number is used twice, so the gateway recognizes a call that
/// it receives again.
pub(super) type CallNumber = u64;

/// The effect of a call's response on the bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallKind {
    /// The session in the result is new.
    Create,
    /// The editor's `session/new`, which loads this session instead.
    LoadAsNew(Box<str>),
    /// `session/load`, or a `session/attach` with the history.
    Load,
    /// `session/resume`, or a `session/attach` without the history.
    Resume,
    Detach,
    /// `session/close` and `session/delete`.
    Close,
    Prompt,
    /// Another method. A second run has no further effect.
    Other,
    /// A method whose second run can have another effect, for example an extension of the agent.
    Once,
    /// A `session/resume` or `session/load` of the bridge itself, after a reconnect.
    Restore,
}

impl CallKind {
    pub(super) fn of(method: &str, params: &RawValue) -> Self {
        match method {
            method::SESSION_NEW | method::SESSION_FORK => Self::Create,
            method::SESSION_LOAD => Self::Load,
            method::SESSION_ATTACH if has_history(params) => Self::Load,
            method::SESSION_RESUME | method::SESSION_ATTACH => Self::Resume,
            method::SESSION_DETACH => Self::Detach,
            method::SESSION_CLOSE | method::SESSION_DELETE => Self::Close,
            method::SESSION_PROMPT => Self::Prompt,
            method::SESSION_LIST | method::SESSION_SET_MODE | method::SESSION_SET_CONFIG_OPTION => {
                Self::Other
            }
            _ => Self::Once,
        }
    }
}

/// Whether the gateway sends the history to a client that attaches with these params.
fn has_history(params: &RawValue) -> bool {
    let object = RawObject::parse(params).unwrap_or_else(RawObject::empty);
    !matches!(
        object.text("historyPolicy").as_deref(),
        Some("none" | "pending_only")
    )
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) kind: CallKind,
    /// The JSON-RPC id of the editor. `None` for a call of the bridge itself.
    pub(super) editor_id: Option<Box<RawValue>>,
    pub(super) session: Option<Box<str>>,
    /// The folders that the gateway must accept before the request.
    pub(super) folders: Vec<String>,
    /// The whole request, to send it again after a reconnect.
    pub(super) body: Bytes,
}

#[derive(Debug, Default)]
pub(super) struct Calls {
    last: CallNumber,
    open: BTreeMap<CallNumber, Call>,
    bytes: usize,
}

/// The JSON-RPC id of a call.
pub(super) fn id_of(number: CallNumber) -> String {
    format!("b-{number}")
}

/// The call with this JSON-RPC id.
pub(super) fn number_of(id: &RawValue) -> Option<CallNumber> {
    let text: &str = serde_json::from_str(id.get()).ok()?;
    text.strip_prefix("b-")?.parse().ok()
}

impl Calls {
    /// Opens a call. `call` receives its JSON-RPC id.
    pub(super) fn open(&mut self, call: impl FnOnce(&str) -> Call) -> CallNumber {
        self.last += 1;
        let call = call(&id_of(self.last));
        self.bytes += call.body.len();
        self.open.insert(self.last, call);
        self.last
    }

    pub(super) fn get(&self, number: CallNumber) -> Option<&Call> {
        self.open.get(&number)
    }

    /// Ends a call.
    pub(super) fn end(&mut self, number: CallNumber) -> Option<Call> {
        let call = self.open.remove(&number)?;
        self.bytes -= call.body.len();
        Some(call)
    }

    /// The open calls, the oldest first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (CallNumber, &Call)> {
        self.open.iter().map(|(number, call)| (*number, call))
    }

    pub(super) fn of_session(&self, session: &str) -> Vec<CallNumber> {
        self.iter()
            .filter(|(_, call)| call.session.as_deref() == Some(session))
            .map(|(number, _)| number)
            .collect()
    }

    pub(super) fn has_prompts(&self, session: &str) -> bool {
        self.iter().any(|(_, call)| {
            call.kind == CallKind::Prompt && call.session.as_deref() == Some(session)
        })
    }

    /// The last call with this id of the editor.
    pub(super) fn by_editor_id(&self, id: &RawValue) -> Option<CallNumber> {
        let same = |call: &Call| {
            call.editor_id
                .as_ref()
                .is_some_and(|own| own.get() == id.get())
        };
        self.iter()
            .rev()
            .find(|(_, call)| same(call))
            .map(|(number, _)| number)
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// The size of all open requests in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}
