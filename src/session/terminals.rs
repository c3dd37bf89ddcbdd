//! `terminal/*` in the session's workspace.

use serde_json::value::RawValue;

use super::actor::Actor;
use crate::acp::error_code;
use crate::jsonrpc::IncomingId;

impl Actor {
    pub(super) fn serve_terminal(&mut self, incoming: IncomingId, method: &str, params: &RawValue) {
        tracing::debug!(method, bytes = params.get().len(), "a terminal was asked for");
        self.refuse(incoming, error_code::INTERNAL, "terminals are not served");
    }
}
