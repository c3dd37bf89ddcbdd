//! OpenAPI schemas of the parts of ACP that clients send or read, and unions of them.
//!
//! The gateway passes values of ACP through unchanged. Their schemas name the members that a client acts on
//! and allow any other member.

use utoipa::openapi::schema::{Discriminator, OneOfBuilder, Schema};
use utoipa::openapi::{Ref, RefOr};

/// Declares the types of raw members, for `value_type`.
macro_rules! raw_members {
    ($($name:ident),*) => {
        $(
            #[derive(Debug)]
            pub struct $name;
        )*
        base::schemas_from_json!($($name),*);
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
pub(crate) fn union<N: AsRef<str>>(description: &str, members: &[(&str, N)]) -> RefOr<Schema> {
    let mut union = OneOfBuilder::new().description(Some(description));
    let mut mapping = Vec::new();
    for (kind, name) in members {
        let name = name.as_ref();
        union = union.item(Ref::from_schema_name(name));
        mapping.push((*kind, format!("#/components/schemas/{name}")));
    }
    union
        .discriminator(Some(Discriminator::with_mapping("type", mapping)))
        .into()
}
