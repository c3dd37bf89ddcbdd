//! The scenes that need decisions, by their subject: files and terminals of the client, requests to the user, the state of the
//! session, and turns that take time.

use std::time::Duration;

use agent_client_protocol_schema::v1::Error;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::data::SCENES;
use crate::demo_agent::client::{CAPABILITIES, READ_FILES};
use crate::demo_agent::options::MODE;
use crate::demo_agent::text::{error_text, excerpt, fenced, number, one_line, quoted, words};
use crate::demo_agent::turn::{Step, Turn, tool_call_update};

const MAX_FILE_CHARS: usize = 4000;
const PATH_MAX: usize = 200;
const VALUE_MAX: usize = 80;
const TITLE_MAX: usize = 60;
const WORD_MAX: usize = 80;
const MAX_SHOWN_CHARS: usize = 200;
const POLL_INTERVAL: Duration = Duration::from_millis(200);
const COMMAND_TITLE_MAX: usize = 120;
/// The number of bytes of output that the client keeps.
const OUTPUT_BYTES: u64 = 64 << 10;

/// `path [first line [lines]]`.
pub(super) async fn read(turn: &mut Turn, input: &str) -> Step {
    let words = words(input);
    let Some(name) = words.first() else {
        return turn
            .say("Which file? `/read README.md`, or `/read README.md 10 5` for five lines from the tenth.")
            .await;
    };
    let path = turn.path(name);
    let mut params = json!({ "path": path });
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u32>().ok());
    if let Some(line) = number(1) {
        params["line"] = line.into();
    }
    let location = params.clone();
    if let Some(limit) = number(2) {
        params["limit"] = limit.into();
    }
    let title = format!("Read {}", excerpt(name, PATH_MAX));
    let call =
        json!({ "title": title, "kind": "read", "status": "in_progress", "locations": [location] });
    let call = turn.call(&call).await?;
    match turn.request("fs/read_text_file", params).await? {
        Ok(file) => {
            let content = file["content"].as_str().unwrap_or_default();
            let letters = content.chars().count();
            let lines = content.lines().count();
            let text = fenced("", &excerpt(content, MAX_FILE_CHARS));
            turn.end_call(&call, "completed", &text).await?;
            turn.say(&format!(
                "{} has {letters} characters here, and {lines} lines.",
                quoted(name, PATH_MAX)
            ))
            .await
        }
        Err(error) => {
            turn.end_call(&call, "failed", &error_text(&error)).await?;
            turn.say(&format!("I could not read {}.", quoted(name, PATH_MAX)))
                .await
        }
    }
}

/// `path text`: asks for permission with a diff, if the mode requires it.
pub(super) async fn write(turn: &mut Turn, input: &str) -> Step {
    let (name, text) = input.split_once(char::is_whitespace).unwrap_or((input, ""));
    if name.is_empty() {
        return turn.say("Which file? `/write notes.txt some text`.").await;
    }
    let path = turn.path(name);
    let text = format!("{}\n", text.trim_start());
    let mut diff = json!({ "type": "diff", "path": path, "newText": text });
    if turn.client.offers(READ_FILES) {
        // For the diff, an unreadable file is a new file.
        let old = turn
            .request("fs/read_text_file", json!({ "path": path }))
            .await?;
        if let Ok(mut old) = old {
            diff["oldText"] = old["content"].take();
        }
    }
    let call = json!({
        "title": format!("Write {}", excerpt(name, PATH_MAX)),
        "kind": "edit",
        "content": [diff],
        "locations": [{ "path": path }],
    });
    let (call, permission) = turn.call_if_permitted(&call).await?;
    let status = |status: &str| -> Value { json!({ "status": status }) };
    if !permission.granted {
        turn.progress(&call, status("failed")).await?;
        let denial = turn.denial();
        let text = format!("{denial}, so the file was not written.");
        return turn.say(&text).await;
    }
    turn.progress(&call, status("in_progress")).await?;
    let params = json!({ "path": path, "content": text });
    let written = turn.request("fs/write_text_file", params).await?;
    let name = quoted(name, PATH_MAX);
    if let Err(error) = written {
        turn.end_call(&call, "failed", &error_text(&error)).await?;
        return turn.say(&format!("I could not write {name}.")).await;
    }
    turn.progress(&call, status("completed")).await?;
    turn.say(&format!("I wrote {} bytes to {name}.", text.len()))
        .await
}

