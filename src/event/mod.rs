//! The events of the log: their bytes, written and read.
//!
//! This module owns the frame format, the members of each event type and their positions in an event. No other
//! module reads the bytes of an event: others forward them whole, or read them through [`EventRef`]. The module
//! must not know the store, readers or HTTP.
//!
//! Reading order: `frame` (the format), `table` (the event types), `session` and its neighbours (the members of
//! each type), `audit` (the audit log), `members` and `framer` (events to frames), `control` (frames that are not in the log), `event_ref`,
//! `payload` and `text_chunk` (frames to events), `schema` (the OpenAPI schemas).
//!
//! [`EventRef::head`] finds the head by position and must not search for member names. A payload of an agent can
//! contain a member with the same name. The run assigns the sequence number, so the store splits a run without parsing
//! its events.

mod agent;
mod audit;
mod control;
mod event_ref;
mod frame;
mod framer;
mod members;
mod payload;
mod prompt;
mod request;
#[cfg(test)]
mod round_trip;
mod schema;
mod session;
mod table;
mod terminal;
#[cfg(test)]
pub(crate) mod tests;
mod text_chunk;

pub use agent::{AgentExited, AgentInvalidOutput, Extension, SessionUpdate};
pub use audit::{
    AUDIT_TYPES, ActorKind, AgentRequestRefused, AuditActor, AuditEntry, AuditEvent, AuditLink,
    AuditLogEvent, AuditPage, AuditPruned, AuditedKey, AuditedMemberState, BroadcastSent,
    FleetMemberChanged, FolderGranted, IsolationApplied, KeyCreated, KeyExpired, KeyRevoked,
    KeyRotated, KeyUpdated, LinkPrinted, LinkUsed, PermissionDecided, RefuseReason, RejectReason,
    RequestRejected, SignInEnded, SignInOutcome, SignInStarted, SignedOut, TicketCreated,
    WebhookCreated, WebhookDeleted,
};
pub use control::{
    ControlFrame, EndFrame, EndReason, PositionFrame, ProblemFrame, Ready, Reset, ResetReason,
    SessionSummaryFrame, ShutdownFrame, SummariesReset,
};
pub use event_ref::{EventRef, Head, events};
pub use frame::{ends, write_block, write_json};
pub use framer::{Event, Framer, Members};
pub use members::{EncodedEvent, EventMembers};
pub use payload::{ChangedMembers, Payload};
pub use prompt::{PromptChanged, PromptCompleted, PromptFailed, PromptQueued, PromptStarted};
pub use request::{ElicitationCompleted, RequestCreated, RequestResolved};
pub use schema::{EventHead, EventPage, SessionEvent};
pub use session::{
    AttachedBy, Context, DetachedReason, LostReason, SessionAttached, SessionChanged,
    SessionClosed, SessionCreated, SessionDeleted, SessionDetached, SessionPrivilegedMode,
};
pub use table::TYPES;
pub use terminal::{TerminalCreated, TerminalExited, TerminalOutput};
pub use text_chunk::TextChunk;
