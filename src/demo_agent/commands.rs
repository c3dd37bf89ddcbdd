//! The slash commands: what each is called, what it shows, what it takes.

use agent_client_protocol_schema::v1::{AvailableCommand, AvailableCommandInput, UnstructuredCommandInput};

/// What a prompt that begins with a slash asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Help,
    Tour,
    Plan,
    Diff,
    Terminal,
    Permission,
    Markdown,
    Long,
    Slow,
    Pace,
    Mode,
    Fail,
    Crash,
}

struct Row(Command, &'static str, &'static str, Option<&'static str>);

const ALL: &[Row] = &[
    Row(Command::Help, "help", "What this demo can show", None),
    Row(Command::Tour, "tour", "Everything in one turn", None),
    Row(Command::Plan, "plan", "A plan whose steps change while it runs", None),
    Row(Command::Diff, "diff", "An edit that is shown as a diff", None),
    Row(Command::Terminal, "terminal", "A command and its output", None),
    Row(Command::Permission, "permission", "A question that waits for your answer, in any mode", None),
    Row(Command::Markdown, "markdown", "All that an answer may be formatted with", None),
    Row(Command::Long, "long", "A long answer", Some("paragraphs, 1 to 200")),
    Row(Command::Slow, "slow", "A turn that takes its time, to try cancel", Some("seconds, 1 to 600")),
    Row(Command::Pace, "pace", "Changes the pace option", Some("instant, brisk, natural or leisurely")),
    Row(Command::Mode, "mode", "Changes the mode", Some("ask, auto or plan")),
    Row(
        Command::Fail,
        "fail",
        "A turn that goes wrong",
        Some("error, tool, refusal, max_tokens or max_turn_requests"),
    ),
    Row(Command::Crash, "crash", "The agent's process dies in mid-turn", None),
];

impl Command {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        ALL.iter().find(|row| row.1 == name).map(|row| row.0)
    }
}

/// As `available_commands_update` has them.
pub(super) fn available() -> Vec<AvailableCommand> {
    ALL.iter()
        .map(|Row(_, name, description, hint)| {
            let input =
                hint.map(|hint| AvailableCommandInput::Unstructured(UnstructuredCommandInput::new(hint)));
            AvailableCommand::new(*name, *description).input(input)
        })
        .collect()
}

/// As a markdown table.
pub(super) fn table() -> String {
    let row = |Row(_, name, description, hint): &Row| {
        let hint = hint.map_or(String::new(), |hint| format!(" ({hint})"));
        format!("| `/{name}` | {description}{hint} |")
    };
    let rows: Vec<String> = ALL.iter().map(row).collect();
    format!("| Command | Shows |\n| --- | --- |\n{}\n", rows.join("\n"))
}
