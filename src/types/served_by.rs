//! The provider of an agent's file or terminal methods.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The provider of an agent's file or terminal methods, the most restricted first.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum ServedBy {
    /// No provider: the gateway does not offer the methods to the agent.
    #[default]
    Off,
    /// A client answers each request.
    Client,
    /// The gateway serves the methods in the workspace of the session.
    Gateway,
}
