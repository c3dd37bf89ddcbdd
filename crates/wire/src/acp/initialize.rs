//! The `initialize` exchange with an agent.

use agent_client_protocol_schema::{ProtocolVersion, v1, v2};
use serde_json::value::RawValue;

use super::capabilities::AgentCapabilities;
use super::raw_object::{RawObject, empty_result};
use super::to_raw;
use super::version::AcpVersion;
use base::types::ToolProvider;

const NAME: &str = "acp-gateway";
const TITLE: &str = "ACP Gateway";

#[derive(Debug, Clone)]
pub struct InitializeResult {
    pub raw: Box<RawValue>,
    /// The negotiated version: the requested version, or an older one.
    pub acp_version: AcpVersion,
    pub capabilities: AgentCapabilities,
    /// The capabilities as the agent sent them; `{}` if it sent none.
    pub raw_capabilities: Box<RawValue>,
    pub agent_info: Option<Box<RawValue>>,
    pub auth_methods: Option<Box<RawValue>>,
}

/// The reason why the gateway cannot use an agent after its answer to `initialize`.
#[derive(Debug, thiserror::Error)]
pub enum InitializeError {
    #[error("the result of initialize must be an object with protocolVersion")]
    Malformed,
    #[error(
        "the agent answered with protocol version {answered}, but the gateway requested version {asked}"
    )]
    Version { answered: u64, asked: u64 },
}

impl InitializeResult {
    /// Parses the result of `initialize`. All members except the version may be missing or malformed. For
    /// example, the echo agent of the Python SDK sends only the version.
    pub fn parse(result: &RawValue, asked: AcpVersion) -> Result<Self, InitializeError> {
        let answer = RawObject::parse(result).ok_or(InitializeError::Malformed)?;
        let version = answer.get("protocolVersion");
        let version = version.and_then(|version| version.get().parse().ok());
        let answered = version.ok_or(InitializeError::Malformed)?;
        let asked = asked.number();
        let negotiated = AcpVersion::from_number(answered);
        let acp_version = negotiated
            .filter(|version| version.number() <= asked)
            .ok_or(InitializeError::Version { answered, asked })?;
        let member = |key, start| answer.starting(key, start).map(ToOwned::to_owned);
        let (capabilities, info) = match acp_version {
            AcpVersion::V1 => ("agentCapabilities", "agentInfo"),
            AcpVersion::V2 => ("capabilities", "info"),
        };
        let raw_capabilities = member(capabilities, '{').unwrap_or_else(empty_result);
        Ok(Self {
            raw: result.to_owned(),
            acp_version,
            capabilities: AgentCapabilities::parse(acp_version, &raw_capabilities),
            raw_capabilities,
            agent_info: member(info, '{'),
            auth_methods: member("authMethods", '['),
        })
    }

    /// Returns the agent's prompt capabilities as it sent them. v1 uses flags, v2 objects.
    pub fn prompt_capabilities(&self) -> Option<Box<RawValue>> {
        let all = RawObject::parse(&self.raw_capabilities)?;
        let prompt = match self.acp_version {
            AcpVersion::V1 => all.get("promptCapabilities"),
            AcpVersion::V2 => all.object("session")?.get("prompt"),
        };
        prompt.map(ToOwned::to_owned)
    }
}

/// The client methods that the gateway offers to an agent. They are fixed at `initialize`. Therefore a
/// process only serves sessions with the same offer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ClientCapabilities {
    pub files: bool,
    pub terminals: bool,
    /// Sign-in in a terminal. It depends only on the agent's entry, so it is the same for all processes of
    /// the agent.
    pub terminal_auth: bool,
}

impl ClientCapabilities {
    /// The agent only learns whether files and terminals are served, and not by which provider.
    pub fn new(files: ToolProvider, terminals: ToolProvider) -> Self {
        Self {
            files: files != ToolProvider::Off,
            terminals: terminals != ToolProvider::Off,
            terminal_auth: false,
        }
    }
}

pub fn initialize(
    acp_version: AcpVersion,
    version: &str,
    offer: ClientCapabilities,
) -> Box<RawValue> {
    match acp_version {
        AcpVersion::V1 => to_raw(&initialize_v1(version, offer)),
        AcpVersion::V2 => to_raw(&initialize_v2(version, offer)),
    }
}

