//! A session as it is stored in its file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use agent_client_protocol_schema::v1::Error;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::types::Timestamp;

use super::history::History;
use super::options::Options;

/// The working directory and related settings, replaced each time the client sets the session up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Workspace {
    pub(super) cwd: PathBuf,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) additional_directories: Vec<PathBuf>,
    /// The demo does not use the servers, and does not store them.
    #[serde(default, skip_serializing)]
    pub(super) mcp_servers: Vec<McpServer>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct McpServer {
    pub(super) name: String,
}

impl Workspace {
    /// Checks that the paths are absolute, as ACP requires.
    pub(super) fn check(&self) -> Result<(), Error> {
        if !self.cwd.is_absolute() {
            return Err(Error::invalid_params().data("cwd must be an absolute path"));
        }
        if !self
            .additional_directories
            .iter()
            .all(|directory| directory.is_absolute())
        {
            return Err(
                Error::invalid_params().data("additionalDirectories must be absolute paths")
            );
        }
        Ok(())
    }
}

/// An entry of `session/list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    pub(super) session_id: String,
    #[serde(flatten)]
    pub(super) workspace: Workspace,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) title: Option<String>,
    pub(super) updated_at: Timestamp,
}

impl Entry {
    /// The update about the title and the time of the last change.
    pub(super) fn info_update(&self) -> Value {
        let mut update =
            json!({ "sessionUpdate": "session_info_update", "updatedAt": self.updated_at });
        if let Some(title) = &self.title {
            update["title"] = json!(title);
        }
        update
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    #[serde(flatten)]
    pub(super) entry: Entry,
    pub(super) options: Options,
    /// The `always` answers by the kind of the tool: true allows, false rejects.
    pub(super) grants: BTreeMap<String, bool>,
    /// The number of turns so far.
    pub(super) turns: u64,
    /// The last number used for a message or a tool call.
    pub(super) last_number: u64,
    pub(super) history: History,
}

impl Record {
    pub(super) fn new(session_id: String, workspace: Workspace, now: Timestamp) -> Self {
        Self {
            entry: Entry {
                session_id,
                workspace,
                title: None,
                updated_at: now,
            },
            options: Options::default(),
            grants: BTreeMap::new(),
            turns: 0,
            last_number: 0,
            history: History::default(),
        }
    }

    pub(super) fn cwd(&self) -> String {
        self.entry.workspace.cwd.to_string_lossy().into_owned()
    }

    /// Returns a number that no message and no tool call of this session used before, including earlier processes.
    pub(super) fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}
