//! The open requests: the gateway's source.

#[expect(dead_code, reason = "other parts of a session use the remaining items")]
#[path = "../../../../src/session/agent_requests/open.rs"]
mod open;

pub(super) use open::{AgentRequests, EndedBy, OfferedRequest, Resolving, Wait};
