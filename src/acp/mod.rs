//! Typed views of the ACP fields that the gateway routes on, and the messages that the gateway sends.
//!
//! The module owns the meaning of ACP v1 and v2: method names, capabilities, update kinds and permission
//! options. Every view is borrowed and lenient, and it keeps the bytes unchanged. The gateway never
//! re-encodes an agent's payload from a type. The module must not know processes, connections, sessions or
//! HTTP.
//!
//! Read `method`, `version` and `raw_object` first, then `initialize`, `setup` and `request`, then `view`,
//! `update` and `update_line`. The other modules each cover one topic of ACP.

mod request_kind;
mod attachment;
pub mod auth;
mod capabilities;
mod content;
mod defects;
mod depth;
mod version;
mod elicitation;
mod file;
mod form;
pub mod client_input_policy;
mod initialize;
mod listing;
mod meta;
pub mod method;
mod raw_object;
mod view;
mod permission;
mod request;
mod restore;
mod setup;
pub mod sign_in;
mod terminal;
mod trace;
pub mod update;
mod update_line;
mod v2;
mod validation_error;
mod view_error;

pub use attachment::{FileBlock, FileContent, append_blocks};
pub use capabilities::{
    AgentCapabilities, AuthCapabilities, McpCapabilities, PromptCapabilities, SessionCapabilities,
};
pub use content::{ContentError, validate_prompt};
pub use defects::{earliest_load, restores_empty_sessions};
pub use depth::{TooDeep, check_depth, to_one_line};
pub use elicitation::{
    Elicitation, ElicitationError, ElicitationMode, check_form, completed_elicitation, parse_elicitation,
};
pub use file::{
    ReadTextFile, WriteTextFile, empty_result, file_not_found, file_uri, parse_read_text_file,
    parse_write_text_file, percent_encode_path, read_text_file_result,
};
pub use form::FormError;
pub use initialize::{ClientCapabilities, InitializeError, InitializeResult, initialize};
pub use listing::{ListedSession, SessionListing, list_sessions};
pub use meta::split_meta;
pub use method::{error_code, stop_reason};
pub use permission::{
    AnswerError, PermissionOption, PermissionView, cancelled, parse_permission, selected, subject_tool_call,
};
pub use raw_object::RawObject;
pub use request::{
    ConfigValue, ConfigValueError, cancel, cancel_request, close_session, delete_session, prompt,
    set_config_option, set_mode,
};
pub use request_kind::{Outcome, RequestKind, error, method_not_found, resource_not_found};
pub use restore::{RestoreFailure, rejects_session};
pub use setup::{
    McpServer, McpTransport, NameValue, SessionSetup, fork_session, new_session, replay_session,
    resume_session,
};
pub use terminal::{
    CreateTerminal, create_terminal_result, parse_create_terminal, parse_terminal_id, terminal_output_result,
    wait_for_exit_result,
};
pub use trace::{TraceContext, with_trace};
pub use update_line::UpdateLine;
pub use v2::{CancelTarget, WorkEnd, WorkState, cancel_target, mode_option, parse_cancel_target};
pub use validation_error::ValidationError;
pub use version::AcpVersion;
pub use view::{
    NewSessionResult, PromptResult, UpdateView, config_options_of, has_session_id, null_to_empty,
    parse_cancel_request, parse_update, replace_request_id, replace_session_id, session_id_of,
    with_session_id,
};
pub use view_error::ViewError;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

/// Encodes one of the gateway's own messages. The types in this module have string keys and no serializer
/// that can fail.
fn to_raw(message: &impl Serialize) -> Box<RawValue> {
    to_raw_value(message).expect("the gateway's own messages have string keys and serialize")
}

#[cfg(test)]
fn raw(text: &str) -> &RawValue {
    serde_json::from_str(text).unwrap()
}
