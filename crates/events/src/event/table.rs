//! The table of event types.

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;

use super::agent::{
    AgentExited, AgentInvalidOutput, ElicitationCompleted, Extension, RequestCreated,
    RequestResolved, SessionUpdate, TerminalCreated, TerminalExited, TerminalOutput,
};
use super::control::{
    EndFrame, PositionFrame, ProblemFrame, Ready, Reset, SessionSummaryFrame, ShutdownFrame,
    SummariesReset,
};
use super::members::EventMembers;
use super::session::{
    PromptChanged, PromptCompleted, PromptFailed, PromptQueued, PromptStarted, SessionAttached,
    SessionChanged, SessionClosed, SessionCreated, SessionDeleted, SessionDetached,
    SessionPrivilegedMode,
};

/// All event types, in the order of the documentation.
macro_rules! events {
    ($($name:ident $(<$life:lifetime>)? = $text:literal, $log:expr;)*) => {
        $(impl$(<$life>)? EventMembers for $name$(<$life>)? {
            const TYPE: &'static str = $text;
        })*

        /// The name of the Rust type, the event type, and whether the event is in the log (with an id). Used
        /// for the documentation.
        pub const TYPES: &[(&str, &str, bool)] = &[$((stringify!($name), $text, $log)),*];

        /// Returns the schemas of the specific members, in the order of [`TYPES`].
        pub(super) fn schemas() -> Vec<RefOr<Schema>> {
            vec![$(<$name as utoipa::PartialSchema>::schema()),*]
        }

        /// Collects the schemas that these schemas refer to, by name.
        pub(super) fn referenced_schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
            $(<$name as utoipa::ToSchema>::schemas(schemas);)*
        }
    };
}

events! {
    SessionCreated<'a> = "session.created", true;
    SessionAttached<'a> = "session.attached", true;
    SessionDetached = "session.detached", true;
    SessionChanged<'a> = "session.changed", true;
    SessionPrivilegedMode<'a> = "session.privileged_mode", true;
    SessionClosed<'a> = "session.closed", true;
    SessionDeleted<'a> = "session.deleted", true;
    PromptQueued<'a> = "prompt.queued", true;
    PromptChanged<'a> = "prompt.changed", true;
    PromptStarted<'a> = "prompt.started", true;
    SessionUpdate<'a> = "session.update", true;
    PromptCompleted<'a> = "prompt.completed", true;
    PromptFailed<'a> = "prompt.failed", true;
    RequestCreated<'a> = "request.created", true;
    RequestResolved<'a> = "request.resolved", true;
    ElicitationCompleted<'a> = "elicitation.completed", true;
    TerminalCreated<'a> = "terminal.created", true;
    TerminalOutput<'a> = "terminal.output", true;
    TerminalExited<'a> = "terminal.exited", true;
    AgentExited<'a> = "agent.exited", true;
    AgentInvalidOutput = "agent.invalid_output", true;
    Extension<'a> = "extension", true;
    Reset<'a> = "reset", false;
    Ready<'a> = "ready", false;
    PositionFrame = "position", false;
    SessionSummaryFrame<'a> = "session.summary", false;
    SummariesReset = "summaries.reset", false;
    ProblemFrame<'a> = "problem", false;
    ShutdownFrame = "shutdown", false;
    EndFrame<'a> = "end", false;
}
