//! The items of a turn while it grows.

mod v2;

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::RawValue;

use super::Budget;
use super::content::Content;
use super::members::{Members, Null};
use super::parts::Output;
use super::tool_call::{FinishedCall, ToolCall};
use crate::acp::{RawObject, update};
use crate::api::{
    ContextLost, Role, Settled, TurnCompaction, TurnItem, TurnMessage, TurnNotice, TurnOther, TurnRequest,
    TurnSessionMessage, TurnSubagent, TurnTerminal, TurnToolCall,
};
use crate::event::Payload;
use crate::types::limits::FOLDED_TURN_BYTES;
use crate::types::{RequestId, Timestamp};

/// The items, in the order of their first appearance.
#[derive(Debug)]
pub(super) struct Items {
    list: Vec<Item>,
    /// The index of each item that later events can refer to by id.
    places: HashMap<Key, usize>,
    /// The last item of the session and of each child session. A chunk without a message id continues it.
    last: HashMap<Option<Box<str>>, usize>,
    bytes: Bytes,
    /// The meaning of null in a member of a tool call, which differs between ACP v1 and v2.
    null: Null,
}

/// The remaining budgets.
#[derive(Debug)]
struct Bytes {
    /// For the agent's own messages, so that tool output never displaces the answer.
    messages: Budget,
    /// For all other items.
    rest: Budget,
}

impl Bytes {
    /// The budget for a message of this role and source.
    fn of(&mut self, role: Role, source: Source<'_>) -> &mut Budget {
        if role == Role::Agent && source.subagent.is_none() { &mut self.messages } else { &mut self.rest }
    }
}

/// The key of an item. Ids are unique only within a session, so the key contains the child session.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key(Option<Box<str>>, ItemKey);

#[derive(Debug, PartialEq, Eq, Hash)]
enum ItemKey {
    Message(Role, Box<str>),
    ToolCall(Box<str>),
    Terminal(Box<str>),
    Compaction(Box<str>),
    Subagent(Box<str>),
    SessionMessage(Box<str>),
    Request(RequestId),
}

/// The session and the time of an update.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    /// The child session. `None`: the session itself.
    pub(super) subagent: Option<&'a str>,
    pub(super) late: bool,
}

#[derive(Debug)]
struct Item {
    subagent: Option<Box<str>>,
    late: bool,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Message {
        role: Role,
        message_id: Option<Box<str>>,
        content: Content,
    },
    ToolCall(ToolCall),
    Terminal(Members, Output),
    Compaction(Members, Content),
    Subagent(Members),
    SessionMessage(Members, Content),
    Notice(Box<RawValue>),
    Other(String, Box<RawValue>),
    /// A complete item that no update changes.
    Whole(TurnItem),
}

impl Default for Items {
    fn default() -> Self {
        Self::with_budget(FOLDED_TURN_BYTES)
    }
}

impl Items {
    pub(super) fn with_budget(bytes: usize) -> Self {
        let (places, last) = (HashMap::new(), HashMap::new());
        let bytes = Bytes { messages: Budget::new(bytes), rest: Budget::new(bytes) };
        Self { list: Vec::new(), places, last, bytes, null: Null::Keeps }
    }

    /// Folds an update of a kind that adds to the transcript.
    pub(super) fn update(&mut self, kind: &str, raw: &RawValue, source: Source<'_>) {
        let Some(object) = RawObject::parse(raw) else { return self.other(kind, raw, source) };
        match kind {
            update::USER_MESSAGE_CHUNK => self.chunk(Role::User, &object, source),
            update::AGENT_MESSAGE_CHUNK => self.chunk(Role::Agent, &object, source),
            update::AGENT_THOUGHT_CHUNK => self.chunk(Role::Thought, &object, source),
            update::TOOL_CALL | update::TOOL_CALL_UPDATE => self.tool_call(&object, source),
            update::COMPACTION | update::COMPACTION_SUMMARY_CHUNK => self.compaction(&object, source),
            update::SUBAGENT => self.subagent(&object, source),
            update::SESSION_MESSAGE => self.session_message(&object, false, source),
            update::SESSION_MESSAGE_CHUNK => self.session_message(&object, true, source),
            update::NOTICE => self.raw(raw, Body::Notice, source),
            kind if update::is_v2(kind) => self.update_v2(kind, &object, source),
            _ => self.other(kind, raw, source),
        }
    }

