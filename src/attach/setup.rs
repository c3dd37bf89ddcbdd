//! The setup of a session: its folder and its MCP servers, as the editor has named them.

use std::fmt;

use serde_json::json;
use serde_json::value::RawValue;

use super::message::raw;
use crate::acp::RawObject;

/// The setup of one session. The bridge names it again when it restores the session, because the gateway does not store
/// servers of clients. Servers contain secrets, so the setup is only in memory and has no text.
#[derive(Clone, Default)]
pub(super) struct Setup {
    cwd: Option<Box<RawValue>>,
    servers: Option<Box<RawValue>>,
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").finish_non_exhaustive()
    }
}

impl Setup {
    /// The setup in the params of a request that opens a session.
    pub(super) fn of(params: &RawValue) -> Self {
        let object = RawObject::parse(params).unwrap_or_else(RawObject::empty);
        let member = |name| object.get(name).map(ToOwned::to_owned);
        Self {
            cwd: member("cwd"),
            servers: member("mcpServers").filter(|servers| !is_empty(servers)),
        }
    }

    /// The setup after another request. As in the gateway, absent servers do not change the former ones.
    pub(super) fn then(self, later: Self) -> Self {
        Self {
            cwd: later.cwd.or(self.cwd),
            servers: later.servers.or(self.servers),
        }
    }

    /// The size in bytes.
    pub(super) fn size(&self) -> usize {
        let size =
            |member: &Option<Box<RawValue>>| member.as_ref().map_or(0, |value| value.get().len());
        size(&self.cwd) + size(&self.servers)
    }

    /// The params of `session/load` or `session/resume`.
    pub(super) fn params(&self, session: &str) -> Box<RawValue> {
        let cwd = self.cwd.clone().unwrap_or_else(|| raw("/"));
        let servers = self.servers.clone().unwrap_or_else(|| raw(&json!([])));
        let params = format!(
            r#"{{"sessionId":{},"cwd":{cwd},"mcpServers":{servers}}}"#,
            raw(session)
        );
        RawValue::from_string(params).expect("the members are JSON")
    }
}

/// Whether these are no servers.
fn is_empty(servers: &RawValue) -> bool {
    serde_json::from_str::<Vec<&RawValue>>(servers.get()).is_ok_and(|servers| servers.is_empty())
        || servers.get() == "null"
}