fn initialize_v1(version: &str, offer: ClientCapabilities) -> v1::InitializeRequest {
    let files = v1::FileSystemCapabilities::new()
        .read_text_file(offer.files)
        .write_text_file(offer.files);
    let options = v1::SessionConfigOptionsCapabilities::new();
    let session = v1::ClientSessionCapabilities::new()
        .compaction(v1::CompactionCapabilities::new())
        .config_options(options.boolean(v1::BooleanConfigOptionCapabilities::new()))
        .notices(v1::NoticeCapabilities::new());
    let elicitation = v1::ElicitationCapabilities::new()
        .form(v1::ElicitationFormCapabilities::new())
        .url(v1::ElicitationUrlCapabilities::new());
    let capabilities = v1::ClientCapabilities::new()
        .fs(files)
        .terminal(offer.terminals)
        .session(session)
        .subagents(v1::SubagentCapabilities::new())
        .plan(v1::PlanCapabilities::new())
        .auth(v1::AuthCapabilities::new().terminal(offer.terminal_auth))
        .elicitation(elicitation);
    v1::InitializeRequest::new(ProtocolVersion::V1)
        .client_capabilities(capabilities)
        .client_info(v1::Implementation::new(NAME, version).title(TITLE.to_owned()))
}

/// v2 has no `fs/*` and `terminal/*`, so the offer is the same for every session.
fn initialize_v2(version: &str, offer: ClientCapabilities) -> v2::InitializeRequest {
    let auth = v2::ClientAuthCapabilities::new();
    let elicitation = v2::ElicitationCapabilities::new()
        .form(v2::ElicitationFormCapabilities::new())
        .url(v2::ElicitationUrlCapabilities::new());
    let capabilities = v2::ClientCapabilities::new()
        .auth(auth.terminal(offer.terminal_auth.then(v2::TerminalAuthCapabilities::new)))
        .elicitation(elicitation);
    let info = v2::Implementation::new(NAME, version).title(TITLE.to_owned());
    v2::InitializeRequest::new(ProtocolVersion::V2, info).capabilities(capabilities)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<InitializeResult, InitializeError> {
        InitializeResult::parse(serde_json::from_str(text).unwrap(), AcpVersion::V1)
    }

    #[test]
    fn a_minimal_initialize_result_is_accepted() {
        let result = parse(r#"{"protocolVersion":1}"#).unwrap();
        assert_eq!(result.capabilities, AgentCapabilities::default());
        assert_eq!(result.raw_capabilities.get(), "{}");
        assert!(result.agent_info.is_none() && result.auth_methods.is_none());
    }

    #[test]
    fn known_keys_are_parsed_and_raw_bytes_are_kept() {
        let caps = concat!(
            r#"{"loadSession":true, "promptCapabilities":{"image":true,"embeddedContext":true,"x":1},"#,
            r#""mcpCapabilities":{"http":true,"acp":{}},"auth":{"logout":{}},"providers":{},"#,
            r#""sessionCapabilities":{"close":{},"resume":{"_meta":null},"subagents":{}},"_meta":{"a":1.10}}"#
        );
        let methods = r#"[{"type":"env_var","id":"k","vars":["KEY"]}]"#;
        let result = parse(&format!(
            r#"{{"authMethods":{methods},"protocolVersion":1,"agentCapabilities":{caps},"agentInfo":{{"name":"a"}}}}"#
        ))
        .unwrap();
        assert_eq!(result.raw_capabilities.get(), caps);
        assert_eq!(result.auth_methods.unwrap().get(), methods);
        assert_eq!(result.agent_info.unwrap().get(), r#"{"name":"a"}"#);
        let capabilities = result.capabilities;
        assert!(
            capabilities.load_session
                && capabilities.prompt.image
                && capabilities.prompt.embedded_context
        );
        assert!(!capabilities.prompt.audio && capabilities.mcp.http && !capabilities.mcp.sse);
        assert!(
            capabilities.session.close
                && capabilities.session.resume
                && !capabilities.session.delete
        );
        assert!(capabilities.auth.logout && !capabilities.auth.status);
    }

    #[test]
    fn wrong_types_mean_unsupported() {
        for odd in [
            r#"{"protocolVersion":1,"agentCapabilities":null,"authMethods":null,"agentInfo":null}"#,
            r#"{"protocolVersion":1,"agentCapabilities":[],"authMethods":{},"agentInfo":"x"}"#,
            r#"{"protocolVersion":1,"agentCapabilities":{"loadSession":"yes","promptCapabilities":true,
                "sessionCapabilities":{"close":false,"list":null,"resume":1}}}"#,
            r#"{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"loadSession":true}}"#,
        ] {
            let result = parse(odd).unwrap();
            assert_eq!(result.capabilities, AgentCapabilities::default(), "{odd}");
            assert!(
                result.auth_methods.is_none() && result.agent_info.is_none(),
                "{odd}"
            );
        }
    }

    #[test]
    fn other_versions_and_non_objects_are_rejected() {
        assert!(matches!(
            parse(r#"{"protocolVersion":2,"info":{}}"#),
            Err(InitializeError::Version {
                answered: 2,
                asked: 1
            })
        ));
        for wrong in [
            "null",
            "[]",
            "{}",
            r#"{"protocolVersion":"1"}"#,
            r#"{"protocolVersion":1,"protocolVersion":1}"#,
        ] {
            assert!(
                matches!(parse(wrong), Err(InitializeError::Malformed)),
                "{wrong}"
            );
        }
    }

    #[test]
    fn older_versions_are_accepted_and_newer_ones_rejected() {
        let parse =
            |text: &str, asked| InitializeResult::parse(serde_json::from_str(text).unwrap(), asked);
        let caps =
            r#"{"session":{"prompt":{"image":{}},"mcp":{"http":{}},"delete":{},"future":1.10}}"#;
        let methods = r#"[{"type":"agent","methodId":"login","name":"Log in"}]"#;
        let answer = format!(
            r#"{{"protocolVersion":2,"info":{{"name":"a"}},"capabilities":{caps},"authMethods":{methods}}}"#
        );
        let result = parse(&answer, AcpVersion::V2).unwrap();
        assert_eq!(
            (result.acp_version, result.raw_capabilities.get()),
            (AcpVersion::V2, caps)
        );
        assert_eq!(result.agent_info.as_ref().unwrap().get(), r#"{"name":"a"}"#);
        assert_eq!(result.auth_methods.as_ref().unwrap().get(), methods);
        assert_eq!(
            result.prompt_capabilities().unwrap().get(),
            r#"{"image":{}}"#
        );
        let capabilities = result.capabilities;
        assert!(
            capabilities.prompt.image && !capabilities.prompt.audio && !capabilities.load_session
        );
        assert!(capabilities.mcp.http && !capabilities.mcp.stdio && !capabilities.mcp.sse);
        let session = capabilities.session;
        assert!(session.resume && session.list && session.close && session.delete && !session.fork);

        let old = parse(
            r#"{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}"#,
            AcpVersion::V2,
        );
        let old = old.unwrap();
        assert!(old.acp_version == AcpVersion::V1 && old.capabilities.load_session);
        let nothing = parse(
            r#"{"protocolVersion":2,"capabilities":null}"#,
            AcpVersion::V2,
        )
        .unwrap();
        assert!(!nothing.capabilities.session.resume && nothing.prompt_capabilities().is_none());
        for (answered, asked) in [
            (2, AcpVersion::V1),
            (3, AcpVersion::V2),
            (0, AcpVersion::V2),
        ] {
            let refused = parse(&format!(r#"{{"protocolVersion":{answered}}}"#), asked);
            assert!(
                matches!(refused, Err(InitializeError::Version { .. })),
                "{answered}"
            );
        }
    }

    #[test]
    fn v2_initialize_params_match_the_schema() {
        let params = initialize(
            AcpVersion::V2,
            "1.2.3",
            ClientCapabilities {
                files: true,
                terminals: true,
                terminal_auth: true,
            },
        );
        insta::assert_snapshot!(params.get(), @r#"{"protocolVersion":2,"info":{"name":"acp-gateway","title":"ACP Gateway","version":"1.2.3"},"capabilities":{"auth":{"terminal":{}},"elicitation":{"form":{},"url":{}}}}"#);
        let typed: v2::InitializeRequest = serde_json::from_str(params.get()).unwrap();
        assert_eq!(typed.info.name, "acp-gateway");
        assert!(typed.capabilities.auth.unwrap().terminal.is_some());
        assert!(typed.capabilities.elicitation.unwrap().url.is_some());
    }

    #[test]
    fn v1_initialize_params_match_the_schema() {
        let params = initialize(AcpVersion::V1, "1.2.3", ClientCapabilities::default());
        insta::assert_snapshot!(params.get(), @r#"{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":false,"writeTextFile":false},"terminal":false,"session":{"compaction":{},"configOptions":{"boolean":{}},"notices":{}},"subagents":{},"plan":{},"auth":{"terminal":false},"elicitation":{"form":{},"url":{}}},"clientInfo":{"name":"acp-gateway","title":"ACP Gateway","version":"1.2.3"}}"#);
        let typed: v1::InitializeRequest = serde_json::from_str(params.get()).unwrap();
        assert_eq!(typed.client_info.unwrap().name, "acp-gateway");
        assert!(!typed.client_capabilities.auth.terminal);
        let offer = ClientCapabilities {
            terminal_auth: true,
            ..ClientCapabilities::default()
        };
        let typed: v1::InitializeRequest =
            serde_json::from_str(initialize(AcpVersion::V1, "1", offer).get()).unwrap();
        assert!(typed.client_capabilities.auth.terminal);
        assert!(!typed.client_capabilities.terminal);
        assert!(
            typed.client_capabilities.subagents.is_some()
                && typed.client_capabilities.plan.is_some()
        );
    }
}
