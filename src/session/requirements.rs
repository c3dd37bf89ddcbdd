//! The requirements of a session on its agent.

use super::error::{InputError, ProcessError};
use crate::acp::AgentCapabilities;
use crate::agent::AgentSpec;

/// Rejects the session if the agent does not support one of its MCP servers or its additional directories.
pub(super) fn check(
    spec: &AgentSpec,
    servers: &[String],
    directories: &[String],
    capabilities: &AgentCapabilities,
) -> Result<(), ProcessError> {
    for (at, name) in servers.iter().enumerate() {
        let missing = spec.mcp.get(name).and_then(|server| server.missing_capability(capabilities));
        if let Some(capability) = missing {
            let detail =
                format!("the agent does not support this kind of MCP server (it lacks {capability})");
            return Err(InputError::invalid(format!("/mcpServers/{at}"), detail).into());
        }
    }
    if !directories.is_empty() && !capabilities.session.additional_directories {
        let method = "additionalDirectories (it lacks sessionCapabilities.additionalDirectories)";
        return Err(ProcessError::unsupported(method));
    }
    Ok(())
}
