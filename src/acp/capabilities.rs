//! The capabilities of an agent, parsed leniently: a missing member or a member of the wrong type is an
//! unsupported capability.

use serde_json::value::RawValue;

use super::object::Object;

/// The capabilities that the gateway uses. Clients receive the raw object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentCapabilities {
    /// `session/load`.
    pub load_session: bool,
    /// True if the agent can return a session with its history: with `session/load`, in v2 with
    /// `session/resume` from the start.
    pub replays: bool,
    pub prompt: PromptCapabilities,
    pub mcp: McpCapabilities,
    pub session: SessionCapabilities,
    pub auth: AuthCapabilities,
}

impl AgentCapabilities {
    /// Returns true if the agent can restore a session in another process.
    pub fn can_restore(&self) -> bool {
        self.load_session || self.session.resume || self.replays
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
    pub fn parse(raw: &RawValue) -> Self {
        let Some(all) = Object::parse(raw) else { return Self::default() };
        let prompt = all.object("promptCapabilities");
        let mcp = all.object("mcpCapabilities");
        let session = all.object("sessionCapabilities");
        let auth = all.object("auth");
        let load_session = flag(Some(&all), "loadSession");
        Self {
            load_session,
            replays: load_session,
            prompt: PromptCapabilities {
                image: flag(prompt.as_ref(), "image"),
                audio: flag(prompt.as_ref(), "audio"),
                embedded_context: flag(prompt.as_ref(), "embeddedContext"),
            },
            mcp: McpCapabilities {
                stdio: true,
                http: flag(mcp.as_ref(), "http"),
                sse: flag(mcp.as_ref(), "sse"),
            },
            session: SessionCapabilities {
                list: marker(session.as_ref(), "list"),
                resume: marker(session.as_ref(), "resume"),
                close: marker(session.as_ref(), "close"),
                delete: marker(session.as_ref(), "delete"),
                fork: marker(session.as_ref(), "fork"),
                additional_directories: marker(session.as_ref(), "additionalDirectories"),
            },
            auth: AuthCapabilities {
                logout: marker(auth.as_ref(), "logout"),
                status: marker(auth.as_ref(), "status"),
            },
        }
    }
}

impl PromptCapabilities {
    /// Parses the capabilities of any version: v1 uses flags, v2 uses objects.
    pub fn of_either(raw: &RawValue) -> Self {
        let object = Object::parse(raw);
        let takes = |key| flag(object.as_ref(), key) || marker(object.as_ref(), key);
        Self { image: takes("image"), audio: takes("audio"), embedded_context: takes("embeddedContext") }
    }
}

fn flag(object: Option<&Object<'_>>, key: &str) -> bool {
    object.and_then(|object| object.get(key)).is_some_and(|value| value.get() == "true")
}

/// Returns true if the member is an object. Most agents advertise such a capability with an empty object.
pub(super) fn marker(object: Option<&Object<'_>>, key: &str) -> bool {
    object.and_then(|object| object.get(key)).is_some_and(|value| value.get().starts_with('{'))
}
