//! The capabilities of an agent, parsed leniently: a missing member or a member of the wrong type is an
//! unsupported capability.

use serde_json::value::RawValue;

use super::raw_object::RawObject;
use super::version::AcpVersion;

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

/// Supported protocol methods for authentication, besides `authenticate`.
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
        Self {
            stdio: true,
            http: false,
            sse: false,
        }
    }
}

/// Supported methods `session/<name>` beyond the baseline, and `additionalDirectories`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each field is a separate capability in the protocol"
)]
pub struct SessionCapabilities {
    pub list: bool,
    pub resume: bool,
    pub close: bool,
    pub delete: bool,
    pub fork: bool,
    pub additional_directories: bool,
}

impl AgentCapabilities {
    /// Parses the capabilities of an agent with this version. v1 uses flags for prompts and MCP servers, v2 uses
    /// objects. In v2, `session` includes all methods of the baseline: new, list, resume, close, prompt, cancel.
    pub fn parse(version: AcpVersion, raw: &RawValue) -> Self {
        let Some(all) = RawObject::parse(raw) else {
            return Self::default();
        };
        let v2 = version == AcpVersion::V2;
        let (session, auth) = (
            all.object(if v2 { "session" } else { "sessionCapabilities" }),
            all.object("auth"),
        );
        let (prompt, mcp, has): (_, _, fn(_, &_) -> _) = if v2 {
            let member = |key| session.as_ref().and_then(|session| session.object(key));
            (member("prompt"), member("mcp"), has_object)
        } else {
            (
                all.object("promptCapabilities"),
                all.object("mcpCapabilities"),
                has_flag,
            )
        };
        let (baseline, load_session) = (
            v2 && session.is_some(),
            !v2 && has_flag(Some(&all), "loadSession"),
        );
        let in_session = |key| has_object(session.as_ref(), key);
        Self {
            load_session,
            can_replay: load_session || baseline,
            prompt: PromptCapabilities::new(|key| has(prompt.as_ref(), key)),
            mcp: McpCapabilities {
                stdio: !v2 || has(mcp.as_ref(), "stdio"),
                http: has(mcp.as_ref(), "http"),
                sse: !v2 && has(mcp.as_ref(), "sse"),
            },
            session: SessionCapabilities {
                list: baseline || in_session("list"),
                resume: baseline || in_session("resume"),
                close: baseline || in_session("close"),
                delete: in_session("delete"),
                fork: in_session("fork"),
                additional_directories: in_session("additionalDirectories"),
            },
            auth: AuthCapabilities {
                // In v2, every agent with `authMethods` supports signing out.
                logout: !v2 && has_object(auth.as_ref(), "logout"),
                status: has_object(auth.as_ref(), "status"),
            },
        }
    }
}

impl PromptCapabilities {
    /// Parses the capabilities of any version: v1 uses flags, v2 uses objects.
    pub fn parse_any_version(raw: &RawValue) -> Self {
        let object = RawObject::parse(raw);
        Self::new(|key| has_flag(object.as_ref(), key) || has_object(object.as_ref(), key))
    }

    fn new(has: impl Fn(&str) -> bool) -> Self {
        Self {
            image: has("image"),
            audio: has("audio"),
            embedded_context: has("embeddedContext"),
        }
    }
}

fn has_flag(object: Option<&RawObject<'_>>, key: &str) -> bool {
    object
        .and_then(|object| object.get(key))
        .is_some_and(|value| value.get() == "true")
}

/// Returns true if the member is an object. Most agents advertise such a capability with an empty object.
pub(super) fn has_object(object: Option<&RawObject<'_>>, key: &str) -> bool {
    object
        .and_then(|object| object.get(key))
        .is_some_and(|value| value.get().starts_with('{'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acp::raw;

    #[test]
    fn every_used_capability_is_parsed() {
        let read = |text: &str| AgentCapabilities::parse(AcpVersion::V2, raw(text));
        let in_session = |member: &str| read(&format!(r#"{{"session":{{{member}}}}}"#));
        assert!(in_session(r#""prompt":{"image":{}}"#).prompt.image);
        assert!(in_session(r#""prompt":{"audio":{}}"#).prompt.audio);
        assert!(
            in_session(r#""prompt":{"embeddedContext":{}}"#)
                .prompt
                .embedded_context
        );
        assert!(in_session(r#""mcp":{"stdio":{}}"#).mcp.stdio);
        assert!(in_session(r#""mcp":{"http":{}}"#).mcp.http);
        assert!(in_session(r#""delete":{}"#).session.delete);
        assert!(in_session(r#""fork":{}"#).session.fork);
        assert!(
            in_session(r#""additionalDirectories":{}"#)
                .session
                .additional_directories
        );
        assert!(read(r#"{"auth":{"status":{}}}"#).auth.status);
        assert_eq!(read(r#"{"session":null,"auth":[]}"#), read("{}"));
    }
}
