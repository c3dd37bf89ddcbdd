//! The first exchange with an agent.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::capabilities::AgentCapabilities;
use super::own;
use crate::types::ServedBy;

/// The version of ACP that the gateway asks for and speaks.
pub const PROTOCOL_VERSION: u64 = 1;

/// What an agent answered to `initialize`.
#[derive(Debug, Clone)]
pub struct InitializeResult {
    pub protocol_version: u64,
    pub capabilities: AgentCapabilities,
    /// As the agent wrote it; `{}` if it wrote none.
    pub raw_capabilities: Box<RawValue>,
    pub agent_info: Option<Box<RawValue>>,
    /// As the agent wrote it: an array, if it is sane.
    pub auth_methods: Option<Box<RawValue>>,
}

/// Why an agent cannot be used after its answer to `initialize`.
#[derive(Debug, thiserror::Error)]
pub enum InitializeError {
    #[error("the result of initialize is not an object with protocolVersion")]
    Malformed(#[source] serde_json::Error),
    #[error("the agent speaks version {answered} of the protocol, the gateway {PROTOCOL_VERSION}")]
    Version { answered: u64 },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    protocol_version: u64,
    #[serde(borrow, default)]
    agent_capabilities: Option<&'a RawValue>,
    #[serde(borrow, default)]
    agent_info: Option<&'a RawValue>,
    #[serde(borrow, default)]
    auth_methods: Option<&'a RawValue>,
}

impl InitializeResult {
    /// Everything but the version may be missing (the Python SDK's echo agent sends nothing else) or odd.
    pub fn parse(result: &RawValue) -> Result<Self, InitializeError> {
        let answer: Answer<'_> = serde_json::from_str(result.get()).map_err(InitializeError::Malformed)?;
        if answer.protocol_version != PROTOCOL_VERSION {
            return Err(InitializeError::Version { answered: answer.protocol_version });
        }
        let objects = |value: &&RawValue| value.get().starts_with('{');
        let raw_capabilities = answer.agent_capabilities.filter(objects).map(ToOwned::to_owned);
        let raw_capabilities = raw_capabilities.unwrap_or_else(|| own(&serde_json::Map::new()));
        Ok(Self {
            protocol_version: answer.protocol_version,
            capabilities: AgentCapabilities::parse(&raw_capabilities),
            raw_capabilities,
            agent_info: answer.agent_info.filter(objects).map(ToOwned::to_owned),
            auth_methods: answer
                .auth_methods
                .filter(|value| value.get().starts_with('['))
                .map(ToOwned::to_owned),
        })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Initialize<'a> {
    protocol_version: u64,
    client_info: ClientInfo<'a>,
    client_capabilities: Offered,
}

#[derive(Serialize)]
struct ClientInfo<'a> {
    name: &'a str,
    title: &'a str,
    version: &'a str,
}

/// What an agent may ask of the gateway. It is fixed at `initialize`, so a process serves only sessions that offer
/// the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ClientCapabilities {
    /// `fs/*`.
    pub files: bool,
    /// `terminal/*`.
    pub terminals: bool,
}

impl ClientCapabilities {
    /// Who serves it does not matter to the agent, only whether somebody does.
    pub fn of(files: ServedBy, terminals: ServedBy) -> Self {
        Self { files: files != ServedBy::Off, terminals: terminals != ServedBy::Off }
    }
}

#[derive(Serialize)]
struct Offered {
    fs: Files,
    terminal: bool,
    session: Session,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Files {
    read_text_file: bool,
    write_text_file: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Session {
    notices: Marker,
    compaction: Marker,
    config_options: ConfigOptions,
}

#[derive(Serialize)]
struct ConfigOptions {
    boolean: Marker,
}

/// `{}`: what it names is supported.
#[derive(Serialize)]
struct Marker {}

/// Params of `initialize`: what the gateway is and serves.
pub fn initialize(version: &str, offer: ClientCapabilities) -> Box<RawValue> {
    own(&Initialize {
        protocol_version: PROTOCOL_VERSION,
        client_info: ClientInfo { name: "acp-gateway", title: "ACP Gateway", version },
        client_capabilities: Offered {
            fs: Files { read_text_file: offer.files, write_text_file: offer.files },
            terminal: offer.terminals,
            session: Session {
                notices: Marker {},
                compaction: Marker {},
                config_options: ConfigOptions { boolean: Marker {} },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<InitializeResult, InitializeError> {
        InitializeResult::parse(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn the_least_that_a_real_agent_sends_is_enough() {
        let result = parse(r#"{"protocolVersion":1}"#).unwrap();
        assert_eq!(result.capabilities, AgentCapabilities::default());
        assert_eq!(result.raw_capabilities.get(), "{}");
        assert!(result.agent_info.is_none() && result.auth_methods.is_none());
    }

    #[test]
    fn known_keys_are_read_and_unknown_ones_are_kept() {
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
            capabilities.load_session && capabilities.prompt.image && capabilities.prompt.embedded_context
        );
        assert!(!capabilities.prompt.audio && capabilities.mcp.http && !capabilities.mcp.sse);
        assert!(capabilities.session.close && capabilities.session.resume && !capabilities.session.delete);
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
            assert!(result.auth_methods.is_none() && result.agent_info.is_none(), "{odd}");
        }
    }

    #[test]
    fn another_version_or_no_object_is_refused() {
        assert!(matches!(
            parse(r#"{"protocolVersion":2,"info":{}}"#),
            Err(InitializeError::Version { answered: 2 })
        ));
        for wrong in
            ["null", "[]", "{}", r#"{"protocolVersion":"1"}"#, r#"{"protocolVersion":1,"protocolVersion":1}"#]
        {
            assert!(matches!(parse(wrong), Err(InitializeError::Malformed(_))), "{wrong}");
        }
    }

    #[test]
    fn our_own_params_are_what_the_schema_says() {
        let params = initialize("1.2.3", ClientCapabilities::default());
        insta::assert_snapshot!(params.get(), @r#"{"protocolVersion":1,"clientInfo":{"name":"acp-gateway","title":"ACP Gateway","version":"1.2.3"},"clientCapabilities":{"fs":{"readTextFile":false,"writeTextFile":false},"terminal":false,"session":{"notices":{},"compaction":{},"configOptions":{"boolean":{}}}}}"#);
        let typed: agent_client_protocol_schema::v1::InitializeRequest =
            serde_json::from_str(params.get()).unwrap();
        assert_eq!(typed.client_info.unwrap().name, "acp-gateway");
        assert!(!typed.client_capabilities.terminal);
    }
}