pub(super) async fn form(turn: &mut Turn, input: &str) -> Step {
    turn.say("Here is a form; the turn waits until you send it.\n\n")
        .await?;
    let mut schema: Value = serde_json::from_str(include_str!("../form.json"))
        .map_err(|error| Error::internal_error().data(error.to_string()))?;
    if input == "short" {
        let name = &schema["properties"]["name"];
        schema = json!({ "type": "object", "properties": { "name": name }, "required": ["name"] });
    }
    let params = json!({
        "mode": "form",
        "message": "The demo would like to know some things.",
        "requestedSchema": schema,
    });
    let text = match turn.request("elicitation/create", params).await? {
        Ok(answer) => match answer["action"].as_str() {
            Some("accept") => format!("You answered:\n\n{}", listed(&answer["content"])),
            Some("decline") => "You declined to answer.".to_owned(),
            _ => "You cancelled the form.".to_owned(),
        },
        Err(error) => format!("Your client did not ask: {}", error_text(&error)),
    };
    turn.say(&text).await
}

fn listed(values: &Value) -> String {
    let line = |(name, value): (&String, &Value)| {
        let value = match value {
            Value::String(text) => quoted(text, VALUE_MAX),
            Value::Bool(true) => "yes".to_owned(),
            Value::Bool(false) => "no".to_owned(),
            Value::Array(items) => {
                let texts: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
                quoted(&texts.join(", "), VALUE_MAX)
            }
            other => other.to_string(),
        };
        format!("- {}: {value}\n", quoted(name, VALUE_MAX))
    };
    match values.as_object() {
        Some(values) if !values.is_empty() => values.iter().map(line).collect(),
        _ => "nothing at all.".to_owned(),
    }
}

pub(super) async fn link(turn: &mut Turn) -> Step {
    turn.say("Here is a page to open; the turn waits until you say whether you will.\n\n")
        .await?;
    let id = turn.new_id("page-");
    let params = json!({
        "mode": "url",
        "message": "Open the demo's page, where you would sign in with a real agent.",
        "elicitationId": id,
        "url": format!("https://example.com/demo?for={id}"),
    });
    match turn.request("elicitation/create", params).await? {
        Ok(answer) if answer["action"] == "accept" => {
            turn.say("You opened it. I pretend that you complete the sign-in there.\n\n")
                .await?;
            turn.pause(40).await?;
            let params = json!({ "elicitationId": id });
            turn.client.notify("elicitation/complete", params).await;
            turn.say("It is complete, and I notified your client.")
                .await
        }
        Ok(answer) if answer["action"] == "decline" => turn.say("You declined to open it.").await,
        Ok(_) => turn.say("You cancelled the question.").await,
        Err(error) => {
            let reason = error_text(&error);
            turn.say(&format!("Your client did not ask: {reason}"))
                .await
        }
    }
}

/// A permission request that is cancelled after a time without an answer.
pub(super) async fn withdraw(turn: &mut Turn, input: &str) -> Step {
    let seconds = number(input, 5, 600);
    turn.say(&format!(
        "I ask, and cancel the request after {seconds} s.\n\n"
    ))
    .await?;
    let call = json!({ "title": "Think about the folder \"imaginary\"", "kind": "think" });
    let id = turn.call(&call).await?;
    let limit = Duration::from_secs(seconds.into());
    // Dropping the request cancels it at the client.
    if let Ok(answer) = tokio::time::timeout(limit, turn.ask(&id, &call)).await {
        answer?;
        turn.end_call(&id, "completed", "Answered in time.").await?;
        return turn.say("You were quicker.").await;
    }
    turn.end_call(&id, "failed", "The request was cancelled.")
        .await?;
    turn.say("I cancelled the request.").await
}

