//! A tool call while its updates arrive.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::acp::RawObject;

/// The bytes of one value that a call keeps. A larger value of the agent is not shown.
const MAX_VALUE_BYTES: usize = 1 << 20;
/// The items of the content that a call keeps.
const MAX_ITEMS: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStatus {
    Running,
    Completed,
    Failed,
    /// The turn was cancelled while the call ran.
    Cancelled,
    /// The turn ended before the agent reported the end of the call.
    Unfinished,
}

impl CallStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "in_progress",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Unfinished => "unfinished",
        }
    }
}

/// The changes of one update.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Changes {
    pub(super) description: bool,
    pub(super) result: bool,
}

/// A tool call, merged from its updates. A member that is null in an update is unchanged.
#[derive(Debug)]
pub struct ToolCall {
    /// The agent's id. Calls of a child session have the id of the child before it.
    pub id: String,
    /// `execute`, `edit`, ...: the kind of ACP. It names the tool in other protocols.
    pub kind: String,
    /// A string in JSON.
    pub title: Option<Box<RawValue>>,
    pub status: CallStatus,
    pub input: Option<Box<RawValue>>,
    pub output: Option<Box<RawValue>>,
    pub locations: Option<Box<RawValue>>,
    pub content: Vec<Box<RawValue>>,
    /// Whether a permission request for the call was not granted.
    pub rejected: bool,
}

impl ToolCall {
    pub(super) fn new(id: String) -> Self {
        Self {
            id,
            kind: "other".to_owned(),
            title: None,
            status: CallStatus::Running,
            input: None,
            output: None,
            locations: None,
            content: Vec::new(),
            rejected: false,
        }
    }

    pub fn has_ended(&self) -> bool {
        self.status != CallStatus::Running
    }

    /// Merges a `tool_call`, a `tool_call_update`, or the `toolCall` of a permission request.
    pub(super) fn update(&mut self, object: &RawObject<'_>) -> Changes {
        let mut changes = Changes::default();
        if let Some(kind) = object.text("kind").filter(|kind| **kind != *self.kind) {
            self.kind = kind.into_owned();
            changes.description = true;
        }
        let text = |key| object.get(key).filter(|raw| raw.get().starts_with('"'));
        changes.description |= set(&mut self.title, text("title"));
        changes.description |= set(&mut self.input, object.get("rawInput"));
        changes.description |= set(&mut self.locations, object.get("locations"));
        changes.result |= set(&mut self.output, object.get("rawOutput"));
        if let Some(items) = object.get("content")
            && let Ok(Some(items)) = serde_json::from_str::<Option<Vec<&RawValue>>>(items.get())
        {
            self.content.clear();
            for item in items {
                self.add(item);
            }
            changes.result = true;
        }
        self.status = match object.text("status").as_deref() {
            Some("completed") => CallStatus::Completed,
            Some("failed") => CallStatus::Failed,
            Some("cancelled") => CallStatus::Cancelled,
            _ => self.status,
        };
        changes
    }

    /// Merges the `toolCall` of a permission request. A person approves what the request says: a title or an input that it
    /// does not repeat is that of something else if the other one differs. The call waits, whatever status the request has.
    pub(super) fn ask(&mut self, object: &RawObject<'_>) -> Changes {
        let said = |key| object.get(key).filter(|raw| raw.get() != "null");
        let differs = |old: Option<&RawValue>, new: Option<&RawValue>| {
            old.is_some() && new.is_some_and(|new| old.map(RawValue::get) != Some(new.get()))
        };
        let is_other_title = differs(self.title.as_deref(), said("title"));
        // Agents begin a call before they know its input.
        let known = self.input.as_deref().filter(|input| input.get() != "{}");
        let is_other_input = differs(known, said("rawInput"));
        if is_other_title || is_other_input {
            self.title = None;
            self.input = None;
        }
        let changes = self.update(object);
        self.status = CallStatus::Running;
        Changes {
            description: changes.description || is_other_title || is_other_input,
            ..changes
        }
    }

    /// Sets the input of a call that only a permission request describes.
    pub(super) fn update_input(&mut self, input: Option<&RawValue>) {
        set(&mut self.input, input);
    }

    /// Adds an item to the content: a `tool_call_content_chunk` of ACP v2.
    pub(super) fn add(&mut self, item: &RawValue) {
        if self.content.len() < MAX_ITEMS && item.get().len() <= MAX_VALUE_BYTES {
            self.content.push(item.to_owned());
        }
    }

    /// The bytes of the values of the agent.
    pub(super) fn size(&self) -> usize {
        let members = [&self.title, &self.input, &self.output, &self.locations];
        let values = members.into_iter().flatten().chain(&self.content);
        values.map(|value| value.get().len()).sum()
    }

    /// Releases the values of the agent: after the end of the call, or if they are too large.
    pub(super) fn release(&mut self) {
        (self.title, self.input, self.output, self.locations) = (None, None, None, None);
        self.content = Vec::new();
    }

    /// The title, decoded.
    pub fn title_text(&self) -> Option<Cow<'_, str>> {
        serde_json::from_str(self.title.as_deref()?.get()).ok()
    }
}

/// Sets a member unless the value is absent, null or too large. Returns whether it has changed.
fn set(member: &mut Option<Box<RawValue>>, value: Option<&RawValue>) -> bool {
    let Some(value) =
        value.filter(|value| value.get() != "null" && value.get().len() <= MAX_VALUE_BYTES)
    else {
        return false;
    };
    let changed = member.as_deref().is_none_or(|old| old.get() != value.get());
    if changed {
        *member = Some(value.to_owned());
    }
    changed
}
