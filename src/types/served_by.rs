//! Who serves an agent's requests for files or terminals.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Who serves an agent's files or terminals, the narrowest first.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum ServedBy {
    /// Nobody: it is not offered to the agent.
    #[default]
    Off,
    /// Each becomes a request that a client answers.
    Client,
    /// The gateway, from the session's workspace.
    Gateway,
}
