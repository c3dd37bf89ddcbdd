//! The items of a turn while they grow.

use std::collections::HashMap;

use serde_json::value::RawValue;

use super::Budget;
use super::content::Content;
use super::event_view::EventView;
use super::members::Members;
use crate::acp::{Object, update};
use crate::api::{
    ContextLost, Role, TurnCompaction, TurnItem, TurnMessage, TurnNotice, TurnOther, TurnRequest,
    TurnToolCall,
};
use crate::types::limits::FOLDED_TURN_BYTES;
use crate::types::{RequestId, Timestamp};

/// In the order of their first appearance.
#[derive(Debug)]
pub(super) struct Items {
    list: Vec<Item>,
    /// Where to find what later events name by an id.
    places: HashMap<Key, usize>,
    budget: Budget,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum Key {
    Message(Role, String),
    ToolCall(String),
    Compaction(String),
    Request(RequestId),
}

#[derive(Debug)]
enum Item {
    Message { role: Role, message_id: Option<String>, content: Content, late: bool },
    ToolCall { members: Members, late: bool },
    Compaction { members: Members, summary: Content, late: bool },
    Whole(TurnItem),
}

impl Default for Items {
    fn default() -> Self {
        Self::with_room(FOLDED_TURN_BYTES)
    }
}

impl Items {
    pub(super) fn with_room(bytes: usize) -> Self {
        Self { list: Vec::new(), places: HashMap::new(), budget: Budget::new(bytes) }
    }

    /// An update of a kind that says something new in a transcript.
    pub(super) fn update(&mut self, kind: &str, raw: &RawValue, late: bool) {
        let Some(object) = Object::parse(raw) else { return self.other(kind, raw, late) };
        let role = match kind {
            update::USER_MESSAGE_CHUNK => Role::User,
            update::AGENT_MESSAGE_CHUNK => Role::Agent,
            update::AGENT_THOUGHT_CHUNK => Role::Thought,
            update::TOOL_CALL | update::TOOL_CALL_UPDATE => return self.tool_call(&object, late),
            update::COMPACTION | update::COMPACTION_SUMMARY_CHUNK => return self.compaction(&object, late),
            update::NOTICE => {
                let notice = || TurnItem::Notice(TurnNotice { notice: raw.to_owned(), late });
                return self.whole(raw.get().len(), notice);
            }
            _ => return self.other(kind, raw, late),
        };
        if let Some(block) = object.get("content") {
            self.chunk(role, object.text("messageId").map(Into::into), block, late);
        }
    }

    /// A chunk belongs to the message that it names. One that names none continues the last item, if that is a
    /// message of the same role.
    fn chunk(&mut self, role: Role, message_id: Option<String>, block: &RawValue, late: bool) {
        let key = message_id.clone().map(|id| Key::Message(role, id));
        let known = match &key {
            Some(key) => self.places.get(key).copied(),
            None => self.list.len().checked_sub(1),
        };
        if let Some(Item::Message { role: same, content, .. }) = known.and_then(|at| self.list.get_mut(at))
            && *same == role
        {
            return content.push(block, &mut self.budget);
        }
        let mut content = Content::default();
        content.push(block, &mut self.budget);
        let id_bytes = message_id.as_ref().map_or(0, String::len);
        self.push(Item::Message { role, message_id, content, late }, id_bytes, key);
    }

    /// A `tool_call`, a `tool_call_update`, or the `toolCall` of a permission request: any of them may be the first
    /// that an agent tells of a call.
    pub(super) fn tool_call(&mut self, object: &Object<'_>, late: bool) {
        let Some(id) = object.text("toolCallId") else { return };
        let new = || Item::ToolCall { members: Members::default(), late };
        let place = self.place(Key::ToolCall(id.into()), new);
        if let Some(Item::ToolCall { members, .. }) = place.and_then(|at| self.list.get_mut(at)) {
            members.merge(object, &[], &mut self.budget);
        }
    }

