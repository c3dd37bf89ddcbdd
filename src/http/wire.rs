//! How requests are read and events are written, for those who hold both against the standards: the fuzz targets and
//! the tests that replay their findings. What is listed here is what the routes themselves use.

pub use super::error::ApiError;
pub use super::extract::{Conditions, IdempotencyHeader, IfMatch, LastEventId, Params, PreferWait};
pub use super::negotiate::{Representation, negotiate};
pub use super::range::{RequestedRange, requested_range};
pub use super::stream::{Cursor, EventsQuery, CursorId, Encoder, EventTypes};
