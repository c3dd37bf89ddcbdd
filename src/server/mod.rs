//! The HTTP server: connections and their limits, over HTTP/1.1 and h2c, and the middleware of all surfaces.
//!
//! The module owns the listener, connections, and request ids. A response with a following stream hijacks its
//! HTTP/1.1 connection, and the stream owns the socket until its end. The module must not know surfaces,
//! sessions or the store.
//!
//! Read in this order:
//! 1. `limits`, `listeners`, `accept`, `connection_limit`, `connection`: a connection and its limits. `frame_limiter`: floods of
//!    HTTP/2 frames.
//! 2. `middleware`: the admission of a request, its rate, and the headers of its response. `access_log`: the record of
//!    a request. `body_memory`: the memory of bodies.
//! 3. `connection_io`, `response_body`: the activity of a connection, and bounds on unread responses.
//! 4. `hijack`: a response that streams events.

mod accept;
mod access_log;
mod body_memory;
mod connection;
mod connection_io;
mod connection_limit;
mod frame_limiter;
mod hijack;
pub mod limits;
mod listeners;
mod middleware;
mod response_body;

pub use accept::{Acceptor, max_waiting_sockets, serve};
pub(crate) use body_memory::{BodyCharge, BodyMemory, BodyMemoryFull};
pub(crate) use connection_limit::ConnectionPermit;
pub use connection_limit::ConnectionUse;
pub(crate) use hijack::{event_response, stream_response};
pub use listeners::{BindError, BoundListeners};
pub(crate) use middleware::{
    AdmitError, InternalError, RateLimits, RequestContext, RequestId, finish_response,
};
pub(crate) use response_body::SharedBody;
