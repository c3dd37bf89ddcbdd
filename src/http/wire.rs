//! The parsers of requests and the encoder of events, for fuzz targets and their regression tests. The routes
//! use the same items.

pub use super::error::ApiError;
pub use super::extract::{Conditions, IdempotencyHeader, IfMatch, LastEventId, Params, Wait};
pub use super::negotiate::{Form, choose};
pub use super::range::{Part, part};
pub use super::stream::{Cursor, EventsQuery, Place, Shape, Types};
