//! The JSON-RPC request of an ACP client that sent a prompt.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// The request `session/prompt` of a client of `/acp`. The client gets its response at the end of the turn.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AcpRequest {
    /// The client, which keeps its name when it reconnects.
    #[schema(value_type = String)]
    pub client: Box<str>,
    /// The JSON-RPC id of the request, as the client sent it.
    #[schema(value_type = Value)]
    pub id: Box<RawValue>,
}
