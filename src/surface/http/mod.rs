//! The parts that all surfaces share: the state, the admission and authorization of a request, its parts and its body, the error of
//! a request, and the start of a turn.
//!
//! Read in this order:
//! 1. `state`: the components of the gateway. `admission`, `authorized`: who sends a request, and its scope.
//! 2. `request`, `body`, `json`: the parts of a request.
//! 3. `error`: the only place that maps errors to statuses. Each surface writes them in its own format.
//! 4. `turn`: the calls that several surfaces perform in the same way. `embedded`: files of the binary.

mod admission;
mod authorized;
mod body;
mod embedded;
mod error;
pub(crate) mod json;
mod request;
mod state;
mod turn;

pub(crate) use admission::{admit, method_not_allowed, panic_response};
pub(crate) use authorized::{
    AccessError, Authorized, CanAdmin, CanApprove, CanFiles, CanFleet, CanPrompt, CanRead, HasKey,
    RequiredScope,
};
pub(crate) use body::{
    BodyError, BodyLimit, check_coding, declared_bytes, discard_rest, has_media_type, read_body,
    waits_for_continue,
};
pub(crate) use embedded::{accepts_encoding, embedded, etag, revalidated};
pub use error::ApiError;
pub(crate) use error::FailedResponse;
pub(crate) use request::{
    ApiRequest, IfNoneMatch, JsonBody, LargeJsonBody, OptionalJsonBody, Page,
    set_preference_applied, set_replayed, trace_context,
};
pub use request::{Conditions, IdempotencyHeader, IfMatch, LastEventId, Params, PreferWait};
pub use state::{Gateway, GatewayParts};
pub(crate) use turn::{NewTurn, call_sign_in, turn_feed};
