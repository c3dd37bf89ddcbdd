//! The state of an agent's process.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The current activity of an agent's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProcessState {
    /// The process starts, and has not answered `initialize`.
    Starting,
    /// The process has no turn, request or call. It can hold a session.
    Idle,
    /// A turn, a request or a call is open, or a session is being attached.
    Busy,
    /// The process releases its session, and can serve another one later.
    Releasing,
    /// The process is being stopped, or has ended.
    Stopping,
}
