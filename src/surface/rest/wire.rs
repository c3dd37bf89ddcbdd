//! The parsers of requests, for fuzz targets and their regression tests. The routes use the same items.

pub use super::error::ApiError;
pub use super::events_query::{Cursor, CursorId, EventsQuery};
pub use super::extract::{Conditions, IdempotencyHeader, IfMatch, LastEventId, Params, PreferWait};
pub use super::negotiate::{Representation, negotiate};
pub use super::range::{RequestedRange, requested_range};
