//! The table of event types, and their OpenAPI schemas: the head combined with the members of each type, and the union
//! of all types.

use serde_json::value::RawValue;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::agent::{
    AgentExited, AgentInvalidOutput, ElicitationCompleted, Extension, RequestCreated,
    RequestResolved, SessionUpdate, TerminalCreated, TerminalExited, TerminalOutput,
};
use super::control::{
    EndFrame, PositionFrame, ProblemFrame, Ready, Reset, SessionSharedFrame, SessionSummaryFrame,
    SessionUnsharedFrame, ShutdownFrame, SummariesReset,
};
use super::frame::EventMembers;
use super::session::{
    PromptChanged, PromptCompleted, PromptFailed, PromptQueued, PromptStarted, SessionAttached,
    SessionChanged, SessionClosed, SessionCreated, SessionDeleted, SessionDetached,
    SessionPrivilegedMode,
};
use crate::api::schema::union;
use base::types::{EventId, PromptId, SessionId, Timestamp};

/// A row of the table.
#[derive(Debug)]
pub struct EventType {
    /// The name of the Rust type.
    pub rust: &'static str,
    /// `type` of the event.
    pub name: &'static str,
    /// Whether the event is in the log, with an id.
    pub logged: bool,
    /// Whether a webhook can select the event. A turn can have thousands of some types: these are never sent.
    pub webhooks: bool,
}

/// The end of a task. It is no event of a session, but webhooks can select it.
pub const TASK_ENDED: &str = "task.ended";

/// The types that a webhook can select, in the order of the documentation.
pub fn webhook_types() -> Vec<&'static str> {
    let rows = TYPES.iter().filter(|row| row.webhooks);
    rows.map(|row| row.name).chain([TASK_ENDED]).collect()
}

/// All event types, in the order of the documentation.
macro_rules! events {
    ($($name:ident $(<$life:lifetime>)? = $text:literal { $($flags:tt)* };)*) => {
        $(impl$(<$life>)? EventMembers for $name$(<$life>)? {
            const TYPE: &'static str = $text;
        })*

        /// The rows of the table.
        pub const TYPES: &[EventType] =
            &[$(EventType { rust: stringify!($name), name: $text, $($flags)* }),*];

        /// Returns the schemas of the specific members, in the order of [`TYPES`].
        pub(super) fn schemas() -> Vec<RefOr<Schema>> {
            vec![$(<$name as PartialSchema>::schema()),*]
        }

        /// Collects the schemas that these schemas refer to, by name.
        fn referenced_schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
            $(<$name as ToSchema>::schemas(schemas);)*
        }
    };
}

events! {
    SessionCreated<'a> = "session.created" { logged: true, webhooks: true };
    SessionAttached<'a> = "session.attached" { logged: true, webhooks: true };
    SessionDetached = "session.detached" { logged: true, webhooks: true };
    SessionChanged<'a> = "session.changed" { logged: true, webhooks: true };
    SessionPrivilegedMode<'a> = "session.privileged_mode" { logged: true, webhooks: true };
    SessionClosed<'a> = "session.closed" { logged: true, webhooks: true };
    SessionDeleted<'a> = "session.deleted" { logged: true, webhooks: true };
    PromptQueued<'a> = "prompt.queued" { logged: true, webhooks: true };
    PromptChanged<'a> = "prompt.changed" { logged: true, webhooks: true };
    PromptStarted<'a> = "prompt.started" { logged: true, webhooks: true };
    SessionUpdate<'a> = "session.update" { logged: true, webhooks: false };
    PromptCompleted<'a> = "prompt.completed" { logged: true, webhooks: true };
    PromptFailed<'a> = "prompt.failed" { logged: true, webhooks: true };
    RequestCreated<'a> = "request.created" { logged: true, webhooks: true };
    RequestResolved<'a> = "request.resolved" { logged: true, webhooks: true };
    ElicitationCompleted<'a> = "elicitation.completed" { logged: true, webhooks: true };
    TerminalCreated<'a> = "terminal.created" { logged: true, webhooks: false };
    TerminalOutput<'a> = "terminal.output" { logged: true, webhooks: false };
    TerminalExited<'a> = "terminal.exited" { logged: true, webhooks: false };
    AgentExited<'a> = "agent.exited" { logged: true, webhooks: true };
    AgentInvalidOutput = "agent.invalid_output" { logged: true, webhooks: false };
    Extension<'a> = "extension" { logged: true, webhooks: true };
    Reset<'a> = "reset" { logged: false, webhooks: false };
    Ready<'a> = "ready" { logged: false, webhooks: false };
    PositionFrame = "position" { logged: false, webhooks: false };
    SessionSummaryFrame<'a> = "session.summary" { logged: false, webhooks: false };
    SummariesReset = "summaries.reset" { logged: false, webhooks: false };
    SessionSharedFrame<'a> = "session.shared" { logged: false, webhooks: false };
    SessionUnsharedFrame<'a> = "session.unshared" { logged: false, webhooks: false };
    ProblemFrame<'a> = "problem" { logged: false, webhooks: false };
    ShutdownFrame = "shutdown" { logged: false, webhooks: false };
    EndFrame<'a> = "end" { logged: false, webhooks: false };
}

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

pub(super) fn event_schema(
    head: &RefOr<Schema>,
    kind: &str,
    logged: bool,
    own: RefOr<Schema>,
) -> RefOr<Schema> {
    let (RefOr::T(Schema::Object(head)), RefOr::T(Schema::Object(mut event))) = (head, own) else {
        unreachable!("head and members are derived from structs, which are objects");
    };
    let text = || ObjectBuilder::new().schema_type(Type::String);
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
        event.properties.insert("id".to_owned(), text().into());
        event.required = vec!["type".to_owned(), "time".to_owned()];
    }
    event.required.extend(own_required);
    let kind = text().enum_values(Some([kind])).into();
    event.properties.insert("type".to_owned(), kind);
    RefOr::T(Schema::Object(event))
}

impl PartialSchema for SessionEvent {
    fn schema() -> RefOr<Schema> {
        let names: Vec<(&str, String)> = TYPES
            .iter()
            .map(|row| (row.name, schema_name(row.rust)))
            .collect();
        union(
            "An event. `type` selects the schema. Clients must ignore unknown types.",
            &names,
        )
    }
}

impl ToSchema for SessionEvent {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        let head = EventHead::schema();
        for (row, own) in TYPES.iter().zip(self::schemas()) {
            let schema = event_schema(&head, row.name, row.logged, own);
            schemas.push((schema_name(row.rust), schema));
        }
        <EventHead as ToSchema>::schemas(schemas);
        referenced_schemas(schemas);
    }
}
