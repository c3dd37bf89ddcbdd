//! A tool call as chat protocols show it, and the texts of its input and its result.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::transcript::halves::without_halves;
use crate::transcript::{self, Diff, Null, decode, text_of};
use wire::acp::RawObject;

/// A larger value of the agent is not shown.
const MAX_VALUE_BYTES: usize = 1 << 20;
/// The items of the content that are shown.
const MAX_ITEMS: usize = 256;
/// The longest text. The rest is cut, because clients send it back with each further message.
const MAX_TEXT_BYTES: usize = 48 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum CallStatus {
    #[strum(serialize = "in_progress")]
    Running,
    Completed,
    Failed,
    /// The turn was cancelled while the call ran.
    Cancelled,
    /// The turn ended before the agent reported the end of the call.
    Unfinished,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Changes {
    pub(super) description: bool,
    pub(super) result: bool,
}

#[derive(Debug)]
pub struct ToolCall {
    /// The agent's id. Calls of a child session have the id of the child before it.
    pub id: String,
    pub status: CallStatus,
    /// Whether a permission request for the call was not granted.
    pub rejected: bool,
    /// The values of the agent. They are released at the end of the call.
    pub(super) values: transcript::ToolCall,
    /// The bytes of the budget that the values take.
    pub(super) bytes: usize,
}

impl ToolCall {
    pub(super) fn new(id: String) -> Self {
        Self {
            id,
            status: CallStatus::Running,
            rejected: false,
            values: transcript::ToolCall::default(),
            bytes: 0,
        }
    }

    pub fn has_ended(&self) -> bool {
        self.status != CallStatus::Running
    }

    /// The ACP tool kind, such as `execute` or `edit`. Other protocols use it as the name of the tool.
    pub fn kind(&self) -> Cow<'_, str> {
        let kind = self.values.get("kind").and_then(|raw| decode(raw.get()));
        kind.map_or("other".into(), Cow::Owned)
    }

    fn value(&self, key: &str) -> Option<&RawValue> {
        let value = self.values.get(key);
        value.filter(|value| value.get().len() <= MAX_VALUE_BYTES)
    }

    /// A string in JSON.
    pub fn title(&self) -> Option<&RawValue> {
        self.value("title").filter(|raw| raw.get().starts_with('"'))
    }

    pub fn title_text(&self) -> Option<String> {
        serde_json::from_str(self.title()?.get()).ok()
    }

    pub fn input(&self) -> Option<&RawValue> {
        self.value("rawInput")
    }

    pub fn output(&self) -> Option<&RawValue> {
        self.value("rawOutput")
    }

    pub fn locations(&self) -> Option<&RawValue> {
        self.value("locations")
    }

    pub fn content(&self) -> Vec<&RawValue> {
        let items = self.values.content();
        items
            .filter(|item| item.get().len() <= MAX_VALUE_BYTES)
            .take(MAX_ITEMS)
            .collect()
    }

    pub fn diffs(&self) -> impl Iterator<Item = (Diff, &RawValue)> {
        let items = self.content().into_iter();
        items.filter_map(|item| Some((Diff::of(&RawObject::parse(item)?)?, item)))
    }

    pub(super) fn changes(&self, update: &RawObject<'_>, null: Null) -> Changes {
        let changes = |key| {
            let old = self.values.get(key).map(RawValue::get);
            match update.get(key).map(RawValue::get) {
                Some("null") => null == Null::Clears && old.is_some(),
                Some(new) => old != Some(new),
                None => false,
            }
        };
        let content = update.get("content").map(RawValue::get);
        let has_content = || self.values.content().next().is_some();
        let replaces =
            content.is_some_and(|new| new != "null" || null == Null::Clears && has_content());
        Changes {
            description: ["kind", "title", "rawInput", "locations"]
                .into_iter()
                .any(changes),
            result: replaces || changes("rawOutput"),
        }
    }

    /// The status that the agent has reported. An unknown status counts as running.
    pub(super) fn reported_status(&self) -> CallStatus {
        match self.values.get("status").map(RawValue::get) {
            Some("\"completed\"") => CallStatus::Completed,
            Some("\"failed\"") => CallStatus::Failed,
            Some("\"cancelled\"") => CallStatus::Cancelled,
            _ => CallStatus::Running,
        }
    }

    /// The input as JSON. If the agent sent none, the title and the locations, so that a person who is asked for
    /// permission knows what the call does.
    pub fn input_text(&self) -> Cow<'_, str> {
        #[derive(Serialize)]
        struct Description<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            title: Option<&'a RawValue>,
            #[serde(skip_serializing_if = "Option::is_none")]
            locations: Option<&'a RawValue>,
        }
        if let Some(input) = self.input() {
            // Some protocols have the input as a string, so that its escapes are not those of the frame.
            return without_halves(input.get());
        }
        let described = Description {
            title: self.title(),
            locations: self.locations(),
        };
        let text = serde_json::to_string(&described).expect("raw values are JSON");
        text.into()
    }

    /// The result as text: the output, or why there is none.
    pub fn result_text(&self) -> String {
        match self.status {
            CallStatus::Completed => self.output_text(),
            _ if self.rejected => "the permission was not granted".to_owned(),
            CallStatus::Cancelled => "the turn was cancelled".to_owned(),
            CallStatus::Unfinished => "the turn ended before this call".to_owned(),
            _ => match self.output_text() {
                text if text.is_empty() => "the call failed".to_owned(),
                text => text,
            },
        }
    }

    /// The texts and the diffs of the call. If it has neither: the output of its commands, or its raw output.
    fn output_text(&self) -> String {
        let items = self.content().into_iter().filter_map(RawObject::parse);
        let mut parts: Vec<String> = items
            .filter_map(|item| match item.text("type").as_deref() {
                Some("content") => text_of(item.get("content")?),
                _ => Diff::of(&item).map(|diff| diff.text()),
            })
            .filter(|part| !part.is_empty())
            .collect();
        if parts.is_empty() {
            let commands = self.values.commands().iter();
            parts.extend(commands.map(|command| command.output.clone()));
        }
        let mut text = parts.join("\n");
        if text.is_empty()
            && let Some(output) = self.output()
        {
            text = decode(output.get()).unwrap_or_else(|| output.get().to_owned());
        }
        if text.len() > MAX_TEXT_BYTES {
            text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
            text.push_str("\n[cut]");
        }
        text
    }
}
