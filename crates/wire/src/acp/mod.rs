//! Typed views of the ACP fields that the gateway routes on, and the messages that the gateway sends.
//!
//! The module owns the meaning of ACP v1 and v2: method names, capabilities, update kinds and permission
//! options. Every view is borrowed and lenient, and it keeps the bytes unchanged. The gateway never
//! re-encodes an agent's payload from a type. The module must not know processes, connections, sessions or
//! HTTP.
//!
//! Read `method`, `version` and `raw_object` first, then `initialize` and `request`, then `view`,
//! `update` and `update_line`. `known_agents` and `denied_modes` are tables of agents and of their modes. The other modules each cover one topic of ACP.
//!
//! If the gateway writes all values of a message, the message uses the types of `agent-client-protocol-schema`. Other
//! messages keep their own structs for these reasons, and unit tests parse them into the types of the crate:
//!
//! - Values of clients (content blocks, `_meta`) are `RawValue`. The types of the crate reject lone surrogates, and
//!   change numbers and the order of members.
//! - MCP servers: `Debug` of the crate prints headers and variables, which can be secrets.
//! - Results of `fs/read_text_file` and `terminal/output` borrow megabytes of text. The types of the crate copy the
//!   text.
//! - The exit status of a terminal: the crate omits an absent exit code, but agents receive `null`.
//! - JSON-RPC errors: agents match their texts.

mod request_kind;
pub mod auth;
mod capabilities;
mod content;
mod denied_modes;
mod version;
mod elicitation;
mod file;
mod form;
pub mod headers;
mod initialize;
pub mod known_agents;
pub mod method;
pub mod method_list;
mod mode_policy;
mod raw_object;
mod view;
mod permission;
mod request;
mod restore;
pub mod sign_in;
mod trace;
pub mod update;
mod update_line;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

pub use self::capabilities::{
    AgentCapabilities, McpCapabilities, PromptCapabilities, SessionCapabilities,
    served_capabilities,
};
pub use self::content::{ContentError, FileBlock, FileContent, append_blocks, validate_prompt};
pub use self::denied_modes::DeniedModes;
pub use self::elicitation::{
    ElicitationMode, check_form, completed_elicitation, parse_elicitation,
};
pub use self::file::{
    CreateTerminal, FilePath, ReadTextFile, TerminalParams, WriteTextFile, create_terminal_result,
    file_uri, percent_encode_path, read_text_file_result, terminal_output_result,
    wait_for_exit_result,
};
pub use self::form::ValidationError;
pub use self::initialize::{ClientCapabilities, InitializeError, InitializeResult, initialize};
pub use self::known_agents::KnownAgent;
pub use self::method::{error_code, stop_reason, tool_kind};
pub use self::mode_policy::{
    ModeCommand, ModePolicy, NotOffered, find_in_value, find_mode_command,
};
pub use self::permission::{
    cancelled, parse_permission, selected, selected_option, subject_tool_call,
};
pub use self::raw_object::{RawObject, empty_result};
pub use self::request::{
    ConfigValue, McpServer, McpTransport, NameValue, SessionListing, SessionSetup, list_sessions,
    new_session, prompt, replay_session, resume_session, session_params, set_config_option,
    set_mode,
};
pub use self::request_kind::{Outcome, RequestKind, error, method_not_found, resource_not_found};
pub use self::restore::{RestoreFailure, earliest_load, rejects_session, restores_empty_sessions};
pub use self::trace::{TraceContext, split_meta, with_trace};
pub use self::update_line::UpdateLine;
pub use self::version::{
    AcpVersion, CancelTarget, WorkEnd, WorkState, cancel_target, mode_option, parse_cancel_target,
};
pub use self::view::{
    CancelRequest, NewSessionResult, PromptResult, config_options_of, has_session_id,
    null_to_empty, parse, parse_update, replace_request_id, replace_session_id, session_id_of,
    with_member, with_session_id,
};

/// Encodes one of the gateway's own messages. Its type must have string keys and no serializer that can fail.
pub fn to_raw(message: &(impl Serialize + ?Sized)) -> Box<RawValue> {
    to_raw_value(message).expect("the gateway's own messages have string keys and serialize")
}

/// Encodes an object from members that keep their bytes.
pub fn object(members: &[(&str, Box<RawValue>)]) -> Box<RawValue> {
    RawObject::empty().with_members(members)
}

/// Replaces line ends by spaces, so that the JSON is one line of NDJSON or SSE. Strings in valid JSON contain
/// no raw line ends. Therefore all line ends are between tokens, where a space is equivalent.
pub fn to_one_line(raw: Box<RawValue>) -> Box<RawValue> {
    if memchr::memchr2(b'\n', b'\r', raw.get().as_bytes()).is_none() {
        return raw;
    }
    let text = String::from(Box::<str>::from(raw)).replace(['\n', '\r'], " ");
    RawValue::from_string(text).expect("spaces between tokens keep JSON valid")
}

#[cfg(test)]
fn raw(text: &str) -> &RawValue {
    serde_json::from_str(text).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_one_line_changes_only_space_between_tokens() {
        let json = "{\r\n  \"a\\n\": [1,\n2]\n}";
        let raw: Box<RawValue> = serde_json::from_str(json).unwrap();
        assert_eq!(to_one_line(raw).get(), "{    \"a\\n\": [1, 2] }");
    }
}
