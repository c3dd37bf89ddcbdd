//! Params of messages about an existing session of the agent. Where v1 and v2 have the same params, the types of
//! v1 are used.

use std::borrow::Cow;
use std::path::PathBuf;

use agent_client_protocol_schema::{v1, v2};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::capabilities::AgentCapabilities;
use super::raw_object::RawObject;
use super::trace::{TraceContext, setup_meta, traced};
use super::version::AcpVersion;
use super::{to_one_line, to_raw};
use base::types::text::check_name;

pub fn session_params(session_id: &str, trace: Option<&TraceContext>) -> Box<RawValue> {
    traced(&v1::CancelNotification::new(session_id.to_owned()), trace)
}

pub fn prompt(session_id: &str, prompt: &RawValue, trace: Option<&TraceContext>) -> Box<RawValue> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Params<'a> {
        session_id: &'a str,
        prompt: &'a RawValue,
        #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
        meta: Option<&'a TraceContext>,
    }
    let meta = trace;
    to_one_line(to_raw(&Params {
        session_id,
        prompt,
        meta,
    }))
}

pub fn set_mode(session_id: &str, mode_id: &str, trace: Option<&TraceContext>) -> Box<RawValue> {
    let request = v1::SetSessionModeRequest::new(session_id.to_owned(), mode_id.to_owned());
    traced(&request, trace)
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ConfigValue<'a> {
    /// The id of one of the option's values.
    Id(#[serde(borrow)] Cow<'a, str>),
    Boolean(bool),
}

pub fn set_config_option(
    version: AcpVersion,
    session_id: &str,
    config_id: &str,
    value: &ConfigValue<'_>,
    trace: Option<&TraceContext>,
) -> Box<RawValue> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Params<'a> {
        session_id: &'a str,
        config_id: &'a str,
        #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
        kind: Option<&'static str>,
        value: &'a ConfigValue<'a>,
    }
    let kind = match (version, value) {
        (_, ConfigValue::Boolean(_)) => Some("boolean"),
        (AcpVersion::V1, ConfigValue::Id(_)) => None,
        (AcpVersion::V2, ConfigValue::Id(_)) => Some("id"),
    };
    let params = Params {
        session_id,
        config_id,
        kind,
        value,
    };
    traced(&params, trace)
}

pub fn list_sessions(
    cwd: Option<&str>,
    cursor: Option<&str>,
    trace: Option<&TraceContext>,
) -> Box<RawValue> {
    let request = v1::ListSessionsRequest::new().cwd(cwd.map(PathBuf::from));
    traced(&request.cursor(cursor.map(str::to_owned)), trace)
}

#[derive(Debug)]
pub struct SessionListing<'a> {
    pub sessions: Vec<ListedSession<'a>>,
    pub next_cursor: Option<Cow<'a, str>>,
}

/// A session in the list of an agent, with the raw entry.
#[derive(Debug)]
pub struct ListedSession<'a> {
    pub session_id: Cow<'a, str>,
    pub cwd: Cow<'a, str>,
    pub entry: &'a RawValue,
}

impl<'a> SessionListing<'a> {
    /// Parses the list and skips entries without an id or a directory. `None` if the result is not a list.
    pub fn parse(result: &'a RawValue) -> Option<Self> {
        let result = RawObject::parse(result)?;
        let entries: Vec<&RawValue> = serde_json::from_str(result.get("sessions")?.get()).ok()?;
        let listed = |entry| {
            let object = RawObject::parse(entry)?;
            let session_id = object.text("sessionId")?;
            let cwd = object.text("cwd")?;
            Some(ListedSession {
                session_id,
                cwd,
                entry,
            })
        };
        let sessions = entries.into_iter().filter_map(listed).collect();
        let next_cursor = result.text("nextCursor");
        Some(Self {
            sessions,
            next_cursor,
        })
    }
}

/// The parameters of a session. The gateway sends the same parameters to each process of the session.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionSetup<'a> {
    pub cwd: &'a str,
    pub mcp_servers: &'a [McpServer],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub additional_directories: &'a [String],
    /// The validated `_meta` of the client.
    #[serde(skip)]
    pub meta: Option<&'a RawValue>,
}

/// An MCP server for the agent. `Debug` hides its values, because they may be secrets.
#[derive(Clone, PartialEq, Eq, Serialize, derive_more::Debug)]
#[serde(untagged)]
pub enum McpServer {
    #[debug("McpServer({name:?})")]
    Remote {
        #[serde(rename = "type")]
        transport: McpTransport,
        name: String,
        url: String,
        headers: Vec<NameValue>,
    },
    #[debug("McpServer({name:?})")]
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

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, derive_more::Debug)]
#[debug("{name}=[hidden]")]
pub struct NameValue {
    pub name: String,
    pub value: String,
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
    fn new(id: Option<&'a str>, setup: SessionSetup<'a>, trace: Option<&TraceContext>) -> Self {
        Self {
            session_id: id,
            setup,
            meta: setup_meta(setup.meta, trace),
            replay_from: None,
        }
    }
}