    fn compaction(&mut self, object: &Object<'_>, late: bool) {
        let Some(id) = object.text("compactionId") else { return };
        let new = || Item::Compaction { members: Members::default(), summary: Content::default(), late };
        let place = self.place(Key::Compaction(id.into()), new);
        if let Some(Item::Compaction { members, summary, .. }) = place.and_then(|at| self.list.get_mut(at)) {
            members.merge(object, &["summary", "content"], &mut self.budget);
            if let Some(blocks) = object.get("summary") {
                summary.replace(blocks, &mut self.budget);
            }
            if let Some(block) = object.get("content") {
                summary.push(block, &mut self.budget);
            }
        }
    }

    fn other(&mut self, kind: &str, raw: &RawValue, late: bool) {
        self.whole(raw.get().len(), || {
            TurnItem::Other(TurnOther { session_update: kind.to_owned(), update: raw.to_owned(), late })
        });
    }

    pub(super) fn context_lost(&mut self, at: Timestamp) {
        self.whole(0, || TurnItem::ContextLost(ContextLost { at }));
    }

    pub(super) fn request(&mut self, request: TurnRequest) {
        let bytes =
            [&request.options, &request.params].into_iter().flatten().map(|raw| raw.get().len()).sum();
        let key = Key::Request(request.request_id);
        self.push(Item::Whole(TurnItem::Request(request)), bytes, Some(key));
    }

    /// How a request ended. Unknown ones are ignored: retention has taken their beginning.
    pub(super) fn resolved(&mut self, id: RequestId, at: Timestamp, event: EventView<'_>) {
        let known = self.places.get(&Key::Request(id)).and_then(|at| self.list.get_mut(*at));
        let Some(Item::Whole(TurnItem::Request(request))) = known else { return };
        let mut fitting = |raw: &RawValue| self.budget.take(raw.get().len()).then(|| raw.to_owned());
        request.resolution = event.resolution;
        request.resolved_at = Some(at);
        request.by = event.by.map(Into::into);
        request.result = event.result.and_then(&mut fitting);
        request.error = event.error.and_then(&mut fitting);
    }

    fn whole(&mut self, bytes: usize, item: impl FnOnce() -> TurnItem) {
        if self.budget.take(bytes) {
            self.push(Item::Whole(item()), 0, None);
        }
    }

    /// Where the item of this key is; a new one, if there was none and it fits.
    fn place(&mut self, key: Key, new: impl FnOnce() -> Item) -> Option<usize> {
        match self.places.get(&key) {
            Some(at) => Some(*at),
            None => self.push(new(), 0, Some(key)),
        }
    }

    /// Every item has a price, so that many small ones are bounded too.
    fn push(&mut self, item: Item, bytes: usize, key: Option<Key>) -> Option<usize> {
        if !self.budget.take(bytes + size_of::<Item>() + size_of::<Key>()) {
            return None;
        }
        let at = self.list.len();
        if let Some(key) = key {
            self.places.insert(key, at);
        }
        self.list.push(item);
        Some(at)
    }

    /// The agent's messages, with an empty line between them.
    pub(super) fn text(&self) -> String {
        let texts = self.list.iter().filter_map(|item| match item {
            Item::Message { role: Role::Agent, content, .. } => Some(content.text()),
            _ => None,
        });
        texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n")
    }

    /// The items, and whether something had to be left out.
    pub(super) fn finish(self) -> (Vec<TurnItem>, bool) {
        (self.list.into_iter().filter_map(Item::finish).collect(), self.budget.exceeded)
    }
}

impl Item {
    /// None: a message in which nothing was said, as agents begin them with an empty chunk.
    fn finish(self) -> Option<TurnItem> {
        Some(match self {
            Self::Message { content, .. } if content.is_empty() => return None,
            Self::Message { role, message_id, content, late } => {
                TurnItem::Message(TurnMessage { role, message_id, content: content.finish(), late })
            }
            Self::ToolCall { members, late } => {
                TurnItem::ToolCall(TurnToolCall { tool_call: members.finish(), late })
            }
            Self::Compaction { members, summary, late } => TurnItem::Compaction(TurnCompaction {
                compaction: members.finish(),
                summary: summary.finish(),
                late,
            }),
            Self::Whole(item) => item,
        })
    }
}
