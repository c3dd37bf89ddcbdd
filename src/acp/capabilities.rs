//! The capabilities of an agent, parsed leniently: a missing member or a member of the wrong type is an
//! unsupported capability.

use serde_json::value::RawValue;

use super::raw_object::RawObject;

/// The capabilities that the gateway uses. Clients receive the raw object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentCapabilities {
    /// `session/load`.
    pub load_session: bool,
    /// True if the agent can return a session with its history: with `session/load`, in v2 with
    /// `session/resume` from the start.
    pub can_replay: bool,
    pub prompt: PromptCapabilities,
    pub mcp: McpCapabilities,
    pub session: SessionCapabilities,
    pub auth: AuthCapabilities,
}

impl AgentCapabilities {
    /// Returns true if the agent can restore a session in another process.
    pub fn can_restore(&self) -> bool {
        self.load_session || self.session.resume || self.can_replay
    }
}

/// Authentication methods besides `authenticate`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AuthCapabilities {
    /// `logout`.
    pub logout: bool,
    /// `auth/status`.
    pub status: bool,
}

/// Supported content types in prompts, besides text and resource links.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PromptCapabilities {
    pub image: bool,
    pub audio: bool,
    pub embedded_context: bool,
}

/// Supported transports of MCP servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct McpCapabilities {
    /// Always supported in v1.
    pub stdio: bool,
    pub http: bool,
    pub sse: bool,
}

impl Default for McpCapabilities {
    fn default() -> Self {
        Self { stdio: true, http: false, sse: false }
    }
}

/// Supported methods `session/<name>` beyond the baseline, and `additionalDirectories`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each field is a separate capability in the protocol")]
pub struct SessionCapabilities {
    pub list: bool,
    pub resume: bool,
    pub close: bool,
    pub delete: bool,
    pub fork: bool,
    pub additional_directories: bool,
}

impl AgentCapabilities {
    pub fn parse_v1(raw: &RawValue) -> Self {
        let Some(all) = RawObject::parse(raw) else { return Self::default() };
        let prompt = all.object("promptCapabilities");
        let mcp = all.object("mcpCapabilities");
        let session = all.object("sessionCapabilities");
        let auth = all.object("auth");
        let load_session = has_flag(Some(&all), "loadSession");
        Self {
            load_session,
            can_replay: load_session,
            prompt: PromptCapabilities {
                image: has_flag(prompt.as_ref(), "image"),
                audio: has_flag(prompt.as_ref(), "audio"),
                embedded_context: has_flag(prompt.as_ref(), "embeddedContext"),
            },
            mcp: McpCapabilities {
                stdio: true,
                http: has_flag(mcp.as_ref(), "http"),
                sse: has_flag(mcp.as_ref(), "sse"),
            },
            session: SessionCapabilities {
                list: has_object(session.as_ref(), "list"),
                resume: has_object(session.as_ref(), "resume"),
                close: has_object(session.as_ref(), "close"),
                delete: has_object(session.as_ref(), "delete"),
                fork: has_object(session.as_ref(), "fork"),
                additional_directories: has_object(session.as_ref(), "additionalDirectories"),
            },
            auth: AuthCapabilities {
                logout: has_object(auth.as_ref(), "logout"),
                status: has_object(auth.as_ref(), "status"),
            },
        }
    }
}

impl PromptCapabilities {
    /// Parses the capabilities of any version: v1 uses flags, v2 uses objects.
    pub fn parse_any_version(raw: &RawValue) -> Self {
        let object = RawObject::parse(raw);
        let takes = |key| has_flag(object.as_ref(), key) || has_object(object.as_ref(), key);
        Self { image: takes("image"), audio: takes("audio"), embedded_context: takes("embeddedContext") }
    }
}

fn has_flag(object: Option<&RawObject<'_>>, key: &str) -> bool {
    object.and_then(|object| object.get(key)).is_some_and(|value| value.get() == "true")
}

/// Returns true if the member is an object. Most agents advertise such a capability with an empty object.
pub(super) fn has_object(object: Option<&RawObject<'_>>, key: &str) -> bool {
    object.and_then(|object| object.get(key)).is_some_and(|value| value.get().starts_with('{'))
}
