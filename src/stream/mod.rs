//! Streams: the events that a client selects, from a reader of the log to a socket or a response body.
//!
//! The module owns the position of a client in the log, its filters, and the encoding of events. All streams
//! read through the readers of [`crate::eventlog`]. While a stream waits, its direct sink delivers from the
//! tail cursor of its reader. An unfiltered SSE stream with event names passes the stored bytes of a run
//! through. All other streams are assembled from single events.
//!
//! The module must not know requests, connections, surfaces, the store or agent processes.
//!
//! Read in this order:
//! 1. `event_types`, `summaries`, `source`, `feed`: the events and summaries that a client selects.
//! 2. `encoder`, `sse`, `ndjson`: their encoding.
//! 3. `parked`, `write_loop`, `keep_alive`: the states of a stream, its task and its timer.
//! 4. `sink`, `socket`, `chunk`, `body`: the writers of a socket and of a response body.
//! 5. `page`: the same events for clients that poll.
//! 6. `workers`, `open_streams`: the threads that write sockets, and the limit of a principal.
//!
//! A complete stream ends with the frame `end`. `prompt.completed` cannot mark the end: with filters, with
//! `follow=false` and with many sessions, a stream has no such event.
//!
//! Constraints and rejected alternatives:
//!
//! - A stream returns its socket through the trait `SocketOwner`. An import of `server` would make streams depend on
//!   permits and listeners.
//! - Encoders are trait objects. With an enum, each new protocol changes this module. With a type parameter,
//!   connections and workers become generic too.
//! - Direct delivery replaces one task wake for each event. With 1,000 readers, the wakes cost 17 % more processor
//!   time. The cache of encoded chunks saves 10 %.
//! - The writer of the log only wakes notifiers. Delivery by the writer saves less than 5 % of latency and processor
//!   time.

mod body;
mod chunk;
mod encoder;
mod event_types;
mod feed;
mod keep_alive;
mod ndjson;
mod open_streams;
mod page;
mod parked;
mod sink;
mod socket;
mod source;
mod sse;
mod summaries;
mod workers;
mod write_loop;

pub(crate) use body::{ChunkSender, body_from};
pub use encoder::Encoder;
pub use event_types::EventTypes;
pub(crate) use feed::{Feed, TurnFilter};
pub(crate) use keep_alive::KeepAliveTicker;
pub use ndjson::Ndjson;
pub(crate) use open_streams::{StreamGuard, Streams};
pub(crate) use page::{Page, PageState};
pub(crate) use socket::SocketOwner;
pub(crate) use source::Source;
pub use sse::Sse;
pub use workers::StreamWorkers;
pub(crate) use workers::{SocketStream, register_with};
pub(crate) use write_loop::{Stream, retry_delay};
