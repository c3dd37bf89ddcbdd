//! Sign-in to an agent, keys, and tickets: short-lived keys in a URL.

use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::problem::Problem;
use super::schema::StreamPath;
use base::types::Timestamp;

/// The sign-in state of an agent.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentAuth {
    /// The agent's sign-in methods, raw ACP. Null until a process has started.
    #[schema(required, value_type = Option<Vec<Object>>)]
    pub auth_methods: Option<Box<RawValue>>,
    /// `authenticated`, `unauthenticated`, `not_required` or `unknown`. The agent reports the state if it
    /// supports `auth/status`. Otherwise the gateway derives it from the results of earlier sessions.
    pub state: String,
    /// The agent's answer to `auth/status`, raw ACP; null if the agent does not support it.
    #[schema(required, value_type = Option<Object>)]
    pub status: Option<Box<RawValue>>,
    /// True if the agent supports signing out.
    pub can_logout: bool,
    /// True if the gateway offers sign-in methods of type `terminal`.
    pub terminal_auth: bool,
}

/// A sign-in to an agent.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SignIn {
    /// The id of one of `authMethods`.
    #[schema(min_length = 1, max_length = 1024)]
    pub method_id: String,
    /// An API key, for a method that accepts one. The gateway passes it to the agent in the agent's format.
    /// It keeps the key in memory for new processes of the agent and never stores it.
    #[schema(value_type = Option<String>, nullable = false, min_length = 1, max_length = 4096)]
    pub api_key: Option<ApiKey>,
    /// Additional `_meta` for the agent. Only the keys in the agent's entry are allowed.
    #[serde(rename = "_meta")]
    #[schema(value_type = Option<Object>)]
    pub meta: Option<Box<RawValue>>,
}

/// An API key of a provider.
#[derive(Clone, derive_more::Debug, Serialize, Deserialize)]
#[serde(transparent)]
#[debug("(hidden)")]
pub struct ApiKey(String);

impl ApiKey {
    const MAX_BYTES: usize = 4096;

    /// Returns the key without surrounding white space; `None` if the text cannot be a key.
    pub fn validated(&self) -> Option<&str> {
        let key = self.0.trim();
        (!key.is_empty() && key.len() <= Self::MAX_BYTES && !key.contains(char::is_control))
            .then_some(key)
    }
}

/// The terminal of a sign-in.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SignInTerminal {
    /// The path of the terminal's WebSocket. It accepts one connection.
    pub url: String,
}

/// A control message from a client to a terminal of a sign-in. Typed input is sent as binary data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", deny_unknown_fields)]
pub enum TerminalInput {
    /// The window has a new size.
    Resize { cols: NonZeroU16, rows: NonZeroU16 },
}

/// The last message of a terminal of a sign-in. Output is sent as binary data.
#[derive(Debug, Serialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum TerminalFrame<'a> {
    /// The command has ended. The exit code 0 means success.
    Exit {
        exit_code: Option<i32>,
        signal: Option<&'a str>,
    },
    /// The gateway ended the terminal.
    Problem { problem: &'a Problem },
    /// The gateway is shutting down.
    Shutdown,
}

/// A request for a ticket.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateTicket {
    /// The paths of the streams and sockets that the ticket opens, without a query, such as `/v1/events`. At
    /// most 64.
    #[schema(value_type = Vec<StreamPath>, min_items = 1, max_items = 64)]
    pub paths: Vec<String>,
}

/// A ticket: a short-lived key for a URL.
#[derive(Clone, derive_more::Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ticket {
    /// The value for the query parameter `ticket`.
    #[debug(skip)]
    pub ticket: String,
    /// The time at which an unused ticket expires.
    pub expires_at: Timestamp,
}
