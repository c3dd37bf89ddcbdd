//! Streams: the events that a client selects, from a reader of the log to a socket or a response body.
//!
//! The module owns the position of a client in the log, its filters, and the encoding of events. All streams
//! read through the readers of [`log::eventlog`]. While a stream waits, its direct sink delivers from the
//! tail cursor of its reader. An unfiltered SSE stream with event names passes the stored bytes of a run
//! through. All other streams are assembled from single events.
//!
//! The module must not know requests, connections, surfaces, the store or agent processes.
//!
//! Read in this order:
//! 1. `feed`: the events and summaries that a client selects, as a stream and as pages. `encoder`: their encoding.
//! 2. `write_loop`, `keep_alive`: the states of a stream, its task and its timer.
//! 3. `sink`, `socket`, `chunk`: the writers of a socket and of a response body, and parked streams.
//! 4. `workers`: the threads that write sockets.
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

mod chunk;
mod encoder;
mod feed;
mod keep_alive;
pub mod limits;
mod sink;
mod socket;
mod workers;
mod write_loop;

pub use encoder::{Encoder, Ndjson, Sse};
pub use feed::EventTypes;
pub(crate) use feed::{Feed, Page, PageState, SharedReads, Source, TurnFilter};
pub(crate) use keep_alive::KeepAliveTicker;
pub(crate) use sink::{ChunkSender, body_from};
pub(crate) use socket::SocketOwner;
pub use workers::StreamWorkers;
pub(crate) use workers::{SocketStream, register_with};
pub(crate) use write_loop::{Stream, StreamGuard, Streams, retry_delay};
