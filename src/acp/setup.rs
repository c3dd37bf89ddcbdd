//! Params of the requests that create or restore a session at an agent.

use std::fmt;

use agent_client_protocol_schema::v2;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::capabilities::AgentCapabilities;
use super::to_raw;
use super::trace::{TraceContext, setup_meta};
use super::version::AcpVersion;

/// The parameters of a session. The gateway sends the same parameters to each process of the session.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionSetup<'a> {
    /// An absolute path.
    pub cwd: &'a str,
    pub mcp_servers: &'a [McpServer],
    /// Absolute paths.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub additional_directories: &'a [String],
    /// The validated `_meta` of the client.
    #[serde(skip)]
    pub meta: Option<&'a RawValue>,
}

/// An MCP server for the agent. `Debug` hides its values, because they may be secrets.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum McpServer {
    Remote {
        #[serde(rename = "type")]
        transport: McpTransport,
        name: String,
        url: String,
        headers: Vec<NameValue>,
    },
    Stdio {
        /// Only v2 has a type for this transport.
        #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
        transport: Option<McpTransport>,
        name: String,
        command: String,
        args: Vec<String>,
        env: Vec<NameValue>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum McpTransport {
    Http,
    Sse,
    Stdio,
}

/// A header or an environment variable.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameValue {
    pub name: String,
    pub value: String,
}

impl fmt::Debug for NameValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=[hidden]", self.name)
    }
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "McpServer({:?})", self.name())
    }
}

impl McpServer {
    pub fn name(&self) -> &str {
        match self {
            Self::Remote { name, .. } | Self::Stdio { name, .. } => name,
        }
    }

    /// Converts the server to the form of this version.
    #[must_use]
    pub fn for_version(mut self, version: AcpVersion) -> Self {
        if let Self::Stdio { transport, .. } = &mut self {
            *transport = (version == AcpVersion::V2).then_some(McpTransport::Stdio);
        }
        self
    }

    /// Returns the capability for this server that the agent lacks. Every v1 agent supports stdio.
    pub fn missing_capability(&self, capabilities: &AgentCapabilities) -> Option<&'static str> {
        let transport = match self {
            Self::Remote { transport, .. } => *transport,
            Self::Stdio { .. } => McpTransport::Stdio,
        };
        let (supported, capability) = match transport {
            McpTransport::Http => (capabilities.mcp.http, "mcpCapabilities.http"),
            McpTransport::Sse => (capabilities.mcp.sse, "mcpCapabilities.sse"),
            McpTransport::Stdio => (capabilities.mcp.stdio, "session.mcp.stdio"),
        };
        (!supported).then_some(capability)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    #[serde(flatten)]
    setup: SessionSetup<'a>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replay_from: Option<v2::ReplayFrom>,
}

impl<'a> Params<'a> {
    fn new(
        session_id: Option<&'a str>,
        setup: SessionSetup<'a>,
        trace: Option<&TraceContext>,
    ) -> Self {
        Self {
            session_id,
            setup,
            meta: setup_meta(setup.meta, trace),
            replay_from: None,
        }
    }
}

/// Params of `session/new`.
pub fn new_session(setup: SessionSetup<'_>, trace: Option<&TraceContext>) -> Box<RawValue> {
    to_raw(&Params::new(None, setup, trace))
}

/// Params of `session/resume` and `session/fork` (unstable).
pub fn resume_session(
    session_id: &str,
    setup: SessionSetup<'_>,
    trace: Option<&TraceContext>,
) -> Box<RawValue> {
    to_raw(&Params::new(Some(session_id), setup, trace))
}

