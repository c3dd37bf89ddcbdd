//! JSON-RPC 2.0 as raw envelopes, one a line (JSON-RPC 2.0; ACP, Transports, stdio).
//!
//! It owns framing, the envelope and the two tables that pair requests with answers. It knows no ACP word,
//! and it never looks into `params`, `result` or `data`: they travel byte for byte.

mod codec;
mod envelope;
mod line;
mod pending;
mod scan;

pub use codec::{LineTooLong, Lines};
pub use envelope::{BadLine, Message, RpcError, error_of, parse};
pub use line::{error, notification, request, result};
pub use pending::{CallId, IncomingId, Tables};
pub use scan::Scan;
