//! JSON-RPC 2.0 as raw envelopes, one message a line (JSON-RPC 2.0; ACP, Transports, stdio).
//!
//! The module owns the framing, the envelope, and the two tables that match requests with responses. It must
//! not know ACP, and it never reads `params` or `result`: they pass through byte for byte. It reads only the
//! reason in the `data` of an error.
//!
//! Read `codec`, `envelope` and `pending` first, then `scan` and `reason`.

mod codec;
mod envelope;
mod pending;
mod reason;
mod scan;

pub use self::codec::{LineDecoder, LineTooLong};
pub(crate) use self::envelope::string_end;
pub use self::envelope::{
    EnvelopeError, MAX_DEPTH, Message, RpcError, TooDeep, check_depth, error, notification, parse,
    parse_error, present, request, response, result, without_line_end,
};
pub use self::pending::{CallId, IncomingId, PendingTables};
pub use self::reason::plain_line;
pub use self::scan::JsonScanner;
