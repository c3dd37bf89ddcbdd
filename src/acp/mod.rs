//! Typed views of the ACP fields that the gateway routes on, and the messages that the gateway sends.
//!
//! The module owns the meaning of ACP v1 and v2: method names, capabilities, update kinds and permission
//! options. Every view is borrowed and lenient, and it keeps the bytes unchanged. The gateway never
//! re-encodes an agent's payload from a type. The module must not know processes, connections, sessions or
//! HTTP.
//!
//! Read `method`, `version` and `raw_object` first, then `initialize`, `setup` and `request`, then `view`,
//! `update` and `update_line`. The other modules each cover one topic of ACP.

mod ask;
mod attachment;
pub mod auth;
mod capabilities;
mod content;
mod defects;
mod depth;
mod dialect;
mod elicitation;
mod file;
mod form;
pub mod gate;
mod initialize;
mod listing;
mod meta;
pub mod method;
mod object;
mod peek;
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

pub use ask::{Ask, Misfit, Outcome, error, method_not_found, resource_not_found};
pub use attachment::{FileBlock, FileContent, with_blocks};
pub use capabilities::{
    AgentCapabilities, AuthCapabilities, McpCapabilities, PromptCapabilities, SessionCapabilities,
};
pub use content::{ContentError, check_prompt};
pub use defects::{earliest_load, restores_empty_sessions};
pub use depth::{TooDeep, check_depth, one_line};
pub use dialect::Dialect;
pub use elicitation::{
    Elicitation, ElicitationError, Mode, check_form, completed_elicitation, peek_elicitation,
};
pub use file::{
    ReadTextFile, WriteTextFile, done, escaped, file_not_found, file_uri, peek_read_text_file,
    peek_write_text_file, text_file,
};
pub use form::FormError;
pub use initialize::{ClientCapabilities, InitializeError, InitializeResult, initialize};
pub use listing::{ListedSession, SessionListing, list_sessions};
pub use meta::part_meta;
pub use method::{error_code, stop_reason};
pub use object::Object;
pub use peek::{
    NewSession, PeekError, PromptResult, UpdatePeek, config_options_of, names_session, or_empty,
    peek_cancel_request, peek_update, replace_request_id, replace_session_id, session_id_of, with_session_id,
};
pub use permission::{
    AnswerError, PermissionOption, PermissionPeek, cancelled, peek_permission, selected, subject_tool_call,
};
pub use request::{
    ConfigValue, ConfigValueError, cancel, cancel_request, close_session, delete_session, prompt,
    set_config_option, set_mode,
};
pub use restore::{RestoreFailure, rejects_session};
pub use setup::{
    McpServer, McpTransport, NameValue, SessionSetup, fork_session, new_session, replay_session,
    resume_session,
};
pub use terminal::{
    CreateTerminal, peek_create_terminal, peek_terminal, terminal_created, terminal_done, terminal_exited,
    terminal_output,
};
pub use trace::{TraceContext, traced};
pub use update_line::UpdateLine;
pub use v2::{Part, WorkEnd, WorkState, cancel_part, cancellable, mode_option};

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

/// Encodes one of the gateway's own messages. The types in this module have string keys and no serializer
/// that can fail.
fn own(message: &impl Serialize) -> Box<RawValue> {
    to_raw_value(message).expect("the gateway's own messages have string keys and serialize")
}