    /// Folds a chunk into the message that it names. A chunk without a message id continues the last item of
    /// its session, if that is a message of the same role.
    fn chunk(&mut self, role: Role, object: &RawObject<'_>, source: Source<'_>) {
        let Some(block) = object.get("content") else { return };
        let message_id: Option<Box<str>> = object.text("messageId").map(boxed);
        let subagent: Option<Box<str>> = source.subagent.map(Into::into);
        let (known, what) = match &message_id {
            Some(id) => {
                let key = Key(subagent, ItemKey::Message(role, id.clone()));
                (self.places.get(&key).copied(), Some(key.1))
            }
            None => (self.last.get(&subagent).copied(), None),
        };
        let same =
            |at: &usize| matches!(&self.list[*at].body, Body::Message { role: same, .. } if *same == role);
        // Reserve the fixed size of the item first, then the size of its content.
        let at = known.filter(same).or_else(|| {
            self.push(Body::Message { role, message_id, content: Content::default() }, what, source)
        });
        if let Some(Body::Message { content, .. }) = body(&mut self.list, at) {
            content.push(block, self.bytes.of(role, source));
        }
    }

    /// Folds a `tool_call`, a `tool_call_update`, or the `toolCall` of a permission request. Any of them may
    /// be the first update of a call.
    pub(super) fn tool_call(&mut self, object: &RawObject<'_>, source: Source<'_>) {
        let Some(id) = object.text("toolCallId") else { return };
        let new = || Body::ToolCall(ToolCall::default());
        let place = self.place(ItemKey::ToolCall(boxed(id)), new, source);
        if let Some(Body::ToolCall(call)) = body(&mut self.list, place) {
            call.update(object, self.null, &mut self.bytes.rest);
        }
    }

    fn compaction(&mut self, object: &RawObject<'_>, source: Source<'_>) {
        let Some(id) = object.text("compactionId") else { return };
        let new = || Body::Compaction(Members::default(), Content::default());
        let place = self.place(ItemKey::Compaction(boxed(id)), new, source);
        if let Some(Body::Compaction(members, summary)) = body(&mut self.list, place) {
            members.merge(object, &["summary", "content"], Null::Clears, &mut self.bytes.rest);
            if let Some(blocks) = object.get("summary") {
                summary.replace(blocks, &mut self.bytes.rest);
            }
            if let Some(block) = object.get("content") {
                summary.push(block, &mut self.bytes.rest);
            }
        }
    }

    fn subagent(&mut self, object: &RawObject<'_>, source: Source<'_>) {
        let Some(id) = object.text("sessionId") else { return };
        let place = self.place(ItemKey::Subagent(boxed(id)), || Body::Subagent(Members::default()), source);
        if let Some(Body::Subagent(members)) = body(&mut self.list, place) {
            members.merge(object, &[], Null::Clears, &mut self.bytes.rest);
        }
    }

    /// Folds a message between sessions. One kind of update has the participants and complete content, the
    /// other has appended blocks. They arrive in any order.
    fn session_message(&mut self, object: &RawObject<'_>, appends: bool, source: Source<'_>) {
        let Some(id) = object.text("messageId") else { return };
        let new = || Body::SessionMessage(Members::default(), Content::default());
        let place = self.place(ItemKey::SessionMessage(boxed(id)), new, source);
        if let Some(Body::SessionMessage(members, content)) = body(&mut self.list, place) {
            let leave_out: &[&str] = if appends { &["content", "_meta"] } else { &["content"] };
            members.merge(object, leave_out, Null::Clears, &mut self.bytes.rest);
            match object.get("content") {
                Some(block) if appends => content.push(block, &mut self.bytes.rest),
                Some(blocks) => content.replace(blocks, &mut self.bytes.rest),
                None => {}
            }
        }
    }

    fn other(&mut self, kind: &str, raw: &RawValue, source: Source<'_>) {
        self.raw(raw, |raw| Body::Other(kind.to_owned(), raw), source);
    }

    fn raw(&mut self, raw: &RawValue, body: impl FnOnce(Box<RawValue>) -> Body, source: Source<'_>) {
        if self.bytes.rest.reserve(raw.get().len()) {
            self.push(body(raw.to_owned()), None, source);
        }
    }

    pub(super) fn context_lost(&mut self, at: Timestamp) {
        let own = Source { subagent: None, late: false };
        self.push(Body::Whole(TurnItem::ContextLost(ContextLost { at })), None, own);
    }

    pub(super) fn request(&mut self, request: TurnRequest) {
        let raws = [&request.options, &request.params].into_iter().flatten();
        if self.bytes.rest.reserve(raws.map(|raw| raw.get().len()).sum()) {
            let what = ItemKey::Request(request.request_id);
            let own = Source { subagent: None, late: false };
            self.push(Body::Whole(TurnItem::Request(request)), Some(what), own);
        }
    }

    /// Folds the resolution of a request. An unknown request is ignored: its beginning was pruned.
    pub(super) fn resolved(&mut self, id: RequestId, at: Timestamp, event: Payload<'_>) {
        let known = self.places.get(&Key(None, ItemKey::Request(id))).copied();
        let Some(Body::Whole(TurnItem::Request(request))) = body(&mut self.list, known) else { return };
        let mut fitting = |raw: &RawValue| self.bytes.rest.reserve(raw.get().len()).then(|| raw.to_owned());
        request.resolution = event.resolution;
        request.resolved_at = Some(at);
        request.by = event.by.map(Into::into);
        request.result = event.result.and_then(&mut fitting);
        request.error = event.error.and_then(&mut fitting);
    }

