//! The names of the early protocol.

/// The version in `initialize`: a text. ACP has a number.
pub(super) const PROTOCOL_VERSION: &str = "1.0";

pub(super) const CREATE_SESSION: &str = "agent/createSession";
pub(super) const PROMPT: &str = "agent/prompt";
pub(super) const CANCEL_SESSION: &str = "agent/cancelSession";
pub(super) const SHUTDOWN: &str = "shutdown";

/// A notification after `initialize`. Either side may send it.
pub(super) const INITIALIZED: &str = "initialized";

pub(super) const UPDATE: &str = "agent/update";
pub(super) const TOOL_CALL: &str = "agent/toolCall";
pub(super) const TOOL_RESULT: &str = "agent/toolResult";
