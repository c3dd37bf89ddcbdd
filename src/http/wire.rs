//! How requests are read and events are written, for those who hold both against the standards: the fuzz targets and
//! the tests that replay their findings. What is listed here is what the routes themselves use.

pub use super::error::ApiError;
pub use super::extract::{Conditions, IdempotencyHeader, IfMatch, LastEventId, Params, Wait};
pub use super::negotiate::{Form, choose};
pub use super::range::{Part, part};
pub use super::stream::{Cursor, EventsQuery, Place, Shape, Types};
