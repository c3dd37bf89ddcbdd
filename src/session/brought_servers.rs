//! The MCP servers that a client brings for a session.
//!
//! They contain secrets, so no record and no event has them. The actor keeps them in memory.
//!
//! The servers are commands on the gateway's machine. Therefore, the scope `admin` does not include `mcp`, and printed
//! links do not have `mcp`. An empty list of servers changes nothing, so other clients can load the session without a
//! list.

use super::error::InputError;
use crate::acp;
use crate::api::McpServer;
use crate::types::{Principal, Scope};

/// The maximum number of bytes of all servers of a request.
const MAX_BYTES: usize = 256 << 10;

/// The maximum number of servers in a request.
const MAX_SERVERS: usize = 64;

/// The servers that the client defines. Fails if its key may not bring servers. Names of configured servers are skipped.
pub(super) fn parse(
    by: &Principal,
    servers: &[McpServer],
) -> Result<Vec<acp::McpServer>, InputError> {
    if servers.len() > MAX_SERVERS {
        return Err(InputError::invalid(
            "/mcpServers",
            "at most 64 MCP servers are permitted",
        ));
    }
    let mut bytes = 0;
    let mut brought: Vec<acp::McpServer> = Vec::new();
    for (at, server) in servers.iter().enumerate() {
        let McpServer::Inline(raw) = server else {
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
        let server = acp::McpServer::parse_client(raw).map_err(invalid)?;
        let is_named =
            |other: &McpServer| matches!(other, McpServer::Name(name) if *name == *server.name());
        if brought.iter().any(|other| other.name() == server.name()) || servers.iter().any(is_named)
        {
            return Err(invalid("another MCP server of the session has this name"));
        }
        brought.push(server);
    }
    Ok(brought)
}
