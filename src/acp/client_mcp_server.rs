//! The MCP servers that clients define themselves (ACP, `McpServer` of version 1).

use serde::Deserialize;
use serde_json::value::RawValue;

use super::setup::{McpServer, McpTransport, NameValue};
use crate::types::text::check_name;

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
        let transport = match (transport.as_deref(), command, url) {
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
        let (transport, url) = transport;
        if !["http://", "https://"]
            .iter()
            .any(|scheme| url.starts_with(scheme))
        {
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
mod tests {
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
