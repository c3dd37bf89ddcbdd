//! What v2 of ACP has beyond v1: whole messages that replace what was said, calls and terminals that grow.

use super::{Body, Items, Source, What, body, boxed};
use crate::acp::{Object, update};
use crate::api::Role;
use crate::transcript::content::Content;
use crate::transcript::members::{Members, Null};
use crate::transcript::parts::{Chunks, Output};

impl Items {
    /// An update of a kind that only v2 has.
    pub(super) fn update_v2(&mut self, kind: &str, object: &Object<'_>, source: Source<'_>) {
        // The first of them is how the agent's work stands, and comes before everything else of a turn.
        self.null = Null::Clears;
        match kind {
            update::USER_MESSAGE => self.message(Role::User, object, source),
            update::AGENT_MESSAGE => self.message(Role::Agent, object, source),
            update::AGENT_THOUGHT => self.message(Role::Thought, object, source),
            update::TOOL_CALL_CONTENT_CHUNK => self.tool_content(object, source),
            update::TERMINAL_UPDATE | update::TERMINAL_OUTPUT_CHUNK => self.terminal(object, source),
            // How the agent's work stands is no item: status and end of the turn tell it.
            _ => {}
        }
    }

    /// A whole message. Without `content` what was said of it stays.
    fn message(&mut self, role: Role, object: &Object<'_>, source: Source<'_>) {
        let Some(id) = object.text("messageId").map(boxed) else { return };
        let new = || Body::Message { role, message_id: Some(id.clone()), content: Content::default() };
        let place = self.place(What::Message(role, id.clone()), new, source);
        if let Some(blocks) = object.get("content")
            && let Some(Body::Message { content, .. }) = body(&mut self.list, place)
        {
            content.replace(blocks, &mut self.budget);
        }
    }

    /// One more item of a call's content.
    fn tool_content(&mut self, object: &Object<'_>, source: Source<'_>) {
        let Some(id) = object.text("toolCallId") else { return };
        let new = || Body::ToolCall(Members::default(), Chunks::default());
        let place = self.place(What::ToolCall(boxed(id)), new, source);
        if let Some(Body::ToolCall(members, chunks)) = body(&mut self.list, place) {
            // What a chunk says in `_meta` is about the chunk.
            members.merge(object, &["content", "_meta"], Null::Keeps, &mut self.budget);
            if let Some(item) = object.get("content") {
                chunks.push(item, &mut self.budget);
            }
        }
    }

    /// One of the agent's own terminals, or more of its output.
    fn terminal(&mut self, object: &Object<'_>, source: Source<'_>) {
        let Some(id) = object.text("terminalId") else { return };
        let new = || Body::Terminal(Members::default(), Output::default());
        let place = self.place(What::Terminal(boxed(id)), new, source);
        let Some(Body::Terminal(members, output)) = body(&mut self.list, place) else { return };
        if let Some(data) = object.get("data") {
            output.push(data, &mut self.budget);
            return members.merge(object, &["data", "_meta"], Null::Keeps, &mut self.budget);
        }
        if let Some(whole) = object.get("output") {
            output.replace(whole, &mut self.budget);
        }
        members.merge(object, &["output"], Null::Clears, &mut self.budget);
    }
}
