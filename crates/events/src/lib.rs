//! The types of the API, and events with their bytes.
//!
//! - [`api`]: bodies of requests and responses; problems and the table of their codes.
//! - [`event`]: the table of event types, and the only code that reads and writes the bytes of an event.

pub mod api;
pub mod event;
