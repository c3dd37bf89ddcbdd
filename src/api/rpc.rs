//! JSON-RPC: methods of an agent that clients call by name, and errors of the agent.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// A call of a method that the agent's entry allows (`rpc`).
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RpcCall {
    /// The name of the method.
    pub method: String,
    /// The params, an object that is sent unchanged. The default is `{}`.
    #[schema(value_type = Option<Object>)]
    pub params: Option<Box<RawValue>>,
    /// If true, the gateway sends a notification, and the agent does not answer.
    #[serde(default)]
    pub notify: bool,
}

/// The result of a call.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RpcResult {
    /// The agent's result, raw.
    #[schema(value_type = Value)]
    pub result: Box<RawValue>,
}

/// A JSON-RPC error of the agent.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RpcError {
    pub code: i64,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub data: Option<Box<RawValue>>,
}
