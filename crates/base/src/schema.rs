//! OpenAPI schemas that no `derive` can write: ids, and the parts of ACP that clients send or read.
//! `schemas.json` contains them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;

use crate::types::{
    AgentName, EventId, Position, PromptId, RequestId, SessionId, TerminalId, Timestamp,
};

/// The schemas of `schemas.json` by name. A `type` of null stands for any value.
pub static JSON_SCHEMAS: LazyLock<BTreeMap<String, RefOr<Schema>>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("schemas.json"))
        .expect("`schemas.json` contains OpenAPI schemas")
});

/// Implements the schema traits of types whose schema is in `schemas.json`.
#[macro_export]
macro_rules! schemas_from_json {
    ($($name:ident),* $(,)?) => {$(
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                $crate::schema::JSON_SCHEMAS[stringify!($name)].clone()
            }
        }

        impl utoipa::ToSchema for $name {}
    )*};
}

schemas_from_json!(
    AgentName, EventId, Position, PromptId, RequestId, SessionId, TerminalId, Timestamp
);
