//! What an agent says it can do, read leniently: what is missing or has a wrong type is not supported.

use serde_json::value::RawValue;

use super::object::Object;

/// The capabilities of an agent that the gateway acts on. The raw object goes to clients.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentCapabilities {
    /// `session/load`.
    pub load_session: bool,
    /// It gives back a session with all that was said: by `session/load`, in v2 by `session/resume` from the start.
    pub replays: bool,
    pub prompt: PromptCapabilities,
    pub mcp: McpCapabilities,
    pub session: SessionCapabilities,
    pub auth: AuthCapabilities,
}

impl AgentCapabilities {
    /// Whether the agent offers to give a session to another process.
    pub fn can_restore(&self) -> bool {
        self.load_session || self.session.resume || self.replays
    }
}

/// Methods about sign-ins beyond `authenticate`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AuthCapabilities {
    /// `logout`.
    pub logout: bool,
    /// `auth/status`.
    pub status: bool,
}

/// Content beyond text and resource links that prompts may hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PromptCapabilities {
    pub image: bool,
    pub audio: bool,
    pub embedded_context: bool,
}

/// Transports of MCP servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct McpCapabilities {
    /// In v1 every agent has it.
    pub stdio: bool,
    pub http: bool,
    pub sse: bool,
}

impl Default for McpCapabilities {
    fn default() -> Self {
        Self { stdio: true, http: false, sse: false }
    }
}

/// Methods `session/<name>` beyond the baseline, and `additionalDirectories`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a capability of its own on the wire")]
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
    /// As an agent of whichever version wrote them: v1 has flags, v2 objects.
    pub fn of_either(raw: &RawValue) -> Self {
        let object = Object::parse(raw);
        let takes = |key| flag(object.as_ref(), key) || marker(object.as_ref(), key);
        Self { image: takes("image"), audio: takes("audio"), embedded_context: takes("embeddedContext") }
    }
}

fn flag(object: Option<&Object<'_>>, key: &str) -> bool {
    object.and_then(|object| object.get(key)).is_some_and(|value| value.get() == "true")
}

/// A capability that is advertised by an object, most often an empty one.
pub(super) fn marker(object: Option<&Object<'_>>, key: &str) -> bool {
    object.and_then(|object| object.get(key)).is_some_and(|value| value.get().starts_with('{'))
}
