//! Methods of an agent that clients call by name.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// A call that the agent's entry allows (its key `rpc`).
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RpcCall {
    pub method: String,
    /// An object, sent as it is; `{}` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub params: Option<Box<RawValue>>,
    /// Send a notification: nobody answers it.
    #[serde(default)]
    pub notify: bool,
}

/// What the agent answered.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RpcResult {
    /// Raw, as the agent wrote it.
    #[schema(value_type = Value)]
    pub result: Box<RawValue>,
}
