//! One tool call of a turn while its updates arrive. The transcript and the chat protocols build on it.
//!
//! Some agents run commands themselves and report the output in `_meta`, because ACP v1 has no method for it.
//! The members `terminal_info`, `terminal_output` (or `terminal_output_delta`) and `terminal_exit` are a
//! convention of editors that codex-acp and claude-agent-acp follow. Each member names its terminal. Output
//! members carry the bytes that follow the earlier ones.

use serde_json::value::{RawValue, to_raw_value};

use super::content::{array, text};
use super::members::{Members, Null};
use super::{Budget, FOLDED_MEMBER_BYTES};
use events::api::{CommandOutput, Settled, TerminalExit, TurnToolCall};
use wire::acp::{RawObject, update};

/// The members of `_meta` with the output of commands.
const META_KEYS: [&str; 4] = [
    "terminal_info",
    "terminal_output",
    "terminal_output_delta",
    "terminal_exit",
];

/// The message that describes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Description {
    /// A `tool_call`: the call begins.
    Begun,
    /// A `tool_call_update`.
    Updated,
    /// A `tool_call_content_chunk` of ACP v2: one more item of the content.
    Appended,
    /// The `toolCall` of a permission request, which may be the only description. The call is not permitted yet.
    Requested,
}

impl Description {
    /// `None` if an update of this kind does not describe a call.
    pub fn of(update: &str) -> Option<Self> {
        match update {
            update::TOOL_CALL => Some(Self::Begun),
            update::TOOL_CALL_UPDATE => Some(Self::Updated),
            update::TOOL_CALL_CONTENT_CHUNK => Some(Self::Appended),
            _ => None,
        }
    }

    /// Whether the id of an ended call names another call. An agent may use an id again.
    pub fn begins(self) -> bool {
        matches!(self, Self::Begun | Self::Requested)
    }
}

#[derive(Debug, Default)]
pub struct ToolCall {
    members: Members,
    /// Items appended after the last complete `content`.
    chunks: Vec<Box<RawValue>>,
    commands: Vec<CommandOutput>,
}

impl ToolCall {
    pub fn get(&self, key: &str) -> Option<&RawValue> {
        self.members.get(key)
    }

    pub fn set(&mut self, key: &str, value: &RawValue, budget: &mut Budget) {
        self.members.set(key, value, budget);
    }

    /// The items of the content.
    pub fn content(&self) -> impl Iterator<Item = &RawValue> {
        let complete = self.get("content").map(array).unwrap_or_default();
        let chunks = self.chunks.iter().map(|item| &**item);
        complete.into_iter().chain(chunks)
    }

    /// The commands that the agent ran for the call, in the order of their first appearance.
    pub fn commands(&self) -> &[CommandOutput] {
        &self.commands
    }

    /// Whether the call is still open. By ACP, a call without a status is pending. An unknown status counts
    /// as an end.
    pub fn is_open(&self) -> bool {
        self.get("status").is_none_or(is_open)
    }

    pub fn describe(
        &mut self,
        description: Description,
        object: &RawObject<'_>,
        null: Null,
        budget: &mut Budget,
    ) {
        match description {
            Description::Begun | Description::Updated => self.merge(object, &[], null, budget),
            Description::Appended => self.append(object, budget),
            Description::Requested => self.request(object, null, budget),
        }
    }

    /// Folds the call of a permission request. A person approves what the request says. If the request has another title or
    /// another input than the call, it describes something else: the one of the two that it omits is cleared. A call that
    /// waits for a permission has not ended.
    fn request(&mut self, object: &RawObject<'_>, null: Null, budget: &mut Budget) {
        let new = |key| object.get(key).filter(|raw| raw.get() != "null");
        let differs = |key| {
            // Agents begin a call before they know its input.
            let old = self.get(key).filter(|raw| raw.get() != "{}");
            old.zip(new(key))
                .is_some_and(|(old, new)| old.get() != new.get())
        };
        if differs("title") || differs("rawInput") {
            for key in ["title", "rawInput"] {
                if new(key).is_none() {
                    self.members.clear(key, budget);
                }
            }
        }
        let ended = object.get("status").is_some_and(|status| !is_open(status));
        let omitted: &[&str] = if ended { &["status"] } else { &[] };
        self.merge(object, omitted, null, budget);
    }

