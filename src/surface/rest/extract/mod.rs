//! Extractors of request parts. Each fails with the problem that describes the wrong part.

mod headers;
mod json;
mod query;
mod request;

pub use headers::{Conditions, IdempotencyHeader, IfMatch, LastEventId, PreferWait};
pub(crate) use headers::{IfNoneMatch, set_preference_applied, set_replayed, trace_context};
pub(crate) use json::{JsonBody, LargeJsonBody, OptionalJsonBody};
pub(crate) use query::Page;
pub use query::Params;
pub(crate) use request::ApiRequest;
