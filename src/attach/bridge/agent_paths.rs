//! The paths in requests of the agent, which are paths at the gateway.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::Bridge;
use crate::acp::{RawObject, error_code, method};
use crate::attach::message::{raw, rpc_error, with_value};
use crate::jsonrpc::RpcError;

/// The member of a request's params that is a path at the editor.
fn path_member(method: &str) -> Option<&'static str> {
    match method {
        method::FS_READ_TEXT_FILE | method::FS_WRITE_TEXT_FILE => Some("path"),
        method::TERMINAL_CREATE => Some("cwd"),
        _ => None,
    }
}

impl Bridge {
    /// Returns a request of the agent with its path mapped to the path at the editor. A request without a path passes
    /// unchanged. Fails if there are maps and none has the path.
    pub(super) fn map_agent_path<'a>(
        &self,
        method: &str,
        data: &'a Bytes,
    ) -> Result<Cow<'a, Bytes>, RpcError> {
        let unchanged = Ok(Cow::Borrowed(data));
        let Some(member) = path_member(method).filter(|_| !self.settings.paths.is_empty()) else {
            return unchanged;
        };
        let invalid = |detail: String| rpc_error(error_code::INVALID_PARAMS, detail);
        let request = serde_json::from_slice::<&RawValue>(data)
            .ok()
            .and_then(RawObject::parse);
        let Some((request, params)) =
            request.and_then(|request| Some((request.clone(), request.object("params")?)))
        else {
            return Err(invalid(
                "the params must be an object without repeated members".to_owned(),
            ));
        };
        let Some(path) = params.text(member) else {
            return unchanged;
        };
        let local = self
            .settings
            .paths
            .to_local(&path)
            .map_err(|error| invalid(error.to_string()))?;
        let params = with_value(&params, member, &raw(&local));
        let request = with_value(&request, "params", &params);
        Ok(Cow::Owned(Bytes::from(
            Box::<str>::from(request).into_string(),
        )))
    }
}
