//! The events of the log: their bytes, written and read.
//!
//! This module owns the frame format, the members of each event type and their positions in an event. No other
//! module reads the bytes of an event: others forward them whole, or read them through [`EventRef`]. The module
//! must not know the store, readers or HTTP.
//!
//! Reading order: `frame` (the format), `table` (the event types), `session` and its neighbours (the members of
//! each type), `audit` (the audit log), `members` and `framer` (events to frames), `control` (frames that are not in the log), `event_ref`
//! and `payload` (frames to events), `schema` (the OpenAPI schemas).
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
#[cfg(test)]
mod round_trip;
mod schema;
mod session;
mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use agent::{
    AgentExited, AgentInvalidOutput, ElicitationCompleted, Extension, RequestCreated,
    RequestResolved, SessionUpdate, TerminalCreated, TerminalExited, TerminalOutput,
};
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
pub use event_ref::{EventRef, Head, TextChunk, events};
pub use frame::{ends, write_block, write_json};
pub use framer::{Event, Framer, Members};
pub use members::{EncodedEvent, EventMembers};
pub use payload::{ChangedMembers, Payload};
pub use schema::{EventHead, EventPage, SessionEvent};
pub use session::{
    AttachedBy, Context, DetachedReason, LostReason, PromptChanged, PromptCompleted, PromptFailed,
    PromptQueued, PromptStarted, SessionAttached, SessionChanged, SessionClosed, SessionCreated,
    SessionDeleted, SessionDetached, SessionPrivilegedMode,
};
pub use table::TYPES;
