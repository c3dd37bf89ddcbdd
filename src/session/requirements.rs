//! The requirements of a session on its agent's process: capabilities of the agent and of the client.

use super::actor::Actor;
use super::refusal::Refusal;
use crate::acp::{AgentCapabilities, ClientCapabilities, McpServer};
use crate::agent::{AgentFailure, AgentSpec};
use crate::types::ServedBy;

impl Actor {
    /// The server of the agent's files: the setting of the agent, restricted by the policy of the client.
    pub(super) fn files_served_by(&self) -> ServedBy {
        self.record
            .policy
            .files
            .map_or(self.spec.settings.files, |wanted| wanted.min(self.spec.settings.files))
    }

    /// The server of the agent's terminals: the setting of the agent, restricted by the policy of the client.
    pub(super) fn terminals_served_by(&self) -> ServedBy {
        self.record
            .policy
            .terminals
            .map_or(self.spec.settings.terminals, |wanted| wanted.min(self.spec.settings.terminals))
    }

    /// The capabilities that the gateway sends in `initialize`.
    pub(super) fn offered_capabilities(&self) -> ClientCapabilities {
        ClientCapabilities::new(self.files_served_by(), self.terminals_served_by())
    }
}

/// Rejects the session if the agent does not support one of its MCP servers or its additional directories.
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
                detail: format!("the agent does not support this kind of MCP server (it lacks {capability})"),
            });
        }
    }
    if !directories.is_empty() && !capabilities.session.additional_directories {
        let method = "additionalDirectories (it lacks sessionCapabilities.additionalDirectories)".to_owned();
        return Err(Refusal::Agent(AgentFailure::Unsupported { method }));
    }
    Ok(())
}
