//! The start of a session: the session of a process, and the control requests that set it up.

use std::path::PathBuf;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::translate::message::{LineError, Object};
use wire::jsonrpc::{CallId, RpcError};

/// The session that the process was started for.
#[derive(Debug, Clone, Default)]
pub(super) struct StartedSession {
    pub(super) id: String,
    pub(super) cwd: PathBuf,
    /// The process continues the session with this id.
    pub(super) restores: bool,
}

#[derive(Debug)]
pub(super) struct SetUp {
    pub(super) call: CallId,
    pub(super) is_new: bool,
    /// The number of answers that are missing.
    pub(super) missing: usize,
    pub(super) failed: Option<RpcError>,
}

/// The control requests that set up a session with these params: MCP servers, and further folders.
pub(super) fn set_up_requests(params: &RawValue) -> Result<Vec<Value>, LineError> {
    let params = Object::parse("params", params)?;
    let mut servers = Map::new();
    for server in params.array("mcpServers").into_iter().flatten() {
        let server = Object::parse("mcpServers", server)?;
        let name = server.required_text("name")?.into_owned();
        servers.insert(name, mcp_server(&server)?);
    }
    let directories = params.array("additionalDirectories").unwrap_or_default();
    let mut requests = Vec::new();
    if !servers.is_empty() {
        requests.push(json!({ "subtype": "mcp_set_servers", "servers": servers }));
    }
    if !directories.is_empty() {
        let permissions = json!({ "additionalDirectories": directories });
        requests.push(
            json!({ "subtype": "apply_flag_settings", "settings": { "permissions": permissions } }),
        );
    }
    Ok(requests)
}

/// An MCP server of ACP as a server of the CLI.
fn mcp_server(server: &Object<'_>) -> Result<Value, LineError> {
    let pairs = |member| -> Result<Map<String, Value>, LineError> {
        let pairs = server.array(member).into_iter().flatten();
        let pair = |pair| {
            let pair = Object::parse(member, pair)?;
            Ok((
                pair.required_text("name")?.into_owned(),
                json!(pair.required_text("value")?),
            ))
        };
        pairs.map(pair).collect()
    };
    Ok(match server.text("type").as_deref() {
        Some(kind @ ("http" | "sse")) => {
            json!({ "type": kind, "url": server.required_text("url")?, "headers": pairs("headers")? })
        }
        _ => json!({
            "type": "stdio", "command": server.required_text("command")?,
            "args": server.array("args").unwrap_or_default(), "env": pairs("env")?,
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(params: &str) -> Result<Vec<Value>, LineError> {
        set_up_requests(&RawValue::from_string(params.to_owned()).unwrap())
    }

    #[test]
    fn servers_and_folders_are_control_requests() {
        let params = r#"{"cwd":"/w","additionalDirectories":["/x"],"mcpServers":[
            {"name":"a","command":"/bin/a","args":["-x"],"env":[{"name":"K","value":"v"}]},
            {"type":"http","name":"b","url":"https://b","headers":[{"name":"H","value":"v"}]}]}"#;
        let servers = json!({
            "a": { "type": "stdio", "command": "/bin/a", "args": ["-x"], "env": { "K": "v" } },
            "b": { "type": "http", "url": "https://b", "headers": { "H": "v" } },
        });
        assert_eq!(
            requests(params).unwrap(),
            [
                json!({ "subtype": "mcp_set_servers", "servers": servers }),
                json!({ "subtype": "apply_flag_settings", "settings": { "permissions": { "additionalDirectories": ["/x"] } } }),
            ]
        );
        assert!(
            requests(r#"{"cwd":"/w","mcpServers":[]}"#)
                .unwrap()
                .is_empty()
        );
        assert_eq!(
            requests(r#"{"mcpServers":[{"name":"a"}]}"#),
            Err(LineError::Member {
                object: "mcpServers",
                member: "command"
            })
        );
    }
}
