//! Checks of what clients send for a session: title, metadata, the MCP servers that they bring, and the capabilities that
//! the agent needs for it.
//!
//! Client MCP servers contain secrets, so no record and no event contains them. The actor keeps them in
//! memory. The servers are commands on the gateway's machine. Therefore, the scope `admin` does not include `mcp`, and
//! printed links do not have `mcp`. An empty list of servers changes nothing, so other clients can load the session
//! without a list.

use serde_json::{Map, Value};

use super::error::{InputError, ProcessError};
use agents::agent::AgentSpec;
use base::types::text::{UnsafeCharacter, check_name, check_text};
use base::types::{Principal, Scope, SessionId};
use events::api;
use wire::acp::{self, AgentCapabilities, McpServer};

const TITLE_CHARS: usize = 512;
pub(super) const MAX_METADATA_MEMBERS: usize = 64;
/// The maximum size of a session's metadata in bytes of JSON.
const MAX_METADATA_BYTES: usize = 64 << 10;

pub(super) fn check_title(title: Option<&str>) -> Result<(), InputError> {
    let Some(title) = title else { return Ok(()) };
    if title.chars().count() > TITLE_CHARS {
        return Err(InputError::invalid("/title", "at most 512 characters"));
    }
    check_name(title).map_err(|error| InputError::invalid("/title", error.to_string()))
}

pub(super) fn check_metadata(metadata: &Map<String, Value>) -> Result<(), InputError> {
    let bytes = serde_json::to_vec(metadata)
        .expect("JSON values have string keys and serialize")
        .len();
    if bytes > MAX_METADATA_BYTES {
        return Err(InputError::invalid("/metadata", "at most 64 KiB of JSON"));
    }
    if metadata.len() > MAX_METADATA_MEMBERS {
        return Err(InputError::invalid("/metadata", "at most 64 members"));
    }
    metadata
        .iter()
        .try_for_each(|(name, value)| check_member(name, value))
}

fn check_member(name: &str, value: &Value) -> Result<(), InputError> {
    check_name(name).map_err(|error| invalid_member("name", &error))?;
    check_value(value)
}

fn check_value(value: &Value) -> Result<(), InputError> {
    match value {
        Value::String(text) => check_text(text).map_err(|error| invalid_member("value", &error)),
        Value::Array(values) => values.iter().try_for_each(check_value),
        Value::Object(members) => members
            .iter()
            .try_for_each(|(name, value)| check_member(name, value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

fn invalid_member(what: &str, error: &UnsafeCharacter) -> InputError {
    let detail = format!("the {what} of a member is not valid: {error}");
    InputError::invalid("/metadata", detail)
}

/// Rejects the session if the agent does not support one of its MCP servers or its additional directories.
pub(super) fn check_supported(
    spec: &AgentSpec,
    names: &[String],
    brought: &[McpServer],
    directories: &[String],
    capabilities: &AgentCapabilities,
) -> Result<(), ProcessError> {
    let servers = names
        .iter()
        .map(|name| spec.mcp.get(name))
        .chain(brought.iter().map(Some));
    for (at, server) in servers.enumerate() {
        let missing = server.and_then(|server| server.missing_capability(capabilities));
        if let Some(capability) = missing {
            let detail = format!(
                "the agent does not support this kind of MCP server (it lacks {capability})"
            );
            return Err(InputError::invalid(format!("/mcpServers/{at}"), detail).into());
        }
    }
    if !directories.is_empty() && !capabilities.session.additional_directories {
        let method = "additionalDirectories (it lacks sessionCapabilities.additionalDirectories)";
        return Err(ProcessError::unsupported(method));
    }
    Ok(())
}

/// The maximum number of bytes of all servers of a request.
const MAX_BYTES: usize = 256 << 10;

const MAX_SERVERS: usize = 64;

/// The servers that the client defines. Fails if its key may not bring servers. Names of configured servers are skipped.
pub(super) fn parse_servers(
    by: &Principal,
    servers: &[api::McpServer],
) -> Result<Vec<McpServer>, InputError> {
    if servers.len() > MAX_SERVERS {
        return Err(InputError::invalid(
            "/mcpServers",
            "at most 64 MCP servers are permitted",
        ));
    }
    let mut bytes = 0;
    let mut brought: Vec<McpServer> = Vec::new();
    for (at, server) in servers.iter().enumerate() {
        let api::McpServer::Inline(raw) = server else {
            continue;
        };
        if !by.scopes.contains(Scope::Mcp) {
            let detail = "clients cannot define MCP servers: name one of the configuration ([mcp.<name>]), or use a key with the scope mcp";
            return Err(InputError::MissingScope(Scope::Mcp, detail.to_owned()));
        }
        let invalid = |detail: &str| InputError::invalid(format!("/mcpServers/{at}"), detail);
        bytes += raw.get().len();
        if bytes > MAX_BYTES {
            return Err(invalid("the MCP servers have more than 256 KiB"));
        }
        let server = McpServer::parse_client(raw).map_err(invalid)?;
        let is_named = |other: &api::McpServer| matches!(other, api::McpServer::Name(name) if *name == *server.name());
        if brought.iter().any(|other| other.name() == server.name()) || servers.iter().any(is_named)
        {
            return Err(invalid("another MCP server of the session has this name"));
        }
        brought.push(server);
    }
    Ok(brought)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    New,
    /// The agent already has the session.
    Adopted,
    Forked(SessionId),
}

/// Checks whether the agent can fork a session and load the fork in another process.
pub(super) fn can_fork(capabilities: &AgentCapabilities) -> Result<(), ProcessError> {
    if !capabilities.session.fork {
        return Err(ProcessError::unsupported(acp::method::SESSION_FORK));
    }
    if !capabilities.load_session && !capabilities.session.resume {
        return Err(cannot_adopt());
    }
    Ok(())
}

/// The error if the agent cannot restore one of its sessions in another process.
pub(super) fn cannot_adopt() -> ProcessError {
    ProcessError::unsupported(
        "session/load or session/resume, so another process cannot restore its sessions",
    )
}
