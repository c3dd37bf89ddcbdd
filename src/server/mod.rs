//! The HTTP server: connections and their limits, over HTTP/1.1 and h2c, and the middleware of all surfaces.
//!
//! The module owns the listener, connections, and request ids. A response with a following stream hijacks its
//! HTTP/1.1 connection, and the stream owns the socket until its end. The module must not know surfaces,
//! sessions or the store.
//!
//! Read in this order:
//! 1. `listeners`, `accept`, `connection_limit`, `waiting`, `connection`, `activity`: a connection and its limits.
//!    `frame_limiter`, `flood_log`: floods of HTTP/2 frames.
//! 2. `middleware`, `rate_limits`, `cors`: the admission of a request, and the headers of its response.
//!    `body_memory`: the memory of bodies.
//! 3. `connection_io`, `backlog`, `response_body`: bounds on unread responses.
//! 4. `streaming`, `hijack`: a response that streams events.

mod accept;
mod activity;
mod backlog;
mod body_memory;
mod connection;
mod connection_io;
mod connection_limit;
mod cors;
mod flood_log;
mod frame_limiter;
mod hijack;
mod listeners;
mod middleware;
mod rate_limits;
mod response_body;
mod streaming;
mod waiting;

pub use accept::{Acceptor, serve};
pub(crate) use backlog::SharedBody;
pub(crate) use body_memory::{BodyCharge, BodyMemory, BodyMemoryFull};
pub(crate) use connection_limit::ConnectionPermit;
pub use connection_limit::ConnectionUse;
pub use listeners::{BindError, BoundListeners};
pub(crate) use middleware::{
    AdmitError, InternalError, RequestContext, RequestId, finish_response,
};
pub(crate) use rate_limits::RateLimits;
pub(crate) use streaming::{event_response, stream_response};
pub use waiting::max_waiting_sockets;
