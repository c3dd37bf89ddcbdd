//! Converts the updates of the scenes from v1 to v2.

use std::path::Path;

use agent_client_protocol_schema::v1;
use agent_client_protocol_schema::v2::{
    AgentMessage, AgentThought, ContentBlock, Diff, DiffChange, DiffChangeOperation, DiffPathChange,
    MessageId, PlanItems, PlanUpdate, PlanUpdateContent, SessionId, SessionUpdate, ToolCallContent,
    ToolCallUpdate, UserMessage,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::super::history::History;

/// The id of the plan, which has none in v1.
const PLAN: &str = "plan";

/// Converts a value that both versions serialize in the same way.
pub(super) fn convert<A: Serialize, B: DeserializeOwned>(value: &A) -> B {
    let spelled = serde_json::to_value(value).and_then(serde_json::from_value);
    spelled.expect("both versions serialize this value in the same way: a test compares them")
}

pub(super) fn session_id_v1(id: &SessionId) -> v1::SessionId {
    v1::SessionId::new(id.0.clone())
}

pub(super) fn message_id(id: &v1::MessageId) -> MessageId {
    MessageId::new(id.0.clone())
}

pub(in super::super) fn update(update: v1::SessionUpdate) -> SessionUpdate {
    match update {
        v1::SessionUpdate::ToolCall(call) => {
            let mut call: v1::ToolCallUpdate = convert(&call);
            let content = call.fields.content.take();
            tool_call(&call, content)
        }
        v1::SessionUpdate::ToolCallUpdate(mut call) => {
            let content = call.fields.content.take();
            tool_call(&call, content)
        }
        v1::SessionUpdate::Plan(plan) => {
            let items = PlanItems::new(PLAN, convert::<_, Vec<_>>(&plan.entries));
            SessionUpdate::PlanUpdate(PlanUpdate::new(PlanUpdateContent::Items(items)))
        }
        other => convert(&other),
    }
}

fn tool_call(call: &v1::ToolCallUpdate, content: Option<Vec<v1::ToolCallContent>>) -> SessionUpdate {
    SessionUpdate::ToolCallUpdate(call_fields(call, content))
}

/// The fields of a call except its content, which both versions serialize in the same way.
pub(super) fn call_fields(
    call: &v1::ToolCallUpdate,
    content: Option<Vec<v1::ToolCallContent>>,
) -> ToolCallUpdate {
    let update: ToolCallUpdate = convert(call);
    match content {
        Some(content) => update.content(content.iter().map(tool_call_content).collect::<Vec<_>>()),
        None => update,
    }
}

fn tool_call_content(content: &v1::ToolCallContent) -> ToolCallContent {
    match content {
        v1::ToolCallContent::Diff(diff) => ToolCallContent::Diff(changed(diff)),
        other => convert(other),
    }
}

fn changed(diff: &v1::Diff) -> Diff {
    let path = DiffPathChange::new(diff.path.clone());
    let operation = match diff.old_text {
        Some(_) => DiffChangeOperation::Modify(path),
        None => DiffChangeOperation::Add(path),
    };
    let text = patch(&diff.path, diff.old_text.as_deref(), &diff.new_text);
    Diff::patch(text, vec![DiffChange::new(operation)])
}

/// A patch in the format of `git`, with one hunk for the whole file.
fn patch(path: &Path, old: Option<&str>, new: &str) -> String {
    let name = path.to_string_lossy();
    let name = name.trim_start_matches('/');
    let (head, from) = match old {
        Some(_) => (String::new(), format!("a/{name}")),
        None => ("new file mode 100644\n".to_owned(), "/dev/null".to_owned()),
    };
    let old = old.unwrap_or_default();
    let range = |text: &str| match text.lines().count() {
        0 => "0,0".to_owned(),
        lines => format!("1,{lines}"),
    };
    let mut written = format!(
        "diff --git a/{name} b/{name}\n{head}--- {from}\n+++ b/{name}\n@@ -{} +{} @@\n",
        range(old),
        range(new)
    );
    for (sign, text) in [('-', old), ('+', new)] {
        for line in text.split_inclusive('\n') {
            written.push(sign);
            written.push_str(line);
            if !line.ends_with('\n') {
                written.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
    written
}

/// The history with each message as a whole.
pub(super) fn replay(history: &History) -> Vec<SessionUpdate> {
    let mut replayed: Vec<SessionUpdate> = Vec::new();
    let mut open: Option<Message> = None;
    for (at, update) in history.updates().iter().enumerate() {
        let Some((speaker, chunk)) = said(update) else {
            replayed.extend(open.take().map(Message::whole));
            replayed.push(self::update(update.clone()));
            continue;
        };
        let block = convert(&chunk.content);
        match (&mut open, &chunk.message_id) {
            (Some(message), id) if message.speaker == speaker && message.said_as == *id => {
                message.content.push(block);
            }
            (_, id) => {
                // Earlier versions of the demo stored prompts without an id.
                let named = id.as_ref().map_or_else(|| MessageId::new(format!("u{at}")), message_id);
                let message = Message { speaker, said_as: id.clone(), id: named, content: vec![block] };
                replayed.extend(open.replace(message).map(Message::whole));
            }
        }
    }
    replayed.extend(open.map(Message::whole));
    replayed
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speaker {
    User,
    Agent,
    Thought,
}

struct Message {
    speaker: Speaker,
    said_as: Option<v1::MessageId>,
    id: MessageId,
    content: Vec<ContentBlock>,
}

impl Message {
    fn whole(self) -> SessionUpdate {
        match self.speaker {
            Speaker::User => SessionUpdate::UserMessage(UserMessage::new(self.id).content(self.content)),
            Speaker::Agent => SessionUpdate::AgentMessage(AgentMessage::new(self.id).content(self.content)),
            Speaker::Thought => SessionUpdate::AgentThought(AgentThought::new(self.id).content(self.content)),
        }
    }
}

fn said(update: &v1::SessionUpdate) -> Option<(Speaker, &v1::ContentChunk)> {
    match update {
        v1::SessionUpdate::UserMessageChunk(chunk) => Some((Speaker::User, chunk)),
        v1::SessionUpdate::AgentMessageChunk(chunk) => Some((Speaker::Agent, chunk)),
        v1::SessionUpdate::AgentThoughtChunk(chunk) => Some((Speaker::Thought, chunk)),
        _ => None,
    }
}
