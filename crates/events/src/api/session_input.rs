//! Inputs for sessions: creation, and the merge patch of title and metadata.

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use base::types::{AgentName, SessionPolicy};

use super::nullable::present;
use super::prompt::Attachment;
use super::schema::PromptContent;
use base::schemas_from_json;

/// The attach of a session.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AttachSession {
    /// The conversation that the agent continues. Default: `kept`.
    #[serde(default)]
    #[schema(required = false)]
    pub context: RequestedContext,
}

/// The conversation that the agent continues after an attach.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RequestedContext {
    /// The agent continues its conversation, if it can.
    #[default]
    Kept,
    /// The agent begins a new conversation and does not remember the earlier turns. The log keeps them.
    New,
}

/// A new session.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateSession {
    pub agent: AgentName,
    /// The working directory below the workspace root. A relative path is resolved against the workspace
    /// root. Default: a new directory.
    #[schema(max_length = 4096)]
    pub cwd: Option<String>,
    /// Names of MCP servers in the configuration (`[mcp.<name>]`). At most 64.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub mcp_servers: Vec<McpServer>,
    /// Further directories for the agent, below a workspace root. At most 64.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub additional_directories: Vec<String>,
    /// The title of the session.
    #[schema(max_length = 512)]
    pub title: Option<String>,
    /// Arbitrary data of the client.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Map<String, Value>>,
    /// Restrictions of the session.
    pub policy: Option<SessionPolicy>,
    /// The id of an existing session of the agent. The gateway adopts it instead of creating a session.
    /// Requires the scope `admin`, and `cwd` if the agent cannot list its sessions.
    #[schema(min_length = 1, max_length = 1024)]
    pub agent_session_id: Option<String>,
    /// Additional `_meta` for the agent, sent at each set-up of the session. Only the keys in the agent's
    /// entry are allowed.
    #[serde(rename = "_meta")]
    #[schema(value_type = Option<Object>)]
    pub meta: Option<Box<RawValue>>,
    /// The mode to set before the first prompt. Requires the scope `approve`.
    #[schema(max_length = 1024)]
    pub mode_id: Option<String>,
    /// Options of the agent to set before the first prompt: values by the ids of the options. At most 64. Requires
    /// the scope `approve`.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub config: Map<String, Value>,
    /// The first prompt: a text, or an array of ACP content blocks. Its turn begins with the session.
    #[schema(value_type = Option<PromptContent>)]
    pub prompt: Option<Box<RawValue>>,
    /// Files of the session to attach to the first prompt. At most 64.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub attachments: Vec<Attachment>,
}

impl CreateSession {
    /// A session of this agent in a new directory.
    pub fn of(agent: AgentName) -> Self {
        Self {
            agent,
            cwd: None,
            mcp_servers: Vec::new(),
            additional_directories: Vec::new(),
            title: None,
            metadata: None,
            policy: None,
            agent_session_id: None,
            meta: None,
            mode_id: None,
            config: Map::new(),
            prompt: None,
            attachments: Vec::new(),
        }
    }
}

/// An MCP server that a client selects, or defines itself.
#[derive(Debug, Clone)]
pub enum McpServer {
    /// The name of a server in the configuration.
    Name(String),
    /// An ACP `McpServer`. It requires the scope `mcp`, because it defines a command or a URL.
    Inline(Box<RawValue>),
}

impl<'de> Deserialize<'de> for McpServer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        match raw.get().as_bytes().first() {
            Some(b'"') => serde_json::from_str(raw.get())
                .map(Self::Name)
                .map_err(D::Error::custom),
            Some(b'{') => Ok(Self::Inline(raw)),
            _ => Err(D::Error::custom(
                "invalid type: expected the name of a server or an object",
            )),
        }
    }
}

schemas_from_json!(McpServer);

/// A merge patch (RFC 7396). An absent member is unchanged, null clears it, and a value replaces it.
/// `metadata` is merged member by member.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionPatch {
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>, max_length = 512)]
    pub title: Option<Option<String>>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Option<Map<String, Value>>>,
}

impl SessionPatch {
    pub fn is_empty(&self) -> bool {
        self.title.is_none() && self.metadata.is_none()
    }

    /// Applies the patch to the metadata.
    pub fn merged_metadata(&self, mut now: Map<String, Value>) -> Map<String, Value> {
        match &self.metadata {
            None => now,
            Some(None) => Map::new(),
            Some(Some(patch)) => {
                merge(&mut now, patch);
                now
            }
        }
    }
}

/// Merges objects (RFC 7396). The depth limit of request bodies bounds the recursion.
fn merge(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (name, value) in patch {
        match value {
            Value::Null => {
                target.remove(name);
            }
            Value::Object(inner) => {
                let slot = target.entry(name.as_str()).or_insert(Value::Null);
                if !slot.is_object() {
                    *slot = Value::Object(Map::new());
                }
                if let Value::Object(slot) = slot {
                    merge(slot, inner);
                }
            }
            other => {
                target.insert(name.clone(), other.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(json: &str) -> Map<String, Value> {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_merge_patch_is_rfc_7396() {
        for (target, patch, merged) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b","b":1}"#, r#"{"a":null}"#, r#"{"b":1}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (
                r#"{"a":{"b":"c"}}"#,
                r#"{"a":{"b":"d","c":null}}"#,
                r#"{"a":{"b":"d"}}"#,
            ),
            (
                r#"{"a":[1,2]}"#,
                r#"{"a":{"bb":{"ccc":null}}}"#,
                r#"{"a":{"bb":{}}}"#,
            ),
        ] {
            let patch = SessionPatch {
                metadata: Some(Some(object(patch))),
                ..SessionPatch::default()
            };
            assert_eq!(
                patch.merged_metadata(object(target)),
                object(merged),
                "{target} {patch:?}"
            );
        }
    }

    #[test]
    fn absent_null_and_a_value_are_distinct() {
        let patch = |json| serde_json::from_str::<SessionPatch>(json).unwrap();
        assert!(patch("{}").is_empty());
        assert_eq!(patch(r#"{"title":null}"#).title, Some(None));
        assert_eq!(patch(r#"{"title":"x"}"#).title, Some(Some("x".to_owned())));
        assert!(
            patch(r#"{"metadata":null}"#)
                .merged_metadata(object(r#"{"a":1}"#))
                .is_empty()
        );
        assert!(serde_json::from_str::<SessionPatch>(r#"{"state":"idle"}"#).is_err());
    }

    #[test]
    fn a_server_is_a_name_or_an_object() {
        let of = |json| serde_json::from_str::<McpServer>(json);
        assert!(matches!(of(r#""docs""#), Ok(McpServer::Name(name)) if name == "docs"));
        assert!(matches!(
            of(r#"{"command":"sh"}"#),
            Ok(McpServer::Inline(_))
        ));
        assert!(of("1").is_err());
    }
}
