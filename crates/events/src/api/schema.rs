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
