//! Events for clients: SSE, NDJSON and JSON pages, of one session, of one turn, or of many sessions.
//!
//! The module owns the position of a client in the log, its filters, and the encoding of events. All streams
//! read through the readers of [`crate::eventlog`]. While a stream waits, its direct sink delivers from the
//! tail cursor of its reader. An unfiltered SSE stream with event names passes the stored bytes of a run
//! through. All other streams are assembled from single events.
//!
//! The module must not know routes, the store or agent processes.
//!
//! Read in this order:
//! 1. `query`, `types`: the parameters of a request.
//! 2. `source`, `feed`: the events that a client selects.
//! 3. `frame`, `chunk`: their encoding.
//! 4. `write_loop`, `socket`, `body_sink`, `keep_alive`: the task of a stream, its sinks and its timer.
//! 5. `page`: the same events for clients that poll.

mod body_sink;
mod chunk;
mod feed;
mod write_loop;
mod frame;
mod page;
mod keep_alive;
mod query;
mod socket;
mod source;
mod types;

pub(in crate::http) use chunk::ChunkCache;
pub(crate) use feed::{Feed, TurnFilter};
pub use frame::Encoder;
pub(crate) use keep_alive::KeepAliveTicker;
pub(crate) use page::page_response;
pub use query::{Cursor, CursorId, EventsQuery};
pub(in crate::http) use socket::SocketSink;
pub(crate) use source::Source;
pub use types::EventTypes;
pub(crate) use write_loop::{Stream, StreamingBody, is_stream, problem_response, respond};
