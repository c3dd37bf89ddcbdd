//! The history of a session, in the form in which `session/load` replays it.
//!
//! The chunks of a message are joined. A tool call is stored with its last state, and a turn with its last plan.

use agent_client_protocol_schema::v1::{
    ContentBlock, ContentChunk, EmbeddedResourceResource, MessageId, SessionUpdate, TextContent,
};
use serde::{Deserialize, Serialize};

use super::text::excerpt;

/// A larger block of a prompt is replaced by a note about it.
const MAX_BLOCK_BYTES: usize = 64 << 10;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct History {
    updates: Vec<SessionUpdate>,
}

impl History {
    pub(super) fn updates(&self) -> &[SessionUpdate] {
        &self.updates
    }

    /// Adds the prompt, block by block. This begins a turn.
    pub(super) fn prompt(&mut self, prompt: &[ContentBlock], message: &MessageId) {
        let chunk = |block| ContentChunk::new(truncate_block(block)).message_id(message.clone());
        let blocks = prompt.iter().map(|block| SessionUpdate::UserMessageChunk(chunk(block)));
        self.updates.extend(blocks);
    }

    /// Adds an update as it was sent. Ignores updates that are not history: usage, titles, modes.
    pub(super) fn push(&mut self, update: &SessionUpdate) {
        match update {
            SessionUpdate::AgentMessageChunk(chunk) | SessionUpdate::AgentThoughtChunk(chunk) => {
                self.text(update, chunk);
            }
            SessionUpdate::ToolCall(_) => self.updates.push(update.clone()),
            SessionUpdate::ToolCallUpdate(change) => {
                let call = self.updates.iter_mut().rev().find_map(|update| match update {
                    SessionUpdate::ToolCall(call) if call.tool_call_id == change.tool_call_id => Some(call),
                    _ => None,
                });
                if let Some(call) = call {
                    call.update(change.fields.clone());
                }
            }
            SessionUpdate::Plan(_) => {
                let turn = self.last_turn();
                let earlier = self.updates[turn..].iter_mut().find(|u| matches!(u, SessionUpdate::Plan(_)));
                match earlier {
                    Some(plan) => *plan = update.clone(),
                    None => self.updates.push(update.clone()),
                }
            }
            _ => {}
        }
    }

    /// Replaces the text of a message of the agent.
    pub(super) fn replace(&mut self, message: &MessageId, text: &str) {
        self.updates.retain(|update| match update {
            SessionUpdate::AgentMessageChunk(chunk) => chunk.message_id.as_ref() != Some(message),
            _ => true,
        });
        let chunk = ContentChunk::new(text.into()).message_id(message.clone());
        self.updates.push(SessionUpdate::AgentMessageChunk(chunk));
    }

    /// The prompts of the user, last first.
    pub(super) fn prompts(&self) -> impl Iterator<Item = &str> {
        let prompts = self.updates.iter().rev().filter(|u| matches!(u, SessionUpdate::UserMessageChunk(_)));
        prompts.filter_map(text_of)
    }

    /// Drops the oldest turn. Returns false if only one is left.
    pub(super) fn drop_oldest_turn(&mut self) -> bool {
        let user = |update: &SessionUpdate| matches!(update, SessionUpdate::UserMessageChunk(_));
        let answer = self.updates.iter().position(|update| !user(update)).unwrap_or(self.updates.len());
        match self.updates[answer..].iter().position(user) {
            Some(next) => {
                self.updates.drain(..answer + next);
                true
            }
            None => false,
        }
    }

    /// A rough number of tokens: four bytes each.
    pub(super) fn tokens(&self) -> u64 {
        let bytes: usize = self.updates.iter().filter_map(text_of).map(str::len).sum();
        bytes as u64 / 4
    }

    fn text(&mut self, update: &SessionUpdate, chunk: &ContentChunk) {
        if let Some(last) = self.updates.last_mut()
            && std::mem::discriminant(last) == std::mem::discriminant(update)
            && let SessionUpdate::AgentMessageChunk(open) | SessionUpdate::AgentThoughtChunk(open) = last
            && open.message_id == chunk.message_id
            && let (ContentBlock::Text(open), ContentBlock::Text(more)) = (&mut open.content, &chunk.content)
        {
            open.text.push_str(&more.text);
        } else {
            self.updates.push(update.clone());
        }
    }

