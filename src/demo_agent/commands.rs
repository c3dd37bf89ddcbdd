//! The slash commands: names, descriptions and input hints.

use agent_client_protocol_schema::v1::{AvailableCommand, AvailableCommandInput, UnstructuredCommandInput};

/// The command of a prompt that begins with a slash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Help,
    Tour,
    Plan,
    Diff,
    Terminal,
    Permission,
    Withdraw,
    Form,
    Link,
    Read,
    Write,
    Run,
    Timeout,
    Plans,
    Notice,
    Compact,
    Subagent,
    Content,
    Title,
    Late,
    Part,
    Correct,
    Wake,
    Extension,
    Remember,
    Recall,
    About,
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
    Row(Command::Help, "help", "The commands of this demo", None),
    Row(Command::Tour, "tour", "All features that need no client capabilities, in one turn", None),
    Row(Command::Plan, "plan", "A plan whose steps change while it runs", None),
    Row(Command::Diff, "diff", "An edit that is shown as a diff", None),
    Row(Command::Terminal, "terminal", "A simulated command and its output", None),
    Row(Command::Permission, "permission", "A permission request, in any mode", None),
    Row(Command::Withdraw, "withdraw", "A permission request that is cancelled", Some("seconds, 1 to 600")),
    Row(Command::Form, "form", "A form with a field of every kind", Some("short: one field")),
    Row(Command::Link, "link", "A page that you are asked to open", None),
    Row(Command::Read, "read", "Reads a file through your client", Some("path, first line, lines")),
    Row(Command::Write, "write", "Writes a file through your client", Some("path, then the text")),
    Row(
        Command::Run,
        "run",
        "Runs a command through your client, until it ends",
        Some("command and arguments"),
    ),
    Row(
        Command::Timeout,
        "timeout",
        "Runs a command and kills it after a time limit",
        Some("seconds, command and arguments"),
    ),
    Row(Command::Plans, "plans", "Plans with names: steps, a file, a text; one is removed", None),
    Row(Command::Notice, "notice", "A notice beside the conversation", Some("info, warning or error")),
    Row(Command::Compact, "compact", "A compaction and its summary", Some("fail")),
    Row(Command::Subagent, "subagent", "A subagent with a session of its own", None),
    Row(Command::Content, "content", "An answer with image, sound, link and resources", None),
    Row(Command::Title, "title", "Names the session", Some("a title")),
    Row(Command::Late, "late", "An update after the end of the turn", None),
    Row(
        Command::Part,
        "part",
        "A part of the turn that can be cancelled alone (ACP v2)",
        Some("tool or terminal, seconds"),
    ),
    Row(Command::Correct, "correct", "A message that is replaced (ACP v2)", None),
    Row(Command::Wake, "wake", "Works without a prompt after the turn (ACP v2)", Some("seconds, 1 to 600")),
    Row(Command::Extension, "ext", "A notification and a request that ACP does not define", None),
    Row(Command::Remember, "remember", "Remembers a word in this session", Some("a word")),
    Row(Command::Recall, "recall", "Repeats the word that this session remembers", None),
    Row(Command::About, "about", "The agent's data about this session and your client", None),
    Row(Command::Markdown, "markdown", "All kinds of markdown formatting", None),
    Row(Command::Long, "long", "A long answer", Some("paragraphs, 1 to 200")),
    Row(Command::Slow, "slow", "A slow turn, to test cancel", Some("seconds, 1 to 600")),
    Row(Command::Pace, "pace", "Changes the pace option", Some("instant, brisk, natural or leisurely")),
    Row(Command::Mode, "mode", "Changes the mode", Some("ask, auto or plan")),
    Row(
        Command::Fail,
        "fail",
        "A turn that fails",
        Some("error, tool, refusal, max_tokens or max_turn_requests"),
    ),
    Row(Command::Crash, "crash", "The agent's process crashes during the turn", None),
];

impl Command {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        ALL.iter().find(|row| row.1 == name).map(|row| row.0)
    }
}

/// The list for `available_commands_update`.
pub(super) fn available() -> Vec<AvailableCommand> {
    ALL.iter()
        .map(|Row(_, name, description, hint)| {
            let input =
                hint.map(|hint| AvailableCommandInput::Unstructured(UnstructuredCommandInput::new(hint)));
            AvailableCommand::new(*name, *description).input(input)
        })
        .collect()
}

/// The list as a markdown table.
pub(super) fn table() -> String {
    let row = |Row(_, name, description, hint): &Row| {
        let hint = hint.map_or(String::new(), |hint| format!(" ({hint})"));
        format!("| `/{name}` | {description}{hint} |")
    };
    let rows: Vec<String> = ALL.iter().map(row).collect();
    format!("| Command | Shows |\n| --- | --- |\n{}\n", rows.join("\n"))
}
