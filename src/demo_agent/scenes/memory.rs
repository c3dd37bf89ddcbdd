//! The state of the session: a remembered word and the working directory.

use agent_client_protocol_schema::v1::Meta;

use super::super::options::Choice as _;
use super::super::text::{one_line, quoted};
use super::super::turn::{Step, Turn};
use super::super::version::Version;

/// The maximum number of characters of a word.
const WORD_MAX: usize = 80;
/// The maximum number of characters of a path or a name.
const MAX_SHOWN_CHARS: usize = 200;

pub(super) async fn remember(turn: &mut Turn, input: &str) -> Step {
    let word = one_line(input, WORD_MAX);
    if word.is_empty() {
        return turn.say("Which word? `/remember apple`.").await;
    }
    turn.say(&format!("I remember {} in this session. `/recall` asks for it.", quoted(&word, WORD_MAX))).await
}

/// Reads the word from the history. The answer therefore shows whether the session was restored.
pub(super) async fn recall(turn: &mut Turn) -> Step {
    let word = turn.record().history.prompts().find_map(|prompt| {
        let word = prompt.trim().strip_prefix("/remember ")?;
        Some(one_line(word, WORD_MAX)).filter(|word| !word.is_empty())
    });
    match word {
        Some(word) => turn.say(&format!("The word is {}.", quoted(&word, WORD_MAX))).await,
        None => turn.say("This session remembers no word.").await,
    }
}

pub(super) async fn about(turn: &mut Turn, meta: Option<&Meta>) -> Step {
    let mut text = {
        let record = turn.record();
        let list = |of: Vec<String>| if of.is_empty() { "none".to_owned() } else { of.join(", ") };
        let path = |path: &std::path::PathBuf| quoted(&path.to_string_lossy(), MAX_SHOWN_CHARS);
        let more = list(record.place.additional_directories.iter().map(path).collect());
        let servers =
            list(record.place.mcp_servers.iter().map(|name| quoted(name, MAX_SHOWN_CHARS)).collect());
        let version = match turn.version() {
            Version::V1 => "v1",
            Version::V2 => "v2",
        };
        format!(
            "| This session | |\n| --- | --- |\n| speaks ACP | {version} |\n| its id | `{}` |\n| works in | {} |\n| and in | {more} |\n\
             | MCP servers | {servers} |\n| mode | {} |\n| turns | {} |\n",
            record.session_id,
            path(&record.place.cwd),
            record.mode.name(),
            record.turns,
        )
    };
    let trace = meta.and_then(|meta| meta.get("traceparent")).and_then(|trace| trace.as_str());
    let trace = trace.map(|trace| format!("| trace | {} |\n", quoted(trace, MAX_SHOWN_CHARS)));
    text.extend(trace);
    text.push_str("\n| Your client offers | |\n| --- | --- |\n");
    let rows = turn
        .offer
        .list()
        .map(|(what, offered)| format!("| {what} | {} |\n", if offered { "yes" } else { "no" }));
    text.extend(rows);
    turn.say(&text).await
}
