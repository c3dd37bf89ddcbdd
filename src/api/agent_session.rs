//! The sessions that an agent itself knows of.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, Schema, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::types::SessionId;

/// A session as the agent lists it: its own members, raw, with `agentSessionId` in place of its `sessionId`.
#[derive(Debug, Clone)]
pub struct AgentSession {
    pub agent_session_id: String,
    /// Ours, if it was made here or was adopted.
    pub session_id: Option<SessionId>,
    /// The agent's further members in their order.
    pub members: Vec<(String, Box<RawValue>)>,
}

impl AgentSession {
    /// Names of ours: what the agent has under them is left out.
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

impl PartialSchema for AgentSession {
    fn schema() -> RefOr<Schema> {
        let text = || ObjectBuilder::new().schema_type(Type::String);
        let nullable = || ObjectBuilder::new().schema_type(SchemaType::from_iter([Type::String, Type::Null]));
        ObjectBuilder::new()
            .schema_type(Type::Object)
            .description(Some("A session as the agent lists it, with all that it says of it."))
            .property("agentSessionId", text().description(Some("The agent's own id of it.")))
            .required("agentSessionId")
            .property("sessionId", nullable().description(Some("Ours, if it was made here or was adopted.")))
            .required("sessionId")
            .property("cwd", text().description(Some("Its working folder, below a workspace root.")))
            .required("cwd")
            .property("title", nullable())
            .property("updatedAt", nullable())
            .additional_properties(Some(AdditionalProperties::FreeForm(true)))
            .into()
    }
}

impl ToSchema for AgentSession {}

#[derive(Debug, Clone, serde::Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentSessionList {
    /// Those whose folder lies below a workspace root.
    pub sessions: Vec<AgentSession>,
    /// The agent's own.
    #[schema(required)]
    pub next_cursor: Option<String>,
}
