//! The headers of the remote transport of ACP (RFD "streamable HTTP and WebSocket transport").

use http::HeaderName;

pub const CONNECTION_ID: HeaderName = HeaderName::from_static("acp-connection-id");
pub const SESSION_ID: HeaderName = HeaderName::from_static("acp-session-id");
/// The id of the last received event of a stream.
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
