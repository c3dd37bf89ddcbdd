//! Requests of the agent that clients answer.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

use crate::types::{PromptId, RequestId, Timestamp};

use super::acp_schema::RequestParams;
use super::rpc::RpcError;

/// A request that waits for an answer.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingRequest {
    pub request_id: RequestId,
    /// The ACP method, such as `session/request_permission`.
    pub method: String,
    /// Raw ACP, with the gateway's `sessionId`.
    #[schema(value_type = RequestParams)]
    pub params: Box<RawValue>,
    /// The turn of the request; null outside a turn.
    #[schema(required)]
    pub prompt_id: Option<PromptId>,
    /// The agent's id of the child session that sent the request. Absent for the session itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subagent: Option<String>,
    pub created_at: Timestamp,
    /// The time at which the permission policy answers the request.
    #[schema(required)]
    pub deadline: Option<Timestamp>,
}

/// The agent's requests that wait for an answer.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingRequests {
    pub requests: Vec<PendingRequest>,
    /// Always null: all pending requests fit on one page.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// The answer to a request of any method: either `result` or `error`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RequestAnswer {
    /// The result, raw ACP. It is passed to the agent unchanged. `null` is a valid result.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
    /// A JSON-RPC error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<RawValue>>,
}

/// Treats a member with the value `null` as present.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// The answer to a permission request: either `optionId` or `cancelled`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PermissionAnswer {
    /// The `optionId` of an option that the agent offered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub option_id: Option<String>,
    /// Must be true if present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled: Option<bool>,
}

/// The schema of an object with exactly one member.
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
            .description(Some("A result, which is passed to the agent unchanged, or a JSON-RPC error."))
            .item(Ref::from_schema_name("ResultAnswer"))
            .item(Ref::from_schema_name("ErrorAnswer"))
            .into()
    }
}

impl ToSchema for RequestAnswer {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        let result = single_member_object("result", ObjectBuilder::new().schema_type(SchemaType::AnyValue));
        schemas.push(("ResultAnswer".to_owned(), result.into()));
        schemas.push((
            "ErrorAnswer".to_owned(),
            single_member_object("error", Ref::from_schema_name("RpcError")).into(),
        ));
        schemas.push(("RpcError".to_owned(), RpcError::schema()));
    }
}

impl PartialSchema for PermissionAnswer {
    fn schema() -> RefOr<Schema> {
        OneOfBuilder::new()
            .description(Some("The selected option, or a cancellation."))
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
        schemas
            .push(("PermissionCancellation".to_owned(), single_member_object("cancelled", cancelled).into()));
    }
}

/// The action in an answer to an elicitation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ElicitationAction {
    Accept,
    Decline,
    Cancel,
}

/// The answer to an elicitation.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ElicitationAnswer {
    pub action: ElicitationAction,
    /// The values of the form. Only with the action `accept`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub content: Option<Box<RawValue>>,
}
