//! The items of a turn while it grows.

mod v2;

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::RawValue;

use super::Budget;
use super::content::Content;
use super::members::{Members, Null};
use super::parts::Output;
use super::tool_call::ToolCall;
use crate::acp::{RawObject, update};
use crate::api::{
    ContextLost, Role, Settled, TurnCompaction, TurnItem, TurnMessage, TurnNotice, TurnOther,
    TurnRequest, TurnSessionMessage, TurnSubagent, TurnTerminal,
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
        if role == Role::Agent && source.subagent.is_none() {
            &mut self.messages
        } else {
            &mut self.rest
        }
    }
}

/// The key of an item: its child session, its kind and its id. Ids are unique only within a session.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key(Option<Box<str>>, Kind, Box<str>);

/// The kind of an item that has an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Message(Role),
    ToolCall,
    Terminal,
    Compaction,
    Subagent,
    SessionMessage,
    Request,
}

/// The session and the time of an update.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Source<'a> {
    /// The child session. `None`: the session itself.
    pub(super) subagent: Option<&'a str>,
    pub(super) late: bool,
}

impl Source<'_> {
    fn child(self) -> Option<Box<str>> {
        self.subagent.map(Into::into)
    }
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
    /// A complete item that no update changes, except the resolution of a request.
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
        let bytes = Bytes {
            messages: Budget::new(bytes),
            rest: Budget::new(bytes),
        };
        Self {
            list: Vec::new(),
            places,
            last,
            bytes,
            null: Null::Keeps,
        }
    }

    /// Folds an update of a kind that adds to the transcript.
    pub(super) fn update(&mut self, kind: &str, raw: &RawValue, source: Source<'_>) {
        let Some(object) = RawObject::parse(raw) else {
            return self.other(kind, raw, source);
        };
        match kind {
            update::USER_MESSAGE_CHUNK => self.chunk(Role::User, &object, source),
            update::AGENT_MESSAGE_CHUNK => self.chunk(Role::Agent, &object, source),
            update::AGENT_THOUGHT_CHUNK => self.chunk(Role::Thought, &object, source),
            update::TOOL_CALL => {
                self.end_reused_call(&object, source);
                self.tool_call(&object, source);
            }
            update::TOOL_CALL_UPDATE => self.tool_call(&object, source),
            update::COMPACTION | update::COMPACTION_SUMMARY_CHUNK => {
                self.compaction(&object, source);
            }
            update::SUBAGENT => self.subagent(&object, source),
            update::SESSION_MESSAGE => self.session_message(&object, false, source),
            update::SESSION_MESSAGE_CHUNK => self.session_message(&object, true, source),
            update::NOTICE => {
                let (subagent, late) = (source.subagent.map(Into::into), source.late);
                self.raw(
                    raw,
                    |notice| {
                        TurnItem::Notice(TurnNotice {
                            notice,
                            subagent,
                            late,
                        })
                    },
                    source,
                );
            }
            kind if update::is_v2(kind) => self.update_v2(kind, &object, source),
            _ => self.other(kind, raw, source),
        }
    }

    /// Folds a chunk into the message that it names. A chunk without a message id continues the last item of
    /// its session, if that is a message of the same role.
    fn chunk(&mut self, role: Role, object: &RawObject<'_>, source: Source<'_>) {
        let Some(block) = object.get("content") else {
            return;
        };
        // Reserve the fixed size of the item first, then the size of its content.
        let message = match object.text("messageId") {
            Some(id) => self.item(Kind::Message(role), Some(id), source),
            None => self.continued_message(role, source),
        };
        if let Some((Body::Message { content, .. }, bytes)) = message {
            content.push(block, bytes.of(role, source));
        }
    }

    fn continued_message(
        &mut self,
        role: Role,
        source: Source<'_>,
    ) -> Option<(&mut Body, &mut Bytes)> {
        let last = self.last.get(&source.child()).copied();
        let same = |at: &usize| matches!(&self.list[*at].body, Body::Message { role: same, .. } if *same == role);
        let new = Body::Message {
            role,
            message_id: None,
            content: Content::default(),
        };
        let at = last.filter(same).or_else(|| self.push(new, None, source))?;
        Some((&mut self.list[at].body, &mut self.bytes))
    }

    /// Folds the `toolCall` of a permission request, which may be the only description of its call. A person decides on what
    /// the request says: under another title, an input that it does not repeat is that of something else.
    pub(super) fn requested_call(&mut self, object: &RawObject<'_>, source: Source<'_>) {
        self.end_reused_call(object, source);
        let item = self.item(Kind::ToolCall, object.text("toolCallId"), source);
        if let Some((Body::ToolCall(call), bytes)) = item {
            call.ask(object, &mut bytes.rest);
        }
        self.tool_call(object, source);
    }

    /// An agent may use the id of a call again after its end. The next update with this id is another item.
    fn end_reused_call(&mut self, object: &RawObject<'_>, source: Source<'_>) {
        let Some(id) = object.text("toolCallId") else {
            return;
        };
        let key = Key(source.child(), Kind::ToolCall, id.into());
        let ended = self.places.get(&key).is_some_and(
            |at| matches!(&self.list[*at].body, Body::ToolCall(call) if !call.is_open()),
        );
        if ended {
            self.places.remove(&key);
        }
    }

    /// Folds a `tool_call`, a `tool_call_update`, or the `toolCall` of a permission request. Any of them may
    /// be the first update of a call.
    pub(super) fn tool_call(&mut self, object: &RawObject<'_>, source: Source<'_>) {
        let null = self.null;
        let item = self.item(Kind::ToolCall, object.text("toolCallId"), source);
        if let Some((Body::ToolCall(call), bytes)) = item {
            call.update(object, null, &mut bytes.rest);
        }
    }

    fn compaction(&mut self, object: &RawObject<'_>, source: Source<'_>) {
        let item = self.item(Kind::Compaction, object.text("compactionId"), source);
        if let Some((Body::Compaction(members, summary), bytes)) = item {
            members.merge(
                object,
                &["summary", "content"],
                Null::Clears,
                &mut bytes.rest,
            );
            if let Some(blocks) = object.get("summary") {
                summary.replace(blocks, &mut bytes.rest);
            }
            if let Some(block) = object.get("content") {
                summary.push(block, &mut bytes.rest);
            }
        }
    }

    fn subagent(&mut self, object: &RawObject<'_>, source: Source<'_>) {
        let item = self.item(Kind::Subagent, object.text("sessionId"), source);
        if let Some((Body::Subagent(members), bytes)) = item {
            members.merge(object, &[], Null::Clears, &mut bytes.rest);
        }
    }

    /// Folds a message between sessions. One kind of update has the participants and complete content, the
    /// other has appended blocks. They arrive in any order.
    fn session_message(&mut self, object: &RawObject<'_>, appends: bool, source: Source<'_>) {
        let item = self.item(Kind::SessionMessage, object.text("messageId"), source);
        if let Some((Body::SessionMessage(members, content), bytes)) = item {
            let omitted: &[&str] = if appends {
                &["content", "_meta"]
            } else {
                &["content"]
            };
            members.merge(object, omitted, Null::Clears, &mut bytes.rest);
            match object.get("content") {
                Some(block) if appends => content.push(block, &mut bytes.rest),
                Some(blocks) => content.replace(blocks, &mut bytes.rest),
                None => {}
            }
        }
    }

    fn other(&mut self, kind: &str, raw: &RawValue, source: Source<'_>) {
        let (subagent, late) = (source.subagent.map(Into::into), source.late);
        let session_update = kind.to_owned();
        let item = |update| {
            TurnItem::Other(TurnOther {
                session_update,
                update,
                subagent,
                late,
            })
        };
        self.raw(raw, item, source);
    }

    fn raw(
        &mut self,
        raw: &RawValue,
        item: impl FnOnce(Box<RawValue>) -> TurnItem,
        source: Source<'_>,
    ) {
        if self.bytes.rest.reserve(raw.get().len()) {
            self.push(Body::Whole(item(raw.to_owned())), None, source);
        }
    }

    pub(super) fn context_lost(&mut self, at: Timestamp) {
        self.push(
            Body::Whole(TurnItem::ContextLost(ContextLost { at })),
            None,
            Source::default(),
        );
    }

    pub(super) fn request(&mut self, request: TurnRequest) {
        let raws = [&request.options, &request.params].into_iter().flatten();
        if self
            .bytes
            .rest
            .reserve(raws.map(|raw| raw.get().len()).sum())
        {
            let id = request.request_id.to_string().into();
            self.push(
                Body::Whole(TurnItem::Request(request)),
                Some((Kind::Request, id)),
                Source::default(),
            );
        }
    }

    /// Folds the resolution of a request. An unknown request is ignored: its beginning was pruned.
    pub(super) fn resolved(&mut self, id: RequestId, at: Timestamp, event: Payload<'_>) {
        let index = self
            .places
            .get(&Key(None, Kind::Request, id.to_string().into()));
        let Some(item) = index.map(|index| &mut self.list[*index]) else {
            return;
        };
        let Body::Whole(TurnItem::Request(request)) = &mut item.body else {
            return;
        };
        let mut fitting = |raw: &RawValue| {
            self.bytes
                .rest
                .reserve(raw.get().len())
                .then(|| raw.to_owned())
        };
        request.resolution = event.resolution;
        request.resolved_at = Some(at);
        request.by = event.by.map(Into::into);
        request.result = event.result.and_then(&mut fitting);
        request.error = event.error.and_then(&mut fitting);
    }

    /// The item with this id, and the budgets. A new item is added if it fits.
    fn item(
        &mut self,
        kind: Kind,
        id: Option<Cow<'_, str>>,
        source: Source<'_>,
    ) -> Option<(&mut Body, &mut Bytes)> {
        let key = Key(source.child(), kind, id?.into());
        let at = match self.places.get(&key) {
            Some(at) => *at,
            None => self.push(Body::new(kind, &key.2)?, Some((kind, key.2)), source)?,
        };
        Some((&mut self.list[at].body, &mut self.bytes))
    }

    /// Adds an item. Each item has a fixed price, so that the number of small items is bounded.
    fn push(
        &mut self,
        body: Body,
        id: Option<(Kind, Box<str>)>,
        source: Source<'_>,
    ) -> Option<usize> {
        let named = source.subagent.map_or(0, str::len) + id.as_ref().map_or(0, |(_, id)| id.len());
        let price = 2 * named + size_of::<Item>() + size_of::<(Key, usize)>();
        let bytes = match &body {
            Body::Message { role, .. } => self.bytes.of(*role, source),
            _ => &mut self.bytes.rest,
        };
        if !bytes.reserve(price) {
            return None;
        }
        let at = self.list.len();
        if let Some((kind, id)) = id {
            self.places.insert(Key(source.child(), kind, id), at);
        }
        self.last.insert(source.child(), at);
        self.list.push(Item {
            subagent: source.child(),
            late: source.late,
            body,
        });
        Some(at)
    }

    /// The agent's own messages, separated by an empty line, without those of child sessions. The flag is
    /// true if a part did not fit.
    pub(super) fn text(&self) -> (String, bool) {
        let texts = self
            .list
            .iter()
            .filter_map(|item| match (&item.subagent, &item.body) {
                (
                    None,
                    Body::Message {
                        role: Role::Agent,
                        content,
                        ..
                    },
                ) => Some(content.text()),
                _ => None,
            });
        let text = texts
            .filter(|text| !text.is_empty())
            .collect::<Vec<_>>()
            .join("\n\n");
        (text, self.bytes.messages.exceeded)
    }

    /// Returns the items, and whether parts were omitted. `settled` is the status of tool calls that the
    /// agent left open. It is `None` while the turn runs.
    pub(super) fn finish(self, settled: Option<Settled>) -> (Vec<TurnItem>, bool) {
        let items = self
            .list
            .into_iter()
            .filter_map(|item| item.finish(settled));
        (
            items.collect(),
            self.bytes.messages.exceeded || self.bytes.rest.exceeded,
        )
    }
}

