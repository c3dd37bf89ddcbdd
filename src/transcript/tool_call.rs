//! One tool call of a turn while its updates arrive.

use serde_json::value::RawValue;

use super::Budget;
use super::command_output::{Commands, META_KEYS};
use super::members::{Members, Null};
use super::parts::Chunks;
use crate::acp::RawObject;
use crate::api::{CommandOutput, Settled};

/// A tool call as its updates, permission requests and content chunks have described it so far.
#[derive(Debug, Default)]
pub(super) struct ToolCall {
    members: Members,
    chunks: Chunks,
    commands: Commands,
}

impl ToolCall {
    /// A `tool_call`, a `tool_call_update`, or the `toolCall` of a permission request.
    pub(super) fn update(&mut self, object: &RawObject<'_>, null: Null, budget: &mut Budget) {
        let replaced = |content: &RawValue| content.get() != "null" || null == Null::Clears;
        if object.get("content").is_some_and(replaced) {
            self.chunks.clear(budget);
        }
        let meta = object.object("_meta").filter(|meta| META_KEYS.iter().any(|key| meta.get(key).is_some()));
        let Some(meta) = meta else { return self.members.merge(object, &[], null, budget) };
        // Output is folded by itself. Left in `_meta` it would replace the members that other updates sent there.
        self.commands.update(&meta, budget);
        self.members.merge(object, &["_meta"], null, budget);
        if let Some(rest) = Members::without(&meta, &META_KEYS) {
            self.members.set("_meta", &rest, budget);
        }
    }

    /// A `tool_call_content_chunk` of ACP v2: one more item of the content.
    pub(super) fn content_chunk(&mut self, object: &RawObject<'_>, budget: &mut Budget) {
        // The `_meta` of a chunk is about the chunk.
        self.members.merge(object, &["content", "_meta"], Null::Keeps, budget);
        if let Some(item) = object.get("content") {
            self.chunks.push(item, budget);
        }
    }

    /// The call as its updates left it. A call that is still open at the end of its turn is `failed`, for the reason
    /// given in `settled`.
    pub(super) fn finish(mut self, settled: Option<Settled>) -> FinishedCall {
        let settled = settled.filter(|_| self.is_open());
        if settled.is_some() {
            let failed = RawValue::from_string("\"failed\"".to_owned()).expect("a string");
            self.members.set_uncounted("status", failed);
        }
        self.chunks.into_members(&mut self.members);
        FinishedCall { raw: self.members.finish(), commands: self.commands.finish(), settled }
    }

    /// ACP: a call without a status is pending. A status that this version does not know is an end.
    fn is_open(&self) -> bool {
        let status = self.members.get("status").map_or("null", RawValue::get);
        matches!(status, "null" | "\"pending\"" | "\"in_progress\"")
    }
}

/// A tool call as a transcript shows it.
pub(super) struct FinishedCall {
    pub(super) raw: Box<RawValue>,
    pub(super) commands: Vec<CommandOutput>,
    pub(super) settled: Option<Settled>,
}
