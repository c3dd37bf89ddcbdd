//! Output of commands that an agent runs itself and reports in `_meta` of its tool calls.
//!
//! ACP v1 has no method for this. The members `terminal_info`, `terminal_output` (or `terminal_output_delta`)
//! and `terminal_exit` are a convention of editors that codex-acp and claude-agent-acp follow. Each member
//! names its terminal. Output members carry the bytes that follow the earlier ones.

use serde_json::value::RawValue;

use super::Budget;
use super::content::decode;
use crate::acp::RawObject;
use crate::api::{CommandOutput, TerminalExit};
use crate::types::limits::FOLDED_MEMBER_BYTES;

/// The members of `_meta` that this fold consumes.
pub(super) const META_KEYS: [&str; 4] = [
    "terminal_info",
    "terminal_output",
    "terminal_output_delta",
    "terminal_exit",
];

/// The commands of one tool call, in the order of their first appearance.
#[derive(Debug, Default)]
pub(super) struct Commands(Vec<CommandOutput>);

impl Commands {
    /// Folds the `_meta` of one update. Members of other types and shapes are ignored.
    pub(super) fn update(&mut self, meta: &RawObject<'_>, budget: &mut Budget) {
        for (key, value) in meta.iter().filter(|(key, _)| META_KEYS.contains(key)) {
            let Some(member) = RawObject::parse(value) else {
                continue;
            };
            let Some(command) = member
                .text("terminal_id")
                .and_then(|id| self.named(&id, budget))
            else {
                continue;
            };
            match key {
                "terminal_info" => {
                    let cwd = member.get("cwd").and_then(|raw| decode(raw.get()));
                    command.cwd = cwd
                        .filter(|cwd| budget.reserve(cwd.len()))
                        .or(command.cwd.take());
                }
                "terminal_exit" => command.exit_status = Some(exit_status(&member)),
                _ => {
                    if let Some(data) = member.get("data").and_then(|raw| decode(raw.get())) {
                        append(command, &data, budget);
                    }
                }
            }
        }
    }

    /// The command with this terminal id. A new one is added if it fits.
    fn named(&mut self, id: &str, budget: &mut Budget) -> Option<&mut CommandOutput> {
        let at = self.0.iter().position(|command| command.terminal_id == id);
        let at = match at {
            Some(at) => at,
            None if budget.reserve(id.len() + size_of::<CommandOutput>()) => {
                self.0.push(CommandOutput {
                    terminal_id: id.to_owned(),
                    ..CommandOutput::default()
                });
                self.0.len() - 1
            }
            None => return None,
        };
        self.0.get_mut(at)
    }

    pub(super) fn finish(self) -> Vec<CommandOutput> {
        self.0
    }
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

fn exit_status(member: &RawObject<'_>) -> TerminalExit {
    let exit_code = member
        .get("exit_code")
        .and_then(|raw: &RawValue| raw.get().parse().ok());
    let signal = member.get("signal").and_then(|raw| decode(raw.get()));
    TerminalExit { exit_code, signal }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(commands: &mut Commands, meta: &str, budget: &mut Budget) {
        let raw: &RawValue = serde_json::from_str(meta).unwrap();
        commands.update(&RawObject::parse(raw).unwrap(), budget);
    }

    #[test]
    fn output_chunks_are_joined_for_each_terminal() {
        let (mut commands, mut budget) = (Commands::default(), Budget::new(10_000));
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
        let [a, b] = &commands.finish()[..] else {
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
        let (mut commands, mut budget) =
            (Commands::default(), Budget::new(4 * FOLDED_MEMBER_BYTES));
        let chunk = "é".repeat(FOLDED_MEMBER_BYTES / 4);
        for last in ["", "", "", "end"] {
            let meta =
                format!(r#"{{"terminal_output":{{"terminal_id":"a","data":"{chunk}{last}"}}}}"#);
            update(&mut commands, &meta, &mut budget);
        }
        let commands = commands.finish();
        assert!(commands[0].truncated && commands[0].output.ends_with("éend"));
        assert!(commands[0].output.len() <= FOLDED_MEMBER_BYTES);
        assert!(
            !budget.exceeded,
            "dropped output releases its share of the budget"
        );
    }

    #[test]
    fn output_beyond_the_budget_is_omitted() {
        let (mut commands, mut budget) = (
            Commands::default(),
            Budget::new(size_of::<CommandOutput>() + 4),
        );
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
        let commands = commands.finish();
        assert_eq!(
            (
                commands.len(),
                commands[0].output.as_str(),
                commands[0].truncated
            ),
            (1, "123", true)
        );
    }
}
