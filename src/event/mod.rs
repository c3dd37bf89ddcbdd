//! The events of the log: their bytes, written and read.
//!
//! This module owns the frame format and the position of each member in an event. No other module reads the
//! bytes of an event: others forward them whole, or read them through [`EventRef`]. The module must not know
//! the store, readers or HTTP.
//!
//! Reading order: `frame` (the format), `framer` (events to frames), `event_ref` and `payload` (frames
//! to events).

mod event_ref;
mod frame;
mod framer;
mod payload;
#[cfg(test)]
pub(crate) mod tests;

pub use event_ref::{EventRef, Head};
pub use frame::{ends, events, write_block};
pub use framer::{Event, Framer, Members};
pub use payload::Payload;
