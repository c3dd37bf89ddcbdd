//! The parsers of requests, for fuzz targets and their regression tests. The routes use the same items.

pub use super::events_query::{CursorId, EventsQuery};
pub use super::negotiate::{Representation, RequestedRange, negotiate, requested_range};
pub use crate::surface::http::{
    ApiError, Conditions, IdempotencyHeader, IfMatch, LastEventId, Params, PreferWait,
};
