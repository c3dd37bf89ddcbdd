//! The record of a terminal.

use serde::{Deserialize, Serialize};

use super::codec::encode;
use super::keys::numbered_key;
use crate::eventlog::Records;
use crate::store::{Put, Table};
use crate::types::{PromptId, SessionId, TerminalId, Timestamp};

/// A terminal of the gateway. Its output is in the log.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::session) struct TerminalRecord {
    /// The terminal as clients see it. It has no exit status while the command runs.
    pub(in crate::session) shown: StoredTerminal,
    pub(in crate::session) first_seq: u64,
    /// The sequence number of the end of the terminal, if it has ended.
    pub(in crate::session) last_seq: Option<u64>,
}

/// A terminal that the gateway runs for an agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::session) struct StoredTerminal {
    pub(in crate::session) terminal_id: TerminalId,
    pub(in crate::session) prompt_id: Option<PromptId>,
    pub(in crate::session) command: String,
    pub(in crate::session) args: Vec<String>,
    pub(in crate::session) cwd: String,
    pub(in crate::session) created_at: Timestamp,
    pub(in crate::session) exit_status: Option<StoredExit>,
}

/// The exit status of a command. If both members are `None`, the cause of the exit is unknown.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::session) struct StoredExit {
    pub(in crate::session) exit_code: Option<i32>,
    pub(in crate::session) signal: Option<String>,
}

impl TerminalRecord {
    pub(in crate::session) fn put(&self, id: SessionId, records: &mut Records) {
        let key = numbered_key(id, self.shown.terminal_id.number());
        records.puts.push(Put {
            table: Table::Terminal,
            key,
            value: encode(self),
        });
    }
}
