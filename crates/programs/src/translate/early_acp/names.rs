//! The names of the early protocol: methods, members and kinds of updates.

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

pub(super) mod member {
    pub(in crate::translate::early_acp) const CANCELLED: &str = "cancelled";
    pub(in crate::translate::early_acp) const CONTENT: &str = "content";
    pub(in crate::translate::early_acp) const DATA: &str = "data";
    pub(in crate::translate::early_acp) const ERROR: &str = "error";
    pub(in crate::translate::early_acp) const PROTOCOL_VERSION: &str = "protocolVersion";
    pub(in crate::translate::early_acp) const SERVER_INFO: &str = "serverInfo";
    pub(in crate::translate::early_acp) const SESSION_ID: &str = "sessionId";
    pub(in crate::translate::early_acp) const UPDATE_TYPE: &str = "updateType";
}

pub(super) mod update_type {
    pub(in crate::translate::early_acp) const RESPONSE: &str = "response";
    pub(in crate::translate::early_acp) const THINKING: &str = "thinking";
    pub(in crate::translate::early_acp) const TOOL_CALL: &str = "tool_call";
    pub(in crate::translate::early_acp) const TOOL_RESULT: &str = "tool_result";
}
