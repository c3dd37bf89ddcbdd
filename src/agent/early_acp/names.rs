//! The names of the early protocol: methods, members and kinds of updates.

/// The version in `initialize`: a text. ACP has a number.
pub const PROTOCOL_VERSION: &str = "1.0";

/// Methods of the client.
pub const CREATE_SESSION: &str = "agent/createSession";
pub const PROMPT: &str = "agent/prompt";
pub const CANCEL_SESSION: &str = "agent/cancelSession";
pub const SHUTDOWN: &str = "shutdown";

/// A notification after `initialize`. Either side may send it.
pub const INITIALIZED: &str = "initialized";

/// Notifications of the agent.
pub const UPDATE: &str = "agent/update";
pub const TOOL_CALL: &str = "agent/toolCall";
pub const TOOL_RESULT: &str = "agent/toolResult";

/// Members of messages.
pub mod member {
    pub const CANCELLED: &str = "cancelled";
    pub const CONTENT: &str = "content";
    pub const DATA: &str = "data";
    pub const ERROR: &str = "error";
    pub const PROTOCOL_VERSION: &str = "protocolVersion";
    pub const SERVER_INFO: &str = "serverInfo";
    pub const SESSION_ID: &str = "sessionId";
    pub const UPDATE_TYPE: &str = "updateType";
}

/// Values of `updateType`.
pub mod update_type {
    pub const RESPONSE: &str = "response";
    pub const THINKING: &str = "thinking";
    pub const TOOL_CALL: &str = "tool_call";
    pub const TOOL_RESULT: &str = "tool_result";
}
