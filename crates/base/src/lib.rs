//! Ids, cursors, principals, the clock, the declaration of limits, the stop of all tasks, logs and metrics. Every other crate uses it.
//!
//! - [`types`]: ids, cursors, principals, the clock.
//! - [`limits`]: the declaration of the limits of a module.
//! - [`schema`]: the schemas of these types in the OpenAPI document.
//! - [`shutdown`]: the soft and the hard stop; it starts all tasks and threads.
//! - [`telemetry`]: destination and format of logs, and the metrics.

pub mod limits;
pub mod types;
pub mod schema;
pub mod shutdown;
pub mod telemetry;
