//! The items of a turn while they grow.

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

/// In the order of their first appearance.
#[derive(Debug)]
pub(super) struct Items {
    list: Vec<Item>,
    /// Where to find what later events name by an id.
    places: HashMap<Key, usize>,
    /// The last item of the session and of each child: what a chunk that names no message continues.
    last: HashMap<Option<Box<str>>, usize>,
    bytes: Bytes,
    /// What null says of a member of a tool call: v1 and v2 differ.
    null: Null,
}

/// How much still fits.
#[derive(Debug)]
struct Bytes {
    /// For the agent's own messages, so that the output of its tools never displaces its answer.
    messages: Budget,
    /// For everything else.
    rest: Budget,
}

impl Bytes {
    /// The budget for a message of this role and source.
    fn of(&mut self, role: Role, source: Source<'_>) -> &mut Budget {
        if role == Role::Agent && source.subagent.is_none() { &mut self.messages } else { &mut self.rest }
    }
}

/// Ids count within a session, so they go with the child that they are of.
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

/// Whose an update is, and when it came.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    /// The child session; None: the session itself.
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
    /// What no update changes.
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

    /// An update of a kind that says something new in a transcript.
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

    /// A chunk belongs to the message that it names. One that names none continues the last item of its session, if
    /// that is a message of the same role.
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
        // The item is charged first, and its content gets the rest.
        let at = known.filter(same).or_else(|| {
            self.push(Body::Message { role, message_id, content: Content::default() }, what, source)
        });
        if let Some(Body::Message { content, .. }) = body(&mut self.list, at) {
            content.push(block, self.bytes.of(role, source));
        }
    }

    /// A `tool_call`, a `tool_call_update`, or the `toolCall` of a permission request: any of them may be the first
    /// that an agent tells of a call.
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

    /// A message between sessions. Its participants and a complete content come in one kind of update, blocks that
    /// are appended in the other, in any order.
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

    /// How a request ended. Unknown ones are ignored: retention has taken their beginning.
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

    /// Where this item is; a new one, if there was none and it fits.
    fn place(&mut self, what: ItemKey, new: impl FnOnce() -> Body, source: Source<'_>) -> Option<usize> {
        let key = Key(source.subagent.map(Into::into), what);
        match self.places.get(&key) {
            Some(at) => Some(*at),
            None => self.push(new(), Some(key.1), source),
        }
    }

    /// Every item has a price, so that many small ones are bounded too.
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

    /// The agent's messages, with an empty line between them; not those of its children. And whether a part of the
    /// agent's messages did not fit.
    pub(super) fn text(&self) -> (String, bool) {
        let texts = self.list.iter().filter_map(|item| match (&item.subagent, &item.body) {
            (None, Body::Message { role: Role::Agent, content, .. }) => Some(content.text()),
            _ => None,
        });
        let text = texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n");
        (text, self.bytes.messages.exceeded)
    }

    /// The items, and whether something had to be left out. `settled` says how tool calls ended that the agent left
    /// open; it is `None` while the turn runs.
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
    /// None: a message in which nothing was said, as agents begin them with an empty chunk.
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
                // A call that began after the turn's end did not end with it.
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
