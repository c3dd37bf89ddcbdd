//! The capabilities of an agent, parsed leniently: a missing member or a member of the wrong type is an
//! unsupported capability.

use serde_json::value::RawValue;

use super::raw_object::{RawObject, empty_result};
use super::to_raw;
use super::version::AcpVersion;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentCapabilities {
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

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AuthCapabilities {
    pub logout: bool,
    pub status: bool,
}

/// Supported content types in prompts, besides text and resource links.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PromptCapabilities {
    pub image: bool,
    pub audio: bool,
    pub embedded_context: bool,
}

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
        let session = all.object(if v2 { "session" } else { "sessionCapabilities" });
        let auth = all.object("auth");
        let member = |v1, key| {
            let object = if v2 { session.as_ref()? } else { &all };
            object.object(if v2 { key } else { v1 })
        };
        let prompt = member("promptCapabilities", "prompt");
        let mcp = member("mcpCapabilities", "mcp");
        let has = if v2 { has_object } else { has_flag };
        let baseline = v2 && session.is_some();
        let load_session = !v2 && has_flag(Some(&all), "loadSession");
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
    object.is_some_and(|object| object.get(key).is_some_and(|value| value.get() == "true"))
}

/// Returns true if the member is an object. Most agents advertise such a capability with an empty object.
fn has_object(object: Option<&RawObject<'_>>, key: &str) -> bool {
    object.is_some_and(|object| object.starting(key, '{').is_some())
}

/// The methods of a session that the gateway serves from its own log, for every agent.
const SESSION_METHODS: [&str; 4] = ["list", "resume", "close", "delete"];

/// The `agentCapabilities` of a v1 agent for clients of the gateway. Every agent can load, list, resume, close and delete
/// sessions, because the gateway has their logs. `mcp`: the client may bring MCP servers. `attach`: the roles of the draft of
/// `session/attach`, for a client that has asked for it. Other members stay unchanged.
pub fn served_capabilities(
    agent: &RawValue,
    fork: bool,
    mcp: bool,
    attach: &[&str],
) -> Box<RawValue> {
    let object = RawObject::parse(agent).unwrap_or_else(RawObject::empty);
    let servers = match object.get("mcpCapabilities") {
        Some(own) if mcp => own.to_owned(),
        _ => to_raw(&serde_json::json!({ "http": false, "sse": false })),
    };
    let session = object.object("sessionCapabilities");
    let session = session.unwrap_or_else(RawObject::empty);
    let mut methods: Vec<_> = SESSION_METHODS.map(|name| (name, empty_result())).into();
    if fork {
        methods.push(("fork", empty_result()));
    }
    if !attach.is_empty() {
        methods.push(("attach", to_raw(&serde_json::json!({ "roles": attach }))));
    }
    let own = ["list", "resume", "close", "delete", "fork", "attach"];
    methods.extend(others(&session, &own));
    let mut members = vec![
        ("loadSession", to_raw(&true)),
        ("mcpCapabilities", servers),
        ("sessionCapabilities", super::object(&methods)),
    ];
    let own = ["loadSession", "mcpCapabilities", "sessionCapabilities"];
    members.extend(others(&object, &own));
    super::object(&members)
}

fn others<'a>(
    object: &'a RawObject<'_>,
    own: &[&str],
) -> impl Iterator<Item = (&'a str, Box<RawValue>)> {
    let others = object.iter().filter(|(name, _)| !own.contains(name));
    others.map(|(name, value)| (name, value.to_owned()))
}

#[cfg(test)]
mod capabilities_tests {
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

#[cfg(test)]
mod served_capabilities_tests {
    use super::*;
    use crate::acp::raw;

    #[test]
    fn the_gateways_methods_are_offered_and_other_members_keep_their_bytes() {
        let agent = raw(
            r#"{"loadSession":false,"promptCapabilities":{"image": 1.10},"mcpCapabilities":{"http":true},"sessionCapabilities":{"fork":{},"attach":{},"x":{}},"_meta":{"a":1}}"#,
        );
        assert_eq!(
            served_capabilities(agent, false, false, &[]).get(),
            r#"{"loadSession":true,"mcpCapabilities":{"http":false,"sse":false},"sessionCapabilities":{"list":{},"resume":{},"close":{},"delete":{},"x":{}},"promptCapabilities":{"image": 1.10},"_meta":{"a":1}}"#
        );
        let fork: serde_json::Value =
            serde_json::from_str(served_capabilities(raw("{}"), true, true, &["a"]).get()).unwrap();
        assert_eq!(
            fork["mcpCapabilities"],
            serde_json::json!({ "http": false, "sse": false })
        );
        let brings = served_capabilities(agent, false, true, &[]);
        assert!(
            brings.get().contains(r#""mcpCapabilities":{"http":true}"#),
            "{brings}"
        );
        assert_eq!(fork["sessionCapabilities"]["fork"], serde_json::json!({}));
        assert_eq!(
            fork["sessionCapabilities"]["attach"],
            serde_json::json!({ "roles": ["a"] })
        );
    }
}
