//! The state of the session: its title and options, a remembered word, and the working directory.

use serde_json::{Value, json};

use super::super::client::CAPABILITIES;
use super::super::options::MODE;
use super::super::text::{one_line, quoted};
use super::super::turn::{Step, Turn};
use super::commands::SCENES;

/// The maximum number of characters of a title.
const TITLE_MAX: usize = 60;
/// The maximum number of characters of a word.
const WORD_MAX: usize = 80;
/// The maximum number of characters of a path or a name.
const MAX_SHOWN_CHARS: usize = 200;

pub(super) async fn title(turn: &mut Turn, input: &str) -> Step {
    let title = one_line(input, TITLE_MAX);
    if title.is_empty() {
        return turn.say("Which title? `/title Holiday plans`.").await;
    }
    turn.change(|record| record.entry.title = Some(title.clone()))?;
    turn.act(json!({ "sessionUpdate": "session_info_update", "title": title }))
        .await?;
    turn.say("I named the session so. A name that you gave it yourself counts for more.")
        .await
}

/// Changes the mode or the pace.
pub(super) async fn set_option(turn: &mut Turn, option: &str, input: &str) -> Step {
    let value = json!(input);
    if turn.options().set(option, &value).is_err() {
        let hint = SCENES
            .command(option)
            .and_then(|command| command.hint.as_deref())
            .unwrap_or_default();
        return turn.say(&format!("The {option} is one of: {hint}.")).await;
    }
    turn.set_option(option, &value).await?;
    let name = turn.options().selected_name(option).to_owned();
    turn.say(&format!(
        "The {option} is **{name}** now, and I notified your client."
    ))
    .await
}

pub(super) async fn remember(turn: &mut Turn, input: &str) -> Step {
    let word = one_line(input, WORD_MAX);
    if word.is_empty() {
        return turn.say("Which word? `/remember apple`.").await;
    }
    turn.say(&format!(
        "I remember {} in this session. `/recall` asks for it.",
        quoted(&word, WORD_MAX)
    ))
    .await
}

/// Reads the word from the history. The answer therefore shows whether the session was restored.
pub(super) async fn recall(turn: &mut Turn) -> Step {
    let word = turn.record().history.prompts().find_map(|prompt| {
        let word = prompt.trim().strip_prefix("/remember ")?;
        Some(one_line(word, WORD_MAX)).filter(|word| !word.is_empty())
    });
    match word {
        Some(word) => {
            turn.say(&format!("The word is {}.", quoted(&word, WORD_MAX)))
                .await
        }
        None => turn.say("This session remembers no word.").await,
    }
}

pub(super) async fn about(turn: &mut Turn, meta: &Value) -> Step {
    let record = turn.record().clone();
    let shown = |text: &str| quoted(text, MAX_SHOWN_CHARS);
    let list = |of: Vec<String>| {
        if of.is_empty() {
            "none".to_owned()
        } else {
            of.join(", ")
        }
    };
    let workspace = &record.entry.workspace;
    let directories = workspace
        .additional_directories
        .iter()
        .map(|path| shown(&path.to_string_lossy()));
    let servers = workspace
        .mcp_servers
        .iter()
        .map(|server| shown(&server.name));
    let mut rows = vec![
        ("speaks ACP", format!("v{}", turn.client.version.number())),
        ("its id", format!("`{}`", record.entry.session_id)),
        ("works in", shown(&record.cwd())),
        ("and in", list(directories.collect())),
        ("MCP servers", list(servers.collect())),
        ("mode", record.options.selected_name(MODE).to_owned()),
        ("turns", record.turns.to_string()),
    ];
    if let Some(trace) = meta["traceparent"].as_str() {
        rows.push(("trace", shown(trace)));
    }
    let mut text = table("This session", rows);
    let offered = CAPABILITIES.map(|(capability, name)| {
        (
            name,
            if turn.client.offers(capability) {
                "yes"
            } else {
                "no"
            }
            .to_owned(),
        )
    });
    text.push('\n');
    text.push_str(&table("Your client offers", offered));
    turn.say(&text).await
}

fn table<'a>(title: &str, rows: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let rows = rows
        .into_iter()
        .map(|(name, value)| format!("| {name} | {value} |\n"));
    format!("| {title} | |\n| --- | --- |\n{}", rows.collect::<String>())
}
