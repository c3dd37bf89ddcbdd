//! The parsers of requests and the encoder of events, for fuzz targets and their regression tests. The routes
//! use the same items.

pub use super::error::ApiError;
pub use super::extract::{Conditions, IdempotencyHeader, IfMatch, LastEventId, Params, PreferWait};
pub use super::negotiate::{Representation, negotiate};
pub use super::range::{RequestedRange, requested_range};
pub use super::stream::{Cursor, CursorId, Encoder, EventTypes, EventsQuery};
