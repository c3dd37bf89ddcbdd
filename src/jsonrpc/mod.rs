//! JSON-RPC 2.0 as raw envelopes, one a line (JSON-RPC 2.0; ACP, Transports, stdio).
//!
//! It owns framing, the envelope and the two tables that pair requests with answers. It knows no ACP word,
//! and it never looks into `params` or `result`: they travel byte for byte. Of an error's `data` it reads the reason.

mod codec;
mod envelope;
mod line;
mod pending;
mod reason;
mod scan;

pub use codec::{LineTooLong, LineDecoder};
pub use envelope::{EnvelopeError, Message, RpcError, parse_error, parse};
pub use line::{error, notification, request, result};
pub use pending::{CallId, IncomingId, PendingTables};
pub use reason::plain_line;
pub use scan::JsonScanner;
