//! OpenAPI schemas of events: the head combined with the members of each type, and the union of all types.

use serde_json::value::RawValue;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::table::{TYPES, referenced_schemas, schemas};
use crate::api::schema::union;
use base::types::{EventId, PromptId, SessionId, Timestamp};

/// The first members of every event in the log.
#[derive(Debug, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventHead {
    /// The cursor of the event: `<epoch>-<seq>`.
    pub id: EventId,
    /// The number of the event in its session. It starts at 1 and has no gaps.
    #[schema(minimum = 1)]
    pub seq: u64,
    /// The event type, such as `session.update`.
    #[serde(rename = "type")]
    pub kind: String,
    pub session_id: SessionId,
    /// The time at which the gateway appended the event.
    pub time: Timestamp,
    /// The turn of the event; absent outside a turn.
    #[schema(nullable = false)]
    pub prompt_id: Option<PromptId>,
}

/// A page of events.
#[derive(Debug, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventPage {
    #[schema(value_type = Vec<SessionEvent>)]
    pub events: Vec<Box<RawValue>>,
    /// The cursor for `after` on the next page.
    pub last_event_id: String,
    /// True if more events exist.
    pub more: bool,
}

/// The schema of all events: a union by `type`.
#[derive(Debug)]
pub struct SessionEvent;

/// Returns the name of a type's schema. The schema of `session.update` is `SessionUpdateEvent`.
pub(super) fn schema_name(rust: &str) -> String {
    format!("{}Event", rust.trim_end_matches("Frame"))
}

/// Returns one schema for each event type, by name.
fn event_schemas() -> Vec<(String, RefOr<Schema>)> {
    let head = EventHead::schema();
    TYPES
        .iter()
        .zip(schemas())
        .map(|((rust, kind, logged), own)| {
            (schema_name(rust), event_schema(&head, kind, *logged, own))
        })
        .collect()
}

pub(super) fn event_schema(
    head: &RefOr<Schema>,
    kind: &str,
    logged: bool,
    own: RefOr<Schema>,
) -> RefOr<Schema> {
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
        event.properties.insert(
            "id".to_owned(),
            ObjectBuilder::new().schema_type(Type::String).into(),
        );
        event.required = vec!["type".to_owned(), "time".to_owned()];
    }
    event.required.extend(own_required);
    event.properties.insert(
        "type".to_owned(),
        ObjectBuilder::new()
            .schema_type(Type::String)
            .enum_values(Some([kind]))
            .into(),
    );
    RefOr::T(Schema::Object(event))
}

impl PartialSchema for SessionEvent {
    fn schema() -> RefOr<Schema> {
        let names: Vec<(&str, String)> = TYPES
            .iter()
            .map(|(rust, kind, _)| (*kind, schema_name(rust)))
            .collect();
        let members = names.iter().map(|(kind, name)| (*kind, name.as_str()));
        union(
            "An event. `type` selects the schema. Clients must ignore unknown types.",
            members,
        )
    }
}

impl ToSchema for SessionEvent {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.extend(event_schemas());
        <EventHead as ToSchema>::schemas(schemas);
        referenced_schemas(schemas);
    }
}
