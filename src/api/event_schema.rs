//! OpenAPI schemas of events: the head combined with the members of each type, and the union of all types.

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::event::{EventHead, SessionEvent, TYPES, schemas};
use super::schema::union;

/// Returns the name of a type's schema. The schema of `session.update` is `SessionUpdateEvent`.
fn schema_name(rust: &str) -> String {
    format!("{}Event", rust.trim_end_matches("Frame"))
}

/// Returns one schema for each event type, by name.
pub fn event_schemas() -> Vec<(String, RefOr<Schema>)> {
    let head = EventHead::schema();
    TYPES
        .iter()
        .zip(schemas())
        .map(|((rust, kind, logged), own)| (schema_name(rust), event_schema(&head, kind, *logged, own)))
        .collect()
}

fn event_schema(head: &RefOr<Schema>, kind: &str, logged: bool, own: RefOr<Schema>) -> RefOr<Schema> {
    let (RefOr::T(Schema::Object(head)), RefOr::T(Schema::Object(mut event))) = (head, own) else {
        unreachable!("head and members are derived from structs, which are objects");
    };
    let own_required = std::mem::take(&mut event.required);
    for (member, schema) in &head.properties {
        if logged || matches!(member.as_str(), "sessionId" | "time") {
            event.properties.insert(member.clone(), schema.clone());
        }
    }
    if logged {
        event.required.clone_from(&head.required);
    } else {
        // A frame has an id only if it moves the cursor. The id has the format of the stream.
        event.properties.insert("id".to_owned(), ObjectBuilder::new().schema_type(Type::String).into());
        event.required = vec!["type".to_owned(), "time".to_owned()];
    }
    event.required.extend(own_required);
    event.properties.insert(
        "type".to_owned(),
        ObjectBuilder::new().schema_type(Type::String).enum_values(Some([kind])).into(),
    );
    RefOr::T(Schema::Object(event))
}

impl PartialSchema for SessionEvent {
    fn schema() -> RefOr<Schema> {
        let names: Vec<(&str, String)> =
            TYPES.iter().map(|(rust, kind, _)| (*kind, schema_name(rust))).collect();
        let members = names.iter().map(|(kind, name)| (*kind, name.as_str()));
        union("An event. `type` selects the schema. Clients must ignore unknown types.", members)
    }
}

impl ToSchema for SessionEvent {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.extend(event_schemas());
        <EventHead as ToSchema>::schemas(schemas);
        super::event::referenced_schemas(schemas);
    }
}