    fn merge(&mut self, object: &RawObject<'_>, omitted: &[&str], null: Null, budget: &mut Budget) {
        let replaced = |content: &RawValue| content.get() != "null" || null == Null::Clears;
        if object.get("content").is_some_and(replaced) {
            for item in self.chunks.drain(..) {
                budget.release(item.get().len() + 1);
            }
        }
        let meta = object
            .object("_meta")
            .filter(|meta| META_KEYS.iter().any(|key| meta.get(key).is_some()));
        let Some(meta) = meta else {
            return self.members.merge(object, omitted, null, budget);
        };
        // Command output is folded separately. In `_meta` it would replace the members of earlier updates.
        self.fold_commands(&meta, budget);
        self.members
            .merge(object, &[omitted, &["_meta"]].concat(), null, budget);
        if let Some(rest) = meta.without(&META_KEYS) {
            self.members.set("_meta", &rest, budget);
        }
    }

    fn append(&mut self, object: &RawObject<'_>, budget: &mut Budget) {
        // The `_meta` of a chunk describes the chunk, not the call.
        self.members
            .merge(object, &["content", "_meta"], Null::Keeps, budget);
        if let Some(item) = object.get("content")
            && budget.reserve(item.get().len() + 1)
        {
            self.chunks.push(item.to_owned());
        }
    }

    /// Members of other types and shapes are ignored.
    fn fold_commands(&mut self, meta: &RawObject<'_>, budget: &mut Budget) {
        for (key, value) in meta.iter().filter(|(key, _)| META_KEYS.contains(key)) {
            let Some(member) = RawObject::parse(value) else {
                continue;
            };
            let Some(command) = member
                .text("terminal_id")
                .and_then(|id| self.command(&id, budget))
            else {
                continue;
            };
            match key {
                "terminal_info" => {
                    command.cwd = text(&member, "cwd")
                        .filter(|cwd| budget.reserve(cwd.len()))
                        .or(command.cwd.take());
                }
                "terminal_exit" => {
                    let exit_code = member.get("exit_code");
                    command.exit_status = Some(TerminalExit {
                        exit_code: exit_code.and_then(|raw| raw.get().parse().ok()),
                        signal: text(&member, "signal"),
                    });
                }
                _ => {
                    if let Some(data) = text(&member, "data") {
                        append(command, &data, budget);
                    }
                }
            }
        }
    }

    /// The command with this terminal id. A new one is added if it fits.
    fn command(&mut self, id: &str, budget: &mut Budget) -> Option<&mut CommandOutput> {
        let known = self
            .commands
            .iter()
            .position(|command| command.terminal_id == id);
        if let Some(at) = known {
            return self.commands.get_mut(at);
        }
        if !budget.reserve(id.len() + size_of::<CommandOutput>()) {
            return None;
        }
        self.commands.push(CommandOutput {
            terminal_id: id.to_owned(),
            ..CommandOutput::default()
        });
        self.commands.last_mut()
    }

    /// Returns the final call. If the call is still open at the end of its turn, its status becomes `failed`,
    /// with the reason in `settled`.
    pub(super) fn finish(mut self, settled: Option<Settled>) -> TurnToolCall {
        let settled = if self.is_open() { settled } else { None };
        if settled.is_some() {
            let failed =
                RawValue::from_string("\"failed\"".to_owned()).expect("a JSON string is valid");
            self.members.set_uncounted("status", failed);
        }
        if !self.chunks.is_empty() {
            let content: Vec<&RawValue> = self.content().collect();
            let content = to_raw_value(&content).expect("raw values serialize");
            self.members.set_uncounted("content", content);
        }
        TurnToolCall {
            tool_call: self.members.finish(),
            settled,
            commands: self.commands,
        }
    }
}

fn is_open(status: &RawValue) -> bool {
    matches!(
        status.get(),
        "null" | "\"pending\"" | "\"in_progress\"" | "\"paused\""
    )
}

