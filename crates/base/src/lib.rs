//! Ids, cursors, users, the clock, the declaration of limits, the stop of all tasks, logs, metrics and traces. Every other crate uses it.
//!
//! - [`types`]: ids, cursors, users and their rights, the clock.
//! - [`limits`]: the declaration of the limits of a module.
//! - [`schema`]: the schemas of these types in the OpenAPI document.
//! - [`shutdown`]: the soft and the hard stop; it starts all tasks and threads.
//! - [`telemetry`]: destination and format of logs, the metrics, and the spans for OTLP.

pub mod limits;
pub mod types;
pub mod schema;
pub mod shutdown;
pub mod telemetry;
