//! The record of an installation, in its folder.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::index::{Kind, is_id, is_version};
use crate::process::PACKAGE_FILE;
use crate::types::{AgentName, Timestamp};

/// An installed version of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub id: String,
    pub version: String,
    pub kind: Kind,
    /// The hash of the archive in hexadecimal, for a binary.
    pub sha256: Option<String>,
    /// The entry of the configuration.
    pub name: AgentName,
    pub installed_at: Timestamp,
}

impl Record {
    pub(super) fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(folder.join(PACKAGE_FILE)).ok()?).ok()
    }

    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        let text =
            serde_json::to_vec_pretty(self).expect("a record has string keys and serializes");
        std::fs::write(folder.join(PACKAGE_FILE), text)
    }
}

/// The installations below the folder of all agents, with their folders, by id and version.
pub fn installed(agents: &Path) -> io::Result<Vec<(PathBuf, Record)>> {
    let mut found = Vec::new();
    for id in names(agents, is_id)? {
        for folder in names(&id, is_version)? {
            found.extend(Record::read(&folder).map(|record| (folder, record)));
        }
    }
    Ok(found)
}

/// The folders whose names are valid, in order. Empty if the folder does not exist.
fn names(folder: &Path, is_valid: fn(&str) -> bool) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.is_dir()
                && path
                    .file_name()
                    .and_then(|name| name.to_str())
                    .is_some_and(is_valid)
        })
        .collect();
    names.sort();
    Ok(names)
}
