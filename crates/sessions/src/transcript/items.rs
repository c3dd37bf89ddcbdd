//! The items of a turn while it grows.

use std::borrow::Cow;
use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::{RawValue, to_raw_value};

use super::Budget;
use super::content::{Content, decode};
use super::members::{Members, Null};
use super::tool_call::{Description, ToolCall};
use base::types::{RequestId, Timestamp};
use events::api::{
    ContextLost, Role, Settled, TurnCompaction, TurnItem, TurnItemBody, TurnMessage, TurnNotice,
    TurnOther, TurnRequest, TurnSessionMessage, TurnSubagent, TurnTerminal,
};
use events::event::Payload;
use wire::acp::{RawObject, update};

/// The size in bytes of the agent's messages in one folded turn, and of all its other items. Further items
/// are omitted, a longer text is truncated, and the turn is marked as `truncated`.
const FOLDED_TURN_BYTES: usize = 8 << 20;

#[derive(Debug)]
pub(super) struct Items {
    list: Vec<Item>,
    /// The index of each item that later events can refer to by id.
    places: HashMap<Key, usize>,
    /// The last item of the session and of each child session. A chunk without a message id continues it.
    last: HashMap<Option<Box<str>>, usize>,
    bytes: Bytes,
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
    /// The output is bytes, because a chunk may split a character. `None`: the agent has reported none.
    Terminal(Members, Option<Vec<u8>>),
    Compaction(Members, Content),
    Subagent(Members),
    SessionMessage(Members, Content),
    Notice(Box<RawValue>),
    Other(String, Box<RawValue>),
    ContextLost(Timestamp),
    Request(TurnRequest),
}

impl Default for Items {
    fn default() -> Self {
        Self::with_budget(FOLDED_TURN_BYTES)
    }
}

impl Items {
    pub(super) fn with_budget(bytes: usize) -> Self {
        Self {
            list: Vec::new(),
            places: HashMap::new(),
            last: HashMap::new(),
            bytes: Bytes {
                messages: Budget::new(bytes),
                rest: Budget::new(bytes),
            },
            null: Null::default(),
        }
    }