pub(super) async fn extension(turn: &mut Turn) -> Step {
    let note =
        json!({ "sessionId": turn.session().id, "note": "A note that ACP does not define." });
    turn.client.notify("_demo/note", note).await;
    turn.say("I sent the notification `_demo/note`, and ask `_demo/ask` now.\n\n")
        .await?;
    let params = json!({ "question": "What is the answer?", "choices": [41, 42] });
    match turn.request("_demo/ask", params).await? {
        Ok(answer) => {
            let answer = fenced("json", &format!("{answer:#}"));
            turn.say(&format!("The answer is\n\n{answer}\n")).await
        }
        Err(error) => {
            let reason = error_text(&error);
            turn.say(&format!("There was no answer: {reason}")).await
        }
    }
}

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

pub(super) async fn set_option(turn: &mut Turn, option: &str, input: &str) -> Step {
    let value = json!(input);
    if turn.options().set(option, &value).is_err() {
        let command = SCENES.command(option);
        let hint = command.and_then(|command| command.hint.as_deref());
        let hint = hint.unwrap_or_default();
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
    let text = match word {
        Some(word) => format!("The word is {}.", quoted(&word, WORD_MAX)),
        None => "This session remembers no word.".to_owned(),
    };
    turn.say(&text).await
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
    let directories = workspace.additional_directories.iter();
    let directories = directories.map(|path| shown(&path.to_string_lossy()));
    let servers = workspace.mcp_servers.iter();
    let servers = servers.map(|server| shown(&server.name));
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
        let offers = if turn.client.offers(capability) {
            "yes"
        } else {
            "no"
        };
        (name, offers.to_owned())
    });
    text.push('\n');
    text.push_str(&table("Your client offers", offered));
    turn.say(&text).await
}

fn table<'a>(title: &str, rows: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let mut table = format!("| {title} | |\n| --- | --- |\n");
    for (name, value) in rows {
        table += &format!("| {name} | {value} |\n");
    }
    table
}

pub(super) async fn run(turn: &mut Turn, input: &str) -> Step {
    let Some((call, terminal)) = start(turn, input).await? else {
        return Ok(());
    };
    let ended = match request(turn, "wait_for_exit", &terminal).await? {
        Ok(_) => finish(turn, &terminal).await?,
        failed => failed,
    };
    conclude(turn, &call, ended).await
}

pub(super) async fn timeout(turn: &mut Turn, input: &str) -> Step {
    let (seconds, line) = input.split_once(char::is_whitespace).unwrap_or((input, ""));
    let seconds = number(seconds, 5, 600);
    let Some((call, terminal)) = start(turn, line).await? else {
        return Ok(());
    };
    if still_runs(turn, &terminal, seconds).await? {
        turn.say(&format!(
            "It still runs after {seconds} s, so I kill it.\n\n"
        ))
        .await?;
        for method in ["kill", "wait_for_exit"] {
            if let Err(error) = request(turn, method, &terminal).await? {
                return conclude(turn, &call, Err(error)).await;
            }
        }
    }
    let ended = finish(turn, &terminal).await?;
    conclude(turn, &call, ended).await
}

