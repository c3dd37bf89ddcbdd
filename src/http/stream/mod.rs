//! Events as clients get them: SSE, NDJSON and JSON pages, of one session, of one turn, or of many sessions.
//!
//! All of them read through the log's reader, and while they wait from its place. A stream of everything in its named form
//! passes the bytes of a run through as they were stored; only what is filtered or shaped otherwise is cut into events again.

mod chunk;
mod feed;
mod follow;
mod frame;
mod page;
mod pulse;
mod query;
mod socket;
mod source;
mod types;

pub(in crate::http) use chunk::Made;
pub(crate) use feed::{Feed, Turn};
pub(crate) use follow::{Live, Stream, is_stream, refused, respond};
pub use frame::Shape;
pub(crate) use page::page;
pub(crate) use pulse::Pulse;
pub use query::{Cursor, EventsQuery, Place};
pub(in crate::http) use socket::Socket;
pub(crate) use source::Source;
pub use types::Types;
