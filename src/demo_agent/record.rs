//! A session as it is stored.

use std::collections::BTreeMap;
use std::path::PathBuf;

use agent_client_protocol_schema::v1::{Error, SessionId};
use serde::{Deserialize, Serialize};

use crate::types::Timestamp;

use super::history::History;
use super::options::{Mode, Options};

/// The subject of an `always` answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Grant {
    Edit,
    Execute,
}

/// The working directory and related settings, replaced each time the client sets the session up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Workspace {
    pub(super) cwd: PathBuf,
    #[serde(default)]
    pub(super) additional_directories: Vec<PathBuf>,
    /// Names only. The demo does not use the servers.
    #[serde(default)]
    pub(super) mcp_servers: Vec<String>,
}

impl Workspace {
    /// Checks that the paths are absolute, as ACP requires.
    pub(super) fn new(
        cwd: PathBuf,
        additional_directories: Vec<PathBuf>,
        mcp_servers: Vec<String>,
    ) -> Result<Self, Error> {
        if !cwd.is_absolute() {
            return Err(Error::invalid_params().data("cwd must be an absolute path"));
        }
        if !additional_directories.iter().all(|directory| directory.is_absolute()) {
            return Err(Error::invalid_params().data("additionalDirectories must be absolute paths"));
        }
        Ok(Self { cwd, additional_directories, mcp_servers })
    }
}

/// A session as it is stored in its file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    pub(super) session_id: SessionId,
    #[serde(flatten)]
    pub(super) place: Workspace,
    pub(super) title: Option<String>,
    pub(super) updated_at: Timestamp,
    #[serde(default)]
    pub(super) mode: Mode,
    #[serde(default)]
    pub(super) options: Options,
    /// The `always` answers: true allows, false rejects.
    #[serde(default)]
    pub(super) grants: BTreeMap<Grant, bool>,
    /// The number of turns so far.
    #[serde(default)]
    pub(super) turns: u64,
    /// The last number used for a message or a tool call.
    #[serde(default)]
    pub(super) last_number: u64,
    #[serde(default)]
    pub(super) history: History,
}

impl Record {
    pub(super) fn new(session_id: SessionId, place: Workspace, now: Timestamp) -> Self {
        Self {
            session_id,
            place,
            title: None,
            updated_at: now,
            mode: Mode::default(),
            options: Options::default(),
            grants: BTreeMap::new(),
            turns: 0,
            last_number: 0,
            history: History::default(),
        }
    }

    /// Returns a number that no message and no tool call of this session used before, including earlier processes.
    pub(super) fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}