/// Appends output and keeps its end, because a command reports its result there.
fn append(command: &mut CommandOutput, data: &str, budget: &mut Budget) {
    if !budget.reserve(data.len()) {
        command.truncated = true;
        return;
    }
    command.output.push_str(data);
    let excess = command.output.len().saturating_sub(FOLDED_MEMBER_BYTES);
    let excess = command.output.ceil_char_boundary(excess);
    if excess > 0 {
        command.output.drain(..excess);
        command.truncated = true;
        budget.release(excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(call: &mut ToolCall, meta: &str, budget: &mut Budget) {
        let raw: &RawValue = serde_json::from_str(meta).unwrap();
        call.fold_commands(&RawObject::parse(raw).unwrap(), budget);
    }

    #[test]
    fn output_chunks_are_joined_for_each_terminal() {
        let mut commands = ToolCall::default();
        let mut budget = Budget::new(10_000);
        for meta in [
            r#"{"terminal_info":{"terminal_id":"a","cwd":"/w"},"other":{"terminal_id":"c","data":"no"}}"#,
            r#"{"terminal_output_delta":{"terminal_id":"a","data":"one\n"}}"#,
            r#"{"terminal_output":{"terminal_id":"b","data":"whole"}}"#,
            r#"{"terminal_output_delta":{"terminal_id":"a","data":"two\n"}}"#,
            r#"{"terminal_output_delta":{"data":"without an id"}}"#,
            r#"{"terminal_output_delta":7,"terminal_exit":{"terminal_id":"a","exit_code":3,"signal":null}}"#,
        ] {
            update(&mut commands, meta, &mut budget);
        }
        let [a, b] = &commands.commands[..] else {
            panic!("expected two commands")
        };
        assert_eq!(
            (a.output.as_str(), a.cwd.as_deref()),
            ("one\ntwo\n", Some("/w"))
        );
        assert_eq!(
            a.exit_status,
            Some(TerminalExit {
                exit_code: Some(3),
                signal: None
            })
        );
        assert_eq!(
            (b.output.as_str(), &b.exit_status, b.truncated),
            ("whole", &None, false)
        );
    }

    #[test]
    fn long_output_keeps_its_end() {
        let mut commands = ToolCall::default();
        let mut budget = Budget::new(4 * FOLDED_MEMBER_BYTES);
        let chunk = "é".repeat(FOLDED_MEMBER_BYTES / 4);
        for last in ["", "", "", "end"] {
            let meta =
                format!(r#"{{"terminal_output":{{"terminal_id":"a","data":"{chunk}{last}"}}}}"#);
            update(&mut commands, &meta, &mut budget);
        }
        let commands = commands.commands;
        assert!(commands[0].truncated && commands[0].output.ends_with("éend"));
        assert!(commands[0].output.len() <= FOLDED_MEMBER_BYTES);
        assert!(
            !budget.exceeded,
            "dropped output releases its share of the budget"
        );
    }

    #[test]
    fn output_beyond_the_budget_is_omitted() {
        let mut commands = ToolCall::default();
        let mut budget = Budget::new(size_of::<CommandOutput>() + 4);
        update(
            &mut commands,
            r#"{"terminal_output":{"terminal_id":"a","data":"123"}}"#,
            &mut budget,
        );
        update(
            &mut commands,
            r#"{"terminal_output":{"terminal_id":"a","data":"4"}}"#,
            &mut budget,
        );
        update(
            &mut commands,
            r#"{"terminal_output":{"terminal_id":"b","data":"5"}}"#,
            &mut budget,
        );
        assert!(budget.exceeded);
        let commands = commands.commands;
        assert_eq!(
            (
                commands.len(),
                commands[0].output.as_str(),
                commands[0].truncated
            ),
            (1, "123", true)
        );
    }

    #[test]
    fn chunks_follow_last_complete_content() {
        let mut call = ToolCall::default();
        let mut budget = Budget::new(1000);
        let object = |text| RawObject::parse(serde_json::from_str(text).unwrap()).unwrap();
        call.append(&object(r#"{"content":1}"#), &mut budget);
        call.merge(&object(r#"{"content":[2]}"#), &[], Null::Keeps, &mut budget);
        call.append(&object(r#"{"content":1.10}"#), &mut budget);
        let shown: Vec<&str> = call.content().map(RawValue::get).collect();
        assert_eq!(shown, ["2", "1.10"]);
        let call = call.finish(None).tool_call;
        assert_eq!(call.get(), r#"{"content":[2,1.10]}"#);
    }

    #[test]
    fn call_that_asks_has_not_ended() {
        for (status, is_open) in [
            ("completed", false),
            ("of_the_future", false),
            ("pending", true),
            ("paused", true),
        ] {
            let text = format!(r#"{{"status":"{status}"}}"#);
            let object = RawObject::parse(serde_json::from_str(&text).unwrap()).unwrap();
            let mut updated = ToolCall::default();
            let mut asked = ToolCall::default();
            updated.merge(&object, &[], Null::Keeps, &mut Budget::new(1000));
            asked.request(&object, Null::Keeps, &mut Budget::new(1000));
            assert_eq!(
                (updated.is_open(), asked.is_open()),
                (is_open, true),
                "{status}"
            );
        }
    }
}