impl Body {
    /// The empty item of an update. `None` for a request, which is no update.
    fn new(kind: Kind, id: &str) -> Option<Self> {
        Some(match kind {
            Kind::Message(role) => Self::Message {
                role,
                message_id: Some(id.into()),
                content: Content::default(),
            },
            Kind::ToolCall => Self::ToolCall(ToolCall::default()),
            Kind::Terminal => Self::Terminal(Members::default(), Output::default()),
            Kind::Compaction => Self::Compaction(Members::default(), Content::default()),
            Kind::Subagent => Self::Subagent(Members::default()),
            Kind::SessionMessage => Self::SessionMessage(Members::default(), Content::default()),
            Kind::Request => return None,
        })
    }
}

impl Item {
    /// `None` for a message without content: agents often begin a message with an empty chunk.
    fn finish(self, settled: Option<Settled>) -> Option<TurnItem> {
        let Self {
            subagent,
            late,
            body,
        } = self;
        let subagent = subagent.map(String::from);
        Some(match body {
            Body::Message { content, .. } if content.is_empty() => return None,
            Body::Message {
                role,
                message_id,
                content,
            } => {
                let (message_id, content) = (message_id.map(String::from), content.finish());
                TurnItem::Message(TurnMessage {
                    role,
                    message_id,
                    content,
                    subagent,
                    late,
                })
            }
            // A call that began after the end of the turn is not settled by it.
            Body::ToolCall(call) => {
                TurnItem::ToolCall(call.finish(settled.filter(|_| !late), subagent, late))
            }
            Body::Terminal(mut members, output) => {
                output.into_members(&mut members);
                TurnItem::AgentTerminal(TurnTerminal {
                    terminal: members.finish(),
                    subagent,
                    late,
                })
            }
            Body::Compaction(members, summary) => {
                let (compaction, summary) = (members.finish(), summary.finish());
                TurnItem::Compaction(TurnCompaction {
                    compaction,
                    summary,
                    subagent,
                    late,
                })
            }
            Body::Subagent(members) => TurnItem::Subagent(TurnSubagent {
                child: members.finish(),
                subagent,
                late,
            }),
            Body::SessionMessage(members, content) => {
                let (message, content) = (members.finish(), content.finish());
                TurnItem::SessionMessage(TurnSessionMessage {
                    message,
                    content,
                    subagent,
                    late,
                })
            }
            Body::Whole(item) => item,
        })
    }
}
