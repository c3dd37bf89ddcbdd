//! OpenAPI schemas of the shared types in `types`, so that API types can use ids, cursors and timestamps
//! directly.

use utoipa::openapi::schema::{
    Discriminator, KnownFormat, ObjectBuilder, OneOfBuilder, Schema, SchemaFormat, Type,
};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

use crate::types::{AgentName, EventId, Position, PromptId, RequestId, SessionId, TerminalId, Timestamp};

fn text(description: &str, pattern: &str, format: Option<SchemaFormat>) -> RefOr<Schema> {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some(description))
        .pattern((!pattern.is_empty()).then_some(pattern))
        .format(format)
        .into()
}

/// Returns a union of named schemas with the discriminator `type`, from pairs of `type` and schema name.
pub fn union<'a>(
    description: &str,
    members: impl IntoIterator<Item = (&'a str, &'a str)> + Clone,
) -> RefOr<Schema> {
    let reference = |name: &str| format!("#/components/schemas/{name}");
    let mapping = members.clone().into_iter().map(|(kind, name)| (kind, reference(name)));
    members
        .into_iter()
        .fold(OneOfBuilder::new(), |union, (_, name)| union.item(Ref::from_schema_name(name)))
        .discriminator(Some(Discriminator::with_mapping("type", mapping)))
        .description(Some(description))
        .into()
}

macro_rules! text_schemas {
    ($($name:ident: $description:literal, $pattern:literal, $format:expr;)*) => {$(
        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                text($description, $pattern, $format)
            }
        }

        impl ToSchema for $name {}
    )*};
}

text_schemas! {
    SessionId: "The id of a session: a UUID v7 in lower case.", "", Some(SchemaFormat::KnownFormat(KnownFormat::Uuid));
    PromptId: "The id of a turn in its session.", "^p[1-9][0-9]{0,8}$", None;
    RequestId: "The id of an agent's request in its session.", "^r[1-9][0-9]{0,8}$", None;
    TerminalId: "The id of a terminal in its session.", "^t[1-9][0-9]{0,8}$", None;
    AgentName: "The name of an agent in the catalogue.", "^[a-z0-9][a-z0-9_-]{0,63}$", None;
    EventId: "The id of an event in its session: the epoch of the store and a number without gaps.", "^[a-z0-9]{1,16}-(0|[1-9][0-9]*)$", None;
    Position: "A position in the whole log, for streams over many sessions.", "^[a-z0-9]{1,16}-g(0|[1-9][0-9]*)$", None;
    Timestamp: "A time in RFC 3339 format, in UTC with milliseconds.", "", Some(SchemaFormat::KnownFormat(KnownFormat::DateTime));
}
