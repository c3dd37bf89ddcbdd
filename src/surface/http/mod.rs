//! The parts that all surfaces share: the state, the admission and authorization of a request, its parts and its body, the error of
//! a request, and the start of a turn.
//!
//! Read in this order:
//! 1. `state`: the components of the gateway, and the admission of a request. `authorized`: who sends a request, and its scope.
//! 2. `request`, `body`, `json`: the parts of a request.
//! 3. `error`: the only place that maps errors to statuses. Each surface writes them in its own format.
//! 4. `turn`: the calls that several surfaces perform in the same way. `socket`: the start and the end of a WebSocket. `embedded`: files of the binary.

mod authorized;
mod body;
mod embedded;
mod error;
pub(crate) mod json;
pub mod limits;
mod request;
mod socket;
mod state;
mod turn;

pub(crate) use authorized::{
    AccessError, Authorized, CanAdmin, CanApprove, CanFiles, CanFleet, CanMetrics, CanPrompt,
    CanRead, HasKey,
};
pub(crate) use body::{
    BodyError, BodyLimit, ascii, check_coding, declared_bytes, discard_rest, has_media_type,
    header_texts, read_body, waits_for_continue,
};
pub(crate) use embedded::{accepts_encoding, embedded, etag, revalidated};
pub use error::{ApiError, Result};
pub(crate) use error::{FailedResponse, method_not_allowed, panic_response};
pub(crate) use request::{
    AnyQuery, ApiRequest, IfNoneMatch, JsonBody, OptionalJsonBody, Page, PreferenceApplied,
    PromptSize, Replayed, WholeHistory, location, trace_context,
};
pub use request::{Conditions, IdempotencyHeader, IfMatch, LastEventId, Params, PreferWait};
pub(crate) use socket::{accept_socket, close_frame, send_last};
pub(crate) use state::record_session;
pub use state::{AppParts, AppState};
pub(crate) use turn::{NewTurn, call_sign_in, turn_feed};