/// Params of the method that restores a session and replays its history: `session/load`, in v2
/// `session/resume` from the start.
pub fn replay_session(
    version: AcpVersion,
    session_id: &str,
    setup: SessionSetup<'_>,
    trace: Option<&TraceContext>,
) -> Box<RawValue> {
    let start = v2::ReplayFrom::Start(v2::ReplayFromStart::new());
    let replay_from = (version == AcpVersion::V2).then_some(start);
    to_raw(&Params {
        replay_from,
        ..Params::new(Some(session_id), setup, trace)
    })
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::v1;

    use super::*;
    use crate::acp::McpCapabilities;

    fn pair(name: &str, value: &str) -> NameValue {
        NameValue {
            name: name.into(),
            value: value.into(),
        }
    }

    fn servers() -> [McpServer; 2] {
        [
            McpServer::Remote {
                transport: McpTransport::Http,
                name: "docs".into(),
                url: "https://mcp.example/docs".into(),
                headers: vec![pair("Authorization", "Bearer s3cret")],
            },
            McpServer::Stdio {
                transport: None,
                name: "files".into(),
                command: "/bin/mcp".into(),
                args: vec!["-v".into()],
                env: vec![pair("TOKEN", "s3cret")],
            },
        ]
    }

    #[test]
    fn setup_params_match_the_schema() {
        let servers = servers();
        let dirs = ["/more".to_owned()];
        let setup = SessionSetup {
            cwd: "/w",
            mcp_servers: &servers,
            additional_directories: &dirs,
            meta: None,
        };
        let trace = TraceContext::parse(
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            None,
        );
        let params = new_session(setup, trace.as_ref());
        insta::assert_snapshot!(params.get(), @r#"{"cwd":"/w","mcpServers":[{"type":"http","name":"docs","url":"https://mcp.example/docs","headers":[{"name":"Authorization","value":"Bearer s3cret"}]},{"name":"files","command":"/bin/mcp","args":["-v"],"env":[{"name":"TOKEN","value":"s3cret"}]}],"additionalDirectories":["/more"],"_meta":{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}"#);
        let typed: v1::NewSessionRequest = serde_json::from_str(params.get()).unwrap();
        assert_eq!(
            typed.mcp_servers.len(),
            2,
            "the schema skips servers that it cannot read"
        );
        let plain = SessionSetup {
            cwd: "/w",
            mcp_servers: &[],
            additional_directories: &[],
            meta: None,
        };
        let params = replay_session(AcpVersion::V1, "s", plain, None);
        assert_eq!(
            params.get(),
            r#"{"sessionId":"s","cwd":"/w","mcpServers":[]}"#
        );
        let _: v1::LoadSessionRequest = serde_json::from_str(params.get()).unwrap();
    }

    #[test]
    fn v2_names_every_transport_and_replays_from_the_start() {
        let servers = servers().map(|server| server.for_version(AcpVersion::V2));
        let setup = SessionSetup {
            cwd: "/w",
            mcp_servers: &servers,
            additional_directories: &[],
            meta: None,
        };
        let params = replay_session(AcpVersion::V2, "s", setup, None);
        insta::assert_snapshot!(params.get(), @r#"{"sessionId":"s","cwd":"/w","mcpServers":[{"type":"http","name":"docs","url":"https://mcp.example/docs","headers":[{"name":"Authorization","value":"Bearer s3cret"}]},{"type":"stdio","name":"files","command":"/bin/mcp","args":["-v"],"env":[{"name":"TOKEN","value":"s3cret"}]}],"replayFrom":{"type":"start"}}"#);
        let typed: v2::ResumeSessionRequest = serde_json::from_str(params.get()).unwrap();
        assert!(matches!(
            &typed.mcp_servers[..],
            [v2::McpServer::Http(_), v2::McpServer::Stdio(stdio)] if stdio.name == "files"
        ));
        assert!(matches!(typed.replay_from, Some(v2::ReplayFrom::Start(_))));
        let typed: v2::NewSessionRequest =
            serde_json::from_str(new_session(setup, None).get()).unwrap();
        assert_eq!(typed.mcp_servers.len(), 2);
        let params = resume_session("s", setup, None);
        let typed: v2::ResumeSessionRequest = serde_json::from_str(params.get()).unwrap();
        assert!(typed.replay_from.is_none());
    }

    #[test]
    fn secrets_are_not_in_debug() {
        assert!(!format!("{:?}", servers()).contains("s3cret"));
        assert!(!format!("{:?}", pair("a", "s3cret")).contains("s3cret"));
    }

    #[test]
    fn remote_servers_need_a_capability() {
        let [http, stdio] = servers();
        let mut capabilities = AgentCapabilities::default();
        assert_eq!(
            http.missing_capability(&capabilities),
            Some("mcpCapabilities.http")
        );
        assert_eq!(stdio.missing_capability(&capabilities), None);
        capabilities.mcp = McpCapabilities {
            stdio: false,
            http: true,
            sse: false,
        };
        assert_eq!(http.missing_capability(&capabilities), None);
        assert_eq!(
            stdio.missing_capability(&capabilities),
            Some("session.mcp.stdio")
        );
    }
}
