//! The tool calls of a turn that are in progress. The agent may be silent for longer while one runs.

use std::collections::HashSet;

use serde_json::value::RawValue;

use crate::acp::{RawObject, update};

/// The number of tool calls in progress that a turn tracks. Later ones have no effect on the limit of silence.
const MAX_CALLS: usize = 1000;
/// The length of a tracked id in bytes.
const MAX_ID_BYTES: usize = 1024;

/// The tool calls in progress: their ids, with the child session that runs them.
#[derive(Debug, Default)]
pub(super) struct RunningCalls(HashSet<(Option<Box<str>>, Box<str>)>);

impl RunningCalls {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes the status in an update of a tool call. A new call without a status is pending (ACP, Tool Calls).
    pub(super) fn track(&mut self, kind: &str, raw: &RawValue, subagent: Option<&str>) {
        if !matches!(kind, update::TOOL_CALL | update::TOOL_CALL_UPDATE) {
            return;
        }
        let Some(call) = RawObject::parse(raw) else {
            return;
        };
        let Some(id) = call.text("toolCallId") else {
            return;
        };
        let status = call.text("status");
        let runs = match status.as_deref() {
            Some(status) => matches!(status, "pending" | "in_progress"),
            None if kind == update::TOOL_CALL => true,
            None => return,
        };
        let key = (subagent.map(Into::into), Box::from(&*id));
        if !runs {
            self.0.remove(&key);
        } else if self.0.len() < MAX_CALLS && id.len() <= MAX_ID_BYTES {
            self.0.insert(key);
        }
    }
}