/// Polls a command. Returns true if it has not ended within the time.
async fn still_runs(turn: &Turn, terminal: &str, seconds: u32) -> Step<bool> {
    for _ in 0..seconds * 5 {
        turn.wait(POLL_INTERVAL).await?;
        match request(turn, "output", terminal).await? {
            Ok(output) if output["exitStatus"].is_null() => {}
            // The final read of the output reports an error.
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Asks for permission if the mode requires it, and starts the command in the session's directory. Returns the
/// tool call and the terminal, or `None` if nothing was started.
async fn start(turn: &mut Turn, line: &str) -> Step<Option<(String, String)>> {
    let words = words(line);
    let Some((command, args)) = words.split_first() else {
        turn.say("Which command? `/run ls -la`, or `/timeout 2 sleep 60`.")
            .await?;
        return Ok(None);
    };
    let title = format!("Run {}", excerpt(&words.join(" "), COMMAND_TITLE_MAX));
    let input = json!({ "command": command, "args": args });
    let (call, permission) = turn
        .call_if_permitted(&json!({ "title": title, "kind": "execute", "rawInput": input }))
        .await?;
    if !permission.granted {
        turn.end_call(&call, "failed", "Not run.").await?;
        turn.say(&format!("{}, so the command did not run.", turn.denial()))
            .await?;
        return Ok(None);
    }
    let mut params = json!({
        "command": command,
        "env": [{ "name": "ACP_DEMO", "value": "1" }],
        "cwd": turn.record().cwd(),
        "outputByteLimit": OUTPUT_BYTES,
    });
    if !args.is_empty() {
        params["args"] = json!(args);
    }
    match turn.request("terminal/create", params).await? {
        Ok(created) => {
            let terminal = created["terminalId"].as_str();
            let terminal = terminal.unwrap_or_default().to_owned();
            turn.terminals.push(terminal.clone());
            let content = json!([{ "type": "terminal", "terminalId": terminal }]);
            let members = json!({ "status": "in_progress", "content": content });
            turn.progress(&call, members).await?;
            Ok(Some((call, terminal)))
        }
        Err(error) => {
            turn.end_call(&call, "failed", &error_text(&error)).await?;
            turn.say("The command could not be started.").await?;
            Ok(None)
        }
    }
}

async fn request(turn: &Turn, method: &str, terminal: &str) -> Step<Result<Value, Error>> {
    let params = json!({ "terminalId": terminal });
    turn.request(&format!("terminal/{method}"), params).await
}

/// Reads the output and the exit status, and releases the terminal.
async fn finish(turn: &mut Turn, terminal: &str) -> Step<Result<Value, Error>> {
    let output = request(turn, "output", terminal).await?;
    if output.is_err() {
        return Ok(output);
    }
    let released = request(turn, "release", terminal).await?;
    turn.terminals.retain(|open| open != terminal);
    Ok(released.and(output))
}

async fn conclude(turn: &mut Turn, call: &str, ended: Result<Value, Error>) -> Step {
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => {
            turn.end_call(call, "failed", &error_text(&error)).await?;
            return turn.say("The terminal failed.").await;
        }
    };
    let exit = &ended["exitStatus"];
    let raw = json!({
        "exitCode": exit["exitCode"], "signal": exit["signal"],
        "truncated": ended["truncated"], "output": ended["output"],
    });
    let status = if exit["exitCode"] == 0 {
        "completed"
    } else {
        "failed"
    };
    turn.progress(call, json!({ "status": status, "rawOutput": raw }))
        .await?;
    let how = match (exit["exitCode"].as_u64(), exit["signal"].as_str()) {
        (Some(code), _) => format!("with the exit code {code}"),
        (None, Some(signal)) => format!("by the signal {signal}"),
        (None, None) => "without an exit status".to_owned(),
    };
    let cut = if ended["truncated"] == true {
        ", of which the first part is lost"
    } else {
        ""
    };
    let bytes = ended["output"].as_str().map_or(0, str::len);
    turn.say(&format!(
        "The command ended {how}, after {bytes} bytes of output{cut}."
    ))
    .await
}

pub(super) async fn long(turn: &mut Turn, input: &str) -> Step {
    let count = number(input, 20, 200);
    for (at, text) in (1..=count).zip(SCENES.paragraphs.iter().cycle()) {
        turn.say(&format!("**{at} of {count}.** {text}\n\n"))
            .await?;
    }
    Ok(())
}

/// Sends a tick each second. The pace does not change it.
pub(super) async fn slow(turn: &mut Turn, input: &str) -> Step {
    let seconds = number(input, 30, 600);
    turn.say(&format!(
        "This takes {seconds} seconds. Cancel it whenever you like.\n\n"
    ))
    .await?;
    for second in 1..=seconds {
        turn.wait(Duration::from_secs(1)).await?;
        turn.say(&format!("{second} ")).await?;
    }
    turn.say("\n\nDone.").await
}

pub(super) async fn correct(turn: &mut Turn) -> Step {
    const CORRECTED: &str = "The capital of Australia is Canberra.";
    let message = turn.new_message();
    turn.say("The capital of Australia is Sydney.").await?;
    turn.pause(40).await?;
    turn.check()?;
    turn.record().history.replace(&message, CORRECTED);
    let content = json!([{ "type": "text", "text": CORRECTED }]);
    let update =
        json!({ "sessionUpdate": "agent_message", "messageId": message, "content": content });
    turn.show(update).await;
    turn.say(" (I had said Sydney first.)").await
}

/// The turn ends, and later the agent works again without a prompt.
pub(super) async fn start_background_work(turn: &mut Turn, input: &str) -> Step {
    let seconds = number(input, 5, 600);
    turn.background_work_after = Some(Duration::from_secs(seconds.into()));
    turn.say(&format!(
        "This turn ends now. In {seconds} s I work again, and nobody has to ask me."
    ))
    .await
}

/// `tool` or `terminal`, and its duration: a part of the turn that can be cancelled by itself.
pub(super) async fn part(turn: &mut Turn, input: &str) -> Step {
    let (kind, seconds) = input.split_once(char::is_whitespace).unwrap_or((input, ""));
    let seconds = number(seconds.trim(), 30, 600);
    turn.say(&format!(
        "One part of this turn takes {seconds} s. Cancel it, and the turn continues.\n\n"
    ))
    .await?;
    let cancelled = if kind == "terminal" {
        terminal(turn, seconds).await?
    } else {
        tool_call(turn, seconds).await?
    };
    turn.say(if cancelled {
        "It was cancelled, and I continue."
    } else {
        "Nobody cancelled it."
    })
    .await
}

async fn tool_call(turn: &mut Turn, seconds: u32) -> Step<bool> {
    let call = turn
        .call(&json!({ "title": "Take some time", "status": "in_progress" }))
        .await?;
    let part = turn.session().part(&call);
    let can_cancel = json!({ "capabilities": { "cancel": {} } });
    turn.show(tool_call_update(&call, can_cancel)).await;
    let time = Duration::from_secs(seconds.into());
    let cancelled = turn.wait_for_part(&part, time).await;
    turn.session().end_part(&call);
    if cancelled? {
        turn.call_cancelled(&call).await;
        return Ok(true);
    }
    turn.show(tool_call_update(&call, json!({ "capabilities": null })))
        .await;
    turn.progress(&call, json!({ "status": "completed" }))
        .await?;
    Ok(false)
}

async fn terminal(turn: &mut Turn, seconds: u32) -> Step<bool> {
    let terminal = turn
        .begin_display(&format!("sleep {seconds}"), true)
        .await?;
    let part = turn.session().part(&terminal);
    let cancelled = tick(turn, &terminal, &part, seconds).await;
    turn.session().end_part(&terminal);
    let cancelled = cancelled?;
    let mut status = json!({ "exitCode": 0 });
    if cancelled {
        status = json!({ "signal": "SIGTERM" });
    }
    turn.end_display(&terminal, status).await;
    Ok(cancelled)
}

async fn tick(
    turn: &mut Turn,
    terminal: &str,
    part: &CancellationToken,
    seconds: u32,
) -> Step<bool> {
    for second in 1..=seconds {
        if turn.wait_for_part(part, Duration::from_secs(1)).await? {
            return Ok(true);
        }
        turn.grow_display(terminal, &format!("{second}\n")).await?;
    }
    Ok(false)
}
