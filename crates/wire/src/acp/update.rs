//! Kinds of `session/update`: the values of `update.sessionUpdate`. Other kinds pass through unchanged.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::raw_object::RawObject;

pub const USER_MESSAGE_CHUNK: &str = "user_message_chunk";
pub const AGENT_MESSAGE_CHUNK: &str = "agent_message_chunk";
pub const AGENT_THOUGHT_CHUNK: &str = "agent_thought_chunk";
pub const TOOL_CALL: &str = "tool_call";
pub const TOOL_CALL_UPDATE: &str = "tool_call_update";
pub const PLAN: &str = "plan";
pub const PLAN_UPDATE: &str = "plan_update";
pub const PLAN_REMOVED: &str = "plan_removed";
pub const AVAILABLE_COMMANDS: &str = "available_commands_update";
pub const CURRENT_MODE: &str = "current_mode_update";
pub const CONFIG_OPTION: &str = "config_option_update";
pub const SESSION_INFO: &str = "session_info_update";
pub const USAGE: &str = "usage_update";
pub const NOTICE: &str = "notice";
pub const COMPACTION: &str = "compaction_update";
pub const COMPACTION_SUMMARY_CHUNK: &str = "compaction_summary_chunk";
pub const SUBAGENT: &str = "subagent_update";
pub const SESSION_MESSAGE: &str = "session_message";
pub const SESSION_MESSAGE_CHUNK: &str = "session_message_chunk";

/// Kinds of v2.
pub const USER_MESSAGE: &str = "user_message";
pub const AGENT_MESSAGE: &str = "agent_message";
pub const AGENT_THOUGHT: &str = "agent_thought";
pub const STATE: &str = "state_update";
pub const TOOL_CALL_CONTENT_CHUNK: &str = "tool_call_content_chunk";
pub const TERMINAL_UPDATE: &str = "terminal_update";
pub const TERMINAL_OUTPUT_CHUNK: &str = "terminal_output_chunk";

/// Returns true if only v2 defines the kind.
pub fn is_v2(kind: &str) -> bool {
    matches!(
        kind,
        USER_MESSAGE
            | AGENT_MESSAGE
            | AGENT_THOUGHT
            | STATE
            | TOOL_CALL_CONTENT_CHUNK
            | TERMINAL_UPDATE
            | TERMINAL_OUTPUT_CHUNK
    )
}

/// Returns true if the kind reports the current state of the session. Such an update belongs to no turn.
pub fn is_session_state(kind: &str) -> bool {
    matches!(
        kind,
        AVAILABLE_COMMANDS | CURRENT_MODE | CONFIG_OPTION | STATE
    )
}

/// Returns true if the kind can select a mode, also as the value of an option.
pub fn selects_modes(kind: &str) -> bool {
    matches!(kind, CURRENT_MODE | CONFIG_OPTION)
}

/// Returns true if the kind is part of the history of a session. `session/load` replays these kinds. Other
/// kinds report the current state.
pub fn is_history(kind: &str) -> bool {
    matches!(
        kind,
        USER_MESSAGE_CHUNK
            | AGENT_MESSAGE_CHUNK
            | AGENT_THOUGHT_CHUNK
            | TOOL_CALL
            | TOOL_CALL_UPDATE
            | PLAN
            | PLAN_UPDATE
            | PLAN_REMOVED
            | COMPACTION
            | COMPACTION_SUMMARY_CHUNK
            | SESSION_MESSAGE
            | SESSION_MESSAGE_CHUNK
            | USER_MESSAGE
            | AGENT_MESSAGE
            | AGENT_THOUGHT
            | TOOL_CALL_CONTENT_CHUNK
            | TERMINAL_UPDATE
            | TERMINAL_OUTPUT_CHUNK
    )
}

/// Returns true if the kind, as bytes, only contains output. It changes no state that the gateway keeps for
/// the session.
pub fn is_chunk(kind: &[u8]) -> bool {
    [
        AGENT_MESSAGE_CHUNK,
        AGENT_THOUGHT_CHUNK,
        TOOL_CALL_CONTENT_CHUNK,
        TERMINAL_OUTPUT_CHUNK,
    ]
    .iter()
    .any(|chunk| chunk.as_bytes() == kind)
}

pub fn kind_of(update: &RawValue) -> Result<Cow<'_, str>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Update<'a> {
        #[serde(rename = "sessionUpdate", borrow)]
        kind: Cow<'a, str>,
    }
    serde_json::from_str(update.get()).map(|Update { kind }| kind)
}

/// Returns the id of the child session in a `subagent_update`; `None` if the update has no valid id.
pub fn subagent_of(update: &RawValue) -> Option<Cow<'_, str>> {
    RawObject::parse(update)?.text("sessionId")
}
