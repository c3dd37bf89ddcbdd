//! The half of a translation that serves the client.

use std::path::PathBuf;

use crate::served::{ServedContext, ServedDialect, ServedProtocol, serve};
use crate::types::AgentDialect;

/// The version of this program, as clients see it.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Serves a client in the protocol of a dialect.
pub(super) fn serve_dialect(dialect: AgentDialect, cwd: PathBuf) -> Box<dyn ServedDialect> {
    let protocol = match dialect {
        AgentDialect::Acp => ServedProtocol::Acp,
        AgentDialect::EarlyAcp => ServedProtocol::EarlyAcp,
        AgentDialect::StreamJson => ServedProtocol::StreamJson,
    };
    serve(
        protocol,
        ServedContext {
            cwd,
            version: VERSION,
        },
    )
}
