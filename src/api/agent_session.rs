//! The sessions that an agent itself lists.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::schema::schemas_from_json;
use crate::types::SessionId;

/// A session in the list of the agent. It has the agent's own members, raw, but `agentSessionId` instead of
/// its `sessionId`.
#[derive(Debug, Clone)]
pub struct AgentSession {
    pub agent_session_id: String,
    /// The session id in the gateway, if the session was created or adopted there.
    pub session_id: Option<SessionId>,
    /// The other members of the agent, in their order.
    pub members: Vec<(String, Box<RawValue>)>,
}

impl AgentSession {
    /// Member names of the gateway. Members of the agent with these names are omitted.
    pub const RESERVED_MEMBERS: [&str; 2] = ["agentSessionId", "sessionId"];
}

impl Serialize for AgentSession {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(Self::RESERVED_MEMBERS[0], &self.agent_session_id)?;
        map.serialize_entry(Self::RESERVED_MEMBERS[1], &self.session_id)?;
        for (name, value) in &self.members {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

schemas_from_json!(AgentSession);

/// A page of the sessions that an agent lists.
#[derive(Debug, Clone, serde::Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentSessionList {
    /// Sessions whose directory is below a workspace root.
    pub sessions: Vec<AgentSession>,
    /// The agent's own cursor for the next page; null on the last page.
    #[schema(required)]
    pub next_cursor: Option<String>,
}
