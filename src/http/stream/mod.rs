//! Events as clients get them: SSE, NDJSON and JSON pages, of one session, of one turn, or of many sessions.
//!
//! All of them read through the log's reader, and while they wait from its place. A stream of everything in its named form
//! passes the bytes of a run through as they were stored; only what is filtered or shaped otherwise is cut into events again.

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
pub(crate) use write_loop::{StreamingBody, Stream, is_stream, problem_response, respond};
pub use frame::Encoder;
pub(crate) use page::page_response;
pub(crate) use keep_alive::KeepAliveTicker;
pub use query::{Cursor, EventsQuery, CursorId};
pub(in crate::http) use socket::SocketSink;
pub(crate) use source::Source;
pub use types::EventTypes;