    pub(super) fn update(&mut self, kind: &str, raw: &RawValue, source: Source<'_>) {
        let Some(object) = &RawObject::parse(raw) else {
            return self.raw(raw, |raw| Body::Other(kind.to_owned(), raw), source);
        };
        if update::is_v2(kind) {
            // In a v2 turn, `state_update` precedes all other updates, so null has the meaning of v2 from
            // here on.
            self.null = Null::Clears;
        }
        match kind {
            update::USER_MESSAGE_CHUNK => self.chunk(Role::User, object, source),
            update::AGENT_MESSAGE_CHUNK => self.chunk(Role::Agent, object, source),
            update::AGENT_THOUGHT_CHUNK => self.chunk(Role::Thought, object, source),
            update::USER_MESSAGE => self.message(Role::User, object, source),
            update::AGENT_MESSAGE => self.message(Role::Agent, object, source),
            update::AGENT_THOUGHT => self.message(Role::Thought, object, source),
            update::TERMINAL_UPDATE | update::TERMINAL_OUTPUT_CHUNK => {
                self.terminal(object, source);
            }
            update::COMPACTION | update::COMPACTION_SUMMARY_CHUNK => {
                self.compaction(object, source);
            }
            update::SUBAGENT => {
                let item = self.item(Kind::Subagent, object.text("sessionId"), source);
                if let Some((Body::Subagent(members), bytes)) = item {
                    members.merge(object, &[], Null::Clears, &mut bytes.rest);
                }
            }
            update::SESSION_MESSAGE => self.session_message(object, false, source),
            update::SESSION_MESSAGE_CHUNK => self.session_message(object, true, source),
            update::NOTICE => self.raw(raw, Body::Notice, source),
            // It is not an item. The status and the end of the turn show the state.
            update::STATE => {}
            _ => match Description::of(kind) {
                Some(description) => self.tool_call(description, object, source),
                None => self.raw(raw, |raw| Body::Other(kind.to_owned(), raw), source),
            },
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

    /// Folds a complete message of ACP v2. Without `content`, the existing content stays.
    fn message(&mut self, role: Role, object: &RawObject<'_>, source: Source<'_>) {
        let item = self.item(Kind::Message(role), object.text("messageId"), source);
        if let (Some((Body::Message { content, .. }, bytes)), Some(blocks)) =
            (item, object.get("content"))
        {
            content.replace(blocks, bytes.of(role, source));
        }
    }

    /// Folds the description of a call. Any description may be the first one of a call.
    pub(super) fn tool_call(
        &mut self,
        description: Description,
        object: &RawObject<'_>,
        source: Source<'_>,
    ) {
        let Some(id) = object.text("toolCallId") else {
            return;
        };
        if description.begins() {
            let key = Key(source.child(), Kind::ToolCall, (&*id).into());
            let known = self.places.get(&key).map(|at| &self.list[*at].body);
            if matches!(known, Some(Body::ToolCall(call)) if !call.is_open()) {
                self.places.remove(&key);
            }
        }
        let null = self.null;
        let item = self.item(Kind::ToolCall, Some(id), source);
        if let Some((Body::ToolCall(call), bytes)) = item {
            call.describe(description, object, null, &mut bytes.rest);
        }
    }

    /// Folds an update or output of an agent's terminal.
    fn terminal(&mut self, object: &RawObject<'_>, source: Source<'_>) {
        let item = self.item(Kind::Terminal, object.text("terminalId"), source);
        let Some((Body::Terminal(members, output), Bytes { rest, .. })) = item else {
            return;
        };
        if let Some(data) = object.get("data") {
            append_output(output, data, rest);
            return members.merge(object, &["data", "_meta"], Null::Keeps, rest);
        }
        if let Some(whole) = object.get("output") {
            replace_output(output, whole, rest);
        }
        members.merge(object, &["output"], Null::Clears, rest);
    }

    fn compaction(&mut self, object: &RawObject<'_>, source: Source<'_>) {
        let item = self.item(Kind::Compaction, object.text("compactionId"), source);
        if let Some((Body::Compaction(members, summary), Bytes { rest, .. })) = item {
            members.merge(object, &["summary", "content"], Null::Clears, rest);
            if let Some(blocks) = object.get("summary") {
                summary.replace(blocks, rest);
            }
            if let Some(block) = object.get("content") {
                summary.push(block, rest);
            }
        }
    }

    /// Folds a message between sessions. One kind of update has the participants and complete content, the
    /// other has appended blocks. They arrive in any order.
    fn session_message(&mut self, object: &RawObject<'_>, appends: bool, source: Source<'_>) {
        let item = self.item(Kind::SessionMessage, object.text("messageId"), source);
        if let Some((Body::SessionMessage(members, content), Bytes { rest, .. })) = item {
            let omitted = &["content", "_meta"][..if appends { 2 } else { 1 }];
            members.merge(object, omitted, Null::Clears, rest);
            match object.get("content") {
                Some(block) if appends => content.push(block, rest),
                Some(blocks) => content.replace(blocks, rest),
                None => {}
            }
        }
    }

    fn raw(
        &mut self,
        raw: &RawValue,
        body: impl FnOnce(Box<RawValue>) -> Body,
        source: Source<'_>,
    ) {
        if self.bytes.rest.reserve(raw.get().len()) {
            self.push(body(raw.to_owned()), None, source);
        }
    }

    pub(super) fn context_lost(&mut self, at: Timestamp) {
        self.push(Body::ContextLost(at), None, Source::default());
    }

    pub(super) fn request(&mut self, request: TurnRequest) {
        let raws = [&request.options, &request.params].into_iter().flatten();
        let bytes = raws.map(|raw| raw.get().len()).sum();
        if self.bytes.rest.reserve(bytes) {
            let id = request.request_id.to_string().into();
            let key = Some((Kind::Request, id));
            self.push(Body::Request(request), key, Source::default());
        }
    }

    /// Folds the resolution of a request. An unknown request is ignored: its beginning was pruned.
    pub(super) fn resolved(&mut self, id: RequestId, at: Timestamp, event: Payload<'_>) {
        let key = Key(None, Kind::Request, id.to_string().into());
        let item = self.places.get(&key).map(|at| &mut self.list[*at].body);
        let Some(Body::Request(request)) = item else {
            return;
        };
        let mut fitting = |raw: &RawValue| {
            let fits = self.bytes.rest.reserve(raw.get().len());
            fits.then(|| raw.to_owned())
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
        let mut texts = Vec::new();
        for item in self.list.iter().filter(|item| item.subagent.is_none()) {
            if let Body::Message {
                role: Role::Agent,
                content,
                ..
            } = &item.body
            {
                texts.push(content.text());
            }
        }
        texts.retain(|text| !text.is_empty());
        (texts.join("\n\n"), self.bytes.messages.exceeded)
    }

    /// Returns the items, and whether parts were omitted. `settled` is the status of tool calls that the
    /// agent left open. It is `None` while the turn runs.
    pub(super) fn finish(self, settled: Option<Settled>) -> (Vec<TurnItem>, bool) {
        let items = self
            .list
            .into_iter()
            .filter_map(|item| item.finish(settled));
        let Bytes { messages, rest } = self.bytes;
        (items.collect(), messages.exceeded || rest.exceeded)
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
            Kind::Terminal => Self::Terminal(Members::default(), None),
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
        let body = match self.body {
            Body::Message { content, .. } if content.is_empty() => return None,
            Body::Message {
                role,
                message_id,
                content,
            } => TurnItemBody::Message(TurnMessage {
                role,
                message_id: message_id.map(String::from),
                content: content.finish(),
            }),
            // A call that began after the end of the turn is not settled by it.
            Body::ToolCall(call) if self.late => TurnItemBody::ToolCall(call.finish(None)),
            Body::ToolCall(call) => TurnItemBody::ToolCall(call.finish(settled)),
            Body::Terminal(mut members, output) => {
                if let Some(bytes) = output {
                    let output = serde_json::json!({ "data": STANDARD.encode(bytes) });
                    let output = to_raw_value(&output).expect("a JSON value serializes");
                    members.set_uncounted("output", output);
                }
                TurnItemBody::AgentTerminal(TurnTerminal {
                    terminal: members.finish(),
                })
            }
            Body::Compaction(members, summary) => TurnItemBody::Compaction(TurnCompaction {
                compaction: members.finish(),
                summary: summary.finish(),
            }),
            Body::Subagent(members) => TurnItemBody::Subagent(TurnSubagent {
                child: members.finish(),
            }),
            Body::SessionMessage(members, content) => {
                TurnItemBody::SessionMessage(TurnSessionMessage {
                    message: members.finish(),
                    content: content.finish(),
                })
            }
            Body::Notice(notice) => TurnItemBody::Notice(TurnNotice { notice }),
            Body::Other(session_update, update) => TurnItemBody::Other(TurnOther {
                session_update,
                update,
            }),
            Body::ContextLost(at) => TurnItemBody::ContextLost(ContextLost { at }),
            Body::Request(request) => TurnItemBody::Request(request),
        };
        Some(TurnItem {
            body,
            subagent: self.subagent.map(String::from),
            late: self.late,
        })
    }
}

/// Replaces the output of a terminal: null clears it, an object has the new one.
fn replace_output(output: &mut Option<Vec<u8>>, new: &RawValue, budget: &mut Budget) {
    let data = RawObject::parse(new).and_then(|new| new.get("data"));
    let bytes = data.and_then(base64);
    if bytes.is_some() || new.get() == "null" {
        budget.release(output.take().map_or(0, |old| old.len()));
    }
    if let Some(bytes) = bytes {
        *output = Some(Vec::new());
        append_bytes(output, &bytes, budget);
    }
}

fn append_output(output: &mut Option<Vec<u8>>, data: &RawValue, budget: &mut Budget) {
    if let Some(bytes) = base64(data) {
        append_bytes(output, &bytes, budget);
    }
}

fn append_bytes(output: &mut Option<Vec<u8>>, bytes: &[u8], budget: &mut Budget) {
    if budget.reserve(bytes.len()) {
        output.get_or_insert_default().extend_from_slice(bytes);
    }
}

fn base64(data: &RawValue) -> Option<Vec<u8>> {
    STANDARD.decode(decode(data.get())?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::acp::update::kind_of;

    fn items(updates: &[&str]) -> Vec<String> {
        let mut items = Items::default();
        let source = Source::default();
        for update in updates {
            let raw: &RawValue = serde_json::from_str(update).unwrap();
            items.update(&kind_of(raw).unwrap(), raw, source);
        }
        let (items, truncated) = items.finish(None);
        assert!(!truncated);
        items
            .iter()
            .map(|item| serde_json::to_string(item).unwrap())
            .collect()
    }

    const RUNNING: &str = r#"{"sessionUpdate":"state_update","state":"running"}"#;

    #[test]
    fn message_replaces_and_chunk_appends() {
        let shown = items(&[
            r#"{"sessionUpdate":"agent_message","messageId":"a"}"#,
            r#"{"sessionUpdate":"agent_message_chunk","messageId":"b","content":{"type":"text","text":"x"}}"#,
            r#"{"sessionUpdate":"agent_message_chunk","messageId":"a","content":{"type":"text","text":"1"}}"#,
            r#"{"sessionUpdate":"agent_message","messageId":"a","content":[{"type":"text","text":"2"}]}"#,
            r#"{"sessionUpdate":"agent_message_chunk","messageId":"a","content":{"type":"text","text":"3"}}"#,
            r#"{"sessionUpdate":"user_message","messageId":"a","content":[{"type":"text","text":"mine"}]}"#,
            r#"{"sessionUpdate":"agent_message","messageId":"b","content":[]}"#,
        ]);
        assert_eq!(
            shown,
            [
                r#"{"type":"message","role":"agent","messageId":"a","content":[{"type":"text","text":"23"}]}"#,
                r#"{"type":"message","role":"user","messageId":"a","content":[{"type":"text","text":"mine"}]}"#,
            ]
        );
    }

    #[test]
    fn v2_tool_call_is_patched() {
        let call = |members: &str| {
            format!(r#"{{"sessionUpdate":"tool_call_update","toolCallId":"c",{members}}}"#)
        };
        let chunk = |n: u32| {
            format!(
                r#"{{"sessionUpdate":"tool_call_content_chunk","toolCallId":"c","content":{{"n":{n}}},"_meta":{{"x":1}}}}"#
            )
        };
        let null = call(r#""title":null,"content":null"#);
        let whole = call(r#""title":"T","content":[{"n":0}],"_meta":{"a":1}"#);
        let patch = call(r#""_meta":{"b":1.10,"a":null},"status":"paused""#);
        assert_eq!(
            items(&[RUNNING, &whole, &chunk(1), &patch, &chunk(2)]),
            [
                r#"{"type":"tool_call","toolCall":{"toolCallId":"c","title":"T","content":[{"n":0},{"n":1},{"n":2}],"_meta":{"b":1.10},"status":"paused"}}"#
            ]
        );
        assert_eq!(
            items(&[RUNNING, &whole, &chunk(1), &null, &chunk(2)]),
            [
                r#"{"type":"tool_call","toolCall":{"toolCallId":"c","_meta":{"a":1},"content":[{"n":2}]}}"#
            ]
        );
        assert_eq!(
            items(&[&whole, &null]),
            [
                r#"{"type":"tool_call","toolCall":{"toolCallId":"c","title":"T","content":[{"n":0}],"_meta":{"a":1}}}"#
            ],
            "in v1 null keeps the member"
        );
    }

    #[test]
    fn state_update_is_not_an_item() {
        assert!(
            items(&[
                RUNNING,
                r#"{"sessionUpdate":"state_update","state":"idle"}"#
            ])
            .is_empty()
        );
    }

    #[test]
    fn output_is_replaced_and_appended_as_bytes() {
        fn raw(text: &str) -> &RawValue {
            serde_json::from_str(text).unwrap()
        }
        let mut output = None;
        let mut budget = Budget::new(8);
        append_output(&mut output, raw("\"YQ==\""), &mut budget);
        replace_output(&mut output, raw(r#"{"data":"4oI="}"#), &mut budget);
        append_output(&mut output, raw("\"rA==\""), &mut budget);
        for odd in ["1", "\"?\"", "null"] {
            append_output(&mut output, raw(odd), &mut budget);
        }
        replace_output(&mut output, raw(r#"{"data":7}"#), &mut budget);
        assert!(!budget.exceeded);
        append_output(&mut output, raw("\"YWFhYWFh\""), &mut budget);
        assert!(budget.exceeded);
        assert_eq!(output.as_deref(), Some("€".as_bytes()));
        replace_output(&mut output, RawValue::NULL, &mut budget);
        assert_eq!((output, budget.left), (None, 8));
    }
}
