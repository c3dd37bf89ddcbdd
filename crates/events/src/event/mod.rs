//! The events of the log: their bytes, written and read.
//!
//! This module owns the frame format, the members of each event type and their positions in an event. No other
//! module reads the bytes of an event: others forward them whole, or read them through [`EventRef`]. The module
//! must not know the store, readers or HTTP.
//!
//! Reading order: `table` (the event types and their schemas), `session` and `agent` (the members of each type), `audit`
//! (the audit log), `frame` (events to frames), `control` (frames that are not in the log), `event_ref` (frames to events).
//!
//! [`EventRef::head`] finds the head by position and must not search for member names. A payload of an agent can
//! contain a member with the same name. The run assigns the sequence number, so the store splits a run without parsing
//! its events.

mod agent;
mod audit;
mod control;
mod event_ref;
mod frame;
#[cfg(test)]
mod round_trip;
mod session;
mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use agent::*;
pub use audit::*;
pub use control::*;
pub use event_ref::*;
pub use frame::*;
pub use session::*;
pub use table::{EventHead, EventPage, EventType, SessionEvent, TASK_ENDED, TYPES, webhook_types};
