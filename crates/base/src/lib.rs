//! Ids, cursors, principals, limits, the clock, the stop of all tasks, and logs. Every other crate uses it.
//!
//! - [`types`]: ids, cursors, principals, the clock, limits with their defaults, known agents.
//! - [`schema`]: the schemas of these types in the OpenAPI document.
//! - [`shutdown`]: the soft and the hard stop; it starts all tasks and threads.
//! - [`telemetry`]: destination and format of logs.

pub mod types;
pub mod schema;
pub mod shutdown;
pub mod telemetry;
