//! One tool call of a turn while its updates arrive.

use serde_json::value::RawValue;

use super::Budget;
use super::command_output::{Commands, META_KEYS};
use super::members::{Members, Null};
use super::parts::Chunks;
use crate::acp::RawObject;
use crate::api::{Settled, TurnToolCall};

/// A tool call as described by its updates, permission requests and content chunks.
#[derive(Debug, Default)]
pub(super) struct ToolCall {
    members: Members,
    chunks: Chunks,
    commands: Commands,
}

impl ToolCall {
    /// Folds a `tool_call`, a `tool_call_update`, or the `toolCall` of a permission request.
    pub(super) fn update(&mut self, object: &RawObject<'_>, null: Null, budget: &mut Budget) {
        let replaced = |content: &RawValue| content.get() != "null" || null == Null::Clears;
        if object.get("content").is_some_and(replaced) {
            self.chunks.clear(budget);
        }
        let meta = object
            .object("_meta")
            .filter(|meta| META_KEYS.iter().any(|key| meta.get(key).is_some()));
        let Some(meta) = meta else {
            return self.members.merge(object, &[], null, budget);
        };
        // Command output is folded separately. In `_meta` it would replace the members of earlier updates.
        self.commands.update(&meta, budget);
        self.members.merge(object, &["_meta"], null, budget);
        if let Some(rest) = Members::without(&meta, &META_KEYS) {
            self.members.set("_meta", &rest, budget);
        }
    }

    /// Removes the input if a permission request with another title does not repeat it.
    pub(super) fn ask(&mut self, object: &RawObject<'_>, budget: &mut Budget) {
        let asked = object.get("title").filter(|raw| raw.get() != "null");
        let known = self.members.get("title");
        if let (Some(asked), Some(known)) = (asked, known)
            && asked.get() != known.get()
        {
            self.members.clear("rawInput", budget);
        }
    }

    /// Folds a `tool_call_content_chunk` of ACP v2: one more item of the content.
    pub(super) fn content_chunk(&mut self, object: &RawObject<'_>, budget: &mut Budget) {
        // The `_meta` of a chunk describes the chunk, not the call.
        self.members
            .merge(object, &["content", "_meta"], Null::Keeps, budget);
        if let Some(item) = object.get("content") {
            self.chunks.push(item, budget);
        }
    }

    /// Returns the final call. If the call is still open at the end of its turn, its status becomes `failed`,
    /// with the reason in `settled`.
    pub(super) fn finish(
        mut self,
        settled: Option<Settled>,
        subagent: Option<String>,
        late: bool,
    ) -> TurnToolCall {
        let settled = settled.filter(|_| self.is_open());
        if settled.is_some() {
            let failed =
                RawValue::from_string("\"failed\"".to_owned()).expect("a JSON string is valid");
            self.members.set_uncounted("status", failed);
        }
        self.chunks.into_members(&mut self.members);
        let (tool_call, commands) = (self.members.finish(), self.commands.finish());
        TurnToolCall {
            tool_call,
            settled,
            commands,
            subagent,
            late,
        }
    }

    /// Whether the call is still open. By ACP, a call without a status is pending. An unknown status counts
    /// as an end.
    pub(super) fn is_open(&self) -> bool {
        let status = self.members.get("status").map_or("null", RawValue::get);
        matches!(status, "null" | "\"pending\"" | "\"in_progress\"")
    }
}
