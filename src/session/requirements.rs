//! The requirements of a session on its agent.

use super::error::{InputError, ProcessError};
use crate::acp::{AgentCapabilities, McpServer};
use crate::agent::AgentSpec;

/// Rejects the session if the agent does not support one of its MCP servers or its additional directories.
pub(super) fn check(
    spec: &AgentSpec,
    (names, brought): (&[String], &[McpServer]),
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