    fn last_turn(&self) -> usize {
        self.updates.iter().rposition(|u| matches!(u, SessionUpdate::UserMessageChunk(_))).unwrap_or(0)
    }
}

fn text_of(update: &SessionUpdate) -> Option<&str> {
    match update {
        SessionUpdate::UserMessageChunk(chunk)
        | SessionUpdate::AgentMessageChunk(chunk)
        | SessionUpdate::AgentThoughtChunk(chunk) => match &chunk.content {
            ContentBlock::Text(text) => Some(&text.text),
            _ => None,
        },
        _ => None,
    }
}

fn truncate_block(block: &ContentBlock) -> ContentBlock {
    let note = |what: &str, bytes: usize| {
        ContentBlock::Text(TextContent::new(format!("[{what} of {bytes} bytes, not kept by the demo]")))
    };
    match block {
        ContentBlock::Text(text) if text.text.len() > MAX_BLOCK_BYTES => {
            ContentBlock::Text(TextContent::new(excerpt(&text.text, MAX_BLOCK_BYTES / 4)))
        }
        ContentBlock::Image(image) if image.data.len() > MAX_BLOCK_BYTES => note("image", image.data.len()),
        ContentBlock::Audio(audio) if audio.data.len() > MAX_BLOCK_BYTES => note("audio", audio.data.len()),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            EmbeddedResourceResource::TextResourceContents(text) if text.text.len() > MAX_BLOCK_BYTES => {
                note("resource", text.text.len())
            }
            EmbeddedResourceResource::BlobResourceContents(blob) if blob.blob.len() > MAX_BLOCK_BYTES => {
                note("resource", blob.blob.len())
            }
            _ => block.clone(),
        },
        _ => block.clone(),
    }
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::v1::{
        Plan, ToolCall, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields,
    };

    use super::*;

    fn said(message: &'static str, text: &str) -> SessionUpdate {
        SessionUpdate::AgentMessageChunk(ContentChunk::new(text.into()).message_id(MessageId::new(message)))
    }

    #[test]
    fn chunks_of_a_message_join_and_tool_calls_keep_their_last_state() {
        let mut history = History::default();
        history.prompt(&["hi".into()], &MessageId::new("u"));
        let done = ToolCallUpdateFields::new().status(ToolCallStatus::Completed);
        for update in [
            said("m1", "a"),
            said("m1", "b"),
            SessionUpdate::Plan(Plan::new(vec![])),
            SessionUpdate::ToolCall(ToolCall::new("c1", "Read")),
            SessionUpdate::ToolCallUpdate(ToolCallUpdate::new("c1", done)),
            SessionUpdate::Plan(Plan::new(vec![])),
            said("m2", "c"),
        ] {
            history.push(&update);
        }
        let kinds: Vec<_> = history
            .updates()
            .iter()
            .map(|update| match update {
                SessionUpdate::UserMessageChunk(_) => "user".to_owned(),
                SessionUpdate::ToolCall(call) => format!("{:?}", call.status),
                SessionUpdate::Plan(_) => "plan".to_owned(),
                other => text_of(other).unwrap().to_owned(),
            })
            .collect();
        assert_eq!(kinds, ["user", "ab", "plan", "Completed", "c"]);
    }

    #[test]
    fn oldest_turn_is_dropped_first_and_the_last_is_kept() {
        let mut history = History::default();
        history.prompt(&["one".into(), "more".into()], &MessageId::new("u1"));
        history.push(&said("m1", "first"));
        history.prompt(&["two".into()], &MessageId::new("u2"));
        history.push(&said("m2", "second"));
        assert!(history.drop_oldest_turn());
        assert_eq!(history.updates().len(), 2);
        assert_eq!(text_of(&history.updates()[0]), Some("two"));
        assert!(!history.drop_oldest_turn());
    }
}
