//! Dialects for a process that is not an agent of the catalogue.

use std::path::PathBuf;

use serde_json::value::RawValue;

use super::dialect::{Acp, Dialect};
use super::early_acp::{EarlyAcp, Opening};
use super::stream_json::{self, StartedSession, StreamJson};
use crate::acp::AcpVersion;
use crate::types::{AgentDialect, random_uuid};

/// The session for which a process starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandaloneSession {
    /// The working directory of the process.
    pub cwd: PathBuf,
    /// The session that the process continues, a UUID.
    pub restore: Option<String>,
}

/// The dialect for one process, and the arguments that follow those of its command. `session` is the session of a dialect
/// whose processes start for one.
pub fn standalone_dialect(
    dialect: AgentDialect,
    session: Option<&StandaloneSession>,
) -> (Box<dyn Dialect>, Vec<String>) {
    match dialect {
        AgentDialect::Acp => (Box::new(Acp(AcpVersion::V1)), Vec::new()),
        AgentDialect::EarlyAcp => (Box::new(EarlyAcp::new(Opening::Text)), Vec::new()),
        AgentDialect::StreamJson => {
            let started = session.map_or_else(StartedSession::default, |session| StartedSession {
                id: Some(
                    session
                        .restore
                        .clone()
                        .unwrap_or_else(|| random_uuid().to_string()),
                ),
                cwd: session.cwd.clone(),
                restores: session.restore.is_some(),
                missing: None,
                version: None,
            });
            let arguments = stream_json::arguments(&started);
            (Box::new(StreamJson::new(started)), arguments)
        }
    }
}

/// The answer to `initialize` before a process starts. `None` if the process answers itself.
pub fn standalone_initialize_result(dialect: AgentDialect) -> Option<Box<RawValue>> {
    match dialect {
        AgentDialect::Acp | AgentDialect::EarlyAcp => None,
        AgentDialect::StreamJson => Some(stream_json::initialize_result(None)),
    }
}
