//! `fs/*` from the session's workspace.

use serde_json::value::RawValue;

use super::actor::Actor;
use crate::acp::error_code;
use crate::jsonrpc::IncomingId;

impl Actor {
    pub(super) fn serve_file(&mut self, incoming: IncomingId, method: &str, params: &RawValue) {
        tracing::debug!(method, bytes = params.get().len(), "a file was asked for");
        self.refuse(incoming, error_code::INTERNAL, "files are not served");
    }
}