    /// The index of an item. A new item is added if it fits.
    fn place(&mut self, what: ItemKey, new: impl FnOnce() -> Body, source: Source<'_>) -> Option<usize> {
        let key = Key(source.subagent.map(Into::into), what);
        match self.places.get(&key) {
            Some(at) => Some(*at),
            None => self.push(new(), Some(key.1), source),
        }
    }

    /// Adds an item. Each item has a fixed price, so that the number of small items is bounded.
    fn push(&mut self, body: Body, what: Option<ItemKey>, source: Source<'_>) -> Option<usize> {
        let named = source.subagent.map_or(0, str::len) + what.as_ref().map_or(0, ItemKey::len);
        let price = 2 * named + size_of::<Item>() + size_of::<(Key, usize)>();
        let bytes = match &body {
            Body::Message { role, .. } => self.bytes.of(*role, source),
            _ => &mut self.bytes.rest,
        };
        if !bytes.reserve(price) {
            return None;
        }
        let at = self.list.len();
        let subagent: Option<Box<str>> = source.subagent.map(Into::into);
        if let Some(what) = what {
            self.places.insert(Key(subagent.clone(), what), at);
        }
        self.last.insert(subagent.clone(), at);
        self.list.push(Item { subagent, late: source.late, body });
        Some(at)
    }

    /// The agent's own messages, separated by an empty line, without those of child sessions. The flag is
    /// true if a part did not fit.
    pub(super) fn text(&self) -> (String, bool) {
        let texts = self.list.iter().filter_map(|item| match (&item.subagent, &item.body) {
            (None, Body::Message { role: Role::Agent, content, .. }) => Some(content.text()),
            _ => None,
        });
        let text = texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n");
        (text, self.bytes.messages.exceeded)
    }

    /// Returns the items, and whether parts were omitted. `settled` is the status of tool calls that the
    /// agent left open. It is `None` while the turn runs.
    pub(super) fn finish(self, settled: Option<Settled>) -> (Vec<TurnItem>, bool) {
        let items = self.list.into_iter().filter_map(|item| item.finish(settled));
        (items.collect(), self.bytes.messages.exceeded || self.bytes.rest.exceeded)
    }
}

fn boxed(text: Cow<'_, str>) -> Box<str> {
    text.into()
}

fn body(list: &mut [Item], at: Option<usize>) -> Option<&mut Body> {
    Some(&mut list.get_mut(at?)?.body)
}

impl ItemKey {
    fn len(&self) -> usize {
        match self {
            Self::Message(_, id)
            | Self::ToolCall(id)
            | Self::Terminal(id)
            | Self::Compaction(id)
            | Self::Subagent(id)
            | Self::SessionMessage(id) => id.len(),
            Self::Request(_) => 0,
        }
    }
}

impl Item {
    /// `None` for a message without content: agents often begin a message with an empty chunk.
    fn finish(self, settled: Option<Settled>) -> Option<TurnItem> {
        let Self { subagent, late, body } = self;
        let subagent = subagent.map(String::from);
        Some(match body {
            Body::Message { content, .. } if content.is_empty() => return None,
            Body::Message { role, message_id, content } => {
                let (message_id, content) = (message_id.map(String::from), content.finish());
                TurnItem::Message(TurnMessage { role, message_id, content, subagent, late })
            }
            Body::ToolCall(call) => {
                // A call that began after the end of the turn is not settled by it.
                let FinishedCall { raw: tool_call, commands, settled } =
                    call.finish(settled.filter(|_| !late));
                TurnItem::ToolCall(TurnToolCall { tool_call, settled, commands, subagent, late })
            }
            Body::Terminal(mut members, output) => {
                output.into_members(&mut members);
                TurnItem::AgentTerminal(TurnTerminal { terminal: members.finish(), subagent, late })
            }
            Body::Compaction(members, summary) => {
                let (compaction, summary) = (members.finish(), summary.finish());
                TurnItem::Compaction(TurnCompaction { compaction, summary, subagent, late })
            }
            Body::Subagent(members) => {
                TurnItem::Subagent(TurnSubagent { child: members.finish(), subagent, late })
            }
            Body::SessionMessage(members, content) => {
                let (message, content) = (members.finish(), content.finish());
                TurnItem::SessionMessage(TurnSessionMessage { message, content, subagent, late })
            }
            Body::Notice(notice) => TurnItem::Notice(TurnNotice { notice, subagent, late }),
            Body::Other(session_update, update) => {
                TurnItem::Other(TurnOther { session_update, update, subagent, late })
            }
            Body::Whole(item) => item,
        })
    }
}
