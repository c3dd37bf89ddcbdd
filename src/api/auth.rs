//! Signing in to an agent.

use std::fmt;
use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::problem::Problem;

/// What is known of the sign-in to an agent.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentAuth {
    /// The ways to sign in, raw ACP; null until a process has started.
    #[schema(required, value_type = Option<Vec<Object>>)]
    pub auth_methods: Option<Box<RawValue>>,
    /// `authenticated`, `unauthenticated`, `not_required` or `unknown`: what the agent says, if it can say it, else
    /// what its sessions have met.
    pub state: String,
    /// The agent's own answer, raw ACP, if it can say it.
    #[schema(required, value_type = Option<Object>)]
    pub status: Option<Box<RawValue>>,
    /// Whether one can sign out.
    pub can_logout: bool,
    /// Whether the gateway offers methods of type `terminal`.
    pub terminal_auth: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SignIn {
    /// The id of one of `authMethods`.
    #[schema(min_length = 1, max_length = 1024)]
    pub method_id: String,
    /// An API key, for a method that takes one. The gateway puts it where the agent wants it, keeps it in memory for new
    /// processes of the agent, and writes it nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false, min_length = 1, max_length = 4096)]
    pub api_key: Option<ApiKey>,
    /// Sent with it: only keys that the agent's entry lists.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub meta: Option<Box<RawValue>>,
}

/// A key of a provider. Its debug form hides it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ApiKey(String);

impl ApiKey {
    const MAX_BYTES: usize = 4096;

    /// The key without white space around it; `None` if it cannot be a key.
    pub fn validated(&self) -> Option<&str> {
        let key = self.0.trim();
        (!key.is_empty() && key.len() <= Self::MAX_BYTES && !key.contains(char::is_control)).then_some(key)
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// Where a terminal of a sign-in is.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SignInTerminal {
    /// The path of its WebSocket, for one connection.
    pub url: String,
}

/// What a client says to a terminal of a sign-in, beside what is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", deny_unknown_fields)]
pub enum TerminalInput {
    /// The window has another size.
    Resize { cols: NonZeroU16, rows: NonZeroU16 },
}

/// The last that such a terminal says, beside what it shows.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum TerminalFrame<'a> {
    /// The command has ended; 0 is success.
    Exit { exit_code: Option<i32>, signal: Option<&'a str> },
    /// The gateway has ended it.
    Problem { problem: &'a Problem },
    /// The gateway stops.
    Shutdown,
}