pub fn new_session(setup: SessionSetup<'_>, trace: Option<&TraceContext>) -> Box<RawValue> {
    to_raw(&Params::new(None, setup, trace))
}

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

/// The maximum length of a name in bytes.
const MAX_NAME_BYTES: usize = 128;

/// The members of all kinds. Other members are ignored.
#[derive(Deserialize)]
struct Members {
    #[serde(rename = "type")]
    transport: Option<String>,
    name: String,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<NameValue>,
    url: Option<String>,
    #[serde(default)]
    headers: Vec<NameValue>,
}

impl McpServer {
    /// Parses the server of a client. The error names no value, because values can be secrets.
    pub fn parse_client(raw: &RawValue) -> Result<Self, &'static str> {
        const SHAPE: &str = "expected an MCP server of ACP: name, command, args and env, or type (http or sse), name, url and headers";
        let Members {
            transport,
            name,
            command,
            args,
            env,
            url,
            headers,
        } = serde_json::from_str(raw.get()).map_err(|_| SHAPE)?;
        if name.is_empty() || name.len() > MAX_NAME_BYTES || check_name(&name).is_err() {
            return Err("the name of an MCP server has 1 to 128 bytes and no control characters");
        }
        let (transport, url) = match (transport.as_deref(), command, url) {
            (None | Some("stdio"), Some(command), None) if !command.is_empty() => {
                return Ok(Self::Stdio {
                    transport: None,
                    name,
                    command,
                    args,
                    env,
                });
            }
            (Some("http"), None, Some(url)) => (McpTransport::Http, url),
            (Some("sse"), None, Some(url)) => (McpTransport::Sse, url),
            _ => return Err(SHAPE),
        };
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err("the url of an MCP server begins with https:// or http://");
        }
        Ok(Self::Remote {
            transport,
            name,
            url,
            headers,
        })
    }
}

#[cfg(test)]
mod request_tests {
    use agent_client_protocol_schema::v2;

    use super::*;
    use crate::acp::{parse, raw};

