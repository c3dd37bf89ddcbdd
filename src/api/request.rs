//! The agent's requests that clients answer.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

use crate::types::{PromptId, RequestId, Timestamp};

use super::acp_schema::RequestParams;
use super::problem::RpcError;

/// A request that waits for an answer.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingRequest {
    pub request_id: RequestId,
    /// ACP's method, such as `session/request_permission`.
    pub method: String,
    /// Raw ACP, with our `sessionId`.
    #[schema(value_type = RequestParams)]
    pub params: Box<RawValue>,
    #[schema(required)]
    pub prompt_id: Option<PromptId>,
    /// The agent's id of the child session that asks; absent: the session itself does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subagent: Option<String>,
    pub created_at: Timestamp,
    /// When the policy answers it.
    #[schema(required)]
    pub deadline: Option<Timestamp>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingRequests {
    pub requests: Vec<PendingRequest>,
    /// Always null: a session has few of them.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Resolution {
    /// A client answered.
    Answered,
    /// The policy answered.
    Policy,
    /// Its turn was cancelled.
    Cancelled,
    /// The agent took it back, or is gone.
    Withdrawn,
    /// Nobody answered in time.
    Expired,
}

/// The answer to a request of any kind: one of the two.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RequestAnswer {
    /// Raw ACP, passed on as it is. `null` is a result.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
    /// A JSON-RPC error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<RawValue>>,
}

/// A member that is there with the value `null` is there.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// The answer to a permission request: one of the two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PermissionAnswer {
    /// One of the options that the agent offered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub option_id: Option<String>,
    /// Must be true when given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled: Option<bool>,
}

/// An object of exactly one member.
fn single_member_object(name: &str, value: impl Into<RefOr<Schema>>) -> Schema {
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .property(name, value)
        .required(name)
        .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(false)))
        .build()
        .into()
}

impl PartialSchema for RequestAnswer {
    fn schema() -> RefOr<Schema> {
        OneOfBuilder::new()
            .description(Some("Raw ACP, passed on as it is; or a JSON-RPC error."))
            .item(Ref::from_schema_name("ResultAnswer"))
            .item(Ref::from_schema_name("ErrorAnswer"))
            .into()
    }
}

impl ToSchema for RequestAnswer {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        let result = single_member_object("result", ObjectBuilder::new().schema_type(SchemaType::AnyValue));
        schemas.push(("ResultAnswer".to_owned(), result.into()));
        schemas.push(("ErrorAnswer".to_owned(), single_member_object("error", Ref::from_schema_name("RpcError")).into()));
        schemas.push(("RpcError".to_owned(), RpcError::schema()));
    }
}

impl PartialSchema for PermissionAnswer {
    fn schema() -> RefOr<Schema> {
        OneOfBuilder::new()
            .description(Some("One of the options that the agent offered; or none of them."))
            .item(Ref::from_schema_name("PermissionChoice"))
            .item(Ref::from_schema_name("PermissionCancellation"))
            .into()
    }
}

impl ToSchema for PermissionAnswer {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        let choice = single_member_object("optionId", ObjectBuilder::new().schema_type(Type::String));
        let cancelled = ObjectBuilder::new().schema_type(Type::Boolean).enum_values(Some([true]));
        schemas.push(("PermissionChoice".to_owned(), choice.into()));
        schemas.push(("PermissionCancellation".to_owned(), single_member_object("cancelled", cancelled).into()));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ElicitationAction {
    Accept,
    Decline,
    Cancel,
}

/// The answer to a form of the agent.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ElicitationAnswer {
    pub action: ElicitationAction,
    /// The values, with `accept`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub content: Option<Box<RawValue>>,
}
