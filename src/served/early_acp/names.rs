//! The names of the early protocol: methods, and kinds of updates.

/// The version in `initialize`: a text. ACP has a number.
pub(super) const PROTOCOL_VERSION: &str = "1.0";

/// Requests of the client.
pub(super) const INITIALIZE: &str = "initialize";
pub(super) const CREATE_SESSION: &str = "agent/createSession";
pub(super) const PROMPT: &str = "agent/prompt";
pub(super) const CANCEL_SESSION: &str = "agent/cancelSession";
pub(super) const SHUTDOWN: &str = "shutdown";

/// Notifications of the agent.
pub(super) const UPDATE: &str = "agent/update";
pub(super) const TOOL_CALL: &str = "agent/toolCall";
pub(super) const TOOL_RESULT: &str = "agent/toolResult";

/// Values of `updateType`.
pub(super) mod update_type {
    pub(in super::super) const RESPONSE: &str = "response";
    pub(in super::super) const THINKING: &str = "thinking";
    pub(in super::super) const TOOL_CALL: &str = "tool_call";
    pub(in super::super) const TOOL_RESULT: &str = "tool_result";
}