    #[test]
    fn params_match_the_schema() {
        let params = set_mode("s", "ask", None);
        assert_eq!(params.get(), r#"{"sessionId":"s","modeId":"ask"}"#);
        let _: v1::SetSessionModeRequest = serde_json::from_str(params.get()).unwrap();

        let params = set_config_option(
            AcpVersion::V1,
            "s",
            "model",
            &ConfigValue::Id("fast".into()),
            None,
        );
        assert_eq!(
            params.get(),
            r#"{"sessionId":"s","configId":"model","value":"fast"}"#
        );
        let _: v1::SetSessionConfigOptionRequest = serde_json::from_str(params.get()).unwrap();

        let params = set_config_option(
            AcpVersion::V1,
            "s",
            "web",
            &ConfigValue::Boolean(false),
            None,
        );
        assert_eq!(
            params.get(),
            r#"{"sessionId":"s","configId":"web","type":"boolean","value":false}"#
        );
        let _: v1::SetSessionConfigOptionRequest = serde_json::from_str(params.get()).unwrap();

        for value in [ConfigValue::Id("fast".into()), ConfigValue::Boolean(true)] {
            let params = set_config_option(AcpVersion::V2, "s", "model", &value, None);
            let typed: v2::SetSessionConfigOptionRequest =
                serde_json::from_str(params.get()).unwrap();
            let known = typed.value.as_id().is_some() || typed.value.as_bool().is_some();
            assert!(known, "{}", params.get());
        }
        let params = prompt("s", raw(r#"[{"type":"text","text":"hi"}]"#), None);
        let _: v2::PromptRequest = serde_json::from_str(params.get()).unwrap();
        let session = session_params("s", None);
        let _: v2::CancelSessionNotification = parse(&session).unwrap();
        let _: v2::CloseSessionRequest = parse(&session).unwrap();
        let _: v2::DeleteSessionRequest = parse(&session).unwrap();

        assert_eq!(session_params("s\"", None).get(), r#"{"sessionId":"s\""}"#);
    }

    #[test]
    fn a_prompt_is_one_line_and_keeps_its_bytes() {
        let trace = TraceContext::parse(
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            None,
        );
        let blocks = raw("[\n{\"type\":\"text\",\r\n\"text\":\"a\\n\\ud83d\",\"x\":1.10}]");
        insta::assert_snapshot!(prompt("s", blocks, trace.as_ref()).get(), @r#"{"sessionId":"s","prompt":[ {"type":"text",  "text":"a\n\ud83d","x":1.10}],"_meta":{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}"#);
    }

    #[test]
    fn config_values_are_ids_or_booleans() {
        assert_eq!(
            parse::<ConfigValue<'_>>(raw("\"a\"")).unwrap(),
            ConfigValue::Id("a".into())
        );
        assert_eq!(
            parse::<ConfigValue<'_>>(raw("true")).unwrap(),
            ConfigValue::Boolean(true)
        );
        for wrong in ["1", "null", "[]", "{}", "\"\\ud800\""] {
            assert!(parse::<ConfigValue<'_>>(raw(wrong)).is_err(), "{wrong}");
        }
    }
}

#[cfg(test)]
mod listing_tests {
    use super::*;

    #[test]
    fn params_match_the_schema() {
        assert_eq!(list_sessions(None, None, None).get(), "{}");
        let params = list_sessions(Some("/w"), Some("c\"1"), None);
        assert_eq!(params.get(), r#"{"cwd":"/w","cursor":"c\"1"}"#);
        let _: v1::ListSessionsRequest = serde_json::from_str(params.get()).unwrap();
    }

    #[test]
    fn malformed_entries_are_skipped() {
        let text = r#"{"sessions":[{"sessionId":"a","cwd":"/w","x":1.10},{"sessionId":"b"},7,
            {"sessionId":"c","cwd":"/w","cwd":"/x"}],"nextCursor":"n"}"#;
        let listing = SessionListing::parse(serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!(listing.next_cursor.unwrap(), "n");
        let [only] = &listing.sessions[..] else {
            panic!("{:?}", listing.sessions)
        };
        assert_eq!((&*only.session_id, &*only.cwd), ("a", "/w"));
        assert_eq!(only.entry.get(), r#"{"sessionId":"a","cwd":"/w","x":1.10}"#);
        for odd in ["null", "[]", "{}", r#"{"sessions":{}}"#] {
            assert!(
                SessionListing::parse(serde_json::from_str(odd).unwrap()).is_none(),
                "{odd}"
            );
        }
    }
}

#[cfg(test)]
mod setup_tests {
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

#[cfg(test)]
mod client_mcp_server_tests {
    use super::*;
    use crate::acp::{raw, to_raw};

    #[test]
    fn servers_of_version_1_are_parsed_without_unknown_members() {
        for (text, expected) in [
            (
                r#"{"name":"a","command":"/bin/a","args":["-v"],"env":[{"name":"K","value":"s3cret"}],"_meta":{"x":1}}"#,
                r#"{"name":"a","command":"/bin/a","args":["-v"],"env":[{"name":"K","value":"s3cret"}]}"#,
            ),
            (
                r#"{"type":"stdio","name":"a","command":"a"}"#,
                r#"{"name":"a","command":"a","args":[],"env":[]}"#,
            ),
            (
                r#"{"type":"http","name":"d","url":"https://mcp.example","headers":[{"name":"A","value":"b"}]}"#,
                r#"{"type":"http","name":"d","url":"https://mcp.example","headers":[{"name":"A","value":"b"}]}"#,
            ),
            (
                r#"{"type":"sse","name":"d","url":"http://mcp.example"}"#,
                r#"{"type":"sse","name":"d","url":"http://mcp.example","headers":[]}"#,
            ),
        ] {
            let server = McpServer::parse_client(raw(text)).unwrap();
            assert_eq!(to_raw(&server).get(), expected);
            assert!(!format!("{server:?}").contains("s3cret"));
        }
    }

    #[test]
    fn other_objects_are_rejected_without_their_values() {
        for text in [
            r#"{"command":"s3cret"}"#,
            r#"{"name":"a"}"#,
            r#"{"name":"a","command":""}"#,
            r#"{"name":"","command":"s3cret"}"#,
            r#"{"name":"a\u001b[2J","command":"s3cret"}"#,
            r#"{"name":"a","command":"s3cret","url":"https://x"}"#,
            r#"{"name":"a","command":["s3cret"]}"#,
            r#"{"type":"http","name":"a","command":"s3cret"}"#,
            r#"{"type":"http","name":"a","url":"file:///s3cret"}"#,
            r#"{"type":"acp","name":"a","url":"https://s3cret"}"#,
        ] {
            let error = McpServer::parse_client(raw(text)).unwrap_err();
            assert!(!error.contains("s3cret"), "{text}");
        }
    }
}
