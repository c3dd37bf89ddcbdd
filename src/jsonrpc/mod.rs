//! JSON-RPC 2.0 as raw envelopes, one message a line (JSON-RPC 2.0; ACP, Transports, stdio).
//!
//! The module owns the framing, the envelope, and the two tables that match requests with responses. It must
//! not know ACP, and it never reads `params` or `result`: they pass through byte for byte. It reads only the
//! reason in the `data` of an error.
//!
//! Read `codec`, `envelope` and `pending` first, then `depth`, `line`, `scan` and `reason`.

mod codec;
mod depth;
mod envelope;
mod line;
mod pending;
mod reason;
mod scan;

pub use codec::{LineDecoder, LineTooLong};
pub use depth::{TooDeep, check_depth};
pub use envelope::{EnvelopeError, Message, RpcError, parse, parse_error, present};
pub use line::{error, notification, request, result, without_line_end};
pub use pending::{CallId, IncomingId, PendingTables};
pub use reason::plain_line;
pub use scan::JsonScanner;
