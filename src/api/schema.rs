//! OpenAPI schemas that no `derive` can write: ids, and the parts of ACP that clients send or read.
//! `schemas.json` contains them.
//!
//! The gateway passes values of ACP through unchanged. Their schemas name the members that a client acts on
//! and allow any other member.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use utoipa::openapi::schema::{Discriminator, OneOfBuilder, Schema};
use utoipa::openapi::{Ref, RefOr};

use crate::types::{
    AgentName, EventId, Position, PromptId, RequestId, SessionId, TerminalId, Timestamp,
};

/// The schemas of `schemas.json` by name. A `type` of null stands for any value.
pub static JSON_SCHEMAS: LazyLock<BTreeMap<String, RefOr<Schema>>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("schemas.json"))
        .expect("`schemas.json` contains OpenAPI schemas")
});

/// Implements the schema traits of types whose schema is in `schemas.json`.
macro_rules! schemas_from_json {
    ($($name:ident),* $(,)?) => {$(
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                $crate::api::schema::JSON_SCHEMAS[stringify!($name)].clone()
            }
        }

        impl utoipa::ToSchema for $name {}
    )*};
}

pub(super) use schemas_from_json;

schemas_from_json!(
    AgentName, EventId, Position, PromptId, RequestId, SessionId, TerminalId, Timestamp
);

/// Declares the types of raw members, for `value_type`.
macro_rules! raw_members {
    ($($name:ident),*) => {
        $(
            #[derive(Debug)]
            pub struct $name;
        )*
        schemas_from_json!($($name),*);
    };
}

raw_members!(
    AcpUpdate,
    ContentBlock,
    OptionValue,
    PermissionOption,
    PromptContent,
    RequestParams,
    StreamPath
);

/// Returns a union of named schemas with the discriminator `type`, from pairs of `type` and schema name.
pub fn union<'a>(
    description: &str,
    members: impl IntoIterator<Item = (&'a str, &'a str)> + Clone,
) -> RefOr<Schema> {
    let reference = |name: &str| format!("#/components/schemas/{name}");
    let mapping = members
        .clone()
        .into_iter()
        .map(|(kind, name)| (kind, reference(name)));
    members
        .into_iter()
        .fold(OneOfBuilder::new(), |union, (_, name)| {
            union.item(Ref::from_schema_name(name))
        })
        .discriminator(Some(Discriminator::with_mapping("type", mapping)))
        .description(Some(description))
        .into()
}
