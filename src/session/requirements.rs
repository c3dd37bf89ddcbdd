//! What a session brings to its agent, compared with what the agent can take.

use super::refusal::Refusal;
use crate::acp::{AgentCapabilities, McpServer};
use crate::agent::{AgentFailure, AgentSpec};

/// An agent that cannot take one of the servers or the directories is told of none: whoever wants them must know.
pub(super) fn check(
    spec: &AgentSpec,
    servers: &[String],
    directories: &[String],
    capabilities: &AgentCapabilities,
) -> Result<(), Refusal> {
    for (at, name) in servers.iter().enumerate() {
        let server = spec.mcp.get(name).filter(|server| !server.is_supported_by(capabilities));
        if let Some(capability) = server.map(McpServer::required_capability) {
            return Err(Refusal::Invalid {
                pointer: format!("/mcpServers/{at}"),
                detail: format!("the agent takes no MCP server of this kind (it lacks {capability})"),
            });
        }
    }
    if !directories.is_empty() && !capabilities.session.additional_directories {
        let method = "additionalDirectories (it lacks sessionCapabilities.additionalDirectories)".to_owned();
        return Err(Refusal::Agent(AgentFailure::Unsupported { method }));
    }
    Ok(())
}
